package systemd

import (
	"math"
	"testing"
	"time"

	"atoll/internal/app"
)

// The share of a processor is over the run's life first, then over the time since the last reading, and never over less
// than half a second; a new run begins anew; what systemd does not know is nil.
func TestUsage(t *testing.T) {
	start := time.Unix(1000, 0)
	now := start.Add(10 * time.Second)
	var u usage
	read := func(run string, since time.Time, cpu time.Duration) *float64 {
		apps := []app.App{{Name: "a.service"}, {Name: "b.service"}}
		bytes := uint64(7)
		u.fill(apps, []total{{cpu: &cpu, memory: &bytes, run: run, since: since}, {}}, now)
		if apps[0].MemoryBytes == nil || *apps[0].MemoryBytes != 7 || apps[1].CPUPercent != nil || apps[1].MemoryBytes != nil {
			t.Errorf("%+v", apps)
		}
		return apps[0].CPUPercent
	}
	want := func(what string, got *float64, percent float64) {
		t.Helper()
		if got == nil || math.Abs(*got-percent) > 0.01 {
			t.Errorf("%s: %v, want %v", what, got, percent)
		}
	}
	want("over its life", read("1", start, 5*time.Second), 50)
	now = now.Add(100 * time.Millisecond)
	want("too soon", read("1", start, 6*time.Second), 50)
	now = now.Add(900 * time.Millisecond)
	want("over a second", read("1", start, 6*time.Second), 100)
	want("a new run", read("2", now.Add(-4*time.Second), time.Second), 25)
	now = now.Add(time.Second)
	if got := read("2", start, 0); got != nil {
		t.Errorf("a total that shrank: %v", *got)
	}
	if got := read("3", time.Time{}, time.Second); got != nil {
		t.Errorf("since when is not known: %v", *got)
	}
}

// "Not set" is systemd's highest number, and unknown here.
func TestTotalOf(t *testing.T) {
	p := props{"ActiveState": "active", "MemoryCurrent": uint64(math.MaxUint64), "CPUUsageNSec": uint64(math.MaxUint64), "ControlGroup": "/no/such/group"}
	if got := totalOf(p); got.cpu != nil || got.memory != nil {
		t.Errorf("%+v", got)
	}
	p["MemoryCurrent"], p["CPUUsageNSec"] = uint64(5), uint64(7)
	if got := totalOf(p); *got.memory != 5 || *got.cpu != 7 {
		t.Errorf("%+v", got)
	}
	p["ActiveState"] = "inactive"
	if got := totalOf(p); got.cpu != nil || got.memory != nil {
		t.Errorf("a unit that is down uses %+v", got)
	}
}
