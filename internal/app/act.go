package app

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"atoll/internal/fault"
	"atoll/internal/rpc"
)

const (
	lookEvery = 50 * time.Millisecond // between two looks at an app that is coming to rest
	lastLook  = 2 * time.Second       // bounds what is read after the time for an action is over
)

type verb uint8

const (
	start verb = iota + 1
	stop
	restart
)

// admit refuses what makes no sense in the app's state (T2: nobody is asked about a call that could not run).
func (r *Room) admit(ctx context.Context, id string, v verb) error {
	rt, name, err := r.find(id)
	if err != nil {
		return err
	}
	a, err := rt.Inspect(ctx, name)
	switch {
	case err != nil:
		return r.unseen(ctx, id, err)
	case v == start && a.State.Up():
		err = AlreadyRunning(id, a.State)
	case v == start && a.State == Paused:
		err = fault.New(fault.Rule, "%s is paused; unpause it first, or restart it", id).At("app")
	case v == stop && a.State.Down():
		err = NotRunning(id, a.State)
	}
	return outside(err, a.Foreign)
}

// unseen says why an app cannot be acted on of which nothing is known.
func (r *Room) unseen(ctx context.Context, id string, err error) error {
	if fault.Is(err, fault.NotFound) {
		all, partly := r.knownApps(ctx)
		return unknownApp(id, all, partly)
	}
	return err
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
	rt, name, err := r.find(id)
	if err != nil {
		return rpc.Preview{}, err
	}
	a, mark, err := rt.Examine(ctx, name)
	if err != nil {
		return rpc.Preview{}, r.unseen(ctx, id, r.told(ctx, rt, name, err))
	}
	p := rpc.Preview{Target: id, Before: string(a.State), After: string(Running), Fingerprint: mark}
	switch {
	case v == stop:
		p.After = string(Stopped)
	case v == restart && !a.State.Down() && a.State != Backoff:
		p.After = "running (restarted)"
	}
	if v != start {
		p.Warning = strings.Join(warnings(a), " ")
	}
	return p, nil
}

// warnings are what stopping an app takes down beside it, each once.
func warnings(a App) []string {
	var out []string
	for _, w := range append([]App{a}, a.Services...) {
		if w.Warning != "" && !slices.Contains(out, w.Warning) {
			out = append(out, w.Warning)
		}
	}
	return out
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
		return actResult{}, r.told(ctx, rt, name, err)
	}
	if err == nil {
		var a App
		if a, err = r.observe(inner, rt, name, v); err == nil {
			return r.result(ctx, rt, a, v, true), nil
		}
	}
	return r.unobserved(ctx, rt, name, v, err)
}

// observe waits until the app has come to rest: up for the settling time with every health check decided, or known to
// have failed, after a start; down after a stop.
func (r *Room) observe(ctx context.Context, rt Runtime, name string, v verb) (App, error) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	var life []int
	var up time.Duration
	for {
		a, err := rt.Inspect(ctx, name)
		if v == stop && fault.Is(err, fault.NotFound) { // it was there only because it ran
			return App{Name: name, State: Stopped, Since: r.cfg.Now()}, nil
		}
		if err != nil {
			return App{}, err
		}
		running := a.State == Running || a.State == Partly
		switch now := lives(a); {
		case a.State == Starting || a.State == Stopping:
			up = 0
		case v == stop && (running || a.State == Paused):
		case !running:
			return a, nil
		case v != stop && checking(a):
			up = 0
		case !slices.Equal(now, life):
			life, up = now, 0
		case up >= r.cfg.Settle:
			return a, nil
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

// lives tells one run of an app and its services from the next.
func lives(a App) []int {
	out := []int{a.PID, a.Restarts}
	for _, s := range a.Services {
		out = append(out, s.PID, s.Restarts)
	}
	return out
}

// checking reports whether a health check of the app or of a service that runs has not decided yet.
func checking(a App) bool {
	return (a.State == Running || a.State == Partly) && (a.Health == HealthStarting || slices.ContainsFunc(a.Services, checking))
}

// well reports whether an app is up as it should be. A service that has done its work and ended is no fault of the app:
// its runtime says Partly where one is missing.
func well(a App) bool {
	return a.State == Running && a.Health != Unhealthy && !slices.ContainsFunc(a.Services, func(s App) bool { return s.Health == Unhealthy })
}

// result is the answer to an action. Where the app did not come up, it holds the last lines of its log.
func (r *Room) result(ctx context.Context, rt Runtime, a App, v verb, observed bool) actResult {
	out := actResult{Status: statusOf(rt, a), Observed: observed}
	if v != stop && (!well(a) || checking(a)) {
		look, cancel := context.WithTimeout(ctx, lastLook)
		defer cancel()
		out.Log = lastWords(look, rt, a)
	}
	return out
}

// unobserved answers where the end was not seen: with the last state if only the time ran out, as unknown otherwise
// (T14).
func (r *Room) unobserved(ctx context.Context, rt Runtime, name string, v verb, cause error) (actResult, error) {
	if ctx.Err() == nil {
		look, cancel := context.WithTimeout(ctx, lastLook)
		defer cancel()
		if a, err := rt.Inspect(look, name); err == nil {
			return r.result(ctx, rt, a, v, false), nil
		}
	}
	return actResult{}, outside(fault.Wrap(cause, fault.OutcomeUnknown,
		"the action on %s was begun and its end was not seen; look at its state before you try again", idOf(rt, name)), rt.Name() != Bare)
}
