package event

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"

	"atoll/internal/fault"
)

func subscribe(t *testing.T, b *Bus, account int64, owner bool, session string, after uint64) *Sub {
	t.Helper()
	s, err := b.Subscribe(account, owner, session, after)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// fresh is a stream that has read the current state.
func fresh(t *testing.T, b *Bus, account int64, owner bool, session string) *Sub {
	t.Helper()
	s := subscribe(t, b, account, owner, session, 0)
	s.Snapshot()
	return s
}

// drain takes what is there.
func drain(t *testing.T, s *Sub) []string {
	t.Helper()
	var out []string
	for {
		e, found, err := s.look()
		if err != nil {
			return append(out, err.Error())
		}
		if !found {
			return out
		}
		out = append(out, e.Name)
	}
}

func same(t *testing.T, got []string, want ...string) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("got %q, want %q", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("got %q, want %q", got, want)
		}
	}
}

// C1: an event reaches its account and, where it says so, the owners; nobody else.
func TestEventsReachWhomTheyConcern(t *testing.T) {
	b := New()
	ada, ben, own := fresh(t, b, 1, false, "a"), fresh(t, b, 2, false, "b"), fresh(t, b, 3, true, "o")
	b.Publish(Event{Name: "for ada", Account: 1})
	b.Publish(Event{Name: "for ada and owners", Account: 1, Owners: true})
	b.Publish(Event{Name: "for owners", Owners: true})
	b.Publish(Event{Name: "for nobody"})
	same(t, drain(t, ada), "for ada", "for ada and owners")
	same(t, drain(t, ben))
	same(t, drain(t, own), "for ada and owners", "for owners")
}

// A zero account in a stream and a zero account in an event are not the same somebody.
func TestNobodyIsNotAnAccount(t *testing.T) {
	b := New()
	s := fresh(t, b, 0, false, "x")
	b.Publish(Event{Name: "stray"})
	same(t, drain(t, s))
}

// F-A19: a stream that fell behind is told, and goes on from there; the publisher never waited.
func TestFallenBehindIsSaid(t *testing.T) {
	b := New()
	s := fresh(t, b, 1, false, "a")
	for range Ring + 1 {
		b.Publish(Event{Name: "old", Account: 1})
	}
	if _, err := s.Next(t.Context()); !errors.Is(err, ErrResync) {
		t.Fatalf("err %v, want ErrResync", err)
	}
	same(t, drain(t, s))
	b.Publish(Event{Name: "new", Account: 1})
	same(t, drain(t, s), "new")
}

func TestExactlyARingIsNotBehind(t *testing.T) {
	b := New()
	s := fresh(t, b, 1, false, "a")
	for range Ring {
		b.Publish(Event{Name: "kept", Account: 1})
	}
	if got := drain(t, s); len(got) != Ring {
		t.Fatalf("%d events, want %d", len(got), Ring)
	}
}

func TestResume(t *testing.T) {
	b := New()
	first := fresh(t, b, 1, false, "a")
	b.Publish(Event{Name: "one", Account: 1})
	e, err := first.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	first.Close()
	b.Publish(Event{Name: "confirm", Account: 1, State: true})
	b.Publish(Event{Name: "confirm-ended", Account: 1})
	t.Run("missed events come, without those that the snapshot shows (F-C7)", func(t *testing.T) {
		s := subscribe(t, b, 1, false, "a", e.ID)
		s.Snapshot()
		same(t, drain(t, s), "confirm-ended")
	})
	t.Run("without a snapshot all of them", func(t *testing.T) {
		same(t, drain(t, subscribe(t, b, 1, false, "a", e.ID)), "confirm", "confirm-ended")
	})
	for name, after := range map[string]uint64{"none": 0, "of the future": e.ID + 100, "of another run": New().head, "huge": ^uint64(0)} {
		t.Run(name, func(t *testing.T) {
			s := subscribe(t, b, 1, false, "a", after)
			same(t, drain(t, s), ErrResync.Error())
			s.look()
			same(t, drain(t, s))
		})
	}
}

// A state event that comes after the snapshot is sent.
func TestSnapshotHidesNothingLater(t *testing.T) {
	b := New()
	s := fresh(t, b, 1, false, "a")
	b.Publish(Event{Name: "confirm", Account: 1, State: true})
	same(t, drain(t, s), "confirm")
}

func TestAtMostEightStreamsAnAccount(t *testing.T) {
	b := New()
	var subs []*Sub
	for range MaxStreams {
		subs = append(subs, subscribe(t, b, 1, false, "a", 0))
	}
	_, err := b.Subscribe(1, false, "other session", 0)
	if !fault.Is(err, fault.RateLimited) || fault.Of(err).RetryAfter <= 0 {
		t.Fatalf("the ninth: %v", err)
	}
	subscribe(t, b, 2, false, "b", 0) // another account is not held up
	subs[3].Close()
	subs[3].Close() // twice frees one place only
	subscribe(t, b, 1, false, "a", 0)
	if _, err := b.Subscribe(1, false, "a", 0); err == nil {
		t.Fatal("a tenth stream")
	}
}

// C10: who listens for an account is its own streams and the owners'.
func TestListening(t *testing.T) {
	b := New()
	if b.Listening(1) {
		t.Fatal("nobody listens")
	}
	member := subscribe(t, b, 2, false, "m", 0)
	if b.Listening(1) || !b.Listening(2) {
		t.Fatal("a member listens for itself only")
	}
	owner := subscribe(t, b, 3, true, "o", 0)
	if !b.Listening(1) {
		t.Fatal("an owner listens for all")
	}
	owner.Close()
	b.EndSessions([]string{"m"})
	if b.Listening(1) || b.Listening(2) {
		t.Fatal("ended streams listen")
	}
	if _, err := member.Next(t.Context()); !errors.Is(err, ErrEnded) {
		t.Fatal(err)
	}
}

// G6: the end of a session ends its streams at once, also one that waits, and no other's.
func TestEndSessionsWakesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New()
		s, other := fresh(t, b, 1, false, "a"), fresh(t, b, 1, false, "b")
		ended := make(chan error, 1)
		go func() {
			_, err := s.Next(t.Context())
			ended <- err
		}()
		synctest.Wait()
		b.EndSessions([]string{"a", "unknown"})
		synctest.Wait()
		select {
		case err := <-ended:
			if !errors.Is(err, ErrEnded) {
				t.Fatal(err)
			}
		default:
			t.Fatal("still waiting")
		}
		b.Publish(Event{Name: "later", Account: 1})
		same(t, drain(t, other), "later")
	})
}

func TestClose(t *testing.T) {
	b := New()
	s := fresh(t, b, 1, false, "a")
	b.Close()
	b.Publish(Event{Name: "late", Account: 1})
	if _, err := s.Next(t.Context()); !errors.Is(err, ErrEnded) {
		t.Fatal(err)
	}
	if _, err := b.Subscribe(1, false, "a", 0); !fault.Is(err, fault.Unavailable) {
		t.Fatal(err)
	}
}

func TestNextEndsWithItsContext(t *testing.T) {
	b := New()
	s := fresh(t, b, 1, false, "a")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

// Nothing is lost and nothing comes twice or out of order, whoever runs how fast.
func TestConcurrentPublishersAndReaders(t *testing.T) {
	b := New()
	const publishers, each = 4, 500
	readers := map[int64]*Sub{1: fresh(t, b, 1, false, "a"), 2: fresh(t, b, 2, true, "b")}
	var wg sync.WaitGroup
	for range publishers {
		wg.Go(func() {
			for range each {
				b.Publish(Event{Name: "tick", Account: 1, Owners: true})
			}
		})
	}
	for _, s := range readers {
		wg.Go(func() {
			last, end := s.Cursor(), s.bus.first+publishers*each
			for last < end {
				e, err := s.Next(t.Context())
				switch {
				case errors.Is(err, ErrResync):
					last = s.Cursor()
				case err != nil:
					t.Error(err)
					return
				case e.ID != last+1:
					t.Errorf("event %d after %d", e.ID, last)
					return
				default:
					last = e.ID
				}
			}
		})
	}
	wg.Wait()
}
