package systemd

import (
	"sync"
	"time"

	"atoll/internal/app"
	"atoll/internal/cgroup"
)

// usageFresh is the least time over which a share of a processor is told.
const usageFresh = 500 * time.Millisecond

// total is what a unit has used; nil means unknown.
type total struct {
	cpu    *time.Duration
	memory *uint64
	run    string    // the invocation that used it
	since  time.Time // its beginning
}

// totalOf takes systemd's own figures, and reads the unit's control group where systemd keeps none.
func totalOf(p props) total {
	if down(p) {
		return total{}
	}
	t := total{run: p.invocation(), since: p.clock("InactiveExitTimestamp")}
	if n, ok := p.wide("MemoryCurrent"); ok {
		t.memory = &n
	}
	if ns, ok := p.wide("CPUUsageNSec"); ok {
		cpu := time.Duration(ns)
		t.cpu = &cpu
	}
	group := p.text("ControlGroup")
	if group == "" || t.memory != nil && t.cpu != nil {
		return t
	}
	u, err := cgroup.At(group)
	if err != nil {
		return t
	}
	if t.memory == nil {
		t.memory = &u.Memory
	}
	if t.cpu == nil {
		t.cpu = &u.CPU
	}
	return t
}

// usage turns totals into shares of a processor.
type usage struct {
	mu   sync.Mutex // guards last
	last map[string]reading
}

type reading struct {
	at      time.Time
	cpu     time.Duration
	run     string
	percent *float64
}

// fill adds the figures: the share of a processor over the time since the last reading, over the run's life at first.
func (u *usage) fill(apps []app.App, totals []total, now time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	next := map[string]reading{}
	for i, t := range totals {
		apps[i].MemoryBytes = t.memory
		if t.cpu == nil {
			continue
		}
		r, ok := u.last[apps[i].Name]
		before, from := r.cpu, r.at
		if !ok || r.run != t.run {
			before, from = 0, t.since
		} else if now.Sub(r.at) < usageFresh {
			next[apps[i].Name], apps[i].CPUPercent = r, r.percent
			continue
		}
		r = reading{at: now, cpu: *t.cpu, run: t.run}
		if over := now.Sub(from); over > 0 && !from.IsZero() && *t.cpu >= before {
			percent := (*t.cpu - before).Seconds() / over.Seconds() * 100
			r.percent = &percent
		}
		next[apps[i].Name], apps[i].CPUPercent = r, r.percent
	}
	u.last = next
}
