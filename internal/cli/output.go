package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"atoll/internal/cli/term"
	"atoll/internal/fault"
)

// printf writes the host's words; values of others must have gone through term.Clean.
func (a *app) printf(format string, args ...any) { fmt.Fprintf(a.Stdout, format+"\n", args...) }

// note writes to the person, not to what reads the output.
func (a *app) note(format string, args ...any) { fmt.Fprintf(a.Stderr, format+"\n", args...) }

// printJSON writes a value as JSON. What a terminal could take for more than text is escaped, which JSON allows.
func (a *app) printJSON(v any) error {
	raw, err := json.Marshal(v, json.Deterministic(true), json.FormatNilSliceAsNull(false), jsontext.WithIndent("  "))
	if err != nil {
		return fault.Wrap(err, fault.Failed, "the answer cannot be written as JSON")
	}
	_, err = a.Stdout.Write(append(escaped(raw), '\n'))
	return err
}

// escaped writes invisible and control characters of JSON text, which can only stand inside strings, as \u escapes.
func escaped(raw []byte) []byte {
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

// showError says what went wrong and what to do.
func (a *app) showError(err error) {
	if _, ok := errors.AsType[silent](err); ok {
		return
	}
	f := fault.Of(err)
	words := term.Clean(f.Public)
	u, isUsage := errors.AsType[usageError](err)
	if isUsage && f.Code == fault.Failed {
		words = term.Clean(u.error.Error())
	}
	if f.Field != "" && !strings.Contains(words, f.Field) {
		words = term.Clean(f.Field) + ": " + words
	}
	if hint := hint(f); hint != "" && !strings.Contains(words, "—") {
		words += " — " + hint
	}
	if a.json {
		code := f.Code
		if isUsage {
			code = fault.InvalidParams
		}
		_ = a.printJSON(map[string]any{"error": struct {
			Code        fault.Code `json:"code"`
			Message     string     `json:"message"`
			Field       string     `json:"field,omitempty"`
			RetryAfterS int64      `json:"retry_after_s,omitzero"`
		}{code, words, f.Field, int64(f.RetryAfter.Seconds())}})
		return
	}
	a.note("atoll: %s", words)
	if isUsage && u.command != "" {
		a.note("Run `%s --help` for how to write it.", u.command)
	}
}

// hint says what to do about a refusal whose words do not.
func hint(f *fault.Error) string {
	switch f.Code {
	case fault.Unauthenticated, fault.CSRF:
		return "run `atoll login`"
	case fault.Forbidden:
		return "ask the node's owner"
	case fault.Off, fault.ReadOnly:
		return "the owner can change it with `atoll mode confirm`"
	case fault.Busy:
		return "wait until it has ended, or stop it"
	case fault.UnknownMethod:
		return "the node is of another version than this program"
	case fault.RateLimited:
		if f.RetryAfter > 0 {
			return "try again in " + f.RetryAfter.String()
		}
	}
	return ""
}

// column is one column of a table. The first of keys that a row has is shown.
type column struct {
	title string
	keys  []string
	show  func(jsontext.Value) string // nil: as plain text
}

func col(title string, keys ...string) column { return column{title, keys, nil} }

type row = map[string]jsontext.Value

// listing calls a method and shows the list in its result.
func (a *app) listing(ctx context.Context, method string, params any, list string, empty string, cols ...column) error {
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	var raw jsontext.Value
	if err := c.Call(ctx, method, params, &raw); err != nil {
		return err
	}
	if a.json {
		return a.printJSON(raw)
	}
	rows, err := rowsOf(raw, list)
	if err != nil {
		return err
	}
	a.table(rows, empty, cols...)
	return nil
}

func rowsOf(raw jsontext.Value, list string) ([]row, error) {
	var result map[string]jsontext.Value
	var rows []row
	err := json.Unmarshal(raw, &result)
	if err == nil && len(result[list]) > 0 {
		err = json.Unmarshal(result[list], &rows)
	}
	if err != nil {
		return nil, fault.Wrap(err, fault.Failed, "the node's answer is not what this version of atoll reads — are both of one version?")
	}
	return rows, nil
}

// table shows rows under titles; columns that no row has are left out.
func (a *app) table(rows []row, empty string, cols ...column) {
	if len(rows) == 0 {
		a.printf("%s", empty)
		return
	}
	cols = slices.DeleteFunc(cols, func(c column) bool {
		return !slices.ContainsFunc(rows, func(r row) bool { return c.text(r) != "" })
	})
	w := tabwriter.NewWriter(a.Stdout, 0, 4, 2, ' ', 0)
	line := func(cells []string) {
		fmt.Fprintln(w, strings.TrimRight(strings.Join(cells, "\t"), "\t"))
	}
	cells := make([]string, len(cols))
	for i, c := range cols {
		cells[i] = c.title
	}
	line(cells)
	for _, r := range rows {
		for i, c := range cols {
			if cells[i] = c.text(r); cells[i] == "" {
				cells[i] = "-"
			}
		}
		line(cells)
	}
	_ = w.Flush()
}

func (c column) text(r row) string {
	for _, k := range c.keys {
		if v, ok := r[k]; ok && v.Kind() != 'n' {
			if c.show != nil {
				return c.show(v)
			}
			return plainText(v)
		}
	}
	return ""
}

// plainText shows a JSON value on one line: numbers with their digits, times in the local zone.
func plainText(v jsontext.Value) string {
	switch v.Kind() {
	case '"':
		b, err := jsontext.AppendUnquote(nil, v)
		if err != nil {
			return term.Clean(string(v))
		}
		if t, err := time.Parse(time.RFC3339Nano, string(b)); err == nil {
			return t.Local().Format("2006-01-02 15:04:05")
		}
		return term.Clean(string(b))
	case 't':
		return "yes"
	case 'f':
		return "no"
	case '[':
		var items []jsontext.Value
		if json.Unmarshal(v, &items) == nil {
			words := make([]string, len(items))
			for i, it := range items {
				words[i] = plainText(it)
			}
			return strings.Join(words, ", ")
		}
	}
	return term.Clean(string(v))
}

// size shows a number of bytes.
func size(v jsontext.Value) string {
	n, err := strconv.ParseFloat(string(v), 64)
	if err != nil {
		return plainText(v)
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

func percent(v jsontext.Value) string {
	n, err := strconv.ParseFloat(string(v), 64)
	if err != nil {
		return plainText(v)
	}
	return fmt.Sprintf("%.0f%%", n)
}

// duration shows a number of seconds.
func duration(v jsontext.Value) string {
	n, err := strconv.ParseFloat(string(v), 64)
	if err != nil {
		return plainText(v)
	}
	return (time.Duration(n) * time.Second).String()
}
