package process

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"atoll/internal/app"
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
	until(t, "children", func() bool { return len(members(a.PID, 0)) >= 4 })
	before := time.Now()
	b.stop("deaf")
	if took := time.Since(before); took < 200*time.Millisecond {
		t.Errorf("killed after %s, before its time was over", took)
	}
	if left := members(a.PID, 0); len(left) > 0 {
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
	if s, err := readStat(child); err == nil && !s.dead() {
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

// What cannot be started says why, in its state and its log, and runs nothing.
func TestCannotStart(t *testing.T) {
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("no first line\n"), 0o700); err != nil { //nolint:gosec // it is to be executable
		t.Fatal(err)
	}
	for yaml, why := range map[string]string{
		"command: [no-such-program]":                                "there is no program no-such-program in PATH",
		"command: [/no/such/program]":                               "cannot run /no/such/program: no such file",
		"command: [/etc/passwd]":                                    "permission denied",
		"command: [" + script + "]":                                 "needs a first line",
		"command: [/bin/true]\ndirectory: /no/such/place":           "cannot enter the directory /no/such/place",
		"command: [/bin/true]\ndirectory: /etc/passwd\ntitle: \"\"": "cannot enter the directory",
	} {
		dir := empty(t)
		define(t, dir, "one", yaml)
		b := open(t, dir)
		b.start("one")
		a := b.look("one")
		if a.State != app.Failed || !strings.Contains(a.Reason, why) || a.PID != 0 {
			t.Errorf("%q: %+v", yaml, a)
		}
		if !strings.Contains(b.log("one"), "atoll: could not be started: ") {
			t.Errorf("%q: %s", yaml, b.log("one"))
		}
	}
}

// Apps go on when the node closes; the next one knows them by number and start time and starts no second (never
// doubled), and can stop them.
func TestTakeOver(t *testing.T) {
	dir := empty(t)
	define(t, dir, "one", shell("echo run; exec sleep 1000", "autostart: true"))
	first := open(t, dir)
	pid := first.await("one", app.Running).PID
	since := first.look("one").Since
	first.awaitLog("one", "run")
	first.Close(t.Context())
	if s, err := readStat(pid); err != nil || s.dead() {
		t.Fatalf("the app ended with the node: %v", err)
	}
	second := open(t, dir)
	a := second.look("one")
	if a.State != app.Running || a.PID != pid || !a.Since.Equal(since) || a.DefinitionChanged {
		t.Errorf("%+v", a)
	}
	second.awaitLog("one", "atoll: taken over")
	if runs := strings.Count(second.log("one"), "output: run"); runs != 1 {
		t.Errorf("%d runs", runs)
	}
	second.stop("one")
	if s, err := readStat(pid); err == nil && !s.dead() {
		t.Error("the app taken over was not stopped")
	}
	second.Close(t.Context())
	third := open(t, dir) // stopped by a person, but to be up when the node starts
	if a := third.await("one", app.Running); a.PID == pid || a.PID == 0 {
		t.Errorf("%+v", a)
	}
}

// killedNode runs a node as a process of its own until the app "one" is up, and kills it with SIGKILL.
func killedNode(t *testing.T, dir string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], superviseArg, dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(out).ReadString('\n')
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if line != "up\n" {
		t.Fatalf("the node said %q", line)
	}
}

// The same after kill -9 of the node, where the app is no child of the next one: its exit code is unknown, and said so.
func TestTakeOverAfterKill(t *testing.T) {
	dir := empty(t)
	define(t, dir, "one", shell("echo run $$; exec sleep 1000"))
	killedNode(t, dir)
	b := open(t, dir)
	a := b.look("one")
	if a.State != app.Running {
		t.Fatalf("%+v", a)
	}
	b.awaitLog("one", "output: run")
	if runs := strings.Count(b.log("one"), "output: run"); runs != 1 {
		t.Errorf("%d runs", runs)
	}
	if err := unix.Kill(a.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	a = b.await("one", app.Exited)
	if !a.ExitUnknown || a.ExitCode != nil || a.Signal != "" {
		t.Errorf("an exit that nobody saw: %+v", a)
	}
	b.awaitLog("one", "its exit code is unknown")
}

// An app that ends while no node runs is seen as ended; its children that are left are ended; with autostart it is
// started once.
func TestEndedWhileAway(t *testing.T) {
	for _, auto := range []bool{false, true} {
		dir := empty(t)
		more := "autostart: " + strconv.FormatBool(auto)
		define(t, dir, "one", shell("sleep 1000 & echo up; exec sleep 1000", more))
		first := open(t, dir)
		if !auto {
			first.start("one")
		}
		a := first.await("one", app.Running)
		first.awaitLog("one", "output: up")
		first.Close(t.Context())
		if err := unix.Kill(a.PID, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		awaitReap(a.PID)
		if len(members(a.PID, 0)) != 1 {
			t.Fatal("no child is left to be ended")
		}
		second := open(t, dir)
		if auto {
			second.awaitLog("one", "ended; its exit code is unknown")
			if b := second.await("one", app.Running); b.PID == a.PID {
				t.Errorf("%+v", b)
			}
		} else if b := second.await("one", app.Exited); !b.ExitUnknown {
			t.Errorf("%+v", b)
		}
		if left := members(a.PID, 0); len(left) > 0 {
			t.Errorf("left behind: %+v", left)
		}
	}
}

// A process number that another process has by now is left alone: not taken for the app, not signalled.
func TestReusedNumber(t *testing.T) {
	dir := empty(t)
	define(t, dir, "one", shell("exec sleep 1000"))
	stranger := exec.Command("/bin/sleep", "1000")
	stranger.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	if err := stranger.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stranger.Process.Kill(); _ = stranger.Wait() }()
	st, err := readStat(stranger.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []record{
		{State: app.Running, PID: st.pid, Start: st.start - 1, Boot: bootID()},
		{State: app.Running, PID: st.pid, Start: st.start, Boot: "another run of the machine"},
		{State: app.Stopping, PID: st.pid, Start: st.start - 1, Boot: bootID()},
	} {
		if err := r.write(recordPath(filepath.Join(dir, "run"), "one")); err != nil {
			t.Fatal(err)
		}
		b := open(t, dir, func(c *Config) { c.StopOnClose = true })
		until(t, "one to be down", func() bool { return !b.look("one").State.Up() })
		b.Close(t.Context())
		if s, err := readStat(st.pid); err != nil || s.dead() {
			t.Fatalf("record %+v: a stranger was killed", r)
		}
	}
}

// An app that waits for its next try when the node closes is tried again by the next one.
func TestBackoffSurvivesRestart(t *testing.T) {
	dir := empty(t)
	define(t, dir, "one", shell("exit 1", "restart: always"))
	slow := func(c *Config) { c.RetryFirst, c.RetryMax = time.Hour, time.Hour }
	first := open(t, dir, slow)
	first.start("one")
	first.await("one", app.Backoff)
	first.Close(t.Context())
	second := open(t, dir)
	until(t, "a further try", func() bool { return second.look("one").Restarts > 0 })
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
		if left := members(pid, 0); len(left) > 0 {
			t.Errorf("left behind: %+v", left)
		}
	}
	if log := b.log("kind"); !strings.Contains(log, "output: bye") {
		t.Errorf("%s", log)
	}
}

// A state that cannot be written down starts nothing: the next node would not know of it.
func TestNoRecordNoStart(t *testing.T) {
	dir := empty(t)
	define(t, dir, "one", shell("echo run; exec sleep 1000"))
	b := open(t, dir)
	if err := os.RemoveAll(filepath.Join(dir, "run")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "run"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b.start("one")
	if a := b.look("one"); a.State != app.Failed || !strings.Contains(a.Reason, "state cannot be written") {
		t.Errorf("%+v", a)
	}
	if strings.Contains(b.log("one"), "output: run") {
		t.Error("it ran all the same")
	}
}

// A damaged record is set aside; the app is there, down.
func TestDamagedRecord(t *testing.T) {
	for _, bytes := range []string{"", "{", "\x00\x00\x00", `{"state":"running","pid":1,"extra":2}`} {
		dir := empty(t)
		define(t, dir, "one", shell("exec sleep 1000"))
		path := filepath.Join(dir, "run", "one.json")
		if err := os.WriteFile(path, []byte(bytes), 0o600); err != nil {
			t.Fatal(err)
		}
		b := open(t, dir)
		if a := b.look("one"); a.State != app.Stopped {
			t.Errorf("%q: %+v", bytes, a)
		}
		if kept, err := os.ReadFile(path + ".damaged"); err != nil || string(kept) != bytes {
			t.Errorf("%q: not set aside: %v", bytes, err)
		}
	}
}

// A clock that jumps changes neither what runs nor when it is tried again.
func TestClockJumps(t *testing.T) {
	dir := empty(t)
	define(t, dir, "one", shell("exec sleep 1000"))
	define(t, dir, "loop", shell("exit 1", "restart: always"))
	jump := make(chan time.Duration, 1)
	jump <- 0
	b := open(t, dir, func(c *Config) {
		c.Now = func() time.Time { d := <-jump; jump <- d; return time.Now().Add(d) }
	})
	b.start("one")
	b.start("loop")
	for _, d := range []time.Duration{-1000 * time.Hour, 1000 * time.Hour} {
		<-jump
		jump <- d
		seen := b.look("loop").Restarts
		until(t, "further tries", func() bool { return b.look("loop").Restarts > seen+1 })
		apps, _, err := b.List(t.Context())
		if err != nil || len(apps) != 2 {
			t.Fatal(err)
		}
		for _, a := range apps {
			if a.CPUPercent != nil && *a.CPUPercent < 0 {
				t.Errorf("%+v", a)
			}
		}
	}
	if a := b.look("one"); a.State != app.Running {
		t.Errorf("%+v", a)
	}
}
