package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"atoll/internal/fault"
	"atoll/internal/fence"
)

const (
	defaultSettle = time.Second
	watchAgain    = 5 * time.Second // before a runtime that could not be watched is tried again
)

// Config is what the room needs.
type Config struct {
	Runtimes []Runtime
	Log      *slog.Logger
	Now      func() time.Time // nil means time.Now
	// OnChange is told each app whose state or definition changed, while Run runs. It must not block. May be nil.
	OnChange func(Status)
	// Settle is how long an app must stay up to count as running after a start; zero means one second.
	Settle time.Duration
}

// Room is the apps of all runtimes. It is safe for concurrent use.
type Room struct {
	cfg      Config
	runtimes map[string]Runtime

	mu        sync.Mutex    // guards following
	following map[int64]int // logs that each account follows now
}

// New checks the configuration and makes the room.
func New(cfg Config) (*Room, error) {
	if cfg.Log == nil {
		return nil, errors.New("app: no log")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Settle == 0 {
		cfg.Settle = defaultSettle
	}
	r := &Room{cfg: cfg, runtimes: map[string]Runtime{}, following: map[int64]int{}}
	for _, rt := range cfg.Runtimes {
		name := rt.Name()
		if w := fence.Word(name); name == "" || !w.Plain() || strings.Contains(name, ":") {
			return nil, fmt.Errorf("app: runtime name %q is not a plain word", name)
		}
		if r.runtimes[name] != nil {
			return nil, fmt.Errorf("app: runtime %s is there twice", name)
		}
		r.runtimes[name] = rt
	}
	return r, nil
}

// Run tells OnChange what changes, until ctx ends. A runtime that cannot be watched is tried again.
func (r *Room) Run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, rt := range r.cfg.Runtimes {
		wg.Go(func() { r.watch(ctx, rt) })
	}
}

func (r *Room) watch(ctx context.Context, rt Runtime) {
	for {
		err := rt.Watch(ctx, func(name string) { r.changed(ctx, rt, name) })
		if ctx.Err() != nil {
			return
		}
		r.cfg.Log.Warn("a runtime cannot be watched", "runtime", rt.Name(), "error", err)
		wait := time.NewTimer(watchAgain)
		select {
		case <-ctx.Done():
			wait.Stop()
			return
		case <-wait.C:
		}
	}
}

func (r *Room) changed(ctx context.Context, rt Runtime, name string) {
	if r.cfg.OnChange == nil {
		return
	}
	a, err := rt.Inspect(ctx, name)
	switch {
	case fault.Is(err, fault.NotFound), fault.Is(err, fault.Rule): // gone, or its definition is no longer one
		a = App{Name: name, State: Removed, Since: r.cfg.Now()}
	case err != nil:
		return // the next change or list says more
	}
	r.cfg.OnChange(statusOf(rt, a))
}

// idOf is an app's full name on this node.
func idOf(rt Runtime, name string) string {
	if rt.Name() == Bare {
		return name
	}
	return rt.Name() + ":" + name
}

// list asks every runtime. One that fails is a problem and does not hide the others.
func (r *Room) list(ctx context.Context) (listResult, error) {
	out := listResult{Apps: []Status{}}
	for _, rt := range r.cfg.Runtimes {
		apps, problems, err := rt.Measure(ctx)
		if ctx.Err() != nil {
			return listResult{}, ctx.Err()
		}
		if err != nil {
			r.cfg.Log.Warn("a runtime cannot list its apps", "runtime", rt.Name(), "error", err)
			problems = append(problems, Problem{Problem: rt.Name() + ": " + fault.Of(err).Public})
		}
		for _, a := range apps {
			out.Apps = append(out.Apps, statusOf(rt, a))
		}
		out.Problems = append(out.Problems, problems...)
	}
	slices.SortFunc(out.Apps, func(a, b Status) int { return strings.Compare(string(a.App), string(b.App)) })
	return out, nil
}
