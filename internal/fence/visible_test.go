package fence

import (
	"bufio"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
)

// C6, F-C1.
func TestVisible(t *testing.T) {
	for _, tc := range []struct{ in, want string }{
		{"jellyfin", "jellyfin"},
		{"café", "café"},
		{"cafe\u0301", "cafe⟨U+0301⟩"},
		{"a\u202Eb", "a⟨U+202E⟩b"},
		{"p\u0430y", "p\u0430⟨U+0430⟩y"},
		{"\u0434\u043e\u043c", "\u0434\u043e\u043c"},
		{"\u0441\u043e\u0440", "\u0441⟨U+0441⟩\u043e⟨U+043E⟩\u0440⟨U+0440⟩"},
		{"⟨U+202E⟩", "⟨U+27E8⟩U+202E⟨U+27E9⟩"},
		{" x", "⟨U+0020⟩x"},
		{"a  b", "a ⟨U+0020⟩b"},
		{"x\xffy", "x⟨xFF⟩y"},
		{"שלום", "שלום"},
		{"日本", "日本"},
	} {
		got, notes := Visible(tc.in)
		if got != tc.want {
			t.Errorf("Visible(%q) = %q, want %q", tc.in, got, tc.want)
		}
		if got != tc.in && len(notes) == 0 {
			t.Errorf("Visible(%q) escaped and said nothing", tc.in)
		}
	}
	if _, notes := Visible("\u0434\u043e\u043c"); len(notes) == 0 {
		t.Error("an honest Cyrillic word is not pointed out")
	}
}

type unicodeCase struct {
	ID, Where, Text, Pair string
}

func unicodeCases(t *testing.T) []unicodeCase {
	t.Helper()
	f, err := os.Open("../../../shared/attacks/unicode.jsonl")
	if err != nil {
		t.Skip("the hostile texts are not here: " + err.Error())
	}
	defer f.Close()
	var out []unicodeCase
	for sc := bufio.NewScanner(f); sc.Scan(); {
		var c unicodeCase
		if err := json.Unmarshal(sc.Bytes(), &c, json.MatchCaseInsensitiveNames(true)); err != nil {
			t.Fatal(err)
		}
		out = append(out, c)
	}
	return out
}

func TestVisibleOnHostileTexts(t *testing.T) {
	cases := unicodeCases(t)
	byID := map[string]unicodeCase{}
	for _, c := range cases {
		byID[c.ID] = c
	}
	for _, c := range cases {
		shown, _ := Visible(c.Text)
		checkVisible(t, c.Text, shown)
		if p, ok := byID[c.Pair]; ok && p.Text != c.Text {
			if other, _ := Visible(p.Text); other == shown {
				t.Errorf("%s and %s are different and both shown as %q", c.ID, p.ID, shown)
			}
		}
	}
}

func checkVisible(t *testing.T, in, shown string) {
	t.Helper()
	if !utf8.ValidString(shown) {
		t.Errorf("Visible(%q) is not valid UTF-8", in)
	}
	if strings.ContainsFunc(shown, invisible) {
		t.Errorf("Visible(%q) = %q still hides something", in, shown)
	}
}

// Showing is injective: what differs is shown differently, so one approval cannot be read as another's.
func FuzzVisible(f *testing.F) {
	f.Add("vault", "v\u0430ult")
	f.Add("a\u202e", "a⟨U+202E⟩")
	f.Add("x\xff", "x⟨xFF⟩")
	f.Add("e\u0301", "\u00e9")
	f.Fuzz(func(t *testing.T, a, b string) {
		sa, _ := Visible(a)
		sb, _ := Visible(b)
		checkVisible(t, a, sa)
		if a != b && sa == sb {
			t.Errorf("%q and %q are both shown as %q", a, b, sa)
		}
	})
}

// SPEC section 5.
func FuzzStrip(f *testing.F) {
	f.Add("\x1b[2Jx")
	f.Add("\x9b31mred\u202e")
	f.Fuzz(func(t *testing.T, s string) {
		for _, r := range Strip(s) {
			if r != '\n' && r != '\t' && (r < ' ' || r >= 0x7f && r <= 0x9f || r >= 0x202a && r <= 0x202e) {
				t.Errorf("Strip(%q) left %U", s, r)
			}
		}
	})
}
