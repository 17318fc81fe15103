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

// maxIntents bounds what one message can ask for.
const maxIntents = 6

// Understand reads the last of the messages, and gives at least one intent. Earlier ones only tell what "it" is. Every
// change among the intents is named by the message itself, and is to be confirmed by itself.
func (l *Language) Understand(messages []Said, known Names) []Intent {
	if len(messages) == 0 {
		return []Intent{{Kind: Unknown}}
	}
	last := messages[len(messages)-1]
	n := l.prepare(known)
	words := n.listed(split(last.Words, l.contractions))
	if len(words) > maxWords {
		return []Intent{{Kind: Unknown}}
	}
	r := reading{Language: l, names: n, said: last, words: words, earlier: messages[:len(messages)-1]}
	if out, ok := r.requested(); ok {
		return out
	}
	if in, ok := r.sentence(words, false); ok {
		return in
	}
	if r.asksChange() {
		return []Intent{r.advise()}
	}
	if out, ok := r.wanted(); ok {
		return out
	}
	return []Intent{{Kind: Unknown}}
}

// reading is one message on its way to its intents.
type reading struct {
	*Language
	names   *names
	said    Said
	words   []word
	before  []word // words of the message before a clause of it
	earlier []Said
}

func (r *reading) matcher(words []word, fuzzy bool) *matcher {
	return &matcher{words: words, raw: r.said.Words, names: r.names, fuzzy: fuzzy}
}

// resolve finds which apps a pronoun stands for: named earlier in the message, or in an earlier one.
func (r *reading) resolve(f fit, before []word) fit {
	if !f.pronoun {
		return f
	}
	if ids := r.names.mentioned(plain(before)); len(ids) > 0 {
		f.ids = ids
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
		return r.names.mentioned(plain(words))
	}
	earlier := reading{Language: r.Language, names: r.names, said: s, words: words}
	out, ok := earlier.requested()
	if !ok {
		out, _ = earlier.sentence(words, false)
	}
	var ids []string
	for _, in := range out {
		if in.App != "" && !slices.Contains(ids, in.App) {
			ids = append(ids, in.App)
		}
	}
	return ids
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
