package clock

import (
	"testing"
	"time"
)

// C4: at its end by the monotonic clock a span is over, though the wall lags a little behind, as it may where its time is
// being corrected; and before that end it is not.
func TestMonotonicEnd(t *testing.T) {
	for _, lag := range []time.Duration{0, time.Millisecond, time.Second, setBack} {
		h := newHand()
		s := h.clock().Span(time.Hour)
		h.pass(time.Hour - 1)
		h.wall = h.wall.Add(-lag)
		if s.Over(h.clock()) {
			t.Errorf("with the wall %s behind it is over too early", lag)
		}
		h.pass(1)
		if !s.Over(h.clock()) {
			t.Errorf("with the wall %s behind it runs on", lag)
		}
	}
}
