package systemd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"atoll/internal/app"
	"atoll/internal/fault"
	"atoll/internal/proc"
)

const (
	logsTime   = 30 * time.Second // for the end of a log to be read
	killWait   = 2 * time.Second  // for the pipes of a killed journalctl
	maxStderr  = 4 << 10          // bytes kept of what journalctl complains about
	maxEntries = 10000            // that are asked for at once
)

// Logs implements app.Runtime. The bus is not needed.
func (m *Manager) Logs(ctx context.Context, name string, n int) (app.Log, error) {
	u, err := m.unit(name)
	if err != nil {
		return app.Log{}, err
	}
	n = min(max(n, 0), maxEntries)
	inner, cancel := context.WithTimeout(ctx, logsTime)
	defer cancel()
	t, cut := tail{most: n}, false
	err = m.journal(inner, u.name, lastLines(n), func(lines []app.Line, short bool) error {
		cut = cut || short
		for _, l := range lines {
			t.add(l)
		}
		return nil
	})
	if err != nil {
		return app.Log{}, err
	}
	return app.Log{Lines: t.lines, Truncated: cut || t.short}, nil
}

// Follow implements app.Runtime. An entry of several lines counts as one of the last n.
func (m *Manager) Follow(ctx context.Context, name string, n int, emit func(app.Line) error) error {
	u, _, err := m.look(ctx, name)
	if err != nil {
		return err
	}
	inner, cancel := context.WithCancelCause(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel(nil)
	wg.Go(func() { cancel(m.gone(inner, u)) })
	err = m.follow(inner, u.name, min(max(n, 0), maxEntries), emit)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if why := context.Cause(inner); why != nil {
		return why
	}
	return err
}

// follow reads the last n entries and then all from the last one's time on: journalctl's own way from the end of the log
// into following it can miss what is written in between. What was given already comes first again and is left out.
func (m *Manager) follow(ctx context.Context, unit string, n int, emit func(app.Line) error) error {
	last, given := m.cfg.Now(), 0 // the time of the last line, and how many lines have it
	err := m.journal(ctx, unit, lastLines(n), func(lines []app.Line, _ bool) error {
		for _, l := range lines {
			if given == 0 || !l.Time.Equal(last) {
				last, given = l.Time, 0
			}
			given++
			if err := emit(l); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	again := true
	return m.journal(ctx, unit, followSince(last), func(lines []app.Line, _ bool) error {
		for _, l := range lines {
			if again && !l.Time.After(last) && given > 0 {
				if l.Time.Equal(last) {
					given--
				}
				continue
			}
			again = false
			if err := emit(l); err != nil {
				return err
			}
		}
		return nil
	})
}

// span is the part of a log that journalctl is asked for.
type span struct {
	args   []string
	follow bool
}

func lastLines(n int) span { return span{args: []string{"--lines=" + strconv.Itoa(n)}} }

func followSince(at time.Time) span {
	return span{[]string{"--follow", "--lines=all", fmt.Sprintf("--since=@%d.%06d", at.Unix(), at.Nanosecond()/1000)}, true}
}

// gone waits until the unit is no longer there or systemd cannot be reached, and says which; nil once ctx ends.
func (m *Manager) gone(ctx context.Context, u *unit) error {
	one := m.watchers.Join()
	defer one.Leave()
	for {
		_, _, err := m.look(ctx, u.name)
		if ctx.Err() != nil {
			return nil
		}
		if fault.Is(err, fault.NotFound) || fault.Is(err, fault.Unavailable) {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-one.Changed():
			one.Take()
		}
	}
}

// journal runs journalctl for a unit and gives what it writes to each, from this goroutine.
func (m *Manager) journal(ctx context.Context, unit string, part span, each func([]app.Line, bool) error) error {
	args := append([]string{"--no-pager", "--output=json", "--all", "--output-fields=" + fields, "--unit=" + unit}, part.args...)
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	complaint := &head{}
	cmd, err := m.program(inner, args...)
	if err != nil {
		return err
	}
	cmd.Stderr = complaint
	out, err := cmd.StdoutPipe()
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, "the journal cannot be read now")
	}
	if err := cmd.Start(); err != nil {
		return notStarted(err)
	}
	defer context.AfterFunc(inner, func() { _ = out.Close() })() // a child that outlives the kill does not hold it open
	some := false
	errRead := entries(out, unit, func(lines []app.Line, cut bool) error {
		some = true
		return each(lines, cut)
	})
	if errRead != nil {
		cancel()
	}
	errEnd := cmd.Wait()
	switch {
	case ctx.Err() != nil:
		return notInTime(ctx.Err())
	case errRead != nil:
		return errRead
	case some && !part.follow:
		return nil
	}
	return journalError(complaint.String(), errEnd, part.follow)
}

// program prepares journalctl: in a process group of its own, which is killed with ctx, and in a clean environment.
func (m *Manager) program(ctx context.Context, args ...string) (*exec.Cmd, error) {
	const path = "/usr/local/bin:/usr/bin:/bin"
	program, err := proc.FindProgram(m.cfg.Journalctl, path)
	if err != nil {
		return nil, notStarted(fs.ErrNotExist)
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = []string{"PATH=" + path, "LC_ALL=C", "SYSTEMD_COLORS=0", "SYSTEMD_URLIFY=0"}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = killWait
	return cmd, nil
}

func notStarted(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fault.Wrap(err, fault.NotConfigured, "logs of systemd units need journalctl, which is not installed here")
	}
	return fault.Wrap(err, fault.Unavailable, "journalctl cannot be started")
}

func notInTime(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fault.Wrap(err, fault.Unavailable, "the journal was not read in time")
	}
	return err
}

// journalError says what kept journalctl from showing anything; nil if nothing did. Its own words are only looked at.
func journalError(complaint string, end error, follow bool) error {
	says := func(words string) bool { return strings.Contains(complaint, words) }
	cause := errors.New(complaint)
	switch {
	case says("insufficient permissions"), says("not seeing messages from other users"), says("Permission denied"):
		return fault.Wrap(cause, fault.NotConfigured,
			"this node's user (%s) may not read the journal: add it to the group systemd-journal and restart the node", nodeUser())
	case says("No journal files were found"):
		return fault.Wrap(cause, fault.NotConfigured, "there is no journal on this machine: is systemd-journald running?")
	case end != nil:
		return fault.Wrap(errors.Join(end, cause), fault.Unavailable, "journalctl failed; the node's log says how")
	case follow:
		return fault.Wrap(cause, fault.Unavailable, "journalctl ended by itself")
	}
	return nil
}

// head keeps the beginning of what is written to it.
type head struct{ strings.Builder }

func (h *head) Write(b []byte) (int, error) {
	h.Builder.Write(b[:min(len(b), max(0, maxStderr-h.Len()))])
	return len(b), nil
}
