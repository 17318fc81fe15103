package tool

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/google/jsonschema-go/jsonschema"
)

// The compiled schemas accept nothing that a full JSON Schema validator refuses, and refuse beyond it only fractions,
// exponents and what is no strict JSON (T2, G5).
func FuzzArguments(f *testing.F) {
	for i := range Registry() {
		for _, args := range []string{`{}`, `{"app":"x"}`, `{"app":"x","lines":500}`, `{"app":"","lines":-0}`, `{"key":"a","value":9007199254740993}`,
			`{"key":"a","value":99999999999999999999999}`, `{"key":"a","value":true}`, `{"key":"a","value":null}`, `{"path":""}`, `{"peer":["x"]}`,
			`{"app":"\ud800"}`, `{"app":1e2}`, `{"x":{}}`, `[1]`} {
			f.Add(i, args)
		}
	}
	tools := Registry()
	f.Fuzz(func(t *testing.T, i int, args string) {
		if i < 0 || i >= len(tools) {
			return
		}
		s, err := compile(tools[i].Schema)
		if err != nil {
			t.Fatal(err)
		}
		full := new(jsonschema.Schema)
		if err := json.Unmarshal([]byte(tools[i].Schema), full); err != nil {
			t.Fatal(err)
		}
		resolved, err := full.Resolve(nil)
		if err != nil {
			t.Fatal(err)
		}
		canonical, err := s.check([]byte(args))
		var v map[string]any
		strict := json.Unmarshal([]byte(args), &v) == nil
		accepted := strict && v != nil && resolved.Validate(v) == nil
		if err == nil && args != "" && !accepted {
			t.Errorf("%s %s: accepted, and refused by the full validator", tools[i].Name, args)
		}
		if err != nil && accepted && !strings.ContainsAny(args, ".eE") {
			t.Errorf("%s %s: %v, and accepted by the full validator", tools[i].Name, args, err)
		}
		if err == nil {
			if again, err := s.check(canonical); err != nil || string(again) != string(canonical) {
				t.Errorf("%s is not stable: %s %v", canonical, again, err)
			}
		}
	})
}

// A schema with a keyword that would not be held does not compile.
func TestCompileRefuses(t *testing.T) {
	for _, text := range []string{`{}`, `{"type":"object"}`, `{"type":"object","properties":{"a":{"type":"string","pattern":"x"}},"additionalProperties":false}`,
		`{"type":"object","properties":{"a":{"type":"string","minLength":1}},"additionalProperties":false}`,
		`{"type":"object","properties":{"a":{"type":"string","enum":["x"]}},"additionalProperties":false}`,
		`{"type":"object","properties":{"a":{"type":"integer","minimum":1}},"additionalProperties":false}`,
		`{"type":"object","properties":{"a":{"type":"number"}},"additionalProperties":false}`,
		`{"type":"object","properties":{"a":{"type":["string","null"]}},"additionalProperties":false}`,
		`{"type":"object","properties":{"a":{}},"additionalProperties":false}`,
		`{"type":"object","properties":{},"required":["a"],"additionalProperties":false}`,
		`{"type":"object","properties":{},"additionalProperties":true}`, `{"type":"object","properties":{},"additionalProperties":{}}`,
		`{"type":"object","properties":{},"additionalProperties":false,"minProperties":1}`} {
		if _, err := compile(text); err == nil {
			t.Errorf("%s compiles", text)
		}
	}
}
