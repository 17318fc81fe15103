package confirm

import (
	"context"
	"crypto/subtle"
	"time"
	"unicode/utf8"

	"atoll/internal/caller"
	"atoll/internal/fault"
	"atoll/internal/rpc"
	"atoll/internal/store"
)

// maxReason bounds a decline's reason in characters.
const maxReason = 500

type decideParams struct {
	Nonce     string `json:"nonce" rpc:"required"`
	ActionKey string `json:"action_key" rpc:"required"`
	Decision  string `json:"decision" rpc:"required"`
	Reason    string `json:"reason"`
	AllowForS int64  `json:"allow_for_s"`
}

type decideResult struct {
	Nonce   string     `json:"nonce"`
	Outcome fault.Code `json:"outcome"`
}

type pendingResult struct {
	Pending []Pending `json:"pending"`
}

// Methods are the rows by which people decide. They have people's door only: no tool reaches them (F-A7).
func (r *Room) Methods() []rpc.Method {
	row := func(name, summary string, effect rpc.Effect) rpc.Row {
		return rpc.Row{Name: name, Summary: summary, Effect: effect, Doors: rpc.People, Role: caller.Member, Quiet: true}
	}
	return append([]rpc.Method{
		rpc.Spec[rpc.None, pendingResult]{
			Row: row("assistant.pending", "Lists the actions that wait for your decision.", rpc.Read),
			Handle: func(_ context.Context, c caller.Caller, _ rpc.None) (pendingResult, error) {
				return pendingResult{r.Waiting(c)}, nil
			},
		}.Method(),
		rpc.Spec[decideParams, decideResult]{
			Row:    row("assistant.confirm", "Approves or declines one waiting action.", rpc.Write),
			Rule:   checkDecision,
			Handle: r.decide,
		}.Method(),
	}, r.permissionMethods()...)
}

func checkDecision(_ context.Context, _ caller.Caller, p decideParams) error {
	switch {
	case p.Decision != "approve" && p.Decision != "decline":
		return fault.New(fault.InvalidParams, "decision must be approve or decline").At("decision")
	case utf8.RuneCountInString(p.Reason) > maxReason:
		return fault.New(fault.InvalidParams, "the reason is longer than %d characters", maxReason).At("reason")
	case p.Reason != "" && p.Decision != "decline":
		return fault.New(fault.InvalidParams, "only a decline carries a reason").At("reason")
	case p.AllowForS != 0 && p.Decision != "approve":
		return fault.New(fault.InvalidParams, "only an approval can last").At("allow_for_s")
	case p.AllowForS < 0 || p.AllowForS > int64(MaxAllow/time.Second):
		return fault.New(fault.InvalidParams, "allow_for_s must be between 1 and %d", int64(MaxAllow/time.Second)).At("allow_for_s")
	}
	return nil
}

// decide is assistant.confirm. The session, CSRF token and role were checked by the gate.
func (r *Room) decide(ctx context.Context, c caller.Caller, d decideParams) (decideResult, error) {
	hash := hashNonce(d.Nonce)
	r.mu.Lock()
	defer r.mu.Unlock()
	p, ok := r.pendings[hash]
	if !ok {
		return r.decideEnded(ctx, c, hash, d)
	}
	if !mayDecide(c, p.ask.Caller.Account()) {
		return decideResult{}, r.foreign(ctx, c, p.ask)
	}
	if subtle.ConstantTimeCompare([]byte(d.ActionKey), []byte(p.wire.ActionKey)) != 1 {
		return decideResult{}, fault.New(fault.InvalidParams, "action_key is not the one of this question; it still stands").At("action_key")
	}
	if p.span.Over(r.cfg.Clock) {
		r.endLocked(p, fault.Expired, "")
		return decideResult{}, Refusal(fault.Expired, "")
	}
	if d.Decision == "decline" {
		r.endLocked(p, fault.Declined, d.Reason)
		_, _ = r.dropPermissionsLocked(ctx, func(q *permission) bool { // the decline wins over a permission for the same action (C11)
			return q.account == p.ask.Caller.Account() && q.key == p.ask.Key
		})
		return decideResult{d.Nonce, fault.Declined}, nil
	}
	if age := p.span.Age(r.cfg.Clock); age < Inert {
		return decideResult{}, fault.New(fault.TooSoon, "too soon: read the question first; it still stands").After(Inert - age)
	}
	if d.AllowForS > 0 && !p.wire.MayAllow {
		return decideResult{}, fault.New(fault.Rule, "this action cannot be allowed for a time; approve it once or decline").At("allow_for_s")
	}
	e := p.ask.entry("approved")
	e.Detail = "by " + c.String()
	if err := r.cfg.Audit.Append(ctx, store.Relaxed, e); err != nil {
		return decideResult{}, fault.Wrap(err, fault.Unavailable, "the approval cannot be written down, so nothing was approved")
	}
	if p.allow = time.Duration(d.AllowForS) * time.Second; p.allow > 0 {
		r.allowing[p] = struct{}{}
	}
	r.endLocked(p, approved, "")
	return decideResult{d.Nonce, approved}, nil
}

// decideEnded answers a decision that came after the end: approving what was approved is fine and runs nothing again,
// anything else is told how it ended. r.mu is held.
func (r *Room) decideEnded(ctx context.Context, c caller.Caller, hash [32]byte, d decideParams) (decideResult, error) {
	e, ok := r.ended[hash]
	switch {
	case !ok:
		return decideResult{}, fault.New(fault.NotFound, "no such question").At("nonce")
	case !mayDecide(c, e.account):
		return decideResult{}, r.foreign(ctx, c, Ask{Key: e.key})
	case d.ActionKey != e.key.String():
		return decideResult{}, fault.New(fault.InvalidParams, "action_key is not the one of this question, which has ended").At("action_key")
	case e.code == approved && d.Decision == "approve", e.code == fault.Declined && d.Decision == "decline":
		return decideResult{d.Nonce, e.code}, nil
	case e.code == approved:
		return decideResult{}, fault.New(fault.Rule, "it was approved already and cannot be declined any more").At("decision")
	}
	return decideResult{}, Refusal(e.code, "")
}

func (r *Room) foreign(ctx context.Context, c caller.Caller, a Ask) error {
	e := a.entry("foreign")
	e.Caller, e.Session, e.Args, e.Code = c.String(), c.Session(), "", string(fault.Forbidden)
	if err := r.cfg.Audit.Append(ctx, store.Relaxed, e); err != nil {
		r.cfg.Log.Error("audit", "err", err)
	}
	if r.cfg.OnForeign != nil {
		r.cfg.OnForeign(c)
	}
	return fault.New(fault.Forbidden, "this question was put to somebody else")
}
