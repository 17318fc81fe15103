package term

import (
	"strings"
	"testing"
	"unicode"
)

// SPEC section 5: escape sequences are taken out, also where they are split between two pieces.
func TestStripperWhereverSplit(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"plain\n\ttext", "plain\n\ttext"},
		{"a\x1b[31mred\x1b[0mb", "aredb"},
		{"a\x1b[1;1H│ approved", "a│ approved"},
		{"a\x1b]0;title\x07b", "ab"},
		{"a\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\b", "alinkb"},
		{"a\x1bP1$r0m\x1b\\b", "ab"},
		{"a\u009b31mred", "ared"},
		{"a\u009d0;t\u009cb", "ab"},
		{"a\x1b(Bb", "ab"},
		{"a\x1bcb", "ab"},
		{"a\rb\bc\x7fd\x00e\u0085f", "abcdef"},
		{"a\x1b\x1b[2Jb", "ab"},
		{"a\x1b]unfinished\nnext line", "a\nnext line"},
		{"a\x1b[31\nnext", "a\nnext"},
		{"a\x1b[3é", "aé"},
		{"a\x1b]x\x1b[31mb", "ab"},
	} {
		for cut := range len(tt.in) + 1 {
			if cut < len(tt.in) && cut > 0 && !strings.HasPrefix(strings.ToValidUTF8(tt.in[cut:], "\x00"), tt.in[cut:cut+1]) {
				continue // inside a character, which JSON cannot split
			}
			var p Stripper
			if got := p.Feed(tt.in[:cut]) + p.Feed(tt.in[cut:]); got != tt.want {
				t.Errorf("%q cut at %d: got %q, want %q", tt.in, cut, got, tt.want)
			}
		}
	}
}

func TestStripperSwallowsBoundedly(t *testing.T) {
	var p Stripper
	got := p.Feed("\x1b]" + strings.Repeat("x", 5000))
	if len(got) < 3900 {
		t.Errorf("an unfinished sequence swallowed all but %d of 5000 characters", len(got))
	}
}

func FuzzStripper(f *testing.F) {
	for _, s := range []string{"a\x1b[31mb", "\x1b]0;t\x07", "\x1bP\x1b\\", "\u009b1m", "│ x\r│ y", "\x1b", "\x1b[", "\x1b\x1b"} {
		f.Add(s, 1)
	}
	f.Fuzz(func(t *testing.T, s string, cut int) {
		cut = min(max(cut, 0), len(s))
		var p Stripper
		got := p.Feed(s[:cut]) + p.Feed(s[cut:])
		for _, r := range got {
			if unicode.IsControl(r) && r != '\n' && r != '\t' {
				t.Fatalf("%q kept %q", s, r)
			}
		}
		if strings.Count(got, "\n") != strings.Count(s, "\n") {
			t.Fatalf("%q lost or gained a line end: %q", s, got)
		}
	})
}
