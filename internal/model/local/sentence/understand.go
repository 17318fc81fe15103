package sentence

import (
	"fmt"
	"slices"
	"strings"
)

// The kinds of an Intent.
const (
	Call    = "call"    // one tool
	Why     = "why"     // an app's state, then its log
	Find    = "find"    // a file by a part of its name
	Report  = "report"  // several figures at once
	Help    = "help"    // what can be asked
	Say     = "say"     // only Text
	Unknown = "unknown" // no sentence that is known
)

// Intent is what a message asks for, ready to be carried out.
type Intent struct {
	Kind  string
	Tool  string
	Focus string // what of the result is asked for; empty means all
	App   string
	Key   string
	Value any // of a setting: string or int64
	Lines int // zero means none were named
	Path  string
	Name  string // of a peer, a file or a prefix
	Text  string // of Say
	Exact bool   // the whole message is a sentence of the files, to the letter
}

// Said is one message of the caller: their own words, and whether anything else stood in the message.
type Said struct {
	Words string
	Mixed bool
}

// Understand reads the last of the messages. Earlier ones only tell what "it" is.
func (l *Language) Understand(messages []Said, known Names) Intent {
	if len(messages) == 0 {
		return Intent{Kind: Unknown}
	}
	last := messages[len(messages)-1]
	n := l.prepare(known)
	words := split(last.Words, l.contractions)
	if len(words) > maxWords {
		return Intent{Kind: Unknown}
	}
	r := reading{Language: l, names: n, said: last, words: words, earlier: messages[:len(messages)-1]}
	if in, ok := r.change(); ok {
		return in
	}
	if in, ok := r.sentence(false); ok {
		return in
	}
	asked := r.asksChange()
	if asked && !r.startsAsQuestion() {
		return r.advise()
	}
	if in, ok := r.sentence(true); ok {
		return in
	}
	if in, ok := r.hinted(); ok {
		return in
	}
	if asked {
		return r.advise()
	}
	return Intent{Kind: Unknown}
}

// reading is one message on its way to an intent.
type reading struct {
	*Language
	names   *names
	said    Said
	words   []word
	earlier []Said
}

func (r *reading) matcher(words []word, fuzzy bool) *matcher {
	return &matcher{words: words, raw: r.said.Words, names: r.names, fuzzy: fuzzy}
}

// change finds the one change that the whole message asks for. Where the words fit but no single app or value does, the
// intent is a question back.
func (r *reading) change() (Intent, bool) {
	if r.said.Mixed {
		return Intent{}, false
	}
	strict := whole(r.words, r.polite)
	m := r.matcher(strict, false)
	var found []Intent
	var unfit []fit
	for _, p := range r.changes {
		m.all(&p, 0, func(end int, b binding) {
			if end != len(strict) {
				return
			}
			in := Intent{Kind: Call, Tool: p.Tool, Exact: true}
			switch {
			case p.Tool == "settings_set":
				if !r.setting(m, p, b, &in) {
					return
				}
			case !b.hasApp:
				return
			default:
				f := r.resolve(b.app)
				if len(f.ids) != 1 {
					unfit = append(unfit, f)
					return
				}
				in.App = f.ids[0]
			}
			if !slices.Contains(found, in) {
				found = append(found, in)
			}
		})
	}
	switch {
	case len(found) == 1:
		return found[0], true
	case len(found) > 1:
		return say("That can be read in more than one way, so I change nothing. %s", r.need()), true
	case len(unfit) > 0:
		return r.which(unfit[len(unfit)-1], true), true
	}
	return Intent{}, false
}

// setting fills key and value of a settings_set.
func (r *reading) setting(m *matcher, p phrase, b binding, in *Intent) bool {
	in.Key = b.key
	if p.Key != "" {
		in.Key = p.Key
	}
	if in.Value = p.Value; p.Value == "" {
		if b.to == 0 {
			return false
		}
		v, ok := m.value(in.Key, b)
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

// resolve finds which app a pronoun stands for.
func (r *reading) resolve(f fit) fit {
	if !f.pronoun {
		return f
	}
	for i := len(r.earlier) - 1; i >= 0; i-- {
		if ids := r.appsIn(r.earlier[i]); len(ids) > 0 {
			f.ids = ids
			return f
		}
	}
	if len(r.names.Apps) == 1 {
		f.ids = r.names.Apps
	}
	return f
}

// appsIn lists the apps that an earlier message of the caller named.
func (r *reading) appsIn(s Said) []string {
	words := split(s.Words, r.contractions)
	if len(words) > maxWords {
		return nil
	}
	if len(r.names.Apps) > 0 {
		return r.names.mentioned(slices.DeleteFunc(words, func(w word) bool { return w.mark }))
	}
	earlier := reading{Language: r.Language, names: r.names, said: s, words: words}
	if in, ok := earlier.change(); ok && in.App != "" {
		return []string{in.App}
	}
	if in, ok := earlier.sentence(false); ok && in.App != "" {
		return []string{in.App}
	}
	return nil
}

// sentence finds the read that the whole message asks for, fillers aside.
func (r *reading) sentence(fuzzy bool) (Intent, bool) {
	words := loose(r.words, r.fillers)
	if len(words) == 0 {
		if len(r.words) > 0 && join(r.words) == "?" {
			return Intent{Kind: Help, Exact: true}, true
		}
		return r.onlyFillers()
	}
	m := r.matcher(words, fuzzy)
	best := -1
	var chosen phrase
	var bound binding
	for _, p := range r.reads {
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
		return Intent{}, false
	}
	return r.read(chosen, bound, !fuzzy), true
}

// onlyFillers answers "hello", "thanks" and the like.
func (r *reading) onlyFillers() (Intent, bool) {
	for _, w := range r.words {
		switch w.text {
		case "hello", "hi", "hey":
			return reply("Hello. Ask me about this node, for example: how full is the disk? Or ask: what can you do?"), true
		case "thanks", "thank":
			return reply("You are welcome."), true
		case "ok", "okay":
			return reply("Words in the chat decide nothing. Where something waits for a decision, its own dialog asks for it."), true
		}
	}
	return Intent{}, false
}

// rank prefers a sentence that names an app that exists, then one that needs none, then one whose app is a guess; among
// those the one with more words of its own.
func rank(p phrase, b binding) int {
	level := 2
	switch {
	case b.hasApp && (b.app.guess || b.app.machine):
		level = 1
	case b.hasApp && len(b.app.ids) == 0 && !b.app.pronoun:
		level = 0
	case b.hasApp && !b.app.pronoun:
		level = 3
	}
	return level*100 + b.words
}

func (r *reading) read(p phrase, b binding, exact bool) Intent {
	in := Intent{Exact: exact, Kind: p.Kind, Tool: p.Tool, Focus: p.Focus, Key: p.Key, Lines: max(p.Lines, b.n), Path: b.path, Name: b.name}
	if b.key != "" {
		in.Key = b.key
	}
	switch in.Kind {
	case "":
		in.Kind = Call
	case "reply":
		return reply(p.Text)
	}
	if p.Implied {
		b.app, b.hasApp = fit{pronoun: true}, true
	}
	if !b.hasApp {
		return in
	}
	f := r.resolve(b.app)
	if len(f.ids) == 0 && !f.pronoun {
		f.ids, in.Exact = r.names.nearApps(strings.ToLower(f.word)), false
	}
	if len(f.ids) != 1 {
		return r.which(f, false)
	}
	in.App = f.ids[0]
	return in
}

// which asks back for the app.
func (r *reading) which(f fit, change bool) Intent {
	word := Clean(f.word, 60)
	head, example := "", ""
	switch {
	case len(f.ids) > 1:
		head = fmt.Sprintf("Which one do you mean: %s?", Listed(f.ids))
		example = f.ids[0]
	case f.pronoun && len(r.names.Apps) == 0:
		head = "I do not know which app you mean. Please name it."
	case f.pronoun:
		head = fmt.Sprintf("I do not know which app you mean. There are: %s.", Listed(r.names.Apps))
		example = r.names.Apps[0]
	default:
		head = fmt.Sprintf("There is no app called %q. There are: %s.", word, Listed(r.names.Apps))
		if close := r.names.nearApps(strings.ToLower(f.word)); len(close) > 0 {
			head = fmt.Sprintf("There is no app called %q. Did you mean %s?", word, Listed(close))
			example = close[0]
		}
	}
	if change {
		head += " Nothing was changed."
	}
	if change && example != "" {
		head += " For example: restart " + example
	}
	return say("%s", head)
}

// hinted looks for the words of a read in any order.
func (r *reading) hinted() (Intent, bool) {
	words := loose(r.words, r.fillers)
	if len(words) > 20 {
		return Intent{}, false
	}
	apps := r.names.mentioned(words)
	var in Intent
	for _, h := range r.hints {
		if h.App && len(apps) != 1 || in.Tool != "" && (h.Tool != in.Tool || in.Focus == "" || h.Focus == "") || !h.fits(words) {
			continue
		}
		if in.Tool != "" {
			if in.Tool == "system_info" { // "how hot is it and how much memory is free"
				in.Focus += "," + h.Focus
			}
			continue
		}
		in = Intent{Kind: h.Kind, Tool: h.Tool, Focus: h.Focus, Key: h.Key, Lines: h.Lines}
		if in.Kind == "" {
			in.Kind = Call
		}
		if h.App {
			in.App = apps[0]
		}
	}
	return in, in.Tool != ""
}

func (h hint) fits(words []word) bool {
	for _, group := range h.groups {
		if !slices.ContainsFunc(words, func(w word) bool {
			return slices.ContainsFunc(group, func(g string) bool { return g == w.text || len(g) > 4 && near(g, w.text) })
		}) {
			return false
		}
	}
	return true
}

func say(format string, args ...any) Intent {
	return Intent{Kind: Say, Text: fmt.Sprintf(format, args...)}
}

// reply is a fixed answer that is as good as any: it may come before another backend's.
func reply(text string) Intent { return Intent{Kind: Say, Text: text, Exact: true} }

// Listed writes names for an answer, the first few of many.
func Listed(items []string) string {
	const shown = 12
	out := make([]string, 0, shown+1)
	for i, s := range items {
		if i == shown {
			out = append(out, fmt.Sprintf("and %d more", len(items)-shown))
			break
		}
		out = append(out, Clean(s, 80))
	}
	return strings.Join(out, ", ")
}
