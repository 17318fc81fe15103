package assistant

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"atoll/internal/caller"
	"atoll/internal/fault"
	"atoll/internal/grant"
	"atoll/internal/history"
	"atoll/internal/model"
	"atoll/internal/tool"
)

// Limits of peers' questions (M2).
const (
	maxQuestion   = 4 << 10 // bytes
	peerTurnTime  = 120 * time.Second
	maxPeerTurns  = 2 // of one peer at a time
	maxPeersTurns = 8 // of all peers at a time

	maxKeptTurns  = 500 // of one peer, on this disk; whole conversations beyond go, the last used stay
	maxPeerLength = 50  // turns of a peer's conversation; the next one begins anew
)

// Peers is how other nodes' questions are answered (B4). The operators' LocalFirst and Budget have no part in it.
type Peers struct {
	Model  model.Client // nil: peers' questions are refused
	Budget *Budget      // from NewPeersBudget; nil means no budget
}

// check refuses a budget that could not be kept.
func (p Peers) check(price func(model.Info, model.Usage) (int64, bool)) error {
	if p.Model == nil || p.Budget == nil || p.Model.Info().Host == "" {
		return nil
	}
	if _, known := price(p.Model.Info(), model.Usage{}); !known {
		return errors.New("assistant: a budget is set for other nodes' questions, but the price of their model is unknown")
	}
	return nil
}

// PeerQuestion is what a peer asks. Without a Conversation a new one begins; so it does where the one named is not there,
// or holds what is closed to the peer by now.
type PeerQuestion struct {
	Conversation string
	Text         string
}

// PeerAnswer is all that leaves for a peer: words, and a bare outcome.
type PeerAnswer struct {
	Conversation string
	Text         string
	Outcome      string // "done", "changed" after an approved change, "unknown" after one whose result was not seen
}

// Ask runs one turn of a peer. emit gets the answer's text as it comes, and may be nil; it is called from one goroutine.
// What leaves is checked each time: all that the turn and its conversation drew from must still be open to the peer (A5).
// Errors are fit for the peer as they are, by code and public words: NotConfigured, InvalidParams, Busy, Off, NotGranted,
// Budget, Cancelled, and those of a model that fails. The text that was emitted before an error stands; it is not repeated.
func (a *Assistant) Ask(ctx context.Context, c caller.Caller, p PeerQuestion, emit func(delta string) error) (PeerAnswer, error) {
	if !c.IsPeer() || c.PeerKey() == "" {
		return PeerAnswer{}, fault.New(fault.Forbidden, "only another node asks here")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	me := &running{cancel: cancel, c: c}
	if err := a.enter(me); err != nil {
		return PeerAnswer{}, err
	}
	defer a.leave(me)
	if err := a.admitPeer(ctx, c, p); err != nil {
		return PeerAnswer{}, forPeer(err, nil)
	}
	t := &turn{a: a, c: c, backend: a.cfg.Peers.Model, budget: a.cfg.Peers.Budget, limit: peerTurnTime}
	t.emit = func(_ string, data any) error {
		e, ok := data.(textEvent)
		if !ok || emit == nil {
			return nil
		}
		if err := t.mayLeave(); err != nil {
			return err
		}
		return emit(e.Delta)
	}
	a.tidy(ctx, c)
	answer, err := t.take(ctx, a.continued(ctx, c, p.Conversation), p.Text)
	if err == nil {
		err = t.mayLeave()
	}
	if err != nil {
		var changes []tool.Change
		if t.tools != nil {
			changes = t.tools.Changes()
		}
		return PeerAnswer{}, forPeer(err, changes)
	}
	return PeerAnswer{Conversation: answer.Conversation, Text: answer.Answer, Outcome: outcomeOf(answer.Changes)}, nil
}

// CancelPeer stops the turns of a peer, and with them what waits for the owner: it was blocked, or may do less than
// before. Call it after the change is in force; a turn that begins later sees the change.
func (a *Assistant) CancelPeer(key string) {
	a.cancelWhere(func(c caller.Caller) bool { return c.IsPeer() && c.PeerKey() == key })
}

// enter counts the turn before anything is checked, so that CancelPeer misses none that was let in by an older check.
func (a *Assistant) enter(me *running) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	own := 0
	for r := range a.peers {
		if r.c.PeerKey() == me.c.PeerKey() {
			own++
		}
	}
	if own >= maxPeerTurns || len(a.peers) >= maxPeersTurns {
		return fault.New(fault.Busy, "other questions are being answered; ask again later")
	}
	a.peers[me] = struct{}{}
	return nil
}

func (a *Assistant) leave(me *running) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.peers, me)
}

// admitPeer refuses before anything is written down.
func (a *Assistant) admitPeer(ctx context.Context, c caller.Caller, p PeerQuestion) error {
	switch {
	case a.cfg.Peers.Model == nil:
		return fault.New(fault.NotConfigured, "")
	case strings.TrimSpace(p.Text) == "":
		return fault.New(fault.InvalidParams, "").At("text")
	case len(p.Text) > maxQuestion:
		return fault.New(fault.InvalidParams, "").At("text")
	case !utf8.ValidString(p.Text):
		return fault.New(fault.InvalidParams, "").At("text")
	}
	if err := a.open(c, nil); err != nil {
		return err
	}
	if b := a.cfg.Peers.Budget; b != nil && a.cfg.Peers.Model.Info().Host != "" {
		return b.Check(ctx)
	}
	return nil
}

// open is A5 as it stands now: the assistant is on, something is open to the peer, and all of used is.
func (a *Assistant) open(c caller.Caller, used []grant.Category) error {
	closed := fault.New(fault.NotGranted, "this is not open to the other node")
	switch {
	case a.cfg.Grants.Mode() == grant.Off:
		return fault.New(fault.Off, "the assistant is switched off")
	case !slices.ContainsFunc(grant.Categories(), func(cat grant.Category) bool { return a.cfg.Grants.Open(c, cat) }):
		return closed
	}
	for _, cat := range used {
		if !a.cfg.Grants.Open(c, cat) {
			return closed
		}
	}
	return nil
}

// continued is the conversation to go on in, or "" for a new one: what cannot be read, or holds what is closed by now,
// is not continued.
func (a *Assistant) continued(ctx context.Context, c caller.Caller, conversation string) string {
	if conversation == "" {
		return ""
	}
	used, err := a.cfg.History.Touched(ctx, c, conversation)
	if err != nil || a.open(c, categories(used)) != nil {
		return ""
	}
	list, err := a.cfg.History.Conversations(ctx, c, history.Page{Limit: maxKeptTurns})
	if err != nil || slices.ContainsFunc(list.Conversations, func(v history.Conversation) bool { return v.ID == conversation && v.Turns >= maxPeerLength }) {
		return ""
	}
	return conversation
}

// tidy deletes what a peer's history holds beyond its limit: a node that keeps asking fills no disk.
func (a *Assistant) tidy(ctx context.Context, c caller.Caller) {
	list, err := a.cfg.History.Conversations(ctx, c, history.Page{Limit: 2 * maxKeptTurns})
	if err != nil {
		return // the turn says it
	}
	turns := 0
	for _, v := range list.Conversations {
		if turns += v.Turns; turns < maxKeptTurns {
			continue
		}
		if err := a.cfg.History.Clear(ctx, c, v.ID); err != nil && !fault.Is(err, fault.Busy) {
			a.cfg.Log.Warn("what another node asked long ago was not deleted", "peer", c.PeerKey(), "err", err)
		}
	}
}

func categories(names []string) []grant.Category {
	out := make([]grant.Category, len(names))
	for i, n := range names {
		out[i] = grant.Category(n) // one that is none any more is open to nobody
	}
	return out
}

// touch writes down with the results what a peer's turn drew from.
func (t *turn) touch() {
	if !t.c.IsPeer() {
		return
	}
	for _, cat := range t.tools.Touched() {
		t.kept.Touch(string(cat))
	}
}

// mayLeave is asked before a peer's words go to a model and before anything goes to the peer. Once it refused, nothing
// leaves any more, whatever is opened again.
func (t *turn) mayLeave() error {
	if !t.c.IsPeer() || t.kept == nil {
		return nil
	}
	if t.barred == nil {
		if err := t.a.open(t.c, append(t.tools.Touched(), categories(t.kept.Touched())...)); err != nil {
			t.barred = fault.Of(err)
			t.stop()
		}
	}
	if t.barred != nil {
		return t.barred
	}
	return nil
}

func outcomeOf(changes []tool.Change) string {
	out := "done"
	for _, c := range changes {
		switch {
		case c.Outcome == "unknown":
			return "unknown"
		case c.Outcome == "done":
			out = "changed"
		}
	}
	return out
}

// forPeer makes an error fit for the peer: the code, and words of this list only. What a model, a disk or the owner had
// to do with it is the owner's to know; the cause is kept for the log.
func forPeer(err error, changes []tool.Change) error {
	f := fault.Of(err)
	words := "the question could not be answered"
	switch f.Code {
	case fault.NotConfigured:
		words = "this node answers no questions of others"
	case fault.InvalidParams:
		words = "a question is text of 1 byte to 4 KiB"
	case fault.Busy:
		words = "another question is being answered in this conversation; wait for it"
	case fault.Off:
		words = "the assistant of this node is switched off"
	case fault.NotGranted:
		words = "what was asked is not open to this node, or not any more"
	case fault.Budget:
		words = "this node answers no more questions today"
	case fault.Cancelled:
		words = "the turn was stopped"
	}
	switch outcomeOf(changes) {
	case "changed":
		words += "; before that, the change that was asked for was made"
	case "unknown":
		words += "; before that, the change that was asked for was started"
	}
	told := fault.Wrap(err, f.Code, "%s", words)
	told.Field, told.RetryAfter = f.Field, f.RetryAfter
	return told
}
