package rpc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"atoll/internal/caller"
	"atoll/internal/fault"
)

var (
	viewer   = caller.Operator(1, "vic", caller.Viewer, "v1", "10.0.0.1")
	member   = caller.Operator(2, "mia", caller.Member, "m1", "10.0.0.2")
	owner    = caller.Operator(3, "ada", caller.Owner, "o1", "10.0.0.3")
	friend   = caller.Peer("friend", "owner")
	stranger = caller.Stranger("10.0.0.9")
)

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

type echo struct {
	App string `json:"app" rpc:"required"`
	N   int64  `json:"n"`
}

// spec is a sound method to be spoiled in one place.
func spec() Spec[echo, echo] {
	return Spec[echo, echo]{
		Row:     Row{Name: "apps.stop", Summary: "Stops an app.", Effect: Destroy, Doors: People | Tools, Role: caller.Member},
		Preview: func(context.Context, caller.Caller, echo) (Preview, error) { return Preview{}, nil },
		Handle:  func(_ context.Context, _ caller.Caller, p echo) (echo, error) { return p, nil },
	}
}

// method is a read for the doors and the role given.
func method(name string, doors Doors, role caller.Role, rates ...Rate) Method {
	return Spec[None, string]{
		Row:    Row{Name: name, Summary: "x", Effect: Read, Doors: doors, Role: role, Open: role == caller.Nobody, Rates: rates},
		Handle: func(_ context.Context, c caller.Caller, _ None) (string, error) { return c.String(), nil },
	}.Method()
}

func code(err error) fault.Code {
	if err == nil {
		return ""
	}
	if f, ok := errors.AsType[*fault.Error](err); ok {
		return f.Code
	}
	return fault.Code("no fault: " + err.Error())
}

func panics(f func()) (said any) {
	defer func() { said = recover() }()
	f()
	return nil
}

// A row with a blank or a contradiction never gets into a table: the program does not start.
func TestBlanksPanic(t *testing.T) {
	if said := panics(func() { NewGate(Config{Methods: []Method{spec().Method()}, Log: quiet()}) }); said != nil {
		t.Fatalf("the sound one: %v", said)
	}
	for name, spoil := range map[string]func(*Spec[echo, echo]){
		"no name":         func(s *Spec[echo, echo]) { s.Name = "" },
		"no noun":         func(s *Spec[echo, echo]) { s.Name = "stop" },
		"capitals":        func(s *Spec[echo, echo]) { s.Name = "apps.Stop" },
		"blank in name":   func(s *Spec[echo, echo]) { s.Name = "apps.stop " },
		"line in name":    func(s *Spec[echo, echo]) { s.Name = "apps.stop\n" },
		"two dots":        func(s *Spec[echo, echo]) { s.Name = "apps.stop.now" },
		"no summary":      func(s *Spec[echo, echo]) { s.Summary = "" },
		"no effect":       func(s *Spec[echo, echo]) { s.Effect = 0 },
		"beyond effects":  func(s *Spec[echo, echo]) { s.Effect = Destroy + 1 },
		"no door":         func(s *Spec[echo, echo]) { s.Doors = 0 },
		"no role":         func(s *Spec[echo, echo]) { s.Role = caller.Nobody },
		"open with role":  func(s *Spec[echo, echo]) { s.Open = true },
		"open unlisted":   func(s *Spec[echo, echo]) { s.Open, s.Role, s.Doors = true, caller.Nobody, People },
		"listed not open": func(s *Spec[echo, echo]) { s.Name = "auth.login" },
		"open for tools":  func(s *Spec[echo, echo]) { s.Name, s.Open, s.Role = "auth.login", true, caller.Nobody },
		"no preview":      func(s *Spec[echo, echo]) { s.Preview = nil },
		"peers change":    func(s *Spec[echo, echo]) { s.Doors |= Peers },
		"peers write":     func(s *Spec[echo, echo]) { s.Doors, s.Effect = Tools|Peers, Write },
		"no handler":      func(s *Spec[echo, echo]) { s.Handle = nil },
		"two handlers": func(s *Spec[echo, echo]) {
			s.Stream = func(context.Context, caller.Caller, echo, Emit) (echo, error) { return echo{}, nil }
		},
		"negative time":     func(s *Spec[echo, echo]) { s.Timeout = -1 },
		"rate of nothing":   func(s *Spec[echo, echo]) { s.Rates = []Rate{{}} },
		"rate without time": func(s *Spec[echo, echo]) { s.Rates = []Rate{{Max: 1}} },
		"rate without max":  func(s *Spec[echo, echo]) { s.Rates = []Rate{{Window: time.Second}} },
		"soft at hard":      func(s *Spec[echo, echo]) { s.Rates = []Rate{{Max: 2, Window: time.Second, Soft: 2}} },
		"soft negative":     func(s *Spec[echo, echo]) { s.Rates = []Rate{{Max: 2, Window: time.Second, Soft: -1}} },
	} {
		s := spec()
		spoil(&s)
		if panics(func() { NewGate(Config{Methods: []Method{s.Method()}, Log: quiet()}) }) == nil {
			t.Errorf("%s: the table was built", name)
		}
	}
	one := spec().Method()
	for name, f := range map[string]func(){
		"twice":           func() { NewGate(Config{Methods: []Method{one, one}, Log: quiet()}) },
		"twice by extend": func() { NewGate(Config{Methods: []Method{one}, Log: quiet()}).Extend(one) },
		"by hand":         func() { NewGate(Config{Methods: []Method{{Row: one.Row}}, Log: quiet()}) },
		"no log":          func() { NewGate(Config{Methods: []Method{one}}) },
		"no struct": func() {
			_ = Spec[string, string]{Row: one.Row, Handle: func(context.Context, caller.Caller, string) (string, error) { return "", nil }}.Method()
		},
	} {
		if panics(f) == nil {
			t.Errorf("%s: the table was built", name)
		}
	}
	var none Method
	if panics(func() { none.check() }) == nil {
		t.Error("the zero method is sound")
	}
}

// G1, G2, A5: who may call what by which door, and nobody else.
func TestDoorsAndRoles(t *testing.T) {
	g := NewGate(Config{Log: quiet(), Methods: []Method{
		method("node.version", People, caller.Nobody), method("a.view", People|Tools, caller.Viewer), method("a.member", People, caller.Member),
		method("a.own", People|Tools, caller.Owner), method("a.tools", Tools, caller.Viewer), method("a.peers", Tools|Peers, caller.Viewer),
		method("a.only", Peers, caller.Viewer),
	}})
	everyone := map[string]caller.Caller{"nobody": {}, "stranger": stranger, "viewer": viewer, "member": member, "owner": owner, "peer": friend,
		"narrowed": owner.Narrow(caller.Nobody), "narrow-peer": friend.Narrow(caller.Owner)}
	for name, allowed := range map[string]string{
		"node.version People": "nobody stranger viewer member owner narrowed",
		"node.version Tools":  "",
		"a.view People":       "viewer member owner",
		"a.view Tools":        "viewer member owner",
		"a.member People":     "member owner",
		"a.member Tools":      "",
		"a.own People":        "owner",
		"a.own Tools":         "owner",
		"a.tools People":      "",
		"a.tools Tools":       "viewer member owner",
		"a.peers Tools":       "viewer member owner peer narrow-peer",
		"a.peers People":      "",
		"a.peers Peers":       "viewer member owner",
		"a.only Tools":        "",
		"a.only People":       "",
		"a.view Peers":        "", "a.view None": "", "node.version None": "", "a.peers None": "",
	} {
		methodName, doorName, _ := strings.Cut(name, " ")
		door := map[string]Doors{"People": People, "Tools": Tools, "Peers": Peers, "None": 0}[doorName]
		for who, c := range everyone {
			want := fault.Forbidden
			if slices.Contains(strings.Fields(allowed), who) {
				want = ""
			}
			result, err := g.Call(t.Context(), c, door, methodName, nil, nil)
			if code(err) != want {
				t.Errorf("%s by %s: %v", name, who, err)
			}
			if err == nil && result != c.String() {
				t.Errorf("%s by %s ran as %v", name, who, result)
			}
		}
	}
	for _, name := range []string{"", "a", "a.View", "a.view ", "A.VIEW", "a.none", "assistant.chat", strings.Repeat("x", 1000), "a\x1b[2J.b", "\xff", "node.version\x00"} {
		_, err := g.Call(t.Context(), owner, People, name, nil, nil)
		if code(err) != fault.UnknownMethod || len(fault.Of(err).Public) > 200 || strings.ContainsAny(fault.Of(err).Public, "\x1b\x00\xff") {
			t.Errorf("%.20q: %v", name, err)
		}
	}
	if got := OpenMethods(); !slices.Equal(got, []string{"auth.login", "auth.setup", "node.version"}) {
		t.Errorf("open without a session: %v", got)
	}
}

// T2, G1: the order is method, door and role, rate, parameters, rule; nothing runs before all have passed.
func TestOrder(t *testing.T) {
	var ran, ruled atomic.Int64
	s := spec()
	s.Rates = []Rate{{Max: 1, Window: time.Minute}}
	s.Rule = func(context.Context, caller.Caller, echo) error {
		ruled.Add(1)
		return fault.New(fault.Rule, "no such app")
	}
	s.Handle = func(context.Context, caller.Caller, echo) (echo, error) { ran.Add(1); return echo{}, nil }
	g := NewGate(Config{Methods: []Method{s.Method()}, Log: quiet()})
	for i, tc := range []struct {
		c    caller.Caller
		raw  string
		want fault.Code
	}{
		{viewer, `{"bad":1}`, fault.Forbidden}, // and it counts against nobody's rate
		{viewer, `{"app":"x"}`, fault.Forbidden},
		{member, `{"bad":1}`, fault.InvalidParams},
		{member, `{"app":"x"}`, fault.RateLimited},
		{member, `{"bad":1}`, fault.RateLimited},
		{owner, `{"app":"x"}`, fault.Rule},
	} {
		if _, err := g.Call(t.Context(), tc.c, People, "apps.stop", jsontext.Value(tc.raw), nil); code(err) != tc.want {
			t.Errorf("call %d: %v, want %s", i, err, tc.want)
		}
	}
	if ran.Load() != 0 || ruled.Load() != 1 {
		t.Errorf("the handler ran %d times, the rule %d", ran.Load(), ruled.Load())
	}
	g = NewGate(Config{Methods: []Method{spec().Method()}, Log: quiet()})
	for _, raw := range []string{``, `{}`, `{"app":""}`, `{"app":null}`, `{"n":1}`} {
		if _, err := g.Call(t.Context(), member, People, "apps.stop", jsontext.Value(raw), nil); code(err) != fault.InvalidParams || fault.Of(err).Field != "app" {
			t.Errorf("%s: %v", raw, err)
		}
	}
}

// F-A2, F-A3: what was prepared is checked again as the caller is now, on the bytes that were approved, and not counted.
func TestAgain(t *testing.T) {
	gone := false
	s := spec()
	s.Rates = []Rate{{Max: 1, Window: time.Hour}}
	s.Resolve = func(_ context.Context, _ caller.Caller, p *echo) error {
		p.App = "full:" + strings.TrimPrefix(p.App, "full:")
		return nil
	}
	s.Rule = func(context.Context, caller.Caller, echo) error {
		if gone {
			return fault.New(fault.Rule, "no such app")
		}
		return nil
	}
	g := NewGate(Config{Methods: []Method{s.Method()}, Log: quiet()})
	p, err := g.Prepare(t.Context(), member, Tools, "apps.stop", jsontext.Value(`{"n":9007199254740993,"app":"x"}`))
	if err != nil || string(p.Canonical()) != `{"app":"full:x","n":9007199254740993}` {
		t.Fatalf("%v, %v", p, err)
	}
	again, err := p.Again(t.Context(), member)
	if err != nil || !bytes.Equal(again.Canonical(), p.Canonical()) {
		t.Fatalf("%v", err)
	}
	if got, err := again.Run(t.Context(), nil); err != nil || got != (echo{"full:x", 9007199254740993}) {
		t.Errorf("%+v, %v", got, err)
	}
	for name, c := range map[string]caller.Caller{"narrowed": member.Narrow(caller.Viewer), "viewer": viewer, "nobody": {}, "peer": friend} {
		if next, err := p.Again(t.Context(), c); code(err) != fault.Forbidden || next != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	gone = true
	if _, err := p.Again(t.Context(), member); code(err) != fault.Rule {
		t.Errorf("the app went: %v", err)
	}
}

// G4: exact windows by session, account and address; the soft mark speaks once before the hard one refuses.
func TestRates(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var soft []string
	g := NewGate(Config{Log: quiet(), Now: func() time.Time { return now },
		OnSoft: func(c caller.Caller, row Row, r Rate) { soft = append(soft, fmt.Sprint(c, row.Name, r.Soft)) },
		Methods: []Method{
			method("a.session", People, caller.Viewer, Rate{Max: 4, Window: time.Minute, Soft: 2}, Rate{Max: 6, Window: time.Minute, By: ByAccount}),
			method("auth.login", People, caller.Nobody, Rate{Max: 2, Window: time.Minute, By: ByAddress}),
			method("a.peers", Tools|Peers, caller.Viewer, Rate{Max: 2, Window: time.Minute}),
		}})
	call := func(c caller.Caller, door Doors, name string) *fault.Error {
		_, err := g.Call(t.Context(), c, door, name, nil, nil)
		return fault.Of(err)
	}
	times := func(want int, c caller.Caller, door Doors, name string) {
		t.Helper()
		for i := range want {
			if err := call(c, door, name); err != nil {
				t.Fatalf("call %d: %v", i+1, err)
			}
		}
		err := call(c, door, name)
		if err == nil || err.Code != fault.RateLimited || err.RetryAfter <= 0 || err.RetryAfter > time.Minute+time.Second {
			t.Fatalf("after %d calls: %v", want, err)
		}
		if Status(err) != 429 || ErrorObject(err).Data.RetryAfterS < 1 {
			t.Errorf("on the wire: %+v", ErrorObject(err))
		}
	}
	second := caller.Operator(1, "vic", caller.Viewer, "v2", "10.0.0.1")
	times(4, viewer, People, "a.session")
	times(2, second, People, "a.session")                                                     // a new session does not start the account afresh (F-F6)
	times(4, caller.Operator(9, "vic", caller.Viewer, "v3", "10.0.0.1"), People, "a.session") // another account does
	if got := strings.Join(soft, " "); strings.Count(got, "a.session") != 3 || strings.Count(got, "vic") != 3 {
		t.Errorf("soft marks: %s", got)
	}
	times(2, stranger, People, "auth.login")
	times(2, caller.Stranger("10.0.0.8"), People, "auth.login")
	times(2, friend, Tools, "a.peers")
	times(2, caller.Peer("other", "owner"), Tools, "a.peers")
	now = now.Add(time.Minute + time.Second) // the limiter may round a wait up
	g.Sweep()
	times(4, viewer, People, "a.session")
	wider := g.Extend(method("b.more", People, caller.Viewer))
	if _, err := wider.Call(t.Context(), viewer, People, "a.session", nil, nil); code(err) != fault.RateLimited {
		t.Errorf("the wider gate counts anew: %v", err)
	}
	if _, err := wider.Call(t.Context(), viewer, People, "b.more", nil, nil); err != nil {
		t.Error(err)
	}
	if _, ok := g.Row("b.more"); ok || slices.Contains(g.Names(), "b.more") || !slices.Equal(wider.Names(), []string{"a.peers", "a.session", "auth.login", "b.more"}) {
		t.Errorf("the narrower gate grew: %v", g.Names())
	}
}

// F-D15, N3: a panic anywhere in a method becomes Failed, takes nothing down, and its value is in no word and no log.
func TestPanics(t *testing.T) {
	const canary = "canary-5ec4e7"
	boom := func() { panic(errors.New(canary)) }
	for name, spoil := range map[string]func(*Spec[echo, echo]){
		"handler": func(s *Spec[echo, echo]) {
			s.Handle = func(context.Context, caller.Caller, echo) (echo, error) { boom(); return echo{}, nil }
		},
		"text": func(s *Spec[echo, echo]) {
			s.Handle = func(context.Context, caller.Caller, echo) (echo, error) { panic(canary) }
		},
		"nil map": func(s *Spec[echo, echo]) {
			s.Handle = func(context.Context, caller.Caller, echo) (echo, error) {
				var m map[string]int
				m[canary] = 1
				return echo{}, nil
			}
		},
		"stream": func(s *Spec[echo, echo]) {
			s.Handle, s.Stream = nil, func(context.Context, caller.Caller, echo, Emit) (echo, error) { boom(); return echo{}, nil }
		},
		"rule": func(s *Spec[echo, echo]) {
			s.Rule = func(context.Context, caller.Caller, echo) error { boom(); return nil }
		},
		"resolve": func(s *Spec[echo, echo]) {
			s.Resolve = func(context.Context, caller.Caller, *echo) error { boom(); return nil }
		},
	} {
		var log bytes.Buffer
		var recorded []fault.Code
		s := spec()
		spoil(&s)
		g := NewGate(Config{Methods: []Method{s.Method()}, Log: slog.New(slog.NewTextHandler(&log, nil)),
			Record: func(_ context.Context, _ caller.Caller, _ Row, err error) { recorded = append(recorded, code(err)) }})
		var err error
		if said := panics(func() {
			_, err = g.Call(t.Context(), member, People, "apps.stop", jsontext.Value(`{"app":"`+canary+`"}`), nil)
		}); said != nil {
			t.Errorf("%s: the panic came through: %v", name, said)
			continue
		}
		if code(err) != fault.Failed || strings.Contains(err.Error(), canary) || strings.Contains(string(ErrorBytes(nil, err)), canary) {
			t.Errorf("%s: %v", name, err)
		}
		if !strings.Contains(log.String(), "apps.stop") || strings.Contains(log.String(), canary) {
			t.Errorf("%s: the log says %s", name, log.String())
		}
		if want := name != "rule" && name != "resolve"; want != slices.Contains(recorded, fault.Failed) {
			t.Errorf("%s: recorded %v", name, recorded)
		}
	}
	s := spec()
	s.Preview = func(context.Context, caller.Caller, echo) (Preview, error) { boom(); return Preview{}, nil }
	g := NewGate(Config{Methods: []Method{s.Method(), method("a.view", People|Tools, caller.Viewer)}, Log: quiet()})
	if _, err := g.Prepare(t.Context(), member, Tools, "apps.stop", jsontext.Value(`{"app":"x"}`)); code(err) != fault.Failed {
		t.Errorf("preview: %v", err)
	}
	p, err := g.Prepare(t.Context(), member, Tools, "a.view", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Preview(); code(err) != fault.Failed {
		t.Errorf("a read has a preview: %v", err)
	}
}

// N2: what a person changed is recorded, with how it ended and though the client left; reads, quiet rows and the
// assistant's calls, which the choke point records, are not.
func TestRecord(t *testing.T) {
	var got []string
	write := func(name string, effect Effect, quietRow bool, err error) Method {
		s := spec()
		s.Name, s.Effect, s.Quiet = name, effect, quietRow
		s.Handle = func(context.Context, caller.Caller, echo) (echo, error) { return echo{}, err }
		return s.Method()
	}
	g := NewGate(Config{Log: quiet(), Methods: []Method{write("a.read", Read, false, nil), write("a.write", Write, false, nil), write("a.destroy", Destroy, false, nil),
		write("a.quiet", Write, true, nil), write("a.fail", Write, false, fault.New(fault.Unavailable, "x"))},
		Record: func(ctx context.Context, c caller.Caller, row Row, err error) {
			got = append(got, fmt.Sprintf("%s %s %s %v", c, row.Name, code(err), ctx.Err()))
		}})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, name := range g.Names() {
		for _, door := range []Doors{People, Tools} {
			_, _ = g.Call(ctx, member, door, name, jsontext.Value(`{"app":"x"}`), nil)
		}
		_, _ = g.Call(ctx, viewer, People, name, jsontext.Value(`{"app":"x"}`), nil) // refused before it ran
	}
	want := []string{"operator:mia a.destroy  <nil>", "operator:mia a.fail unavailable <nil>", "operator:mia a.write  <nil>"}
	if !slices.Equal(got, want) {
		t.Errorf("recorded %q", got)
	}
}

// G3: the same row and handler, by whichever door; the handler learns the caller and not the door.
func TestStream(t *testing.T) {
	s := Spec[None, int]{Row: Row{Name: "a.stream", Summary: "x", Effect: Read, Doors: People | Tools, Role: caller.Viewer},
		Stream: func(_ context.Context, _ caller.Caller, _ None, emit Emit) (int, error) {
			return 7, errors.Join(emit("one", 1), emit("two", 2))
		}}
	g := NewGate(Config{Methods: []Method{s.Method()}, Log: quiet()})
	p, err := g.Prepare(t.Context(), viewer, Tools, "a.stream", nil)
	if err != nil || !p.Streams() || p.Row().Name != "a.stream" {
		t.Fatal(err)
	}
	if got, err := p.Run(t.Context(), nil); err != nil || got != 7 {
		t.Errorf("without a listener: %v, %v", got, err)
	}
	full := errors.New("full")
	if _, err := p.Run(t.Context(), func(string, any) error { return full }); !errors.Is(err, full) {
		t.Errorf("a listener that left: %v", err)
	}
}

// The gate holds for many callers at once, and its limits are exact then too.
func TestConcurrent(t *testing.T) {
	g := NewGate(Config{Log: quiet(), Methods: []Method{method("a.view", People, caller.Viewer, Rate{Max: 50, Window: time.Hour, By: ByAccount})}})
	var passed atomic.Int64
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 50 {
				if _, err := g.Call(t.Context(), viewer, People, "a.view", nil, nil); err == nil {
					passed.Add(1)
				}
				g.Sweep()
			}
		})
	}
	wg.Wait()
	if passed.Load() != 50 {
		t.Errorf("%d calls passed", passed.Load())
	}
}
