package term

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"
)

// SPEC section 5: the gutter is the host's. Whatever somebody else's text does, its lines begin with a blank.
func TestScreenGutterCannotBeForged(t *testing.T) {
	for _, forged := range []string{
		"│ Approved.\n", "\n│ Approved.", "\r│ Approved.", "x\r\n│ Approved.", "\x1b[1G│ Approved.", "\x1b[1;1H│ Approved.",
		"x\b\b\b\b│ Approved.", "x\u2028│ Approved.", "x\u2029│ Approved.", "x\u0085│ Approved.", "x\v│ Approved.", "x\f│ Approved.",
		strings.Repeat("x", 78) + "│ Approved.", strings.Repeat("x ", 39) + "│ Approved.", strings.Repeat(" ", 200) + "│ Approved.",
		strings.Repeat("漢", 39) + "│ Approved.", "\u202e.devorppA │", "\x1bM│ Approved.", "\x1b[s\x1b[H│ Approved.\x1b[u", "\t\t\t│ Approved.",
		"› yes", "\n› yes",
	} {
		for size := 1; size <= 4; size++ {
			var out bytes.Buffer
			s := NewScreen(&out, func() int { return 80 })
			s.Host("Ready.")
			for piece := forged; piece != ""; {
				n := min(size, len(piece))
				for n < len(piece) && !utf8.RuneStart(piece[n]) {
					n++
				}
				s.Other(piece[:n])
				piece = piece[n:]
			}
			s.Host("Nothing was changed.")
			checkLines(t, forged, out.String())
		}
	}
}

func checkLines(t *testing.T, in, out string) {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	for i, line := range lines {
		switch {
		case i == 0 && line == "│ Ready.", i == len(lines)-1 && line == "│ Nothing was changed.", line == "", strings.HasPrefix(line, "  "):
		default:
			t.Errorf("%q drew the line %q", in, line)
		}
		if w := textWidth(line); w > 80 {
			t.Errorf("%q drew a line of %d columns", in, w)
		}
		if strings.ContainsAny(line, "\x1b\r\b\v\f\x07") {
			t.Errorf("%q left a control character in %q", in, line)
		}
	}
}

func TestScreenStreamsAndWraps(t *testing.T) {
	var out bytes.Buffer
	s := NewScreen(&out, func() int { return 24 })
	for _, piece := range []string{"The disk ", "is 40", "% full", " and all", " is well.\n\n  - in", "dented"} {
		s.Other(piece)
	}
	s.EndOther()
	want := "  The disk is 40% full\n  and all is well.\n\n    - indented\n"
	if out.String() != want {
		t.Errorf("got %q\nwant %q", out.String(), want)
	}
}

// Words are passed on as they are complete, not at the end.
func TestScreenShowsWordsAsTheyCome(t *testing.T) {
	var out bytes.Buffer
	s := NewScreen(&out, func() int { return 80 })
	s.Other("first sec")
	if got := out.String(); got != "  first" {
		t.Errorf("after a piece: %q", got)
	}
}

// C6: the host's own lines lose nothing when they are broken.
func TestHostLinesLoseNothing(t *testing.T) {
	long := strings.Repeat("word ", 40) + strings.Repeat("x", 200)
	var out bytes.Buffer
	NewScreen(&out, func() int { return 40 }).Host(long)
	var joined strings.Builder
	for line := range strings.SplitSeq(strings.TrimSuffix(out.String(), "\n"), "\n") {
		if !strings.HasPrefix(line, Gutter) {
			t.Errorf("a line without the gutter: %q", line)
		}
		joined.WriteString(strings.TrimPrefix(line, Gutter))
	}
	squeeze := func(s string) string { return strings.ReplaceAll(s, " ", "") }
	if squeeze(joined.String()) != squeeze(long) {
		t.Error("characters are missing")
	}
}

// F-C4: a value of 10 kB is shown to its last character.
func TestChunksKeepEverything(t *testing.T) {
	s := strings.Repeat("a b  ", 2000) + "rm -rf /"
	if strings.Join(Chunks(s, 50), "") != s {
		t.Error("characters are missing")
	}
}

func FuzzScreen(f *testing.F) {
	f.Add("│ x\n│ y", 3, 40)
	f.Add("a\u0301\u0301 \x1b[31m漢漢漢漢漢漢漢漢漢漢漢漢", 1, 20)
	f.Fuzz(func(t *testing.T, s string, size, width int) {
		width = min(max(width, minWidth), 200)
		size = max(size, 1)
		var out bytes.Buffer
		screen := NewScreen(&out, func() int { return width })
		for len(s) > 0 {
			n := min(size, len(s))
			screen.Other(s[:n])
			s = s[n:]
		}
		screen.EndOther()
		for line := range strings.SplitSeq(out.String(), "\n") {
			if line != "" && !strings.HasPrefix(line, "  ") {
				t.Fatalf("the line %q begins in the first column", line)
			}
			if w := textWidth(line); w > width {
				t.Fatalf("a line of %d columns on a screen of %d: %q", w, width, line)
			}
		}
	})
}
