package docker

import (
	"strings"
	"testing"
	"time"

	"atoll/internal/app"
	"atoll/internal/app/docker/compose"
)

var (
	early = time.Date(2026, 12, 2, 8, 0, 0, 0, time.UTC)
	late  = early.Add(time.Hour)
)

// ended is a container that is over, at an hour.
func ended(code int, change ...func(*compose.Container)) *compose.Container {
	b := &compose.Container{ID: "e", Phase: compose.Exited, Created: early, Started: early, Ended: late, Code: code}
	for _, c := range change {
		c(b)
	}
	return b
}

func asked(b *compose.Container)   { b.Asked, b.Watched = true, true }
func watched(b *compose.Container) { b.Watched = true }
func always(b *compose.Container)  { b.Again = true }
func retries(b *compose.Container) { b.Retries = true }
func oom(b *compose.Container)     { b.OOM = true }

func plain(now time.Time) view {
	return view{now: now, warn: func(*compose.Container) warning { return 0 }}
}

// TestStateOfOne: the choices of doc.go between stopped and exited, and every phase.
func TestStateOfOne(t *testing.T) {
	in := func(p compose.Phase) *compose.Container {
		return &compose.Container{Phase: p, Created: early, Started: early, PID: 7}
	}
	failed := ended(128)
	failed.Reason = "port is already allocated"
	unborn := in(compose.Created)
	unborn.Reason = failed.Reason
	cases := []struct {
		name   string
		box    *compose.Container
		podman bool
		now    time.Time
		want   app.State
	}{
		{"never started", in(compose.Created), false, late, app.Stopped},
		{"could not be started", unborn, false, late, app.Failed},
		{"running", in(compose.Running), false, late, app.Running},
		{"paused", in(compose.Paused), false, late, app.Paused},
		{"tried again", in(compose.Restarting), false, late, app.Backoff},
		{"being removed", in(compose.Removing), false, late, app.Stopping},
		{"dead", in(compose.Dead), false, late, app.Failed},
		{"start failed later", failed, false, late, app.Failed},
		{"asked to stop, 0", ended(0, asked), false, late, app.Stopped},
		{"asked to stop, killed", ended(137, asked), false, late, app.Stopped},
		{"by itself, 0", ended(0, watched), false, late, app.Exited},
		{"by itself, 3", ended(3, watched), false, late, app.Exited},
		{"killed by the kernel", ended(137, watched, oom), false, late, app.Exited},
		{"a signal, nobody asked", ended(143, watched), false, late, app.Exited},
		{"unseen, 0", ended(0), false, late, app.Exited},
		{"unseen, 3", ended(3), false, late, app.Exited},
		{"unseen, SIGTERM", ended(143), false, late, app.Stopped},
		{"unseen, SIGKILL", ended(137), false, late, app.Stopped},
		{"unseen, SIGINT", ended(130), false, late, app.Stopped},
		{"unseen, want of memory", ended(137, oom), false, late, app.Exited},
		{"unseen, SIGSEGV", ended(139), false, late, app.Exited},
		{"unseen, would have been started again", ended(1, always), false, late, app.Stopped},
		{"unseen, tries used up", ended(1, retries), false, late, app.Exited},
		{"Podman between two tries", ended(1, watched, always), true, late.Add(time.Second), app.Backoff},
		{"Podman, failure to be tried again", ended(1, watched, retries), true, late.Add(time.Second), app.Backoff},
		{"Podman, success is not tried again", ended(0, watched, retries), true, late.Add(time.Second), app.Exited},
		{"Podman gave up", ended(1, watched, always), true, late.Add(time.Minute), app.Exited},
		{"Podman, asked", ended(1, asked, always), true, late.Add(time.Second), app.Stopped},
		{"Docker says itself that it tries again", ended(1, watched, always), false, late.Add(time.Second), app.Exited},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			v := plain(c.now)
			v.podman = c.podman
			a := v.app(&compose.Group{ID: "x", Members: []*compose.Container{c.box}})
			if a.State != c.want || !a.Foreign || a.Since.IsZero() {
				t.Errorf("%+v", a)
			}
			if (a.ExitCode == nil) != c.box.Ended.IsZero() || a.State == app.Failed && c.box.Reason != a.Reason {
				t.Errorf("%+v", a)
			}
		})
	}
	v := plain(late)
	one := func(b *compose.Container) app.App {
		return v.app(&compose.Group{ID: "x", Members: []*compose.Container{b}})
	}
	if a := one(ended(137, watched, oom)); a.Signal != "SIGKILL" || *a.ExitCode != 137 || !strings.Contains(a.Reason, "memory") {
		t.Errorf("%+v", a)
	}
	if a := one(ended(200, watched)); a.Signal != "" {
		t.Errorf("200 is no signal: %+v", a)
	}
	long := ended(1)
	long.Reason = strings.Repeat("x", 100_000)
	if a := one(long); len(a.Reason) > 300 {
		t.Errorf("a reason of %d bytes", len(a.Reason))
	}
}

// TestStateOfProject: it runs where all that should run does; one that is done should not.
func TestStateOfProject(t *testing.T) {
	up := func(health string) *compose.Container {
		return &compose.Container{Phase: compose.Running, Started: early, PID: 7, Health: health, Restarts: 2,
			Ports: []compose.Port{{Port: 80, Container: 80, Protocol: "tcp"}}}
	}
	later := up("")
	later.Started = late
	never := &compose.Container{Phase: compose.Created, Created: early}
	done, stopped, crashed := ended(0, watched), ended(0, asked), ended(3, watched)
	backoff := &compose.Container{Phase: compose.Restarting, Ended: late}
	halted := &compose.Container{Phase: compose.Paused, Started: early, PID: 7}
	failed := ended(128)
	failed.Reason = "no such device"
	cases := []struct {
		name  string
		boxes []*compose.Container
		want  app.State
		since time.Time
		code  int // -1 is none
	}{
		{"all run", []*compose.Container{up(""), later}, app.Running, late, -1},
		{"a job is done", []*compose.Container{up(""), done}, app.Running, early, -1},
		{"one is stopped", []*compose.Container{up(""), stopped}, app.Partly, late, -1},
		{"one crashed", []*compose.Container{up(""), crashed}, app.Partly, late, -1},
		{"one is tried again", []*compose.Container{up(""), backoff}, app.Partly, late, -1},
		{"one is paused", []*compose.Container{up(""), halted}, app.Partly, early, -1},
		{"one was never started", []*compose.Container{later, never}, app.Partly, early, -1},
		{"all stopped", []*compose.Container{stopped, stopped}, app.Stopped, late, -1},
		{"never started", []*compose.Container{never, never}, app.Stopped, early, -1},
		{"stopped, and a job done", []*compose.Container{stopped, done}, app.Stopped, late, -1},
		{"stopped after one crashed", []*compose.Container{stopped, crashed}, app.Stopped, late, -1},
		{"all crashed", []*compose.Container{crashed, crashed}, app.Exited, late, 3},
		{"only jobs, done", []*compose.Container{done, done}, app.Exited, late, 0},
		{"a job done, one crashed", []*compose.Container{done, crashed}, app.Exited, late, 3},
		{"all paused", []*compose.Container{halted, halted}, app.Paused, early, -1},
		{"all tried again", []*compose.Container{backoff, backoff}, app.Backoff, late, -1},
		{"one failed", []*compose.Container{failed, stopped}, app.Failed, late, 128},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			a := plain(late).app(&compose.Group{ID: "p", Project: "p", Members: c.boxes})
			code := -1
			if a.ExitCode != nil {
				code = *a.ExitCode
			}
			if a.State != c.want || !a.Since.Equal(c.since) || code != c.code || a.PID != 0 || a.Image != "" {
				t.Errorf("%+v, code %d", a, code)
			}
			if c.want == app.Failed && a.Reason != "no such device" {
				t.Errorf("%+v", a)
			}
		})
	}
	worst := plain(late).app(&compose.Group{ID: "p", Project: "p", Members: []*compose.Container{up("healthy"), up("unhealthy"), up("starting"), up("")}})
	if worst.Health != app.Unhealthy || worst.Restarts != 8 || len(worst.Ports) != 1 {
		t.Errorf("%+v", worst)
	}
}

func TestWarning(t *testing.T) {
	v := plain(late)
	v.warn = func(b *compose.Container) warning { return warning(b.Number) }
	words := func(marks ...int) string {
		g := &compose.Group{ID: "p", Project: "p"}
		for _, m := range marks {
			g.Members = append(g.Members, &compose.Container{Number: m, Phase: compose.Running})
		}
		return v.app(g).Warning
	}
	one, two := "Atoll itself runs in it; stopping it ends this node.", "It serves the assistant's model; without it the assistant does not answer."
	if words(0, 0) != "" || words(0, 1) != one || words(2, 0) != two || words(1, 2) != one+" "+two || words(3) != one+" "+two {
		t.Errorf("%q, %q, %q", words(0, 1), words(2, 0), words(1, 2))
	}
}
