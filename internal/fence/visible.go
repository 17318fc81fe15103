package fence

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// maxNotes bounds the warnings about one text; the last one says how many more there are.
	maxNotes = 8
	// maxPlaces bounds the places that one warning names.
	maxPlaces = 4
	// maxMarks bounds the marks on one letter; no living script needs more.
	maxMarks = 4
	// minRun is how many equal codes in a row are written as one with a count.
	minRun = 4
)

// Visible makes everything in s that a person could not see, or could take for something else, stand out as a code like
// ⟨U+202E⟩, and says in words of the host what it found and where (C6, F-C1). What draws nothing, or draws over or moves
// other text, is replaced by its code; what can be seen but looks like something else has its code behind it. An empty
// text is shown as ⟨empty⟩.
//
// Different texts are shown differently, also for a reader who tells no compatibility forms apart: the brackets
// themselves are written as codes. Nothing is cut (F-C4), and equal codes in a row get a count. A door shows the result
// on a line, or in an isolate, of its own: it can be a word that runs from right to left.
func Visible(s string) (shown string, warnings []string) {
	if s == "" {
		return "⟨empty⟩", []string{"there is nothing in it"}
	}
	if obvious(s) {
		return s, nil
	}
	v := view(parse(s))
	v.spaces()
	v.words()
	v.marks()
	v.rightToLeft()
	return v.String(), v.warnings()
}

// obvious reports whether s is ASCII text that has nothing for the judgement below: most values are.
func obvious(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case c < ' ' || c > '~' || c == '0' || c == '1' || c == 'I':
			return false
		case c == ' ' && (i == 0 || i == len(s)-1 || s[i-1] == ' '):
			return false
		}
	}
	return true
}

// glyph is one character of a text, or a byte that belongs to none.
type glyph struct {
	r       rune
	text    string
	finding finding
	script  script // of a letter
}

// view is a text under judgement.
type view []glyph

func parse(s string) []glyph {
	out := make([]glyph, 0, len(s))
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		g := glyph{r: r, text: s[:n]}
		if r == utf8.RuneError && n == 1 {
			g.finding = strayByte
		} else {
			g.finding = judge(r)
		}
		out = append(out, g)
		s = s[n:]
	}
	return out
}

// spaces finds ordinary spaces where they are easily missed.
func (v view) spaces() {
	for i := range v {
		if v[i].r == ' ' && (i == 0 || i == len(v)-1 || v[i-1].r == ' ') {
			v[i].finding = missedSpace
		}
	}
}

// words judges letters by their neighbours. An invisible character does not end a word, or it could hide what the word
// is made of.
func (v view) words() {
	for i := 0; i < len(v); {
		end := i
		for end < len(v) && v[end].inWord() {
			end++
		}
		v[i:end].word()
		i = end + 1
	}
}

func (g glyph) inWord() bool {
	return g.finding == unseen || g.finding == direction || g.finding == selector || g.finding == jamo ||
		unicode.In(g.r, unicode.L, unicode.M, unicode.N) && g.finding != strayByte
}

// word judges the letters of one word. Letters that look like Latin ones stand as they are in a word of one script that
// has a letter of its own besides; so "дом" is a word and "сор" is shown with its codes.
func (v view) word() {
	var seen scriptSet
	own := false
	for i := range v {
		if g := &v[i]; unicode.IsLetter(g.r) {
			g.script = scriptOf(g.r)
			if g.script != noScript {
				seen = seen.with(g.script)
				own = own || g.finding == none
			}
		}
	}
	alphabets := seen & (1<<firstFar - 1)
	honest := own && seen.one() && seen&scriptSet(0).with(latin).with(otherScript) == 0
	for i := range v {
		g := &v[i]
		switch {
		case g.finding == lookAlike && honest && g.script != noScript:
			g.finding = honestTwin
		case g.finding == none && alphabets != 0 && !alphabets.one() && unicode.IsLetter(g.r) && g.script < firstFar && g.script != latin && g.script != noScript:
			g.finding = mixed
		case i > 0 && i < len(v)-1 && (g.r == '0' || g.r == '1' || g.r == 'I') && isLower(v[i-1].r) && isLower(v[i+1].r):
			g.finding = amongLetters
		}
	}
}

func isLower(r rune) bool { return r >= 'a' && r <= 'z' }

// marks lets the marks of a script stand on its letters: they are part of how it is written. Marks that several scripts
// share, that another spelling of the same text would not need, or that stack up, keep their codes.
func (v view) marks() {
	for i := 0; i < len(v); {
		end := i + 1
		for end < len(v) && v[end].finding == mark {
			end++
		}
		base := v[i]
		script := base.script
		// Beyond maxMarks nothing is let through, so no more needs to be normal.
		group := v[i:min(end, i+1+maxMarks)]
		if len(group) > 1 && script >= firstFar && (base.finding == none || base.finding == honestTwin) && group.normal() {
			for j := 1; j < len(group) && isNormalForm(group[j].text) && scriptOf(group[j].r) == script; j++ {
				group[j].finding = none
			}
		}
		i = end
	}
}

func (v view) normal() bool {
	var b strings.Builder
	for _, g := range v {
		b.WriteString(g.text)
	}
	return isComposed(b.String())
}

// rightToLeft shows where letters run from right to left. They stand as they are only where all others do too: beside
// digits, brackets or Latin letters, two orders of one text can look the same.
func (v view) rightToLeft() {
	some, only := false, true
	for _, g := range v {
		switch {
		case runsLeft(g.r):
			some = true
			only = only && (g.finding == none || g.finding == honestTwin)
		case g.finding != none || !strings.ContainsRune(" -_.", g.r):
			only = false
		}
	}
	if !some {
		return
	}
	for i := range v {
		g := &v[i]
		switch {
		case !runsLeft(g.r) || g.finding != none && g.finding != honestTwin:
		case only && g.finding == none:
			g.finding = leftward
		case only:
		case unicode.Is(unicode.M, g.r):
			g.finding = mark // its letter gets a code, so it would stand on that
		default:
			g.finding = reordered
		}
	}
}

// String writes the text with its codes.
func (v view) String() string {
	var b strings.Builder
	for i := 0; i < len(v); {
		g := v[i]
		how := findings[g.finding].how
		if how != replaced {
			b.WriteString(g.text)
		}
		if how == plain {
			i++
			continue
		}
		writeCode(&b, g.r, g.text)
		n := 1
		for how == replaced && i+n < len(v) && v[i+n].text == g.text && findings[v[i+n].finding].how == replaced {
			n++
		}
		if n < minRun {
			n = 1
		} else {
			fmt.Fprintf(&b, "⟨%d times⟩", n)
		}
		i += n
	}
	return b.String()
}

const upperHex = "0123456789ABCDEF"

// writeCode writes the code of a character, or of a byte that is none.
func writeCode(b *strings.Builder, r rune, text string) {
	if r == utf8.RuneError && len(text) == 1 {
		b.WriteString("⟨x")
		b.WriteByte(upperHex[text[0]>>4])
		b.WriteByte(upperHex[text[0]&15])
		b.WriteString("⟩")
		return
	}
	b.WriteString("⟨U+")
	for shift := 20; shift >= 0; shift -= 4 {
		if shift < 16 || r>>shift != 0 {
			b.WriteByte(upperHex[r>>shift&15])
		}
	}
	b.WriteString("⟩")
}

// warnings are one line for each kind of finding and character.
func (v view) warnings() []string {
	type subject struct {
		finding finding
		of      rune
	}
	type remark struct {
		first  glyph
		places []int
		more   int
	}
	at, remarks, dropped := map[subject]int{}, []remark{}, map[subject]bool{}
	for i, g := range v {
		if g.finding == none {
			continue
		}
		key := subject{g.finding, g.subject()}
		n, known := at[key]
		switch {
		case known && len(remarks[n].places) == maxPlaces:
			remarks[n].more++
		case known:
			remarks[n].places = append(remarks[n].places, i+1)
		case len(remarks) == maxNotes:
			dropped[key] = true
		default:
			at[key] = len(remarks)
			remarks = append(remarks, remark{first: g, places: []int{i + 1}})
		}
	}
	var out []string
	for _, r := range remarks {
		out = append(out, places(r.places, r.more)+r.first.words())
	}
	if len(dropped) > 0 {
		out = append(out, fmt.Sprintf("there are %d more kinds of such characters", len(dropped)))
	}
	return out
}

// places are words like "character 3 is " and "characters 3, 5 and 12 more are ".
func places(at []int, more int) string {
	if len(at) == 1 {
		return fmt.Sprintf("character %d is ", at[0])
	}
	var b strings.Builder
	b.WriteString("characters ")
	for i, n := range at {
		switch {
		case i == 0:
		case i == len(at)-1 && more == 0:
			b.WriteString(" and ")
		default:
			b.WriteString(", ")
		}
		b.WriteString(itoa(n))
	}
	if more > 0 {
		fmt.Fprintf(&b, " and %d more", more)
	}
	b.WriteString(" are ")
	return b.String()
}
