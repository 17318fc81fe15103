package radio

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// M5: numbered parts.
func TestSplit(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		size, most int
		want       []string
	}{
		{"short", "  The disk is half full.\n", 40, 4, []string{"The disk is half full."}},
		{"just fits", strings.Repeat("a", 40), 40, 4, []string{strings.Repeat("a", 40)}},
		{"after a blank", "0123456789 0123456789 0123456789 0123456789", 40, 4,
			[]string{"1/2 0123456789 0123456789 0123456789 ", "2/2 0123456789"}},
		{"no blank", strings.Repeat("b", 41), 40, 4, []string{"1/2 " + strings.Repeat("b", 36), "2/2 bbbbb"}},
		{"cut", strings.Repeat("c", 100), 40, 2, []string{"1/2 " + strings.Repeat("c", 36), "2/2 " + strings.Repeat("c", 30) + " [cut]"}},
		{"cut to one", strings.Repeat("d", 100), 40, 1, []string{strings.Repeat("d", 34) + " [cut]"}},
		{"between runes", strings.Repeat("ü", 21), 40, 4, []string{"1/2 " + strings.Repeat("ü", 18), "2/2 üüü"}},
		{"no UTF-8", "a\xffb", 40, 4, []string{"a\uFFFDb"}},
	} {
		if got := split(tt.text, tt.size, tt.most); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// No part is too long, no rune is cut, there are never too many, and the text is whole or marked as cut.
func TestSplitHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := strings.TrimSpace(rapid.StringN(1, 400, 2000).Draw(t, "text"))
		size, most := rapid.IntRange(minPart, maxPart).Draw(t, "size"), rapid.IntRange(1, maxParts).Draw(t, "most")
		parts := split(text, size, most)
		if len(parts) < 1 || len(parts) > most {
			t.Fatalf("%d parts", len(parts))
		}
		var joined strings.Builder
		for i, p := range parts {
			if len(p) > size || !utf8.ValidString(p) {
				t.Fatalf("part %d is %d bytes: %q", i, len(p), p)
			}
			if len(parts) > 1 {
				number := fmt.Sprintf("%d/%d ", i+1, len(parts))
				if !strings.HasPrefix(p, number) {
					t.Fatalf("part %d begins %.8q", i, p)
				}
				p = p[len(number):]
			}
			joined.WriteString(p)
		}
		got, want := joined.String(), strings.ToValidUTF8(text, "\uFFFD")
		if cut, was := strings.CutSuffix(got, cutMark); was && strings.HasPrefix(want, cut) {
			got = want
		}
		if got != want {
			t.Fatalf("%q became %q", want, parts)
		}
	})
}
