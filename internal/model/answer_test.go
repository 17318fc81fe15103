package model

import (
	"errors"
	"strings"
	"testing"
)

func quiet(string) error { return nil }

// TestAssemblyBounds: a server that floods is cut off, and what fits is kept.
func TestAssemblyBounds(t *testing.T) {
	flooded := func(err error) bool {
		f, ok := errors.AsType[*Failure](err)
		return ok && f.Kind == Flooded
	}
	a := NewAssembly(quiet)
	if err := a.Text(strings.Repeat("x", MaxText)); err != nil {
		t.Errorf("the largest text: %v", err)
	}
	if err := a.Text("x"); !flooded(err) {
		t.Errorf("one byte more: %v", err)
	}
	if got := a.Partial(Usage{}); len(got.Text()) != MaxText {
		t.Errorf("%d bytes are kept", len(got.Text()))
	}
	a = NewAssembly(quiet)
	for range MaxCalls {
		if err := a.Call(Call{Name: "x"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Call(Call{Name: "x"}); !flooded(err) {
		t.Errorf("a call more: %v", err)
	}
	if err := NewAssembly(quiet).Call(Call{Name: "x", Args: make([]byte, MaxArgs+1)}); !flooded(err) {
		t.Errorf("large arguments: %v", err)
	}
	if err := NewAssembly(quiet).Opaque(Opaque{Raw: make([]byte, MaxText+1)}); !flooded(err) {
		t.Errorf("a large block: %v", err)
	}
}

// TestAssemblyUTF8: B3: bytes that are no text neither crash nor pass.
func TestAssemblyUTF8(t *testing.T) {
	a := NewAssembly(quiet)
	if err := a.Text("a\xffb"); err != nil {
		t.Fatal(err)
	}
	if err := a.Call(Call{Name: "x", Args: []byte("{\"a\":\"\xff\"}")}); err != nil {
		t.Fatal(err)
	}
	got := a.Done(StopEnd, Usage{})
	if got.Text() != "a\uFFFDb" || got.Calls()[0].Broken == "" {
		t.Errorf("got %q, %+v", got.Text(), got.Calls()[0])
	}
}

// TestCallInText: F-E5, T12.
func TestCallInText(t *testing.T) {
	tools := []Tool{{Name: "app_restart"}, {Name: "app_list"}}
	for text, want := range map[string]string{
		`{"name":"app_restart","arguments":{}}`:                                  "app_restart",
		"Sure:\n```json\n{\"tool\": \"app_list\"}\n```":                          "app_list",
		`<tool_call>{"name": "app_list", "parameters": {}}</tool_call>`:          "app_list",
		`{"type":"function","function":{"name":"app_restart","arguments":"{}"}}`: "app_restart",
		`{"name":"app.delete"}`:                                                  "",
		`I would use app_restart, with {"app":"sample"}.`:                        "",
		`{{{{{{`:   "",
		`no brace`: "",
		strings.Repeat("{", 1<<16) + `{"name":"app_list"}`:                        "",
		`The config is {"name": 5} and the tool is {"name": "app_list"} I think.`: "app_list",
	} {
		if got := CallInText(text, tools); got != want {
			t.Errorf("%.40q: got %q, want %q", text, got, want)
		}
	}
}

func TestWireName(t *testing.T) {
	for in, want := range map[string]string{
		"app_list": "app_list", "App.Delete ": "App_Delete_", "": "unnamed", "é": "_", strings.Repeat("a", 99): strings.Repeat("a", 64),
	} {
		if got := WireName(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}
