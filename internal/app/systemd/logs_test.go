package systemd

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"atoll/internal/app"
	"atoll/internal/fault"
)

// The journal of a real unit: its own output and what systemd says of it, told apart, the last n lines, bytes that are no
// text, and a line of 10 MB.
func realLogs(t *testing.T, p *peer) {
	name := p.service(t, "talks", `ExecStart=/bin/sh -c 'echo one; echo two; printf "bad \\377\\001 byte\\n"; printf "<3>level\\n"; echo last'`)
	m := p.manager(t, name)
	must(t, m.Start(t.Context(), name))
	rests(t, m, name, app.Exited)
	var log app.Log
	until(t, "the last line", func() bool {
		var err error
		log, err = m.Logs(t.Context(), name, 100)
		must(t, err)
		return slices.ContainsFunc(log.Lines, func(l app.Line) bool { return l.Text == "last" })
	})
	var own, others []string
	for _, l := range log.Lines {
		switch l.Stream {
		case "output":
			own = append(own, l.Text)
		case "systemd":
			others = append(others, l.Text)
		default:
			t.Errorf("stream %q", l.Stream)
		}
		if l.Time.IsZero() {
			t.Errorf("no time: %+v", l)
		}
	}
	if want := []string{"one", "two", "bad \uFFFD\x01 byte", "level", "last"}; !slices.Equal(own, want) {
		t.Errorf("its own lines are %q, want %q", own, want)
	}
	if len(others) == 0 || !strings.Contains(strings.Join(others, "\n"), "Started") {
		t.Errorf("systemd's lines are %q", others)
	}
	if log, err := m.Logs(t.Context(), name, 2); err != nil || len(log.Lines) != 2 {
		t.Errorf("two lines asked for: %+v, %v", log, err)
	}
	if log, err := m.Logs(t.Context(), name, 0); err != nil || len(log.Lines) != 0 {
		t.Errorf("no line asked for: %+v, %v", log, err)
	}
	silent := p.service(t, "silent", "ExecStart=/bin/true")
	if log, err := p.manager(t, silent).Logs(t.Context(), silent, 10); err != nil || len(log.Lines) != 0 {
		t.Errorf("a unit without a log: %+v, %v", log, err)
	}

	large := p.service(t, "large", `ExecStart=/bin/sh -c 'head -c 10000000 /dev/zero | tr "\\0" x; echo; echo after'`)
	m = p.manager(t, large)
	must(t, m.Start(t.Context(), large))
	until(t, "the line after 10 MB", func() bool {
		var err error
		log, err = m.Logs(t.Context(), large, 500)
		must(t, err)
		return slices.ContainsFunc(log.Lines, func(l app.Line) bool { return l.Text == "after" })
	})
	total := 0
	for _, l := range log.Lines {
		if total += len(l.Text); len(l.Text) > app.MaxLine {
			t.Errorf("a line of %d bytes", len(l.Text))
		}
	}
	if !log.Truncated || total > maxTail {
		t.Errorf("truncated: %t, %d bytes", log.Truncated, total)
	}
}

// Follow goes on over a restart and ends with its context, with emit's error, and with NotFound once the unit is gone.
func follow(t *testing.T, p *peer) {
	name := p.service(t, "followed", "ExecStart=/bin/sh -c 'echo run $$MAINPID; exec sleep 1000'")
	m := p.manager(t, name)
	start := func(ctx context.Context, emit func(app.Line) error) <-chan error {
		ended := make(chan error, 1)
		go func() { ended <- m.Follow(ctx, name, 10, emit) }()
		return ended
	}
	lines := make(chan app.Line, 1000)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	one := start(ctx, func(l app.Line) error { lines <- l; return nil })
	gone := start(t.Context(), func(app.Line) error { return nil })
	stop := errors.New("enough")
	three := start(t.Context(), func(app.Line) error { return stop })
	runs := 0
	next := func() {
		t.Helper()
		until(t, "the next line", func() bool {
			for len(lines) > 0 {
				if l := <-lines; l.Stream == "output" && strings.HasPrefix(l.Text, "run") {
					runs++
					return true
				}
			}
			return false
		})
	}
	must(t, m.Start(t.Context(), name))
	next()
	must(t, m.Restart(t.Context(), name))
	next()
	if err := <-three; err != stop {
		t.Errorf("emit's error became %v", err)
	}
	cancel()
	if err := <-one; !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	must(t, m.Stop(t.Context(), name))
	must(t, os.Remove(p.file(name)))
	p.run(t, "systemctl", "daemon-reload")
	refused(t, <-gone, fault.NotFound, "no unit")
	refused(t, m.Follow(t.Context(), "other.service", 1, nil), fault.NotFound, "list")
}

// fake is a runtime whose journalctl is this script.
func fakeJournal(t *testing.T, script string) *Manager {
	t.Helper()
	path := filepath.Join(t.TempDir(), "journalctl")
	must(t, os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o700))
	m, err := New(Config{Log: quiet(), Units: []string{"a", `b\x2dc.service`}, Journalctl: path})
	must(t, err)
	return m
}

// No journal, no permission, no journalctl: each its own word, and what journalctl says is not shown.
func TestNoJournal(t *testing.T) {
	for name, tc := range map[string]struct {
		script string
		code   fault.Code
		words  string
	}{
		"hint": {`echo "Hint: You are currently not seeing messages from other users and the system." >&2`,
			fault.NotConfigured, "systemd-journal"},
		"closed":     {`echo "No journal files were opened due to insufficient permissions." >&2; exit 1`, fault.NotConfigured, "systemd-journal"},
		"none":       {`echo "No journal files were found." >&2`, fault.NotConfigured, "no journal"},
		"breaks":     {`echo "canary" >&2; exit 1`, fault.Unavailable, "journalctl failed"},
		"only noise": {`yes canary >&2 & sleep .2; kill $!; exit 1`, fault.Unavailable, "journalctl failed"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := fakeJournal(t, tc.script).Logs(t.Context(), "a.service", 10)
			refused(t, err, tc.code, tc.words)
			if strings.Contains(fault.Of(err).Public, "canary") {
				t.Errorf("shown: %v", err)
			}
		})
	}
	m := fakeJournal(t, "")
	m.cfg.Journalctl = "/no/such/journalctl"
	_, err := m.Logs(t.Context(), "a.service", 10)
	refused(t, err, fault.NotConfigured, "not installed")
	m.cfg.Journalctl = "no-such-journalctl"
	_, err = m.Logs(t.Context(), "a.service", 10)
	refused(t, err, fault.NotConfigured, "not installed")
}

// journalctl gets the listed name and nothing of the environment; a hint beside lines is none.
func TestJournalCall(t *testing.T) {
	t.Setenv("SYSTEMD_PAGER", "canary")
	m := fakeJournal(t, `env | grep -c canary >"$0.env"; printf '%s\n' "$@" >"$0.args"
echo 'Hint: You are currently not seeing messages from other users and the system.' >&2
printf '%s\n' '{"__REALTIME_TIMESTAMP":"1","MESSAGE":"x","_SYSTEMD_UNIT":"b\\x2dc.service"}'`)
	log, err := m.Logs(t.Context(), `b\x2dc.service`, 7)
	if err != nil || len(log.Lines) != 1 || log.Lines[0].Stream != "output" {
		t.Fatalf("%+v, %v", log, err)
	}
	args, err := os.ReadFile(m.cfg.Journalctl + ".args")
	must(t, err)
	if got := string(args); !strings.Contains(got, "--unit=b\\x2dc.service\n") || !strings.Contains(got, "--lines=7\n") {
		t.Errorf("arguments %q", got)
	}
	if env, err := os.ReadFile(m.cfg.Journalctl + ".env"); err != nil || strings.TrimSpace(string(env)) != "0" {
		t.Errorf("the environment: %q, %v", env, err)
	}
	for _, name := range []string{"", "b", "a", "*", "a.service\x00", "../a.service", "--since=yesterday"} {
		_, err := m.Logs(t.Context(), name, 7)
		refused(t, err, fault.NotFound, "list")
	}
}

// A journalctl that hangs is killed with all its children once the context ends.
func TestJournalHangs(t *testing.T) {
	m := fakeJournal(t, `sleep 1000 & echo $! >"$0.child"; wait`)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := m.Logs(ctx, "a.service", 1)
		ended <- err
	}()
	var child string
	until(t, "its child", func() bool {
		b, _ := os.ReadFile(m.cfg.Journalctl + ".child")
		child = strings.TrimSpace(string(b))
		return child != ""
	})
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
	until(t, "its child to end", func() bool {
		b, err := os.ReadFile("/proc/" + child + "/stat")
		return err != nil || strings.Contains(string(b), ") Z ")
	})
}

// A journal that does not end, and one line of 1 GB, take bounded memory.
func TestJournalFlood(t *testing.T) {
	for name, script := range map[string]string{
		"many lines": `yes '{"__REALTIME_TIMESTAMP":"1","MESSAGE":"` + strings.Repeat("x", 3000) + `","_SYSTEMD_UNIT":"a.service"}' | head -n 50000`,
		"one line":   `printf '{"MESSAGE":"'; head -c 300000000 /dev/zero | tr '\0' x; printf '"}\n'`,
	} {
		t.Run(name, func(t *testing.T) {
			m := fakeJournal(t, script)
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			log, err := m.Logs(t.Context(), "a.service", 10000)
			must(t, err)
			runtime.GC()
			runtime.ReadMemStats(&after)
			total := 0
			for _, l := range log.Lines {
				total += len(l.Text)
			}
			if !log.Truncated || len(log.Lines) == 0 || total > maxTail {
				t.Errorf("truncated %t, %d lines of %d bytes", log.Truncated, len(log.Lines), total)
			}
			if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 16<<20 {
				t.Errorf("%d bytes are held", grown)
			}
		})
	}
}
