package system

import (
	"context"
	"time"
)

// History is the result of system.history: the samples of the last hours, the oldest first.
type History struct {
	IntervalS int64    `json:"interval_s"`
	Samples   []Sample `json:"samples"`
}

// Sample is the machine at one time. DiskPercent is the fullest disk's.
type Sample struct {
	Time        time.Time `json:"time"`
	CPUPercent  float64   `json:"cpu_percent"`
	Load1       float64   `json:"load1"`
	MemoryUsed  uint64    `json:"memory_used_bytes"`
	MemoryTotal uint64    `json:"memory_total_bytes"`
	DiskPercent int       `json:"disk_percent"`
}

// Run samples until ctx ends. The node calls it once and waits for it.
func (r *Room) Run(ctx context.Context) {
	tick := time.NewTicker(r.cfg.Interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			r.sample(ctx)
		}
	}
}

func (r *Room) sample(ctx context.Context) {
	s := Sample{Time: r.cfg.Now()}
	if p := r.cpuPercent(ctx, &r.ticks); p != nil {
		s.CPUPercent = *p
	}
	memory, _, err := r.machine.memory(ctx)
	if err != nil {
		r.cfg.Log.Warn("the memory's figures cannot be read", "err", err)
	}
	s.MemoryUsed, s.MemoryTotal = memory.Used, memory.Total
	if s.Load1, _, _, err = r.machine.load(ctx); err != nil {
		r.cfg.Log.Warn("the load cannot be read", "err", err)
	}
	status, err := r.Disks(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return
		}
		r.cfg.Log.Warn("the disks cannot be read", "err", err)
	}
	for _, d := range status.Disks {
		s.DiskPercent = max(s.DiskPercent, d.UsedPercent)
	}
	r.keep(s)
	r.tellFull(ctx, status.Disks)
}

func (r *Room) keep(s Sample) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.ring) < r.cfg.Keep {
		r.ring = append(r.ring, s)
		return
	}
	r.ring[r.next] = s
	r.next = (r.next + 1) % len(r.ring)
}

func (r *Room) history() History {
	r.mu.RLock()
	defer r.mu.RUnlock()
	samples := make([]Sample, 0, len(r.ring))
	samples = append(append(samples, r.ring[r.next:]...), r.ring[:r.next]...)
	return History{IntervalS: int64(r.cfg.Interval / time.Second), Samples: samples}
}

// tellFull reports disks that crossed the mark since the last sample.
func (r *Room) tellFull(ctx context.Context, disks []Disk) {
	var crossed []Disk
	r.mu.Lock()
	for _, d := range disks {
		if d.Unreachable {
			continue
		}
		if d.Warn && !r.full[string(d.Mount)] {
			crossed = append(crossed, d)
		}
		r.full[string(d.Mount)] = d.Warn
	}
	r.mu.Unlock()
	if r.cfg.OnFull == nil {
		return
	}
	for _, d := range crossed {
		r.cfg.OnFull(ctx, d)
	}
}
