package sentence

import (
	"slices"
	"strings"
)

// wanted finds the reads that a message asks for: clause by clause, or else as a whole.
func (r *reading) wanted() ([]Intent, bool) {
	var out []Intent
	exact := true
	clauses := parts(r.words, func(w word) bool { return w.mark || r.joints[w.text] && w.text != "and" && w.text != "then" })
	for i, c := range clauses {
		part := *r
		part.before = r.words[:c.from]
		intents, ok := part.clauseReads(r.words[c.from:c.to])
		if !ok {
			exact = false
			continue
		}
		if _, silent := r.onlyFillers(r.words[c.from:c.to]); silent && len(clauses) > 1 && i < len(clauses)-1 {
			continue
		}
		out = append(out, intents...)
	}
	if !slices.ContainsFunc(out, wants) {
		if whole, ok := r.hinted(r.words); ok && (len(out) == 0 || wants(whole[0])) {
			return whole, true
		}
	}
	if len(out) == 0 {
		return r.mentions(r.words)
	}
	for i := range out {
		if out[i].Tool == "app_logs" && out[i].Lines == 0 { // "the log of photos, 25 lines"
			out[i].Lines = r.features(r.words).lines
		}
	}
	return merged(out, exact), true
}

// part is a piece of the words.
type part struct{ from, to int }

// parts cuts words at those that end a clause.
func parts(words []word, ends func(word) bool) []part {
	var out []part
	from := 0
	for i := 0; i <= len(words); i++ {
		if i == len(words) || ends(words[i]) {
			if i > from {
				out = append(out, part{from, i})
			}
			from = i + 1
		}
	}
	return out
}

// clauseReads finds what a clause asks to see: as a sentence, as two with an "and" between them, or by its words.
func (r *reading) clauseReads(words []word) ([]Intent, bool) {
	if out, ok := r.sentence(words, false); ok {
		return out, true
	}
	right, _ := r.right(words, r.names, false)
	if out, ok := r.sentence(right, true); ok {
		return out, true
	}
	if rest, _ := r.framed(right, true); len(rest) < len(right) { // "could you show"
		if out, ok := r.sentence(rest, true); ok {
			return out, true
		}
	}
	for i, w := range words {
		if i == 0 || w.mark || !r.ands[w.text] && w.text != "then" {
			continue
		}
		left, ok := r.clauseReads(words[:i])
		if !ok || left[0].Kind == Say {
			continue
		}
		after := *r
		after.before = slices.Concat(r.before, words[:i])
		if right, ok := after.clauseReads(words[i+1:]); ok && right[0].Kind != Say {
			return slices.Concat(left, right), true
		}
	}
	return r.hinted(right)
}

// wants reports whether an intent is more than words to say.
func wants(in Intent) bool { return in.Kind != Say }

// merged leaves out what is there twice, and what only asks back or greets beside something better.
func merged(all []Intent, exact bool) []Intent {
	better := slices.ContainsFunc(all, wants)
	var out []Intent
	for _, in := range all {
		in.Exact = in.Exact && exact
		if slices.Contains(out, in) || better && !wants(in) {
			continue
		}
		i := slices.IndexFunc(out, func(o Intent) bool { return o.Tool == "system_info" && in.Tool == o.Tool && o.Kind == in.Kind })
		switch {
		case i >= 0 && (out[i].Focus == "" || in.Focus == ""):
			out[i].Focus = ""
		case i >= 0: // "how hot is it and how much memory is free"
			out[i].Focus = both(out[i].Focus, in.Focus)
		case len(out) < maxIntents:
			out = append(out, in)
		}
	}
	return out
}

func both(a, b string) string {
	all := append(strings.Split(a, ","), strings.Split(b, ",")...)
	slices.Sort(all)
	return strings.Join(slices.Compact(all), ",")
}

// sentence finds the read that all the words ask for, fillers aside.
func (r *reading) sentence(all []word, fuzzy bool) ([]Intent, bool) {
	words := loose(all, r.fillers)
	if len(words) == 0 {
		in, ok := r.onlyFillers(all)
		return []Intent{in}, ok
	}
	m := r.matcher(words, fuzzy)
	best := -1
	var chosen phrase
	var bound binding
	for _, at := range r.reads.of(words) {
		p := r.reads.all[at]
		m.all(&p, 0, func(end int, b binding) {
			if end != len(words) {
				return
			}
			if score := rank(p, b); score > best {
				best, chosen, bound = score, p, b
			}
		})
	}
	if best < 0 {
		return nil, false
	}
	return r.read(chosen, bound, !fuzzy), true
}

// onlyFillers answers "hello", "thanks" and the like.
func (r *reading) onlyFillers(words []word) (Intent, bool) {
	if len(words) > 0 && join(words) == "?" {
		return Intent{Kind: Help, Exact: true}, true
	}
	for _, w := range words {
		switch {
		case !w.mark && !r.fillers[w.text]:
			return Intent{}, false
		case w.text == "hello", w.text == "hi", w.text == "hey":
			return reply("Hello. Ask me about this node, for example: how full is the disk? Or ask: what can you do?"), true
		case w.text == "thanks", w.text == "thank":
			return reply("You are welcome."), true
		case w.text == "ok", w.text == "okay":
			return reply("Words in the chat decide nothing. Where something waits for a decision, its own dialog asks for it."), true
		}
	}
	return Intent{}, false
}

// rank prefers a sentence that names what exists, then one that needs no app, then one whose app or peer is a guess;
// among those the one with more words of its own.
func rank(p phrase, b binding) int {
	level := 3
	switch {
	case b.hasApp && (b.app.guess || b.app.machine):
		level = 1
	case b.hasApp && len(b.app.ids) == 0 && !b.app.pronoun:
		level = 0
	case b.hasApp && !b.app.pronoun, b.peer:
		level = 4
	case b.name != "", b.guess:
		level = 2
	}
	return level*100 + b.words
}

// read writes the intents of one match; several where a list was named.
func (r *reading) read(p phrase, b binding, exact bool) []Intent {
	in := Intent{Exact: exact, Kind: p.Kind, Tool: p.Tool, Focus: p.Focus, Key: p.Key, Lines: max(p.Lines, b.n), Path: b.path, Name: b.name}
	if b.key != "" {
		in.Key = b.key
	}
	switch in.Kind {
	case "":
		in.Kind = Call
	case "reply":
		return []Intent{reply(p.Text)}
	}
	if p.Implied {
		b.app, b.hasApp = fit{pronoun: true}, true
	}
	out := []Intent{}
	for _, f := range b.apps() {
		one := in
		if b.hasApp {
			one = r.about(one, f)
		}
		out = append(out, one)
	}
	for _, more := range b.more {
		one := in
		if b.path != "" {
			one.Path = more
		} else {
			one.Name = more
		}
		out = append(out, one)
	}
	return out
}

// about puts an app into an intent, or asks back for it.
func (r *reading) about(in Intent, named fit) Intent {
	f := r.resolve(named, r.before)
	if len(f.ids) == 0 && !f.pronoun {
		f.ids, in.Exact = r.names.nearApps(strings.ToLower(f.word)), false
	}
	if len(f.ids) != 1 {
		return r.which(f, false)
	}
	in.App = f.ids[0]
	return in
}

// features is what a clause names, for the hints.
type features struct {
	text  string // with a space on both sides of every word
	apps  []string
	peers []string
	paths []string
	lines int
}

func (r *reading) features(words []word) features {
	words = plain(words)
	f := features{text: " " + join(words) + " ", apps: r.names.mentioned(words)}
	for i, w := range words {
		for size := 1; size <= min(maxNameWords, len(words)-i); size++ {
			if p := r.names.peers[join(words[i:i+size])]; p != "" && !slices.Contains(f.peers, p) {
				f.peers = append(f.peers, p)
			}
		}
		if isPath(w.text) {
			f.paths = append(f.paths, r.said.Words[w.from:w.to])
		}
		if n := r.number(w.text); n > 0 && i+1 < len(words) && strings.HasPrefix(words[i+1].text, "line") {
			f.lines = n
		}
	}
	return f
}

// hinted looks for the words of a read in any order. The first hint that fits counts; of the system's figures, all do.
func (r *reading) hinted(words []word) ([]Intent, bool) {
	f := r.features(words)
	var out []Intent
	for _, h := range r.hints {
		if len(out) > 0 && (h.Tool != "system_info" || out[0].Tool != h.Tool || h.Focus == "") || !h.fits(f) {
			continue
		}
		out = append(out, r.hint(h, f)...)
	}
	return merged(out, false), len(out) > 0
}

// hint writes the intents of a hint.
func (r *reading) hint(h hint, f features) []Intent {
	in := Intent{Kind: h.Kind, Tool: h.Tool, Focus: h.Focus, Key: h.Key, Lines: max(h.Lines, f.lines)}
	if in.Kind == "" {
		in.Kind = Call
	}
	var out []Intent
	each := func(names []string, put func(*Intent, string)) []Intent {
		for _, n := range names[:min(len(names), maxIntents)] {
			one := in
			put(&one, n)
			out = append(out, one)
		}
		return out
	}
	switch {
	case h.App:
		return each(f.apps, func(in *Intent, app string) { in.App = app })
	case h.Peer:
		return each(f.peers, func(in *Intent, peer string) { in.Name = peer })
	case h.Path:
		return each(f.paths, func(in *Intent, path string) { in.Path = path })
	case h.Implied:
		return []Intent{r.about(in, fit{pronoun: true})}
	}
	return []Intent{in}
}

func (h hint) fits(f features) bool {
	if h.App && len(f.apps) == 0 || h.Peer && len(f.peers) == 0 || h.Path && len(f.paths) == 0 {
		return false
	}
	has := func(group []string) bool {
		return slices.ContainsFunc(group, func(phrase string) bool { return strings.Contains(f.text, phrase) })
	}
	return !slices.ContainsFunc(h.all, func(g []string) bool { return !has(g) }) && !slices.ContainsFunc(h.none, has)
}

// mentions is the last resort: what a message names is looked at.
func (r *reading) mentions(words []word) ([]Intent, bool) {
	f := r.features(words)
	if len(f.apps) == 1 {
		return []Intent{{Kind: Call, Tool: "app_list", App: f.apps[0]}}, true
	}
	return nil, false
}
