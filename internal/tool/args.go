package tool

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/jsonschema-go/jsonschema"

	"atoll/internal/fault"
	"atoll/internal/rpc"
)

// schema is a tool's compiled JSON Schema.
type schema struct {
	source   *jsonschema.Schema
	resolved *jsonschema.Resolved
	empty    bool // takes no arguments
}

func compile(text string) (schema, error) {
	s := new(jsonschema.Schema)
	if err := json.Unmarshal([]byte(text), s); err != nil {
		return schema{}, err
	}
	r, err := s.Resolve(nil)
	if err != nil {
		return schema{}, err
	}
	if s.Type != "object" || s.AdditionalProperties == nil || s.AdditionalProperties.Not == nil {
		return schema{}, errors.New("a tool's schema is an object without additional properties")
	}
	return schema{s, r, len(s.Properties) == 0}, nil
}

// check reads a model's argument text strictly and returns its canonical form (G5, F-E6, F-E15). Nothing is repaired:
// what does not fit is refused with the field named (T6).
func (s schema) check(raw []byte) (jsontext.Value, error) {
	if len(raw) == 0 {
		raw = []byte("{}")
	}
	v := jsontext.Value(raw)
	if v.Kind() != '{' {
		return nil, invalid("", "arguments must be one JSON object, not %s", kindOf(v))
	}
	canonical, err := rpc.Canonical(v)
	if err != nil {
		if errors.Is(err, jsontext.ErrDuplicateName) {
			return nil, invalid("", "an argument is given twice")
		}
		return nil, invalid("", "arguments are not valid JSON")
	}
	if s.empty && len(canonical) == len("{}") {
		return canonical, nil
	}
	if err := wholeNumbers(canonical); err != nil {
		return nil, err
	}
	var args map[string]any
	if err := json.Unmarshal(canonical, &args); err != nil {
		return nil, invalid("", "arguments are not valid JSON")
	}
	if err := s.resolved.Validate(args); err != nil {
		return nil, s.explain(args)
	}
	return canonical, nil
}

// explain names the first argument at fault and what was expected.
func (s schema) explain(args map[string]any) error {
	for _, name := range slices.Sorted(maps.Keys(args)) {
		p, ok := s.source.Properties[name]
		if !ok {
			known := strings.Join(slices.Sorted(maps.Keys(s.source.Properties)), ", ")
			if known == "" {
				known = "no arguments"
			}
			return invalid(name, "unknown argument; the tool takes %s", known)
		}
		r, err := p.CloneSchemas().Resolve(nil)
		if err == nil && r.Validate(args[name]) != nil {
			return invalid(name, "must be %s", expected(p))
		}
	}
	for _, name := range s.source.Required {
		if _, ok := args[name]; !ok {
			return invalid(name, "is required: %s", expected(s.source.Properties[name]))
		}
	}
	return invalid("", "the arguments do not fit the tool's schema")
}

func expected(p *jsonschema.Schema) string {
	what := p.Type
	if len(p.Types) > 0 {
		what = strings.Join(p.Types, " or ")
	}
	switch {
	case p.Minimum != nil && p.Maximum != nil:
		return fmt.Sprintf("%s from %v to %v", what, *p.Minimum, *p.Maximum)
	case p.MinLength != nil && p.MaxLength != nil:
		return fmt.Sprintf("%s of %d to %d characters", what, *p.MinLength, *p.MaxLength)
	case p.MaxLength != nil:
		return fmt.Sprintf("%s of at most %d characters", what, *p.MaxLength)
	}
	return what
}

// wholeNumbers refuses fractions and exponents: no tool needs them.
func wholeNumbers(v jsontext.Value) error {
	if !slices.ContainsFunc(v, func(b byte) bool { return b == '.' || b == 'e' || b == 'E' }) {
		return nil
	}
	dec := jsontext.NewDecoder(strings.NewReader(string(v)))
	for {
		tok, err := dec.ReadToken()
		if err != nil {
			return nil // the end: the value was read whole before
		}
		if tok.Kind() == '0' && strings.ContainsAny(tok.String(), ".eE") {
			return invalid(strings.TrimPrefix(string(dec.StackPointer()), "/"), "must be a whole number, written without a fraction or exponent")
		}
	}
}

func kindOf(v jsontext.Value) string {
	switch v.Kind() {
	case '"':
		return "a string"
	case '[':
		return "a list"
	case '0':
		return "a number"
	}
	return "something else"
}

func invalid(field, format string, args ...any) *fault.Error {
	words := fmt.Sprintf(format, args...)
	if field != "" {
		words = "argument " + printable(field) + " " + words
	}
	return fault.New(fault.InvalidArgs, "the assistant asked wrongly; nothing was changed").ForModel("%s", words).At(printable(field))
}

// printable makes a model's own word fit for an error text and the audit.
func printable(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s)
	return s[:min(len(s), 64)]
}

func parseArgs(canonical jsontext.Value) (Args, error) {
	var a Args
	err := json.Unmarshal(canonical, &a)
	return a, err
}
