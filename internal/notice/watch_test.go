package notice

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
)

func newWatch(t *testing.T, d *desk) (*Watch, *Counters) {
	t.Helper()
	c, err := NewCounters(CountersConfig{})
	if err != nil {
		t.Fatal(err)
	}
	w, err := NewWatch(WatchConfig{Raise: d.Raise, Counters: c, Now: d.clock})
	if err != nil {
		t.Fatal(err)
	}
	return w, c
}

// U4: three in five minutes with untrusted text is a security notice, without it a configuration notice; they are
// counted apart, and two of each are neither.
func TestBursts(t *testing.T) {
	d := newDesk(t)
	w, c := newWatch(t, d)
	for range 2 {
		w.Refused(t.Context(), "operator-1", true)
		w.Refused(t.Context(), "operator-1", false)
		w.Refused(t.Context(), "operator-2", true)
	}
	if items := d.list(t, "", false); len(items) != 0 {
		t.Fatalf("two are no burst: %+v", items)
	}
	d.pass(burstWindow - time.Millisecond)
	w.Refused(t.Context(), "operator-1", true)
	if items := d.list(t, "", false); len(items) != 1 || items[0].Kind != Security || items[0].Do == "" {
		t.Fatalf("%+v", items)
	}
	d.pass(time.Millisecond) // the first two are out of the window
	w.Refused(t.Context(), "operator-1", false)
	w.Refused(t.Context(), "operator-2", true)
	if items := d.list(t, "", false); len(items) != 1 {
		t.Fatalf("a slow drip is no burst: %+v", items)
	}
	for range 2 {
		w.Refused(t.Context(), "operator-1", false)
	}
	if items := d.list(t, Configuration, false); len(items) != 1 || items[0].Count != 1 {
		t.Fatalf("%+v", items)
	}
	for range burst { // the next burst adds to the standing notice
		w.Refused(t.Context(), "operator-1", false)
	}
	if items := d.list(t, Configuration, false); len(items) != 1 || items[0].Count != 2 {
		t.Fatalf("%+v", items)
	}
	if c.Get(NotGrantedUntrusted) != 6 || c.Get(NotGrantedPlain) != 8 {
		t.Errorf("%d with, %d without", c.Get(NotGrantedUntrusted), c.Get(NotGrantedPlain))
	}
}

// T7: the third turn of one session that ends on the round limit, however long it took, and not of several sessions.
func TestRoundLimit(t *testing.T) {
	d := newDesk(t)
	w, c := newWatch(t, d)
	for _, session := range []string{"a", "b", "a", "b"} {
		w.RoundLimit(t.Context(), session)
		d.pass(3 * time.Hour)
	}
	if items := d.list(t, "", false); len(items) != 0 {
		t.Fatalf("%+v", items)
	}
	w.RoundLimit(t.Context(), "a")
	if items := d.list(t, "", false); len(items) != 1 || items[0].Kind != Operation || c.Get(RoundLimitTurns) != 5 {
		t.Fatalf("%+v", items)
	}
}

// G4: one notice, with the method and the figure.
func TestSoftLimit(t *testing.T) {
	d := newDesk(t)
	w, c := newWatch(t, d)
	w.SoftLimit(t.Context(), "s1", "assistant.chat", 30, 5*time.Minute)
	items := d.list(t, Security, false)
	if len(items) != 1 || !strings.Contains(items[0].What, "assistant.chat") || !strings.Contains(items[0].What, "30 times in 5m from") || c.Get(SoftLimits) != 1 {
		t.Errorf("%+v", items)
	}
}

func TestTallyIsBounded(t *testing.T) {
	var y tally
	now := time.Unix(0, 0)
	for i := range 10 * maxTallied {
		y.add(fmt.Sprint(i), now, 0)
	}
	for range 1000 {
		y.add("one", now, 0)
	}
	if len(y.times) != maxTallied || len(y.order) != maxTallied || len(y.times["one"]) > burst || cap(y.order) > 4*maxTallied {
		t.Errorf("%d keys, %d in order, %d times", len(y.times), len(y.order), len(y.times["one"]))
	}
}

func TestWatchConfig(t *testing.T) {
	if _, err := NewWatch(WatchConfig{Raise: func(context.Context, Notice) error { return nil }}); err == nil {
		t.Error("a watch without counters was made")
	}
}
