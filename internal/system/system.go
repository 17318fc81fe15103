// Package system reads the machine's figures: disks, processor, memory, heat, addresses, and how they went over the last
// hours. It changes nothing and knows no app.
package system

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"atoll/internal/caller"
	"atoll/internal/rpc"
)

// Config is what a Room needs.
type Config struct {
	Log *slog.Logger
	// WarnPercent is how full a disk may be before it is marked.
	WarnPercent func() int
	// OnFull is told by the sampler when a disk crosses the mark, once until it has been below it again; may be nil.
	OnFull func(context.Context, Disk)
	// Interval is how often the sampler looks; zero means 30 s.
	Interval time.Duration
	// Keep is how many samples are kept; zero means 1,440, which is 12 hours at 30 s and about 70 KB.
	Keep int
	Now  func() time.Time // nil means time.Now
}

// Room answers system.* calls. It is safe for concurrent use.
type Room struct {
	cfg     Config
	machine machine
	os      string
	kernel  string
	disks   guard[diskFigures]
	heat    guard[[]Temperature]
	live    meter // for system.info, over the time since it was last asked
	ticks   meter // for the sampler, over one interval

	mu   sync.RWMutex // guards the rest
	ring []Sample
	next int
	full map[string]bool // mounts that OnFull was told about
	gone map[string]bool // mounts that did not answer
}

// New makes a Room. It reads what does not change while the node runs.
func New(cfg Config) (*Room, error) { return newRoom(cfg, realMachine()) }

func newRoom(cfg Config, m machine) (*Room, error) {
	if cfg.Log == nil || cfg.WarnPercent == nil {
		return nil, errors.New("system: a log and a warning threshold are needed")
	}
	if cfg.Interval < 0 || cfg.Keep < 0 {
		return nil, errors.New("system: the interval and the number of samples cannot be negative")
	}
	if cfg.Interval == 0 {
		cfg.Interval = 30 * time.Second
	}
	if cfg.Keep == 0 {
		cfg.Keep = 1440
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	r := &Room{cfg: cfg, machine: m, full: map[string]bool{}, gone: map[string]bool{}}
	r.os, r.kernel = m.system()
	if busy, all, err := m.processor(context.Background()); err == nil {
		r.live.start(cfg.Now(), busy, all)
		r.ticks.start(cfg.Now(), busy, all)
	}
	return r, nil
}

// forCaller leaves out what another node has no use for but to find a way in.
func (i Info) forCaller(c caller.Caller) Info {
	if c.IsPeer() {
		i.Hostname, i.Kernel, i.Addresses = "", "", []netip.Addr{}
	}
	return i
}

func (s DiskStatus) forCaller(c caller.Caller) DiskStatus {
	if c.IsPeer() {
		s.Disks = slices.Clone(s.Disks) // the slice may be shared
		for i := range s.Disks {
			s.Disks[i].Device = ""
		}
	}
	return s
}

// Methods are the room's rows.
func (r *Room) Methods() []rpc.Method {
	row := func(name, summary string, doors rpc.Doors) rpc.Row {
		return rpc.Row{Name: name, Summary: summary, Effect: rpc.Read, Doors: doors, Role: caller.Viewer, Facts: true}
	}
	return []rpc.Method{
		rpc.Spec[rpc.None, DiskStatus]{
			Row: row("system.disk-status", "Tells how full each disk is.", rpc.People|rpc.Tools|rpc.Peers),
			Handle: func(ctx context.Context, c caller.Caller, _ rpc.None) (DiskStatus, error) {
				s, err := r.Disks(ctx)
				return s.forCaller(c), err
			},
		}.Method(),
		rpc.Spec[rpc.None, Info]{
			Row: row("system.info", "Tells the machine's processor load, memory, temperatures, uptime and addresses.",
				rpc.People|rpc.Tools|rpc.Peers),
			Handle: func(ctx context.Context, c caller.Caller, _ rpc.None) (Info, error) {
				i, err := r.info(ctx)
				return i.forCaller(c), err
			},
		}.Method(),
		rpc.Spec[rpc.None, History]{
			Row:    row("system.history", "Tells the machine's figures over the last hours.", rpc.People),
			Handle: func(context.Context, caller.Caller, rpc.None) (History, error) { return r.history(), nil },
		}.Method(),
	}
}
