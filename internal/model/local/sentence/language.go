// Package sentence matches a person's plain sentences against templates in a file of their language. It knows which tool
// a sentence means and nothing of what a tool does. Reads are matched tolerantly; a change only where the whole message
// is one sentence of the file, to the letter, and exactly one app or setting fits (B1).
package sentence

import (
	"embed"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
)

// sentences holds one file a language. The files are read together, so that a further one extends what is understood.
//
//go:embed sentences/*.toml
var sentences embed.FS

// file is a sentence file as it is written.
type file struct {
	Words        map[string][]string `toml:"words"`       // sets of words, by their names in Language
	ChangeAsks   []string            `toml:"change_asks"` // phrases that ask about a change, or against one
	Soft         []string            `toml:"soft"`        // phrases that mean nothing in a request
	Asides       []string            `toml:"asides"`      // what may stand beside a request as a clause of its own
	Frames       []frameFile         `toml:"frame"`
	Contractions map[string]string   `toml:"contractions"`
	Gerunds      map[string]string   `toml:"gerunds"`
	Numbers      map[string]int      `toml:"numbers"`
	Macros       map[string]string   `toml:"macros"`
	Settings     []setting           `toml:"setting"`
	Phrases      []phraseFile        `toml:"phrase"`
	Hints        []hintFile          `toml:"hint"`
}

// frameFile is how a request begins: "can you", "I would like you to".
type frameFile struct {
	Ask    bool     `toml:"ask"`    // it is a question, so the request may end as one
	Gerund bool     `toml:"gerund"` // "would you mind": its verb is stopping, not stop
	Reads  bool     `toml:"reads"`  // it asks to know something, never for a change
	Say    []string `toml:"say"`
}

type frame struct {
	frameFile
	template template
	needs    []map[string]bool
}

// setting is a key with what people call it and the type of its value.
type setting struct {
	Key     string            `toml:"key"`
	Type    string            `toml:"type"` // string, integer or enum
	Spoken  []string          `toml:"spoken"`
	Values  map[string]string `toml:"values"`
	Pattern string            `toml:"pattern"`
	Example string            `toml:"example"`
	pattern *regexp.Regexp
}

type phraseFile struct {
	Tool  string `toml:"tool"`
	Kind  string `toml:"kind"`
	Focus string `toml:"focus"`
	Key   string `toml:"key"`
	Value string `toml:"value"`
	Lines int    `toml:"lines"`
	Text  string `toml:"text"`
	// Implied is for a sentence about an app that names none: it means the app named before, like "it".
	Implied bool `toml:"implied"`
	// Framed is for a change that is one only behind "I want" and the like; alone it would be a statement.
	Framed bool `toml:"framed"`
	// Known is for a change that is one only of an app that exists; of another word it would be anything.
	Known bool     `toml:"known"`
	Say   []string `toml:"say"`
}

// hintFile is a read that is meant where some words stand in any order. A group is a|b|c: one of its words or phrases,
// where @name stands for the macro of that name.
type hintFile struct {
	Tool    string   `toml:"tool"`
	Kind    string   `toml:"kind"`
	Focus   string   `toml:"focus"`
	Key     string   `toml:"key"`
	Lines   int      `toml:"lines"`
	App     bool     `toml:"app"`     // an app that exists must be named
	Peer    bool     `toml:"peer"`    // a peer that is known must be named
	Path    bool     `toml:"path"`    // a path must be named
	Implied bool     `toml:"implied"` // the app named before is meant
	All     []string `toml:"all"`     // one of each group must be there
	None    []string `toml:"none"`    // none of these groups may be there
}

// phrase is one compiled sentence.
type phrase struct {
	phraseFile
	source   string
	template template
	needs    []map[string]bool
}

type hint struct {
	hintFile
	all, none [][]string // phrases, padded with a space on both sides
}

// Language is all that is understood. It is immutable after Load.
type Language struct {
	fillers    map[string]bool // words that a question may hold or not
	pronouns   map[string]bool // phrases for the app named before
	plurals    map[string]bool // phrases for the apps named before
	articles   map[string]bool
	ands       map[string]bool // words between the last two names of a list
	joints     map[string]bool // words between two clauses
	openers    map[string]bool // words before a request
	notApps    map[string]bool // words that never name an app
	notFolders map[string]bool // words that never name a folder
	valueStops map[string]bool // words that no unquoted value holds
	valueLeads map[string]bool // words that no unquoted value begins with
	verbs      map[string]bool // words that ask for a change
	strong     map[string]bool // the verbs that stand in no reason for a request
	askWords   map[string]bool // first words of a question
	lookWords  map[string]bool // first words of a request to show something
	subjects   map[string]bool // first words of a statement
	statements map[string]bool // words that a statement holds
	retracts   map[string]bool // words that stand in no reason for a request: it may be none
	holds      map[string]bool // first words of a request to change nothing
	real       map[string]bool // words that only look like slips of others

	known      map[string]bool // words that are right as they are
	vocabulary map[string]bool // the words of the sentences
	words      []string        // vocabulary, sorted

	changeAsks   []string
	soft         [][]string
	asides       []template
	frames       []frame
	contractions map[string]string
	gerunds      map[string]string
	numbers      map[string]int
	settings     []setting
	spoken       map[string]string // what people call a setting, to its key
	changes      index
	reads        index
	hints        []hint
}

func newLanguage() *Language {
	l := &Language{contractions: map[string]string{}, gerunds: map[string]string{}, numbers: map[string]int{}, spoken: map[string]string{},
		known: map[string]bool{}, vocabulary: map[string]bool{}, changes: index{by: map[string][]int{}}, reads: index{by: map[string][]int{}}}
	for _, set := range l.sets() {
		*set = map[string]bool{}
	}
	return l
}

// sets are the sets of words, as the files name them. Words of the set "real" only look like slips of others.
func (l *Language) sets() map[string]*map[string]bool {
	return map[string]*map[string]bool{"fillers": &l.fillers, "pronouns": &l.pronouns, "plurals": &l.plurals, "articles": &l.articles,
		"ands": &l.ands, "joints": &l.joints, "openers": &l.openers, "not_apps": &l.notApps, "not_folders": &l.notFolders,
		"value_stops": &l.valueStops, "value_leads": &l.valueLeads, "verbs": &l.verbs, "strong": &l.strong, "ask_words": &l.askWords, "look_words": &l.lookWords,
		"subjects": &l.subjects, "statements": &l.statements, "retracts": &l.retracts, "holds": &l.holds, "real": &l.real}
}

// Changing names the tools that change something; the match for them is strict.
func Changing(tool string) bool {
	switch tool {
	case "app_start", "app_stop", "app_restart", "settings_set":
		return true
	}
	return false
}

// Load reads all sentence files. An error is a mistake in a file.
func Load() (*Language, error) {
	entries, err := sentences.ReadDir("sentences")
	if err != nil {
		return nil, err
	}
	l := newLanguage()
	for _, e := range entries {
		text, err := sentences.ReadFile("sentences/" + e.Name())
		if err != nil {
			return nil, err
		}
		if err := l.add(string(text)); err != nil {
			return nil, fmt.Errorf("%s: %w", e.Name(), err)
		}
	}
	l.collect()
	return l, nil
}

// add takes in a file.
func (l *Language) add(text string) error {
	var f file
	meta, err := toml.Decode(text, &f)
	if err != nil {
		return err
	}
	if unknown := meta.Undecoded(); len(unknown) > 0 {
		return fmt.Errorf("unknown key %s", unknown[0])
	}
	sets := l.sets()
	for name, list := range f.Words {
		if sets[name] == nil {
			return fmt.Errorf("no set of words %q", name)
		}
		for _, w := range list {
			(*sets[name])[w] = true
		}
	}
	l.changeAsks = append(l.changeAsks, f.ChangeAsks...)
	maps.Copy(l.contractions, f.Contractions)
	maps.Copy(l.gerunds, f.Gerunds)
	maps.Copy(l.numbers, f.Numbers)
	for _, s := range f.Soft {
		l.soft = append(l.soft, strings.Fields(s))
	}
	slices.SortStableFunc(l.soft, func(a, b []string) int { return len(b) - len(a) })
	for _, step := range []func(file) error{l.addSettings, l.addFrames, l.addPhrases, l.addHints} {
		if err := step(f); err != nil {
			return err
		}
	}
	return nil
}

// collect gathers what a word can be, once all files are read.
func (l *Language) collect() {
	note := func(words ...string) {
		for _, w := range words {
			l.known[w] = true
		}
	}
	for name, set := range l.sets() {
		for phrase := range *set {
			if name != "real" {
				note(strings.Fields(phrase)...)
			}
		}
	}
	for _, s := range l.soft {
		note(s...)
	}
	for _, s := range l.settings {
		note(s.words()...)
	}
	for _, h := range l.hints {
		for _, g := range slices.Concat(h.all, h.none) {
			note(strings.Fields(strings.Join(g, " "))...)
		}
	}
	note(slices.Collect(maps.Keys(l.gerunds))...)
	note(slices.Collect(maps.Keys(l.numbers))...)
	for _, full := range l.contractions {
		note(strings.Fields(full)...)
	}
	for _, f := range l.frames {
		f.template.literals(l.known)
	}
	for _, t := range l.asides {
		t.literals(l.known)
	}
	maps.Copy(l.known, l.vocabulary)
	for w := range l.known {
		if len(w) >= 4 {
			l.words = append(l.words, w)
		}
	}
	slices.Sort(l.words)
	maps.Copy(l.known, l.real)
}

func (l *Language) addFrames(f file) error {
	for _, fr := range f.Frames {
		for _, say := range fr.Say {
			t, err := parseTemplate(say, f.Macros, nil)
			if err != nil {
				return err
			}
			l.frames = append(l.frames, frame{fr, t, t.needs()})
		}
	}
	for _, say := range f.Asides {
		t, err := parseTemplate(say, f.Macros, nil)
		if err != nil {
			return err
		}
		l.asides = append(l.asides, t)
	}
	return nil
}

func (l *Language) addHints(f file) error {
	for _, h := range f.Hints {
		c := hint{hintFile: h}
		for _, g := range h.All {
			words, err := group(g, f.Macros)
			if err != nil {
				return err
			}
			c.all = append(c.all, words)
		}
		for _, g := range h.None {
			words, err := group(g, f.Macros)
			if err != nil {
				return err
			}
			c.none = append(c.none, words)
		}
		if Changing(h.Tool) || len(c.all) == 0 && !h.App && !h.Peer && !h.Path {
			return fmt.Errorf("a hint for %q: hints are for reads and have words", h.Tool)
		}
		l.hints = append(l.hints, c)
	}
	return nil
}

// group reads a|b|@name into its phrases.
func group(text string, macros map[string]string) ([]string, error) {
	var out []string
	for p := range strings.SplitSeq(text, "|") {
		if name, ok := strings.CutPrefix(p, "@"); ok {
			body, found := macros[name]
			if !found {
				return nil, fmt.Errorf("no macro %q", name)
			}
			inner, err := group(strings.Trim(body, "()"), macros)
			if err != nil {
				return nil, err
			}
			out = append(out, inner...)
			continue
		}
		out = append(out, " "+p+" ")
	}
	return out, nil
}

// words are all words by which a setting and its values are called.
func (s setting) words() []string {
	var out []string
	for _, p := range append(slices.Collect(maps.Keys(s.Values)), s.Spoken...) {
		out = append(out, strings.Fields(p)...)
	}
	return append(out, s.Key)
}

func (l *Language) addSettings(f file) (err error) {
	for _, s := range f.Settings {
		if s.Pattern != "" {
			if s.pattern, err = regexp.Compile("^(?:" + s.Pattern + ")$"); err != nil {
				return err
			}
		}
		l.settings = append(l.settings, s)
		for _, w := range append(s.Spoken, s.Key) {
			l.spoken[w] = s.Key
		}
	}
	return nil
}

func (l *Language) addPhrases(f file) error {
	for _, p := range f.Phrases {
		drop := l.fillers
		if Changing(p.Tool) {
			drop = nil
		}
		for _, say := range p.Say {
			t, err := parseTemplate(say, f.Macros, drop)
			if err != nil {
				return err
			}
			t.literals(l.vocabulary)
			c := phrase{p, say, t, t.needs()}
			if Changing(p.Tool) {
				l.changes.add(c)
			} else {
				l.reads.add(c)
			}
		}
	}
	return nil
}

// key finds the setting that a phrase names, or "".
func (l *Language) key(phrase string, settable []string) string {
	if key := l.spoken[phrase]; key != "" {
		return key
	}
	if i := slices.IndexFunc(settable, func(k string) bool { return strings.ToLower(k) == phrase }); i >= 0 {
		return settable[i]
	}
	return ""
}

// keyed is what is known of a key; an unknown one takes text.
func (l *Language) keyed(key string) setting {
	if i := slices.IndexFunc(l.settings, func(s setting) bool { return s.Key == key }); i >= 0 {
		return l.settings[i]
	}
	return setting{Key: key, Type: "string"}
}
