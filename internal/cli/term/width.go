package term

import (
	"unicode"

	"golang.org/x/text/width"
)

// runeWidth is the number of columns a character takes, counted high where terminals differ.
func runeWidth(r rune) int {
	switch {
	case r < 0x7f:
		return 1
	case unicode.In(r, unicode.Mn, unicode.Me):
		return 0
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	if r >= 0x1f000 || r >= 0x2600 && r < 0x2800 { // pictures, which some terminals draw wide
		return 2
	}
	return 1
}

func textWidth(s string) int {
	n := 0
	for _, r := range s {
		n += runeWidth(r)
	}
	return n
}
