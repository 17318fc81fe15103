package compose

import "time"

const (
	askEarly = time.Second      // the engine's times are not exactly ours
	askLate  = 30 * time.Second // beyond a container's own time to stop
	stopLag  = 15 * time.Second // between an end and the engine's word that it was a stop
)

// Ends tells a container's stop from an end of its own, by what was asked for. It is not safe for concurrent use.
type Ends struct {
	asks map[string]ask
	last map[string]end
}

// ask is that the end of a container was asked for: when, and the time in which that end can lie. A start leaves no such
// time.
type ask struct{ at, from, until time.Time }

// end is the end of a container's last run, which is told by its start: whether it was asked for, whether it was watched,
// and whether the restart policy was seen waiting to start it again.
type end struct {
	run                   time.Time
	asked, watched, waits bool
}

// NewEnds begins with nothing known.
func NewEnds() *Ends { return &Ends{asks: map[string]ask{}, last: map[string]end{}} }

// Asked notes that a container was told to end, with the time it may take.
func (e *Ends) Asked(id string, at time.Time, takes time.Duration) {
	e.note(id, ask{at, at.Add(-askEarly), at.Add(takes + askLate)})
}

// Stopped notes the engine's word that a container which has ended was stopped.
func (e *Ends) Stopped(id string, at time.Time) { e.note(id, ask{at, at.Add(-stopLag), at}) }

// Begun notes that a container was started: whatever was asked before is over.
func (e *Ends) Begun(id string, at time.Time) { e.note(id, ask{at: at}) }

// Told marks the end of a container's present run as asked for: an engine that was told to stop it has said that it did.
func (e *Ends) Told(c *Container) {
	e.last[c.ID] = end{run: runOf(c), asked: true, watched: true}
	c.Asked, c.Watched = true, true
}

// runOf tells a run by its start: an engine may correct the time of an end it has told.
func runOf(c *Container) time.Time {
	if c.Started.IsZero() {
		return c.Ended
	}
	return c.Started
}

// note keeps the latest: an engine's word can come long after what it tells.
func (e *Ends) note(id string, a ask) {
	if !a.at.Before(e.asks[id].at) {
		e.asks[id] = a
	}
}

// Judge fills in whether the container's end was asked for. watched is since when nothing has been missed. What was
// judged once stays so.
func (e *Ends) Judge(c *Container, watched time.Time) {
	if c.Ended.IsZero() || c.Up() {
		return
	}
	run, last := runOf(c), e.last[c.ID]
	if !last.run.Equal(run) {
		last = end{run: run}
	}
	if c.Phase == Restarting {
		last.watched, last.waits = true, true
	} else if last.waits { // only a stop ends the waiting without a start, however long ago the container itself ended
		last.asked = true
	}
	if a := e.asks[c.ID]; !c.Ended.Before(a.from) && !c.Ended.After(a.until) {
		last.watched, last.asked = true, true
		e.asks[c.ID] = ask{at: a.at}
	} else if !c.Ended.Before(watched) {
		last.watched = true
	}
	e.last[c.ID] = last
	c.Asked, c.Watched = last.asked, last.watched
}

// Forget forgets a container that is no more.
func (e *Ends) Forget(id string) {
	delete(e.asks, id)
	delete(e.last, id)
}

// Keep forgets the containers that are not to be kept.
func (e *Ends) Keep(keep func(id string) bool) {
	for id := range e.asks {
		if !keep(id) {
			delete(e.asks, id)
		}
	}
	for id := range e.last {
		if !keep(id) {
			delete(e.last, id)
		}
	}
}
