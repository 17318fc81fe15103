package cgroup

import (
	"sync"
	"time"
)

// fresh is how long figures are kept before a group is read again: over less time, the share of a processor is noise.
const fresh = 500 * time.Millisecond

// Figures is what a running process's group uses; nil means unknown.
type Figures struct {
	CPUPercent  *float64 // of one processor, over the time since the group was last read
	MemoryBytes *uint64
}

// Meter turns readings of groups into figures. It is safe for concurrent use. Make one with NewMeter.
type Meter struct {
	now  func() time.Time
	root string // of the files; empty but in tests

	mu   sync.Mutex // guards last
	last map[int]reading
}

type reading struct {
	since, at time.Time
	cpu       time.Duration
	known     bool // cpu was read
	figures   Figures
}

// NewMeter makes a meter; now is its clock, nil means time.Now.
func NewMeter(now func() time.Time) *Meter {
	if now == nil {
		now = time.Now
	}
	return &Meter{now: now, last: map[int]reading{}}
}

// Read takes the processes by number with the time since when each runs, and returns the figures of each one's group. The
// first time, the share of a processor is over the process's life, unknown where since is zero. A process that is not
// named is forgotten, and one that runs since another time is another process.
func (m *Meter) Read(pids map[int]time.Time) map[int]Figures {
	m.mu.Lock()
	defer m.mu.Unlock()
	now, r := m.now(), newReader(m.root)
	next := make(map[int]reading, len(pids))
	out := make(map[int]Figures, len(pids))
	for pid, since := range pids {
		one, ok := m.last[pid]
		if !ok || !one.since.Equal(since) {
			one = r.first(pid, since, now)
		} else if now.Sub(one.at) >= fresh {
			one = r.again(pid, one, now)
		}
		next[pid], out[pid] = one, one.figures
	}
	m.last = next
	return out
}

func (r *reader) first(pid int, since, now time.Time) reading {
	one := r.look(pid, since, now)
	if one.known && !since.IsZero() {
		one.figures.CPUPercent = share(one.cpu, now.Sub(since))
	}
	return one
}

func (r *reader) again(pid int, before reading, now time.Time) reading {
	one := r.look(pid, before.since, now)
	if one.known && before.known {
		one.figures.CPUPercent = share(one.cpu-before.cpu, now.Sub(before.at))
	}
	return one
}

func (r *reader) look(pid int, since, now time.Time) reading {
	one := reading{since: since, at: now}
	g, err := r.groupOf(pid)
	if err != nil {
		return one
	}
	if cpu, err := r.cpu(g); err == nil {
		one.cpu, one.known = cpu, true
	}
	if n, err := r.memory(g); err == nil {
		one.figures.MemoryBytes = &n
	}
	return one
}

// share is in percent of one processor; unknown over no time, and where a total has shrunk, since then it is another
// group's.
func share(used, over time.Duration) *float64 {
	if over <= 0 || used < 0 {
		return nil
	}
	p := used.Seconds() / over.Seconds() * 100
	return &p
}
