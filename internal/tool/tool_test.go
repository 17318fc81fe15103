package tool

import (
	"context"
	"crypto/ed25519"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"atoll/internal/audit"
	"atoll/internal/caller"
	"atoll/internal/clock"
	"atoll/internal/confirm"
	"atoll/internal/fault"
	"atoll/internal/fence"
	"atoll/internal/grant"
	"atoll/internal/model"
	"atoll/internal/rpc"
	"atoll/internal/store"
)

// bench is a choke point with everything real around it but the rooms, which count how often they were called.
type bench struct {
	t        testing.TB
	x        *Executor
	gate     *rpc.Gate
	grants   *grant.Room
	confirms *confirm.Room
	log      *audit.Log
	db       *store.DB
	rooms    *rooms
	owner    caller.Caller
	pub      ed25519.PublicKey

	mu        sync.Mutex // guards the rest
	wall      time.Time
	mono      time.Duration
	listening bool
	asking    map[string]bool
	ceiling   map[string][]grant.Category
	alive     func(caller.Caller) (caller.Caller, error)
	asked     chan confirm.Pending
	ended     chan confirm.Ended
	refused   []bool
	events    []Event
}

type rooms struct {
	mu        sync.Mutex // guards the rest
	calls     map[string]int
	callers   []caller.Caller
	state     map[string]string
	print     string // fingerprint of every app
	takesDown string // the warning of every preview
	rule      error  // of every app
	warn      jsonNumber
	logText   string
	hang      chan struct{}
	entered   chan struct{}
	fail      error
}

type jsonNumber = rawJSON

func (r *rooms) called(method string, c caller.Caller) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls[method]++
	if len(r.callers) < 8 { // a benchmark calls for long
		r.callers = append(r.callers, c)
	}
}

func (r *rooms) count(method string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.calls[method]
}

type appParams struct {
	App string `json:"app" rpc:"required"`
}

type appState struct {
	App   fence.Word `json:"app"`
	State fence.Word `json:"state"`
}

type text struct {
	Text string `json:"text"`
}

// methods are stand-ins for the rooms' rows, of the same names, effects and roles.
func (r *rooms) methods() []rpc.Method {
	read := func(name string, role caller.Role, facts bool, doors rpc.Doors) rpc.Method {
		return rpc.Spec[struct {
			Key    string `json:"key"`
			Path   string `json:"path"`
			Prefix string `json:"prefix"`
			Peer   string `json:"peer"`
		}, text]{Row: rpc.Row{Name: name, Summary: "x", Effect: rpc.Read, Doors: doors, Role: role, Facts: facts},
			Handle: func(ctx context.Context, c caller.Caller, p struct {
				Key    string `json:"key"`
				Path   string `json:"path"`
				Prefix string `json:"prefix"`
				Peer   string `json:"peer"`
			}) (text, error) {
				r.called(name, c)
				return text{}, nil
			}}.Method()
	}
	act := func(name, after string) rpc.Method {
		return rpc.Spec[appParams, appState]{
			Row: rpc.Row{Name: name, Summary: "x", Effect: rpc.Destroy, Doors: rpc.People | rpc.Tools | rpc.Asked, Role: caller.Member},
			Resolve: func(_ context.Context, _ caller.Caller, p *appParams) error {
				if p.App == "jelly" {
					p.App = "jellyfin"
				}
				return nil
			},
			Rule: func(_ context.Context, _ caller.Caller, p appParams) error {
				r.mu.Lock()
				defer r.mu.Unlock()
				if r.rule != nil {
					return r.rule
				}
				if r.state[p.App] == "" {
					return fault.New(fault.Rule, "there is no app %s", p.App).At("app")
				}
				return nil
			},
			Preview: func(_ context.Context, _ caller.Caller, p appParams) (rpc.Preview, error) {
				r.mu.Lock()
				defer r.mu.Unlock()
				return rpc.Preview{Target: p.App, Before: r.state[p.App], After: after, Fingerprint: r.print, Warning: r.takesDown}, nil
			},
			Handle: func(ctx context.Context, c caller.Caller, p appParams) (appState, error) {
				r.called(name, c)
				r.mu.Lock()
				hang, entered, fail := r.hang, r.entered, r.fail
				r.mu.Unlock()
				if hang != nil {
					close(entered)
					<-hang
				}
				if fail != nil {
					return appState{}, fail
				}
				r.mu.Lock()
				defer r.mu.Unlock()
				r.state[p.App] = after
				return appState{fence.Word(p.App), fence.Word(after)}, nil
			}}.Method()
	}
	logs := rpc.Spec[struct {
		App   string `json:"app" rpc:"required"`
		Lines int64  `json:"lines"`
	}, text]{Row: rpc.Row{Name: "apps.logs", Summary: "x", Effect: rpc.Read, Doors: rpc.People | rpc.Tools, Role: caller.Member},
		Handle: func(_ context.Context, c caller.Caller, p struct {
			App   string `json:"app" rpc:"required"`
			Lines int64  `json:"lines"`
		}) (text, error) {
			r.called("apps.logs", c)
			return text{r.logText}, nil
		}}.Method()
	set := rpc.Spec[struct {
		Key   string  `json:"key" rpc:"required"`
		Value rawJSON `json:"value" rpc:"required"`
	}, appState]{Row: rpc.Row{Name: "settings.set", Summary: "x", Effect: rpc.Destroy, Doors: rpc.People | rpc.Tools, Role: caller.Owner},
		Preview: func(_ context.Context, _ caller.Caller, p struct {
			Key   string  `json:"key" rpc:"required"`
			Value rawJSON `json:"value" rpc:"required"`
		}) (rpc.Preview, error) {
			return rpc.Preview{Target: p.Key, Before: string(r.warn), After: string(p.Value)}, nil
		},
		Handle: func(_ context.Context, c caller.Caller, p struct {
			Key   string  `json:"key" rpc:"required"`
			Value rawJSON `json:"value" rpc:"required"`
		}) (appState, error) {
			r.called("settings.set", c)
			r.warn = p.Value
			return appState{}, nil
		}}.Method()
	all := rpc.People | rpc.Tools
	return []rpc.Method{read("system.disk-status", caller.Viewer, true, all|rpc.Peers), read("system.info", caller.Viewer, true, all),
		read("apps.list", caller.Viewer, true, all), logs, read("content.list", caller.Viewer, false, all|rpc.Peers),
		read("files.list", caller.Owner, false, all), read("mesh.status", caller.Viewer, false, all),
		read("settings.get", caller.Viewer, true, all), read("wallet.status", caller.Owner, true, all),
		act("apps.start", "running"), act("apps.stop", "stopped"), act("apps.restart", "running"), set}
}

func newBench(t testing.TB) *bench {
	t.Helper()
	ctx := t.Context()
	b := &bench{t: t, wall: time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC), listening: true, asking: map[string]bool{},
		ceiling: map[string][]grant.Category{"friend": {grant.Content, grant.System, grant.Apps}}, asked: make(chan confirm.Pending, 64),
		ended: make(chan confirm.Ended, 64), owner: caller.Operator(1, "ada", caller.Owner, "s1", "127.0.0.1"),
		rooms: &rooms{calls: map[string]int{}, state: map[string]string{"jellyfin": "running", "photos": "exited"}, print: "v1", warn: rawJSON("90"), logText: "all is well"}}
	b.alive = func(c caller.Caller) (caller.Caller, error) { return c, nil }
	c := clock.New(func() time.Time { b.mu.Lock(); defer b.mu.Unlock(); return b.wall },
		func() time.Duration { b.mu.Lock(); defer b.mu.Unlock(); return b.mono })
	log := slog.New(slog.DiscardHandler)
	var err error
	must := func(err error) {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
	}
	b.db, err = store.Open(ctx, store.Config{Path: filepath.Join(t.TempDir(), "node.db"), Readers: 2, Schemas: []store.Schema{audit.Schema(), confirm.Schema()}})
	must(err)
	t.Cleanup(func() { _ = b.db.Close() }) // one test closes it first
	pub, key, err := ed25519.GenerateKey(nil)
	must(err)
	b.pub = pub
	b.log, err = audit.New(audit.Config{DB: b.db, Key: key, Now: c.Now})
	must(err)
	b.grants, err = grant.New(grant.Config{Path: filepath.Join(t.TempDir(), "assistant", "grants.json"), Clock: c, Log: log,
		Ceiling: func(peer string) []grant.Category { b.mu.Lock(); defer b.mu.Unlock(); return b.ceiling[peer] },
		Record:  func(ctx context.Context, e audit.Entry) error { return b.log.Append(ctx, store.Relaxed, e) }})
	must(err)
	b.confirms, _, err = confirm.New(ctx, confirm.Config{DB: b.db, Audit: b.log, Clock: c, Log: log,
		Listening: func(int64) bool { return b.listening },
		Asking:    func(peer string) bool { b.mu.Lock(); defer b.mu.Unlock(); return b.asking[peer] },
		Publish: func(name string, _ int64, data any) {
			switch v := data.(type) {
			case confirm.Pending:
				b.asked <- v
			case confirm.Ended:
				b.ended <- v
			}
		}})
	must(err)
	b.gate = rpc.NewGate(rpc.Config{Methods: b.rooms.methods(), Log: log, Now: c.Now}).Extend(append(b.grants.Methods(), b.confirms.Methods()...)...)
	b.x, err = New(Config{Tools: Registry(), Gate: b.gate, Grants: b.grants, Confirm: b.confirms, Audit: b.log, Clock: c, Log: log,
		Secret:  []byte("a secret of this node"),
		Alive:   func(_ context.Context, c caller.Caller) (caller.Caller, error) { return b.alive(c) },
		Refused: func(_ caller.Caller, _ grant.Category, untrusted bool) { b.refused = append(b.refused, untrusted) }})
	must(err)
	t.Cleanup(b.x.Close)
	return b
}

func (b *bench) advance(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wall, b.mono = b.wall.Add(d), b.mono+d
}

func (b *bench) setWall(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wall = b.wall.Add(d)
}

// rpc calls a method by the people's door as the owner, and returns the fault's code.
func (b *bench) rpc(c caller.Caller, method, params string) (any, fault.Code) {
	b.t.Helper()
	r, err := b.gate.Call(b.t.Context(), c, rpc.People, method, rawJSON(params), nil)
	if err != nil {
		return r, fault.Of(err).Code
	}
	return r, ""
}

func (b *bench) open(cats ...grant.Category) {
	b.t.Helper()
	for _, c := range cats {
		if _, code := b.rpc(b.owner, "assistant.grants-set", `{"grants":{"`+string(c)+`":{"granted":true}}}`); code != "" {
			b.t.Fatalf("opening %s: %s", c, code)
		}
	}
}

func (b *bench) begin(outside ...fence.Text) *Turn { return b.beginAs(b.owner, outside...) }

func (b *bench) beginAs(c caller.Caller, outside ...fence.Text) *Turn {
	return b.x.Begin(TurnConfig{Caller: c, Conversation: "c1", Outside: outside, Deadline: b.wall.Add(confirm.TurnTime),
		Notify: func(e Event) { b.events = append(b.events, e) }})
}

func call(name, args string) *model.Call {
	return &model.Call{ID: "x", Name: name, Args: []byte(args)}
}

// run takes calls through the turn in a goroutine of its own, so that the test can decide meanwhile. A question that nobody
// expected is cancelled in the end, so that the test says what is wrong instead of waiting for it.
func (b *bench) run(t *Turn, calls ...*model.Call) <-chan []model.Result {
	out := make(chan []model.Result, 1)
	go func() {
		ctx, cancel := context.WithTimeout(b.t.Context(), 10*time.Second)
		defer cancel()
		r, _ := t.Run(ctx, calls, false)
		out <- r
	}()
	return out
}

func (b *bench) pending() confirm.Pending {
	b.t.Helper()
	select {
	case p := <-b.asked:
		return p
	case <-time.After(10 * time.Second):
		b.t.Fatal("nobody was asked")
		return confirm.Pending{}
	}
}

func (b *bench) decide(p confirm.Pending, decision, more string) fault.Code {
	b.t.Helper()
	_, code := b.rpc(b.owner, "assistant.confirm", `{"nonce":"`+p.Nonce+`","action_key":"`+p.ActionKey+`","decision":"`+decision+`"`+more+`}`)
	return code
}

// approve lets the inert second pass and approves.
func (b *bench) approve(p confirm.Pending) {
	b.t.Helper()
	b.advance(confirm.Inert)
	if code := b.decide(p, "approve", ""); code != "" {
		b.t.Fatalf("approve: %s", code)
	}
}

func (b *bench) notAsked() {
	b.t.Helper()
	select {
	case p := <-b.asked:
		b.t.Fatalf("somebody was asked: %s", p.Summary)
	default:
	}
}

func codes(t *Turn) string {
	var out []string
	for _, o := range t.Outcomes() {
		s := o.Outcome
		if o.Code != "" {
			s += ":" + string(o.Code)
		}
		out = append(out, s)
	}
	return strings.Join(out, " ")
}

func (b *bench) records(event string) []audit.Record {
	b.t.Helper()
	all, err := b.log.List(b.t.Context(), audit.Filter{Limit: 1000})
	if err != nil {
		b.t.Fatal(err)
	}
	var out []audit.Record
	for _, r := range all {
		if r.Event == event {
			out = append(out, r)
		}
	}
	return out
}

func argument(t *testing.T, p confirm.Pending, name string) string {
	t.Helper()
	var args map[string]rawJSON
	if err := json.Unmarshal(p.Arguments, &args); err != nil {
		t.Fatal(err)
	}
	return string(args[name])
}
