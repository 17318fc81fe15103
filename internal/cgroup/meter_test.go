package cgroup

import (
	"fmt"
	"math"
	"os"
	"sync"
	"testing"
	"time"
)

// The share of a processor is over the process's life first, then over the time since the last reading, never over less
// than half a second; what is not known is nil, not zero.
func TestMeter(t *testing.T) {
	start := time.Unix(1000, 0)
	now := start.Add(10 * time.Second)
	m := NewMeter(func() time.Time { return now })
	m.root = lay(t, map[string]string{
		"/proc/7/cgroup":                  "0::/a\n",
		"/proc/8/cgroup":                  "0::/\n",
		"/sys/fs/cgroup/a/memory.current": "900\n",
		"/sys/fs/cgroup/a/memory.stat":    stat2,
		"/sys/fs/cgroup/cpu.stat":         "usage_usec 999999\n",
		"/sys/fs/cgroup/memory.current":   "999999",
	})
	used := func(d time.Duration) {
		p := m.root + "/sys/fs/cgroup/a/cpu.stat"
		if err := os.WriteFile(p, fmt.Appendf(nil, "usage_usec %d\n", d.Microseconds()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	read := func(since time.Time) Figures { return m.Read(map[int]time.Time{7: since})[7] }
	want := func(what string, f Figures, percent float64) {
		t.Helper()
		if f.CPUPercent == nil || math.Abs(*f.CPUPercent-percent) > 0.01 {
			t.Errorf("%s: %v, want %v", what, f.CPUPercent, percent)
		}
		if f.MemoryBytes == nil || *f.MemoryBytes != 600 {
			t.Errorf("%s: memory %v", what, f.MemoryBytes)
		}
	}
	used(5 * time.Second)
	want("over its life", read(start), 50)
	now = now.Add(400 * time.Millisecond)
	used(6 * time.Second)
	want("too soon", read(start), 50)
	now = now.Add(600 * time.Millisecond)
	want("over a second", read(start), 100)
	now = now.Add(time.Second)
	want("idle", read(start), 0)

	later := now.Add(-2 * time.Second) // another process with the same number
	used(time.Second)
	want("a restart", read(later), 50)
	now = now.Add(time.Second)
	used(0)
	if f := read(later); f.CPUPercent != nil {
		t.Errorf("a total that shrank is a share of %v", *f.CPUPercent)
	}
	if f := read(time.Time{}); f.CPUPercent != nil || f.MemoryBytes == nil {
		t.Errorf("since when is unknown: %+v", f)
	}

	both := m.Read(map[int]time.Time{8: start, 9: start})
	if len(both) != 2 || both[8] != (Figures{}) || both[9] != (Figures{}) {
		t.Errorf("the root and no process at all: %+v", both)
	}
	if len(m.last) != 2 {
		t.Errorf("%d processes remembered", len(m.last))
	}
}

func TestMeterAtOnce(t *testing.T) {
	m := NewMeter(nil)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { m.Read(map[int]time.Time{os.Getpid(): time.Now()}) })
	}
	wg.Wait()
}

func BenchmarkMeter(b *testing.B) {
	now := time.Unix(1000, 0)
	m := NewMeter(func() time.Time { now = now.Add(time.Second); return now })
	pids := map[int]time.Time{os.Getpid(): now}
	b.ReportAllocs()
	for b.Loop() {
		m.Read(pids)
	}
}
