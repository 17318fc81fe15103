package wallet

import (
	"context"
	"time"
)

// freshFor is how long an answer is given again.
const freshFor = time.Second

// shared lets one look at a time go to the node; who waited for it takes its answer.
type shared struct {
	turn   chan struct{} // holds one token; whoever took it may look and owns the fields below
	at     time.Time
	status Status
	p      *problem
}

func newShared() shared {
	s := shared{turn: make(chan struct{}, 1)}
	s.turn <- struct{}{}
	return s
}

// Status asks the node, in Config.Timeout at most, or gives an answer that is no older than a second. Its errors are
// *fault.Error: NotConfigured where the operator has to change something, Unavailable where the node cannot answer now,
// Cancelled.
func (r *Room) Status(ctx context.Context) (Status, error) {
	if r.url == "" {
		return notConfigured(), nil
	}
	begun := time.Now()
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Timeout)
	defer cancel()
	select {
	case <-r.shared.turn:
	case <-ctx.Done():
		return Status{}, transport(ctx, context.Cause(ctx)).fault()
	}
	defer func() { r.shared.turn <- struct{}{} }()
	if sh := &r.shared; sh.at.IsZero() || sh.at.Before(begun) && time.Since(sh.at) > freshFor {
		status, _, p := r.look(ctx)
		if p != nil && ctx.Err() != nil {
			return Status{}, p.fault() // the caller's end says nothing about the node: the next one looks itself
		}
		sh.status, sh.p, sh.at = status, p, time.Now()
	}
	if r.shared.p != nil {
		return Status{}, r.shared.p.fault()
	}
	return r.shared.status, nil
}
