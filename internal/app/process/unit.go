package process

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"atoll/internal/app"
	"atoll/internal/fault"
	"atoll/internal/journal"
	"atoll/internal/proc"
)

type verb uint8

const (
	start verb = iota + 1
	stop
	restart
)

type request struct {
	verb  verb
	reply chan error // buffered
}

// leader is the main process of a unit, which leads its session.
type leader struct {
	pid   int
	start uint64
	h     *proc.Handle // nil for one that was gone when it was looked for
	ended chan struct{}
	// reused means that the number belongs to another process by now, so that nothing may be done by it.
	reused bool
}

// unit is one app. Its goroutine (run) alone starts, stops and reaps; everybody else reads the record or asks.
type unit struct {
	name     string
	s        *Supervisor
	first    bool // start it when the goroutine begins
	log      *slog.Logger
	journal  *journal.Journal
	requests chan request
	nudge    chan struct{} // buffered; the definition went away
	gone     chan struct{} // closed when the unit is dropped

	// of the goroutine alone
	leader   *leader
	retry    *time.Timer
	failures int // in a row, for the backoff

	mu  sync.Mutex // guards the fields below
	rec record
	def *definition // nil when its file is gone or bad
}

// newUnit makes the unit of an app and takes its process over if it is still there. first means that the app is to be
// up from now on.
func newUnit(s *Supervisor, name string, def *definition, first bool) *unit {
	u := &unit{
		name: name, s: s, def: def, first: first, log: s.cfg.Log.With("app", name),
		journal:  journal.Open(s.logs, name, s.cfg.MaxLogBytes),
		requests: make(chan request), nudge: make(chan struct{}, 1), gone: make(chan struct{}),
		retry: time.NewTimer(time.Hour),
	}
	u.retry.Stop()
	rec, err := readRecord(recordPath(s.run, name))
	if err != nil {
		u.log.Warn("the app's record is damaged and was set aside; its state is unknown", "error", err)
	}
	u.rec = rec
	switch {
	case rec.State == "":
		u.rec = record{State: app.Stopped, Since: s.cfg.Now().UTC()}
	case rec.PID == 0:
	case rec.Boot != s.boot:
		u.rec.PID, u.rec.Start, u.rec.State = 0, 0, app.Exited
		u.rec.Since, u.rec.ExitCode, u.rec.Signal, u.rec.ExitUnknown = s.cfg.Now().UTC(), nil, "", true
		u.note("ended with the machine's last run")
		_ = u.save() // logged there
	default:
		u.leader = takeOver(rec)
		if u.leader.h != nil {
			u.rec.State = app.Running
			u.note("taken over by the node that has just started (process %d)", rec.PID)
		}
	}
	if first && u.leader == nil {
		u.rec.State = app.Starting // what a list sees until the goroutine gets there
	}
	return u
}

// takeOver finds the process of a record again by its number and start time.
func takeOver(rec record) *leader {
	p := &leader{pid: rec.PID, start: rec.Start, ended: make(chan struct{})}
	st, err := proc.Read(rec.PID)
	if err == nil && st.Start == rec.Start {
		if h, err := proc.Follow(rec.PID, rec.Start); err == nil {
			p.h = h
			return p
		}
	}
	p.reused = err == nil && st.Start != rec.Start
	close(p.ended)
	return p
}

// run is the unit's goroutine.
func (u *unit) run() {
	defer u.retry.Stop()
	u.follow()
	boot := u.leader != nil && u.first
	switch {
	case u.leader != nil:
	case u.first:
		u.afresh()
		u.spawn()
	case u.state() == app.Backoff:
		u.retry.Reset(u.s.cfg.RetryFirst)
	}
	for !u.s.drop(u) {
		var ended <-chan struct{}
		if u.leader != nil {
			ended = u.leader.ended
		}
		select {
		case <-u.s.quit:
			u.leave()
			return
		case r := <-u.requests:
			r.reply <- u.serve(r.verb)
		case <-ended:
			u.endedBySelf(boot && u.lost())
			boot = false
		case <-u.retry.C:
			u.again()
		case <-u.nudge:
		}
	}
}

// lost reports whether the process had ended before this node looked for it.
func (u *unit) lost() bool { return u.leader.h == nil }

// follow waits for the process's end in a goroutine that ends with it or with the handle.
func (u *unit) follow() {
	if u.leader == nil || u.leader.h == nil {
		return
	}
	p := u.leader
	u.s.wg.Go(func() {
		if p.h.Wait() {
			close(p.ended)
		}
	})
}

// leave ends the unit with the node: the app goes on, unless apps are to be stopped with it.
func (u *unit) leave() {
	if u.leader == nil {
		return
	}
	if u.s.cfg.StopOnClose && !u.leader.reused {
		u.kill()
		u.finish(app.Stopped, "")
		return
	}
	if u.leader.h != nil {
		u.leader.h.Close()
	}
}

func (u *unit) serve(v verb) error {
	u.mu.Lock()
	def, state := u.def, u.rec.State
	u.mu.Unlock()
	switch {
	case v == start && state.Up():
		return app.AlreadyRunning(u.name, state)
	case v == stop && !state.Up() && state != app.Backoff:
		return app.NotRunning(u.name, state)
	case v != stop && def == nil:
		return u.noDefinition()
	}
	u.retry.Stop()
	u.afresh()
	if v != start && u.leader != nil {
		if err := u.halt(); err != nil {
			return err
		}
	}
	if v == stop {
		if state == app.Backoff {
			u.note("no further try: stopped")
			u.set(func(r *record) { r.State, r.Reason = app.Stopped, "" })
		}
		return nil
	}
	u.spawn()
	return nil
}

// afresh forgets the tries so far.
func (u *unit) afresh() {
	u.failures = 0
	u.mu.Lock()
	u.rec.Restarts = 0
	u.mu.Unlock()
}

func (u *unit) noDefinition() error {
	if why := u.s.problem(u.name); why != "" {
		return fault.New(fault.Rule, "%s cannot be started: apps/%s.yaml has a problem: %s", u.name, u.name, why).At("app")
	}
	return fault.New(fault.Rule, "%s cannot be started: its definition apps/%s.yaml is gone", u.name, u.name).At("app")
}

// spawn starts the app by its definition as it now is. What comes of it is the new state.
func (u *unit) spawn() {
	u.mu.Lock()
	def := u.def
	u.mu.Unlock()
	u.set(func(r *record) {
		*r = record{State: app.Starting, Restarts: r.Restarts, Definition: def.hash(), StopTimeout: int64(def.StopTimeout)}
	})
	at := u.journal.Offset() // where what it writes begins
	h, err := u.launch(def)
	if err != nil {
		u.note("could not be started: %s", err)
		u.set(func(r *record) { r.PID, r.Start, r.State, r.Reason = 0, 0, app.Failed, clip(err.Error()) })
		u.retryUnless(def.Restart == never)
		return
	}
	u.leader = &leader{pid: h.PID, start: h.Start, h: h, ended: make(chan struct{})}
	u.noteAt(at, "started (process %d)", h.PID)
	u.set(func(r *record) { r.State = app.Running })
	u.follow()
}

func (u *unit) launch(def *definition) (*proc.Handle, error) {
	o, err := orderFor(def, u.s.who)
	if err != nil {
		return nil, err
	}
	out, err := u.journal.Output()
	if err != nil {
		return nil, fmt.Errorf("its log cannot be written: %s", cause(err))
	}
	defer out.Close()
	return proc.Start(u.s.cfg.Launcher, o, out, func(pid int, start uint64) error {
		return u.commit(func(r *record) { r.PID, r.Start, r.Boot = pid, start, u.s.boot })
	})
}

// set changes the record. A full disk costs what the next node knows, not what this one does.
func (u *unit) set(change func(*record)) { _ = u.commit(change) } // save has logged it

// commit changes the record, saves it and tells whoever watches. It fails where the record is not on the disk.
func (u *unit) commit(change func(*record)) error {
	u.mu.Lock()
	old := u.rec.State
	change(&u.rec)
	if u.rec.State != old {
		u.rec.Since = u.s.cfg.Now().UTC()
	}
	u.mu.Unlock()
	err := u.save()
	u.s.watchers.Tell(u.name)
	return err
}

func (u *unit) save() error {
	u.mu.Lock()
	rec := u.rec
	u.mu.Unlock()
	err := rec.write(recordPath(u.s.run, u.name))
	if err != nil {
		u.log.Error("the app's state cannot be written", "error", err)
		return errors.New("its state cannot be written: " + cause(err))
	}
	return nil
}

func (u *unit) note(format string, args ...any) { u.noteAt(u.journal.Offset(), format, args...) }

func (u *unit) noteAt(at int64, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	u.log.Info(text)
	if err := u.journal.Note(u.s.cfg.Now(), at, text); err != nil {
		u.log.Warn("the app's log cannot be written", "error", err)
	}
}

func (u *unit) state() app.State {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.rec.State
}

// view is the unit as the room sees it. ok is false for one that only waits to be dropped.
func (u *unit) view() (a app.App, ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	r := u.rec
	a = app.App{Name: u.name, State: r.State, Since: r.Since, PID: r.PID, ExitCode: r.ExitCode, Signal: r.Signal,
		ExitUnknown: r.ExitUnknown, Reason: r.Reason, Restarts: r.Restarts}
	if u.def != nil {
		a.Title = u.def.Title
		a.DefinitionChanged = r.State.Up() && u.def.hash() != r.Definition
	}
	return a, u.def != nil || r.State.Up()
}

// define gives the unit its definition as the file now says, nil where that is gone or bad.
func (u *unit) define(def *definition) {
	u.mu.Lock()
	changed := (def == nil) != (u.def == nil) || def != nil && def.hash() != u.def.hash()
	u.def = def
	u.mu.Unlock()
	if changed {
		select {
		case u.nudge <- struct{}{}:
		default:
		}
		u.s.watchers.Tell(u.name)
	}
}
