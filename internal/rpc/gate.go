package rpc

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"atoll/internal/caller"
	"atoll/internal/fault"
	"atoll/internal/limit"
)

// openMethods is the closed list of what needs no session (G1).
var openMethods = [...]string{"auth.login", "auth.setup", "node.version"}

// OpenMethods lists what may be called without a session.
func OpenMethods() []string { return slices.Clone(openMethods[:]) }

// maxLimiterKeys bounds every rate's table of keys (G4).
const maxLimiterKeys = 100_000

// Config is what a gate needs.
type Config struct {
	Methods []Method
	Log     *slog.Logger
	Now     func() time.Time // nil means time.Now
	// OnSoft is told once a window when a caller crosses a row's soft mark. It must not block.
	OnSoft func(c caller.Caller, row Row, r Rate)
	// Record is told the outcome of every Write and Destroy call that came by the people's door (N2). err is nil for
	// success.
	Record func(ctx context.Context, c caller.Caller, row Row, err error)
}

type entry struct {
	Method
	limits []*limit.Limiter
	rates  []Rate
}

// Gate is the one way to a handler. It is immutable once built and safe for concurrent use.
type Gate struct {
	cfg     Config
	entries map[string]*entry
	names   []string
}

// NewGate builds the table. It panics on a blank, doubled or contradictory row: those are programmer's mistakes.
func NewGate(cfg Config) *Gate {
	if cfg.Log == nil {
		panic("rpc: a gate needs a log")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	g := &Gate{cfg: cfg, entries: map[string]*entry{}}
	g.add(cfg.Methods)
	return g
}

// Extend returns a gate with more methods. Methods that both hold share their limits.
func (g *Gate) Extend(methods ...Method) *Gate {
	wider := &Gate{cfg: g.cfg, entries: map[string]*entry{}}
	for name, e := range g.entries {
		wider.entries[name] = e
	}
	wider.names = slices.Clone(g.names)
	wider.add(methods)
	return wider
}

func (g *Gate) add(methods []Method) {
	for _, m := range methods {
		m.check()
		if g.entries[m.Name] != nil {
			panic("rpc: method " + m.Name + " is there twice")
		}
		if m.Open != slices.Contains(openMethods[:], m.Name) {
			panic("rpc: method " + m.Name + " is not on the list of open methods, or should be")
		}
		e := &entry{Method: m, rates: m.Rates}
		if len(e.rates) == 0 {
			e.rates = []Rate{DefaultRate}
		}
		for _, r := range e.rates {
			l, err := limit.New(limit.Config{Max: r.Max, Window: r.Window, Soft: r.Soft, MaxKeys: maxLimiterKeys, Now: g.cfg.Now})
			if err != nil {
				panic(fmt.Sprintf("rpc: method %s: %v", m.Name, err))
			}
			e.limits = append(e.limits, l)
		}
		g.entries[m.Name] = e
		g.names = append(g.names, m.Name)
	}
	slices.Sort(g.names)
}

// Names lists the methods, sorted.
func (g *Gate) Names() []string { return slices.Clone(g.names) }

// Row returns what a method says about itself.
func (g *Gate) Row(name string) (Row, bool) {
	e, ok := g.entries[name]
	if !ok {
		return Row{}, false
	}
	return e.Row, true
}

// Sweep forgets idle limiter keys. The node calls it every five minutes (G4).
func (g *Gate) Sweep() {
	for _, e := range g.entries {
		for _, l := range e.limits {
			l.Sweep()
		}
	}
}

// Prepared is a call that passed the gate: door, role, rate, parameters, rule. It has not run.
type Prepared struct {
	gate      *Gate
	entry     *entry
	caller    caller.Caller
	door      Doors
	params    any
	canonical jsontext.Value
	preview   *Preview    // nil where nobody is asked
	approved  atomic.Bool // only for door Asked: one Run is left
}

// Prepare takes a call through the gate without running it. Refusals are *fault.Error: UnknownMethod, Forbidden,
// RateLimited, InvalidParams, Rule.
func (g *Gate) Prepare(ctx context.Context, c caller.Caller, door Doors, method string, params jsontext.Value) (*Prepared, error) {
	e, ok := g.entries[method]
	if !ok {
		return nil, fault.New(fault.UnknownMethod, "no method %q; rpc.discover lists them", cleanName(method))
	}
	if err := e.admits(c, door); err != nil {
		return nil, err
	}
	if err := g.count(c, e); err != nil {
		return nil, err
	}
	p := &Prepared{gate: g, entry: e, caller: c, door: door}
	if err := p.load(ctx, params); err != nil {
		return nil, err
	}
	return p, nil
}

// Again repeats door, role, parameters, rule and preview for a call prepared earlier, as the caller now is, on the
// canonical bytes that were approved: names in them are not resolved again. It is not counted against the rate again.
func (p *Prepared) Again(ctx context.Context, c caller.Caller) (*Prepared, error) {
	if err := p.entry.admits(c, p.door); err != nil {
		return nil, err
	}
	next := &Prepared{gate: p.gate, entry: p.entry, caller: c, door: p.door}
	if err := next.repeat(ctx, p.canonical); err != nil {
		return nil, err
	}
	return next, nil
}

func (p *Prepared) load(ctx context.Context, raw jsontext.Value) (err error) {
	defer p.recover(&err)
	if p.params, err = p.entry.decode(raw); err != nil {
		return err
	}
	if p.entry.resolve != nil {
		if err := p.entry.resolve(ctx, p.caller, p.params); err != nil {
			return err
		}
	}
	if err := p.judge(ctx); err != nil {
		return err
	}
	if p.entry.resolve == nil && len(raw) > 0 {
		p.canonical, err = Canonical(raw)
		return err
	}
	if p.canonical, err = Marshal(p.params); err == nil {
		p.canonical, err = Canonical(p.canonical)
	}
	return err
}

// repeat loads what an earlier load made.
func (p *Prepared) repeat(ctx context.Context, canonical jsontext.Value) (err error) {
	defer p.recover(&err)
	if p.params, err = p.entry.decode(canonical); err != nil {
		return err
	}
	p.canonical = canonical
	return p.judge(ctx)
}

// judge makes the preview, where somebody is asked, and refuses a call that could not succeed.
func (p *Prepared) judge(ctx context.Context) error {
	if p.entry.preview != nil && p.door != People {
		v, err := p.entry.preview(ctx, p.caller, p.params)
		if err != nil {
			return err
		}
		p.preview = &v
	}
	if p.entry.rule != nil {
		return p.entry.rule(ctx, p.caller, p.params)
	}
	return nil
}

// admits checks the door and the role. Rows without Peers are closed to a peer whatever door it came by; Asked lets it in
// only as far as the question to the owner.
func (e *entry) admits(c caller.Caller, door Doors) error {
	no := func() error {
		return fault.New(fault.Forbidden, "%s needs the role %s", e.Name, e.Role).ForModel("this caller may not do that")
	}
	switch {
	case e.Doors&door == 0 || door == 0:
		return fault.New(fault.Forbidden, "%s cannot be called this way", e.Name)
	case door == Asked:
		if !c.IsPeer() {
			return no()
		}
		return nil
	case c.IsPeer():
		if door != Tools || e.Doors&Peers == 0 {
			return no()
		}
		return nil
	case e.Open:
		return nil
	case !c.May(e.Role):
		return no()
	}
	return nil
}

func (g *Gate) count(c caller.Caller, e *entry) error {
	for i, l := range e.limits {
		r := e.rates[i]
		d := l.Allow(rateKey(c, r.By))
		if d.Soft && g.cfg.OnSoft != nil {
			g.cfg.OnSoft(c, e.Row, r)
		}
		if !d.OK {
			return fault.New(fault.RateLimited, "too many calls of %s; wait %s", e.Name, roundUp(d.RetryAfter)).After(d.RetryAfter)
		}
	}
	return nil
}

func rateKey(c caller.Caller, by By) string {
	switch {
	case c.IsPeer():
		return c.Key()
	case by == ByAddress || !c.IsOperator():
		return c.Address()
	case by == ByAccount:
		return c.Key()
	}
	return c.Session()
}

func roundUp(d time.Duration) time.Duration {
	return (d + time.Second - 1).Truncate(time.Second)
}

// Row is the row of the prepared call.
func (p *Prepared) Row() Row { return p.entry.Row }

// Canonical is the canonical JSON of the resolved parameters.
func (p *Prepared) Canonical() jsontext.Value { return p.canonical }

// Streams reports whether the method sends events while it runs.
func (p *Prepared) Streams() bool { return p.entry.streams }

// Preview is what the call would do, as things stood when it was prepared. Only rows with Effect Destroy have one, and not
// by the people's door.
func (p *Prepared) Preview() (Preview, error) {
	if p.preview == nil {
		return Preview{}, fault.New(fault.Failed, "%s has no preview", p.entry.Name)
	}
	return *p.preview, nil
}

// Approval is a person's decision on one exact call. confirm's Ticket is the one implementation; a test walks the tree
// for it.
type Approval interface {
	// Redeem reports, once, whether the approval was given to this caller for exactly this call, and was spent.
	Redeem(c caller.Caller, method string, canonical jsontext.Value) bool
}

// Approve lets a call that came by the door Asked run once, against a spent approval of an owner.
func (p *Prepared) Approve(a Approval) error {
	if p.door != Asked || a == nil || !a.Redeem(p.caller, p.entry.Name, p.canonical) {
		return fault.New(fault.Forbidden, "%s was not approved for this caller", p.entry.Name)
	}
	p.approved.Store(true)
	return nil
}

// Run calls the handler. A panic in it becomes Failed. emit may be nil. A peer's request runs once, and only after
// Approve.
func (p *Prepared) Run(ctx context.Context, emit Emit) (result any, err error) {
	if p.door == Asked && !p.approved.CompareAndSwap(true, false) {
		return nil, fault.New(fault.Forbidden, "%s runs for another node only after an owner's approval", p.entry.Name)
	}
	if p.door == People && p.entry.Effect != Read && !p.entry.Quiet && p.gate.cfg.Record != nil {
		defer func() { p.gate.cfg.Record(context.WithoutCancel(ctx), p.caller, p.entry.Row, err) }()
	}
	defer p.recover(&err)
	if emit == nil {
		emit = func(string, any) error { return nil }
	}
	return p.entry.run(ctx, p.caller, p.params, emit)
}

func (p *Prepared) recover(err *error) {
	if r := recover(); r != nil {
		p.gate.cfg.Log.Error("a handler panicked", "method", p.entry.Name, "panic_type", fmt.Sprintf("%T", r), "stack", string(debug.Stack()))
		*err = fault.New(fault.Failed, "something went wrong inside the node; its log says what").Doing(p.entry.Name)
	}
}

// Call prepares and runs in one step.
func (g *Gate) Call(ctx context.Context, c caller.Caller, door Doors, method string, params jsontext.Value, emit Emit) (any, error) {
	p, err := g.Prepare(ctx, c, door, method, params)
	if err != nil {
		return nil, err
	}
	return p.Run(ctx, emit)
}

// cleanName makes a stranger's method name fit for an error text.
func cleanName(s string) string {
	if len(s) > 64 {
		s = s[:64]
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s)
}
