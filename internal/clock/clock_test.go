package clock

import (
	"math"
	"testing"
	"testing/synctest"
	"time"
)

// hand is a pair of clocks moved by hand.
type hand struct {
	wall time.Time
	mono time.Duration
}

func newHand() *hand {
	return &hand{wall: time.Date(2026, 3, 29, 0, 30, 0, 0, time.UTC), mono: time.Hour}
}

func (h *hand) clock() Clock {
	return New(func() time.Time { return h.wall }, func() time.Duration { return h.mono })
}

func (h *hand) pass(d time.Duration) { h.wall, h.mono = h.wall.Add(d), h.mono+d }

// restart begins the monotonic clock anew.
func (h *hand) restart() { h.mono = 0 }

// C4: a span ends when the wall or the monotonic clock says so, or when the wall was set back.
func TestSpan(t *testing.T) {
	for name, tc := range map[string]struct {
		move func(*hand)
		over bool
	}{
		"nothing":                {func(*hand) {}, false},
		"just before":            {func(h *hand) { h.pass(time.Hour - 1) }, false},
		"to the end":             {func(h *hand) { h.pass(time.Hour) }, true},
		"the wall alone":         {func(h *hand) { h.wall = h.wall.Add(time.Hour) }, true},
		"the monotonic alone":    {func(h *hand) { h.mono += time.Hour }, true},
		"the wall a second back": {func(h *hand) { h.wall = h.wall.Add(-time.Second) }, false},
		"the wall set back":      {func(h *hand) { h.wall = h.wall.Add(-3 * time.Second) }, true},
		"set back after a while": {func(h *hand) { h.pass(30 * time.Minute); h.wall = h.wall.Add(-10 * time.Second) }, true},
		"set back to its begin":  {func(h *hand) { h.pass(59 * time.Minute); h.wall = h.wall.Add(-59 * time.Minute) }, true},
		"set back in small steps": {func(h *hand) {
			for range 10 {
				h.pass(time.Minute)
				h.wall = h.wall.Add(-time.Second)
			}
		}, true},
		"the monotonic stood still (suspend)": {func(h *hand) { h.wall = h.wall.Add(30 * time.Minute) }, false},
	} {
		h := newHand()
		s := h.clock().Span(time.Hour)
		tc.move(h)
		if got := s.Over(h.clock()); got != tc.over {
			t.Errorf("%s: over is %v", name, got)
		}
		if left := s.Left(h.clock()); left < 0 || left > time.Hour+3*time.Second {
			t.Errorf("%s: %s left", name, left)
		}
	}
}

func TestZeroSpanIsOver(t *testing.T) {
	c := newHand().clock()
	if !(Span{}).Over(c) || (Span{}).Left(c) != 0 {
		t.Error("the zero span runs")
	}
	for _, d := range []time.Duration{0, -1, -time.Hour, math.MinInt64} {
		if s := c.Span(d); !s.Over(c) || s.Left(c) != 0 {
			t.Errorf("a span of %s runs", d)
		}
	}
}

// C4 over a restart: a span that was written down as wall times.
func TestResume(t *testing.T) {
	for name, tc := range map[string]struct {
		move func(*hand)
		over bool
	}{
		"at once":                  {func(*hand) {}, false},
		"within":                   {func(h *hand) { h.wall = h.wall.Add(59 * time.Minute) }, false},
		"after":                    {func(h *hand) { h.wall = h.wall.Add(time.Hour) }, true},
		"long after":               {func(h *hand) { h.wall = h.wall.AddDate(50, 0, 0) }, true},
		"begins in the future":     {func(h *hand) { h.wall = h.wall.Add(-3 * time.Second) }, true},
		"begins a second too late": {func(h *hand) { h.wall = h.wall.Add(-time.Second) }, false},
	} {
		h := newHand()
		first := h.clock().Span(time.Hour)
		from, until := first.From(), first.Until()
		h.restart()
		tc.move(h)
		s := h.clock().Resume(from, until)
		if got := s.Over(h.clock()); got != tc.over {
			t.Errorf("%s: over is %v", name, got)
		}
		if tc.over {
			continue
		}
		if !s.From().Equal(from) || !s.Until().Equal(until) {
			t.Errorf("%s: resumed as %s to %s", name, s.From(), s.Until())
		}
		h.wall = h.wall.Add(-10 * time.Second)
		if !s.Over(h.clock()) {
			t.Errorf("%s: set back after the restart and still runs", name)
		}
	}
	c := newHand().clock()
	for name, s := range map[string]Span{
		"no end":           c.Resume(c.Now(), time.Time{}),
		"nothing":          c.Resume(time.Time{}, time.Time{}),
		"backwards":        c.Resume(c.Now(), c.Now().Add(-time.Hour)),
		"beyond reckoning": c.Resume(c.Now(), time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)),
	} {
		if name != "beyond reckoning" && !s.Over(c) {
			t.Errorf("%s: runs", name)
		}
		if left := s.Left(c); left < 0 {
			t.Errorf("%s: %s left", name, left)
		}
	}
}

// The real clock: the wall of a synctest bubble, the same rules.
func TestReal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := Real()
		s := c.Span(time.Minute)
		if c.Now() != c.Now().Round(0) || s.Over(c) || s.Left(c) != time.Minute {
			t.Errorf("begun with %s left", s.Left(c))
		}
		<-time.After(time.Minute - 1)
		if s.Over(c) || s.Age(c) != time.Minute-1 {
			t.Error("over too early")
		}
		<-time.After(1)
		if !s.Over(c) || s.Left(c) != 0 {
			t.Error("not over at its end")
		}
	})
}
