package process

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"atoll/internal/app"
	"atoll/internal/proc"
)

// An app that ignores SIGTERM is killed after its time, with its children, whatever group they are in (SPEC section 6).
func TestStopKillsAll(t *testing.T) {
	dir := empty(t)
	define(t, dir, "deaf", shell(`
trap '' TERM
set -m  # each child in a group of its own
sh -c 'trap "" TERM; sleep 1000' &
(sleep 1000 & sleep 1000) &
echo ready; while :; do sleep 0.05; done`, "stop_timeout: 200ms"))
	b := open(t, dir)
	b.start("deaf")
	b.awaitLog("deaf", "ready")
	a := b.look("deaf")
	until(t, "children", func() bool { return len(proc.Members(a.PID, 0)) >= 4 })
	before := time.Now()
	b.stop("deaf")
	if took := time.Since(before); took < 200*time.Millisecond {
		t.Errorf("killed after %s, before its time was over", took)
	}
	if left := proc.Members(a.PID, 0); len(left) > 0 {
		t.Errorf("processes survive: %+v", left)
	}
	a = b.look("deaf")
	if a.State != app.Stopped || a.Signal != "SIGKILL" || a.ExitCode != nil {
		t.Errorf("%+v", a)
	}
	if log := b.log("deaf"); !strings.Contains(log, "atoll: asked to stop (SIGTERM)") || !strings.Contains(log, "are killed (SIGKILL)") {
		t.Errorf("the log does not tell:\n%s", log)
	}
}

// An app that heeds SIGTERM is not killed, and what it writes meanwhile is in the log.
func TestStopClean(t *testing.T) {
	dir := empty(t)
	define(t, dir, "kind", shell(`trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.02; done`))
	b := open(t, dir)
	b.start("kind")
	b.awaitLog("kind", "ready")
	b.stop("kind")
	a := b.look("kind")
	if a.State != app.Stopped || a.ExitCode == nil || *a.ExitCode != 0 {
		t.Errorf("%+v", a)
	}
	if log := b.log("kind"); !strings.Contains(log, "output: bye") || strings.Contains(log, "SIGKILL") {
		t.Errorf("%s", log)
	}
}

// A main process that ends by itself takes what it left behind with it.
func TestEndTakesChildrenAlong(t *testing.T) {
	dir := empty(t)
	define(t, dir, "parent", shell(`sh -c 'trap "" TERM; sleep 1000' & echo $! ; exit 0`, "stop_timeout: 100ms"))
	b := open(t, dir)
	b.start("parent")
	b.await("parent", app.Exited)
	child, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(strings.Split(strings.SplitN(b.log("parent"), "output: ", 2)[1], "\n")[0], "output: ")))
	if err != nil {
		t.Fatal(err)
	}
	if s, err := proc.Read(child); err == nil && !s.Dead() {
		t.Errorf("the child lives on: %+v", s)
	}
}

// on-failure tries again later and later, counts, stops trying when a person says so; never does not try.
func TestRestartPolicy(t *testing.T) {
	for _, c := range []struct {
		policy, script string
		again          bool
	}{
		{"never", "exit 3", false},
		{"on-failure", "exit 3", true},
		{"on-failure", "kill -9 $$", true},
		{"on-failure", "exit 0", false},
		{"always", "exit 0", true},
	} {
		t.Run(c.policy+" "+c.script, func(t *testing.T) {
			dir := empty(t)
			define(t, dir, "one", shell("echo run; "+c.script, "restart: "+c.policy))
			b := open(t, dir)
			b.start("one")
			if !c.again {
				b.await("one", app.Exited)
				if runs := strings.Count(b.log("one"), "output: run"); runs != 1 || strings.Contains(b.log("one"), "next try") {
					t.Errorf("%d runs", runs)
				}
				return
			}
			until(t, "five runs", func() bool { return b.look("one").Restarts >= 5 })
			b.await("one", app.Backoff)
			b.stop("one")
			runs := strings.Count(b.log("one"), "output: run")
			if a := b.look("one"); a.State != app.Stopped || runs < 5 {
				t.Errorf("%+v after %d runs", a, runs)
			}
			log := b.log("one")
			for _, wait := range []string{"20ms", "40ms", "80ms"} {
				if !strings.Contains(log, "next try in "+wait) {
					t.Errorf("no wait of %s in\n%s", wait, log)
				}
			}
			if strings.Contains(log, "160ms") {
				t.Error("the wait grows past its bound")
			}
		})
	}
}

// After a healthy while the tries start over.
func TestHealthyResets(t *testing.T) {
	dir := empty(t)
	define(t, dir, "one", shell("exit 1", "restart: always"))
	b := open(t, dir, func(c *Config) { c.HealthyAfter = time.Nanosecond })
	b.start("one")
	until(t, "three tries", func() bool { return b.look("one").Restarts >= 3 })
	b.await("one", app.Backoff)
	b.stop("one")
	if log := b.log("one"); strings.Contains(log, "40ms") {
		t.Errorf("%s", log)
	}
}

// With StopOnClose the apps end with the node, in their own time; when the node has no time left they are killed.
func TestStopOnClose(t *testing.T) {
	dir := empty(t)
	define(t, dir, "kind", shell("trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.02; done"))
	define(t, dir, "deaf", shell("trap '' TERM; echo ready; while :; do sleep 0.05; done", "stop_timeout: 5m"))
	b := open(t, dir, func(c *Config) { c.StopOnClose = true })
	var pids []int
	for _, name := range []string{"kind", "deaf"} {
		b.start(name)
		b.awaitLog(name, "ready")
		pids = append(pids, b.look(name).PID)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	b.Close(ctx)
	for _, pid := range pids {
		if left := proc.Members(pid, 0); len(left) > 0 {
			t.Errorf("left behind: %+v", left)
		}
	}
	if log := b.log("kind"); !strings.Contains(log, "output: bye") {
		t.Errorf("%s", log)
	}
}
