package systemd

import (
	"context"
	"sync"
	"time"

	"atoll/internal/app"
	"atoll/internal/fault"
)

// beginTime bounds the wait for systemd to take on a job; polkit may be asked before.
const beginTime = 30 * time.Second

type verb string

const (
	start   verb = "start"
	stop    verb = "stop"
	restart verb = "restart"
)

// Start implements app.Runtime.
func (m *Manager) Start(ctx context.Context, name string) error { return m.do(ctx, name, start) }

// Stop implements app.Runtime.
func (m *Manager) Stop(ctx context.Context, name string) error { return m.do(ctx, name, stop) }

// Restart implements app.Runtime.
func (m *Manager) Restart(ctx context.Context, name string) error { return m.do(ctx, name, restart) }

func (m *Manager) do(ctx context.Context, name string, v verb) error {
	u, err := m.unit(name)
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return fault.Wrap(ctx.Err(), fault.Cancelled, "cancelled before it began; nothing was done")
	}
	l, err := m.reach(ctx)
	if err != nil {
		return err
	}
	p, err := m.read(ctx, l, u)
	if err != nil {
		return err
	}
	if err := m.admit(u, p, v); err != nil {
		return err
	}
	result, err := l.ask(ctx, u, p, v)
	if err != nil {
		return err
	}
	return m.came(ctx, l, u, v, result)
}

// admit refuses what makes no sense in the unit's state or with its definition.
func (m *Manager) admit(u *unit, p props, v verb) error {
	if err := missing(u, p); err != nil {
		return err
	}
	switch state := m.view(u, p).State; {
	case v == start && state.Up():
		return app.AlreadyRunning(idOf(u.name), state)
	case v == stop && state.Down():
		return app.NotRunning(idOf(u.name), state)
	}
	switch load := p.text("LoadState"); {
	case v == stop:
	case load == "masked":
		return masked(u.name)
	case load == "not-found":
		return fault.New(fault.Rule, "the unit file of %s is gone: it could be stopped, and not started again", u.name).At("app")
	case load == "bad-setting" || load == "error":
		return fault.New(fault.Rule, "systemd cannot load %s; its unit file has a mistake", u.name).At("app")
	}
	if v != stop && p.flag("RefuseManualStart") || v != start && !down(p) && p.flag("RefuseManualStop") {
		return byHand(u.name, v)
	}
	return nil
}

// ask gives systemd the job and waits for its end.
func (l *link) ask(ctx context.Context, u *unit, p props, v verb) (result string, err error) {
	w, drop := l.jobs.expect(u.name)
	defer drop()
	begin, cancel := context.WithTimeout(ctx, beginTime)
	defer cancel()
	var id int
	u.stopping("")
	switch v {
	case start:
		id, err = l.calls.StartUnitContext(begin, u.name, "replace", nil)
	case stop:
		u.stopping(p.invocation())
		id, err = l.calls.StopUnitContext(begin, u.name, "replace", nil)
	case restart:
		id, err = l.calls.RestartUnitContext(begin, u.name, "replace", nil)
	}
	if err != nil {
		err = notBegun(ctx, l, u.name, v, err)
	} else if result, err = w.result(ctx, l.ctx, id); err != nil {
		err = notSeen(ctx, err, u.name, v)
	}
	if v == stop && (err != nil && !ongoing(err) || err == nil && result != "done") {
		u.stopping("")
	}
	return result, err
}

// ongoing reports whether an action may go on although nobody waits for it.
func ongoing(err error) bool { return !isFault(err) || fault.Is(err, fault.OutcomeUnknown) }

// came turns the result of a job into the answer. A job that failed is told by the unit's state, where that shows it.
func (m *Manager) came(ctx context.Context, l *link, u *unit, v verb, result string) error {
	p, err := m.read(ctx, l, u)
	if err != nil {
		return notSeen(ctx, err, u.name, v)
	}
	state := m.view(u, p).State
	switch {
	case v != stop && (result == "done" || result == "skipped") && down(p) && p.mono("ConditionTimestamp") != 0 && !p.flag("ConditionResult"):
		return fault.New(fault.Rule, "a condition in the unit file of %s is not met, so systemd did not start it", u.name).At("app")
	case result == "done":
		return nil
	case v != stop && (result == "failed" || result == "timeout") && (state == app.Failed || state == app.Exited || state == app.Backoff):
		return nil
	}
	switch result {
	case "canceled":
		return fault.New(fault.Rule, "something else asked systemd for %s at the same time, and that came first; it is %s", u.name, state).At("app")
	case "dependency":
		return fault.New(fault.Rule, "%s was not started: a unit that it needs could not be started", u.name).At("app")
	case "assert":
		return fault.New(fault.Rule, "an assertion in the unit file of %s is not met, so systemd did not start it", u.name).At("app")
	case "timeout":
		return fault.New(fault.Rule, "systemd gave up to %s %s: it took longer than the job's time limit; it is %s", v, u.name, state).At("app")
	}
	return fault.New(fault.Rule, "systemd could not %s %s; it is %s", v, u.name, state).At("app")
}

// jobs are the waits for the end of systemd's jobs.
type jobs struct {
	mu    sync.Mutex // guards waits
	waits map[*wait]struct{}
}

type wait struct {
	unit  string
	ended chan ended // buffered: what does not fit is passed over, and is not the one waited for
}

type ended struct {
	id     uint32
	result string
}

// expect begins a wait for a unit's jobs, before the job is asked for, so that no end is missed; drop ends it.
func (j *jobs) expect(unit string) (w *wait, drop func()) {
	j.mu.Lock()
	defer j.mu.Unlock()
	w = &wait{unit, make(chan ended, 64)}
	j.waits[w] = struct{}{}
	return w, func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		delete(j.waits, w)
	}
}

func (j *jobs) removed(id uint32, unit, result string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for w := range j.waits {
		if w.unit != unit {
			continue
		}
		select {
		case w.ended <- ended{id, result}:
		default:
		}
	}
}

// result waits for the end of one job.
func (w *wait) result(ctx, link context.Context, id int) (string, error) {
	for {
		select {
		case e := <-w.ended:
			if int64(e.id) == int64(id) {
				return e.result, nil
			}
		case <-ctx.Done():
			return "", ctx.Err()
		case <-link.Done():
			return "", errEnded
		}
	}
}
