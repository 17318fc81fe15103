package fence

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// maxNotes bounds the warnings for one text; the last one says how many more there are.
const maxNotes = 8

// Visible makes everything in s that a person could not see, or could take for something else, stand out as ⟨U+202E⟩,
// and says what it found (C6, F-C1). Different texts are shown differently: the bracket itself is escaped too. Nothing
// is cut.
func Visible(s string) (shown string, notes []string) {
	v := viewer{}
	v.b.Grow(len(s))
	for i := 0; i < len(s); {
		if !isWordStart(s[i:]) {
			_, size := v.other(s, i)
			i += size
			continue
		}
		end := wordEnd(s, i)
		v.word(s[i:end])
		i = end
	}
	if v.more > 0 {
		v.notes = append(v.notes, fmt.Sprintf("and %d more of this kind", v.more))
	}
	return v.b.String(), v.notes
}

type viewer struct {
	b     strings.Builder
	notes []string
	more  int
	prev  rune // the rune before, for spaces and marks
	at    int  // characters so far
}

func (v *viewer) escape(r rune, why string) {
	fmt.Fprintf(&v.b, "⟨U+%04X⟩", r)
	v.note(r, why)
}

func (v *viewer) note(r rune, why string) {
	if why == "" {
		return
	}
	if len(v.notes) >= maxNotes {
		v.more++
		return
	}
	v.notes = append(v.notes, fmt.Sprintf("character %d is %s (U+%04X)", v.at+1, why, r))
}

// other shows one character that is no letter.
func (v *viewer) other(s string, i int) (rune, int) {
	r, size := utf8.DecodeRuneInString(s[i:])
	last := i+size == len(s)
	switch {
	case r == utf8.RuneError && size == 1:
		fmt.Fprintf(&v.b, "⟨x%02X⟩", s[i])
		v.note(rune(s[i]), "not valid text")
	case r == '⟨' || r == '⟩':
		v.escape(r, "the bracket that marks escapes")
	case r == ' ' && (v.at == 0 || last || v.prev == ' '):
		v.escape(r, "a space where it is easily missed")
	case r >= ' ' && r <= '~':
		v.b.WriteRune(r)
	case invisible(r):
		v.escape(r, kindOfInvisible(r))
	case unicode.Is(unicode.M, r) && (r < 0x0900 || unicode.Is(unicode.M, v.prev) && r < 0x0600):
		v.escape(r, "a mark that changes the letter before it")
	case foldsToASCII(r):
		v.b.WriteRune(r)
		v.escape(r, "a sign that looks like others")
	default:
		v.b.WriteRune(r)
	}
	v.prev = r
	v.at++
	return r, size
}

// word shows a run of letters and digits of one kind of judgement: a word wholly in one other script, with at least one
// letter that looks like no Latin one, is honest and shown as it is.
func (v *viewer) word(w string) {
	honest := honestWord(w)
	noted := false
	for _, r := range w {
		switch {
		case r <= '~' || !looksLikeLatin(r):
			v.b.WriteRune(r)
		case honest:
			v.b.WriteRune(r)
			if !noted {
				v.note(r, "a letter of a word in another script, some of which look like Latin ones")
				noted = true
			}
		default:
			v.b.WriteRune(r)
			v.escape(r, "a letter that looks like another")
		}
		v.prev = r
		v.at++
	}
}

func isWordStart(s string) bool {
	r, size := utf8.DecodeRuneInString(s)
	return !(r == utf8.RuneError && size == 1) && isWordRune(r)
}

func isWordRune(r rune) bool {
	return (unicode.IsLetter(r) || unicode.IsDigit(r)) && !invisible(r)
}

func wordEnd(s string, i int) int {
	for i < len(s) && isWordStart(s[i:]) {
		_, size := utf8.DecodeRuneInString(s[i:])
		i += size
	}
	return i
}

func honestWord(w string) bool {
	var script *unicode.RangeTable
	distinct := false
	for _, r := range w {
		if r <= '~' {
			return false
		}
		if foldsToASCII(r) {
			return false
		}
		if script == nil {
			for _, t := range lookalikeScripts {
				if unicode.Is(t, r) {
					script = t
				}
			}
		}
		if script == nil || !unicode.Is(script, r) {
			return false
		}
		distinct = distinct || !strings.ContainsRune(latinTwins, r)
	}
	return distinct
}

// lookalikeScripts hold letters that are drawn like Latin ones (Unicode TR 39).
var lookalikeScripts = [...]*unicode.RangeTable{unicode.Cyrillic, unicode.Greek, unicode.Armenian, unicode.Cherokee, unicode.Coptic,
	unicode.Lisu, unicode.Deseret, unicode.Georgian}

// latinTwins are the letters of those scripts that can hardly be told from Latin ones.
const latinTwins = "асеһіјкӏмоорԛѕтԝхуүґбнпгАВСЕНІЈКМОРЅТХУҮԚԜЅαιοκνρτυχγηωΑΒΕΖΗΙΚΜΝΟΡΤΥΧՏսոցհօյ"

// looksLikeLatin reports whether a letter can be taken for a Latin letter or a digit.
func looksLikeLatin(r rune) bool {
	if foldsToASCII(r) {
		return true
	}
	for _, t := range lookalikeScripts {
		if unicode.Is(t, r) {
			return true
		}
	}
	return strangeLatin(r)
}

// strangeLatin are Latin letters that no language writes beside plain ones by habit: small capitals, phonetic letters,
// dotless i and its kind.
func strangeLatin(r rune) bool {
	switch {
	case r == 'ı', r == 'ȷ', r == 'ſ', r == 'ʼ':
		return true
	case r >= 0x0250 && r <= 0x02AF, r >= 0x1D00 && r <= 0x1DBF, r >= 0x2C60 && r <= 0x2C7F, r >= 0xA720 && r <= 0xA7FF, r >= 0xAB30 && r <= 0xAB6F:
		return true
	case r >= 0x0180 && r <= 0x01CC && r != 0x01A0 && r != 0x01A1 && r != 0x01AF && r != 0x01B0:
		return true
	}
	return unicode.IsDigit(r) && r > '9'
}

// foldsToASCII reports whether compatibility folding turns r into plain characters: fullwidth, mathematical, circled,
// superscript and their kind. Accented letters fold to a letter and a mark, and do not count.
func foldsToASCII(r rune) bool {
	if r <= '~' {
		return false
	}
	var buf [utf8.UTFMax]byte
	n := utf8.EncodeRune(buf[:], r)
	folded := norm.NFKC.Bytes(buf[:n])
	return len(folded) > 0 && string(folded) != string(buf[:n]) && folded[0] <= '~'
}

// invisible reports whether r draws nothing of its own, moves other text, or has no agreed shape.
func invisible(r rune) bool {
	switch {
	case r == 0x034F, r == 0x115F, r == 0x1160, r == 0x17B4, r == 0x17B5, r >= 0x180B && r <= 0x180F, r == 0x3164, r == 0xFFA0,
		r >= 0xFE00 && r <= 0xFE0F, r >= 0xE0100 && r <= 0xE01EF, r == 0x2800, r == 0xFFFC, r == utf8.RuneError:
		return true
	case r == ' ':
		return false
	}
	return unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Co, unicode.Cs, unicode.Z) || !unicode.IsGraphic(r)
}

func kindOfInvisible(r rune) string {
	switch {
	case r == '\n', r == 0x2028, r == 0x2029, r == 0x85, r == '\r', r == '\v', r == '\f':
		return "a line break"
	case unicode.IsControl(r):
		return "a control character"
	case r == 0x061C, r == 0x200E, r == 0x200F, r >= 0x202A && r <= 0x202E, r >= 0x2066 && r <= 0x2069:
		return "a character that turns the reading direction"
	case unicode.Is(unicode.Z, r):
		return "an unusual space"
	case unicode.In(r, unicode.Co, unicode.Cs), !unicode.IsGraphic(r) && !unicode.Is(unicode.Cf, r):
		return "a character without an agreed shape"
	}
	return "an invisible character"
}

// Strip makes third parties' text fit for a terminal (SPEC section 5): no control byte but line end and tab is left, and
// what would be invisible or turn the text is shown as an escape. The escape sequences themselves lose their first byte
// and so their power; their letters stay readable.
func Strip(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return r != '\n' && r != '\t' && (invisible(r) || r == utf8.RuneError) }) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '\n' || r == '\t':
			b.WriteRune(r)
		case r == utf8.RuneError:
			b.WriteString("\uFFFD")
		case unicode.IsControl(r):
		case invisible(r):
			fmt.Fprintf(&b, "⟨U+%04X⟩", r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}
