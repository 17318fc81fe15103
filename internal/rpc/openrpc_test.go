package rpc

import (
	"context"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"atoll/internal/caller"
)

type shape struct {
	Text   string            `json:"text" rpc:"required"`
	Opt    *int64            `json:"opt,omitempty"`
	When   time.Time         `json:"when"`
	Wait   time.Duration     `json:"-"`
	Raw    jsontext.Value    `json:"raw"`
	Role   caller.Role       `json:"role"`
	Names  []string          `json:"names"`
	Table  map[string][]byte `json:"table"`
	Any    any               `json:"any"`
	Nested struct {
		On bool `json:"on"`
	} `json:"nested"`
	hidden chan int
}

type tree struct {
	Children []tree `json:"children"`
}

func shaped[P, R any](name string) Method {
	return Spec[P, R]{Row: Row{Name: name, Summary: "x", Effect: Read, Doors: People, Role: caller.Viewer},
		Handle: func(context.Context, caller.Caller, P) (r R, err error) { return r, nil }}.Method()
}

// SPEC section 3: rpc.discover is a valid document, whatever the types of the table are.
func TestDescribe(t *testing.T) {
	_ = shape{}.hidden
	destroy := spec().Method()
	g := NewGate(Config{Log: quiet(), Methods: []Method{destroy, shaped[shape, shape]("a.shape"), shaped[None, tree]("a.tree"), shaped[tree, int]("a.deep"),
		shaped[None, any]("a.any"), shaped[None, chan int]("a.chan"), shaped[None, map[caller.Role]string]("a.keys"), shaped[None, jsontext.Value]("a.raw")}})
	raw, err := Marshal(g.Describe("1.2.3"))
	if err != nil || !raw.IsValid() {
		t.Fatalf("%s, %v", raw, err)
	}
	var doc struct {
		OpenRPC string `json:"openrpc"`
		Info    struct {
			Title, Version string
		} `json:"info,case:ignore"`
		Methods []struct {
			Name   string
			Params []struct {
				Name     string
				Required bool
				Schema   jsontext.Value
			}
			Result struct {
				Schema jsontext.Value
			}
			Structure string         `json:"paramStructure"`
			Effect    string         `json:"x-effect"`
			Role      string         `json:"x-role"`
			Rest      jsontext.Value `json:",unknown"`
		} `json:"methods"`
	}
	if err := json.Unmarshal(raw, &doc, json.MatchCaseInsensitiveNames(true)); err != nil {
		t.Fatal(err)
	}
	if doc.OpenRPC != "1.3.2" || doc.Info.Version != "1.2.3" || len(doc.Methods) != len(g.Names()) {
		t.Errorf("%+v", doc)
	}
	params := map[string]string{}
	for i, m := range doc.Methods {
		if m.Name != g.Names()[i] || m.Structure != "by-name" || m.Effect == "" || m.Role == "" || len(m.Result.Schema) == 0 {
			t.Errorf("%+v", m)
		}
		var names []string
		for _, p := range m.Params {
			if len(p.Schema) == 0 || p.Schema.Kind() == 'n' {
				t.Errorf("%s: %s has no schema", m.Name, p.Name)
			}
			if p.Required {
				p.Name += "!"
			}
			names = append(names, p.Name)
		}
		params[m.Name] = strings.Join(names, " ")
	}
	for name, want := range map[string]string{"a.shape": "text! opt when raw role names table any nested", "apps.stop": "app! n", "a.any": ""} {
		if params[name] != want {
			t.Errorf("%s takes %q, want %q", name, params[name], want)
		}
	}
}

// A result is valid by the schema that tells of it, whatever way its types are written in.
func TestDescribedAsWritten(t *testing.T) {
	type written struct {
		shape
		Address  netip.Addr             `json:"address"`
		Pointer  *netip.Addr            `json:"pointer"`
		Many     []netip.Addr           `json:"many"`
		ByRole   map[string]caller.Role `json:"by_role"`
		Anything *jsontext.Value        `json:"anything"`
	}
	address, anything := netip.MustParseAddr("192.0.2.2"), jsontext.Value(`{"a":[1,null]}`)
	v := written{Address: address, Pointer: &address, Many: []netip.Addr{address}, ByRole: map[string]caller.Role{"ada": caller.Owner}, Anything: &anything}
	v.Raw, v.Role, v.Table = jsontext.Value(`{"type":"object"}`), caller.Viewer, map[string][]byte{"x": []byte("bytes")}
	schema, err := schemaOf(reflect.TypeFor[written]()).Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	check := func(v written) (string, error) {
		raw, err := Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		var wire any
		if err := json.Unmarshal(raw, &wire); err != nil {
			t.Fatal(err)
		}
		return string(raw), schema.Validate(wire)
	}
	if raw, err := check(v); err != nil {
		t.Errorf("%s: %v", raw, err)
	}
	v.Pointer, v.Anything = nil, nil
	if raw, err := check(v); err != nil {
		t.Errorf("%s: %v", raw, err)
	}
	if err := schema.Validate(map[string]any{"address": 7.0}); err == nil {
		t.Error("a number passes for an address")
	}
}
