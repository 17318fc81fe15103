package grant

import (
	"context"
	"slices"
	"time"

	"atoll/internal/audit"
	"atoll/internal/caller"
	"atoll/internal/fault"
	"atoll/internal/rpc"
)

// maxTimed is the longest timed grant; a longer one is for good.
const maxTimed = 10 * 365 * 24 * time.Hour

type grantsResult struct {
	Grants map[Category]State `json:"grants"`
}

type grantsParams struct {
	Grants map[Category]wish `json:"grants" rpc:"required"`
}

// wish is a State as it is asked for: an expiry that was given is told from none, whatever time it names.
type wish struct {
	Granted   bool       `json:"granted"`
	ExpiresAt *time.Time `json:"expires_at,omitempty"`
}

type modeParams struct {
	Mode Mode `json:"mode" rpc:"required"`
}

type modeResult struct {
	Mode Mode `json:"mode"`
}

// Methods are the rows by which the owner sees and changes grants and mode. The assistant has no door to them.
func (r *Room) Methods() []rpc.Method {
	row := func(name, summary string, effect rpc.Effect) rpc.Row {
		return rpc.Row{Name: name, Summary: summary, Effect: effect, Doors: rpc.People, Role: caller.Owner}
	}
	return []rpc.Method{
		rpc.Spec[rpc.None, grantsResult]{
			Row: row("assistant.grants-get", "Lists which categories the assistant may use and until when.", rpc.Read),
			Handle: func(context.Context, caller.Caller, rpc.None) (grantsResult, error) {
				return grantsResult{r.States()}, nil
			},
		}.Method(),
		rpc.Spec[grantsParams, grantsResult]{
			Row:    row("assistant.grants-set", "Opens or closes categories for the assistant; those not named stay as they are.", rpc.Write),
			Rule:   r.checkGrants,
			Handle: r.setGrants,
		}.Method(),
		rpc.Spec[rpc.None, modeResult]{
			Row: row("assistant.mode-get", "Tells whether the assistant is off, read-only or asks before each change.", rpc.Read),
			Handle: func(context.Context, caller.Caller, rpc.None) (modeResult, error) {
				return modeResult{r.Mode()}, nil
			},
		}.Method(),
		rpc.Spec[modeParams, modeResult]{
			Row:    row("assistant.mode-set", "Switches the assistant off, to read-only, or to asking before each change.", rpc.Write),
			Rule:   checkMode,
			Handle: r.setMode,
		}.Method(),
	}
}

func (r *Room) checkGrants(_ context.Context, _ caller.Caller, p grantsParams) error {
	now := r.cfg.Clock.Now()
	for cat, s := range p.Grants {
		field := "grants." + string(cat)
		switch {
		case !slices.Contains(Categories(), cat):
			return fault.New(fault.InvalidParams, "no such category; there are system, apps, content, files, mesh, settings, wallet").At("grants")
		case !s.Granted && s.ExpiresAt != nil:
			return fault.New(fault.InvalidParams, "a closed category has no expiry").At(field + ".expires_at")
		case s.ExpiresAt != nil && !s.ExpiresAt.After(now):
			return fault.New(fault.InvalidParams, "the expiry is in the past").At(field + ".expires_at")
		case s.ExpiresAt != nil && s.ExpiresAt.After(now.Add(maxTimed)):
			return fault.New(fault.InvalidParams, "the expiry is too far away; leave it out to open the category for good").At(field + ".expires_at")
		}
	}
	return nil
}

func (r *Room) setGrants(ctx context.Context, c caller.Caller, p grantsParams) (grantsResult, error) {
	change := map[Category]State{}
	for cat, w := range p.Grants {
		s := State{Granted: w.Granted}
		if w.ExpiresAt != nil {
			s.ExpiresAt = *w.ExpiresAt
		}
		change[cat] = s
	}
	if err := r.set(ctx, c, change); err != nil {
		return grantsResult{}, err
	}
	return grantsResult{r.States()}, nil
}

func checkMode(_ context.Context, _ caller.Caller, p modeParams) error {
	if !slices.Contains([]Mode{Off, ReadOnly, Confirm}, p.Mode) {
		return fault.New(fault.InvalidParams, "mode must be off, read-only or confirm").At("mode")
	}
	return nil
}

func (r *Room) setMode(ctx context.Context, c caller.Caller, p modeParams) (modeResult, error) {
	err := r.cfg.Record(ctx, audit.Entry{Kind: "grant", Event: "mode", Caller: c.String(), Session: c.Session(), Subject: string(p.Mode)})
	if err != nil {
		return modeResult{}, fault.Wrap(err, fault.Unavailable, "the audit record cannot be written, so nothing was changed")
	}
	r.mu.Lock()
	err = r.write(p.Mode, r.grants)
	r.mu.Unlock()
	if err != nil {
		return modeResult{}, err
	}
	if r.cfg.OnMode != nil {
		r.cfg.OnMode(p.Mode)
	}
	return modeResult{p.Mode}, nil
}
