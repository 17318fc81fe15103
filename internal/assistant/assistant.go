// Package assistant is the turn, and only the turn: one message from its caller through model rounds and tool calls to
// the answer. What may be done is decided in tool, who may ask in rpc, what is kept in history.
package assistant

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"atoll/internal/caller"
	"atoll/internal/clock"
	"atoll/internal/confirm"
	"atoll/internal/fault"
	"atoll/internal/grant"
	"atoll/internal/history"
	"atoll/internal/model"
	"atoll/internal/tool"
)

// MaxRounds is how many model rounds one turn may take (T7).
const MaxRounds = 8

// maxMessage bounds a message in bytes (SPEC section 3).
const maxMessage = 32 << 10

// Config is what an Assistant needs. Every field but LocalFirst, Price, Budget, Peers and the functions at the end is required.
type Config struct {
	Model model.Client
	// LocalFirst answers what it matches exactly before Model is asked (B1); nil means never.
	LocalFirst LocalFirst
	Tools      *tool.Executor
	Grants     *grant.Room
	History    *history.Room
	Clock      clock.Clock
	Log        *slog.Logger
	// Price is a round's cost in millionths of a dollar, and whether it is known; nil means unknown.
	Price func(model.Info, model.Usage) (micro int64, known bool)
	// Budget refuses turns once the day's money is spent; nil means no budget.
	Budget *Budget
	// Peers is how other nodes' questions are answered; the zero Peers refuses them.
	Peers Peers
	// TextCalls is told when the model wrote a tool call as text (F-E5), RoundLimit when a turn of a session, or of a
	// peer by its caller.Key, ended on the round limit (T7).
	TextCalls  func(ctx context.Context)
	RoundLimit func(ctx context.Context, session string)
	// Count adds to a named counter of the node.
	Count func(name string, n int64)
}

// LocalFirst is a backend that knows when it is sure.
type LocalFirst interface {
	model.Client
	Exact(context.Context, model.Request) bool
}

// Assistant runs turns. It is safe for concurrent use; one turn at a time runs in a conversation.
type Assistant struct {
	cfg Config

	mu      sync.Mutex // guards the rest
	running map[place]*running
	offered map[place]map[grant.Category]bool
	peers   map[*running]struct{} // peers' turns, from before they are admitted
}

// place is one conversation of one caller.
type place struct{ caller, conversation string }

type running struct {
	cancel context.CancelFunc
	c      caller.Caller
}

// maxRemembered bounds the maps that only save words; when one is full it starts afresh.
const maxRemembered = 4096

// New checks the Config.
func New(cfg Config) (*Assistant, error) {
	if cfg.Model == nil || cfg.Tools == nil || cfg.Grants == nil || cfg.History == nil || cfg.Log == nil {
		return nil, errors.New("assistant: the Config is not complete")
	}
	if cfg.TextCalls == nil {
		cfg.TextCalls = func(context.Context) {}
	}
	if cfg.RoundLimit == nil {
		cfg.RoundLimit = func(context.Context, string) {}
	}
	if cfg.Count == nil {
		cfg.Count = func(string, int64) {}
	}
	if cfg.Price == nil {
		cfg.Price = func(model.Info, model.Usage) (int64, bool) { return 0, false }
	}
	if err := cfg.Peers.check(cfg.Price); err != nil {
		return nil, err
	}
	return &Assistant{cfg: cfg, running: map[place]*running{}, offered: map[place]map[grant.Category]bool{}, peers: map[*running]struct{}{}}, nil
}

// claim reserves a conversation for one turn; a second is Busy (F-D12).
func (a *Assistant) claim(at place, r *running) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.running[at] != nil {
		return fault.New(fault.Busy, "a turn is already running in this conversation; wait for it or cancel it")
	}
	a.running[at] = r
	return nil
}

func (a *Assistant) release(at place) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.running, at)
}

// Cancel stops the turn that runs in the caller's conversation, handlers and pendings included.
func (a *Assistant) Cancel(c caller.Caller, conversation string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.running[place{c.Key(), conversation}]
	if r == nil {
		return fault.New(fault.NotFound, "no turn is running in this conversation").At("conversation")
	}
	r.cancel()
	return nil
}

// CancelAll stops every turn: the assistant was switched off, or the node stops.
func (a *Assistant) CancelAll() {
	a.cancelWhere(func(caller.Caller) bool { return true })
}

// CancelSessions stops the turns of sessions that ended.
func (a *Assistant) CancelSessions(ended func(session string) bool) {
	a.cancelWhere(func(c caller.Caller) bool { return c.IsOperator() && ended(c.Session()) })
}

func (a *Assistant) cancelWhere(which func(caller.Caller) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.running {
		if which(r.c) {
			r.cancel()
		}
	}
	for r := range a.peers {
		if which(r.c) {
			r.cancel()
		}
	}
}

// Offer is a closed category that the host offers to open, in trusted chrome (T8).
type Offer struct {
	Category grant.Category `json:"category"`
	Tools    []string       `json:"tools"` // the destructive tools it would open
	Host     string         `json:"host"`  // where the data would be sent
	ForS     int64          `json:"for_s"` // how long by default
}

// offerTime is how long an offered category is opened unless the owner says otherwise.
const offerTime = 3600

// offers picks what to offer: to the owner only, once per category and conversation.
func (a *Assistant) offers(c caller.Caller, at place, met []grant.Category) []Offer {
	if !c.May(caller.Owner) {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.offered) >= maxRemembered {
		a.offered = map[place]map[grant.Category]bool{}
	}
	done := a.offered[at]
	if done == nil {
		done = map[grant.Category]bool{}
		a.offered[at] = done
	}
	var out []Offer
	for _, cat := range met {
		if done[cat] {
			continue
		}
		done[cat] = true
		host := a.cfg.Model.Info().Host
		if host == "" {
			host = "this machine"
		}
		out = append(out, Offer{Category: cat, Tools: a.cfg.Tools.Destructive(cat), Host: host, ForS: offerTime})
	}
	return out
}

// turnTime is the server's part of the chain of times.
const turnTime = confirm.TurnTime
