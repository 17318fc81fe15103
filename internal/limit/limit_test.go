package limit

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// hand is a clock that a test moves. It has no monotonic reading, so it can also be set back.
type hand struct{ t time.Time }

func (h *hand) now() time.Time          { return h.t }
func (h *hand) advance(d time.Duration) { h.t = h.t.Add(d) }

func newHand() *hand { return &hand{time.Unix(1_700_000_000, 0)} }

func must(t testing.TB, cfg Config) *Limiter {
	t.Helper()
	l, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// G4: the numbers of assistant.chat: 60 in 5 minutes, a notice at 30, and the time to wait is the true one.
func TestChatLimit(t *testing.T) {
	h := newHand()
	l := must(t, Config{Max: 60, Window: 5 * time.Minute, Soft: 30, MaxKeys: 1000, Now: h.now})
	for i := 1; i <= 60; i++ {
		d := l.Allow("s")
		if !d.OK || d.Soft != (i == 30) || d.RetryAfter != 0 {
			t.Fatalf("call %d: %+v", i, d)
		}
		h.advance(time.Second)
	}
	d := l.Allow("s") // 60 s after the first
	if d.OK || d.Soft || d.RetryAfter < 240*time.Second || d.RetryAfter > 240*time.Second+time.Microsecond {
		t.Fatalf("call 61: %+v", d)
	}
	if !l.Allow("other").OK {
		t.Fatal("one session's calls count for another")
	}
	h.advance(d.RetryAfter - time.Microsecond)
	if l.Allow("s").OK {
		t.Fatal("passed too early")
	}
	h.advance(time.Microsecond)
	if !l.Allow("s").OK {
		t.Fatal("did not pass when it was told it would")
	}
	if l.Allow("s").OK {
		t.Fatal("one expired event let two through")
	}
}

// G4: exact windows, against a list of all accepted times, with the clock set back now and then.
func TestExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := newHand()
		window := rapid.SampledFrom([]time.Duration{1, 7, time.Millisecond, 2 * time.Second, 5 * time.Minute, 24 * time.Hour}).Draw(t, "window")
		most := rapid.IntRange(1, 40).Draw(t, "max")
		soft := rapid.IntRange(0, most).Draw(t, "soft")
		l := must2(t, Config{Max: most, Window: window, Soft: soft, MaxKeys: 1000, Now: h.now})
		tick := time.Duration(1) << l.shift
		slack := time.Duration(0)
		if l.shift > 0 {
			slack = 2 * tick
		}
		accepted, fired, now := map[string][]time.Time{}, map[string]time.Time{}, h.t
		for range rapid.IntRange(1, 400).Draw(t, "calls") {
			switch rapid.IntRange(0, 20).Draw(t, "step") {
			case 0:
				l.Sweep()
				now = latest(now, h.t)
			case 1:
				h.advance(window)
			case 2:
				h.advance(-time.Duration(rapid.Int64Range(0, int64(window)).Draw(t, "back")))
			case 3:
				h.advance(3 * window)
			case 4, 5, 6, 7:
				h.advance(time.Duration(rapid.Int64Range(0, int64(window)/int64(most)+1).Draw(t, "pause")))
			}
			key := string(rune('a' + rapid.IntRange(0, 3).Draw(t, "key")))
			now = latest(now, h.t)
			d := l.Allow(key)
			strict, lax := since(accepted[key], now, window), since(accepted[key], now, window+slack)
			switch {
			case d.OK && strict >= most:
				t.Fatalf("%s at %v: call %d in a window of %d", key, now, strict+1, most)
			case !d.OK && lax < most:
				t.Fatalf("%s at %v: refused with %d of %d", key, now, lax, most)
			case !d.OK:
				oldest := accepted[key][len(accepted[key])-most]
				if w := oldest.Add(window).Sub(h.t); d.RetryAfter < w || d.RetryAfter > w+2*slack || d.Soft {
					t.Fatalf("%s: %+v, the true wait is %v", key, d, w)
				}
				continue
			}
			accepted[key] = append(accepted[key], now)
			last, was := fired[key]
			again := !was || now.Sub(last) >= window
			reached := soft > 0 && strict+1 >= soft
			if d.Soft && (!again || soft == 0 || lax+1 < soft) {
				t.Fatalf("%s: notice at %d of %d, the last %v ago", key, strict+1, soft, now.Sub(last))
			}
			if reached && !d.Soft && (!was || now.Sub(last) >= window+slack) {
				t.Fatalf("%s: no notice at %d of %d", key, strict+1, soft)
			}
			if d.Soft {
				fired[key] = now
			}
		}
	})
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func must2(t *rapid.T, cfg Config) *Limiter {
	l, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// since counts the times less than window before now.
func since(times []time.Time, now time.Time, window time.Duration) int {
	n := 0
	for _, t := range times {
		if now.Sub(t) < window {
			n++
		}
	}
	return n
}

// G4: the notice comes once a window while the count stays high, and again in the next window.
func TestSoftOncePerWindow(t *testing.T) {
	h := newHand()
	l := must(t, Config{Max: 10, Window: time.Second, Soft: 3, MaxKeys: 10, Now: h.now})
	var at []int
	for ms := 0; ms < 3000; ms += 200 { // five a second, for three seconds
		if l.Allow("k").Soft {
			at = append(at, ms)
		}
		h.advance(200 * time.Millisecond)
	}
	if fmt.Sprint(at) != "[400 1400 2400]" {
		t.Fatal(at)
	}
	for _, cfg := range []Config{{Max: 1, Soft: 1}, {Max: 2, Soft: 2}, {Max: 9, Soft: 9}} { // before the refusal can
		cfg.Window, cfg.MaxKeys, cfg.Now = time.Second, 1, h.now
		l := must(t, cfg)
		for i := 1; i <= cfg.Max; i++ {
			if d := l.Allow("k"); !d.OK || d.Soft != (i == cfg.Max) {
				t.Fatalf("%d of %d: %+v", i, cfg.Max, d)
			}
		}
		if d := l.Allow("k"); d.OK || d.Soft {
			t.Fatalf("%+v", d)
		}
	}
}

// G4, C4: a clock without a monotonic reading that is set back gives nobody a new window; it closes.
func TestClockSetBack(t *testing.T) {
	h := newHand()
	l := must(t, Config{Max: 1, Window: time.Minute, MaxKeys: 10, Now: h.now})
	l.Allow("k")
	h.advance(-time.Hour)
	if d := l.Allow("k"); d.OK || d.RetryAfter < time.Hour+time.Minute {
		t.Fatalf("%+v", d)
	}
	l.Sweep()
	if l.Keys() != 1 || l.Allow("k").OK {
		t.Fatal("forgotten")
	}
	h.advance(time.Hour + time.Minute + time.Microsecond)
	if !l.Allow("k").OK {
		t.Fatal("never opens")
	}
}

// G4: without a Now the machine's clock counts.
func TestOwnClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := must(t, Config{Max: 2, Window: time.Minute, MaxKeys: 10})
		l.Allow("k")
		l.Allow("k")
		d := l.Allow("k")
		if d.OK {
			t.Fatal("not refused")
		}
		<-time.After(d.RetryAfter)
		if !l.Allow("k").OK {
			t.Fatal("refused after the wait")
		}
	})
}

// G4: idle keys go at the sweep, live ones keep their counts, memory goes back.
func TestSweep(t *testing.T) {
	h := newHand()
	l := must(t, Config{Max: 20, Window: time.Minute, Soft: 5, MaxKeys: 100_000, Now: h.now})
	for i := range 20_000 {
		for range i%20 + 1 {
			l.Allow(fmt.Sprint(i))
		}
	}
	h.advance(30 * time.Second)
	for i := range 100 {
		l.Allow(fmt.Sprint("live", i))
		l.Allow(fmt.Sprint(19 + 20*i)) // full: refused, so it does not live longer
	}
	l.Sweep()
	if n := l.Keys(); n != 20_100 {
		t.Fatalf("%d keys: a sweep took live ones", n)
	}
	if l.Allow("19").OK || !l.Allow("18").OK || l.Allow("18").OK {
		t.Fatal("a sweep changed a count")
	}
	h.advance(31 * time.Second)
	l.Sweep()
	if n := l.Keys(); n != 101 {
		t.Fatalf("%d keys, want the live ones", n)
	}
	for i := range l.shards {
		if n := len(l.shards[i].slots); n > 200 {
			t.Fatalf("a table of %d for about 12 keys", n)
		}
	}
	h.advance(time.Hour)
	l.Sweep()
	for i := range l.shards {
		if s := &l.shards[i]; s.keys != 0 || s.slots != nil || s.slabs != nil {
			t.Fatal("memory of no keys kept")
		}
	}
}

// F-F6: a flood of invented keys takes no memory beyond the bound, resets nobody's count, and room comes back.
func TestFlood(t *testing.T) {
	for _, room := range []int{1, 100, 40_000} {
		h := newHand()
		l := must(t, Config{Max: 2, Window: time.Minute, MaxKeys: room, Now: h.now})
		l.Allow("victim")
		l.Allow("victim")
		refused := 0
		for i := range 2*room + 10 {
			d := l.Allow(fmt.Sprint("flood", i))
			if d.OK == (d.RetryAfter > 0) {
				t.Fatalf("%+v", d)
			}
			if !d.OK {
				refused++
			}
		}
		if n := l.Keys(); n > room || n+refused != 2*room+11 {
			t.Fatalf("%d keys of %d, %d refused", n, room, refused)
		}
		slots := 0
		for i := range l.shards {
			slots += len(l.shards[i].slots)
		}
		if slots > room*3/2+smallestTable*len(l.shards) {
			t.Fatalf("%d slots for %d keys", slots, room)
		}
		if l.Allow("victim").OK {
			t.Fatal("the flood reset a count")
		}
		d := l.Allow("new") // for one of several tables that is full
		h.advance(max(d.RetryAfter, time.Minute) + time.Microsecond)
		if !l.Allow("new").OK || !l.Allow("victim").OK && room > 1 {
			t.Fatal("no room after the wait")
		}
	}
}

// Keys that fill up side by side leave no small blocks behind, and a key that comes and goes allocates nothing.
func TestBlocksGivenBack(t *testing.T) {
	h := newHand()
	l := must(t, Config{Max: 60, Window: time.Minute, Soft: 30, MaxKeys: 1000, Now: h.now})
	for round := range 120 {
		for i := range 1000 {
			l.Allow(fmt.Sprint(i))
		}
		if round == 59 {
			h.advance(time.Hour)
		}
	}
	words := 0
	for _, b := range l.shards[0].slabs {
		for _, c := range b.chunks {
			words += len(c.words)
		}
	}
	if words > 1000*60+64*(4+8+16+32+60) {
		t.Fatalf("%d words for 1000 full keys", words)
	}
	h.advance(time.Hour)
	for i := range 1000 { // one after the other, through all classes
		for range 60 {
			if !l.Allow(fmt.Sprint(i)).OK {
				t.Fatal(i)
			}
		}
		if l.Allow(fmt.Sprint(i)).OK {
			t.Fatal(i)
		}
	}
	if n := testing.AllocsPerRun(50, func() {
		for range 61 {
			l.Allow("0")
		}
		h.advance(time.Hour)
	}); n != 0 {
		t.Fatal(n)
	}
}

// A key that keeps its slot by coming back is never dropped to make room.
func TestFullTableKeepsLiveKeys(t *testing.T) {
	h := newHand()
	l := must(t, Config{Max: 5, Window: time.Minute, MaxKeys: 3, Now: h.now})
	l.Allow("a")
	l.Allow("b")
	h.advance(30 * time.Second)
	l.Allow("b")
	l.Allow("c")
	if d := l.Allow("d"); d.OK || d.RetryAfter < 30*time.Second || d.RetryAfter > 31*time.Second {
		t.Fatalf("%+v", d)
	}
	h.advance(29 * time.Second)
	l.Allow("a") // so that the table is still full when the search for room is due
	h.advance(2 * time.Second)
	if d := l.Allow("d"); d.OK || d.RetryAfter < 28*time.Second || d.RetryAfter > 29*time.Second+time.Millisecond {
		t.Fatalf("%+v", d)
	}
	l.Allow("b")
	h.advance(30 * time.Second) // c goes
	if !l.Allow("d").OK {
		t.Fatal("an idle key kept a new one out")
	}
	for range 4 {
		if !l.Allow("b").OK {
			t.Fatal("b has more than one event")
		}
	}
	if l.Allow("b").OK {
		t.Fatal("b was dropped")
	}
}

// Zero values are closed.
func TestZeroRefuses(t *testing.T) {
	var zero Limiter
	var none *Limiter
	for _, l := range []*Limiter{&zero, none} {
		if d := l.Allow("k"); d.OK {
			t.Fatal("allowed")
		}
		l.Sweep()
		if l.Keys() != 0 {
			t.Fatal("keys")
		}
	}
	if (Decision{}).OK {
		t.Fatal("the zero decision allows")
	}
}

func TestConfig(t *testing.T) {
	good := Config{Max: 1, Window: 1, MaxKeys: 1}
	must(t, good)
	for field, change := range map[string]func(*Config){
		"Max is":  func(c *Config) { c.Max = 0 },
		"Max is ": func(c *Config) { c.Max = maxMax + 1 },
		"Window":  func(c *Config) { c.Window = 0 },
		"Soft":    func(c *Config) { c.Soft = -1 },
		"Soft is": func(c *Config) { c.Soft = 2 },
		"MaxKeys": func(c *Config) { c.MaxKeys = 0 },
	} {
		bad := good
		change(&bad)
		if l, err := New(bad); err == nil || l != nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	for _, c := range []Config{{Max: maxMax, Window: 1 << 62, Soft: maxMax, MaxKeys: maxKeys}} {
		l := must(t, c)
		for range maxMax {
			if !l.Allow("k").OK {
				t.Fatal("refused below Max")
			}
		}
		if l.Allow("k").OK {
			t.Fatal("allowed above Max")
		}
	}
}

// The total is exact however many goroutines share a key; run with -race.
func TestConcurrent(t *testing.T) {
	l := must(t, Config{Max: 100, Window: time.Hour, Soft: 50, MaxKeys: 50_000})
	var (
		mu         sync.Mutex
		ok, notice [5]int
		wg         sync.WaitGroup
	)
	for g := range 8 {
		wg.Go(func() {
			var mine, soft [5]int
			for i := range 200 {
				for k := range 5 {
					d := l.Allow(fmt.Sprint("shared", k))
					if d.OK {
						mine[k]++
					}
					if d.Soft {
						soft[k]++
					}
				}
				l.Allow(fmt.Sprint("own", g, i))
				if i%50 == 0 {
					l.Sweep()
				}
			}
			mu.Lock()
			defer mu.Unlock()
			for k := range 5 {
				ok[k] += mine[k]
				notice[k] += soft[k]
			}
		})
	}
	wg.Wait()
	for k := range 5 {
		if ok[k] != 100 || notice[k] != 1 {
			t.Errorf("key %d: %d allowed, %d notices", k, ok[k], notice[k])
		}
	}
	if l.Keys() != 5+8*200 {
		t.Error(l.Keys())
	}
}

// A call on a known key allocates nothing.
func TestNoAllocation(t *testing.T) {
	l := must(t, Config{Max: 60, Window: time.Hour, Soft: 30, MaxKeys: 1000})
	for range 61 {
		l.Allow("k")
	}
	if n := testing.AllocsPerRun(100, func() { l.Allow("k") }); n != 0 {
		t.Fatal(n)
	}
}
