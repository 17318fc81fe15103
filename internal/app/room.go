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
	"atoll/internal/rpc"
)

const (
	defaultSettle = time.Second
	lookEvery     = 50 * time.Millisecond // between two looks at an app that is coming to rest
	lastLook      = 2 * time.Second       // bounds the look taken after the time for an action is over
	watchAgain    = 5 * time.Second       // before a runtime that could not be watched is tried again
	maxNamed      = 20                    // apps named in an error
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
	r := &Room{cfg: cfg, runtimes: map[string]Runtime{}}
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
	case fault.Is(err, fault.NotFound):
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
		apps, problems, err := rt.List(ctx)
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

// Names lists the ids of all apps, sorted. A runtime that cannot be reached adds none.
func (r *Room) Names(ctx context.Context) []string {
	var out []string
	for _, rt := range r.cfg.Runtimes {
		apps, _, err := rt.List(ctx)
		if err != nil {
			continue
		}
		for _, a := range apps {
			out = append(out, idOf(rt, a.Name))
		}
	}
	slices.Sort(out)
	return out
}

// find takes a full id apart. It does not look whether the app exists.
func (r *Room) find(id string) (Runtime, string, error) {
	prefix, name, ok := strings.Cut(id, ":")
	if !ok {
		prefix, name = Bare, id
	}
	rt := r.runtimes[prefix]
	if rt == nil || name == "" {
		return nil, "", fault.New(fault.Rule, "there is no app %s", quoted(id)).At("app")
	}
	return rt, name, nil
}

// resolve turns what the caller wrote into the full id: an id as it is, else the one app whose name, or the part of it
// after the last slash, is exactly that.
func (r *Room) resolve(ctx context.Context, id *string) error {
	if rt, name, err := r.find(*id); err == nil {
		_, err := rt.Inspect(ctx, name)
		if err == nil {
			*id = idOf(rt, name) // process:sample is sample
			return nil
		}
		if !fault.Is(err, fault.NotFound) {
			return err
		}
	}
	all := r.Names(ctx)
	var fit []string
	for _, full := range all {
		name := full[strings.Index(full, ":")+1:]
		if name == *id || name[strings.LastIndex(name, "/")+1:] == *id {
			fit = append(fit, full)
		}
	}
	switch len(fit) {
	case 1:
		*id = fit[0]
		return nil
	case 0:
		return unknownApp(*id, all)
	}
	return fault.New(fault.Rule, "%s can be %s; write the full name", quoted(*id), named(fit, " or ")).At("app")
}

func unknownApp(id string, all []string) error {
	if len(all) == 0 {
		return fault.New(fault.Rule, "there is no app %s; this node has no apps", quoted(id)).At("app")
	}
	return fault.New(fault.Rule, "there is no app %s; there are: %s", quoted(id), named(all, ", ")).At("app")
}

// quoted makes a stranger's name fit for an error text: bounded, with everything invisible written out.
func quoted(s string) string { return fmt.Sprintf("%+q", s[:min(len(s), 80)]) }

func named(ids []string, sep string) string {
	var b strings.Builder
	for i, id := range ids[:min(len(ids), maxNamed)] {
		if i > 0 {
			b.WriteString(sep)
		}
		if q := quoted(id); q == `"`+id+`"` {
			b.WriteString(id)
		} else {
			b.WriteString(q)
		}
	}
	if more := len(ids) - maxNamed; more > 0 {
		fmt.Fprintf(&b, " and %d more", more)
	}
	return b.String()
}

type verb uint8

const (
	start verb = iota + 1
	stop
	restart
)

// admit refuses what makes no sense in the app's state (T2: nobody is asked about a call that could not run).
func (r *Room) admit(ctx context.Context, id string, v verb) (App, error) {
	rt, name, err := r.find(id)
	if err != nil {
		return App{}, err
	}
	a, err := rt.Inspect(ctx, name)
	switch {
	case fault.Is(err, fault.NotFound):
		return App{}, unknownApp(id, r.Names(ctx))
	case err != nil:
		return App{}, err
	case v == start && a.State.Up():
		return App{}, AlreadyRunning(id, a.State)
	case v == stop && !a.State.Up() && a.State != Backoff:
		return App{}, NotRunning(id, a.State)
	}
	return a, nil
}

// AlreadyRunning refuses the start of an app that is up.
func AlreadyRunning(id string, s State) error {
	if s == Running {
		return fault.New(fault.Rule, "%s is already running", id).At("app")
	}
	return fault.New(fault.Rule, "%s is already %s", id, s).At("app")
}

// NotRunning refuses the stop of an app that is down.
func NotRunning(id string, s State) error {
	return fault.New(fault.Rule, "%s is not running (%s)", id, s).At("app")
}

func (r *Room) preview(ctx context.Context, id string, v verb) (rpc.Preview, error) {
	a, err := r.admit(ctx, id, v)
	if err != nil {
		return rpc.Preview{}, err
	}
	rt, name, err := r.find(id)
	if err != nil {
		return rpc.Preview{}, err
	}
	mark, err := rt.Fingerprint(ctx, name)
	if err != nil {
		return rpc.Preview{}, err
	}
	after := string(Running)
	switch {
	case v == stop:
		after = string(Stopped)
	case v == restart && a.State == Running:
		after = "running (restarted)"
	}
	return rpc.Preview{Target: id, Before: string(a.State), After: after, Fingerprint: mark}, nil
}

// act does it and answers with the state observed afterwards (T9).
func (r *Room) act(ctx context.Context, id string, v verb) (actResult, error) {
	rt, name, err := r.find(id)
	if err != nil {
		return actResult{}, err
	}
	inner, cancel := context.WithTimeout(ctx, actionTimeout-answerMargin)
	defer cancel()
	switch v {
	case start:
		err = rt.Start(inner, name)
	case stop:
		err = rt.Stop(inner, name)
	case restart:
		err = rt.Restart(inner, name)
	}
	if _, refused := errors.AsType[*fault.Error](err); refused {
		return actResult{}, err
	}
	if err == nil {
		var a App
		if a, err = r.observe(inner, rt, name, v); err == nil {
			return actResult{statusOf(rt, a), true}, nil
		}
	}
	return r.unobserved(ctx, rt, name, err)
}

// observe waits until the app has come to rest: up for the settling time or known to have failed after a start, down
// after a stop.
func (r *Room) observe(ctx context.Context, rt Runtime, name string, v verb) (App, error) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	var pid int
	var up time.Duration
	for {
		a, err := rt.Inspect(ctx, name)
		if v == stop && fault.Is(err, fault.NotFound) { // it was there only because it ran
			return App{Name: name, State: Stopped, Since: r.cfg.Now()}, nil
		}
		if err != nil {
			return App{}, err
		}
		switch {
		case a.State == Starting || a.State == Stopping:
			up = 0
		case v == stop && a.State == Running:
		case a.State != Running, up >= r.cfg.Settle:
			return a, nil
		case a.PID != pid:
			pid, up = a.PID, 0
		default:
			up += lookEvery
		}
		select {
		case <-ctx.Done():
			return a, ctx.Err()
		case <-tick.C:
		}
	}
}

// unobserved answers where the end was not seen: with the last state if only the time ran out, as unknown otherwise
// (T14).
func (r *Room) unobserved(ctx context.Context, rt Runtime, name string, cause error) (actResult, error) {
	if ctx.Err() == nil {
		look, cancel := context.WithTimeout(ctx, lastLook)
		defer cancel()
		if a, err := rt.Inspect(look, name); err == nil {
			return actResult{statusOf(rt, a), false}, nil
		}
	}
	return actResult{}, fault.Wrap(cause, fault.OutcomeUnknown,
		"the action on %s was begun and its end was not seen; look at its state before you try again", idOf(rt, name))
}
