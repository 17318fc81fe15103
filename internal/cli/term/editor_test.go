package term

import (
	"strings"
	"testing"
)

func press(e *Editor, keys ...string) (last Event) {
	for _, s := range keys {
		for _, k := range parse(s) {
			last = e.Key(k)
		}
	}
	return last
}

func TestEditorEdits(t *testing.T) {
	for _, tt := range []struct {
		keys []string
		want string
	}{
		{[]string{"hello"}, "hello"},
		{[]string{"helo", "\x1b[D", "l"}, "hello"},
		{[]string{"xhello", "\x01", "\x1b[3~"}, "hello"},
		{[]string{"hello", "\x7f\x7f"}, "hel"},
		{[]string{"one two", "\x17", "three"}, "one three"},
		{[]string{"one two", "\x15", "x"}, "x"},
		{[]string{"one two", "\x01", "\x0b"}, ""},
		{[]string{"one two", "\x1b[1;5D", "x"}, "one xtwo"},
		{[]string{"é漢", "\x7f"}, "é"},
		{[]string{"a", "\x1b[200~b\nc\x1b[201~", "d"}, "ab\ncd"},
		{[]string{"a", "\x1b[200~\x1b[31mb\x07\x1b[201~"}, "a[31mb"},
	} {
		var e Editor
		press(&e, tt.keys...)
		if e.Text() != tt.want {
			t.Errorf("%q: got %q, want %q", tt.keys, e.Text(), tt.want)
		}
	}
}

func TestEditorHistory(t *testing.T) {
	var e Editor
	press(&e, "first")
	e.Take()
	press(&e, "second")
	e.Take()
	press(&e, "dra", "\x1b[A\x1b[A")
	if e.Text() != "first" {
		t.Errorf("two up: %q", e.Text())
	}
	press(&e, "\x1b[B\x1b[B")
	if e.Text() != "dra" {
		t.Errorf("back down: %q", e.Text())
	}
	hidden := Editor{Hidden: true}
	press(&hidden, "secret")
	hidden.Take()
	press(&hidden, "\x1b[A")
	if hidden.Text() != "" {
		t.Error("a hidden line came back")
	}
}

// A pasted line is never a command.
func TestEditorKnowsWhatWasPasted(t *testing.T) {
	for _, tt := range []struct {
		keys  []string
		typed bool
	}{
		{[]string{"/open system"}, true},
		{[]string{"/open ", "\x1b[200~system\x1b[201~"}, true},
		{[]string{"\x1b[200~/open system\x1b[201~"}, false},
		{[]string{"/", "\x1b[200~open\nx\x1b[201~"}, false},
		{[]string{"x", "\x01", "\x1b[200~/open \x1b[201~"}, false},
		{[]string{"\x1b[200~/x\x1b[201~", "\x15", "/help"}, true},
	} {
		var e Editor
		press(&e, tt.keys...)
		if e.Typed() != tt.typed {
			t.Errorf("%q: typed is %v", tt.keys, e.Typed())
		}
	}
}

func TestEditorRow(t *testing.T) {
	var e Editor
	press(&e, strings.Repeat("漢", 100))
	row := e.Row("› ", 40)
	text, _, _ := strings.Cut(strings.TrimPrefix(row, "\r"), "\x1b[K")
	if w := textWidth(text); w > 39 {
		t.Errorf("a row of %d columns on a screen of 40", w)
	}
	hidden := Editor{Hidden: true}
	press(&hidden, "secret")
	if strings.Contains(hidden.Row("? ", 40), "s") {
		t.Error("a hidden line is drawn")
	}
	var pasted Editor
	press(&pasted, "\x1b[200~a\nb\u202ec\x1b[201~")
	if row := pasted.Row("", 40); strings.ContainsAny(row, "\n\u202e") {
		t.Errorf("drawn as it is: %q", row)
	}
}
