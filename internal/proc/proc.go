// Package proc is the processes of this machine as Linux shows them: started in a session of their own by a launcher,
// known by number and start time, followed, signalled and reaped, whether they are our children or not. It decides
// nothing: who is to run, and when, is its caller's.
package proc

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// TicksPerSecond is the kernel's unit in /proc/PID/stat; it is 100 on every architecture that Go knows.
const TicksPerSecond = 100

// pollEvery is how often a process is looked at on kernels without pidfd (before 5.10).
const pollEvery = 250 * time.Millisecond

// Stat is what /proc/PID/stat says of one process.
type Stat struct {
	PID, Parent, Session int
	State                byte
	Start                uint64 // in ticks since boot: with the pid it names a process for good
	Ticks                uint64 // of processor time, TicksPerSecond of them
	RSS                  uint64 // bytes
}

// Dead reports whether the process has ended and only waits to be reaped.
func (s Stat) Dead() bool { return s.State == 'Z' || s.State == 'X' }

var errStat = errors.New("unexpected form of /proc/PID/stat")

// Read looks at one process.
func Read(pid int) (Stat, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return Stat{}, err
	}
	return parseStat(pid, b)
}

// parseStat skips the program's name, which can hold anything, by its last bracket.
func parseStat(pid int, b []byte) (Stat, error) {
	i := bytes.LastIndexByte(b, ')')
	if i < 0 {
		return Stat{}, errStat
	}
	f := strings.Fields(string(b[i+1:])) // f[0] is field 3 of proc(5)
	if len(f) < 22 || len(f[0]) != 1 {
		return Stat{}, errStat
	}
	s := Stat{PID: pid, State: f[0][0]}
	var errs [6]error
	var user, sys, pages uint64
	s.Parent, errs[0] = strconv.Atoi(f[1])
	s.Session, errs[1] = strconv.Atoi(f[3])
	user, errs[2] = strconv.ParseUint(f[11], 10, 64)
	sys, errs[3] = strconv.ParseUint(f[12], 10, 64)
	s.Start, errs[4] = strconv.ParseUint(f[19], 10, 64)
	pages, errs[5] = strconv.ParseUint(f[21], 10, 64)
	if errors.Join(errs[:]...) != nil {
		return Stat{}, errStat
	}
	s.Ticks, s.RSS = user+sys, pages*uint64(os.Getpagesize())
	return s, nil
}

// All reads every process of the machine; those that end meanwhile are left out.
func All() []Stat {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil
	}
	var out []Stat
	for _, n := range names {
		pid, err := strconv.Atoi(n)
		if err != nil {
			continue
		}
		if s, err := Read(pid); err == nil {
			out = append(out, s)
		}
	}
	return out
}

// Members are the live processes of a session that began no earlier than start. A process's number is not given to
// another one while its session or group has Members, so they are the app's own.
func Members(session int, start uint64) []Stat {
	var out []Stat
	for _, s := range All() {
		if s.Session == session && s.Start >= start && !s.Dead() {
			out = append(out, s)
		}
	}
	return out
}

// SignalSession signals every live process of a session, each only while it is still the one that was listed. It
// returns how many there were.
func SignalSession(session int, start uint64, sig unix.Signal) int {
	all := Members(session, start)
	for _, m := range all {
		Signal(m, sig)
	}
	return len(all)
}

// Signal signals a process that was listed, if it is still the one.
func Signal(m Stat, sig unix.Signal) {
	fd, err := unix.PidfdOpen(m.PID, 0)
	if err == nil {
		defer unix.Close(fd)
	} else if errors.Is(err, unix.ESRCH) {
		return
	}
	if now, e := Read(m.PID); e != nil || now.Start != m.Start || now.Session != m.Session {
		return
	}
	if err == nil {
		_ = unix.PidfdSendSignal(fd, sig, nil, 0) // it can only fail for one that has just ended
		return
	}
	_ = unix.Kill(m.PID, sig)
}

// Handle follows one process, whether it is our child or not, without reaping it.
type Handle struct {
	PID    int
	Start  uint64
	pidfd  *os.File // nil on kernels without
	closed chan struct{}
	once   sync.Once
}

// Follow makes a handle. A process that has ended but is not reaped can be followed too.
func Follow(pid int, start uint64) (*Handle, error) {
	h := &Handle{PID: pid, Start: start, closed: make(chan struct{})}
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	switch {
	case err == nil:
		h.pidfd = os.NewFile(uintptr(fd), "pidfd")
	case errors.Is(err, unix.ESRCH):
		return nil, err
	}
	if s, err := Read(pid); err != nil || s.Start != start {
		h.Close()
		return nil, unix.ESRCH
	}
	return h, nil
}

// Wait returns true once the process has ended, false when the handle is closed.
func (h *Handle) Wait() bool {
	if h.pidfd != nil {
		if conn, err := h.pidfd.SyscallConn(); err == nil {
			err = conn.Read(func(fd uintptr) bool {
				p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
				n, err := unix.Poll(p, 0)
				return err == nil && n > 0
			})
			if err == nil {
				return true
			}
		}
	}
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		select {
		case <-h.closed:
			return false
		case <-tick.C:
			if s, err := Read(h.PID); err != nil || s.Start != h.Start || s.Dead() {
				return true
			}
		}
	}
}

// Close ends every Wait; the process goes on.
func (h *Handle) Close() {
	h.once.Do(func() {
		close(h.closed)
		if h.pidfd != nil {
			_ = h.pidfd.Close()
		}
	})
}

// Reap collects the exit of a process that has ended. ok is false for one that is not our child.
func Reap(pid int) (ws unix.WaitStatus, ok bool) {
	for {
		got, err := unix.Wait4(pid, &ws, unix.WNOHANG, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		return ws, err == nil && got == pid
	}
}

// BootID names this run of the machine: process numbers and start times mean nothing in another.
func BootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// FindProgram finds a program as execvp(3) would.
func FindProgram(name, path string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	for dir := range strings.SplitSeq(path, ":") {
		if !filepath.IsAbs(dir) {
			continue
		}
		full := filepath.Join(dir, name)
		if st, err := os.Stat(full); err == nil && st.Mode().IsRegular() && unix.Access(full, unix.X_OK) == nil {
			return full, nil
		}
	}
	return "", errors.New("there is no program " + name + " in PATH (" + path + ")")
}
