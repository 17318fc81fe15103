package fence

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// finding is what there is to say about a character.
type finding uint8

const (
	none finding = iota
	// What a person could not see: replaced by its code.
	strayByte
	control
	lineBreak
	direction
	unseen
	tag
	selector
	oddSpace
	missedSpace
	private
	unknown
	wide
	bracket
	lost
	jamo
	mark
	// What a person could take for something else: its code stands behind it.
	otherForm
	digit
	badge
	lookAlike
	mixed
	reordered
	// What stands as it is, with a warning.
	honestTwin
	leftward
	amongLetters
)

// how a character is shown.
type how uint8

const (
	replaced how = iota // only its code: the zero value hides nothing
	beside              // itself and its code
	plain
)

// findings say how each is shown, and the words of its warning. They must make sense in singular and plural.
var findings = [...]struct {
	how   how
	words string
}{
	none:         {plain, ""},
	strayByte:    {replaced, "no text but a stray byte"},
	control:      {replaced, "a control character"},
	lineBreak:    {replaced, "a line break"},
	direction:    {replaced, "a character that turns the reading direction"},
	unseen:       {replaced, "an invisible character"},
	tag:          {replaced, "an invisible tag that can carry a hidden text"},
	selector:     {replaced, "an invisible selector that can carry a hidden text"},
	oddSpace:     {replaced, "an unusual space"},
	missedSpace:  {replaced, "a space where it is easily missed"},
	private:      {replaced, "a character without an agreed shape"},
	unknown:      {replaced, "no character that this program knows"},
	wide:         {replaced, "a character as wide as a sentence"},
	bracket:      {replaced, "a bracket like those around the codes"},
	lost:         {replaced, "the sign of a character that was lost before"},
	jamo:         {replaced, "a piece of a syllable"},
	mark:         {replaced, "a mark that is drawn over others"},
	otherForm:    {beside, "another form"},
	digit:        {beside, "a digit of another script"},
	badge:        {beside, "a sign that could be taken for one of the host's"},
	lookAlike:    {beside, "a character that looks like another"},
	mixed:        {beside, "a letter of one alphabet among those of another"},
	reordered:    {beside, "a letter that runs from right to left, among what does not"},
	honestTwin:   {plain, "a letter that looks like another, in a word wholly of its own script"},
	leftward:     {plain, "a letter that runs from right to left"},
	amongLetters: {plain, "a character that is easily taken for another, among small letters"},
}

// subject is what a warning is about: one character, or a script's letters as a whole.
func (g glyph) subject() rune {
	switch g.finding {
	case strayByte:
		return rune(g.text[0])
	case honestTwin:
		return rune(g.script)
	case leftward, reordered:
		return 0
	}
	return g.r
}

// words are those of the warning that begins with the places.
func (g glyph) words() string {
	what := findings[g.finding].words
	code := fmt.Sprintf(" (U+%04X)", g.r)
	switch g.finding {
	case strayByte:
		return what + fmt.Sprintf(" (%02X)", g.text[0])
	case honestTwin:
		return what + " (" + g.script.name() + ")"
	case leftward, reordered:
		return what
	case digit:
		return fmt.Sprintf("the digit %d of another script", digitValue(g.r)) + code
	case lookAlike:
		if name := scriptOf(g.r).name(); name != "" && unicode.IsLetter(g.r) {
			what = "a " + name + " letter that looks like another"
		}
		return what + ", " + quoted(looksLike(g.r)) + code
	case otherForm:
		if as := norm.NFKC.String(g.text); isASCII(as) {
			return what + " of " + quoted(as) + code
		}
		return what + " of other characters" + code
	}
	return what + code
}

func quoted(s string) string {
	if s == `"` {
		return "a quotation mark"
	}
	return `"` + s + `"`
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// judge says what there is to say about a character on its own. What comes of marks and look-alikes is decided with
// their neighbours.
func judge(r rune) finding {
	if r >= ' ' && r <= '~' {
		return none
	}
	if f := hidden(r); f != none {
		return f
	}
	var buf [utf8.UTFMax]byte
	text := buf[:utf8.EncodeRune(buf[:], r)]
	switch {
	case strings.ContainsRune(brackets, r):
		return bracket
	case strings.ContainsRune(wideOnes, r):
		return wide
	case r == utf8.RuneError:
		return lost
	case r >= 0x1100 && r <= 0x11FF, r >= 0xA960 && r <= 0xA97F, r >= 0xD7B0 && r <= 0xD7FF:
		return jamo
	case unicode.Is(unicode.M, r):
		return mark
	case !norm.NFKC.IsNormal(text):
		return otherForm
	case unicode.Is(unicode.Nd, r):
		return digit
	case strings.ContainsRune(badges, r):
		return badge
	case looksLike(r) != "":
		return lookAlike
	}
	return none
}

// Characters that need a judgement of their own. brackets are those that could be taken for the ones around codes,
// badges those that could be taken for the host's own signs.
const (
	brackets = "⟨⟩\u2329\u232A〈〉‹›❬❭❮❯❰❱⟪⟫《》⦑⦒⧼⧽\uFE3D\uFE3E\uFE3F\uFE40ᐸᐳ"
	wideOnes = "\uFDFA\uFDFB\uFDFC\uFDFD\uA9C5\u2E3A\u2E3B\U00012031\U00012219\U0001242B"
	badges   = "✓✔✅☑🗸🗹✗✘❌❎⚠⛔🚫🔒🔓🔐🛡ℹ│┃║▌⏎↵"
)

// hidden is the finding of a character that a person cannot see, or that has no agreed shape.
func hidden(r rune) finding {
	switch {
	case r == ' ':
		return none
	case r == '\n', r == '\r', r == '\v', r == '\f', r == 0x85, r == 0x2028, r == 0x2029:
		return lineBreak
	case unicode.IsControl(r):
		return control
	case unicode.Is(unicode.Bidi_Control, r):
		return direction
	case r >= 0xE0000 && r <= 0xE007F:
		return tag
	case unicode.Is(unicode.Variation_Selector, r):
		return selector
	case r == 0x2800, r == 0xFFFC, r == 0x1D159, r == 0x13441, r == 0x13442, r == 0x16FE4, // drawn as a blank
		unicode.In(r, unicode.Cf, unicode.Other_Default_Ignorable_Code_Point):
		return unseen
	case unicode.Is(unicode.Zs, r):
		return oddSpace
	case unicode.Is(unicode.Co, r):
		return private
	case !unicode.IsGraphic(r):
		return unknown
	}
	return none
}

// runsLeft reports whether a letter, mark or digit belongs to a script that runs from right to left.
func runsLeft(r rune) bool {
	return (r >= 0x0590 && r <= 0x08FF || r >= 0xFB1D && r <= 0xFDFF || r >= 0xFE70 && r <= 0xFEFC ||
		r >= 0x10800 && r <= 0x10FFF || r >= 0x1E800 && r <= 0x1EFFF)
}

// digitValue is the value of a decimal digit: they stand in tens, without gaps, from zero.
func digitValue(r rune) int {
	zero := r
	for r-zero < 9 && unicode.Is(unicode.Nd, zero-1) {
		zero--
	}
	return int(r-zero) % 10
}

func isComposed(s string) bool { return norm.NFC.IsNormalString(s) }

func isNormalForm(s string) bool { return norm.NFKC.IsNormalString(s) }
