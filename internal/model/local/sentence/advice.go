package sentence

import (
	"cmp"
	"slices"
	"strings"
)

// asksChange reports whether the message is about a change, though not one that could be taken as such: a change inside
// a longer message, a verb of change at its beginning, or a question about one.
func (r *reading) asksChange() bool {
	var plain []word
	for _, w := range r.words {
		if !w.mark {
			plain = append(plain, w)
		}
	}
	if r.contains(plain) {
		return true
	}
	polite := 0
	for polite < len(plain) && r.fillers[plain[polite].text] {
		polite++
	}
	if rest := plain[polite:]; len(rest) > 0 && r.isChangeVerb(rest[0].text) {
		return true
	}
	return r.asksAbout(plain) && slices.ContainsFunc(plain, func(w word) bool { return r.isChangeVerb(w.text) })
}

// contains reports whether a change stands anywhere in the words.
func (r *reading) contains(words []word) bool {
	m := r.matcher(words, false)
	for _, p := range r.changes {
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
					_, hit = m.value(cmp.Or(p.Key, b.key), b)
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
	if r.changeVerbs[w] {
		return true
	}
	for v := range r.changeVerbs {
		if len(v) > 4 && near(v, w) {
			return true
		}
	}
	return false
}

func (r *reading) asksAbout(words []word) bool {
	text := " " + join(words) + " "
	return slices.ContainsFunc(r.changeAsks, func(p string) bool { return strings.Contains(text, " "+p+" ") })
}

// startsAsQuestion tells "why did photos stop" from "stop photos, and why is it on".
func (r *reading) startsAsQuestion() bool {
	var plain []word
	for _, w := range r.words {
		if !w.mark {
			plain = append(plain, w)
		}
	}
	if r.asksAbout(plain) {
		return false
	}
	for _, w := range plain {
		if !r.fillers[w.text] {
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
	var plain []word
	for _, w := range r.words {
		if !w.mark {
			plain = append(plain, w)
		}
	}
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
