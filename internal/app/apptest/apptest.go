// Package apptest is the contract of app.Runtime as a test that every runtime runs. It knows no runtime of its own.
package apptest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"atoll/internal/app"
	"atoll/internal/fault"
)

// Fixture is one runtime with two apps, both down.
type Fixture struct {
	Runtime app.Runtime
	// Steady stays up once started, having written a line with Greeting to its log.
	Steady   string
	Greeting string
	// Brief ends by itself at once, with exit code 3, and is not started again.
	Brief string
	// Redefine changes what Steady would run the next time.
	Redefine func(t *testing.T)
}

const patience = 20 * time.Second

// Run holds a runtime to the contract. fresh makes a new fixture for each part.
func Run(t *testing.T, fresh func(t *testing.T) Fixture) {
	parts := map[string]func(*testing.T, Fixture){
		"starts and stops":        startStop,
		"restarts":                restarts,
		"ends by itself":          endsBySelf,
		"refuses unknown names":   unknown,
		"logs":                    logs,
		"follows":                 follows,
		"fingerprint":             fingerprint,
		"lists and measures":      lists,
		"tells what changes":      watch,
		"does nothing when ended": cancelled,
	}
	for name, part := range parts {
		t.Run(name, func(t *testing.T) { part(t, fresh(t)) })
	}
}

// startStop: T9, and that a second start or stop is a Rule and starts no second process.
func startStop(t *testing.T, f Fixture) {
	ctx := t.Context()
	want(t, f, f.Steady, app.Stopped)
	must(t, f.Runtime.Start(ctx, f.Steady))
	up := want(t, f, f.Steady, app.Running)
	if up.Since.IsZero() {
		t.Error("running since when?")
	}
	refused(t, f.Runtime.Start(ctx, f.Steady), fault.Rule)
	if again := want(t, f, f.Steady, app.Running); again.PID != up.PID || !again.Since.Equal(up.Since) {
		t.Errorf("a refused start changed the app: %+v, then %+v", up, again)
	}
	must(t, f.Runtime.Stop(ctx, f.Steady))
	if down := want(t, f, f.Steady, app.Stopped); down.PID != 0 {
		t.Errorf("stopped, and yet it has process %d", down.PID)
	}
	refused(t, f.Runtime.Stop(ctx, f.Steady), fault.Rule)
}

func restarts(t *testing.T, f Fixture) {
	ctx := t.Context()
	must(t, f.Runtime.Restart(ctx, f.Steady)) // one that is down is started
	before := want(t, f, f.Steady, app.Running)
	must(t, f.Runtime.Restart(ctx, f.Steady))
	after := want(t, f, f.Steady, app.Running)
	if before.PID == after.PID && before.Since.Equal(after.Since) {
		t.Errorf("nothing was restarted: %+v", after)
	}
	if after.Restarts != 0 {
		t.Errorf("a person's restart counts as %d of the policy's", after.Restarts)
	}
}

func endsBySelf(t *testing.T, f Fixture) {
	must(t, f.Runtime.Start(t.Context(), f.Brief))
	a := want(t, f, f.Brief, app.Exited)
	if a.ExitCode == nil || *a.ExitCode != 3 || a.ExitUnknown {
		t.Errorf("exit code 3 wanted: %+v", a)
	}
	refused(t, f.Runtime.Stop(t.Context(), f.Brief), fault.Rule)
}

func unknown(t *testing.T, f Fixture) {
	ctx, rt := t.Context(), f.Runtime
	for _, name := range []string{"", "no-such-app", "../" + f.Steady, f.Steady + "\x00", strings.ToUpper(f.Steady) + "X", strings.Repeat("a", 5000)} {
		_, err := rt.Inspect(ctx, name)
		refused(t, err, fault.NotFound)
		_, _, err = rt.Examine(ctx, name)
		refused(t, err, fault.NotFound)
		_, err = rt.Logs(ctx, name, 10)
		refused(t, err, fault.NotFound)
		refused(t, rt.Follow(ctx, name, 10, func(app.Line) error { return nil }), fault.NotFound)
		refused(t, rt.Start(ctx, name), fault.NotFound)
		refused(t, rt.Stop(ctx, name), fault.NotFound)
		refused(t, rt.Restart(ctx, name), fault.NotFound)
	}
	apps, _, err := rt.List(ctx)
	must(t, err)
	for _, a := range apps {
		if a.State.Up() {
			t.Errorf("%s was started", a.Name)
		}
	}
}

// lists: reading the names takes no figures, which would cut short the time that the next ones are over.
func lists(t *testing.T, f Fixture) {
	must(t, f.Runtime.Start(t.Context(), f.Steady))
	want(t, f, f.Steady, app.Running)
	plain, _, err := f.Runtime.List(t.Context())
	must(t, err)
	measured, _, err := f.Runtime.Measure(t.Context())
	must(t, err)
	var names, same []string
	for _, a := range plain {
		names = append(names, a.Name)
		if a.CPUPercent != nil || a.MemoryBytes != nil {
			t.Errorf("a list has figures of use: %+v", a)
		}
	}
	for _, a := range measured {
		same = append(same, a.Name)
	}
	if !slices.Equal(names, same) || !slices.Contains(names, f.Steady) {
		t.Errorf("listed %q, measured %q", names, same)
	}
}

func logs(t *testing.T, f Fixture) {
	ctx := t.Context()
	must(t, f.Runtime.Start(ctx, f.Steady))
	until(t, "the greeting in the log", func() bool {
		log, err := f.Runtime.Logs(ctx, f.Steady, 500)
		must(t, err)
		for _, l := range log.Lines {
			if strings.Contains(l.Text, f.Greeting) && l.Stream != "atoll" {
				return true
			}
		}
		return false
	})
	log, err := f.Runtime.Logs(ctx, f.Steady, 1)
	must(t, err)
	if len(log.Lines) > 1 {
		t.Errorf("one line asked for, %d given", len(log.Lines))
	}
}

// follows: lines come in order, each once, from before the first start on and across restarts; it ends with its context
// and with emit's error.
func follows(t *testing.T, f Fixture) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	lines := make(chan app.Line, 1000)
	ended := make(chan error, 1)
	go func() {
		ended <- f.Runtime.Follow(ctx, f.Steady, 100, func(l app.Line) error {
			lines <- l
			return nil
		})
	}()
	var last time.Time
	var all []app.Line // for the failure's words
	greeted := func() {
		t.Helper()
		late := time.After(patience)
		for {
			select {
			case l := <-lines:
				all = append(all, l)
				if l.Stream == "atoll" || !strings.Contains(l.Text, f.Greeting) {
					continue
				}
				if l.Time.Before(last) {
					t.Errorf("%q of %s comes after one of %s", l.Text, l.Time, last)
				}
				last = l.Time
				return
			case err := <-ended:
				t.Fatalf("it ended early: %v", err)
			case <-late:
				t.Fatal("waited in vain for the greeting in the followed log")
			}
		}
	}
	must(t, f.Runtime.Start(ctx, f.Steady))
	greeted()
	for range 2 {
		must(t, f.Runtime.Restart(ctx, f.Steady))
		greeted()
	}
	must(t, f.Runtime.Stop(ctx, f.Steady))
	cancel()
	select {
	case err := <-ended:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("ended by its context with %v", err)
		}
	case <-time.After(patience):
		t.Fatal("Follow goes on after its context")
	}
	for len(lines) > 0 {
		if l := <-lines; strings.Contains(l.Text, f.Greeting) && l.Stream != "atoll" {
			t.Errorf("a line came twice: %+v after %+v", l, all)
		}
	}
	enough := errors.New("enough")
	seen := 0
	if err := f.Runtime.Follow(t.Context(), f.Steady, 1, func(app.Line) error { seen++; return enough }); !errors.Is(err, enough) || seen != 1 {
		t.Errorf("after %d lines: %v", seen, err)
	}
}

// fingerprint: F-A2, C11.
func fingerprint(t *testing.T, f Fixture) {
	ctx := t.Context()
	mark := func() string {
		a, m, err := f.Runtime.Examine(ctx, f.Steady)
		must(t, err)
		if m == "" {
			t.Fatal("empty fingerprint")
		}
		if seen := want(t, f, f.Steady, a.State); a.Name != f.Steady || a.PID != seen.PID {
			t.Errorf("examined it is %+v, inspected %+v", a, seen)
		}
		return m
	}
	first := mark()
	must(t, f.Runtime.Start(ctx, f.Steady))
	if mark() != first {
		t.Error("a start changed the fingerprint")
	}
	must(t, f.Runtime.Restart(ctx, f.Steady))
	if mark() != first {
		t.Error("a restart changed the fingerprint")
	}
	f.Redefine(t)
	if mark() == first {
		t.Error("the definition changed and the fingerprint did not")
	}
}

func watch(t *testing.T, f Fixture) {
	ctx, cancel := context.WithCancel(t.Context())
	seen := make(chan string, 1000)
	ended := make(chan error, 1)
	go func() { ended <- f.Runtime.Watch(ctx, func(name string) { seen <- name }) }()
	first := make(chan error, 1)
	go func() { first <- f.Runtime.Start(ctx, f.Steady) }()
	must(t, <-first)
	want(t, f, f.Steady, app.Running)
	// The watch may have begun after the start; it cannot miss the stop as well once it is known to be there.
	until(t, "a change told", func() bool {
		if err := f.Runtime.Restart(ctx, f.Steady); err != nil {
			t.Fatal(err)
		}
		select {
		case name := <-seen:
			return name == f.Steady
		default:
			return false
		}
	})
	cancel()
	select {
	case <-ended:
	case <-time.After(patience):
		t.Fatal("Watch goes on after its context")
	}
}

// cancelled: an action asked for with an ended context does not begin.
func cancelled(t *testing.T, f Fixture) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := f.Runtime.Start(ctx, f.Steady); err == nil {
		t.Error("started for a caller who was gone")
	}
	want(t, f, f.Steady, app.Stopped)
}

// want waits until the app is in the state.
func want(t *testing.T, f Fixture, name string, s app.State) (a app.App) {
	t.Helper()
	if !reached(func() bool {
		var err error
		a, err = f.Runtime.Inspect(t.Context(), name)
		must(t, err)
		return a.State == s
	}) {
		t.Fatalf("waited in vain for %s to be %s: %+v", name, s, a)
	}
	return a
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	if !reached(ok) {
		t.Fatalf("waited in vain for %s", what)
	}
}

// reached asks until ok, or patience is over.
func reached(ok func() bool) bool {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	late := time.After(patience)
	for !ok() {
		select {
		case <-tick.C:
		case <-late:
			return false
		}
	}
	return true
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func refused(t *testing.T, err error, code fault.Code) {
	t.Helper()
	if !fault.Is(err, code) {
		t.Errorf("want %s, got %v", code, err)
	}
}
