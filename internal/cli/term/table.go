package term

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Row is one object of a result.
type Row = map[string]jsontext.Value

// Column is one column of a table. The first of Keys that a row has is shown.
type Column struct {
	Title string
	Keys  []string
	Show  func(jsontext.Value) string // nil: Text
	// Spare says how well the table can do without it: of columns that have no room the one with the highest number goes
	// first, and one with zero never.
	Spare int
}

// Table shows rows under titles; columns that no row has are left out.
func Table(out io.Writer, rows []Row, empty string, cols ...Column) {
	TableWithin(out, 0, rows, empty, cols...)
}

// TableWithin is Table on so many columns of a screen; zero is no limit.
func TableWithin(out io.Writer, width int, rows []Row, empty string, cols ...Column) {
	if len(rows) == 0 {
		fmt.Fprintln(out, empty)
		return
	}
	cols = slices.DeleteFunc(cols, func(c Column) bool {
		return !slices.ContainsFunc(rows, func(r Row) bool { return c.Text(r) != "" })
	})
	if width > 0 {
		cols = fitting(cols, rows, width)
	}
	w := tabwriter.NewWriter(out, 0, 4, gap, ' ', 0)
	line := func(cells []string) {
		fmt.Fprintln(w, strings.TrimRight(strings.Join(cells, "\t"), "\t"))
	}
	cells := make([]string, len(cols))
	for i, c := range cols {
		cells[i] = c.Title
	}
	line(cells)
	for _, r := range rows {
		for i, c := range cols {
			if cells[i] = c.Text(r); cells[i] == "" {
				cells[i] = "-"
			}
		}
		line(cells)
	}
	_ = w.Flush()
}

const gap = 2 // columns between two cells

// fitting leaves out what the width has no room for.
func fitting(cols []Column, rows []Row, width int) []Column {
	total := -gap
	wide := map[string]int{}
	for _, c := range cols {
		w := textWidth(c.Title)
		for _, r := range rows {
			w = max(w, textWidth(c.Text(r)))
		}
		wide[c.Title] = w + gap
		total += w + gap
	}
	for total > width {
		least := 0
		for i, c := range cols {
			if c.Spare > cols[least].Spare {
				least = i
			}
		}
		if cols[least].Spare == 0 {
			break
		}
		total -= wide[cols[least].Title]
		cols = slices.Delete(cols, least, least+1)
	}
	return cols
}

// Text is the column's value in a row, or "".
func (c Column) Text(r Row) string {
	for _, k := range c.Keys {
		if v, ok := r[k]; ok && v.Kind() != 'n' {
			if c.Show != nil {
				return c.Show(v)
			}
			return Text(v)
		}
	}
	return ""
}

// Text shows a JSON value on one line: numbers with their digits, times in the local zone.
func Text(v jsontext.Value) string {
	switch v.Kind() {
	case '"':
		b, err := jsontext.AppendUnquote(nil, v)
		if err != nil {
			return Clean(string(v))
		}
		if t, err := time.Parse(time.RFC3339Nano, string(b)); err == nil {
			return t.Local().Format("2006-01-02 15:04:05")
		}
		return Clean(string(b))
	case 't':
		return "yes"
	case 'f':
		return "no"
	case '[':
		var items []jsontext.Value
		if json.Unmarshal(v, &items) == nil {
			words := make([]string, len(items))
			for i, it := range items {
				words[i] = Text(it)
			}
			return strings.Join(words, ", ")
		}
	}
	return Clean(string(v))
}

// Bytes shows a number of bytes.
func Bytes(v jsontext.Value) string {
	n, err := strconv.ParseFloat(string(v), 64)
	if err != nil {
		return Text(v)
	}
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}
	i := 0
	for ; n >= 1024 && i < len(units)-1; i++ {
		n /= 1024
	}
	if i == 0 {
		return fmt.Sprintf("%.0f B", n)
	}
	return fmt.Sprintf("%.1f %s", n, units[i])
}

// Percent shows a number of percent.
func Percent(v jsontext.Value) string {
	n, err := strconv.ParseFloat(string(v), 64)
	if err != nil {
		return Text(v)
	}
	return fmt.Sprintf("%.0f%%", n)
}

// Seconds shows a number of seconds.
func Seconds(v jsontext.Value) string {
	n, err := strconv.ParseFloat(string(v), 64)
	if err != nil {
		return Text(v)
	}
	return (time.Duration(n) * time.Second).String()
}

// EscapeJSON writes invisible and control characters of JSON text, which can only stand inside strings, as \u escapes.
func EscapeJSON(raw []byte) []byte {
	var b bytes.Buffer
	for _, r := range string(raw) {
		switch {
		case r == '\n' || r >= ' ' && r < 0x7f || r > 0x9f && unicode.IsPrint(r):
			b.WriteRune(r)
		case r > 0xffff:
			r -= 0x10000
			fmt.Fprintf(&b, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.Bytes()
}
