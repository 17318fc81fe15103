package radio

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

const (
	maxPart   = 200 // bytes of text in one packet, its number included
	minPart   = 40  // fewer, and a reply would be all numbers
	maxParts  = 9   // so that a number is always as long
	numberLen = len("1/9 ")
	cutMark   = " [cut]"
)

// split makes at most most parts of at most size bytes of a text: one as it is, or several with "1/3 " before each. It
// cuts between runes, after a blank where one is near; what is too much is cut off, with a mark at the end.
func split(text string, size, most int) []string {
	text = strings.TrimSpace(strings.ToValidUTF8(text, "\uFFFD"))
	if len(text) <= size {
		return []string{text}
	}
	if most == 1 {
		return []string{text[:before(text, size-len(cutMark))] + cutMark}
	}
	var out []string
	for size -= numberLen; text != ""; {
		switch {
		case len(text) <= size:
			out, text = append(out, text), ""
		case len(out) == most-1:
			out, text = append(out, text[:before(text, size-len(cutMark))]+cutMark), ""
		default:
			n := before(text, size)
			if blank := strings.LastIndexAny(text[:n], " \n\t"); blank >= n*3/4 {
				n = blank + 1
			}
			out, text = append(out, text[:n]), text[n:]
		}
	}
	for i := range out {
		out[i] = fmt.Sprintf("%d/%d %s", i+1, len(out), out[i])
	}
	return out
}

// before is the last place at or before n, which is inside text, where a rune begins.
func before(text string, n int) int {
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return n
}
