package sequence

import (
	"slices"
	"strings"
)

// shrink makes a failing script shorter while it fails: whole steps first, then single words of what is left.
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
			for j := len(words) - 1; j >= 1; j-- {
				less := slices.Clone(s)
				less[i] = strings.Join(slices.Delete(slices.Clone(words), j, j+1), " ")
				if !whole(less[i]) {
					continue
				}
				if e := fails(less); e != nil {
					s, err, again, words = less, e, true, strings.Fields(less[i])
				}
			}
		}
	}
	return s, err
}

// whole reports whether a step has the words that it needs.
func whole(line string) bool {
	least := map[string]int{"chat": 3, "peer": 3, "approve": 3, "decline": 3, "cancel": 3, "undo": 3, "fill": 4, "blank": 3, "grant": 3, "close": 3,
		"mode": 3, "role": 4, "revoke": 3, "password": 2, "listen": 3, "let": 2, "swap": 2, "set": 3, "handler": 2, "summaries": 2, "pass": 2, "wall": 2,
		"kill": 1, "restart": 1}
	f := strings.Fields(line)
	return len(f) >= least[f[0]] && f[len(f)-1] != "for" && !(f[0] == "kill" && len(f) == 2)
}
