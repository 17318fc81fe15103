// Package confirm is where a person decides (C1–C12). A pending binds one exact action to one decision, and a decision
// is spent once, durably, before anything runs. It runs nothing itself, and no text of a model enters it.
package confirm

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"atoll/internal/audit"
	"atoll/internal/caller"
	"atoll/internal/clock"
	"atoll/internal/fault"
	"atoll/internal/rpc"
	"atoll/internal/store"
)

// The chain of times (C9): each gives up before the one that waits for it.
const (
	PendingTime = 300 * time.Second // a pending waits this long for a person
	TurnTime    = 400 * time.Second // a turn on the server
	ClientTime  = 420 * time.Second // a client waits for its chat call
	FrameTime   = 430 * time.Second // the web interface's frame waits for its host
	// TurnMargin is left of the turn when its pendings expire, so that the model can still say so.
	TurnMargin = 10 * time.Second
)

// Inert is how long a fresh pending refuses approval: nobody reads a dialog faster (C8, F-A20).
const Inert = time.Second

// unknownKept is how long an action whose outcome was not seen is remembered for the words "may already have run".
const unknownKept = 24 * time.Hour

// Schema is the room's tables. No arguments are stored: after a restart nothing waits any more (C3).
func Schema() store.Schema {
	return store.Schema{Room: "confirm", Steps: []string{`
CREATE TABLE pending (
	nonce      BLOB PRIMARY KEY, -- SHA-256 of the nonce
	action_key TEXT NOT NULL,
	account    INTEGER NOT NULL,
	caller     TEXT NOT NULL,
	tool       TEXT NOT NULL,
	summary    TEXT NOT NULL,
	state      TEXT NOT NULL,    -- waiting, dispatched, unknown, or how it ended
	at         INTEGER NOT NULL  -- Unix seconds of the last change
) WITHOUT ROWID;
CREATE TABLE permission (
	id          TEXT PRIMARY KEY,
	account     INTEGER NOT NULL,
	action_key  TEXT NOT NULL,
	fingerprint TEXT NOT NULL,
	tool        TEXT NOT NULL,
	summary     TEXT NOT NULL,
	from_at     INTEGER NOT NULL,
	until_at    INTEGER NOT NULL,
	uses        TEXT NOT NULL    -- Unix seconds of the last uses, space-separated
) WITHOUT ROWID`, muteSchema}}
}

// Config is what a Room needs.
type Config struct {
	DB    *store.DB // holds Schema and audit.Schema: a decision is spent in the transaction of its audit intent
	Audit *audit.Log
	Clock clock.Clock
	Log   *slog.Logger
	// Listening reports whether somebody who may decide for the account has an open stream (C10); for account zero, which
	// is nobody's, only an owner may.
	Listening func(account int64) bool
	// Asking reports whether the owner lets this peer ask for changes (M3); nil is never. It must not call the Room.
	Asking func(peerKey string) bool
	// Publish sends an event to the account's streams and the owners'; of account zero to the owners alone. It must not
	// block.
	Publish func(event string, account int64, data any)
	// OnForeign is told when somebody tried to decide another's pending.
	OnForeign func(who caller.Caller)
}

// Room holds the pendings and permissions of one node. It is safe for concurrent use.
type Room struct {
	cfg Config

	mu          sync.Mutex // guards the rest
	pendings    map[[sha256.Size]byte]*pending
	ended       map[[sha256.Size]byte]endedPending
	endedOrder  [][sha256.Size]byte
	unknown     map[Key]time.Time
	permissions map[string]*permission
	allowing    map[*pending]struct{} // approved for a time and not yet spent
	mutes       map[string]clock.Span // peers whose request was declined
}

// maxEnded bounds the memory of ended pendings: enough to answer every open client.
const maxEnded = 1024

type endedPending struct {
	code    fault.Code
	account int64
	key     Key
}

// Ask is one question to a person. Nothing in it was written by a model.
type Ask struct {
	Caller       caller.Caller
	Conversation string
	Tool         string
	Method       string // the row that will run
	Private      bool   // arguments and summary stay off the disk (H3)
	Summary      string
	Args         jsontext.Value // canonical; what will run
	Key          Key
	Preview      rpc.Preview
	Untrusted    []string // the tools whose outside text the turn has read (C7)
	Warnings     []string
	MayAllow     bool // C11 may be offered: the tool is on its list and nothing untrusted is in context
	TurnLeft     time.Duration
	// Asked is called once the question stands; nil is nobody.
	Asked func()
}

// Pending is a waiting question as people's clients see it.
type Pending struct {
	Nonce        string         `json:"nonce"`
	ActionKey    string         `json:"action_key"`
	Conversation string         `json:"conversation"`
	Caller       string         `json:"caller"`
	Tool         string         `json:"tool"`
	Summary      string         `json:"summary"`
	Target       string         `json:"target"`
	Arguments    jsontext.Value `json:"arguments"`
	Before       string         `json:"before"`
	After        string         `json:"after"`
	Untrusted    []string       `json:"untrusted"`
	Warnings     []string       `json:"warnings"`
	MayAllow     bool           `json:"may_allow"`
	MaybeRan     bool           `json:"maybe_ran"`
	BornAt       time.Time      `json:"born_at"`
	ExpiresAt    time.Time      `json:"expires_at"`
}

// Ended is the event confirm-ended.
type Ended struct {
	Nonce   string     `json:"nonce"`
	Outcome fault.Code `json:"outcome"` // "approved", or a refusal's code
}

// approved is the outcome of a pending that a person let through. It is no fault and so not in their catalogue.
const approved fault.Code = "approved"

type pending struct {
	wire    Pending
	ask     Ask
	hash    [sha256.Size]byte
	span    clock.Span
	decided chan struct{} // closed once outcome is set
	outcome fault.Code    // guarded by Room.mu
	reason  string
	allow   time.Duration
	spent   bool
	// redeemable is set once a peer's approval was spent, until its one run.
	redeemable atomic.Bool
}

// Ticket is the right to run one action once. Only Ask and Permitted make one; Spend uses it up.
type Ticket struct {
	hash       [sha256.Size]byte
	ask        Ask
	pending    *pending // nil when a standing permission let it pass
	permission string
	spent      bool // of a permission's ticket; guarded by Room.mu
}

// New opens the room and settles what an earlier run left: what was waiting is dropped, what was started and not
// answered is unknown (C2, C3). Both are returned for the notices.
func New(ctx context.Context, cfg Config) (*Room, Leftover, error) {
	if cfg.DB == nil || cfg.Audit == nil || cfg.Log == nil || cfg.Listening == nil || cfg.Publish == nil {
		return nil, Leftover{}, errors.New("confirm: the Config is not complete")
	}
	r := &Room{cfg: cfg, pendings: map[[sha256.Size]byte]*pending{}, ended: map[[sha256.Size]byte]endedPending{},
		unknown: map[Key]time.Time{}, permissions: map[string]*permission{}, allowing: map[*pending]struct{}{}, mutes: map[string]clock.Span{}}
	left, err := r.recover(ctx)
	if err != nil {
		return nil, left, fmt.Errorf("confirm: %w", err)
	}
	return r, left, nil
}

// Ask puts the question and waits. It returns a Ticket when a person approved, and otherwise a *fault.Error whose code
// says how it ended: Declined, Expired, Cancelled, NobodyToAsk. ctx is the chat request's: when it ends, so does the
// question (C9). A peer's question goes to the owners (M3); it is NobodyToAsk where the peer may not ask, Declined while
// a decline mutes it, and Busy while another one of it stands.
func (r *Room) Ask(ctx context.Context, a Ask) (*Ticket, error) {
	if a.Caller.IsPeer() {
		a = fromPeer(a)
	}
	if !a.Caller.IsOperator() && !r.Asking(a.Caller) || !r.cfg.Listening(a.Caller.Account()) {
		return nil, fault.New(fault.NobodyToAsk, "nobody was there to ask, so the answer is no; nothing was changed").
			ForModel("NOT executed and NOT queued: no person is there to confirm. Do not ask again in this turn.")
	}
	p, err := r.mint(ctx, a)
	if err != nil {
		return nil, err
	}
	if a.Asked != nil {
		a.Asked()
	}
	timer := time.NewTimer(p.span.Left(r.cfg.Clock))
	defer timer.Stop()
	select {
	case <-p.decided:
	case <-timer.C:
		r.end(p, fault.Expired, "")
	case <-ctx.Done():
		r.end(p, fault.Cancelled, "")
	}
	<-p.decided
	return r.answer(p)
}

// answer turns the outcome into a Ticket or a refusal.
func (r *Room) answer(p *pending) (*Ticket, error) {
	r.mu.Lock()
	outcome, reason := p.outcome, p.reason
	r.mu.Unlock()
	if outcome == approved {
		return &Ticket{hash: p.hash, ask: p.ask, pending: p}, nil
	}
	if p.ask.Caller.IsPeer() {
		reason = "" // the owner's words are not the peer's
	}
	return nil, Refusal(outcome, reason)
}

// Refusal is how the end of a question is told, in words of its own for each (C4, F-A16).
func Refusal(outcome fault.Code, reason string) *fault.Error {
	switch outcome {
	case fault.Declined:
		f := fault.New(fault.Declined, "declined; nothing was changed")
		if reason != "" {
			return f.ForModel("The person declined. NOT executed and NOT queued. Do not ask for this again in this turn. Their reason: %s", reason)
		}
		return f.ForModel("The person declined. NOT executed and NOT queued. Do not ask for this again in this turn.")
	case fault.Expired:
		return fault.New(fault.Expired, "nobody answered in time; nothing was changed").
			ForModel("Nobody answered in time. NOT executed and NOT queued. The person may ask for it again.")
	case fault.Dropped:
		return fault.New(fault.Dropped, "the node was restarted while the question stood; nothing ran")
	case fault.Cancelled:
		return fault.New(fault.Cancelled, "cancelled; nothing was changed").
			ForModel("The turn ended before an answer. NOT executed and NOT queued.")
	}
	return fault.New(outcome, "it was approved and then could not run any more; nothing was changed").
		ForModel("NOT executed: the check after the approval failed.")
}

func (r *Room) mint(ctx context.Context, a Ask) (*pending, error) {
	nonce := newNonce()
	d := min(PendingTime, a.TurnLeft-TurnMargin)
	if d <= 0 {
		return nil, Refusal(fault.Expired, "")
	}
	p := &pending{ask: a, hash: hashNonce(nonce), span: r.cfg.Clock.Span(d), decided: make(chan struct{})}
	p.wire = Pending{Nonce: nonce, ActionKey: a.Key.String(), Conversation: a.Conversation, Caller: shownCaller(a.Caller),
		Tool: a.Tool, Summary: a.Summary, Target: a.Preview.Target, Arguments: a.Args, Before: a.Preview.Before,
		After: a.Preview.After, Untrusted: slices.Clone(a.Untrusted), Warnings: slices.Clone(a.Warnings),
		MayAllow: a.MayAllow, BornAt: p.span.From(), ExpiresAt: p.span.Until()}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.mayAskLocked(a.Caller); err != nil {
		return nil, err
	}
	p.wire.MaybeRan = r.maybeRan(a.Key)
	err := r.cfg.DB.Write(ctx, store.Relaxed, func(ctx context.Context, tx *sql.Tx) error {
		if err := r.insert(ctx, tx, p.hash, a, "waiting"); err != nil {
			return err
		}
		return r.cfg.Audit.AppendTx(ctx, tx, a.entry("asked"))
	})
	if err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, "the question cannot be written down, so nothing was asked or changed")
	}
	r.pendings[p.hash] = p
	r.cfg.Publish("confirm", a.Caller.Account(), p.wire)
	return p, nil
}

func (r *Room) maybeRan(k Key) bool {
	at, ok := r.unknown[k]
	return ok && r.cfg.Clock.Now().Sub(at) < unknownKept
}

func (r *Room) insert(ctx context.Context, tx *sql.Tx, hash [sha256.Size]byte, a Ask, state string) error {
	summary := a.Summary
	if a.Private {
		summary = ""
	}
	_, err := tx.ExecContext(ctx, "INSERT INTO pending VALUES (?, ?, ?, ?, ?, ?, ?, ?)", hash[:], a.Key.String(),
		a.Caller.Account(), a.Caller.String(), a.Tool, summary, state, r.cfg.Clock.Now().Unix())
	return err
}

// entry is the audit form of what happened to the question.
func (a Ask) entry(event string) audit.Entry {
	e := audit.Entry{Kind: "confirm", Event: event, Caller: a.Caller.String(), Session: a.Caller.Session(), Subject: a.Tool,
		ActionKey: a.Key.String(), Untrusted: len(a.Untrusted) > 0}
	if !a.Private {
		e.Args = string(a.Args)
	}
	return e
}

// end settles a waiting pending and reports whether this call did it. The first outcome stands.
func (r *Room) end(p *pending, outcome fault.Code, reason string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.endLocked(p, outcome, reason)
}

func (r *Room) endLocked(p *pending, outcome fault.Code, reason string) bool {
	if p.outcome != "" {
		return false
	}
	p.outcome, p.reason = outcome, reason
	delete(r.pendings, p.hash)
	r.remember(p.hash, endedPending{outcome, p.ask.Caller.Account(), p.ask.Key})
	if outcome != approved {
		muted := outcome == fault.Declined && p.ask.Caller.IsPeer()
		how := store.Relaxed
		if muted {
			r.mutes[p.ask.Caller.PeerKey()], how = r.cfg.Clock.Span(muteTime), store.Durable
		}
		err := r.cfg.DB.Write(context.Background(), how, func(ctx context.Context, tx *sql.Tx) error {
			if muted {
				if err := keepMute(ctx, tx, p.ask.Caller.PeerKey(), r.mutes[p.ask.Caller.PeerKey()]); err != nil {
					return err
				}
			}
			if _, err := tx.ExecContext(ctx, "UPDATE pending SET state = ?, at = ? WHERE nonce = ?", string(outcome),
				r.cfg.Clock.Now().Unix(), p.hash[:]); err != nil {
				return err
			}
			return r.cfg.Audit.AppendTx(ctx, tx, p.ask.entry(string(outcome)))
		})
		if err != nil {
			r.cfg.Log.Error("the end of a question was not written down; it ended all the same", "tool", p.ask.Tool, "err", err)
		}
	}
	close(p.decided)
	r.cfg.Publish("confirm-ended", p.ask.Caller.Account(), Ended{p.wire.Nonce, outcome})
	return true
}

func (r *Room) remember(hash [sha256.Size]byte, e endedPending) {
	if len(r.endedOrder) >= maxEnded {
		delete(r.ended, r.endedOrder[0])
		r.endedOrder = r.endedOrder[1:]
	}
	r.ended[hash] = e
	r.endedOrder = append(r.endedOrder, hash)
}

// Waiting lists the questions that c may answer: its account's own, all for an owner.
func (r *Room) Waiting(c caller.Caller) []Pending {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := []Pending{}
	for _, p := range r.pendings {
		if mayDecide(c, p.ask.Caller.Account()) {
			out = append(out, p.wire)
		}
	}
	slices.SortFunc(out, func(a, b Pending) int { return a.BornAt.Compare(b.BornAt) })
	return out
}

// EndSessions cancels what was asked in sessions that ended, and the account's permissions (G6, C11).
func (r *Room) EndSessions(ctx context.Context, account int64, sessions []string, dropPermissions bool) {
	r.mu.Lock()
	for _, p := range r.pendings {
		if p.ask.Caller.IsOperator() && slices.Contains(sessions, p.ask.Caller.Session()) {
			r.endLocked(p, fault.Cancelled, "")
		}
	}
	r.mu.Unlock()
	if dropPermissions {
		_, _ = r.dropPermissions(ctx, func(p *permission) bool { return p.account == account })
	}
}

// mayDecide is C1: the same operator on any device, or an owner. What a peer asked for has no account: owners decide it.
func mayDecide(c caller.Caller, account int64) bool {
	return c.IsOperator() && (account > 0 && c.Account() == account || c.May(caller.Owner))
}
