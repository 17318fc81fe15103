package sentence

import (
	"cmp"
	"slices"
	"strings"
)

// maxChanges bounds the changes of one message. Each is confirmed by itself.
const maxChanges = 3

// maxFrames bounds the frames around each other: "could you do me a favour and".
const maxFrames = 4

// maxTries bounds the work on one message.
const maxTries = 4000

// request reads a message as clauses: changes, reads, reasons and courtesies. It asks for changes only where every clause
// is one of these, so that nothing that is not understood stands beside a change.
type request struct {
	*reading
	words  []word
	quoted []bool // which words stand between double quotes
	slips  bool   // slips of the finger were put right
	backs  bool   // a change whose app or value does not fit is a question back, not a clause that is not understood
	tries  int
	failed map[failure]bool
}

// failure is where the rest of a message was not understood, so that it is not tried again.
type failure struct {
	at   int
	asks bool
}

// clause is one clause that was understood.
type clause struct {
	intents []Intent
	asks    bool // it is put as a question: "can you"
	exact   bool
}

// requested finds the changes that the whole message asks for, and the reads beside them. Where its words fit but no
// single app or value does, the intent is a question back.
func (r *reading) requested() ([]Intent, bool) {
	if r.said.Mixed {
		return nil, false
	}
	right, changed := r.right(r.words, r.names, true)
	for _, backs := range []bool{false, true} {
		for i, words := range [][]word{r.words, right} {
			if i > 0 && !changed {
				break
			}
			q := &request{reading: r, words: words, quoted: quotes(words), slips: i > 0, backs: backs, failed: map[failure]bool{}}
			if intents, ok := q.from(0, clause{exact: i == 0}); ok {
				return intents, true
			}
		}
	}
	return nil, false
}

// quotes marks the words that stand between double quotes.
func quotes(words []word) []bool {
	out, inside := make([]bool, len(words)), false
	for i, w := range words {
		if w.mark && strings.ContainsAny(w.text, "\"“”") {
			inside = !inside
			continue
		}
		out[i] = inside
	}
	return out
}

// from reads the clauses from word i on, after what was said before.
func (q *request) from(i int, before clause) ([]Intent, bool) {
	for i < len(q.words) && q.joint(i) {
		i++
	}
	if i == len(q.words) {
		return q.whole(before)
	}
	if q.failed[failure{i, before.asks}] {
		return nil, false
	}
	for j := len(q.words); j > i; j-- {
		if q.tries++; q.tries > maxTries {
			return nil, false
		}
		if j < len(q.words) && !q.joint(j) && !q.asked(j) {
			continue
		}
		for _, c := range q.readings(i, j, before) {
			all := clause{slices.Concat(before.intents, c.intents), before.asks || c.asks, before.exact && c.exact}
			next := j
			if q.asked(j) {
				next++
			}
			if out, ok := q.from(next, all); ok {
				return out, true
			}
		}
	}
	q.failed[failure{i, before.asks}] = true
	return nil, false
}

// whole is the end of a message: what it asks for, if that is a change.
func (q *request) whole(all clause) ([]Intent, bool) {
	var out []Intent
	changes := 0
	for _, in := range all.intents {
		if slices.Contains(out, in) {
			continue
		}
		if in.Kind == Say && !in.Exact {
			return []Intent{in}, true
		}
		if out = append(out, in); Changing(in.Tool) {
			changes++
		}
	}
	if changes > maxChanges {
		return []Intent{say("That is more than %d changes at once, so nothing was changed. %s", maxChanges, q.need())}, true
	}
	if changes == 0 {
		return nil, false
	}
	for i := range out {
		out[i].Exact = all.exact && out[i].Exact
	}
	return out, true
}

// joint reports whether word i may stand between two clauses.
func (q *request) joint(i int) bool {
	w := q.words[i]
	return !q.quoted[i] && (w.mark && strings.ContainsAny(w.text, ",.;!–—") || !w.mark && (q.joints[w.text] || w.text == "-"))
}

func (q *request) asked(i int) bool {
	return i < len(q.words) && q.words[i].mark && (q.words[i].text == "?" || q.words[i].text == "？")
}

// readings are the ways in which words i to j are one clause, the best first.
func (q *request) readings(i, j int, before clause) []clause {
	words, asked := q.words[i:j], q.asked(j)
	if c, ok := q.change(i, j, asked && !before.asks); ok {
		return []clause{c}
	}
	var out []clause
	if q.aside(words) {
		out = append(out, clause{exact: true, asks: asked})
	}
	if c, ok := q.look(i, j); ok {
		out = append(out, c)
	}
	if !asked && q.reason(words) {
		out = append(out, clause{})
	}
	return out
}

// change reads a clause as one sentence of the files that changes something. One that ends as a question must be put as
// a request.
func (q *request) change(i, j int, asked bool) (c clause, ok bool) {
	words, asks := q.soften(i, j), false
	for frames := range maxFrames {
		if len(words) > 0 && (asks || !asked) {
			found, unfit := q.match(words, i, frames > 0)
			switch {
			case len(found) == 1:
				return clause{found[0], asks, !q.slips}, true
			case len(found) > 1 && q.backs:
				return clause{intents: []Intent{say("That can be read in more than one way, so I change nothing. %s", q.need())}}, true
			case len(unfit) > 0 && q.backs:
				return clause{intents: []Intent{q.which(unfit[0], true)}}, true
			}
		}
		rest, ask := q.framed(words, false)
		if len(rest) == len(words) {
			break
		}
		words, asks = rest, asks || ask
	}
	return c, false
}

// match finds what the words ask for as one sentence: one thing, or several where they can be read in more than one way;
// and the names in them that fit no single app.
func (q *request) match(words []word, start int, framed bool) (found [][]Intent, unfit []fit) {
	m := q.matcher(words, false)
	best := 0
	for _, at := range q.changes.of(words) {
		p := q.changes.all[at]
		if p.Framed && !framed {
			continue
		}
		m.all(&p, 0, func(end int, b binding) {
			if end != len(words) {
				return
			}
			intents, size, wrong := q.intents(m, p, b, start)
			unfit = append(unfit, wrong...)
			switch {
			case len(intents) == 0 || size < best:
				return
			case size > best:
				best, found = size, nil
			}
			if !slices.ContainsFunc(found, func(f []Intent) bool { return slices.Equal(f, intents) }) {
				found = append(found, intents)
			}
		})
	}
	return found, unfit
}

// intents are what one match of a change asks for. size is the number of words in the names: the longer name is meant.
func (q *request) intents(m *matcher, p phrase, b binding, start int) (out []Intent, size int, unfit []fit) {
	if p.Tool == "settings_set" {
		in := Intent{Kind: Call, Tool: p.Tool, Exact: true}
		if !q.setting(m, p, b, &in) {
			return nil, 0, nil
		}
		return []Intent{in}, 1, nil
	}
	if !b.hasApp {
		return nil, 0, nil
	}
	for _, named := range b.apps() {
		f := q.resolve(named, q.words[:start])
		switch fits := len(f.ids) == 1 || f.many && len(f.ids) > 0; {
		case p.Known && (!fits || f.guess):
			return nil, 0, nil
		case !fits:
			return nil, 0, []fit{f}
		}
		size += 1 + named.size
		for _, id := range f.ids {
			out = append(out, Intent{Kind: Call, Tool: p.Tool, App: id, Exact: true})
		}
	}
	return out, size, nil
}

// setting fills key and value of a settings_set.
func (r *reading) setting(m *matcher, p phrase, b binding, in *Intent) bool {
	in.Key = cmp.Or(p.Key, b.key)
	if in.Value = p.Value; p.Value == "" {
		if quoted := b.from > 0 && m.words[b.from-1].mark; b.to == 0 || quoted && b.words == 0 {
			return false
		}
		v, ok := m.value(in.Key, p.Key == "", b)
		if !ok {
			return false
		}
		in.Value = v
	}
	if s := r.names.Settings; len(s) > 0 && !slices.Contains(s, in.Key) {
		*in = say("The setting %s cannot be set. These can: %s.", in.Key, strings.Join(s, ", "))
	}
	return true
}

// soften leaves out the phrases that mean nothing in a request, outside of quotes, and words of greeting before it.
func (q *request) soften(i, j int) []word {
	var out []word
	for i < j {
		n := 0
		for _, phrase := range q.soft {
			if i+len(phrase) <= j && !q.quoted[i] && slices.EqualFunc(phrase, q.words[i:i+len(phrase)], func(p string, w word) bool { return !w.mark && p == w.text }) {
				n = len(phrase)
				break
			}
		}
		switch {
		case n > 0:
			i += n
		case len(out) == 0 && q.openers[q.words[i].text]:
			i++
		default:
			out = append(out, q.words[i])
			i++
		}
	}
	return out
}

// framed takes off how a request begins, and says whether that puts it as a question.
func (r *reading) framed(words []word, reads bool) ([]word, bool) {
	m := r.matcher(words, false)
	longest := 0
	var by frame
	for _, f := range r.frames {
		if f.Reads && !reads || !m.may(f.needs) {
			continue
		}
		m.steps = 0
		m.match(f.template, 0, binding{}, func(end int, _ binding) {
			if end > longest && end < len(words) && (!f.Gerund || r.gerunds[words[end].text] != "") {
				longest, by = end, f
			}
		})
	}
	words = words[longest:]
	if by.Gerund {
		words = slices.Clone(words)
		words[0].text = r.gerunds[words[0].text]
	}
	return words, by.Ask
}

// aside reports whether a clause is only a courtesy.
func (q *request) aside(words []word) bool {
	hit := false
	m := q.matcher(words, false)
	for _, t := range q.asides {
		m.steps = 0
		m.match(t, 0, binding{}, func(end int, _ binding) { hit = hit || end == len(words) })
	}
	return hit
}

// look reads a clause that asks to see something.
func (q *request) look(i, j int) (c clause, ok bool) {
	words := q.soften(i, j)
	for len(words) > 1 && !q.lookWords[words[0].text] && !q.askWords[words[0].text] && q.fillers[words[0].text] {
		words = words[1:]
	}
	if len(words) == 0 || !q.lookWords[words[0].text] && !q.askWords[words[0].text] || q.asksAbout(words) || slices.ContainsFunc(words, func(w word) bool { return w.mark }) {
		return c, false
	}
	inner := *q.reading
	inner.words, inner.before = words, q.words[:i]
	intents, ok := inner.clauseReads(words)
	if !ok || slices.ContainsFunc(intents, func(in Intent) bool { return in.Kind == Say }) {
		return c, false
	}
	return clause{intents: intents, exact: intents[0].Exact}, true
}

// reason reports whether a clause only says why: a statement that asks for nothing and takes nothing back.
func (q *request) reason(words []word) bool {
	if len(words) < 2 || len(words) > 16 {
		return false
	}
	states := (q.subjects[words[0].text] || len(q.names.mentioned(words[:1])) > 0) && len(words) > 2 && words[len(words)-1].text != "not"
	for _, w := range words {
		if w.mark || q.strong[w.text] || q.retracts[w.text] || strings.ContainsAny(w.text, "<>=/\\|$") {
			return false
		}
		states = states || q.statements[w.text]
	}
	return states && !q.askWords[words[0].text] && !q.verbs[words[0].text] && !q.holds[words[0].text] && words[0].text != "not"
}
