package system

import (
	"context"
	"errors"
	"sync"
	"time"
)

// errHangs says that a probe did not come back in time.
var errHangs = errors.New("no answer in time")

// guard runs probes that may hang in the kernel, where nothing can stop them: a disk of a file server that went away.
// One that hangs keeps its one goroutine until the kernel lets go, which is why nothing waits for it; no second one is
// started beside it, so there are never more than there are keys. The zero guard is ready.
type guard[T any] struct {
	mu   sync.Mutex // guards runs
	runs map[string]*probe[T]
}

type probe[T any] struct {
	done  chan struct{} // closed once value and err are set
	late  bool          // guarded by guard.mu: somebody waited in vain already
	value T
	err   error
}

// start begins f under key, or joins the one that runs.
func (g *guard[T]) start(key string, f func() (T, error)) *probe[T] {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p := g.runs[key]; p != nil {
		return p
	}
	if g.runs == nil {
		g.runs = map[string]*probe[T]{}
	}
	p := &probe[T]{done: make(chan struct{})}
	g.runs[key] = p
	go func() {
		p.value, p.err = f()
		g.mu.Lock()
		delete(g.runs, key)
		g.mu.Unlock()
		close(p.done)
	}()
	return p
}

// wait returns the probe's answer, or errHangs after d; at once where an earlier wait was in vain.
func (g *guard[T]) wait(ctx context.Context, p *probe[T], d time.Duration) (zero T, err error) {
	g.mu.Lock()
	if p.late {
		d = 0
	}
	g.mu.Unlock()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-p.done:
		return p.value, p.err
	case <-ctx.Done():
		return zero, ctx.Err()
	case <-timer.C:
	}
	select {
	case <-p.done: // both were ready
		return p.value, p.err
	default:
	}
	g.mu.Lock()
	p.late = true
	g.mu.Unlock()
	return zero, errHangs
}
