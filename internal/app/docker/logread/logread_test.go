package logread

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"unicode"
	"unicode/utf8"
)

const most = 100

func frame(stream byte, text string) string {
	head := []byte{stream, 0, 0, 0, 0, 0, 0, 0}
	binary.BigEndian.PutUint32(head[4:], uint32(len(text)))
	return string(head) + text
}

const stamp = "2026-12-02T08:19:58.123456789Z "

func read(t *testing.T, src io.Reader, tty bool) ([]Line, error) {
	t.Helper()
	r := New(src, tty, most)
	var lines []Line
	for range 10_000 {
		raw, err := r.Next()
		if err != nil {
			if again, more := r.Next(); more != err || again.Data != nil { //nolint:errorlint // the very same
				t.Errorf("after %v came %q, %v", err, again.Data, more)
			}
			return lines, err
		}
		lines = append(lines, raw.Line(most))
	}
	t.Fatal("no end")
	return nil, nil
}

// Issue 3: logs demultiplexed, with TTY and without, whatever the sizes of frames and reads.
func TestNext(t *testing.T) {
	cases := []struct {
		name, in string
		tty      bool
		want     []string // a leading ! is stderr
		err      error
	}{
		{name: "nothing", err: io.EOF},
		{name: "both streams", in: frame(1, stamp+"one\n") + frame(2, stamp+"two\n") + frame(1, stamp+"three\n"),
			want: []string{"one", "!two", "three"}, err: io.EOF},
		{name: "lines over frames", in: frame(1, stamp+"on") + frame(2, stamp+"err\n") + frame(1, "e\ntw") + frame(1, "o\n"),
			want: []string{"!err", "one", "two"}, err: io.EOF},
		{name: "several in a frame", in: frame(1, "a\n\nb\n"), want: []string{"a", "", "b"}, err: io.EOF},
		{name: "no line break at the end", in: frame(1, "a\nrest") + frame(2, "more"), want: []string{"a", "rest", "!more"}, err: io.EOF},
		{name: "empty frames", in: frame(1, "") + frame(2, "") + frame(1, "x\n") + frame(1, ""), want: []string{"x"}, err: io.EOF},
		{name: "terminal", in: stamp + "one\r\n" + stamp + "two\r\nlast", tty: true, want: []string{"one", "two", "last"}, err: io.EOF},
		{name: "cut inside a frame", in: frame(1, "whole\n") + frame(1, "half of a long one\n")[:15], want: []string{"whole", "half of"}, err: io.ErrUnexpectedEOF},
		{name: "cut inside a header", in: frame(1, "whole\n") + "\x01\x00", want: []string{"whole"}, err: io.ErrUnexpectedEOF},
		{name: "cut after a header", in: frame(1, "x")[:8], err: io.ErrUnexpectedEOF},
		{name: "not frames", in: "HTTP/1.1 400 Bad Request\r\n", err: ErrFormat},
		{name: "the engine's error", in: frame(1, "a\n") + frame(3, "the driver fails"), want: []string{"a"}, err: EngineError("the driver fails")},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			for _, src := range []io.Reader{strings.NewReader(c.in), iotest.OneByteReader(strings.NewReader(c.in)), iotest.DataErrReader(strings.NewReader(c.in))} {
				lines, err := read(t, src, c.tty)
				var got []string
				for _, l := range lines {
					if l.Stderr {
						l.Text = "!" + l.Text
					}
					got = append(got, l.Text)
				}
				if !errors.Is(err, c.err) {
					t.Errorf("want %v, got %v", c.err, err)
				}
				if strings.Join(got, "|") != strings.Join(c.want, "|") || len(got) != len(c.want) {
					t.Errorf("want %q, got %q", c.want, got)
				}
			}
		})
	}
}

// Issue 3: invalid UTF-8 is kept harmless, and so is what could move a cursor or forge a second line.
func TestLine(t *testing.T) {
	cases := []struct {
		name, in, text string
		time, cut      bool
	}{
		{name: "time", in: stamp + "text", text: "text", time: true},
		{name: "time to the second", in: "2026-12-02T08:19:58Z text", text: "text", time: true},
		{name: "time alone", in: stamp, time: true},
		{name: "no time", in: "2026 was a year", text: "2026 was a year"},
		{name: "invalid UTF-8", in: "a\xff\xfe\xc3z", text: "a\uFFFDz"},
		{name: "colours", in: "\x1b[31mred\x1b[0m \x1b]0;title\x07", text: "red "},
		{name: "carriage returns", in: "10%\r20%\r\r", text: "10% 20%"},
		{name: "other line breaks", in: "a\vb\fc\u0085d", text: "a b c d"},
		{name: "bell and backspace", in: "a\a\bb\x00c", text: "abc"},
		{name: "tab", in: "a\tb", text: "a\tb"},
		{name: "as long as may be", in: strings.Repeat("x", most), text: strings.Repeat("x", most)},
		{name: "too long", in: strings.Repeat("x", most+1), text: strings.Repeat("x", most-len(mark)) + mark, cut: true},
		{name: "too long, not cut inside a character", in: strings.Repeat("ä", most), text: strings.Repeat("ä", (most-len(mark))/2) + mark, cut: true},
		{name: "what is invisible takes room", in: strings.Repeat("\u202e", 30), cut: true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			l := Raw{Data: []byte(c.in)}.Line(most)
			if c.text != "" && l.Text != c.text || l.Cut != c.cut || l.Time.IsZero() == c.time {
				t.Errorf("got %q, cut %v, time %v", l.Text, l.Cut, l.Time)
			}
			harmlessLine(t, l)
		})
	}
}

func harmlessLine(t *testing.T, l Line) {
	t.Helper()
	if len(l.Text) > most || !utf8.ValidString(l.Text) {
		t.Errorf("%d bytes, or invalid: %q", len(l.Text), l.Text)
	}
	for _, r := range l.Text {
		if unicode.IsControl(r) && r != '\t' || r == '\u2028' || r == '\u2029' {
			t.Errorf("%U is left in %q", r, l.Text)
		}
	}
}

// Issue 3, faults: a line of 10 MB and a frame that claims 4 GB take no more memory than any other.
func TestLongLine(t *testing.T) {
	long := strings.Repeat("0123456789", 1<<20)
	head := []byte{1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff}
	var lines []Line
	n := testing.AllocsPerRun(1, func() {
		lines, _ = read(t, io.MultiReader(strings.NewReader(frame(2, stamp+long+"\nnext\n")), bytes.NewReader(head), strings.NewReader(long)), false)
	})
	if n > 100 {
		t.Errorf("%v allocations", n)
	}
	if len(lines) != 3 || !lines[0].Cut || lines[1].Text != "next" || !lines[2].Cut {
		t.Errorf("%+v", lines)
	}
	r := New(strings.NewReader(frame(1, long)), false, most)
	if raw, err := r.Next(); err != nil || cap(raw.Data) > 4*most {
		t.Errorf("%d bytes are kept of a long line, %v", cap(raw.Data), err)
	}
}

func TestTail(t *testing.T) {
	add := func(n, limit int, texts ...string) ([]string, bool) {
		tail := NewTail(n, limit)
		buf := make([]byte, 0, 1000)
		for _, s := range texts {
			buf = append(buf[:0], s...) // the reader's buffer is used again
			tail.Add(Raw{Data: buf})
		}
		lines, short := tail.Lines(most)
		var got []string
		for _, l := range lines {
			got = append(got, l.Text)
		}
		return got, short
	}
	cases := []struct {
		name     string
		n, limit int
		in       []string
		want     string
		short    bool
	}{
		{"none wanted", 0, 100, []string{"a"}, "", false},
		{"none there", 3, 100, nil, "", false},
		{"fewer", 3, 100, []string{"a", "b"}, "a|b", false},
		{"the last ones", 3, 100, []string{"a", "b", "c", "d", "e"}, "c|d|e", false},
		{"bytes", 3, 4, []string{"aa", "bb", "cc"}, "bb|cc", true},
		{"bytes, later room", 3, 4, []string{"aaaa", "b", "c", "d"}, "b|c|d", false},
		{"one above the bound", 3, 4, []string{"a", "bbbbbbbb"}, "bbbbbbbb", true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, short := add(c.n, c.limit, c.in...)
			if strings.Join(got, "|") != c.want || short != c.short {
				t.Errorf("got %q, short %v", got, short)
			}
		})
	}
}

// FuzzNext: no stream makes it panic, loop, or give more than it may.
func FuzzNext(f *testing.F) {
	f.Add([]byte(frame(1, stamp+"one\n")+frame(2, stamp+"tw")+frame(2, "o\n")), false)
	f.Add([]byte(frame(3, "the driver fails")), false)
	f.Add([]byte{1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 'a'}, false)
	f.Add([]byte(stamp+"one\r\n\x1b[31m\xff"), true)
	f.Fuzz(func(t *testing.T, in []byte, tty bool) {
		r := New(bytes.NewReader(in), tty, most)
		tail := NewTail(5, 3*most)
		for n := 0; ; n++ {
			raw, err := r.Next()
			if err != nil {
				break
			}
			if n > len(in)+2 {
				t.Fatalf("%d lines of %d bytes", n, len(in))
			}
			harmlessLine(t, raw.Line(most))
			tail.Add(raw)
		}
		if lines, _ := tail.Lines(most); len(lines) > 5 {
			t.Errorf("%d lines kept", len(lines))
		}
	})
}
