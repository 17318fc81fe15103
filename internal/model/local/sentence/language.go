// Package sentence matches a person's plain sentences against templates in a file of their language. It knows which tool
// a sentence means and nothing of what a tool does. Reads are matched tolerantly; a change only where the whole message
// is one sentence of the file, to the letter, and exactly one app or setting fits (B1).
package sentence

import (
	"embed"
	"fmt"
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
	Fillers      []string          `toml:"fillers"`      // words that a question may hold or not
	Polite       []string          `toml:"polite"`       // words beside which a comma means nothing
	Pronouns     []string          `toml:"pronouns"`     // phrases for the app named before
	NotApps      []string          `toml:"not_apps"`     // words that never name an app
	ValueStops   []string          `toml:"value_stops"`  // words that no unquoted value holds
	ChangeVerbs  []string          `toml:"change_verbs"` // words that ask for a change
	AskWords     []string          `toml:"ask_words"`    // first words of a question
	ChangeAsks   []string          `toml:"change_asks"`  // phrases that ask about a change, or against one
	Contractions map[string]string `toml:"contractions"`
	Macros       map[string]string `toml:"macros"`
	Settings     []setting         `toml:"setting"`
	Phrases      []phraseFile      `toml:"phrase"`
	Hints        []hintFile        `toml:"hint"`
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
	Implied bool     `toml:"implied"`
	Say     []string `toml:"say"`
}

type hintFile struct {
	Tool  string   `toml:"tool"`
	Kind  string   `toml:"kind"`
	Focus string   `toml:"focus"`
	Key   string   `toml:"key"`
	Lines int      `toml:"lines"`
	App   bool     `toml:"app"` // an app that exists must be named
	All   []string `toml:"all"` // a|b|c: one word of each group must be there
}

// phrase is one compiled sentence.
type phrase struct {
	phraseFile
	source   string
	template template
}

type hint struct {
	hintFile
	groups [][]string
}

// Language is all that is understood. It is immutable after Load.
type Language struct {
	fillers, polite, pronouns, notApps, valueStops, changeVerbs, askWords, vocabulary map[string]bool

	changeAsks   []string
	contractions map[string]string
	settings     []setting
	spoken       map[string]string // what people call a setting, to its key
	changes      []phrase
	reads        []phrase
	hints        []hint
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
	l := &Language{contractions: map[string]string{}, spoken: map[string]string{}, vocabulary: map[string]bool{}}
	for _, e := range entries {
		text, err := sentences.ReadFile("sentences/" + e.Name())
		if err != nil {
			return nil, err
		}
		if err := l.add(string(text)); err != nil {
			return nil, fmt.Errorf("%s: %w", e.Name(), err)
		}
	}
	return l, nil
}

func (l *Language) add(text string) error {
	var f file
	meta, err := toml.Decode(text, &f)
	if err != nil {
		return err
	}
	if unknown := meta.Undecoded(); len(unknown) > 0 {
		return fmt.Errorf("unknown key %s", unknown[0])
	}
	for _, s := range []struct {
		set  *map[string]bool
		list []string
	}{{&l.fillers, f.Fillers}, {&l.polite, f.Polite}, {&l.pronouns, f.Pronouns}, {&l.notApps, f.NotApps},
		{&l.valueStops, f.ValueStops}, {&l.changeVerbs, f.ChangeVerbs}, {&l.askWords, f.AskWords}} {
		if *s.set == nil {
			*s.set = map[string]bool{}
		}
		for _, w := range s.list {
			(*s.set)[w] = true
		}
	}
	l.changeAsks = append(l.changeAsks, f.ChangeAsks...)
	for from, to := range f.Contractions {
		l.contractions[from] = to
	}
	if err := l.addSettings(f.Settings); err != nil {
		return err
	}
	if err := l.addPhrases(f); err != nil {
		return err
	}
	for _, h := range f.Hints {
		c := hint{hintFile: h}
		for _, g := range h.All {
			c.groups = append(c.groups, strings.Split(g, "|"))
		}
		if Changing(h.Tool) || len(c.groups) == 0 {
			return fmt.Errorf("a hint for %q: hints are for reads and have words", h.Tool)
		}
		l.hints = append(l.hints, c)
	}
	return nil
}

func (l *Language) addSettings(settings []setting) (err error) {
	for _, s := range settings {
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
			c := phrase{phraseFile: p, source: say, template: t}
			if Changing(p.Tool) {
				l.changes = append(l.changes, c)
			} else {
				l.reads = append(l.reads, c)
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
