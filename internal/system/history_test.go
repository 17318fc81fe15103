package system

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shirou/gopsutil/v4/disk"
)

func TestHistoryIsABoundedRing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := config()
		cfg.Interval, cfg.Keep = time.Minute, 3
		r, err := newRoom(cfg, fake(mount("/dev/sda1", "/", "ext4")))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() { r.Run(ctx) })
		if h := r.history(); h.Samples == nil || len(h.Samples) != 0 || h.IntervalS != 60 {
			t.Errorf("before the first: %+v", h)
		}
		begin := time.Now()
		<-time.After(5*time.Minute + time.Second)
		cancel()
		run.Wait()
		h := r.history()
		if len(h.Samples) != 3 {
			t.Fatalf("%d samples", len(h.Samples))
		}
		for i, s := range h.Samples {
			if want := begin.Add(time.Duration(i+3) * time.Minute); !s.Time.Equal(want) {
				t.Errorf("sample %d is of %s, want %s", i, s.Time.Sub(begin), want.Sub(begin))
			}
			if s.DiskPercent != 90 || s.MemoryTotal == 0 {
				t.Errorf("%+v", s)
			}
		}
	})
}

func TestOnFullOncePerCrossing(t *testing.T) {
	percent := 95.0
	m := fake(mount("/dev/sda1", "/", "ext4"))
	m.usage = func(string) (disk.UsageStat, error) { return disk.UsageStat{Total: 100, UsedPercent: percent}, nil }
	cfg := config()
	told := 0
	cfg.OnFull = func(_ context.Context, d Disk) {
		if told++; d.Mount != "/" || !d.Warn {
			t.Errorf("%+v", d)
		}
	}
	r, err := newRoom(cfg, m)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		percent float64
		told    int
	}{{95, 1}, {96, 1}, {50, 1}, {95, 2}} {
		percent = step.percent
		r.sample(t.Context())
		if told != step.told {
			t.Fatalf("at %g told %d times, want %d", percent, told, step.told)
		}
	}
}
