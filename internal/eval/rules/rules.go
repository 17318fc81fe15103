// Package rules is the guard's contract as a small machine: what a node must answer, ask and run at each step of a history,
// written from the contract's rows alone. It shares no line with the product and imports none of it.
package rules

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Code is how a step, a call or a question ended; empty is well.
type Code string

// Tool is a line of the contract's table of tools.
type Tool struct {
	Name, Category       string
	Role                 int  // the lowest that may call its method (section 3)
	Destructive, Outside bool // Outside results are fenced (U1)
	Allowable            bool // C11
	Peers                bool // a peer may read it (M2), or ask for it (M3)
}

// Roles in rising order.
const (
	Viewer = iota + 1
	Member
	Owner
)

// Tools lists all 13 (T3).
func Tools() []Tool {
	return []Tool{
		{Name: "system_disk_status", Category: "system", Role: Viewer, Peers: true}, {Name: "system_info", Category: "system", Role: Viewer, Peers: true},
		{Name: "app_list", Category: "apps", Role: Viewer}, {Name: "app_logs", Category: "apps", Role: Member, Outside: true},
		{Name: "content_list", Category: "content", Role: Viewer, Outside: true, Peers: true}, {Name: "files_list", Category: "files", Role: Owner},
		{Name: "mesh_status", Category: "mesh", Role: Viewer, Outside: true, Peers: true}, {Name: "settings_get", Category: "settings", Role: Viewer},
		{Name: "wallet_status", Category: "wallet", Role: Owner},
		{Name: "app_start", Category: "apps", Role: Member, Destructive: true, Allowable: true, Peers: true},
		{Name: "app_stop", Category: "apps", Role: Member, Destructive: true, Peers: true},
		{Name: "app_restart", Category: "apps", Role: Member, Destructive: true, Allowable: true, Peers: true},
		{Name: "settings_set", Category: "settings", Role: Owner, Destructive: true},
	}
}

func find(name string) (Tool, bool) {
	all := Tools()
	i := slices.IndexFunc(all, func(t Tool) bool { return t.Name == name })
	if i < 0 {
		return Tool{}, false
	}
	return all[i], true
}

// Times and bounds of the contract.
const (
	pendingTime = 300 * time.Second // C4, C9
	turnTime    = 400 * time.Second
	peerTime    = 120 * time.Second // a peer's turn; the contract leaves it open
	margin      = 10 * time.Second
	inert       = time.Second
	handlerTime = 31 * time.Second // until a silent handler's outcome is unknown: 30 s and one of grace
	muteTime    = 24 * time.Hour   // M3
	keptTime    = 24 * time.Hour   // how long an ended question and an unknown outcome are remembered
	setBack     = 2 * time.Second  // what may be a correction of the clock, not a change
	maxRounds   = 8
)

// Span is a time that is over when the wall's clock or the one that only runs forward says so, or when the wall's was set
// back meanwhile (C4).
type Span struct {
	start, drift, length time.Duration
	since, until         time.Duration // by the wall's clock, as they are written down
}

// Grant is one open category; a zero Span's length is for good.
type Grant struct{ Span Span }

// Permission lets one action of one account pass (C11).
type Permission struct {
	Who, Key string
	print    int
	span     Span
	uses     []time.Duration // by the wall's clock
}

// App is a target: its state, and what else would make it another one.
type App struct {
	State string
	Print int
}

// Durable is what a node still knows after kill -9, and the world around it.
type Durable struct {
	Mode     string
	Grants   map[string]Grant
	Roles    map[string]int
	Sessions map[string]bool
	Permits  []Permission
	Mutes    map[string]Span
	Unknown  map[string]time.Duration // actions whose outcome was not seen (T14)
	Apps     map[string]App
	Theme    string
	Ran      map[string]int // how often each handler was entered, by action
}

// Copy keeps a Durable as it is now.
func (d Durable) Copy() Durable {
	d.Grants, d.Roles, d.Sessions, d.Mutes = maps.Clone(d.Grants), maps.Clone(d.Roles), maps.Clone(d.Sessions), maps.Clone(d.Mutes)
	d.Unknown, d.Apps, d.Ran, d.Permits = maps.Clone(d.Unknown), maps.Clone(d.Apps), maps.Clone(d.Ran), slices.Clone(d.Permits)
	return d
}

// Pending is a question, of any state.
type Pending struct {
	Tool, Key, Before             string
	Untrusted, MayAllow, MaybeRan bool
	State                         Code // "waiting", "approved", or how it ended; "gone" after a crash

	turn  *Turn
	who   string // the account; empty for a peer's
	span  Span
	print int
	allow time.Duration
	ended time.Duration
}

// String is what people are shown of it.
func (p Pending) String() string {
	return fmt.Sprintf("%s, before %q, untrusted %v, may allow %v, maybe ran %v", p.Key, p.Before, p.Untrusted, p.MayAllow, p.MaybeRan)
}

type conversation struct {
	outside []bool // of each turn: whether it holds third parties' text (U3)
	touched map[string]bool
	offered map[string]bool
	running *Turn
}

// World is the machine. Steps are its methods.
type World struct {
	Durable
	Questions []*Pending // all, in the order they were asked

	now, drift time.Duration
	listening  map[string]bool // sessions with an open stream
	ceilings   map[string]map[string]bool
	asking     map[string]bool
	handler    string // "", "fail" or "hang"
	turns      []*Turn
	talks      map[string]*conversation
	chats      map[string][]time.Duration
}

// New is the world at the start: four people with two sessions each and open streams, two peers who may nothing, two apps,
// everything closed (A1).
func New() *World {
	w := &World{Durable: Durable{Mode: "confirm", Grants: map[string]Grant{}, Roles: map[string]int{"ada": Owner, "mel": Member, "max": Member, "vic": Viewer},
		Sessions: map[string]bool{}, Mutes: map[string]Span{}, Unknown: map[string]time.Duration{},
		Apps:  map[string]App{"jellyfin": {State: "running"}, "photos": {State: "exited"}},
		Theme: "auto", Ran: map[string]int{}},
		listening: map[string]bool{}, ceilings: map[string]map[string]bool{}, asking: map[string]bool{}, talks: map[string]*conversation{},
		chats: map[string][]time.Duration{}}
	for who := range w.Roles {
		for _, n := range []string{"1", "2"} {
			w.Sessions[who+n], w.listening[who+n] = true, true
		}
	}
	return w
}

func person(session string) string { return strings.TrimRight(session, "0123456789") }

func (w *World) wall() time.Duration { return w.now + w.drift }

func (w *World) span(d time.Duration) Span {
	return Span{start: w.now, drift: w.drift, length: d, since: w.wall(), until: w.wall() + d}
}

func (w *World) over(s Span) bool {
	age, moved := w.now-s.start, w.drift-s.drift
	return age >= s.length || age+moved >= s.length || moved < -setBack
}

func (w *World) granted(cat string) bool {
	g, ok := w.Grants[cat]
	return ok && (g.Span.length == 0 || !w.over(g.Span))
}

// open is A1 and A5: the owner's live grant, and for a peer its ceiling too.
func (w *World) open(t *Turn, cat string) bool {
	return w.granted(cat) && (!t.Peer || w.ceilings[t.Who][cat])
}

// Settled closes for good what is over: it never opens again, whatever is done to the clock (C4).
func (w *World) Settled() {
	for cat := range w.Grants {
		if !w.granted(cat) {
			delete(w.Grants, cat)
		}
	}
	w.dropPermits(func(p Permission) bool { return w.over(p.span) })
}

func (w *World) dropPermits(which func(Permission) bool) {
	w.Permits = slices.DeleteFunc(w.Permits, which)
}

// may is the gate in front of people's methods: a live session, then the role (G1).
func (w *World) may(session string, role int) Code {
	switch {
	case !w.Sessions[session]:
		return "unauthenticated"
	case w.Roles[person(session)] < role:
		return "forbidden"
	}
	return ""
}

// SetGrant opens a category for a time, for good with zero, or closes it (A2).
func (w *World) SetGrant(session, cat string, open bool, d time.Duration) Code {
	if code := w.may(session, Owner); code != "" {
		return code
	}
	delete(w.Grants, cat)
	if open {
		s := w.span(d)
		w.Grants[cat] = Grant{s}
	}
	return ""
}

// SetMode moves the switch (A4). Each change ends the standing permissions (C11); off stops every turn.
func (w *World) SetMode(session, mode string) Code {
	if code := w.may(session, Owner); code != "" {
		return code
	}
	w.Mode, w.Permits = mode, nil
	if mode == "off" {
		w.stop(func(*Turn) bool { return true })
	}
	return ""
}

// SetRole is users.set-role: sessions, turns, questions and permissions of the account end at once (G6, C11).
func (w *World) SetRole(session, who string, role int) Code {
	if code := w.may(session, Owner); code != "" {
		return code
	}
	if w.Roles[who] == role {
		return ""
	}
	owners := 0
	for _, r := range w.Roles {
		if r == Owner {
			owners++
		}
	}
	if w.Roles[who] == Owner && owners == 1 {
		return "rule" // the last owner stays one
	}
	w.Roles[who] = role
	w.changed(who)
	return ""
}

// SetPassword ends what SetRole ends; it is done on the machine itself.
func (w *World) SetPassword(who string) Code { w.changed(who); return "" }

func (w *World) changed(who string) {
	for s := range w.Sessions {
		if person(s) == who {
			w.endSession(s)
		}
	}
	w.dropPermits(func(p Permission) bool { return p.Who == who })
}

func (w *World) endSession(s string) {
	delete(w.Sessions, s)
	delete(w.listening, s)
	w.stop(func(t *Turn) bool { return t.Session == s })
}

// Revoke ends another session of one's own.
func (w *World) Revoke(session, other string) Code {
	if code := w.may(session, Viewer); code != "" {
		return code
	}
	if person(session) != person(other) || !w.Sessions[other] {
		return "not_found"
	}
	w.endSession(other)
	return ""
}

// Listen opens or closes a session's stream (C10).
func (w *World) Listen(session string, on bool) Code {
	if code := w.may(session, Viewer); code != "" {
		return code
	}
	w.listening[session] = on
	return ""
}

// Peer sets what a peer may use and whether it may ask for changes (A5, M3). What it has running ends.
func (w *World) Peer(peer string, cats []string, asking bool) {
	w.ceilings[peer], w.asking[peer] = map[string]bool{}, asking
	for _, c := range cats {
		w.ceilings[peer][c] = true
	}
	w.stop(func(t *Turn) bool { return t.Peer && t.Who == peer })
}

// Swap makes an app another one under the same name; Set changes its state from outside; Handler says how handlers that
// change something behave from now on: well, "fail" or "hang".
func (w *World) Swap(app string)         { a := w.Apps[app]; a.Print++; w.Apps[app] = a }
func (w *World) Set(app, state string)   { a := w.Apps[app]; a.State = state; w.Apps[app] = a }
func (w *World) Handler(how string)      { w.handler = how }
func (w *World) Wall(by time.Duration)   { w.drift += by }
func (w *World) Listening(s string) bool { return w.listening[s] }

// Next is how long it is until something ends by itself; Pass lets time pass, no further than that.
func (w *World) Next() time.Duration {
	next := time.Duration(1 << 62)
	for _, t := range w.turns {
		for _, at := range t.moments() {
			next = min(next, at-w.now)
		}
	}
	return next
}

// Pass moves both clocks on.
func (w *World) Pass(d time.Duration) {
	w.now += d
	for _, t := range slices.Clone(w.turns) {
		w.due(t)
	}
}
