package systemd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"

	"atoll/internal/app"
	"atoll/internal/fault"
)

// Whatever name arrives, systemd is asked for listed units only.
func TestOnlyListedNames(t *testing.T) {
	b := newBus(t)
	listed := []string{"a.service", `b\x2dc.service`, "t@one.service"}
	f := newFake(t, b.address, append(listed, "b-c.service", "t@.service", "other.service")...)
	m := faked(t, b.address, listed...)
	for _, name := range []string{"", "a", "A.service", "a.service ", " a.service", "a.service\x00", "a.service\n", "./a.service", "../a.service",
		"/etc/systemd/system/a.service", "other.service", "b-c.service", `b\x2dc`, "b_2dc.service", "t@.service", "t@two.service", "t@*.service",
		"*", "*.service", "a.servic?", "[a].service", "a.service.d", "a.service/../other.service", "%n", "$(reboot)", "--help",
		"a.service\u200b", "a\u2024service", "а.service", strings.Repeat("a", 1<<20), "\xff\xfe", "multi-user.target", "-.slice"} {
		ctx := t.Context()
		_, err := m.Inspect(ctx, name)
		refused(t, err, fault.NotFound, "list")
		_, _, err = m.Examine(ctx, name)
		refused(t, err, fault.NotFound, "list")
		_, err = m.Logs(ctx, name, 1)
		refused(t, err, fault.NotFound, "list")
		refused(t, m.Follow(ctx, name, 1, nil), fault.NotFound, "list")
		for _, act := range []func(context.Context, string) error{m.Start, m.Stop, m.Restart} {
			err := act(ctx, name)
			refused(t, err, fault.NotFound, "list")
			if len(err.Error()) > 1000 {
				t.Errorf("%d characters of error", len(err.Error()))
			}
		}
	}
	_, _, err := m.List(t.Context())
	must(t, err)
	f.acts(func(string, string) *dbus.Error { go func() { _ = f.end(listed[1], "done") }(); return nil })
	must(t, m.Start(t.Context(), listed[1]))
	allowed := map[string]bool{}
	for _, name := range listed {
		allowed["name:"+name], allowed["path:"+string(unitPath(name))] = true, true
	}
	asked := f.names()
	for _, what := range asked {
		if !allowed[what] {
			t.Errorf("systemd was asked for %q", what)
		}
	}
	if len(asked) < 4 || f.started() != 1 {
		t.Errorf("asked for %q, %d jobs", asked, f.started())
	}
}

// A job without end ends with its caller's context and is not called failed: it goes on.
func TestJobWithoutEnd(t *testing.T) {
	b := newBus(t)
	f := newFake(t, b.address, "a.service")
	m := faked(t, b.address, "a")
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := m.Start(ctx, "a.service"); !errors.Is(err, context.DeadlineExceeded) || isFault(err) {
		t.Errorf("got %v", err)
	}
	if f.started() != 1 {
		t.Errorf("%d jobs", f.started())
	}
	// Other jobs are not held up by it.
	f.acts(func(string, string) *dbus.Error { go func() { _ = f.end("a.service", "done") }(); return nil })
	must(t, m.Start(t.Context(), "a.service"))
}

// The end of a job: what the unit's state shows is no error, all else has its words.
func TestJobResults(t *testing.T) {
	b := newBus(t)
	f := newFake(t, b.address, "a.service")
	m := faked(t, b.address, "a")
	failed := map[string]any{"ActiveState": "failed", "SubState": "failed", "Result": "resources"}
	stopped := map[string]any{"ActiveState": "inactive", "SubState": "dead", "Result": "success"}
	for _, tc := range []struct {
		result string
		state  map[string]any
		words  string // empty means no error
	}{
		{"done", stopped, ""},
		{"failed", failed, ""},
		{"timeout", failed, ""},
		{"failed", stopped, "could not start a.service"},
		{"timeout", stopped, "job's time limit"},
		{"canceled", stopped, "something else"},
		{"dependency", failed, "a unit that it needs"},
		{"assert", stopped, "assertion"},
		{"skipped", stopped, "could not start"},
		{"a word of the future", stopped, "could not start"},
	} {
		f.acts(func(string, string) *dbus.Error {
			f.set("a.service", tc.state)
			go func() {
				_ = f.conn.Emit(object, managerFace+".JobRemoved", uint32(9999), jobPath(9999), "a.service", "done") // another job
				_ = f.end("a.service", tc.result)
			}()
			return nil
		})
		err := m.Start(t.Context(), "a.service")
		if tc.words == "" && err != nil {
			t.Errorf("%s: %v", tc.result, err)
		}
		if tc.words != "" {
			refused(t, err, fault.Rule, tc.words)
		}
		f.set("a.service", stopped)
	}
}

// What systemd refuses, and who may not ask it.
func TestRefusedByManager(t *testing.T) {
	b := newBus(t)
	f := newFake(t, b.address, "a.service")
	m := faked(t, b.address, "a")
	for name, want := range map[string]struct {
		code  fault.Code
		words string
	}{
		"org.freedesktop.DBus.Error.AccessDenied":                     {fault.NotConfigured, "polkit rule"},
		"org.freedesktop.DBus.Error.InteractiveAuthorizationRequired": {fault.NotConfigured, "polkit rule"},
		"org.freedesktop.systemd1.NoSuchUnit":                         {fault.NotFound, "no unit"},
		"org.freedesktop.systemd1.UnitMasked":                         {fault.Rule, "masked"},
		"org.freedesktop.systemd1.OnlyByDependency":                   {fault.Rule, "by hand"},
		"org.freedesktop.systemd1.LoadFailed":                         {fault.Rule, "mistake"},
		"org.freedesktop.systemd1.ShuttingDown":                       {fault.Rule, "shutting down"},
		"org.freedesktop.systemd1.SomethingNew":                       {fault.Rule, "refuses"},
		"org.freedesktop.DBus.Error.LimitsExceeded":                   {fault.Unavailable, "nothing was done"},
		"org.freedesktop.DBus.Error.NoReply":                          {fault.OutcomeUnknown, "look at its state"},
	} {
		f.acts(func(string, string) *dbus.Error { return dbus.NewError(name, []any{"canary"}) })
		err := m.Start(t.Context(), "a.service")
		refused(t, err, want.code, want.words)
		if strings.Contains(fault.Of(err).Public, "canary") {
			t.Errorf("systemd's words are shown: %v", err)
		}
	}
}

// The bus goes away in the middle of a job: the outcome is unknown, nothing is listed as running, and once the bus is
// back, so is everything.
func TestBusGone(t *testing.T) {
	b := newBus(t)
	f := newFake(t, b.address, "a.service")
	f.set("a.service", map[string]any{"ActiveState": "active", "SubState": "running", "MainPID": uint32(7)})
	m := faked(t, b.address, "a")
	rests(t, m, "a.service", app.Running)
	test := t // beyond the parts
	for what, away := range map[string]func(){
		"the bus":      b.stop,
		"systemd only": func() { _ = f.conn.Close() },
	} {
		t.Run(what, func(t *testing.T) {
			begun := make(chan struct{}, 1)
			f.acts(func(string, string) *dbus.Error { begun <- struct{}{}; return nil })
			ended := make(chan error, 1)
			go func() { ended <- m.Restart(t.Context(), "a.service") }()
			select {
			case <-begun:
			case err := <-ended:
				t.Fatal(err)
			}
			away()
			refused(t, <-ended, fault.OutcomeUnknown, "look at its state")
			until(t, "the bus to be missed", func() bool {
				apps, problems, err := m.List(t.Context())
				if len(apps)+len(problems) > 0 && err != nil || len(apps) > 0 && apps[0].State != app.Running {
					t.Fatalf("%+v, %+v, %v", apps, problems, err)
				}
				return fault.Is(err, fault.Unavailable)
			})
			before := f.started()
			refused(t, m.Start(t.Context(), "a.service"), fault.Unavailable, "systemd cannot be reached")
			if b.end == nil {
				b.start(test)
			}
			f.join(test, b.address)
			until(t, "everything to be back", func() bool {
				a, err := m.Inspect(t.Context(), "a.service")
				return err == nil && a.State == app.Running
			})
			if f.started() != before {
				t.Errorf("%d jobs were asked for meanwhile", f.started()-before)
			}
		})
	}
}

// Another client of the bus cannot speak for systemd.
func TestForgedSignals(t *testing.T) {
	b := newBus(t)
	f := newFake(t, b.address, "a.service")
	m := faked(t, b.address, "a")
	rests(t, m, "a.service", app.Stopped)
	forger, err := dbus.Connect(b.address)
	must(t, err)
	defer forger.Close()
	begun := make(chan struct{}, 1)
	f.acts(func(string, string) *dbus.Error { begun <- struct{}{}; return nil })
	ended := make(chan error, 1)
	go func() { ended <- m.Start(t.Context(), "a.service") }()
	<-begun
	changed := variants(map[string]any{"ActiveState": "active", "StateChangeTimestampMonotonic": uint64(5)})
	for range 20 {
		must(t, forger.Emit(object, managerFace+".JobRemoved", uint32(1), jobPath(1), "a.service", "failed"))
		must(t, forger.Emit(unitPath("a.service"), propsFace+".PropertiesChanged", "org.freedesktop.systemd1.Unit", changed, []string{}))
		must(t, forger.Emit("/org/freedesktop/DBus", "org.freedesktop.DBus.NameOwnerChanged", destination, "", ":1.99"))
		must(t, forger.Emit(object, managerFace+".JobRemoved"))
	}
	must(t, forger.BusObject().Call("org.freedesktop.DBus.GetId", 0).Err) // all of it is out
	must(t, f.end("a.service", "done"))
	if err := <-ended; err != nil {
		t.Errorf("a forged end was taken: %v", err)
	}
	rests(t, m, "a.service", app.Stopped)
}

// A manager that gives rubbish, or nothing, gives a clear answer; signals of the wrong shape are passed over.
func TestRubbish(t *testing.T) {
	b := newBus(t)
	f := newFake(t, b.address, "a.service", "b.service")
	f.set("a.service", map[string]any{"ActiveState": uint32(1), "MainPID": "x", "Id": []string{"a"}, "ExecMainStatus": int64(3), "StateChangeTimestamp": "now"})
	m := faked(t, b.address, "a", "b")
	for range 2 {
		if _, err := m.Inspect(t.Context(), "a.service"); err != nil {
			t.Error(err)
		}
		for _, name := range []string{managerFace + ".JobRemoved", managerFace + ".Reloading", propsFace + ".PropertiesChanged"} {
			must(t, f.conn.Emit(object, name))
			must(t, f.conn.Emit(unitPath("a.service"), name, "x", "y", "z"))
		}
	}
	f.change(t, "a.service", map[string]any{"ActiveState": []string{"x"}})
	silent := make(chan struct{})
	defer close(silent)
	f.mu.Lock()
	f.silent = silent
	f.mu.Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := m.Inspect(ctx, "b.service")
	refused(t, err, fault.Unavailable, "does not answer")
	ended, stop := context.WithCancel(t.Context())
	stop()
	_, err = m.Inspect(ended, "b.service")
	refused(t, err, fault.Cancelled, "cancelled")
	refused(t, m.Start(ended, "b.service"), fault.Cancelled, "nothing was done")
}

// No bus, a bus without systemd, and one that accepts and says nothing: each its word, and no call hangs.
func TestNoBus(t *testing.T) {
	b := newBus(t)
	dir := t.TempDir()
	mute, err := net.Listen("unix", dir+"/mute")
	must(t, err)
	defer mute.Close()
	for address, words := range map[string]string{
		"unix:path=" + dir + "/none": "there is no D-Bus at",
		b.address:                    "it is not on the bus",
		"unix:path=" + dir + "/mute": "not been reached yet",
	} {
		t.Run(words, func(t *testing.T) {
			m := faked(t, address, "a")
			_, _, err := m.List(t.Context())
			refused(t, err, fault.Unavailable, words)
			refused(t, m.Start(t.Context(), "a.service"), fault.Unavailable, words)
		})
	}
}

// A unit that systemd forgets as soon as it has ended well is known by how it ended; and one that it forgets without a
// word is not shown as running for long.
func TestForgotten(t *testing.T) {
	b := newBus(t)
	f := newFake(t, b.address, "a.service")
	now := time.Unix(1000, 0)
	m, err := New(Config{Log: quiet(), Units: []string{"a"}, Bus: b.address, Now: func() time.Time { return now }})
	must(t, err)
	running(t, m)
	rests(t, m, "a.service", app.Stopped)
	up := map[string]any{"ActiveState": "active", "SubState": "running", "StateChangeTimestampMonotonic": uint64(10), "StateChangeTimestamp": uint64(10e6),
		"InactiveExitTimestampMonotonic": uint64(10), "ActiveEnterTimestampMonotonic": uint64(10)}
	ended := map[string]any{"ActiveState": "inactive", "SubState": "dead", "StateChangeTimestampMonotonic": uint64(30), "StateChangeTimestamp": uint64(30e6),
		"ActiveExitTimestampMonotonic": uint64(30), "ExecMainStartTimestampMonotonic": uint64(9), "ExecMainExitTimestampMonotonic": uint64(20),
		"ExecMainCode": int32(1), "ExecMainStatus": int32(0)}
	forget := func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.units["a.service"] = map[string]any{"Id": "a.service", "LoadState": "loaded", "ActiveState": "inactive", "SubState": "dead",
			"StateChangeTimestampMonotonic": uint64(0), "ExecMainCode": int32(0)}
	}
	told := func(p map[string]any) {
		t.Helper()
		f.change(t, "a.service", p)
		until(t, "it to be told", func() bool {
			u := m.units["a.service"]
			u.mu.Lock()
			defer u.mu.Unlock()
			return u.told.text("ActiveState") == p["ActiveState"]
		})
	}
	told(up)
	told(ended)
	forget()
	if a := rests(t, m, "a.service", app.Exited); a.ExitCode == nil || *a.ExitCode != 0 || a.Since.Unix() != 30 {
		t.Errorf("%+v", a)
	}
	up["StateChangeTimestampMonotonic"], up["InactiveExitTimestampMonotonic"], up["ActiveEnterTimestampMonotonic"] = uint64(40), uint64(40), uint64(40)
	told(up)
	forget()
	if a, err := m.Inspect(t.Context(), "a.service"); err != nil || a.State != app.Running {
		t.Errorf("its end is on its way: %+v, %v", a, err)
	}
	now = now.Add(blankTime + time.Millisecond)
	if a, err := m.Inspect(t.Context(), "a.service"); err != nil || a.State != app.Stopped {
		t.Errorf("its end was never told: %+v, %v", a, err)
	}
}

// Watch: only what a person sees is told, each unit once however often it changed.
func TestWatchTells(t *testing.T) {
	b := newBus(t)
	f := newFake(t, b.address, "a.service", "b.service")
	m := faked(t, b.address, "a", "b")
	rests(t, m, "a.service", app.Stopped)
	one := m.watchers.Join()
	defer one.Leave()
	one.Take()
	for i := range 50 {
		f.change(t, "a.service", map[string]any{"StatusText": fmt.Sprint(i), "ActiveState": "inactive"})
	}
	f.change(t, "b.service", map[string]any{"ActiveState": "active"})
	<-one.Changed()
	if names := one.Take(); len(names) != 1 {
		t.Errorf("told of %v", names)
	}
	must(t, f.conn.Emit(object, managerFace+".Reloading", false))
	<-one.Changed()
	if names := one.Take(); len(names) != 2 {
		t.Errorf("told of %v", names)
	}
}
