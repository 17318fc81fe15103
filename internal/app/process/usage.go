package process

import (
	"sync"
	"time"

	"atoll/internal/app"
	"atoll/internal/proc"
)

// usageFresh is how long figures are kept before /proc is read again.
const usageFresh = 500 * time.Millisecond

// usage gives each app its processor time and memory, summed over its session.
type usage struct {
	mu   sync.Mutex // guards the fields below
	at   time.Time
	last map[int]sample // by session
}

type sample struct {
	ticks   uint64
	bytes   uint64
	percent float64
}

// fill adds the figures of the apps that have a process. Processor use is over the time since the last reading, for an
// app not seen before over its life.
func (u *usage) fill(apps []app.App, now time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	running := false
	for _, a := range apps {
		_, known := u.last[a.PID]
		running = running || a.PID != 0 && (!known || now.Sub(u.at) >= usageFresh)
	}
	if running {
		u.read(apps, now)
	}
	for i, a := range apps {
		if s, ok := u.last[a.PID]; ok && a.PID != 0 {
			apps[i].CPUPercent, apps[i].MemoryBytes = &s.percent, &s.bytes
		}
	}
}

func (u *usage) read(apps []app.App, now time.Time) {
	next := map[int]sample{}
	for _, a := range apps {
		if a.PID != 0 {
			next[a.PID] = sample{}
		}
	}
	for _, st := range proc.All() {
		if s, ok := next[st.Session]; ok && !st.Dead() {
			next[st.Session] = sample{ticks: s.ticks + st.Ticks, bytes: s.bytes + st.RSS}
		}
	}
	for _, a := range apps {
		s, ok := next[a.PID]
		if !ok {
			continue
		}
		before, over := uint64(0), now.Sub(a.Since)
		if old, known := u.last[a.PID]; known {
			before, over = old.ticks, now.Sub(u.at)
		}
		if s.ticks > before && over > 0 { // fewer when a child of it ended
			s.percent = float64(s.ticks-before) / proc.TicksPerSecond / over.Seconds() * 100
		}
		next[a.PID] = s
	}
	u.at, u.last = now, next
}
