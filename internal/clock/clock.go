// Package clock tells two times apart: the wall's, which people read and which can jump, and the monotonic one, which
// only runs forward. A span is over when either says so (C4). It sets no timers.
package clock

import "time"

// setBack is how far the wall clock may step back before it counts as set back; smaller steps are what time
// synchronisation does.
const setBack = 2 * time.Second

// Clock is a pair of clocks. The zero Clock is not usable; use Real or New.
type Clock struct {
	wall func() time.Time
	mono func() time.Duration
}

// Real is the machine's own clocks.
func Real() Clock {
	start := time.Now()
	return Clock{wall: time.Now, mono: func() time.Duration { return time.Since(start) }}
}

// New is a clock for tests. mono must never run backwards.
func New(wall func() time.Time, mono func() time.Duration) Clock { return Clock{wall, mono} }

// Now is the wall's time, without a monotonic reading.
func (c Clock) Now() time.Time { return c.wall().Round(0) }

// Mono is the monotonic time since the clock was made.
func (c Clock) Mono() time.Duration { return c.mono() }

// Span is a stretch of time that began once and ends once. The zero Span is over.
type Span struct {
	from, until time.Time
	start, end  time.Duration
}

// Span begins a span of length d now.
func (c Clock) Span(d time.Duration) Span {
	now, mono := c.Now(), c.mono()
	return Span{from: now, until: now.Add(d), start: mono, end: mono + d}
}

// Resume continues a span that was written down as two wall times. One that seems to begin in the future is over: the
// clock was set back.
func (c Clock) Resume(from, until time.Time) Span {
	now, mono := c.Now(), c.mono()
	if now.Add(setBack).Before(from) {
		return Span{}
	}
	return Span{from: from.Round(0), until: until.Round(0), start: mono, end: mono + until.Sub(now)}
}

// Over reports whether either clock has reached the end, or the wall was set back since the span began or was resumed.
func (s Span) Over(c Clock) bool {
	if s.until.IsZero() {
		return true
	}
	now, mono := c.Now(), c.mono()
	if !now.Before(s.until) || mono >= s.end {
		return true
	}
	ran := mono - s.start // the wall must have moved on at least about as much
	begun := s.until.Add(-(s.end - s.start))
	return now.Add(setBack).Before(begun.Add(ran))
}

// From and Until are the wall times of the span's ends.
func (s Span) From() time.Time  { return s.from }
func (s Span) Until() time.Time { return s.until }

// Age is how long the span has run, by the monotonic clock.
func (s Span) Age(c Clock) time.Duration { return c.mono() - s.start }

// Left is how long until the end, never negative.
func (s Span) Left(c Clock) time.Duration {
	return max(0, min(s.until.Sub(c.Now()), s.end-c.mono()))
}
