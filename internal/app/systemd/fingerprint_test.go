package systemd

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"atoll/internal/app"
)

// F-A2, C11: the fingerprint is the same over restarts, failures and a new node, and differs with the unit file before
// and after systemd has read it again, with a new drop-in, and with another program in the place of the old one.
func fingerprints(t *testing.T, p *peer) {
	program := filepath.Join(p.root, "run", p.name("program"))
	inside := "/run/" + filepath.Base(program)
	put := func(body string) {
		t.Helper()
		must(t, os.WriteFile(program+".new", []byte("#!/bin/sh\n"+body+"\n"), 0o755))
		must(t, os.Rename(program+".new", program))
	}
	put("exec sleep 1000")
	name := p.service(t, "mark", "ExecStart="+inside+" one")
	m := p.manager(t, name)
	mark := func() string {
		t.Helper()
		_, s, err := m.Examine(t.Context(), name)
		must(t, err)
		return s
	}
	first := mark()
	must(t, m.Start(t.Context(), name))
	p.run(t, "systemctl", "kill", "-s", "KILL", name)
	rests(t, m, name, app.Exited)
	must(t, m.Restart(t.Context(), name))
	other := p.manager(t, name)
	if _, s, err := other.Examine(t.Context(), name); err != nil || s != first || mark() != first {
		t.Errorf("it changed by running: %s, %s, %s, %v", first, mark(), s, err)
	}
	last := first
	differs := func(what string) {
		t.Helper()
		if now := mark(); now == last || now == first {
			t.Errorf("%s is not noticed", what)
		} else {
			last = now
		}
	}
	p.write(t, name, "[Service]\nExecStart="+inside+" two\n")
	differs("a new unit file")
	p.run(t, "systemctl", "daemon-reload")
	differs("the reload of a new unit file")
	must(t, os.Mkdir(p.file(name+".d"), 0o755))
	p.write(t, name+".d/more.conf", "[Service]\nEnvironment=A=b\n")
	differs("a drop-in")
	p.run(t, "systemctl", "daemon-reload")
	differs("the reload of a drop-in")
	p.write(t, name+".d/more.conf", "[Service]\nEnvironment=A=c\n")
	differs("a changed drop-in")
	put("exec sleep 2000")
	differs("another program")
	must(t, m.Stop(t.Context(), name))
}

// A unit file that is no plain file does not hold up the node.
func TestContentOf(t *testing.T) {
	m := &Manager{root: t.TempDir()}
	pipe := filepath.Join(m.root, "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := m.contentOf("/pipe"); got != "no file" {
		t.Errorf("a pipe: %s", got)
	}
	if got := m.contentOf("/none"); got != "missing" {
		t.Errorf("nothing: %s", got)
	}
	if got := m.contentOf("/"); got != "no file" {
		t.Errorf("a folder: %s", got)
	}
	big := filepath.Join(m.root, "big")
	must(t, os.WriteFile(big, make([]byte, maxUnitFile+10), 0o600))
	if one := m.contentOf("/big"); one == "missing" || one == "no file" {
		t.Errorf("a large file: %s", one)
	}
}

// What systemd adds to a command about its last run is no part of it; rubbish is none.
func TestCommands(t *testing.T) {
	row := []any{"/bin/a", []string{"a", "b"}, false, uint64(1), uint64(2), uint64(3), uint64(4), uint32(5), int32(1), int32(0)}
	got := commands([][]any{row, {"/bin/short"}, {1, 2, 3}})
	if len(got) != 2 || got[0].path != "/bin/a" || len(got[0].args) != 2 || got[1].path != "" {
		t.Errorf("%+v", got)
	}
	if commands(nil) != nil || commands("x") != nil {
		t.Error("commands out of nothing")
	}
}
