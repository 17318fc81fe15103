// Package rpc is the node's one surface: the table of methods, the gate in front of it, strict JSON and the JSON-RPC
// wire. It knows no product noun: each room says in its rows what they are, and the gate holds them to it.
package rpc

import (
	"context"
	"fmt"
	"reflect"
	"regexp"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"atoll/internal/caller"
)

// Effect is the most a method can do. The zero effect is no effect at all and is refused when the table is built.
type Effect uint8

// Effects in rising order. Destroy is what runs for the assistant only after a person confirmed it.
const (
	Read Effect = iota + 1
	Write
	Destroy
)

func (e Effect) String() string { return [...]string{"none", "read", "write", "destroy"}[min(e, 3)] }

// Doors is the set of ways in that a method accepts. The zero set is closed.
type Doors uint8

// The doors: a person's session, the choke point on behalf of a caller, on top of Tools a peer's chat, and a peer's
// request that an owner must have approved (M3). Asked is for peers alone and on rows that destroy alone; what came by it
// does not run before Approve.
const (
	People Doors = 1 << iota
	Tools
	Peers
	Asked
)

// By says what a rate counts.
type By uint8

// What a rate can count. BySession is the default; methods before login count ByAddress.
const (
	BySession By = iota
	ByAccount
	ByAddress
)

// Rate is an exact sliding window: Max calls in Window. The zero Rate means DefaultRate.
type Rate struct {
	Max    int
	Window time.Duration
	Soft   int // calls in Window after which Config.OnSoft is told, once a window; zero means never
	By     By
}

// DefaultRate bounds methods that set none: far above what a person or an interface does, low enough to stop a loop.
var DefaultRate = Rate{Max: 1200, Window: time.Minute}

// Row is what a method says about itself.
type Row struct {
	Name    string
	Summary string // one sentence for rpc.discover and help texts
	Effect  Effect
	Doors   Doors
	Role    caller.Role // the lowest role that may call; Nobody only together with Open
	Open    bool        // needs no session; the gate holds the closed list of such methods
	Rates   []Rate      // all must allow; empty means DefaultRate
	// Facts declares that the result's values are plain facts; each value is still checked (fence.Facts). Without it
	// the whole result is outside text.
	Facts bool
	// Timeout bounds one run; zero means DefaultTimeout.
	Timeout time.Duration
	// StreamOnly rows refuse a client that takes no stream: without it they would say nothing until their end.
	StreamOnly bool
	// Quiet rows change only the caller's own things (a conversation's title) and leave no record of their own.
	Quiet bool
}

// DefaultTimeout bounds a handler whose row sets none.
const DefaultTimeout = 30 * time.Second

// Preview is what a destructive method would do, in words for the person who decides (C7).
type Preview struct {
	Target string // what it acts on, as the person knows it
	Before string // the state now
	After  string // the state asked for
	// Fingerprint identifies the target beyond its state (definition, image, unit): approval holds for this target only.
	Fingerprint string
	// Warning says what else the action takes down, in the node's own words; may be empty.
	Warning string
}

// Emit sends one event of a streaming method.
type Emit func(event string, data any) error

// Spec builds a Method with typed parameters and result. P is a struct whose JSON names are the parameters; a field
// tagged `rpc:"required"` must be there and not be empty.
type Spec[P, R any] struct {
	Row
	// Resolve rewrites parameters to their canonical form (a short name to the full one) before anything is keyed. What was
	// approved is in that form and is not resolved again.
	Resolve func(context.Context, caller.Caller, *P) error
	// Rule refuses a call that could not succeed; nobody is asked about such a call.
	Rule func(context.Context, caller.Caller, P) error
	// Preview is required where Effect is Destroy. It is made just before Rule judges, and not by the people's door, where
	// nobody is asked.
	Preview func(context.Context, caller.Caller, P) (Preview, error)
	// Handle does the work. Exactly one of Handle and Stream is set.
	Handle func(context.Context, caller.Caller, P) (R, error)
	Stream func(context.Context, caller.Caller, P, Emit) (R, error)
}

// Method is one row of the table with its behaviour, types erased.
type Method struct {
	Row
	params  reflect.Type
	result  reflect.Type
	streams bool
	decode  func(jsontext.Value) (any, error)
	resolve func(context.Context, caller.Caller, any) error
	rule    func(context.Context, caller.Caller, any) error
	preview func(context.Context, caller.Caller, any) (Preview, error)
	run     func(context.Context, caller.Caller, any, Emit) (any, error)
}

// Method erases the types. It panics where the spec contradicts itself: that is a programmer's mistake.
func (s Spec[P, R]) Method() Method {
	pt := reflect.TypeFor[P]()
	if pt.Kind() != reflect.Struct {
		panic("rpc: " + s.Name + ": parameters must be a struct")
	}
	if (s.Handle == nil) == (s.Stream == nil) {
		panic("rpc: " + s.Name + ": exactly one of Handle and Stream")
	}
	required := requiredFields(pt)
	m := Method{Row: s.Row, params: pt, result: reflect.TypeFor[R](), streams: s.Stream != nil}
	m.decode = func(raw jsontext.Value) (any, error) {
		p := new(P)
		if err := Decode(raw, p); err != nil {
			return nil, err
		}
		if err := checkRequired(reflect.ValueOf(p).Elem(), required); err != nil {
			return nil, err
		}
		return p, nil
	}
	if s.Resolve != nil {
		m.resolve = func(ctx context.Context, c caller.Caller, p any) error { return s.Resolve(ctx, c, p.(*P)) }
	}
	if s.Rule != nil {
		m.rule = func(ctx context.Context, c caller.Caller, p any) error { return s.Rule(ctx, c, *p.(*P)) }
	}
	if s.Preview != nil {
		m.preview = func(ctx context.Context, c caller.Caller, p any) (Preview, error) {
			return s.Preview(ctx, c, *p.(*P))
		}
	}
	m.run = func(ctx context.Context, c caller.Caller, p any, emit Emit) (any, error) {
		if s.Stream != nil {
			return s.Stream(ctx, c, *p.(*P), emit)
		}
		return s.Handle(ctx, c, *p.(*P))
	}
	return m
}

// None is the parameter type of methods that take none.
type None struct{}

var nameShape = regexp.MustCompile(`^[a-z]+\.[a-z]+(-[a-z]+)*$`)

// check panics on a blank or a contradiction in a row.
func (m Method) check() {
	bad := func(format string, args ...any) { panic("rpc: method " + m.Name + ": " + fmt.Sprintf(format, args...)) }
	switch {
	case !nameShape.MatchString(m.Name):
		bad("name must look like noun.verb-words")
	case m.Summary == "":
		bad("no summary")
	case m.Effect < Read || m.Effect > Destroy:
		bad("no effect")
	case m.Doors == 0:
		bad("no door")
	case m.Open != (m.Role == caller.Nobody):
		bad("a role is needed, or Open, not both")
	case m.Open && m.Doors != People:
		bad("an open method has people's door only")
	case m.Effect == Destroy && m.preview == nil:
		bad("a destroying method needs a preview")
	case m.Doors&Peers != 0 && m.Effect != Read:
		bad("peers only read")
	case m.Doors&Asked != 0 && (m.Effect != Destroy || m.Doors&Tools == 0):
		bad("a peer's request is for a tool that destroys")
	case m.StreamOnly && !m.streams:
		bad("stream only, and it streams nothing")
	case m.Timeout < 0 || m.run == nil:
		bad("not built by Spec.Method")
	}
	for _, r := range m.Rates {
		if r.Max <= 0 || r.Window <= 0 || r.Soft < 0 || r.Soft >= r.Max {
			bad("bad rate %+v", r)
		}
	}
}
