package systemd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"atoll/internal/app"
	"atoll/internal/fault"
)

const long = 30 * time.Second

// peer is a real systemd in namespaces of its own.
type peer struct {
	pid        int // systemd's, on this machine
	root       string
	journalctl string
	count      atomic.Int64 // of names given
}

// boot starts scripts/peers/systemd, for as long as the test runs. Where that cannot be, the test is skipped with the
// reason.
func boot(t *testing.T) *peer {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("a real systemd needs root: not tried")
	}
	for _, program := range []string{"unshare", "nsenter"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("a real systemd needs %s, which is not installed: not tried", program)
		}
	}
	script, err := filepath.Abs("../../../scripts/peers/systemd")
	if err != nil {
		t.Fatal(err)
	}
	out := output(t)
	unshare, _ := leash(t, out, "unshare", "--mount", "--pid", "--fork", "--kill-child", "--uts", "--ipc", "--net", "--cgroup", script, t.TempDir())
	p := &peer{}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	late := time.After(long)
	for !p.up(unshare) {
		said := func() string { b, _ := os.ReadFile(out.Name()); return strings.TrimSpace(string(b)) }
		if _, err := os.Stat(fmt.Sprintf("/proc/%d/root/.", unshare)); err != nil {
			t.Skipf("a real systemd does not start here: %s", said())
		}
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("systemd did not come up: %s", said())
		}
	}
	p.root = fmt.Sprintf("/proc/%d/root", p.pid)
	p.journalctl = filepath.Join(t.TempDir(), "journalctl")
	body := fmt.Sprintf("#!/bin/sh\nexec nsenter -t %d -m -p -r -w journalctl \"$@\"\n", p.pid)
	if err := os.WriteFile(p.journalctl, []byte(body), 0o700); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *peer) up(unshare int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", unshare, unshare))
	if err != nil {
		return false
	}
	p.pid, err = strconv.Atoi(strings.TrimSpace(string(b)))
	return err == nil && p.command("busctl", "status", "org.freedesktop.systemd1").Run() == nil &&
		p.command("systemctl", "is-active", "basic.target").Run() == nil
}

// command runs inside.
func (p *peer) command(args ...string) *exec.Cmd {
	return exec.Command("nsenter", append([]string{"-t", strconv.Itoa(p.pid), "-m", "-p", "-r", "-w", "--"}, args...)...)
}

func (p *peer) run(t *testing.T, args ...string) string {
	t.Helper()
	out, err := p.command(args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", args, err, out)
	}
	return string(out)
}

// name makes a name that no other test has.
func (p *peer) name(stem string) string { return fmt.Sprintf("%s-%d", stem, p.count.Add(1)) }

func (p *peer) file(name string) string { return filepath.Join(p.root, "etc/systemd/system", name) }

// write writes a unit file; systemd does not know of it before the next reload.
func (p *peer) write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(p.file(name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// service adds a service with these lines and returns its full name.
func (p *peer) service(t *testing.T, stem, lines string) string {
	t.Helper()
	name := p.name(stem) + ".service"
	p.write(t, name, "[Service]\n"+lines+"\n")
	p.run(t, "systemctl", "daemon-reload")
	return name
}

// manager is a runtime for units of the peer.
func (p *peer) manager(t *testing.T, units ...string) *Manager {
	t.Helper()
	m, err := New(Config{Log: quiet(), Units: units, Bus: "unix:path=" + p.root + "/run/dbus/system_bus_socket", Journalctl: p.journalctl})
	if err != nil {
		t.Fatal(err)
	}
	m.root = p.root
	running(t, m)
	return m
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// running runs the runtime for as long as the test does.
func running(t *testing.T, m *Manager) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { m.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	late := time.After(long)
	for !ok() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// rests waits until the unit is in the state.
func rests(t *testing.T, m *Manager, name string, want app.State) (a app.App) {
	t.Helper()
	until(t, name+" to be "+string(want), func() bool {
		var err error
		a, err = m.Inspect(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		return a.State == want
	})
	return a
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// refused asserts the code, and words in what the person reads.
func refused(t *testing.T, err error, code fault.Code, words string) {
	t.Helper()
	f, ok := errors.AsType[*fault.Error](err)
	if !ok || f.Code != code || !strings.Contains(f.Public, words) {
		t.Errorf("want %s with %q, got %v", code, words, err)
	}
}
