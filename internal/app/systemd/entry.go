package systemd

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"atoll/internal/app"
	"atoll/internal/fence"
)

// maxEntry bounds one entry as journalctl writes it, in bytes. journald itself cuts a program's output into entries of
// 48 KiB; as an array of bytes that is four times as much.
const maxEntry = 1 << 20

// The streams of a unit's log: what the unit wrote, and what systemd wrote about it.
const (
	streamOutput  fence.Word = "output"
	streamSystemd fence.Word = "systemd"
)

// entry is what is read of one entry of the journal. Only the field that journald itself sets says whose it is.
type entry struct {
	Time    string         `json:"__REALTIME_TIMESTAMP"` // microseconds
	Unit    string         `json:"_SYSTEMD_UNIT"`
	Message jsontext.Value `json:"MESSAGE"`
}

// fields are the ones that journalctl is asked for; it adds the time.
const fields = "MESSAGE,_SYSTEMD_UNIT"

// parseEntry reads one line of `journalctl -o json` as lines of a log. cut means that something of it is missing.
func parseEntry(line []byte, unit string) (lines []app.Line, cut bool) {
	var e entry
	if err := json.Unmarshal(line, &e); err != nil {
		return nil, true
	}
	first := app.Line{Stream: streamSystemd}
	if e.Unit == unit {
		first.Stream = streamOutput
	}
	if us, err := strconv.ParseInt(e.Time, 10, 64); err == nil && us > 0 {
		first.Time = time.UnixMicro(us)
	}
	text, ok := message(e.Message)
	if !ok {
		first.Text = "[a line that the journal does not show]"
		return []app.Line{first}, true
	}
	for one := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
		l := first
		var short bool
		l.Text, short = plainLine(one)
		lines, cut = append(lines, l), cut || short
	}
	return lines, cut
}

// message takes the text out of MESSAGE: a string, an array of bytes where it is not plain UTF-8, null where it is too
// large, and an array of these where the field is there several times; the first one counts.
func message(v jsontext.Value) (string, bool) {
	switch v.Kind() {
	case '"':
		var s string
		err := json.Unmarshal(v, &s)
		return s, err == nil
	case '[':
		if b, err := byteArray(v); err == nil {
			return string(b), true
		}
		var several []jsontext.Value
		if err := json.Unmarshal(v, &several); err != nil || len(several) == 0 {
			return "", false
		}
		if b, err := byteArray(several[0]); err == nil {
			return string(b), true
		}
		if several[0].Kind() == '"' {
			return message(several[0])
		}
	}
	return "", false
}

// byteArray reads [72,105].
func byteArray(v jsontext.Value) ([]byte, error) {
	var numbers []uint16
	if err := json.Unmarshal(v, &numbers); err != nil {
		return nil, err
	}
	out := make([]byte, len(numbers))
	for i, n := range numbers {
		if n > 255 {
			return nil, errors.New("no byte")
		}
		out[i] = byte(n)
	}
	return out, nil
}

// plainLine makes a text fit for app.Line.
func plainLine(s string) (string, bool) {
	s = strings.ToValidUTF8(strings.TrimRight(s, "\r"), "\uFFFD")
	s = strings.ReplaceAll(s, "\r", " ")
	if len(s) <= app.MaxLine {
		return s, false
	}
	const room = 64 // for the mark
	end := app.MaxLine - room
	for !utf8.RuneStart(s[end]) {
		end--
	}
	return fmt.Sprintf("%s [… %d bytes cut by Atoll]", s[:end], len(s)-end), true
}

// entries reads journalctl's output line by line in bounded memory and gives each entry's lines to each, in order.
func entries(r io.Reader, unit string, each func(lines []app.Line, cut bool) error) error {
	br := bufio.NewReaderSize(r, 64<<10)
	var line []byte
	long := false
	for {
		part, err := br.ReadSlice('\n')
		if len(line)+len(part) > maxEntry {
			long, line = true, line[:0]
		} else if !long {
			line = append(line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil && !errors.Is(err, io.EOF):
			return err
		}
		end := err != nil
		if long {
			err = each([]app.Line{{Stream: streamOutput, Text: "[a line too long to be read here]"}}, true)
		} else if len(line) > 0 && line[0] == '{' {
			err = each(parseEntry(line, unit))
		} else {
			err = nil
		}
		if err != nil || end {
			return err
		}
		line, long = line[:0], false
	}
}

// tail keeps the last lines within two bounds.
type tail struct {
	most  int // lines
	lines []app.Line
	bytes int
	short bool // lines were dropped for their bytes
}

// maxTail bounds the text of a log that is returned at once, in bytes.
const maxTail = 1 << 20

func (t *tail) add(l app.Line) {
	t.lines, t.bytes = append(t.lines, l), t.bytes+len(l.Text)
	for len(t.lines) > t.most || t.bytes > maxTail {
		t.short = t.short || len(t.lines) <= t.most
		t.bytes -= len(t.lines[0].Text)
		t.lines = t.lines[1:]
	}
}
