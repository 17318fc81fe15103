package account

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"atoll/internal/caller"
	"atoll/internal/fault"
)

func TestPause(t *testing.T) {
	want := []time.Duration{0, 500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second,
		30 * time.Second, 30 * time.Second, 30 * time.Second, 30 * time.Second, 30 * time.Second}
	for n, d := range want {
		if got := pause(n); got != d {
			t.Errorf("after %d: %v, want %v", n, got, d)
		}
	}
	if pause(1<<40) != longestPause {
		t.Error("a large count overflows")
	}
}

// G4: wrong passwords slow an account's answers down, double by double up to 30 s, for known and unknown names alike;
// the right one is let in after the pause, and the count begins anew.
func TestWrongPasswordsSlowDownAndNeverLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := openHouse(t, t.TempDir(), time.Now)
		defer h.db.Close()
		h.mustAdd(t, "ada", caller.Owner)
		try := func(name, password string) (time.Duration, error) {
			start := time.Now()
			_, err := h.login(t.Context(), caller.Stranger("192.0.2.1"), loginParams{name, password})
			return time.Since(start), err
		}
		for n := range 12 {
			for _, name := range []string{"ada", "nobody-here"} {
				took, err := try(name, "wrong password")
				wantCode(t, err, fault.Unauthenticated, "")
				if took != pause(n) {
					t.Fatalf("%s, attempt %d took %v, want %v", name, n, took, pause(n))
				}
			}
		}
		if took, err := try("ADA", goodPassword); err != nil || took != longestPause {
			t.Fatalf("the right password: %v after %v", err, took)
		}
		if took, err := try("ada", goodPassword); err != nil || took != 0 {
			t.Fatalf("after it: %v after %v", err, took)
		}
	})
}

// Attempts at once slow each other down, and none of them holds a hash slot while it waits: another account logs in at
// once.
func TestManyAttemptsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := openHouse(t, t.TempDir(), time.Now)
		defer h.db.Close()
		h.mustAdd(t, "ada", caller.Owner)
		h.mustAdd(t, "ben", caller.Member)
		start := time.Now()
		var mu sync.Mutex
		seen := map[time.Duration]int{}
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() {
				_, err := h.login(t.Context(), caller.Stranger(fmt.Sprint("192.0.2.", i)), loginParams{"ada", "wrong password"})
				if !fault.Is(err, fault.Unauthenticated) {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				seen[time.Since(start)]++
			})
		}
		synctest.Wait()
		if _, err := h.login(t.Context(), caller.Stranger("192.0.2.99"), loginParams{"ben", goodPassword}); err != nil || time.Since(start) != 0 {
			t.Fatalf("ben: %v after %v", err, time.Since(start))
		}
		wg.Wait()
		if seen[0] != 1 || seen[16*time.Second] != 1 || seen[longestPause] != 3 {
			t.Fatalf("answers came at %v", seen)
		}
	})
}

func TestPauseEndsWithItsClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := openHouse(t, t.TempDir(), time.Now)
		defer h.db.Close()
		for range 7 {
			h.slow.count(nil, "x")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		_, err := h.login(ctx, caller.Stranger("x"), loginParams{"x", "wrong password"})
		wantCode(t, err, fault.Cancelled, "")
		if time.Since(start) != time.Second {
			t.Fatal(time.Since(start))
		}
	})
}

// A count is forgotten after a quarter of an hour, and a flood of names neither grows memory nor touches an account's.
func TestCounts(t *testing.T) {
	now := time.Now()
	s := newSlowdown(func() time.Time { return now })
	ada := &person{id: 1, name: "ada"}
	s.count(ada, "ada")
	s.count(ada, "ada")
	for i := range 100_000 {
		s.count(nil, fmt.Sprint("name", i))
	}
	if len(s.unknown) != unknownBuckets || len(s.known) != 1 {
		t.Fatal("memory grew")
	}
	if d := s.count(ada, "ada"); d != pause(2) {
		t.Fatal("the flood changed the count:", d)
	}
	now = now.Add(forgetAfter + time.Second)
	if d := s.count(ada, "ada"); d != 0 {
		t.Fatal("not forgotten:", d)
	}
}
