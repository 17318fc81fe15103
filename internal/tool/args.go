package tool

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"atoll/internal/fault"
	"atoll/internal/rpc"
)

// schema is a tool's JSON Schema, compiled: one flat object of named texts, whole numbers and switches. That is all the
// registry's tools need, and small enough to say exactly what was wrong; a test holds it against a full validator.
type schema struct {
	properties map[string]property
	required   []string
	known      string // the names, for error texts
}

type property struct {
	types          []string
	minLen, maxLen int
	min, max       int64
	words          string // what is expected
}

// compile reads a schema and refuses every keyword that check would not hold.
func compile(text string) (schema, error) {
	var src struct {
		Type                 string            `json:"type"`
		Properties           map[string]source `json:"properties"`
		Required             []string          `json:"required"`
		AdditionalProperties *bool             `json:"additionalProperties"`
	}
	if err := json.Unmarshal([]byte(text), &src, json.RejectUnknownMembers(true)); err != nil {
		return schema{}, err
	}
	if src.Type != "object" || src.AdditionalProperties == nil || *src.AdditionalProperties {
		return schema{}, errors.New("a tool's schema is an object without additional properties")
	}
	s := schema{properties: map[string]property{}, required: src.Required, known: "no arguments"}
	for name, p := range src.Properties {
		c, err := p.compile()
		if err != nil {
			return schema{}, fmt.Errorf("property %s: %w", name, err)
		}
		s.properties[name] = c
	}
	for _, name := range s.required {
		if _, ok := s.properties[name]; !ok {
			return schema{}, fmt.Errorf("%s is required and no property", name)
		}
	}
	if len(s.properties) > 0 {
		s.known = strings.Join(slices.Sorted(maps.Keys(s.properties)), ", ")
	}
	return s, nil
}

// source is a property with all the keywords that check holds.
type source struct {
	Type        jsontext.Value `json:"type"` // a name or a list of them
	Description string         `json:"description"`
	MinLength   int            `json:"minLength"`
	MaxLength   *int           `json:"maxLength"`
	Minimum     *int64         `json:"minimum"`
	Maximum     *int64         `json:"maximum"`
}

func (p source) compile() (property, error) {
	c := property{types: make([]string, 1), minLen: p.MinLength, maxLen: math.MaxInt, min: math.MinInt64, max: math.MaxInt64}
	err := json.Unmarshal(p.Type, &c.types[0])
	if p.Type.Kind() == '[' {
		err = json.Unmarshal(p.Type, &c.types)
	}
	if err != nil || slices.ContainsFunc(c.types, func(t string) bool { return t != "string" && t != "integer" && t != "boolean" }) {
		return c, fmt.Errorf("types that are not held here: %s", p.Type)
	}
	c.words = strings.Join(c.types, " or ")
	if p.MaxLength != nil {
		c.maxLen = *p.MaxLength
		c.words += fmt.Sprintf(" of %d to %d characters", c.minLen, c.maxLen)
	} else if c.minLen > 0 {
		return c, errors.New("a text needs maxLength")
	}
	if (p.Minimum == nil) != (p.Maximum == nil) {
		return c, errors.New("a number needs both bounds or none")
	}
	if p.Minimum != nil {
		c.min, c.max = *p.Minimum, *p.Maximum
		c.words += fmt.Sprintf(" from %d to %d", c.min, c.max)
	}
	return c, nil
}

// check reads a model's argument text strictly and returns its canonical form (G5, F-E6, F-E15). Nothing is repaired:
// what does not fit is refused with the field named (T6).
func (s schema) check(raw []byte) (jsontext.Value, error) {
	if len(raw) == 0 {
		raw = []byte("{}")
	}
	v := jsontext.Value(raw)
	if k := v.Kind(); k != '{' {
		return nil, invalid("", "arguments must be one JSON object, not %s", kindOf(k))
	}
	canonical, err := rpc.Canonical(v)
	if err != nil {
		if errors.Is(err, jsontext.ErrDuplicateName) {
			return nil, invalid("", "an argument is given twice")
		}
		return nil, invalid("", "arguments are not valid JSON")
	}
	args, err := parseArgs(canonical)
	if err != nil {
		return nil, invalid("", "arguments are not valid JSON")
	}
	if err := s.fits(args); err != nil {
		return nil, err
	}
	return canonical, nil
}

func (s schema) fits(args Args) error {
	for name, value := range args {
		if _, ok := s.properties[name]; !ok {
			return invalid(name, "unknown argument; the tool takes %s", s.known)
		}
		if err := s.properties[name].fits(name, value); err != nil {
			return err
		}
	}
	for _, name := range s.required {
		if _, ok := args[name]; !ok {
			return invalid(name, "is required: %s", s.properties[name].words)
		}
	}
	return nil
}

// fits checks one value. Whole numbers are judged by their digits: fractions and exponents are refused, and a number
// beyond 64 bits is beyond every bound.
func (p property) fits(name string, v jsontext.Value) error {
	ok := false
	switch v.Kind() {
	case '"':
		text, err := jsontext.AppendUnquote(nil, v)
		n := utf8.RuneCount(text)
		ok = err == nil && slices.Contains(p.types, "string") && n >= p.minLen && n <= p.maxLen
	case '0':
		if strings.ContainsAny(string(v), ".eE") {
			return invalid(name, "must be a whole number, written without a fraction or exponent")
		}
		n, err := strconv.ParseInt(string(v), 10, 64)
		unbounded := p.min == math.MinInt64 && p.max == math.MaxInt64
		ok = slices.Contains(p.types, "integer") && (err == nil && n >= p.min && n <= p.max || err != nil && unbounded)
	case 't', 'f':
		ok = slices.Contains(p.types, "boolean")
	}
	if !ok {
		return invalid(name, "must be %s", p.words)
	}
	return nil
}

func kindOf(k jsontext.Kind) string {
	switch k {
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
