package process

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"atoll/internal/app"
	"atoll/internal/proc"
)

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
	if s, err := proc.Read(pid); err != nil || s.Dead() {
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
	if s, err := proc.Read(pid); err == nil && !s.Dead() {
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
		until(t, "its end", func() bool { _, ok := proc.Reap(a.PID); return ok })
		if len(proc.Members(a.PID, 0)) != 1 {
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
		if left := proc.Members(a.PID, 0); len(left) > 0 {
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
	st, err := proc.Read(stranger.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []record{
		{State: app.Running, PID: st.PID, Start: st.Start - 1, Boot: proc.BootID()},
		{State: app.Running, PID: st.PID, Start: st.Start, Boot: "another run of the machine"},
		{State: app.Stopping, PID: st.PID, Start: st.Start - 1, Boot: proc.BootID()},
	} {
		if err := r.write(recordPath(filepath.Join(dir, "run"), "one")); err != nil {
			t.Fatal(err)
		}
		b := open(t, dir, func(c *Config) { c.StopOnClose = true })
		until(t, "one to be down", func() bool { return !b.look("one").State.Up() })
		b.Close(t.Context())
		if s, err := proc.Read(st.PID); err != nil || s.Dead() {
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
		apps, _, err := b.Measure(t.Context())
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
