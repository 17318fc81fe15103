package wallet

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"
	"time"

	"atoll/internal/fault"
)

// Callers at the same time share one look; within a second its answer is given again, and not longer.
func TestCallersShare(t *testing.T) {
	f := newFake(t)
	arrived, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	f.during = func(string, *http.Request) { once.Do(func() { close(arrived); <-release }) }
	r := open(t, f.config())
	var all, begun sync.WaitGroup
	ask := func() {
		begun.Done()
		if s, err := r.Status(t.Context()); err != nil || *s.Height != 870000 {
			t.Errorf("%+v, %v", s, err)
		}
	}
	begun.Add(20)
	all.Go(ask)
	<-arrived
	for range 19 {
		all.Go(ask)
	}
	begun.Wait()
	close(release)
	all.Wait()
	if n := f.count("getblockchaininfo"); n != 1 {
		t.Errorf("the node was asked %d times", n)
	}
	r.shared.at = r.shared.at.Add(-freshFor / 2)
	r.shared.status.Height = new(int64(1))
	if s, err := r.Status(t.Context()); err != nil || *s.Height != 1 {
		t.Errorf("within a second: %+v, %v", s, err)
	}
	r.shared.at = r.shared.at.Add(-freshFor)
	if s, err := r.Status(t.Context()); err != nil || *s.Height != 870000 {
		t.Errorf("after a second: %+v, %v", s, err)
	}
}

// A failure is shared like an answer, and each caller gets an error of its own.
func TestFailureIsShared(t *testing.T) {
	f := newFake(t)
	f.answers["getblockchaininfo"] = `!{"code":-28,"message":"Verifying blocks"}`
	r := open(t, f.config())
	_, first := r.Status(t.Context())
	_, second := r.Status(t.Context())
	a, b := fault.Of(first), fault.Of(second)
	if a.Public != b.Public || a == b || len(b.Values()) == 0 || f.count("getblockchaininfo") != 1 {
		t.Errorf("%v, %v, %d questions", first, second, f.count("getblockchaininfo"))
	}
	f.set(func() { f.answers = core() })
	r.shared.at = r.shared.at.Add(-2 * freshFor)
	if _, err := r.Status(t.Context()); err != nil {
		t.Error(err)
	}
}

// Who goes away takes nobody along: not who waits, not who comes next.
func TestCallerGoesAway(t *testing.T) {
	f := newFake(t)
	arrived, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	f.during = func(_ string, r *http.Request) {
		once.Do(func() {
			close(arrived)
			select {
			case <-release:
			case <-r.Context().Done():
			}
		})
	}
	r := open(t, f.config())
	ctx, cancel := context.WithCancel(t.Context())
	first := make(chan error, 1)
	go func() { _, err := r.Status(ctx); first <- err }()
	<-arrived
	// One more waits and gives up; the look goes on.
	impatient, stop := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer stop()
	if _, err := r.Status(impatient); !fault.Is(err, fault.Unavailable) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	waiting := make(chan error, 1)
	go func() { _, err := r.Status(t.Context()); waiting <- err }()
	cancel()
	if err := <-first; !fault.Is(err, fault.Cancelled) {
		t.Errorf("%v", err)
	}
	if err := <-waiting; err != nil {
		t.Error(err)
	}
	close(release)
}
