package account

import (
	"context"
	"hash/maphash"
	"sync"
	"time"

	"atoll/internal/fault"
)

// How answers slow down after wrong passwords (G4): a first pause that doubles with each further one up to the longest.
// The account's owner is never locked out: the right password after the pause is always let in.
const (
	firstPause   = 500 * time.Millisecond
	longestPause = 30 * time.Second
	forgetAfter  = 15 * time.Minute // without a further attempt
)

// unknownBuckets bounds the memory for names that no account has. Names share buckets, so a flood of names neither
// grows memory nor resets a count.
const unknownBuckets = 1024

// slowdown counts, for each name, the attempts that did not prove right. An attempt counts from its beginning, so that
// many at once slow each other down.
type slowdown struct {
	now  func() time.Time
	seed maphash.Seed

	mu      *sync.Mutex // guards the counts
	known   map[int64]*attempts
	unknown []attempts
}

type attempts struct {
	count int
	last  time.Time
}

func newSlowdown(now func() time.Time) slowdown {
	return slowdown{now: now, seed: maphash.MakeSeed(), mu: new(sync.Mutex), known: map[int64]*attempts{},
		unknown: make([]attempts, unknownBuckets)}
}

// begin counts one attempt and waits its pause out. No hash slot is held meanwhile. p is nil for a name without account.
func (s slowdown) begin(ctx context.Context, p *person, name string) error {
	d := s.count(p, name)
	if d == 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return fault.Wrap(ctx.Err(), fault.Cancelled, "cancelled")
	}
}

// count adds the attempt and returns its pause.
func (s slowdown) count(p *person, name string) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.of(p, name)
	now := s.now()
	if now.Sub(a.last) > forgetAfter {
		a.count = 0
	}
	d := pause(a.count)
	a.count++
	a.last = now
	return d
}

// pause is how long the attempt after n that did not prove right waits.
func pause(n int) time.Duration {
	if n == 0 {
		return 0
	}
	if n > 10 {
		return longestPause
	}
	return min(firstPause<<(n-1), longestPause)
}

// clear forgets an account's wrong attempts: the right password was given.
func (s slowdown) clear(p *person) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.known, p.id)
}

func (s slowdown) of(p *person, name string) *attempts {
	if p == nil {
		return &s.unknown[maphash.String(s.seed, name)%unknownBuckets]
	}
	a := s.known[p.id]
	if a == nil {
		a = &attempts{}
		s.known[p.id] = a
	}
	return a
}
