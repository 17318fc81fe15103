package compose

import (
	"testing"
	"time"
)

// TestEnds: a stop is told from an end of the container's own, however late the engine's word comes (package docker, doc).
func TestEnds(t *testing.T) {
	at := func(s float64) time.Time { return time.Unix(1000, 0).Add(time.Duration(s * float64(time.Second))) }
	const watched = -100
	cases := []struct {
		name           string
		tell           func(e *Ends, ended func(float64))
		asked, watched bool
	}{
		{"nothing known", func(_ *Ends, ended func(float64)) { ended(-200) }, false, false},
		{"by itself", func(_ *Ends, ended func(float64)) { ended(5) }, false, true},
		{"asked", func(e *Ends, ended func(float64)) { e.Asked("c", at(0), 10*time.Second); ended(3) }, true, true},
		{"asked, killed late", func(e *Ends, ended func(float64)) { e.Asked("c", at(0), 10*time.Second); ended(30) }, true, true},
		{"a signal that it outlived", func(e *Ends, ended func(float64)) { e.Asked("c", at(0), 10*time.Second); ended(300) }, false, true},
		{"ended before it was asked", func(e *Ends, ended func(float64)) { e.Asked("c", at(10), 10*time.Second); ended(5) }, false, true},
		{"the engine's word afterwards", func(e *Ends, ended func(float64)) { ended(5); e.Stopped("c", at(6)); ended(5) }, true, true},
		{"the word of an earlier stop", func(e *Ends, ended func(float64)) { e.Stopped("c", at(3)); ended(5) }, false, true},
		{"started since", func(e *Ends, ended func(float64)) {
			e.Asked("c", at(0), 10*time.Second)
			ended(1)
			e.Begun("c", at(2))
			ended(3)
		}, false, true},
		{"old words come after a start", func(e *Ends, ended func(float64)) {
			e.Begun("c", at(2))
			e.Asked("c", at(0), 10*time.Second)
			e.Stopped("c", at(1))
			ended(3)
		}, false, true},
		{"an old start comes after the stop", func(e *Ends, ended func(float64)) {
			e.Asked("c", at(5), 10*time.Second)
			e.Begun("c", at(4))
			ended(6)
		}, true, true},
		{"one ask is for one end", func(e *Ends, ended func(float64)) { e.Asked("c", at(0), 10*time.Second); ended(1); ended(2) }, false, true},
		{"judged again", func(e *Ends, ended func(float64)) { e.Asked("c", at(0), 10*time.Second); ended(1); ended(1); ended(1) }, true, true},
		{"another's", func(e *Ends, ended func(float64)) { e.Asked("d", at(0), 10*time.Second); ended(1) }, false, true},
		{"forgotten", func(e *Ends, ended func(float64)) { e.Asked("c", at(0), 10*time.Second); e.Forget("c"); ended(1) }, false, true},
		{"kept", func(e *Ends, ended func(float64)) {
			e.Asked("c", at(0), 10*time.Second)
			e.Keep(func(id string) bool { return id == "c" })
			ended(1)
		}, true, true},
		{"not kept", func(e *Ends, ended func(float64)) {
			e.Asked("c", at(0), 10*time.Second)
			ended(1)
			e.Keep(func(string) bool { return false })
			ended(1)
		}, false, true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			e, box := NewEnds(), &Container{ID: "c", Phase: Exited}
			c.tell(e, func(s float64) {
				box.Ended = at(s)
				e.Judge(box, at(watched))
			})
			if box.Asked != c.asked || box.Watched != c.watched {
				t.Errorf("asked %v, watched %v", box.Asked, box.Watched)
			}
		})
	}
	e, up := NewEnds(), &Container{ID: "c", Phase: Running, Ended: at(1)}
	e.Asked("c", at(0), time.Second)
	if e.Judge(up, at(watched)); up.Asked {
		t.Error("one that runs has an end")
	}

	// Stopped in the pause before its restart policy starts it again, long after it ended.
	e, loop := NewEnds(), &Container{ID: "c", Phase: Restarting, Ended: at(1)}
	if e.Judge(loop, at(watched)); loop.Asked {
		t.Error("one that is to be started again was stopped")
	}
	loop.Ended = at(2)
	e.Judge(loop, at(watched))
	loop.Phase = Exited
	if e.Judge(loop, at(watched)); !loop.Asked {
		t.Error("a stop in the pause is none")
	}
	loop.Ended = at(3)
	if e.Judge(loop, at(watched)); loop.Asked {
		t.Error("an end without a pause is a stop")
	}

	// An engine that corrects the time of an end it has told speaks of the same end.
	e, late := NewEnds(), &Container{ID: "d", Phase: Exited, Started: at(1), Ended: at(3)}
	e.Asked("d", at(2), 0)
	if e.Judge(late, at(watched)); !late.Asked {
		t.Error("a stop is none")
	}
	late.Ended = at(3.5)
	if e.Judge(late, at(watched)); !late.Asked {
		t.Error("a stop whose time was corrected is none")
	}
	late.Started, late.Ended = at(4), at(5)
	if e.Judge(late, at(watched)); late.Asked {
		t.Error("the next end is a stop")
	}
}
