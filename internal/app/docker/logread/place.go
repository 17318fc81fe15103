package logread

import (
	"hash/maphash"
	"maps"
	"time"
)

// maxRead bounds the different lines of one time that a Place knows. Of more, the rest can be given twice.
const maxRead = 1 << 16

// Place is how far a log was read: the time of the last line, and the lines of that very time. The time alone does not
// tell, since Podman gives it to the second. Nor would the number of lines: of a log that is followed while its container
// restarts, Podman 4.3 leaves some out, and gives them when the log is read anew.
type Place struct {
	Time time.Time
	seed maphash.Seed
	read map[uint64]int // how often each was, by its hash
}

// Move goes on by a line. One without a time, or with an earlier one, belongs to the line before it.
func (p *Place) Move(l Line) {
	if p.read == nil {
		p.seed, p.read = maphash.MakeSeed(), map[uint64]int{}
	}
	if l.Time.After(p.Time) {
		p.Time = l.Time
		clear(p.read)
	}
	if h := p.hash(l); p.read[h] > 0 || len(p.read) < maxRead {
		p.read[h]++
	}
}

func (p *Place) hash(l Line) uint64 {
	type key struct {
		text   string
		stderr bool
	}
	return maphash.Comparable(p.seed, key{l.Text, l.Stderr})
}

// Anew reads a log again, from the beginning or from before a place, and tells what of it is new.
type Anew struct {
	at   *Place
	from time.Time      // where the place was
	old  map[uint64]int // what was read of that time, and did not come again yet
	now  time.Time
}

// Again begins to read a log again of which a place is known; New moves that place on.
func (p *Place) Again() *Anew {
	return &Anew{at: p, from: p.Time, old: maps.Clone(p.read)}
}

// New reports whether the next line was not read before.
func (a *Anew) New(l Line) bool {
	if l.Time.After(a.now) {
		a.now = l.Time
	}
	if a.now.Before(a.from) {
		return false
	}
	if a.now.Equal(a.from) && len(a.old) > 0 {
		if h := a.at.hash(l); a.old[h] > 0 {
			a.old[h]--
			return false
		}
	}
	a.at.Move(l)
	return true
}
