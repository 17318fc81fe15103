package fence

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Strip makes somebody else's text fit for a terminal (SPEC section 5). Control characters and escape sequences are
// taken out, in their 7-bit and 8-bit forms; line ends and tabs stay. What is invisible or turns the text becomes a code
// like ⟨U+202E⟩, and so does a stray byte and a mark too many. It is linear in the length of s. A sequence that has no
// end loses what makes it one, and its text is shown.
func Strip(s string) string {
	if fit(s) {
		return s
	}
	var b strings.Builder
	b.Grow(len(s))
	marks, before := 0, '\x00'
	for len(s) > 0 {
		if n := sequence(s); n > 0 {
			s = s[n:]
			continue
		}
		r, n := utf8.DecodeRuneInString(s)
		text := s[:n]
		s = s[n:]
		f := judgeForTerminal(r, n)
		dress := r == 0xFE0E || r == 0xFE0F || r == 0x200D
		switch {
		case dress && unicode.In(before, unicode.So, unicode.Sk), r == 0x200D && before == 0xFE0F:
			before = r
			continue // it only chooses how a pictograph is drawn
		case f == mark && before != '\n' && marks < maxMarks:
			marks++
			f = none
		case f == mark: // too many, or over the host's gutter
		default:
			marks = 0
		}
		before = r
		if f != none {
			writeCode(&b, r, text)
			continue
		}
		b.WriteString(text)
	}
	return b.String()
}

// fit reports whether s is ASCII text without control characters.
func fit(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < ' ' && c != '\n' && c != '\t') || c > '~' {
			return false
		}
	}
	return true
}

func judgeForTerminal(r rune, size int) finding {
	if r == utf8.RuneError && size == 1 {
		return strayByte
	}
	switch f := hidden(r); f {
	case direction, unseen, tag, selector, lineBreak:
		if r != '\n' {
			return f
		}
		return none
	}
	if r >= 0x300 && judge(r) == mark {
		return mark
	}
	return none
}

// control8 is the 8-bit control character at the start of s, as a character or as a stray byte, or 0.
func control8(s string) (c byte, size int) {
	switch {
	case s[0] >= 0x80 && s[0] <= 0x9F:
		return s[0], 1
	case len(s) > 1 && s[0] == 0xC2 && s[1] <= 0x9F && s[1] >= 0x80:
		return s[1], 2
	}
	return 0, 0
}

// sequence is the length of the control character or escape sequence at the start of s, or 0.
func sequence(s string) int {
	c, n := control8(s)
	switch {
	case n == 0 && s[0] == 0x1B:
		n = 1
		if len(s) > 1 && s[1] >= 0x40 && s[1] <= 0x5F { // the 7-bit form of the same
			c, n = s[1]+0x40, 2
		} else {
			return n + finish(s[n:], 0x20, 0x2F, 0x30, 0x7E)
		}
	case n == 0 && (s[0] < ' ' && s[0] != '\n' && s[0] != '\t' || s[0] == 0x7F):
		return 1
	case n == 0:
		return 0
	}
	switch c {
	case 0x9B: // CSI
		params := 0
		for n+params < len(s) && s[n+params] >= 0x30 && s[n+params] <= 0x3F {
			params++
		}
		n += params
		return n + finish(s[n:], 0x20, 0x2F, 0x40, 0x7E)
	case 0x8E, 0x8F: // SS2, SS3: one character
		return n + finish(s[n:], 1, 0, 0x20, 0x7E)
	case 0x90, 0x98, 0x9D, 0x9E, 0x9F: // DCS, SOS, OSC, PM, APC: a text
		return n + controlString(s[n:], c == 0x9D)
	}
	return n
}

// finish is the length of the middle and last bytes of a sequence, as far as they are there.
func finish(s string, midLow, midHigh, endLow, endHigh byte) int {
	n := 0
	for n < len(s) && s[n] >= midLow && s[n] <= midHigh {
		n++
	}
	if n < len(s) && s[n] >= endLow && s[n] <= endHigh {
		n++
	}
	return n
}

// controlString is the length of a text up to and with its end, or 0 if it does not end before the line or another
// control character. So no byte is looked at twice for it.
func controlString(s string, bell bool) int {
	for i := 0; i < len(s); {
		c, n := control8(s[i:])
		switch {
		case n > 0 && c == 0x9C:
			return i + n
		case n > 0:
			return 0
		case s[i] == 0x07 && bell:
			return i + 1
		case s[i] == 0x1B && i+1 < len(s) && s[i+1] == '\\':
			return i + 2
		case s[i] < ' ' && s[i] != '\t':
			return 0
		}
		_, n = utf8.DecodeRuneInString(s[i:])
		i += n
	}
	return 0
}
