package systemd

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"atoll/internal/app"
	"atoll/internal/app/apptest"
	"atoll/internal/fault"
)

// Everything that is shown with a real systemd: it is booted once.
func TestRealSystemd(t *testing.T) {
	p := boot(t)
	t.Run("contract", func(t *testing.T) { contract(t, p) })
	t.Run("states", func(t *testing.T) { states(t, p) })
	t.Run("stops", func(t *testing.T) { stops(t, p) })
	t.Run("refusals", func(t *testing.T) { refusals(t, p) })
	t.Run("other kinds", func(t *testing.T) { kindsOfUnit(t, p) })
	t.Run("list", func(t *testing.T) { list(t, p) })
	t.Run("outside", func(t *testing.T) { outsideChanges(t, p) })
	t.Run("fingerprint", func(t *testing.T) { fingerprints(t, p) })
	t.Run("logs", func(t *testing.T) { realLogs(t, p) })
	t.Run("follow", func(t *testing.T) { follow(t, p) })
	t.Run("probe", func(t *testing.T) { probeReal(t, p) })
	t.Run("as nobody", func(t *testing.T) { asNobody(t, p) })
	t.Run("bus away", func(t *testing.T) { busAway(t, p) }) // last: it stops the bus
}

func contract(t *testing.T, p *peer) {
	apptest.Run(t, func(t *testing.T) apptest.Fixture {
		steady := p.service(t, "steady", "ExecStart=/bin/sh -c 'echo hello from steady; exec sleep 1000'")
		brief := p.service(t, "brief", "ExecStart=/bin/sh -c 'exit 3'")
		t.Cleanup(func() { _ = p.command("systemctl", "stop", steady).Run() })
		return apptest.Fixture{
			Runtime: p.manager(t, steady, brief), Steady: steady, Greeting: "hello from steady", Brief: brief,
			Redefine: func(t *testing.T) { p.write(t, steady, "[Service]\nExecStart=/bin/sleep 2000\n") },
		}
	})
}

// T9: what a start comes to, as systemd saw it: an end of the unit's own with its code or signal, a failed start with the
// reason.
func states(t *testing.T, p *peer) {
	code := func(n int) *int { return &n }
	for stem, tc := range map[string]struct {
		lines  string
		state  app.State
		code   *int
		signal string
		reason string
	}{
		"simple-3":    {"ExecStart=/bin/sh -c 'sleep .1; exit 3'", app.Exited, code(3), "", ""},
		"oneshot-3":   {"Type=oneshot\nExecStart=/bin/sh -c 'exit 3'", app.Exited, code(3), "", ""},
		"oneshot-0":   {"Type=oneshot\nExecStart=/bin/true", app.Exited, code(0), "", ""},
		"simple-0":    {"ExecStart=/bin/true", app.Exited, code(0), "", ""}, // which systemd forgets at once
		"signal":      {"ExecStart=/bin/sh -c 'sleep .1; kill -9 $$$$'", app.Exited, nil, "SIGKILL", ""},
		"term":        {"ExecStart=/bin/sh -c 'sleep .1; kill -15 $$$$'", app.Exited, nil, "SIGTERM", ""},
		"remain":      {"Type=oneshot\nRemainAfterExit=yes\nExecStart=/bin/true", app.Running, nil, "", ""},
		"no-program":  {"ExecStart=/no/such/program", app.Failed, code(203), "", "before it was ready"},
		"no-user":     {"User=nobody-at-all\nExecStart=/bin/true", app.Failed, code(217), "", "before it was ready"},
		"pre-fails":   {"ExecStartPre=/bin/false\nExecStart=/bin/true", app.Failed, nil, "", "before it was ready"},
		"not-ready":   {"Type=notify\nExecStart=/bin/sh -c 'exit 4'", app.Failed, code(4), "", "before it was ready"},
		"never-ready": {"Type=notify\nTimeoutStartSec=1\nExecStart=/bin/sleep 1000", app.Failed, nil, "SIGTERM", "time limit"},
		"notify-0":    {"Type=notify\nExecStart=/bin/true", app.Failed, code(0), "", "type of unit"},
		"too-long":    {"RuntimeMaxSec=1\nExecStart=/bin/sleep 1000", app.Exited, nil, "SIGTERM", "time limit"},
		"watchdog":    {"WatchdogSec=1\nExecStart=/bin/sleep 1000", app.Exited, nil, "SIGABRT", "watchdog"},
		"loop-stops":  {"Restart=always\nRestartSec=10ms\nExecStart=/bin/sh -c 'exit 5'", app.Failed, code(5), "", "given up"},
		"bad-line":    {"Restart=always", app.Failed, nil, "", "cannot load"},
	} {
		t.Run(stem, func(t *testing.T) {
			name := p.service(t, stem, tc.lines)
			m := p.manager(t, name)
			err := m.Start(t.Context(), name)
			if stem == "bad-line" {
				refused(t, err, fault.Rule, "mistake")
			} else {
				must(t, err)
			}
			a := rests(t, m, name, tc.state)
			if (a.ExitCode == nil) != (tc.code == nil) || a.ExitCode != nil && *a.ExitCode != *tc.code || a.Signal != tc.signal || a.ExitUnknown {
				t.Errorf("the end: %+v", a)
			}
			if !strings.Contains(a.Reason, tc.reason) || tc.reason == "" && a.Reason != "" {
				t.Errorf("reason %q, want %q", a.Reason, tc.reason)
			}
			if a.State.Down() && a.PID != 0 || a.Foreign || a.Title != "" || a.Since.IsZero() && stem != "bad-line" {
				t.Errorf("%+v", a)
			}
		})
	}
}

// A stop reads as stopped, whatever the unit made of it, and also where somebody else stopped it.
func stops(t *testing.T, p *peer) {
	for stem, lines := range map[string]string{
		"plain":       "ExecStart=/bin/sleep 1000",
		"ends-with-7": "ExecStart=/bin/sh -c 'trap \"exit 7\" TERM; touch /run/%n; while :; do sleep .05; done'",
		"ignores":     "TimeoutStopSec=1\nExecStart=/bin/sh -c 'trap \"\" TERM; touch /run/%n; while :; do sleep .05; done'",
		"remains":     "Type=oneshot\nRemainAfterExit=yes\nExecStart=/bin/true\nExecStop=/bin/true",
		"loops":       "Restart=always\nRestartSec=1h\nExecStart=/bin/sh -c 'exit 5'",
	} {
		for _, from := range []string{"here", "outside"} {
			t.Run(stem+" from "+from, func(t *testing.T) {
				name := p.service(t, stem, lines)
				m := p.manager(t, name)
				must(t, m.Start(t.Context(), name))
				if stem == "loops" {
					a := rests(t, m, name, app.Backoff)
					if a.ExitCode == nil || *a.ExitCode != 5 {
						t.Errorf("in backoff: %+v", a)
					}
				} else {
					rests(t, m, name, app.Running)
				}
				if strings.Contains(lines, "touch") {
					until(t, "the trap", func() bool { _, err := os.Stat(p.root + "/run/" + name); return err == nil })
				}
				if from == "here" {
					must(t, m.Stop(t.Context(), name))
				} else {
					p.run(t, "systemctl", "stop", name)
				}
				a := rests(t, m, name, app.Stopped)
				if a.PID != 0 || a.Reason != "" {
					t.Errorf("%+v", a)
				}
				refused(t, m.Stop(t.Context(), name), fault.Rule, "not running")
				must(t, m.Start(t.Context(), name))
				if stem != "loops" {
					rests(t, m, name, app.Running)
				}
				_ = p.command("systemctl", "stop", name).Run()
			})
		}
	}
}

// What systemd would not do is a Rule with its reason, and nothing runs.
func refusals(t *testing.T, p *peer) {
	ctx := t.Context()
	masked := p.service(t, "masked", "ExecStart=/bin/sleep 1000")
	must(t, os.Remove(p.file(masked)))
	p.run(t, "systemctl", "mask", masked)
	byHand := p.name("byhand") + ".service"
	p.write(t, byHand, "[Unit]\nRefuseManualStart=yes\n[Service]\nExecStart=/bin/sleep 1000\n")
	condition := p.name("condition") + ".service"
	p.write(t, condition, "[Unit]\nConditionPathExists=/no/such\n[Service]\nExecStart=/bin/sleep 1000\n")
	asserted := p.name("assert") + ".service"
	p.write(t, asserted, "[Unit]\nAssertPathExists=/no/such\n[Service]\nExecStart=/bin/sleep 1000\n")
	needed := p.service(t, "needed", "ExecStartPre=/bin/false\nExecStart=/bin/sleep 1000")
	needs := p.name("needs") + ".service"
	p.write(t, needs, "[Unit]\nRequires="+needed+"\nAfter="+needed+"\n[Service]\nExecStart=/bin/sleep 1000\n")
	p.run(t, "systemctl", "daemon-reload")
	m := p.manager(t, masked, byHand, condition, asserted, needs)
	for name, words := range map[string]string{
		masked: "masked", byHand: "by hand", condition: "condition", asserted: "assertion", needs: "needs",
	} {
		for _, act := range []func(context.Context, string) error{m.Start, m.Restart} {
			refused(t, act(ctx, name), fault.Rule, words)
		}
		if a := rests(t, m, name, app.Stopped); a.PID != 0 {
			t.Errorf("%+v", a)
		}
	}
	if a := rests(t, m, masked, app.Stopped); a.Reason != "the unit is masked" {
		t.Errorf("%+v", a)
	}
}

// Sockets, timers and targets start and stop as well; a job that takes long ends with the caller's context and goes on.
func kindsOfUnit(t *testing.T, p *peer) {
	stem := p.name("kinds")
	p.write(t, stem+".service", "[Service]\nExecStart=/bin/true\n")
	p.write(t, stem+".socket", "[Socket]\nListenStream=/run/"+stem+"\n")
	p.write(t, stem+".timer", "[Timer]\nOnActiveSec=1h\n")
	p.write(t, stem+".target", "[Unit]\nDescription=x\n")
	p.write(t, stem+".path", "[Path]\nPathExists=/no/such\n")
	slow := p.service(t, "slow", "Type=oneshot\nTimeoutStopSec=1\nExecStart=/bin/sleep 1000")
	m := p.manager(t, stem+".socket", stem+".timer", stem+".target", stem+".path", slow)
	for _, kind := range []string{".socket", ".timer", ".target", ".path"} {
		must(t, m.Start(t.Context(), stem+kind))
		if a := rests(t, m, stem+kind, app.Running); a.Since.IsZero() || a.PID != 0 {
			t.Errorf("%+v", a)
		}
		refused(t, m.Start(t.Context(), stem+kind), fault.Rule, "already running")
		must(t, m.Stop(t.Context(), stem+kind))
		rests(t, m, stem+kind, app.Stopped)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := m.Start(ctx, slow); !errors.Is(err, context.DeadlineExceeded) || isFault(err) {
		t.Errorf("a job without end: %v", err)
	}
	rests(t, m, slow, app.Starting)
	refused(t, m.Start(t.Context(), slow), fault.Rule, "already starting")
	must(t, m.Stop(t.Context(), slow))
	rests(t, m, slow, app.Stopped)
}

// A listed unit that is not there, or only another name, is a problem beside the apps, and is not found.
func list(t *testing.T, p *peer) {
	steady := p.service(t, "listed", "ExecStart=/bin/sh -c 'while :; do :; done'")
	alias := p.name("alias") + ".service"
	must(t, os.Symlink(steady, p.file(alias)))
	p.run(t, "systemctl", "daemon-reload")
	m := p.manager(t, steady, "no-such-thing", alias)
	must(t, m.Start(t.Context(), steady))
	apps, problems, err := m.List(t.Context())
	must(t, err)
	if len(apps) != 1 || apps[0].Name != steady || apps[0].State != app.Running || apps[0].PID == 0 {
		t.Errorf("apps %+v", apps)
	}
	if len(problems) != 2 || problems[0].File != "no-such-thing.service" || !strings.Contains(problems[0].Problem, "no unit") ||
		!strings.Contains(problems[1].Problem, steady) {
		t.Errorf("problems %+v", problems)
	}
	for _, name := range []string{"no-such-thing.service", alias} {
		refused(t, m.Start(t.Context(), name), fault.NotFound, "")
		refused(t, m.Stop(t.Context(), name), fault.NotFound, "")
	}
	rests(t, m, steady, app.Running)
	must(t, m.Stop(t.Context(), steady))
}

// What others do to a unit is seen: by its state, and told to those who watch.
func outsideChanges(t *testing.T, p *peer) {
	name := p.service(t, "others", "ExecStart=/bin/sleep 1000\nRestart=on-failure\nRestartSec=10ms")
	m := p.manager(t, name)
	ctx, cancel := context.WithCancel(t.Context())
	seen, ended := make(chan string, 1000), make(chan struct{})
	go func() {
		defer close(ended)
		_ = m.Watch(ctx, func(name string) { seen <- name })
	}()
	defer func() { cancel(); <-ended }()
	rests(t, m, name, app.Stopped)
	told := func(what string) {
		t.Helper()
		until(t, what+" to be told", func() bool { return len(seen) > 0 })
		for len(seen) > 0 {
			if got := <-seen; got != name {
				t.Errorf("told of %s", got)
			}
		}
	}
	told("the link")
	p.run(t, "systemctl", "start", name)
	told("a start")
	first := rests(t, m, name, app.Running)
	p.run(t, "systemctl", "kill", "-s", "KILL", name)
	told("an end")
	until(t, "a restart by the policy", func() bool {
		a, err := m.Inspect(ctx, name)
		must(t, err)
		return a.State == app.Running && a.Restarts == 1 && a.PID != first.PID
	})
	told("a restart")
	p.write(t, name, "[Service]\nExecStart=/bin/sleep 2000\n")
	if a := rests(t, m, name, app.Running); !a.DefinitionChanged {
		t.Errorf("the unit file is newer: %+v", a)
	}
	p.run(t, "systemctl", "daemon-reload")
	told("a reload of the definitions")
	if a := rests(t, m, name, app.Running); a.DefinitionChanged {
		t.Errorf("the unit file was read: %+v", a)
	}
	must(t, os.Remove(p.file(name)))
	p.run(t, "systemctl", "daemon-reload")
	if a := rests(t, m, name, app.Running); a.PID == 0 {
		t.Errorf("it runs without its file: %+v", a)
	}
	refused(t, m.Restart(ctx, name), fault.Rule, "gone")
	must(t, m.Stop(ctx, name))
	_, err := m.Inspect(ctx, name)
	refused(t, err, fault.NotFound, "no unit")
}

// With the bus away there is no state at all, and no stale one; it comes back by itself.
func busAway(t *testing.T, p *peer) {
	name := p.service(t, "away", "ExecStart=/bin/sleep 1000")
	m := p.manager(t, name)
	must(t, m.Start(t.Context(), name))
	follow := make(chan error, 1)
	go func() { follow <- m.Follow(t.Context(), name, 0, func(app.Line) error { return nil }) }()
	p.run(t, "systemctl", "stop", "dbus.socket", "dbus.service")
	refused(t, <-follow, fault.Unavailable, "systemd cannot be reached")
	until(t, "the bus to be missed", func() bool {
		apps, _, err := m.List(t.Context())
		if err == nil && len(apps) != 1 || err != nil && len(apps) > 0 {
			t.Fatalf("%+v, %v", apps, err)
		}
		return err != nil
	})
	_, _, err := m.List(t.Context())
	refused(t, err, fault.Unavailable, "systemd cannot be reached")
	_, err = m.Inspect(t.Context(), name)
	refused(t, err, fault.Unavailable, "systemd cannot be reached")
	refused(t, m.Stop(t.Context(), name), fault.Unavailable, "systemd cannot be reached")
	p.run(t, "systemctl", "start", "dbus.socket")
	until(t, "the bus to come back", func() bool {
		a, err := m.Inspect(t.Context(), name)
		return err == nil && a.State == app.Running
	})
	must(t, m.Stop(t.Context(), name))
}
