package process

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"atoll/internal/app"
	"atoll/internal/fault"
	"atoll/internal/proc"
)

const (
	killTimeout = 5 * time.Second       // for a killed session to be gone; beyond it the kernel holds a process
	sweepEvery  = 20 * time.Millisecond // between two looks at a session that is ending
	leftGrace   = 5 * time.Second       // at most, for processes whose main process ended by itself
)

// halt stops the whole session: SIGTERM, the app's time, SIGKILL. Nothing of it is left unless an error says so.
func (u *unit) halt() error {
	u.mu.Lock()
	grace := time.Duration(u.rec.StopTimeout)
	u.mu.Unlock()
	if grace <= 0 {
		grace = defaultStopTimeout
	}
	until := time.Now().Add(grace)
	u.set(func(r *record) { r.State = app.Stopping })
	u.note("asked to stop (SIGTERM)")
	p := u.leader
	if !p.reused {
		proc.SignalSession(p.pid, p.start, unix.SIGTERM)
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.ended:
	case <-timer.C:
	case <-u.s.quit:
		return u.closing()
	}
	if left := u.sweep(until); left > 0 {
		if u.s.closing() {
			return u.closing()
		}
		err := fault.New(fault.Failed, "%d processes of %s could not be killed; the kernel holds them", left, u.name)
		u.note("%s", err.Public)
		u.set(func(r *record) { r.Reason = err.Public })
		return err
	}
	u.finish(app.Stopped, "")
	return nil
}

func (u *unit) closing() error {
	return fault.New(fault.Unavailable, "the node is closing; %s was asked to stop and may still run", u.name)
}

// sweep waits for the session to be empty and kills what is left at the given time. It returns how many processes are
// still there: because the kernel holds them, or because the node is closing.
func (u *unit) sweep(until time.Time) (left int) {
	if u.leader.reused {
		return 0
	}
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for time.Now().Before(until) {
		alive := proc.Members(u.leader.pid, u.leader.start)
		if len(alive) == 0 {
			return 0
		}
		select {
		case <-tick.C:
		case <-u.s.quit:
			return len(alive)
		}
	}
	return u.kill()
}

// kill ends the session at once and returns how many processes the kernel still holds.
func (u *unit) kill() (left int) {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	until := time.Now().Add(killTimeout)
	for first := true; ; first = false {
		alive := proc.Members(u.leader.pid, u.leader.start)
		if len(alive) == 0 || time.Now().After(until) {
			return len(alive)
		}
		if first {
			u.note("%d processes had not ended and are killed (SIGKILL)", len(alive))
		}
		for _, m := range alive { // at every look: they may have forked
			proc.Signal(m, unix.SIGKILL)
		}
		<-tick.C
		if os.Getpid() == 1 { // orphans come to the first process
			for _, m := range alive {
				if m.PID != u.leader.pid {
					_, _ = proc.Reap(m.PID)
				}
			}
		}
	}
}

// finish reaps the main process and writes down how it ended.
func (u *unit) finish(state app.State, why string) {
	p := u.leader
	u.leader = nil
	code, signal, unknown := -1, "", true
	if p.h != nil {
		p.h.Close()
		if ws, ok := proc.Reap(p.pid); ok {
			unknown = false
			if ws.Signaled() {
				signal = unix.SignalName(ws.Signal())
			} else {
				code = ws.ExitStatus()
			}
		}
	}
	switch {
	case why != "":
	case signal != "":
		why = "ended by " + signal
	case unknown:
		why = "ended; its exit code is unknown, since this node did not start it"
	default:
		why = fmt.Sprintf("ended with exit code %d", code)
	}
	u.note("%s", why)
	u.set(func(r *record) {
		r.State, r.PID, r.Start, r.Boot, r.Signal, r.ExitUnknown, r.ExitCode, r.Reason = state, 0, 0, "", signal, unknown, nil, ""
		if code >= 0 {
			r.ExitCode = &code
		}
	})
}

// endedBySelf deals with an end that nobody asked for: what it left behind is ended too, then its policy decides. boot
// means that the node is just starting and is to have the app up.
func (u *unit) endedBySelf(boot bool) {
	u.mu.Lock()
	def, since, grace := u.def, u.rec.Since, min(time.Duration(u.rec.StopTimeout), leftGrace)
	stopping := u.rec.State == app.Stopping // the last node went away while it stopped the app
	u.mu.Unlock()
	p := u.leader
	if !p.reused && proc.SignalSession(p.pid, p.start, unix.SIGTERM) > 0 {
		u.note("processes that it left behind are ended")
		if u.sweep(time.Now().Add(grace)) > 0 && u.s.closing() {
			return // the next node sees to them
		}
	}
	ran := u.s.cfg.Now().Sub(since)
	if stopping {
		u.finish(app.Stopped, "")
	} else {
		u.finish(app.Exited, "")
	}
	if def == nil {
		return
	}
	if boot {
		u.afresh()
		u.spawn()
		return
	}
	if ran >= u.s.cfg.HealthyAfter {
		u.failures = 0
	}
	u.mu.Lock()
	clean := u.rec.ExitCode != nil && *u.rec.ExitCode == 0
	u.mu.Unlock()
	u.retryUnless(stopping || def.Restart == never || def.Restart == onFailure && clean)
}

// retryUnless plans the next try: each time in a row twice as late, up to RetryMax.
func (u *unit) retryUnless(no bool) {
	if no {
		return
	}
	wait := u.s.cfg.RetryMax
	if u.failures < 20 {
		wait = min(wait, u.s.cfg.RetryFirst<<u.failures)
	}
	u.failures++
	u.note("next try in %s", wait)
	u.set(func(r *record) { r.State = app.Backoff })
	u.retry.Reset(wait)
}

func (u *unit) again() {
	u.mu.Lock()
	u.rec.Restarts++
	def := u.def
	u.mu.Unlock()
	if def == nil || def.Restart == never {
		u.set(func(r *record) { r.State = app.Exited })
		return
	}
	u.spawn()
}
