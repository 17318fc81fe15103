package term

import (
	"strings"
	"unicode"
)

// Stripper removes control characters and escape sequences from text that arrives in pieces, also where a sequence is
// split between two of them. The zero Stripper is ready.
type Stripper struct {
	state stripState
	count int // characters swallowed since the sequence began
}

type stripState uint8

const (
	plain    stripState = iota
	escape              // after ESC
	sequence            // after ESC [: up to a final byte
	text                // after ESC ] P X ^ _: up to BEL or ESC \
	textEsc             // in such a text, after ESC
)

// maxSwallow bounds what one unfinished sequence can take away from the text; what comes after it is shown.
const maxSwallow = 1024

// Feed returns what of s may be shown. Line ends and tabs stay.
func (p *Stripper) Feed(s string) string {
	var b strings.Builder
	for _, r := range s {
		if p.take(r) {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// take reports whether r is text.
func (p *Stripper) take(r rune) bool {
	if p.state != plain {
		if p.count++; p.count > maxSwallow || r == '\n' {
			p.state = plain
		}
	}
	switch p.state {
	case escape:
		return p.afterEscape(r)
	case sequence:
		if r >= 0x40 && r <= 0x7e {
			p.state = plain
		} else if r < 0x20 || r > 0x7e {
			p.state = plain
			return p.take(r)
		}
		return false
	case text:
		switch r {
		case 0x07, 0x9c:
			p.state = plain
		case 0x1b:
			p.state = textEsc
		}
		return false
	case textEsc:
		if r == '\\' {
			p.state = plain
			return false
		}
		return p.afterEscape(r)
	}
	return p.begin(r)
}

func (p *Stripper) begin(r rune) bool {
	switch {
	case r == '\n' || r == '\t':
		return true
	case r == 0x1b:
		p.state, p.count = escape, 0
	case r == 0x9b:
		p.state, p.count = sequence, 0
	case r == 0x90 || r == 0x98 || r >= 0x9d && r <= 0x9f:
		p.state, p.count = text, 0
	default:
		return !unicode.IsControl(r)
	}
	return false
}

func (p *Stripper) afterEscape(r rune) bool {
	switch {
	case r == '[':
		p.state = sequence
	case r == ']' || r == 'P' || r == 'X' || r == '^' || r == '_':
		p.state = text
	case r == 0x1b:
		p.state = escape
	case r >= 0x20 && r <= 0x2f: // intermediate bytes, as in ESC ( B
	case r >= 0x30 && r <= 0x7e:
		p.state = plain
	default:
		p.state = plain
		return p.begin(r)
	}
	return false
}
