package process

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

// ticksPerSecond is the kernel's unit in /proc/PID/stat; it is 100 on every architecture that Go knows.
const ticksPerSecond = 100

// pollEvery is how often a process is looked at on kernels without pidfd (before 5.10).
const pollEvery = 250 * time.Millisecond

// stat is what /proc/PID/stat says of one process.
type stat struct {
	pid, parent, session int
	state                byte
	start                uint64 // in ticks since boot: with the pid it names a process for good
	ticks                uint64 // of processor time
	rss                  uint64 // bytes
}

func (s stat) dead() bool { return s.state == 'Z' || s.state == 'X' }

var errStat = errors.New("unexpected form of /proc/PID/stat")

func readStat(pid int) (stat, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return stat{}, err
	}
	return parseStat(pid, b)
}

// parseStat skips the program's name, which can hold anything, by its last bracket.
func parseStat(pid int, b []byte) (stat, error) {
	i := bytes.LastIndexByte(b, ')')
	if i < 0 {
		return stat{}, errStat
	}
	f := strings.Fields(string(b[i+1:])) // f[0] is field 3 of proc(5)
	if len(f) < 22 || len(f[0]) != 1 {
		return stat{}, errStat
	}
	s := stat{pid: pid, state: f[0][0]}
	var errs [6]error
	var user, sys, pages uint64
	s.parent, errs[0] = strconv.Atoi(f[1])
	s.session, errs[1] = strconv.Atoi(f[3])
	user, errs[2] = strconv.ParseUint(f[11], 10, 64)
	sys, errs[3] = strconv.ParseUint(f[12], 10, 64)
	s.start, errs[4] = strconv.ParseUint(f[19], 10, 64)
	pages, errs[5] = strconv.ParseUint(f[21], 10, 64)
	if errors.Join(errs[:]...) != nil {
		return stat{}, errStat
	}
	s.ticks, s.rss = user+sys, pages*uint64(os.Getpagesize())
	return s, nil
}

// allStats reads every process of the machine; those that end meanwhile are left out.
func allStats() []stat {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil
	}
	var out []stat
	for _, n := range names {
		pid, err := strconv.Atoi(n)
		if err != nil {
			continue
		}
		if s, err := readStat(pid); err == nil {
			out = append(out, s)
		}
	}
	return out
}

// members are the live processes of a session that began no earlier than start. A process's number is not given to
// another one while its session or group has members, so they are the app's own.
func members(session int, start uint64) []stat {
	var out []stat
	for _, s := range allStats() {
		if s.session == session && s.start >= start && !s.dead() {
			out = append(out, s)
		}
	}
	return out
}

// signalSession signals every live process of a session, each only while it is still the one that was listed. It
// returns how many there were.
func signalSession(session int, start uint64, sig unix.Signal) int {
	all := members(session, start)
	for _, m := range all {
		signalOne(m, sig)
	}
	return len(all)
}

func signalOne(m stat, sig unix.Signal) {
	fd, err := unix.PidfdOpen(m.pid, 0)
	if err == nil {
		defer unix.Close(fd)
	} else if errors.Is(err, unix.ESRCH) {
		return
	}
	if now, e := readStat(m.pid); e != nil || now.start != m.start || now.session != m.session {
		return
	}
	if err == nil {
		_ = unix.PidfdSendSignal(fd, sig, nil, 0) // it can only fail for one that has just ended
		return
	}
	_ = unix.Kill(m.pid, sig)
}

// handle follows one process, whether it is our child or not, without reaping it.
type handle struct {
	pid    int
	start  uint64
	pidfd  *os.File // nil on kernels without
	closed chan struct{}
	once   sync.Once
}

// follow makes a handle. A process that has ended but is not reaped can be followed too.
func follow(pid int, start uint64) (*handle, error) {
	h := &handle{pid: pid, start: start, closed: make(chan struct{})}
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	switch {
	case err == nil:
		h.pidfd = os.NewFile(uintptr(fd), "pidfd")
	case errors.Is(err, unix.ESRCH):
		return nil, err
	}
	if s, err := readStat(pid); err != nil || s.start != start {
		h.close()
		return nil, unix.ESRCH
	}
	return h, nil
}

// wait returns true once the process has ended, false when the handle is closed.
func (h *handle) wait() bool {
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
			if s, err := readStat(h.pid); err != nil || s.start != h.start || s.dead() {
				return true
			}
		}
	}
}

func (h *handle) close() {
	h.once.Do(func() {
		close(h.closed)
		if h.pidfd != nil {
			_ = h.pidfd.Close()
		}
	})
}

// reap collects the exit of a process that has ended. ok is false for one that is not our child.
func reap(pid int) (ws unix.WaitStatus, ok bool) {
	for {
		got, err := unix.Wait4(pid, &ws, unix.WNOHANG, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		return ws, err == nil && got == pid
	}
}

// bootID names this run of the machine: process numbers and start times mean nothing in another.
func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// findProgram finds a program as execvp(3) would.
func findProgram(name, path string) (string, error) {
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
	return "", errors.New("there is no program " + clip(name) + " in PATH (" + clip(path) + ")")
}
