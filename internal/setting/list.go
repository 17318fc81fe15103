package setting

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"atoll/internal/fault"
	"atoll/internal/fence"
)

// Key names a setting.
type Key string

// The settable keys (T5): nothing is added here without a change of SPEC.md.
const (
	NodeName        Key = "node.name"
	Theme           Key = "ui.theme"
	Language        Key = "ui.language"
	DiskWarnPercent Key = "disk.warn_percent"
)

// The keys that can only be read.
const (
	NodeVersion      Key = "node.version"
	AssistantBackend Key = "assistant.backend"
	AssistantMode    Key = "assistant.mode"
)

// kind is the type of a setting's value, as the wire names it.
type kind string

const (
	text   kind = "string"
	whole  kind = "integer"
	choice kind = "enum"
)

type setting struct {
	key      Key
	kind     kind
	choices  []fence.Word // of a choice
	min, max int64        // of a whole number
	initial  any
}

// settable is the hand-picked list of what may be set. The languages are those the interface is to speak; what is not
// translated is shown in English.
func settable() []setting {
	return []setting{
		{key: NodeName, kind: text, initial: fence.Word("atoll")},
		{key: Theme, kind: choice, choices: []fence.Word{"auto", "light", "dark"}, initial: fence.Word("auto")},
		{key: Language, kind: choice, choices: []fence.Word{"en", "de", "es", "fr", "it", "nl", "pl", "pt"}, initial: fence.Word("en")},
		{key: DiskWarnPercent, kind: whole, min: 50, max: 99, initial: int64(90)},
	}
}

// readOnly is the hand-picked list of facts that may be read beside them.
func readOnly() []Key { return []Key{NodeVersion, AssistantBackend, AssistantMode} }

func find(key Key) (setting, bool) {
	all := settable()
	i := slices.IndexFunc(all, func(s setting) bool { return s.key == key })
	if i < 0 {
		return setting{}, false
	}
	return all[i], true
}

// accept finds the key and reads the value as its type. The refusals are Rule at "key" and InvalidParams at "value"; the
// words hold nothing of what was sent.
func accept(key Key, raw jsontext.Value) (setting, any, error) {
	s, ok := find(key)
	if !ok {
		return setting{}, nil, fault.New(fault.Rule, "that setting cannot be set; %s can", names(settableKeys())).At("key")
	}
	value, err := s.parse(raw)
	return s, value, err
}

func settableKeys() []Key {
	var out []Key
	for _, s := range settable() {
		out = append(out, s.key)
	}
	return out
}

// list is names as a sentence gives them. In an error's words it stays a list of plain words, which no fence is needed for.
type list []fence.Word

func names[T ~string](all []T) list {
	out := make(list, len(all))
	for i, k := range all {
		out[i] = fence.Word(k)
	}
	return out
}

func (l list) String() string {
	var b strings.Builder
	for i, w := range l {
		switch {
		case i > 0 && i == len(l)-1:
			b.WriteString(" and ")
		case i > 0:
			b.WriteString(", ")
		}
		b.WriteString(string(w))
	}
	return b.String()
}

// parse reads a JSON value as the setting's type; the error is InvalidParams at "value" and says what was expected. Whole
// numbers are read from their digits, so that none is rounded on the way (G5).
func (s setting) parse(raw jsontext.Value) (any, error) {
	switch s.kind {
	case whole:
		n, err := strconv.ParseInt(string(raw), 10, 64)
		if err != nil || n < s.min || n > s.max || raw.Kind() != '0' || string(raw) != strconv.FormatInt(n, 10) {
			return nil, fault.New(fault.InvalidParams, "%s must be a whole number from %d to %d, without fraction or exponent", s.key, s.min, s.max).At("value")
		}
		return n, nil
	case choice:
		word, err := parseString(raw)
		if err != nil || !slices.Contains(s.choices, fence.Word(word)) {
			return nil, fault.New(fault.InvalidParams, "%s must be one of %s", s.key, names(s.choices)).At("value")
		}
		return fence.Word(word), nil
	case text:
		name, err := parseString(raw)
		if err != nil || !nameable(name) {
			return nil, fault.New(fault.InvalidParams, "%s must be a text of 1 to %d visible characters, with no space at its ends, "+
				"no line break and no control, invisible or direction character", s.key, maxName).At("value")
		}
		return fence.Word(name), nil
	}
	return nil, errors.New("of a type this version knows") // unreachable unless the list has a kind without a case
}

func parseString(raw jsontext.Value) (string, error) {
	if raw.Kind() != '"' {
		return "", errors.New("not a string")
	}
	var s string
	err := json.Unmarshal(raw, &s)
	return s, err
}

// maxName is the longest node name, in characters: a label of the domain name system.
const maxName = 63

// maxMarks is how many combining marks may follow each other: scripts need two or three, text that spills over its
// lines needs more.
const maxMarks = 3

// nameable refuses what could not be told apart, or would move other text, where the name is shown.
func nameable(s string) bool {
	if s == "" || !utf8.ValidString(s) || utf8.RuneCountInString(s) > maxName || strings.TrimSpace(s) != s {
		return false
	}
	marks := 0
	for i, r := range s {
		marks++
		if !unicode.IsMark(r) {
			marks = 0
		}
		switch {
		case !unicode.IsPrint(r), // controls, format characters, all spaces but the plain one, private and unassigned
			unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector),
			r == '\u2800', // a braille cell without dots
			marks > maxMarks, i == 0 && marks > 0:
			return false
		}
	}
	return true
}

// render is the value's JSON text.
func render(v any) string {
	switch v := v.(type) {
	case int64:
		return strconv.FormatInt(v, 10)
	case fence.Word:
		quoted, err := jsontext.AppendQuote(nil, string(v))
		if err != nil {
			panic(err) // unreachable unless a value was not checked
		}
		return string(quoted)
	}
	panic(fmt.Sprintf("setting: a value of type %T", v)) // unreachable unless parse gives another type
}

// words is the value as a person reads it.
func words(v any) string {
	if n, ok := v.(int64); ok {
		return strconv.FormatInt(n, 10)
	}
	return string(v.(fence.Word))
}
