package rpc

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"atoll/internal/caller"
	"atoll/internal/fault"
)

// yes approves what it was made for, as often as it is asked.
type yes struct{ method, args string }

func (y yes) Redeem(c caller.Caller, method string, canonical jsontext.Value) bool {
	return c == friend && y.method == method && y.args == string(canonical)
}

// M3, F-B2, F-F4: no way through the gate lets a peer run a destroying row, but the door Asked with an approval for these
// very bytes, once.
func TestAskedNeedsApproval(t *testing.T) {
	var ran atomic.Int32
	asked, plain := spec(), spec()
	asked.Doors |= Asked
	plain.Name = "settings.set"
	for _, s := range []*Spec[echo, echo]{&asked, &plain} {
		s.Handle = func(_ context.Context, _ caller.Caller, p echo) (echo, error) { ran.Add(1); return p, nil }
	}
	g := NewGate(Config{Methods: []Method{asked.Method(), plain.Method(), method("system.info", People|Tools|Peers, caller.Viewer)}, Log: quiet()})
	args := jsontext.Value(`{"app":"a","n":1}`)
	for door := Doors(0); door < 32; door++ {
		for _, name := range []string{"apps.stop", "settings.set"} {
			if _, err := g.Call(t.Context(), friend, door, name, args, nil); code(err) != fault.Forbidden {
				t.Errorf("a peer by door %b at %s: %v", door, name, err)
			}
		}
		if door&^Asked != 0 {
			continue
		}
		for _, c := range []caller.Caller{{}, stranger, viewer, member, owner} {
			if _, err := g.Prepare(t.Context(), c, door, "apps.stop", args); code(err) != fault.Forbidden {
				t.Errorf("%s by door %b: %v", c, door, err)
			}
		}
	}
	if _, err := g.Prepare(t.Context(), friend, Asked, "system.info", jsontext.Value("{}")); code(err) != fault.Forbidden {
		t.Error("a row without the door:", err)
	}
	p, err := g.Prepare(t.Context(), friend, Asked, "apps.stop", args)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Preview(); err != nil {
		t.Error("the owner sees nothing:", err)
	}
	for _, a := range []Approval{nil, yes{"apps.stop", `{"app":"b","n":1}`}, yes{"apps.start", string(p.Canonical())}} {
		if code(p.Approve(a)) != fault.Forbidden {
			t.Errorf("%v let it run", a)
		}
		if _, err := p.Run(t.Context(), nil); code(err) != fault.Forbidden {
			t.Errorf("%v: %v", a, err)
		}
	}
	if ran.Load() != 0 {
		t.Fatalf("ran %d times without an approval", ran.Load())
	}
	if err := p.Approve(yes{"apps.stop", string(p.Canonical())}); err != nil {
		t.Fatal(err)
	}
	again, err := p.Again(t.Context(), friend)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := again.Run(t.Context(), nil); code(err) != fault.Forbidden {
		t.Error("an approval went over to another call:", err)
	}
	for i, want := range []fault.Code{"", fault.Forbidden} {
		if _, err := p.Run(t.Context(), nil); code(err) != want {
			t.Errorf("run %d: %v", i+1, err)
		}
	}
	if ran.Load() != 1 {
		t.Errorf("ran %d times", ran.Load())
	}
	q, err := g.Prepare(t.Context(), member, Tools, "apps.stop", args)
	if err != nil {
		t.Fatal(err)
	}
	if code(q.Approve(yes{"apps.stop", string(q.Canonical())})) != fault.Forbidden {
		t.Error("an operator's call took a peer's approval")
	}
}

func TestAskedIsForChangesOnly(t *testing.T) {
	for name, doors := range map[string]Doors{"a read": People | Tools | Asked, "no tool": People | Asked} {
		func() {
			defer func() {
				if r := recover(); r == nil || !strings.Contains(r.(string), "a peer's request") {
					t.Errorf("%s: %v", name, r)
				}
			}()
			m := method("system.info", doors, caller.Viewer)
			if name == "no tool" {
				s := spec()
				s.Doors = doors
				m = s.Method()
			}
			NewGate(Config{Methods: []Method{m}, Log: quiet()})
		}()
	}
}
