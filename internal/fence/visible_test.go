package fence

import (
	"bufio"
	"os"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"golang.org/x/text/unicode/norm"
	"pgregory.net/rapid"
)

// C6, F-C1: what is seen is what there is. An empty warning means that there must be none.
func TestVisible(t *testing.T) {
	for _, tc := range []struct{ in, want, warning string }{
		// plain values stand as they are, without a word
		{"jellyfin", "jellyfin", ""},
		{"Photos 2", "Photos 2", ""},
		{"k3s-node_01.lan:8420/x?y=1&z=%20", "k3s-node_01.lan:8420/x?y=1&z=%20", ""},
		{"l10n", "l10n", ""},
		{"café Ångström", "café Ångström", ""},
		{"日本語のノートブック", "日本語のノートブック", "character 5 is a letter that looks like another, in a word wholly of its own script (East Asian)"},
		{"한국어", "한국어", ""},
		{"हिन्दी", "हिन्दी", ""},
		{"ภาษาไทย ที่นี่", "ภาษาไทย ที่นี่", ""},
		{"😀👍🏽", "😀👍🏽", ""},

		// what cannot be seen
		{"a\u202eb", "a⟨U+202E⟩b", "character 2 is a character that turns the reading direction (U+202E)"},
		{"a\u2066b\u2069", "a⟨U+2066⟩b⟨U+2069⟩", "turns the reading direction (U+2069)"},
		{"\u200e\u200f\u061c", "⟨U+200E⟩⟨U+200F⟩⟨U+061C⟩", "turns the reading direction (U+061C)"},
		{"va\u200bult", "va⟨U+200B⟩ult", "character 3 is an invisible character (U+200B)"},
		{"\ufeffx\u00ad\u3164\u2800\u034f\uffa0", "⟨U+FEFF⟩x⟨U+00AD⟩⟨U+3164⟩⟨U+2800⟩⟨U+034F⟩⟨U+FFA0⟩", "invisible"},
		{"ok\U000e0041", "ok⟨U+E0041⟩", "an invisible tag"},
		{"x\ufe0f\U000e0100", "x⟨U+FE0F⟩⟨U+E0100⟩", "an invisible selector"},
		{"\x00\x1b[2J\x7f\u009b", "⟨U+0000⟩⟨U+001B⟩[2J⟨U+007F⟩⟨U+009B⟩", "a control character (U+001B)"},
		{"a\nb\tc\u2028", "a⟨U+000A⟩b⟨U+0009⟩c⟨U+2028⟩", "character 2 is a line break (U+000A)"},
		{"vault\u00a0\u3000", "vault⟨U+00A0⟩⟨U+3000⟩", "an unusual space"},
		{"\ue000\uffff\u0378", "⟨U+E000⟩⟨U+FFFF⟩⟨U+0378⟩", "without an agreed shape"},
		{"x\xffy\xc3", "x⟨xFF⟩y⟨xC3⟩", "character 2 is no text but a stray byte (FF)"},
		{"\ufffd", "⟨U+FFFD⟩", "lost before"},
		{" x", "⟨U+0020⟩x", "character 1 is a space where it is easily missed"},
		{"x ", "x⟨U+0020⟩", "character 2 is a space"},
		{"a  b", "a ⟨U+0020⟩b", "character 3 is a space"},
		{"", "⟨empty⟩", "there is nothing in it"},

		// the notation itself
		{"⟨U+202E⟩", "⟨U+27E8⟩U+202E⟨U+27E9⟩", "a bracket like those around the codes"},
		{"⟨empty⟩", "⟨U+27E8⟩empty⟨U+27E9⟩", "a bracket"},
		{"〈‹", "⟨U+3008⟩⟨U+2039⟩", "a bracket"},
		{strings.Repeat("\u202e", 200) + "x", "⟨U+202E⟩⟨200 times⟩x", "characters 1, 2, 3, 4 and 196 more are a character"},
		{"light" + strings.Repeat(" ", 300) + "rm", "light ⟨U+0020⟩⟨299 times⟩rm", "and 295 more"},

		// marks
		{"cafe\u0301", "cafe⟨U+0301⟩", "character 5 is a mark that is drawn over others (U+0301)"},
		{"x" + strings.Repeat("\u0300", 40), "x⟨U+0300⟩⟨40 times⟩", "a mark"},
		{"क" + strings.Repeat("\u0902", 9), "क\u0902\u0902\u0902\u0902⟨U+0902⟩⟨5 times⟩", "characters 6, 7, 8, 9 and 1 more are a mark"},
		{"a\u093e", "a⟨U+093E⟩", "a mark"},
		{"\u0915\u093c", "\u0915\u093c", ""},
		{"\u0958", "\u0958⟨U+0958⟩", "another form"},
		{"\u212b", "\u212b⟨U+212B⟩", "another form of other characters (U+212B)"},
		{"\u1100\u1161", "⟨U+1100⟩⟨U+1161⟩", "a piece of a syllable"},

		// look-alikes
		{"p\u0430y", "p\u0430⟨U+0430⟩y", `character 2 is a Cyrillic letter that looks like another, "a" (U+0430)`},
		{"\u0441\u043e\u0440", "\u0441⟨U+0441⟩\u043e⟨U+043E⟩\u0440⟨U+0440⟩", `looks like another, "c"`},
		{"дом", "дом", "character 2 is a letter that looks like another, in a word wholly of its own script (Cyrillic)"},
		{"мой дом-2", "мой дом-2", "characters 2 and 6 are a letter"},
		{"\u0440а\u200b\u0443", "р⟨U+0440⟩а⟨U+0430⟩⟨U+200B⟩у⟨U+0443⟩", "invisible"},
		{"\u0451", "ё⟨U+0451⟩", `looks like another, "e"`},
		{"ᏢᎪ", "Ꮲ⟨U+13E2⟩Ꭺ⟨U+13AA⟩", `a character that looks like another, "P" (U+13E2)`},
		{"stra\u03b2e", "straβ⟨U+03B2⟩e", "a letter of one alphabet among those of another"},
		{"v\u1d1cult", "v\u1d1c⟨U+1D1C⟩ult", `"u"`},
		{"v\u1d43ult", "v\u1d43⟨U+1D43⟩ult", `another form of "a"`},
		{"\uff56", "\uff56⟨U+FF56⟩", `another form of "v"`},
		{"\U0001d42f", "\U0001d42f⟨U+1D42F⟩", `another form of "v"`},
		{"a…", "a…⟨U+2026⟩", `another form of "..."`},
		{"a\u2024b‐c", "a\u2024⟨U+2024⟩b‐⟨U+2010⟩c", `a character that looks like another, "-"`},
		{"৪", "৪⟨U+09EA⟩", "the digit 4 of another script"},
		{"“x", "“⟨U+201C⟩x", "a quotation mark"},
		{"✅ Verified", "✅⟨U+2705⟩ Verified", "one of the host's"},
		{"🅰🇩", "🅰⟨U+1F170⟩🇩⟨U+1F1E9⟩", `looks like another, "D"`},
		{"vau1t", "vau1t", "character 4 is a character that is easily taken for another"},
		{"\ufdfd", "⟨U+FDFD⟩", "as wide as a sentence"},

		// right to left
		{"שלום", "שלום", "runs from right to left"},
		{"ואלט בית", "ואלט בית", "characters 1, 4 and 7 are a letter that looks like another, in a word wholly of its own script (Hebrew)\ncharacters 2, 3"},
		{"א1", "א⟨U+05D0⟩1", "a letter that runs from right to left, among what does not"},
		{"שָׁלוֹם 2", "ש⟨U+05E9⟩⟨U+05B8⟩⟨U+05C1⟩ל⟨U+05DC⟩ו⟨U+05D5⟩⟨U+05B9⟩ם⟨U+05DD⟩ 2", "right to left"},
	} {
		got, warnings := Visible(tc.in)
		if got != tc.want {
			t.Errorf("Visible(%+q)\n got %q\nwant %q", tc.in, got, tc.want)
		}
		all := strings.Join(warnings, "\n")
		if tc.warning == "" && all != "" || !strings.Contains(all, tc.warning) {
			t.Errorf("Visible(%+q) warns %q, want %q", tc.in, all, tc.warning)
		}
		if got != tc.in && len(warnings) == 0 {
			t.Errorf("Visible(%+q) changed something and said nothing", tc.in)
		}
		check(t, tc.in)
	}
}

// F-C4: a long value is shown to its end, in linear time, with a bounded number of warnings.
func TestVisibleLong(t *testing.T) {
	got, warnings := Visible(strings.Repeat("A", 1<<20) + "; rm")
	if len(got) != 1<<20+4 || !strings.HasSuffix(got, "; rm") || warnings != nil {
		t.Fatalf("%d bytes, %q", len(got), warnings)
	}
	var b strings.Builder
	for r := rune(0x400); r < 0x3000; r++ {
		b.WriteRune(r)
	}
	for _, s := range []string{b.String(), strings.Repeat("а\u0300\u202e", 20_000), strings.Repeat("क\u093f\u0902", 20_000), strings.Repeat("\xff", 50_000)} {
		_, warnings := check(t, s)
		if len(warnings) > maxNotes+1 {
			t.Fatalf("%d warnings", len(warnings))
		}
		for _, w := range warnings {
			if len(w) > 200 || !isASCII(w) {
				t.Errorf("a warning with more than words of the host: %q", w)
			}
		}
	}
}

// What cannot be drawn apart must be told apart by its code: no character can join the one before it, and the tables
// are whole.
func TestEveryRune(t *testing.T) {
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if !utf8.ValidRune(r) {
			continue
		}
		s := string(r)
		f := judge(r)
		how := findings[f].how
		if !norm.NFC.PropertiesString(s).BoundaryBefore() && how != replaced {
			t.Errorf("%U can join the character before it and is not replaced", r)
		}
		if r > '~' && !norm.NFKC.IsNormalString(s) && how == plain {
			t.Errorf("%U has another form and stands without its code", r)
		}
		if invisible(r) && how != replaced {
			t.Errorf("%U is shown though it cannot be seen", r)
		}
		if how == plain && f != none {
			t.Errorf("%U: %d cannot be judged alone", r, f)
		}
	}
	for i, l := range lookalikes {
		if i > 0 && lookalikes[i-1].r >= l.r {
			t.Errorf("%U is out of order", l.r)
		}
		if !isASCII(l.as) || l.as == "" || looksLike(l.r) != l.as {
			t.Errorf("%U looks like %q", l.r, l.as)
		}
	}
	for i, f := range findings {
		if i > 0 && f.words == "" {
			t.Errorf("finding %d has no words", i)
		}
	}
}

// invisible is what no output may hold, written apart from the code under test.
func invisible(r rune) bool {
	return r < ' ' || r >= 0x7f && r <= 0x9f || r == utf8.RuneError || r == 0x2028 || r == 0x2029 ||
		unicode.In(r, unicode.Cf, unicode.Co, unicode.Cs, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector) ||
		r != ' ' && unicode.Is(unicode.Zs, r)
}

// read is the way back from what is shown. That there is one proves that different texts are shown differently.
func read(t testing.TB, shown string) string {
	if shown == "⟨empty⟩" {
		return ""
	}
	var b strings.Builder
	last, unit := "", ""
	for shown != "" {
		r, n := utf8.DecodeRuneInString(shown)
		if r != '⟨' {
			last = shown[:n]
			b.WriteString(last)
			shown = shown[n:]
			continue
		}
		code, rest, ok := strings.Cut(shown[len("⟨"):], "⟩")
		if !ok {
			t.Fatalf("a bracket without its end: %q", shown)
		}
		shown = rest
		switch {
		case strings.HasPrefix(code, "x"):
			c, _ := strconv.ParseUint(code[1:], 16, 8)
			unit = string([]byte{byte(c)})
			b.WriteString(unit)
		case strings.HasPrefix(code, "U+"):
			c, _ := strconv.ParseUint(code[2:], 16, 32)
			unit = string(rune(c))
			if unit == last && last != " " && judge(rune(c)) != mark {
				last = "" // the code of the character before it
				continue
			}
			b.WriteString(unit)
		default:
			times, err := strconv.Atoi(strings.TrimSuffix(code, " times"))
			if err != nil {
				t.Fatalf("an unknown code %q", code)
			}
			b.WriteString(strings.Repeat(unit, times-1))
		}
		last = ""
	}
	return b.String()
}

func check(t testing.TB, in string) (string, []string) {
	t.Helper()
	shown, warnings := Visible(in)
	if !utf8.ValidString(shown) {
		t.Errorf("Visible(%+q) is not valid UTF-8", in)
	}
	if i := strings.IndexFunc(shown, invisible); i >= 0 {
		t.Errorf("Visible(%+q) = %+q still hides something", in, shown)
	}
	if back := read(t, shown); back != in {
		t.Errorf("Visible(%+q) = %+q reads as %+q", in, shown, back)
	}
	return shown, warnings
}

// different fails where two texts are shown as one, or as two forms of one.
func different(t testing.TB, a, b string) {
	t.Helper()
	if a == b {
		return
	}
	x, _ := Visible(a)
	y, _ := Visible(b)
	if x == y || norm.NFKC.String(x) == norm.NFKC.String(y) {
		t.Errorf("%+q and %+q are both shown as %+q", a, b, x)
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

// C6, F-C1, on the hostile texts, wherever each enters; pairs are shown differently.
func TestVisibleOnHostileTexts(t *testing.T) {
	cases := unicodeCases(t)
	byID := map[string]unicodeCase{}
	for _, c := range cases {
		byID[c.ID] = c
	}
	for _, c := range cases {
		shown, warnings := check(t, c.Text)
		if p, ok := byID[c.Pair]; ok {
			different(t, c.Text, p.Text)
		}
		if strings.HasPrefix(c.Where, "arg:") && shown != c.Text && len(warnings) == 0 {
			t.Errorf("%s: nothing is said about %q", c.ID, shown)
		}
		if strings.Contains(shown, "\n") {
			t.Errorf("%s: a value leaves its line: %q", c.ID, shown)
		}
	}
	shownAs := map[string]string{}
	for _, c := range cases {
		shown, _ := Visible(c.Text)
		form := norm.NFKC.String(shown)
		if other, ok := shownAs[form]; ok && other != c.Text {
			t.Errorf("%+q and %+q are both shown as %+q", c.Text, other, shown)
		}
		shownAs[form] = c.Text
	}
}

// Showing is injective, also up to compatibility forms, for texts made of what is most alike.
func TestVisibleInjective(t *testing.T) {
	alike := []rune("aaаαａ𝐚ᴀeе1lIіOО0о  \u00a0\u200b\u0301\u0300é⟨⟩Uאו12-.\n\ufe0fÅ\u212b\u030aक\u093c\u0958\u0902\u1100\u1161가\u11a8…fiﬁ✓\u202e×")
	text := rapid.Custom(func(t *rapid.T) string {
		return string(rapid.SliceOfN(rapid.SampledFrom(alike), 0, 8).Draw(t, "runes"))
	})
	rapid.Check(t, func(r *rapid.T) {
		a, b := text.Draw(r, "a"), text.Draw(r, "b")
		check(t, a)
		different(t, a, b)
		different(t, a, norm.NFC.String(a))
		different(t, a, norm.NFD.String(a))
		different(t, a, norm.NFKC.String(a))
		different(t, a, strings.TrimSpace(a))
		shown, _ := Visible(a)
		different(t, a, shown)
		if t.Failed() {
			r.Fatal("see above")
		}
	})
}

// C6: whatever the bytes, nothing in the output is hidden, and different texts are shown differently.
func FuzzVisible(f *testing.F) {
	for _, s := range [][2]string{
		{"vault", "v\u0430ult"}, {"a\u202e", "a⟨U+202E⟩"}, {"x\xff", "x⟨xFF⟩"}, {"e\u0301", "\u00e9"}, {"", "⟨empty⟩"},
		{"а\u0300", "а⟨U+0300⟩"}, {"א1", "1א"}, {"    ", "     "}, {"\xe2\x9f\xa8", "\xe2\x9f"}, {"\u212b", "\u00c5"}, {"\ufffd", "\xff"},
	} {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		check(t, a)
		different(t, a, b)
		different(t, a, norm.NFKC.String(a))
	})
}

func BenchmarkVisible(b *testing.B) {
	for name, s := range map[string]string{"plain": "jellyfin", "hostile-32k": strings.Repeat("pа\u202e", 6554)} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				Visible(s)
			}
		})
	}
}
