package system

import (
	"cmp"
	"context"
	"math"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/shirou/gopsutil/v4/mem"

	"atoll/internal/fault"
	"atoll/internal/fence"
)

// Info is the result of system.info. Sizes are bytes.
type Info struct {
	Hostname fence.Word `json:"hostname"`
	OS       fence.Word `json:"os"`
	Kernel   fence.Word `json:"kernel"`
	Arch     fence.Word `json:"arch"`
	CPUs     int        `json:"cpus"`
	Load1    float64    `json:"load1"`
	Load5    float64    `json:"load5"`
	Load15   float64    `json:"load15"`
	// CPUPercent is over the time since it was last read, at least a second of it; absent until a second has passed.
	CPUPercent      *float64      `json:"cpu_percent,omitzero"`
	MemoryTotal     uint64        `json:"memory_total_bytes"`
	MemoryUsed      uint64        `json:"memory_used_bytes"`
	MemoryAvailable uint64        `json:"memory_available_bytes"`
	SwapTotal       uint64        `json:"swap_total_bytes"`
	SwapUsed        uint64        `json:"swap_used_bytes"`
	Temperatures    []Temperature `json:"temperatures"`
	Uptime          int64         `json:"uptime_s"`
	Addresses       []netip.Addr  `json:"addresses"` // not of the machine itself, of links or of container bridges
	Time            time.Time     `json:"time"`
}

// Temperature is one sensor.
type Temperature struct {
	Sensor  fence.Word `json:"sensor"`
	Celsius float64    `json:"celsius"`
}

// heatWait bounds the wait for sensors: some sit behind a slow bus.
const heatWait = time.Second

func (r *Room) info(ctx context.Context) (Info, error) {
	now := r.cfg.Now()
	host, err := os.Hostname()
	if err != nil {
		host = ""
	}
	host, _, _ = strings.Cut(host, ".")
	i := Info{Hostname: fence.Word(host), OS: fence.Word(r.os), Kernel: fence.Word(r.kernel), Arch: fence.Word(runtime.GOARCH), CPUs: runtime.NumCPU(),
		CPUPercent: r.cpuPercent(ctx, &r.live), Temperatures: r.temperatures(ctx), Addresses: r.addresses(), Time: now}
	memory, swap, err := r.machine.memory(ctx)
	if err != nil {
		return Info{}, fault.Wrap(err, fault.Unavailable, "the machine's figures cannot be read now")
	}
	i.fill(memory, swap)
	if i.Load1, i.Load5, i.Load15, err = r.machine.load(ctx); err != nil {
		r.cfg.Log.Warn("the load cannot be read", "err", err)
	}
	if i.Uptime, err = r.machine.uptime(ctx); err != nil {
		r.cfg.Log.Warn("the uptime cannot be read", "err", err)
	}
	return i, ctx.Err()
}

func (i *Info) fill(memory mem.VirtualMemoryStat, swap mem.SwapMemoryStat) {
	i.MemoryTotal, i.MemoryUsed, i.MemoryAvailable = memory.Total, memory.Used, memory.Available
	i.SwapTotal, i.SwapUsed = swap.Total, swap.Used
}

func (r *Room) temperatures(ctx context.Context) []Temperature {
	p := r.heat.start("", func() ([]Temperature, error) { return r.machine.temperatures(context.WithoutCancel(ctx)) })
	all, err := r.heat.wait(ctx, p, heatWait)
	if err != nil {
		r.cfg.Log.Debug("the sensors cannot be read", "err", err)
	}
	out := []Temperature{}
	for n, t := range all {
		if t.Celsius <= 0 || t.Celsius >= 150 || math.IsNaN(t.Celsius) {
			continue // no sensor is connected there
		}
		if !t.Sensor.Plain() {
			t.Sensor = fence.Word("sensor-" + strconv.Itoa(n+1)) // its name is the firmware's
		}
		t.Celsius = math.Round(t.Celsius*10) / 10
		out = append(out, t)
	}
	return out[:min(len(out), 64)]
}

// addresses lists where the machine can be reached, IPv4 first.
func (r *Room) addresses() []netip.Addr {
	out := []netip.Addr{}
	for _, i := range r.machine.interfaces() {
		if isBridge(i.Name) {
			continue
		}
		for _, a := range i.Addresses {
			if a = a.Unmap().WithZone(""); a.IsGlobalUnicast() && !a.IsLoopback() {
				out = append(out, a)
			}
		}
	}
	slices.SortFunc(out, func(a, b netip.Addr) int { return cmp.Or(cmp.Compare(a.BitLen(), b.BitLen()), a.Compare(b)) })
	out = slices.Compact(out)
	return out[:min(len(out), 16)]
}

// isBridge tells the interfaces that container engines and virtual machines make for themselves.
func isBridge(name string) bool {
	for _, p := range [...]string{"docker", "br-", "veth", "virbr", "cni", "podman", "lxc", "lxd", "flannel", "cali"} {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	return false
}

// meter turns the kernel's running totals into a percentage without waiting.
type meter struct {
	mu      sync.Mutex // guards the rest
	at      time.Time
	busy    float64
	all     float64
	percent *float64
}

func (m *meter) start(now time.Time, busy, all float64) { m.at, m.busy, m.all = now, busy, all }

// read returns the share since the last reading that is at least a second old, or the one before, or nil.
func (m *meter) read(now time.Time, busy, all float64) *float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.at.IsZero() || now.Before(m.at) {
		m.at, m.busy, m.all = now, busy, all
		return m.percent
	}
	if now.Sub(m.at) < time.Second || all <= m.all {
		return m.percent
	}
	p := math.Round(1000*min(max(busy-m.busy, 0)/(all-m.all), 1)) / 10
	m.at, m.busy, m.all, m.percent = now, busy, all, &p
	return m.percent
}

func (r *Room) cpuPercent(ctx context.Context, m *meter) *float64 {
	busy, all, err := r.machine.processor(ctx)
	if err != nil {
		r.cfg.Log.Warn("the processor's figures cannot be read", "err", err)
		return nil
	}
	return m.read(r.cfg.Now(), busy, all)
}
