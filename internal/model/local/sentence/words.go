package sentence

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxWords bounds a message that is understood at all: what is longer is no sentence this matcher knows.
const maxWords = 40

// word is one word or one mark of punctuation of a message. from and to are its place in the message, so that a value
// keeps its own spelling; words expanded from a contraction share their place.
type word struct {
	text     string // lower case
	from, to int
	mark     bool
}

const (
	leadMarks  = "\"'“”‘’«»‹›„‚<>([{*_`#–—…|•,;:!?¿¡。，？！"
	trailMarks = "\"'“”‘’«»‹›„‚<>)]}*_`–—…|•,;:!?。，？！."
)

// split takes a message apart. A line break inside it is a mark: what stands on another line is another clause.
func split(s string, contractions map[string]string) []word {
	s = strings.TrimRightFunc(s, unicode.IsSpace)
	var out []word
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == '\n' || r == '\r' {
			if len(out) > 0 && out[len(out)-1].text != "\n" {
				out = append(out, word{"\n", i, i + n, true})
			}
			i += n
			continue
		}
		if unicode.IsSpace(r) {
			i += n
			continue
		}
		end := i + n
		for end < len(s) {
			r, n := utf8.DecodeRuneInString(s[end:])
			if unicode.IsSpace(r) {
				break
			}
			end += n
		}
		out = chunk(out, s, i, end, contractions)
		i = end
	}
	return out
}

// chunk splits what stands between two spaces into its marks and its word.
func chunk(out []word, s string, from, to int, contractions map[string]string) []word {
	var tail []word
	for from < to {
		r, n := utf8.DecodeRuneInString(s[from:to])
		if !strings.ContainsRune(leadMarks, r) {
			break
		}
		out = append(out, word{string(r), from, from + n, true})
		from += n
	}
	for from < to {
		r, n := utf8.DecodeLastRuneInString(s[from:to])
		if !strings.ContainsRune(trailMarks, r) {
			break
		}
		tail = append(tail, word{string(r), to - n, to, true})
		to -= n
	}
	if from < to {
		text := strings.ToLower(strings.ReplaceAll(s[from:to], "’", "'"))
		if full, ok := contractions[text]; ok {
			for w := range strings.FieldsSeq(full) {
				out = append(out, word{w, from, to, false})
			}
		} else {
			out = append(out, word{text, from, to, false})
		}
	}
	for i := len(tail) - 1; i >= 0; i-- {
		out = append(out, tail[i])
	}
	return out
}

// whole is the strict view of a message: only a closing full stop or exclamation mark goes, and a comma beside a word
// of politeness. Every other mark stays, so that no template matches across it.
func whole(words []word, polite map[string]bool) []word {
	end := len(words)
	for end > 0 && words[end-1].mark && (words[end-1].text == "." || words[end-1].text == "!") {
		end--
	}
	out := make([]word, 0, end)
	for i, w := range words[:end] {
		beside := i > 0 && polite[words[i-1].text] || i+1 < end && polite[words[i+1].text]
		if w.mark && w.text == "," && beside {
			continue
		}
		out = append(out, w)
	}
	return out
}

// loose is the tolerant view: words only, without the fillers.
func loose(words []word, fillers map[string]bool) []word {
	out := make([]word, 0, len(words))
	for _, w := range words {
		if !w.mark && !fillers[w.text] {
			out = append(out, w)
		}
	}
	return out
}

func join(words []word) string {
	parts := make([]string, len(words))
	for i, w := range words {
		parts[i] = w.text
	}
	return strings.Join(parts, " ")
}

// near reports whether two words differ by one slip of the finger: a letter missing, added, changed or swapped with its
// neighbour. Short words have no near ones.
func near(a, b string) bool {
	if a == b {
		return true
	}
	x, y := []rune(a), []rune(b)
	if len(x) > len(y) {
		x, y = y, x
	}
	if len(x) < 3 || len(y) < 4 || len(y)-len(x) > 1 {
		return false
	}
	i := 0
	for i < len(x) && x[i] == y[i] {
		i++
	}
	if len(x) < len(y) {
		return string(x[i:]) == string(y[i+1:])
	}
	if string(x[i+1:]) == string(y[i+1:]) {
		return true
	}
	return i+1 < len(x) && x[i] == y[i+1] && x[i+1] == y[i] && string(x[i+2:]) == string(y[i+2:])
}

// Clean makes text of somebody else fit for a line of an answer: nothing invisible or controlling stays in it.
func Clean(s string, limit int) string {
	s = strings.Map(func(r rune) rune {
		if r == '\t' {
			return ' '
		}
		if !unicode.IsPrint(r) {
			return '\uFFFD'
		}
		return r
	}, s)
	if utf8.RuneCountInString(s) <= limit {
		return s
	}
	return string([]rune(s)[:limit-1]) + "…"
}
