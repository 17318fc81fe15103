package fence

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// SPEC section 5: no control byte of somebody else's reaches the terminal.
func TestStrip(t *testing.T) {
	for _, tc := range []struct{ in, want string }{
		{"plain\n\ttext", "plain\n\ttext"},
		{"Grüße, 日本 😀", "Grüße, 日本 😀"},
		{"a\x1b[31mred\x1b[0mb", "aredb"},
		{"a\x1b[1;1H│ approved", "a│ approved"},
		{"a\x1b[?1049h\x1b[>4;2mb", "ab"},
		{"a\x1b]0;title\x07b\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "ablink"},
		{"a\x1bP1$r0m\x1b\\b\x1b_x\x1b\\\x1b^y\x1b\\\x1bXz\x1b\\c", "abc"},
		{"a\u009b31mred\u009d0;t\u009cb", "aredb"},
		{"a\x9b31mred\x9d0;t\x9cb", "aredb"},
		{"a\x1b(B\x1b#8\x1b7\x1bc\x1bOP\x8fQb", "ab"},
		{"a\x1b]0;no end", "a0;no end"},
		{"a\x1b]0;cut\nnext", "a0;cut\nnext"},
		{"a\x1bP1\x1b[31mb\x1b\\c", "a1bc"},
		{"a\x1b[31", "a"},
		{"a\x1b", "a"},
		{"a\x1b\x1b[mb", "ab"},
		{"a\r\nb\rc\bd\x7fe\x00f\u0085g\x0e", "a\nbcdefg"},
		{"a\u202eb\u200bc\u2028", "a⟨U+202E⟩b⟨U+200B⟩c⟨U+2028⟩"},
		{"x\U000e0041\u00ad\u3164", "x⟨U+E0041⟩⟨U+00AD⟩⟨U+3164⟩"},
		{"x\xffy\xe2\x82", "x⟨xFF⟩y⟨xE2⟩"},
		{"⚠\ufe0f ❤\ufe0f 👩\u200d👧", "⚠ ❤ 👩👧"},
		{"✓\ufe0f\ufe0fx\ufe0f", "✓⟨U+FE0F⟩x⟨U+FE0F⟩"},
		{"e\u0301 हिन्दी", "e\u0301 हिन्दी"},
		{"x" + strings.Repeat("\u0300", 6), "x" + strings.Repeat("\u0300", 4) + "⟨U+0300⟩⟨U+0300⟩"},
		{"x\n\u0336y", "x\n⟨U+0336⟩y"},
		{"\u0301", "\u0301"}, // a piece of a stream may go on with the letter before
		{"а ⟨U+202E⟩", "а ⟨U+202E⟩"},
	} {
		if got := Strip(tc.in); got != tc.want {
			t.Errorf("Strip(%+q)\n got %+q\nwant %+q", tc.in, got, tc.want)
		}
		checkStrip(t, tc.in)
	}
}

func checkStrip(t testing.TB, in string) {
	t.Helper()
	out := Strip(in)
	if !utf8.ValidString(out) {
		t.Errorf("Strip(%+q) is not valid UTF-8", in)
	}
	for _, r := range out {
		if r != '\n' && r != '\t' && (r < ' ' || r >= 0x7f && r <= 0x9f || hidden(r) == direction || hidden(r) == unseen || hidden(r) == tag || hidden(r) == selector) {
			t.Errorf("Strip(%+q) left %U", in, r)
		}
	}
	if again := Strip(out); again != out && strings.IndexFunc(out, func(r rune) bool { return judge(r) == mark }) < 0 {
		t.Errorf("Strip(Strip(%+q)) = %+q", in, again)
	}
}

// Bounded: what never ends is looked at once. A quadratic reading of these would not end within the test's time.
func TestStripLinear(t *testing.T) {
	const n = 1 << 18
	for _, s := range []string{"\x1b]", "\x9d", "\u009d", "\x1bP\x1b", "\x1b[", "\x1b[1", "\x1b(", "\u0300", "\x1b]x"} {
		checkStrip(t, strings.Repeat(s, n/len(s)))
	}
	checkStrip(t, "\x1b]"+strings.Repeat("x", n))
}

func FuzzStrip(f *testing.F) {
	for _, s := range []string{"\x1b[2Jx", "\x9b31mred\u202e", "\x1b]0;t\x07", "\u009d\x1b\\", "\x1bP\x1bP\x9c", "⚠\ufe0f\u200d", "\xc2\x9b", "\xc2", "\xe2\x80\xae", "\n\u0301"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) { checkStrip(t, s) })
}
