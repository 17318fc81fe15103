package logread

import "time"

// Place is how far a log was read: the time of the last line, and how many lines of that very time were. A time alone
// does not tell, since some engines give it to the second.
type Place struct {
	Time  time.Time
	Count int
}

// Move goes on by a line. One without a time, or with an earlier one, belongs to the line before it.
func (p *Place) Move(t time.Time) {
	if t.After(p.Time) {
		*p = Place{t, 0}
	}
	p.Count++
}

// Beyond reports whether the place is after another in the same log.
func (p Place) Beyond(q Place) bool {
	return p.Time.After(q.Time) || p.Time.Equal(q.Time) && p.Count > q.Count
}
