package invite

import (
	"errors"
	"fmt"
	"strings"

	"github.com/tyler-smith/go-bip39/wordlists"
)

// The words are the English list of BIP-39: 2,048 words, each known by its first four letters.
const (
	wordBits = 11
	stem     = 4
)

// toWords writes 11 bits a word, the last one filled up with zeros.
func toWords(raw []byte) []string {
	var out []string
	acc, n := 0, 0
	for _, b := range raw {
		acc, n = acc<<8|int(b), n+8
		if n >= wordBits {
			n -= wordBits
			out = append(out, wordlists.English[acc>>n])
			acc &= 1<<n - 1
		}
	}
	if n > 0 {
		out = append(out, wordlists.English[acc<<(wordBits-n)])
	}
	return out
}

// fromWords reads them back; numbers between words are skipped. Bits beyond the last whole byte must be zero.
func fromWords(fields []string) ([]byte, error) {
	known := map[string]int{}
	for i, w := range wordlists.English {
		known[strings.ToUpper(w[:min(stem, len(w))])] = i
	}
	var out []byte
	acc, n, count := 0, 0, 0
	for _, f := range fields {
		if strings.Trim(f, "0123456789)") == "" {
			continue
		}
		count++
		i, ok := known[f[:min(stem, len(f))]]
		if w := strings.ToUpper(wordlists.English[i]); !ok || !strings.HasPrefix(w, f) {
			return nil, fmt.Errorf("word %d of the invite is not on the list of words", count)
		}
		acc, n = acc<<wordBits|i, n+wordBits
		for n >= 8 {
			n -= 8
			out = append(out, byte(acc>>n))
			acc &= 1<<n - 1
		}
	}
	if acc != 0 {
		return nil, errors.New("the invite's last word does not fit")
	}
	return out, nil
}
