package sequence

import (
	"slices"
	"strings"
)

// shrink makes a failing script shorter while it fails: whole steps first, then single calls of the turns that are left.
func shrink(s Script, fails func(Script) error) (Script, error) {
	err := fails(s)
	for again := err != nil; again; {
		again = false
		for i := len(s) - 1; i >= 0; i-- {
			if less := slices.Delete(slices.Clone(s), i, i+1); len(less) > 0 {
				if e := fails(less); e != nil {
					s, err, again = less, e, true
				}
			}
		}
		for i := range s {
			words := strings.Fields(s[i])
			for j := len(words) - 1; j >= 3 && (words[0] == "chat" || words[0] == "peer"); j-- {
				less := slices.Clone(s)
				less[i] = strings.Join(slices.Delete(slices.Clone(words), j, j+1), " ")
				if e := fails(less); e != nil {
					s, err, again, words = less, e, true, strings.Fields(less[i])
				}
			}
		}
	}
	return s, err
}
