package sentence

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A template is a sentence with choices: (a|b) one of, [a|b] one of or nothing, {slot} a value, <macro> a piece with a
// name of its own.
type template []node

// node is one step: a literal word, a slot, or a choice between templates.
type node struct {
	word   string
	slot   string
	choice []template
}

var slotNames = [...]string{"app", "key", "value", "n", "path", "folder", "peer", "name"}

// parseTemplate compiles a sentence. Words in drop are left out, since the message's are too.
func parseTemplate(text string, macros map[string]string, drop map[string]bool) (template, error) {
	p := parser{macros: macros, drop: drop}
	text, err := p.expand(text, 0)
	if err != nil {
		return nil, err
	}
	p.rest = text
	t, err := p.sequence()
	if err == nil && p.rest != "" {
		err = fmt.Errorf("unexpected %q", p.rest)
	}
	if err != nil {
		return nil, fmt.Errorf("%q: %w", text, err)
	}
	if empty(t) {
		return nil, fmt.Errorf("%q: can match nothing at all", text)
	}
	return t, nil
}

type parser struct {
	rest   string
	macros map[string]string
	drop   map[string]bool
}

func (p *parser) expand(text string, depth int) (string, error) {
	if depth > 4 {
		return "", fmt.Errorf("macros nest too deep in %q", text)
	}
	for {
		from := strings.IndexByte(text, '<')
		if from < 0 {
			return text, nil
		}
		to := strings.IndexByte(text, '>')
		if to < from {
			return "", fmt.Errorf("an open < in %q", text)
		}
		body, ok := p.macros[text[from+1:to]]
		if !ok {
			return "", fmt.Errorf("no macro %q", text[from+1:to])
		}
		body, err := p.expand(body, depth+1)
		if err != nil {
			return "", err
		}
		text = text[:from] + body + text[to+1:]
	}
}

func (p *parser) sequence() (template, error) {
	var t template
	for {
		p.rest = strings.TrimLeft(p.rest, " ")
		if p.rest == "" || strings.IndexByte("|)]", p.rest[0]) >= 0 {
			return t, nil
		}
		switch p.rest[0] {
		case '(', '[':
			n, err := p.choice()
			if err != nil {
				return nil, err
			}
			t = append(t, n)
		case '{':
			name, rest, ok := strings.Cut(p.rest[1:], "}")
			if !ok || !slices.Contains(slotNames[:], name) {
				return nil, fmt.Errorf("no slot %q", name)
			}
			p.rest, t = rest, append(t, node{slot: name})
		default:
			end := strings.IndexAny(p.rest, " ([{|)]}")
			if end < 0 {
				end = len(p.rest)
			}
			if end == 0 {
				return nil, fmt.Errorf("unexpected %q", p.rest)
			}
			w := p.rest[:end]
			if p.rest = p.rest[end:]; !p.drop[w] {
				t = append(t, node{word: w})
			}
		}
	}
}

func (p *parser) choice() (node, error) {
	closing := byte(')')
	var n node
	if p.rest[0] == '[' {
		closing = ']'
		n.choice = []template{nil}
	}
	for {
		p.rest = p.rest[1:]
		t, err := p.sequence()
		if err != nil {
			return node{}, err
		}
		n.choice = append(n.choice, t)
		switch {
		case p.rest == "":
			return node{}, fmt.Errorf("missing %q", closing)
		case p.rest[0] == closing:
			p.rest = p.rest[1:]
			return n, nil
		case p.rest[0] != '|':
			return node{}, fmt.Errorf("unexpected %q", p.rest)
		}
	}
}

func empty(t template) bool {
	for _, n := range t {
		if n.word != "" || n.slot != "" || !slices.ContainsFunc(n.choice, empty) {
			return false
		}
	}
	return true
}

// literals adds the template's own words to set.
func (t template) literals(set map[string]bool) {
	for _, n := range t {
		if n.word != "" {
			set[n.word] = true
		}
		for _, c := range n.choice {
			c.literals(set)
		}
	}
}

// binding is what the slots of one match hold.
type binding struct {
	words    int // literal words matched
	app      fit
	also     []fit // further apps of a list
	hasApp   bool
	key      string
	from, to int // words of the value; both zero without one
	n        int
	path     string
	name     string
	peer     bool     // name is a peer that is known
	guess    bool     // path is only a guess
	more     []string // further paths or names of a list
}

// apps are all apps that were named.
func (b binding) apps() []fit { return append([]fit{b.app}, b.also...) }

// maxSteps bounds the work on one template; no sentence of maxWords needs a tenth of it.
const maxSteps = 20000

// matcher tries templates on one message.
type matcher struct {
	words []word
	raw   string
	names *names
	fuzzy bool // a name may be written with a slip
	inLog bool // the template asks for an app's log
	steps int
}

// needs lists sets of words of each of which a message that the template matches holds one.
func (t template) needs() []map[string]bool {
	var out []map[string]bool
	for _, n := range t {
		set := map[string]bool{}
		if n.word != "" {
			set[n.word] = true
		}
		for _, c := range n.choice {
			inner := c.needs()
			if len(inner) == 0 {
				set = nil
				break
			}
			maps.Copy(set, inner[0])
		}
		if len(set) > 0 {
			out = append(out, set)
		}
	}
	return out
}

// may reports whether the words that a template always needs are there.
func (m *matcher) may(needs []map[string]bool) bool {
	for _, set := range needs {
		if !slices.ContainsFunc(m.words, func(w word) bool { return set[w.text] }) {
			return false
		}
	}
	return true
}

// index finds the phrases that some words may match, in order, without a look at all of them.
type index struct {
	all  []phrase
	by   map[string][]int // phrases by the words of which each needs one
	rest []int            // phrases that need none
}

func (x *index) add(p phrase) {
	n := len(x.all)
	if x.all = append(x.all, p); len(p.needs) == 0 {
		x.rest = append(x.rest, n)
		return
	}
	for w := range p.needs[0] {
		x.by[w] = append(x.by[w], n)
	}
}

// of lists the phrases for the words.
func (x *index) of(words []word) []int {
	out := slices.Clone(x.rest)
	for _, w := range words {
		out = append(out, x.by[w.text]...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// all calls found for each way in which the template matches words from start on. end is the first word after it.
func (m *matcher) all(p *phrase, start int, found func(end int, b binding)) {
	if m.may(p.needs) {
		m.steps, m.inLog = 0, p.Tool == "app_logs" && p.Kind == ""
		m.match(p.template, start, binding{}, found)
	}
}

func (m *matcher) match(t template, i int, b binding, k func(int, binding)) {
	if m.steps++; m.steps > maxSteps {
		return
	}
	if len(t) == 0 {
		k(i, b)
		return
	}
	n, rest := t[0], t[1:]
	switch {
	case n.word != "":
		if i < len(m.words) && !m.words[i].mark && n.word == m.words[i].text {
			b.words++
			m.match(rest, i+1, b, k)
		}
	case n.slot != "":
		m.slot(n.slot, i, b, func(j int, b binding) { m.match(rest, j, b, k) })
	default:
		for _, c := range n.choice {
			m.match(c, i, b, func(j int, b binding) { m.match(rest, j, b, k) })
		}
	}
}

// span returns the next n words, if there are so many and none is a mark.
func (m *matcher) span(i, n int) []word {
	if i+n > len(m.words) || slices.ContainsFunc(m.words[i:i+n], func(w word) bool { return w.mark }) {
		return nil
	}
	return m.words[i : i+n]
}
