package sentence

import (
	"cmp"
	"slices"
	"strings"
)

// asksChange reports whether the message is about a change, though not one that could be taken as such: a change inside
// a longer message, a verb of change at its beginning, a question about one, or a wish that nothing be changed.
func (r *reading) asksChange() bool {
	words := plain(r.words)
	if r.asksAbout(words) && (slices.ContainsFunc(words, func(w word) bool { return r.strong[w.text] }) || r.contains(words)) {
		return true
	}
	if r.startsAsQuestion(words) {
		return false
	}
	quoted := quotes(r.words)
	for _, p := range parts(r.words, func(w word) bool { return w.mark || r.joints[w.text] }) {
		first := r.words[p.from:p.to]
		if quoted[p.from] {
			continue
		}
		for len(first) > 1 && !r.articles[first[0].text] && !r.lookWords[first[0].text] && (r.fillers[first[0].text] || first[0].text == "do" || first[0].text == "you") {
			first = first[1:]
		}
		if r.isChangeVerb(first[0].text) && !r.lookWords[first[0].text] || r.holds[first[0].text] {
			return true
		}
	}
	return r.contains(words)
}

// contains reports whether a change stands anywhere in the words.
func (r *reading) contains(words []word) bool {
	m := r.matcher(words, false)
	for _, at := range r.changes.of(words) {
		p := r.changes.all[at]
		if p.Framed || p.Known {
			continue
		}
		for start := range words {
			hit := false
			m.all(&p, start, func(end int, b binding) {
				switch {
				case hit:
				case p.Tool != "settings_set":
					hit = len(b.app.ids) > 0 || b.app.pronoun
				case p.Value != "":
					hit = true
				case b.to > 0:
					_, hit = m.value(cmp.Or(p.Key, b.key), p.Key == "", b)
				}
			})
			if hit {
				return true
			}
		}
	}
	return false
}

func (r *reading) isChangeVerb(w string) bool {
	return r.verbs[w] || !r.known[w] && r.verbs[r.meant(w, true)]
}

func (r *reading) asksAbout(words []word) bool {
	text := " " + join(words) + " "
	return slices.ContainsFunc(r.changeAsks, func(p string) bool { return strings.Contains(text, " "+p+" ") })
}

// startsAsQuestion tells "why did photos stop" from "stop photos, and why is it on".
func (r *reading) startsAsQuestion(words []word) bool {
	for i, w := range words {
		switch {
		case r.fillers[w.text]:
		case w.text == "do": // "do we share", but "do a restart"
			return i+1 < len(words) && r.subjects[words[i+1].text]
		default:
			return r.askWords[w.text]
		}
	}
	return false
}

// advise says why nothing was changed and what it would need.
func (r *reading) advise() Intent {
	has := func(text string) bool {
		return slices.ContainsFunc(r.words, func(w word) bool { return w.text == text })
	}
	marks := func(set string) bool {
		return slices.ContainsFunc(r.words, func(w word) bool { return w.mark && strings.Contains(set, w.text) })
	}
	why := "I could not take that as one plain request, so nothing was changed."
	switch {
	case r.said.Mixed:
		why = "Your message came with text of somebody else, so nothing was changed."
	case has("not") || has("never"):
		why = "You said not to, so nothing was changed."
	case marks("\"“”„«»'`‘"):
		why = "That is a quotation, so nothing was changed."
	case marks("?？"):
		why = "That is a question, so nothing was changed."
	case has("and") || has("then") || marks(",;.\n:"):
		why = "That is more than one thing, so nothing was changed."
	}
	return say("%s %s", why, r.need())
}

// need says what a change needs, with an example that would work.
func (r *reading) need() string {
	plain := plain(r.words)
	app := "jellyfin"
	if ids := r.names.mentioned(plain); len(ids) > 0 {
		app = ids[0]
	} else if len(r.names.Apps) > 0 {
		app = r.names.Apps[0]
	}
	verb := "restart"
	for _, w := range plain {
		if w.text == "stop" || w.text == "start" {
			verb = w.text
			break
		}
	}
	return "All I can change is to start, stop or restart an app or to set one of a few settings, and only when the whole " +
		"message asks for one of these and names it, for example: " + verb + " " + Clean(app, 80) + " (or: " + r.settingExample(plain) + ")"
}

func (r *reading) settingExample(words []word) string {
	settable := func(s setting) bool { return len(r.names.Settings) == 0 || slices.Contains(r.names.Settings, s.Key) }
	text := " " + join(words) + " "
	for _, s := range r.settings {
		if settable(s) && slices.ContainsFunc(append(s.Spoken, s.Key), func(p string) bool { return strings.Contains(text, " "+p+" ") }) {
			return s.Example
		}
	}
	if i := slices.IndexFunc(r.settings, settable); i >= 0 {
		return r.settings[i].Example
	}
	return "set node.name to harbour"
}
