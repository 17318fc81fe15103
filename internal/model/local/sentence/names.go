package sentence

import (
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Names is what exists on the node now and may be named by this caller.
type Names struct {
	Apps     []string // full names: "sample", "docker:immich/server"; empty means closed to the caller or none
	Settings []string // keys that can be set; empty means closed to the caller
	Peers    []string // names that the owner gave to other nodes; empty means closed to the caller or none
	Roots    []string // folders that are open, as full paths; empty means closed to the caller or none
}

const (
	maxNameWords  = 4
	maxValueWords = 6
	maxValueChars = 200
)

// names is Names prepared for one message.
type names struct {
	Names
	lang  *Language
	forms map[string][]string // what a person may call an app, in lower case, to full names
	peers map[string]string   // a peer's name in lower case to the name
}

func (l *Language) prepare(n Names) *names {
	out := &names{Names: n, lang: l, forms: map[string][]string{}, peers: map[string]string{}}
	for _, p := range n.Peers {
		out.peers[strings.TrimSuffix(strings.ToLower(p), "'s")] = p
	}
	for _, id := range n.Apps {
		for _, f := range Forms(id) {
			if !slices.Contains(out.forms[f], id) {
				out.forms[f] = append(out.forms[f], id)
			}
		}
	}
	for f, ids := range out.forms {
		out.forms[f] = Narrow(ids)
	}
	return out
}

// Forms lists the full name and the short ones: without the runtime, of a service without its project, without a unit's
// suffix, and each as separate words.
func Forms(id string) []string {
	id = strings.ToLower(id)
	out := []string{id}
	if _, bare, ok := strings.Cut(id, ":"); ok {
		out = append(out, bare, bare[strings.LastIndex(bare, "/")+1:], strings.TrimSuffix(bare, ".service"))
	}
	for _, f := range out {
		spaced := strings.Join(strings.FieldsFunc(f, func(r rune) bool { return strings.ContainsRune("-_./:", r) }), " ")
		out = append(out, spaced)
	}
	return slices.DeleteFunc(out, func(s string) bool { return s == "" })
}

// Narrow leaves out of the ids that a name fits a service whose project fits too: jellyfin is the project, not the
// service jellyfin in it.
func Narrow(ids []string) []string {
	return slices.DeleteFunc(slices.Clone(ids), func(id string) bool {
		i := strings.LastIndex(id, "/")
		return i > 0 && slices.Contains(ids, id[:i])
	})
}

func (n *names) isPeer(word string) bool { return n.peers[word] != "" }

// named reports whether words name something that exists, or a path.
func (n *names) named(words []word) bool {
	phrase := join(words)
	return len(n.forms[phrase]) > 0 || n.isPeer(phrase) || len(words) == 1 && isPath(phrase)
}

func isPath(text string) bool { return len(text) > 1 && text[0] == '/' }

// listed turns the commas between names into "and": "photos, music and wiki".
func (n *names) listed(words []word) []word {
	var out []word
	for i, w := range words {
		if w.mark && w.text == "," && n.endsWithName(words[:i]) && n.beginsWithName(words[i+1:]) {
			w = word{"and", w.from, w.to, false}
		}
		if w.text == "and" && len(out) > 0 && out[len(out)-1].text == "and" {
			continue
		}
		out = append(out, w)
	}
	return out
}

func (n *names) endsWithName(words []word) bool {
	for size := 1; size <= min(maxNameWords, len(words)); size++ {
		if n.named(words[len(words)-size:]) {
			return true
		}
	}
	return false
}

func (n *names) beginsWithName(words []word) bool {
	for len(words) > 0 && (words[0].text == "and" || n.lang.articles[words[0].text]) {
		words = words[1:]
	}
	for size := 1; size <= min(maxNameWords, len(words)); size++ {
		if n.named(words[:size]) {
			return true
		}
	}
	return false
}

// fit is what was named in the place of an app.
type fit struct {
	ids     []string // the apps that fit; several are a question back
	word    string   // as it was written
	pronoun bool     // "it": the app named before
	many    bool     // "them": the apps named before
	size    int      // words of the name
	machine bool     // the word also means the machine or a part of it
	guess   bool     // nothing is known of what exists, so the word stands for itself
}

// app finds what a phrase names. ok is false where it cannot be an app at all. inLog says that a log is asked for, which
// the machine itself has none of, so that a word such as server is an app's name where one has it.
func (n *names) app(phrase, raw string, fuzzy, inLog bool) (f fit, ok bool) {
	f.word = raw
	if f.pronoun, f.many = n.lang.pronouns[phrase] || n.lang.plurals[phrase], n.lang.plurals[phrase]; f.pronoun {
		return f, true
	}
	if f.machine = n.lang.notApps[phrase]; f.machine && (!inLog || len(n.forms[phrase]) == 0) {
		return f, false
	}
	for _, id := range n.Apps {
		if id == raw {
			f.ids = []string{id}
			return f, true
		}
	}
	f.ids = n.forms[phrase]
	if full := slices.DeleteFunc(slices.Clone(f.ids), func(id string) bool { return strings.ToLower(id) != phrase }); len(full) > 0 {
		f.ids = full
	}
	if len(f.ids) == 0 && fuzzy {
		f.ids = n.nearApps(phrase)
	}
	switch {
	case len(f.ids) > 0:
		return f, true
	case strings.Contains(phrase, " "):
		return f, false
	case len(n.Apps) == 0 && looksLikeApp(phrase):
		f.ids, f.guess = []string{phrase}, true
		return f, true
	}
	return f, len(n.Apps) > 0 && (n.lang.real[phrase] || !n.lang.known[phrase])
}

// nearApps lists the apps whose name is one slip away: for reads and for "did you mean" only.
func (n *names) nearApps(phrase string) []string {
	var out []string
	for f, ids := range n.forms {
		if !near(f, phrase) {
			continue
		}
		for _, id := range ids {
			if !slices.Contains(out, id) {
				out = append(out, id)
			}
		}
	}
	slices.Sort(out)
	return out
}

// mentioned lists the apps that the words name, in order, each once. A short name that is also an everyday word of the
// templates does not count.
func (n *names) mentioned(words []word) []string {
	var out []string
	for i := 0; i < len(words); {
		step := 1
		for size := min(maxNameWords, len(words)-i); size > 0; size-- {
			phrase := join(words[i : i+size])
			ids := n.forms[phrase]
			full := slices.ContainsFunc(ids, func(id string) bool { return strings.ToLower(id) == phrase })
			if len(ids) == 0 || n.lang.notApps[phrase] || n.lang.vocabulary[phrase] && !full {
				continue
			}
			if full {
				ids = slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return strings.ToLower(id) != phrase })
			}
			for _, id := range ids {
				if !slices.Contains(out, id) {
					out = append(out, id)
				}
			}
			step = size
			break
		}
		i += step
	}
	return out
}

func looksLikeApp(s string) bool {
	for i, r := range s {
		alnum := r >= 'a' && r <= 'z' || r >= '0' && r <= '9'
		if !alnum && (i == 0 || !strings.ContainsRune("._:/-", r)) {
			return false
		}
	}
	return s != "" && len(s) <= 100
}

// slot fills a slot from word i on, in every way it can.
func (m *matcher) slot(name string, i int, b binding, k func(int, binding)) {
	switch name {
	case "app":
		m.appSlot(i, b, k)
	case "key":
		for size := 1; size <= maxNameWords; size++ {
			if w := m.span(i, size); w != nil {
				if key := m.names.lang.key(join(w), m.names.Settings); key != "" {
					b.key = key
					k(i+size, b)
				}
			}
		}
	case "value":
		m.valueSlot(i, b, k)
	case "n":
		if w := m.span(i, 1); w != nil {
			if n := m.names.lang.number(w[0].text); n > 0 {
				b.n = n
				k(i+1, b)
			}
		}
	case "path":
		if w := m.span(i, 1); w != nil && isPath(w[0].text) {
			m.list(name, i+1, b.with(pathOf, m.raw[w[0].from:w[0].to]), k)
		}
	case "folder":
		if w := m.span(i, 1); w != nil {
			if path, known := m.names.folder(w[0].text); path != "" {
				b.guess = !known
				m.list(name, i+1, b.with(pathOf, path), k)
			}
		}
	case "peer":
		m.peerSlot(i, b, k)
	case "name":
		if w := m.span(i, 1); w != nil {
			b.name = m.raw[w[0].from:w[0].to]
			k(i+1, b)
		}
	}
}

// list goes on after a value of a slot that may hold several: with what follows, and with the next value after an "and".
func (m *matcher) list(slot string, end int, b binding, k func(int, binding)) {
	k(end, b)
	if next := m.and(end); next > 0 {
		m.slot(slot, next, b, k)
	}
}

// with adds a path or a name to those that were bound.
func (b binding) with(field func(*binding) *string, value string) binding {
	if *field(&b) == "" {
		*field(&b) = value
	} else {
		b.more = append(slices.Clip(b.more), value)
	}
	return b
}

func pathOf(b *binding) *string { return &b.path }
func nameOf(b *binding) *string { return &b.name }

// and gives the word after an "and" and an article, or 0.
func (m *matcher) and(i int) int {
	if i >= len(m.words) || m.words[i].mark || !m.names.lang.ands[m.words[i].text] {
		return 0
	}
	for i++; i < len(m.words) && m.names.lang.articles[m.words[i].text]; i++ {
	}
	return i
}

// folder is the path that a folder's name stands for: a root of that name, or the word as a path; "" for no name.
func (n *names) folder(word string) (path string, known bool) {
	for _, root := range n.Roots {
		if strings.EqualFold(root[strings.LastIndex(root, "/")+1:], word) {
			return root, true
		}
	}
	if n.lang.fillers[word] || n.lang.notApps[word] || n.lang.notFolders[word] || !looksLikeApp(word) {
		return "", false
	}
	return "/" + word, false
}

// peerSlot takes a peer's name. A word that is nothing else that is known may be one too.
func (m *matcher) peerSlot(i int, b binding, k func(int, binding)) {
	for size := 1; size <= maxNameWords; size++ {
		w := m.span(i, size)
		if w == nil {
			return
		}
		phrase := join(w)
		name := m.names.peers[phrase]
		guess := name == "" && size == 1 && len(phrase) > 1 && looksLikeApp(phrase) && !m.names.lang.known[phrase] && len(m.names.forms[phrase]) == 0
		if guess {
			name = strings.TrimSuffix(m.raw[w[0].from:w[0].to], "'s")
		}
		if name != "" {
			c := b.with(nameOf, name)
			c.peer = !guess
			m.list("peer", i+size, c, k)
		}
	}
}

// appSlot takes an app's name, or several.
func (m *matcher) appSlot(i int, b binding, k func(int, binding)) {
	for size := 1; size <= maxNameWords; size++ {
		w := m.span(i, size)
		if w == nil {
			return
		}
		f, ok := m.names.app(join(w), m.raw[w[0].from:w[size-1].to], m.fuzzy, m.inLog)
		if !ok || b.hasApp && f.guess && m.names.lang.known[join(w)] {
			continue
		}
		next := b
		if f.size = size; b.hasApp {
			next.also = append(slices.Clip(b.also), f)
		} else {
			next.app, next.hasApp = f, true
		}
		k(i+size, next)
		if j := m.and(i + size); j > 0 && !f.pronoun && len(f.ids) > 0 {
			m.appSlot(j, next, k)
		}
	}
}

// valueSlot takes some plain words, or anything between two double quotes that belong to the value.
func (m *matcher) valueSlot(i int, b binding, k func(int, binding)) {
	if i < len(m.words) && strings.ContainsAny(m.words[i].text, "\"“”") && m.words[i].mark {
		for j := i + 1; j < len(m.words); j++ {
			if m.words[j].mark && strings.ContainsAny(m.words[j].text, "\"“”") {
				if j > i+1 {
					b.from, b.to = i+1, j
					k(j+1, b)
				}
				return
			}
		}
		return
	}
	for size := 1; size <= maxValueWords; size++ {
		w := m.span(i, size)
		if w == nil || m.names.lang.valueStops[w[size-1].text] || m.names.lang.valueLeads[w[0].text] {
			return
		}
		b.from, b.to = i, i+size
		k(i+size, b)
	}
}

// number reads a whole number in digits or as a word; 0 is none.
func (l *Language) number(text string) int {
	if n, err := strconv.Atoi(strings.TrimSuffix(text, "%")); err == nil && n > 0 {
		return n
	}
	return l.numbers[text]
}

// value reads the value of a setting out of the words, in its key's type, as a JSON-ready Go value. Where the key itself
// is not named, a value that has names is one of these: "it" is Italian only where a language is spoken of.
func (m *matcher) value(key string, named bool, b binding) (any, bool) {
	text := m.raw[m.words[b.from].from:m.words[b.to-1].to]
	if utf8.RuneCountInString(text) > maxValueChars || !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return nil, false
	}
	s := m.names.lang.keyed(key)
	if !named {
		s.pattern = nil
	}
	return s.read(text)
}

// read turns a value as written into the key's type.
func (s setting) read(text string) (any, bool) {
	low := strings.ToLower(text)
	switch s.Type {
	case "integer":
		n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(low, "percent"), "%"), " "), 10, 64)
		return n, err == nil
	case "enum":
		if v, ok := s.Values[low]; ok {
			return v, true
		}
		if s.pattern != nil && s.pattern.MatchString(text) {
			return text, true
		}
		return nil, false
	}
	return text, true
}
