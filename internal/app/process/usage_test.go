package process

import (
	"testing"
	"time"

	"atoll/internal/app"
)

// apps.list has processor and memory per app, over the whole session (SPEC section 4); an app that is down has none.
func TestUsage(t *testing.T) {
	dir := empty(t)
	define(t, dir, "busy", shell("(while :; do :; done) & echo up; wait"))
	define(t, dir, "down", shell("exit 0"))
	now := make(chan time.Time, 1)
	now <- time.Now()
	b := open(t, dir, func(c *Config) { c.Now = func() time.Time { n := <-now; now <- n; return n } })
	b.start("busy")
	b.awaitLog("busy", "up")
	list := func(after time.Duration) map[string]app.App {
		now <- (<-now).Add(after)
		apps, _, err := b.Measure(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]app.App{}
		for _, a := range apps {
			out[a.Name] = a
		}
		return out
	}
	until(t, "processor time", func() bool {
		a := list(time.Second)["busy"]
		return a.CPUPercent != nil && *a.CPUPercent > 0
	})
	a := list(time.Second)["busy"]
	if a.MemoryBytes == nil || *a.MemoryBytes < 64<<10 {
		t.Errorf("%+v", a)
	}
	if d := list(0)["down"]; d.CPUPercent != nil || d.MemoryBytes != nil {
		t.Errorf("%+v", d)
	}
}

func TestUsageArithmetic(t *testing.T) {
	u := usage{at: time.Unix(100, 0), last: map[int]sample{1: {ticks: 1 << 40}}}
	apps := []app.App{{PID: 1}, {PID: 0}}
	u.fill(apps, time.Unix(101, 0)) // the session's children ended: fewer ticks than before
	if apps[0].CPUPercent == nil || *apps[0].CPUPercent != 0 || apps[1].CPUPercent != nil {
		t.Errorf("%+v", apps)
	}
	u.fill(apps, time.Unix(50, 0)) // the clock was set back
	if *apps[0].CPUPercent < 0 {
		t.Errorf("%+v", apps)
	}
}
