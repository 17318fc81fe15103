package docker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"atoll/internal/app"
	"atoll/internal/app/docker/compose"
	"atoll/internal/app/docker/socket"
	"atoll/internal/fault"
)

const (
	startTime  = time.Minute      // for the engine to start one container
	beyondStop = 30 * time.Second // for the engine to kill what did not stop in its own time, and to say so
	afterLook  = 5 * time.Second  // for the look at a container after it was acted on
	loopTime   = 15 * time.Second // beyond a container's own time to stop, to stop one in a loop
	loopTick   = 20 * time.Millisecond
	loopQuiet  = time.Second
	lastWord   = 200 * time.Millisecond // for what the action itself has to say once its caller's context has ended
	needTick   = time.Second            // between two looks at a service that is waited for; events come sooner
)

type verb uint8

const (
	start verb = iota + 1
	stop
	restart
)

func (v verb) ing() string { return [...]string{"", "started", "stopped", "restarted"}[v] }

// turns let one action at a time at an app and all that belongs to it.
type turns struct {
	mu   sync.Mutex // guards held
	held map[string]*turn
}

type turn struct {
	verb verb
	over chan struct{}
}

// take waits for the app to be free. Where that takes too long it says what is being done to it.
func (t *turns) take(ctx context.Context, id string, v verb) (release func(), err error) {
	for {
		t.mu.Lock()
		now := t.held[id]
		if now == nil {
			now = &turn{v, make(chan struct{})}
			if t.held == nil {
				t.held = map[string]*turn{}
			}
			t.held[id] = now
			t.mu.Unlock()
			return func() {
				t.mu.Lock()
				delete(t.held, id)
				t.mu.Unlock()
				close(now.over)
			}, nil
		}
		t.mu.Unlock()
		select {
		case <-now.over:
		case <-ctx.Done():
			return nil, fault.Wrap(ctx.Err(), fault.Busy, "%s is still being %s; nothing was done", quoted(id), now.verb.ing()).At("app")
		}
	}
}

// Start implements app.Runtime. The services of a project are started after those they need, which are waited for. A
// service is started by itself and refused where one that it needs is not there.
func (e *Engine) Start(ctx context.Context, name string) error { return e.do(ctx, name, start) }

// Stop implements app.Runtime. Services are stopped before those they need; each container has its own time before the
// engine kills it.
func (e *Engine) Stop(ctx context.Context, name string) error { return e.do(ctx, name, stop) }

// Restart implements app.Runtime.
func (e *Engine) Restart(ctx context.Context, name string) error { return e.do(ctx, name, restart) }

// do checks an action against the engine's present state and carries it out. What the engine was asked to do it does to
// the end; once ctx has ended, nothing more is begun but the rest of a stop whose time was over.
func (e *Engine) do(ctx context.Context, name string, v verb) error {
	const nothing = "cancelled before it began; nothing was done"
	if err := ctx.Err(); err != nil {
		return fault.Wrap(err, fault.Cancelled, nothing)
	}
	g, _, err := e.locate(ctx, name)
	if err != nil {
		return err
	}
	release, err := e.turns.take(ctx, g.Top(), v)
	if err != nil {
		return err
	}
	steps, err := e.plan(ctx, name, v)
	if err == nil && ctx.Err() != nil {
		err = fault.Wrap(ctx.Err(), fault.Cancelled, nothing)
	}
	if err != nil {
		release()
		return err
	}
	e.mu.Lock()
	life := e.life
	if life == nil {
		e.mu.Unlock()
		release()
		return fault.New(fault.Unavailable, "the node is closing; nothing was done")
	}
	over := make(chan error, 1)
	e.work.Go(func() {
		defer release()
		over <- e.carryOut(ctx, life, v, steps)
	})
	e.mu.Unlock()
	select {
	case err := <-over:
		return err
	case <-ctx.Done():
	}
	last := time.NewTimer(lastWord)
	defer last.Stop()
	select {
	case err := <-over:
		return err
	case <-last.C:
		return ctx.Err()
	}
}

// step is what is done to one container.
type step struct {
	box   *compose.Container
	verb  verb
	needs []compose.Need // that must be met first
}

// plan is what is to be done: one level after the other, all steps of a level at once.
func (e *Engine) plan(ctx context.Context, name string, v verb) ([][]step, error) {
	g, err := e.refreshed(ctx, name)
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	whole, words := g, e.view()
	if g.Project != "" {
		whole = e.indexed().ByID[g.Project]
	}
	e.mu.Unlock()
	if err := words.refuse(g, v); err != nil {
		return nil, err
	}
	if g.Service != "" && v != stop && !slices.ContainsFunc(g.Members, (*compose.Container).Up) {
		for _, n := range g.Needs {
			if why, _ := words.unmet(whole, n); why != "" {
				return nil, fault.New(fault.Rule, "%s needs %s, and that %s; start it first, or start all of %s",
					quoted(name), quoted(g.Project+"/"+n.Service), why, quoted(g.Project)).At("app")
			}
		}
	}
	return words.steps(g.Levels(), g.Service == "", v), nil
}

// refuse names what makes no sense. Podman neither stops nor restarts what is paused.
func (v view) refuse(g *compose.Group, do verb) error {
	for _, b := range g.Members {
		if b.Phase == compose.Paused && (do == start || v.podman) {
			return fault.New(fault.Rule, "%s is paused; unpause it first (docker unpause or podman unpause)", named(b)).At("app")
		}
	}
	up := slices.ContainsFunc(g.Members, (*compose.Container).Up)
	switch s := v.app(g).State; {
	case do == start && s == app.Running:
		return app.AlreadyRunning(quoted(g.ID), s)
	case do == stop && !up && s != app.Backoff:
		return app.NotRunning(quoted(g.ID), s)
	}
	return nil
}

// steps puts levels of services in order; wait means that what each needs is waited for. A single container or service
// is restarted in one step, and so is a container that the engine would remove when it ends.
func (v view) steps(levels [][]*compose.Group, wait bool, do verb) [][]step {
	single := len(levels) == 1 && len(levels[0]) == 1
	idle := true
	var out [][]step
	for _, level := range slices.Backward(levels) {
		var now []step
		for b := range compose.Each(level) {
			idle = idle && !b.Up()
			if (b.Up() || v.state(b) == app.Backoff) && (do == stop || do == restart && !single && !b.Remove) {
				now = append(now, step{box: b, verb: stop})
			}
		}
		out = append(out, now)
	}
	if do == stop {
		return out
	}
	for _, level := range levels {
		var now []step
		for b, s := range compose.Each(level) {
			st := step{box: b, verb: start}
			if wait {
				st.needs = s.Needs
			}
			if do == restart && (single || b.Remove) || b.Phase == compose.Restarting {
				st.verb = restart
			}
			if do == start && b.Up() || b.Done() && !idle && !single {
				continue // it does what it should
			}
			now = append(now, st)
		}
		out = append(out, now)
	}
	return out
}

// carryOut does the steps.
func (e *Engine) carryOut(ctx, life context.Context, v verb, levels [][]step) error {
	for _, level := range levels {
		if late := ctx.Err(); life.Err() != nil || late != nil && (v != stop || errors.Is(late, context.Canceled)) {
			return fault.Wrap(late, fault.Cancelled, "it ended before all was done")
		}
		var wg sync.WaitGroup
		failed := make([]error, len(level))
		for i, s := range level {
			wg.Go(func() {
				for _, n := range s.needs {
					if failed[i] = e.met(ctx, life, s.box, n); failed[i] != nil {
						return
					}
				}
				failed[i] = e.take(life, s)
			})
		}
		wg.Wait()
		for _, err := range failed {
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// take does one step and looks what came of it.
func (e *Engine) take(life context.Context, s step) error {
	e.mu.Lock()
	to, problem, podman := e.api, e.link.Problem, e.link.isPodman
	e.mu.Unlock()
	if to == nil {
		return fault.New(fault.Unavailable, "%s", problem)
	}
	var err error
	if looping := podman && (s.box.Again || s.box.Retries) && (s.box.Restarts > 0 || s.box.Phase != compose.Running); looping && s.verb == stop {
		err = e.stopLoop(life, to, s.box)
	} else {
		err = e.tell(life, to, s.box, s.verb)
	}
	if err != nil {
		return failure(err, s)
	}
	return nil
}

// tell has the engine do one thing to a container and looks what came of it.
func (e *Engine) tell(ctx context.Context, to api, b *compose.Container, do verb) error {
	began, patience := e.cfg.Now(), b.Stop+beyondStop
	seconds := int(b.Stop / time.Second) // written out: Podman restarts without one by killing at once
	if do == start {
		patience = startTime
	} else {
		e.judging(func(ends *compose.Ends) { ends.Asked(b.ID, began, b.Stop) })
	}
	acting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var err error
	switch do {
	case start:
		_, err = to.ContainerStart(acting, b.ID, client.ContainerStartOptions{})
	case stop:
		_, err = to.ContainerStop(acting, b.ID, client.ContainerStopOptions{Timeout: &seconds})
	case restart:
		_, err = to.ContainerRestart(acting, b.ID, client.ContainerRestartOptions{Timeout: &seconds})
	}
	if do == start || do == restart && err == nil || do == stop && err != nil && !socket.Taken(err) {
		e.judging(func(ends *compose.Ends) { ends.Begun(b.ID, e.cfg.Now()) })
	}
	look, done := context.WithTimeout(ctx, afterLook)
	defer done()
	seen := e.ask(look, []string{b.ID})
	if do == stop && err == nil {
		e.stopped(b.ID)
	}
	if err == nil && seen != nil {
		err = fault.Wrap(seen, fault.OutcomeUnknown, "%s was asked to be %s, and then the engine no longer answered; look at its state before you try again",
			named(b), do.ing())
	}
	return err
}

// stopped notes that the engine stopped a container as it was told.
func (e *Engine) stopped(id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if b := e.all[id]; b != nil && !b.Up() && !b.Ended.IsZero() && !b.Asked {
		told := *b
		e.ends.Told(&told)
		e.all[id], e.apps = &told, nil
	}
}

// stopLoop stops a container that Podman starts again and again. Podman heeds a stop only while the container runs, so
// it is told until the container has been quiet.
func (e *Engine) stopLoop(ctx context.Context, to api, b *compose.Container) error {
	ctx, cancel := context.WithTimeout(ctx, b.Stop+loopTime)
	defer cancel()
	tick := time.NewTicker(loopTick)
	defer tick.Stop()
	run, quiet := b.Started, e.cfg.Now()
	for {
		if err := e.tell(ctx, to, b, stop); err != nil {
			return err
		}
		now := e.box(b.ID)
		if now == nil {
			return nil // the engine has removed it
		}
		if now.Up() || !now.Started.Equal(run) {
			run, quiet = now.Started, e.cfg.Now()
		}
		if e.cfg.Now().Sub(quiet) > loopQuiet {
			return nil
		}
		select {
		case <-ctx.Done():
			return fault.New(fault.Failed, "%s was stopped and the engine starts it again and again; stop it once it runs", named(b))
		case <-tick.C:
		}
	}
}

func (e *Engine) judging(do func(*compose.Ends)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	do(e.ends)
}

// failure puts an engine's refusal of a step into words.
func failure(err error, s step) error {
	if f, ok := errors.AsType[*fault.Error](err); ok {
		return f
	}
	what := [...]string{"", "start", "stop", "restart"}[s.verb]
	switch words := socket.Said(err); {
	case errdefs.IsNotFound(err):
		return fault.Wrap(err, fault.NotFound, "%s is gone", named(s.box)).At("app")
	case words != "":
		return fault.Wrap(err, fault.Failed, "the engine could not %s %s: %s", what, named(s.box), quoted(words))
	case socket.Taken(err):
		return fault.Wrap(err, fault.OutcomeUnknown, "the engine was asked to %s %s and did not say what came of it; look at its state before you try again",
			what, named(s.box))
	}
	return fault.Wrap(err, fault.Unavailable, "the container engine cannot be reached; %s was not %s", named(s.box), s.verb.ing())
}

// met waits until a need of a container is met.
func (e *Engine) met(ctx, life context.Context, b *compose.Container, n compose.Need) error {
	one := e.watchers.Join()
	defer one.Leave()
	tick := time.NewTicker(needTick)
	defer tick.Stop()
	other := b.Project + "/" + n.Service
	for {
		look, cancel := context.WithTimeout(life, e.lookTime)
		_, err := e.refreshed(look, other)
		cancel()
		if fault.Is(err, fault.NotFound) {
			return nil // removed meanwhile; nothing is left to wait for
		}
		if err != nil {
			return err
		}
		e.mu.Lock()
		why, hope := "", false
		if whole := e.indexed().ByID[b.Project]; whole != nil {
			why, hope = e.view().unmet(whole, n)
		}
		e.mu.Unlock()
		if why == "" {
			return nil
		}
		if !hope {
			return fault.New(fault.Failed, "%s was not started: it needs %s, and that %s; its log says why", named(b), quoted(other), why)
		}
		select {
		case <-one.Changed():
			one.Take()
		case <-tick.C:
		case <-ctx.Done():
			code := fault.Failed
			if errors.Is(ctx.Err(), context.Canceled) {
				code = fault.Cancelled
			}
			return fault.Wrap(ctx.Err(), code, "%s was not started: it waits for %s, and that %s", named(b), quoted(other), why)
		case <-life.Done():
			return fault.Wrap(life.Err(), fault.Cancelled, "%s was not started: the node is closing", named(b))
		}
	}
}

// unmet says why a need is not met, nothing where it is, and whether it may be in a while.
func (v view) unmet(whole *compose.Group, n compose.Need) (why string, hope bool) {
	s := whole.Part(n.Service)
	if s == nil {
		return "", false
	}
	for _, b := range s.Members {
		switch state := v.state(b); {
		case n.Condition == compose.UntilCompleted:
			if b.Up() || state == app.Backoff {
				return "has not completed yet", true
			}
			if !b.Succeeded() {
				return fmt.Sprintf("did not complete (%s, exit code %d)", state, b.Code), false
			}
		case b.Done() && n.Condition == compose.UntilStarted:
		case state == app.Backoff:
			return "is being tried again by its restart policy", true
		case !b.Up():
			return "is " + string(state), false
		case n.Condition == compose.UntilHealthy && b.Health == string(app.Unhealthy):
			return "is unhealthy", false
		case n.Condition == compose.UntilHealthy && b.Health == string(app.HealthStarting):
			return "is not healthy yet", true
		}
	}
	return "", false
}
