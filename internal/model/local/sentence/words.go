package sentence

import (
	"slices"
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
			out = append(out, word{strings.TrimSuffix(text, "'s"), from, to, false})
		}
	}
	for i := len(tail) - 1; i >= 0; i-- {
		out = append(out, tail[i])
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

// plain leaves out the marks.
func plain(words []word) []word { return loose(words, nil) }

func join(words []word) string {
	parts := make([]string, len(words))
	for i, w := range words {
		parts[i] = w.text
	}
	return strings.Join(parts, " ")
}

// near reports whether two words differ by one slip of the finger: a letter missing, added, changed or swapped with its
// neighbour. Short words have no near ones.
func near(a, b string) bool { return slip(a, b) != "" }

// slip names the one slip of the finger between a word that is meant and what was written, or is "".
func slip(meant, written string) string {
	x, y := []rune(meant), []rune(written)
	if meant == written {
		return "none"
	}
	if min(len(x), len(y)) < 3 || max(len(x), len(y)) < 4 || len(x)-len(y) > 1 || len(y)-len(x) > 1 {
		return ""
	}
	i := 0
	for i < min(len(x), len(y)) && x[i] == y[i] {
		i++
	}
	switch {
	case len(x) > len(y) && string(x[i+1:]) == string(y[i:]):
		return "missing"
	case len(x) < len(y) && string(x[i:]) == string(y[i+1:]):
		return "added"
	case len(x) != len(y):
		return ""
	case i+1 < len(x) && x[i] == y[i+1] && x[i+1] == y[i] && string(x[i+2:]) == string(y[i+2:]):
		return "swapped"
	case string(x[i+1:]) == string(y[i+1:]):
		return "changed"
	}
	return ""
}

// right puts slips of the finger right, where one word of the vocabulary is meant. Names stay as they are. A strict
// reading leaves short words and endings alone, and what could be two words.
func (l *Language) right(words []word, n *names, strict bool) ([]word, bool) {
	out, changed := slices.Clone(words), false
	for i, w := range words {
		if w.mark || l.known[w.text] || len(n.forms[w.text]) > 0 || n.isPeer(w.text) {
			continue
		}
		if meant := l.meant(w.text, strict); meant != "" {
			out[i].text, changed = meant, true
		}
	}
	return out, changed
}

// meant is the word of the vocabulary that is written with one slip, or "". A swap is likelier than the others.
func (l *Language) meant(written string, strict bool) string {
	if strings.ContainsFunc(written, func(r rune) bool { return (r < 'a' || r > 'z') && r != '\'' && r != '-' }) {
		return ""
	}
	var swapped, other []string
	for _, v := range l.words {
		if d := len(v) - len(written); d < -1 || d > 1 {
			continue
		}
		kind := slip(v, written)
		switch {
		case kind == "swapped":
			swapped = append(swapped, v)
		case kind == "", strict && (len(written) < 5 || len(v) < 4 || kind == "added" && ending(v, written)):
		default:
			other = append(other, v)
		}
	}
	for _, found := range [][]string{swapped, other} {
		if len(found) == 1 || len(found) > 1 && !strict {
			return found[0]
		}
	}
	return ""
}

// ending reports whether a word only has another ending, and so is another form of it and no slip.
func ending(meant, written string) bool {
	return strings.HasPrefix(written, meant) && written[len(meant)-1:len(meant)] != written[len(meant):]
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
