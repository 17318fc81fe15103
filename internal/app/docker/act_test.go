package docker

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"atoll/internal/app"
	"atoll/internal/fault"
)

// shop is a project of four services: web needs api; api needs db to be healthy and setup to be complete; setup needs db.
type shop struct {
	f                   *fake
	e                   *Engine
	db, setup, api, web *fakeBox
}

func newShop(t *testing.T, change func(*shop)) *shop {
	t.Helper()
	s := &shop{f: newFake(t)}
	s.db = &fakeBox{name: "shop-db-1", labels: composed("shop", "db", ""), healthy: []string{"starting", "healthy"}}
	s.setup = &fakeBox{name: "shop-setup-1", labels: composed("shop", "setup", "db:service_healthy:false"), brief: true}
	s.api = &fakeBox{name: "shop-api-1", labels: composed("shop", "api", "db:service_healthy:true,setup:service_completed_successfully:false")}
	s.web = &fakeBox{name: "shop-web-1", labels: composed("shop", "web", "api:service_started:false")}
	if change != nil {
		change(s)
	}
	for _, b := range []**fakeBox{&s.web, &s.api, &s.setup, &s.db} {
		*b = s.f.add(**b)
	}
	s.e = begin(t, s.f.path)
	return s
}

func done(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func refused(t *testing.T, err error, code fault.Code, words ...string) {
	t.Helper()
	if !fault.Is(err, code) {
		t.Fatalf("want %s, got %v", code, err)
	}
	for _, w := range words {
		if public := fault.Of(err).Public; !strings.Contains(public, w) {
			t.Errorf("%q lacks %q", public, w)
		}
	}
}

func (s *shop) order(t *testing.T, want string) {
	t.Helper()
	if got := strings.ReplaceAll(strings.Join(s.f.took(), " "), "shop-", ""); got != want {
		t.Errorf("asked for %q, want %q", got, want)
	}
}

// Issue 3, point 2: a project is started and stopped in the order of what its services need.
func TestProjectOrder(t *testing.T) {
	s := newShop(t, nil)
	ctx := t.Context()
	done(t, s.e.Start(ctx, "shop"))
	s.order(t, "db-1/start setup-1/start api-1/start web-1/start")
	a := inspect(t, s.e, "shop")
	if a.State != app.Running || a.Health != app.Healthy {
		t.Errorf("%+v", a)
	}
	if api, setup := s.f.get(s.api), s.f.get(s.setup); api.started.Before(setup.finished) {
		t.Error("api was started before setup was complete")
	}
	refused(t, s.e.Start(ctx, "shop"), fault.Rule, "already running")
	s.order(t, "")

	// What is amiss is put right; a job that is done is not run again.
	done(t, s.e.Stop(ctx, "shop/api"))
	if a := inspect(t, s.e, "shop"); a.State != app.Partly {
		t.Errorf("%+v", a)
	}
	s.order(t, "api-1/stop")
	done(t, s.e.Start(ctx, "shop"))
	s.order(t, "api-1/start")

	done(t, s.e.Restart(ctx, "shop"))
	s.order(t, "web-1/stop api-1/stop db-1/stop db-1/start api-1/start web-1/start")
	done(t, s.e.Stop(ctx, "shop"))
	s.order(t, "web-1/stop api-1/stop db-1/stop")
	if a := inspect(t, s.e, "shop"); a.State != app.Stopped {
		t.Errorf("%+v", a)
	}
	refused(t, s.e.Stop(ctx, "shop"), fault.Rule, "not running")
	s.order(t, "")

	// From nothing, all of it, the job as well.
	done(t, s.e.Restart(ctx, "shop"))
	s.order(t, "db-1/start setup-1/start api-1/start web-1/start")
}

// A need that cannot be met ends a start; nothing that needs it is begun, and the words say which.
func TestProjectNeeds(t *testing.T) {
	cases := []struct {
		name   string
		change func(*shop)
		words  []string
		order  string
	}{
		{"unhealthy", func(s *shop) { s.db.healthy = []string{"starting", "unhealthy"} }, []string{"shop/db", "is unhealthy"}, "db-1/start"},
		{"the job failed", func(s *shop) { s.setup.code = 2 }, []string{"shop/setup", "exit code 2"}, "db-1/start setup-1/start"},
		{"ended at once", func(s *shop) { s.db.brief, s.db.code, s.db.healthy = true, 1, nil }, []string{"shop/db", "is exited"}, "db-1/start"},
		{"the engine refuses", func(s *shop) { s.api.refusal = "driver failed: port is already allocated" }, []string{"shop/api", "port is already allocated"},
			"db-1/start setup-1/start api-1/start"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := newShop(t, c.change)
			refused(t, s.e.Start(t.Context(), "shop"), fault.Failed, c.words...)
			s.order(t, c.order)
		})
	}
}

// A service is started by itself, and refused where one that it needs is not there.
func TestServiceAlone(t *testing.T) {
	s := newShop(t, nil)
	ctx := t.Context()
	refused(t, s.e.Start(ctx, "shop/web"), fault.Rule, "shop/api", "is stopped")
	refused(t, s.e.Start(ctx, "shop/setup"), fault.Rule, "shop/db", "is stopped")
	refused(t, s.e.Restart(ctx, "shop/web"), fault.Rule, "shop/api")
	s.order(t, "")
	done(t, s.e.Start(ctx, "shop/db"))
	refused(t, s.e.Start(ctx, "shop/setup"), fault.Rule, "not healthy yet")
	wait(t, "health", func() bool { return inspect(t, s.e, "shop/db").Health == app.Healthy })
	done(t, s.e.Start(ctx, "shop/setup"))
	wait(t, "the job", func() bool { return inspect(t, s.e, "shop/setup").State == app.Exited })
	done(t, s.e.Start(ctx, "shop/api"))
	done(t, s.e.Restart(ctx, "shop/api"))
	done(t, s.e.Stop(ctx, "shop/db"))
	s.order(t, "db-1/start setup-1/start api-1/start api-1/restart db-1/stop")
	if a := inspect(t, s.e, "shop/api"); a.State != app.Running {
		t.Errorf("%+v", a)
	}
}

// Issue 3, faults: a container that ignores SIGTERM, a restart loop, a paused one, one that the engine removes.
func TestOddContainers(t *testing.T) {
	f := newFake(t)
	stubborn := f.add(fakeBox{name: "stubborn", stubborn: true, grace: 1})
	loop := f.add(fakeBox{name: "loop", brief: true, code: 1, policy: "always"})
	passing := f.add(fakeBox{name: "passing", remove: true})
	halted := f.add(fakeBox{name: "halted"})
	e := begin(t, f.path)
	ctx := t.Context()
	for _, name := range []string{"stubborn", "loop", "passing", "halted"} {
		done(t, e.Start(ctx, name))
	}
	f.add(fakeBox{name: "brief", brief: true, code: 3})
	wait(t, "brief to end by itself, though it was restarted", func() bool {
		done(t, e.Restart(ctx, "brief"))
		wait(t, "its end", func() bool { return inspect(t, e, "brief").PID == 0 })
		a := inspect(t, e, "brief")
		return a.State == app.Exited && *a.ExitCode == 3 && f.count() > 50
	})
	done(t, e.Stop(ctx, "stubborn"))
	if a := inspect(t, e, "stubborn"); a.State != app.Stopped || a.Signal != "SIGKILL" || a.Reason != "" {
		t.Errorf("%+v", a)
	}
	wait(t, "the loop", func() bool { a := inspect(t, e, "loop"); return a.State == app.Backoff && a.Restarts > 1 })
	done(t, e.Stop(ctx, "loop"))
	if a := inspect(t, e, "loop"); a.State != app.Stopped {
		t.Errorf("%+v", a)
	}
	done(t, e.Restart(ctx, "passing"))
	if a := inspect(t, e, "passing"); a.State != app.Running {
		t.Errorf("%+v", a)
	}
	done(t, e.Stop(ctx, "passing"))
	if _, err := e.Inspect(ctx, "passing"); !fault.Is(err, fault.NotFound) {
		t.Error(err)
	}
	f.set(halted, func(b *fakeBox) { b.state = "paused" })
	f.emit("pause", halted, "")
	refused(t, e.Start(ctx, "halted"), fault.Rule, "unpause it first")
	for _, b := range []*fakeBox{stubborn, loop} {
		if f.get(b).state != "exited" {
			t.Errorf("%s is %s", b.name, f.get(b).state)
		}
	}
	if f.get(passing).run != 2 {
		t.Error("it was not restarted")
	}
}

// T9, issue 3: an end that another program asked for is a stop, one that nobody asked for is none.
func TestStoppedByOthers(t *testing.T) {
	f := newFake(t)
	a, b := f.add(fakeBox{name: "a"}), f.add(fakeBox{name: "b", code: 5})
	e := begin(t, f.path)
	done(t, e.Start(t.Context(), "a"))
	done(t, e.Start(t.Context(), "b"))
	f.stop(a, 0)
	f.emit("stop", a, "")
	f.end(b, f.get(b).run, 5)
	wait(t, "a to be stopped", func() bool { return inspect(t, e, "a").State == app.Stopped })
	wait(t, "b to be exited", func() bool { return inspect(t, e, "b").State == app.Exited })
	// A signal that is no stop, and then an end of its own.
	done(t, e.Start(t.Context(), "b"))
	f.emit("kill", b, "1")
	f.end(b, f.get(b).run, 0)
	wait(t, "b to be exited", func() bool { return inspect(t, e, "b").State == app.Exited })
}

// A container in the long pause before its restart policy starts it again: stopped then, it was no end of its own, though
// that lies far back.
func TestStoppedInPause(t *testing.T) {
	f := newFake(t)
	box := f.add(fakeBox{name: "loop", policy: "always"})
	var later atomic.Int64
	e := begin(t, f.path, func(c *Config) { c.Now = func() time.Time { return time.Now().Add(time.Duration(later.Load())) } })
	inspect(t, e, "loop")
	f.set(box, func(b *fakeBox) {
		b.state, b.exit, b.restarts, b.started, b.finished = "restarting", 3, 9, time.Now(), time.Now()
	})
	later.Store(int64(40 * time.Second))
	if a := inspect(t, e, "loop"); a.State != app.Backoff {
		t.Errorf("%+v", a)
	}
	done(t, e.Stop(t.Context(), "loop"))
	if a := inspect(t, e, "loop"); a.State != app.Stopped || *a.ExitCode != 3 {
		t.Errorf("%+v", a)
	}
}

// Two actions at one app, or at an app and its part, go one after the other; who cannot wait is told why.
func TestBusy(t *testing.T) {
	f := newFake(t)
	db := f.add(fakeBox{name: "p-db-1", labels: composed("p", "db", ""), stubborn: true, grace: 1})
	other := f.add(fakeBox{name: "other"})
	e := begin(t, f.path)
	done(t, e.Start(t.Context(), "p"))
	stopped := make(chan error, 1)
	go func() { stopped <- e.Stop(t.Context(), "p") }()
	wait(t, "the stop to begin", func() bool { f.mu.Lock(); defer f.mu.Unlock(); return db.stopping })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	refused(t, e.Start(ctx, "p/db"), fault.Busy, "being stopped", "nothing was done")
	done(t, e.Start(t.Context(), "other"))
	refused(t, e.Stop(t.Context(), "p/db"), fault.Rule, "not running") // after the first
	done(t, <-stopped)
	if f.get(other).state != "running" || f.get(db).run != 1 {
		t.Error("the wrong one was touched")
	}
}

// A caller who goes away while an action is under way: what the engine was asked for it does; nothing more is begun. Where
// only the time was over, a stop goes on to its end.
func TestCallerGone(t *testing.T) {
	for name, c := range map[string]struct {
		timeout bool
		want    string
	}{"cancelled": {false, "web-1/stop"}, "out of time": {true, "web-1/stop db-1/stop"}} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			db := f.add(fakeBox{name: "p-db-1", labels: composed("p", "db", "")})
			web := f.add(fakeBox{name: "p-web-1", labels: composed("p", "web", "db:service_started:false"), stubborn: true, grace: 1})
			e := begin(t, f.path)
			done(t, e.Start(t.Context(), "p"))
			f.took()
			ctx, cancel := context.WithCancel(t.Context())
			if c.timeout {
				ctx, cancel = context.WithTimeout(t.Context(), 300*time.Millisecond)
			}
			defer cancel()
			if !c.timeout {
				go func() {
					wait(t, "the stop to begin", func() bool { f.mu.Lock(); defer f.mu.Unlock(); return web.stopping })
					cancel()
				}()
			}
			if err := e.Stop(ctx, "p"); !errors.Is(err, ctx.Err()) || ctx.Err() == nil {
				t.Fatalf("%v", err)
			}
			wait(t, "the action to end", func() bool { e.turns.mu.Lock(); defer e.turns.mu.Unlock(); return len(e.turns.held) == 0 })
			if got := strings.ReplaceAll(strings.Join(f.took(), " "), "p-", ""); got != c.want {
				t.Errorf("%q", got)
			}
			if f.get(web).state != "exited" || (f.get(db).state == "exited") != c.timeout {
				t.Errorf("web %s, db %s", f.get(web).state, f.get(db).state)
			}
		})
	}
}

// A start that waits for health ends with its caller, and holds nothing up after that.
func TestWaitEndsWithCaller(t *testing.T) {
	s := newShop(t, func(s *shop) { s.db.healthy = []string{"starting"} })
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := s.e.Start(ctx, "shop"); err == nil {
		t.Fatal("it is up")
	}
	done(t, s.e.Stop(t.Context(), "shop"))
	s.order(t, "db-1/start db-1/stop")
}

// Issue 3: hostile names are only ever names. They reach the engine by id, never in a path.
func TestHostileNames(t *testing.T) {
	f := newFake(t)
	names := []string{"../../images/prune", "a?b=c", "x\x00y", "-rf", "a b", "\u202etxt.exe", strings.Repeat("n", 4000), "immich/server", "%2e%2e%2fx"}
	for _, n := range names {
		f.add(fakeBox{name: n})
	}
	e := begin(t, f.path)
	ctx := t.Context()
	list, _, err := e.List(ctx)
	if err != nil || len(list) != len(names) {
		t.Fatal(len(list), err)
	}
	for _, n := range names {
		done(t, e.Start(ctx, n))
		if a := inspect(t, e, n); a.Name != n || a.State != app.Running || !a.Foreign {
			t.Errorf("%+v", a)
		}
		if a, mark, err := e.Examine(ctx, n); err != nil || mark == "" || a.Name != n || a.State != app.Running {
			t.Error(err)
		}
		if _, err := e.Logs(ctx, "/"+n, 5); err != nil {
			t.Error(err)
		}
		err := e.Start(ctx, n)
		refused(t, err, fault.Rule)
		if p := fault.Of(err).Public; strings.ContainsAny(p, "\x00\u202e") || len(p) > 2000 {
			t.Errorf("%q", p)
		}
	}
	if got := f.took(); len(got) != len(names) || slices.Contains(got, "") {
		t.Errorf("%q", got)
	}
}

// The engine going away under an action: what it was asked for may have happened.
func TestEngineGoneUnderAction(t *testing.T) {
	f := newFake(t)
	b := f.add(fakeBox{name: "b", stubborn: true, grace: 20})
	e := begin(t, f.path)
	done(t, e.Start(t.Context(), "b"))
	stopped := make(chan error, 1)
	go func() { stopped <- e.Stop(t.Context(), "b") }()
	wait(t, "the stop to begin", func() bool { f.mu.Lock(); defer f.mu.Unlock(); return b.stopping })
	f.die()
	select {
	case err := <-stopped:
		refused(t, err, fault.OutcomeUnknown, "look at its state")
	case <-time.After(patience):
		t.Fatal("it hangs")
	}
	wait(t, "the link to end", func() bool { return !e.State().Up })
	refused(t, e.Start(t.Context(), "b"), fault.Unavailable, "does not answer since")
}
