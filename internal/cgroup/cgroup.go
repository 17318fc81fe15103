// Package cgroup is what a group of processes uses, read from Linux control groups of version 1, 2 and both side by side.
// It changes no group, and knows nothing of who made one.
package cgroup

import (
	"bytes"
	"errors"
	"math"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ErrRoot means that the processes have no group of their own: the group's figures would be the whole machine's.
var ErrRoot = errors.New("cgroup: no group of its own")

// ErrUnknown means that the kernel gives no figure for the group.
var ErrUnknown = errors.New("cgroup: the kernel gives no figure")

// Usage is what a group uses.
type Usage struct {
	CPU    time.Duration // in total, since the group began
	Memory uint64        // bytes, without the page cache that can be dropped, as `docker stats` shows it
}

// Of reads what the group of a process uses. It fails unless both figures are known: with ErrRoot, ErrUnknown or the
// error of a file.
func Of(pid int) (Usage, error) { return newReader("").of(pid) }

// At reads the group at a path as systemd names it, "/system.slice/nginx.service", by the rules of Of.
func At(group string) (Usage, error) { return newReader("").at(group) }

func (r *reader) of(pid int) (Usage, error) {
	g, err := r.groupOf(pid)
	if err != nil {
		return Usage{}, err
	}
	return r.both(g)
}

func (r *reader) at(group string) (Usage, error) {
	if !strings.HasPrefix(group, "/") {
		return Usage{}, ErrUnknown
	}
	return r.both(place{unified: group, cpu: group, memory: group})
}

func (r *reader) both(g place) (Usage, error) {
	cpu, errCPU := r.cpu(g)
	memory, errMemory := r.memory(g)
	return Usage{CPU: cpu, Memory: memory}, errors.Join(errCPU, errMemory)
}

const maxFile = 32 << 10 // bytes that are read of a file

// reader reads the files of groups. It is for one goroutine.
type reader struct {
	root    string // before every path; empty but in tests
	unified string // where version 2 is mounted: alone, or beside version 1
	buf     []byte
}

func newReader(root string) *reader {
	r := &reader{root: root, unified: "/sys/fs/cgroup", buf: make([]byte, 0, 8<<10)}
	if unix.Access(root+"/sys/fs/cgroup/unified", unix.F_OK) == nil {
		r.unified = "/sys/fs/cgroup/unified"
	}
	return r
}

// place is where a process stands in each hierarchy; empty where there is none.
type place struct{ unified, cpu, memory string }

// groupOf reads /proc/PID/cgroup: lines like "4:cpu,cpuacct:/system.slice" and, for version 2, "0::/system.slice".
func (r *reader) groupOf(pid int) (place, error) {
	b, err := r.read("/proc/" + strconv.Itoa(pid) + "/cgroup")
	if err != nil {
		return place{}, err
	}
	return parsePlace(b), nil
}

func parsePlace(b []byte) (g place) {
	for line := range bytes.SplitSeq(b, []byte("\n")) {
		number, rest, _ := strings.Cut(string(line), ":")
		controllers, group, ok := strings.Cut(rest, ":")
		if !ok || !strings.HasPrefix(group, "/") {
			continue
		}
		if number == "0" && controllers == "" {
			g.unified = group
			continue
		}
		for c := range strings.SplitSeq(controllers, ",") {
			switch c {
			case "cpuacct":
				g.cpu = group
			case "memory":
				g.memory = group
			}
		}
	}
	return g
}

// cpu is the group's processor time. Version 1 goes first: where it is mounted, it has the controller.
func (r *reader) cpu(g place) (time.Duration, error) {
	err := error(ErrUnknown)
	if g.cpu != "" {
		for _, dir := range []string{"/sys/fs/cgroup/cpuacct", "/sys/fs/cgroup/cpu,cpuacct"} {
			var ns uint64
			if ns, err = r.number(dir, g.cpu, "cpuacct.usage"); err == nil && ns <= math.MaxInt64 {
				return time.Duration(ns), nil
			}
			if errors.Is(err, ErrRoot) {
				break
			}
		}
	}
	if g.unified != "" {
		us, errUnified := r.keyed(r.unified, g.unified, "cpu.stat", "usage_usec")
		if errUnified == nil && us <= math.MaxInt64/1000 {
			return time.Duration(us) * time.Microsecond, nil
		}
		if !errors.Is(err, ErrRoot) {
			err = errUnified
		}
	}
	return 0, err
}

func (r *reader) memory(g place) (uint64, error) {
	err := error(ErrUnknown)
	if g.memory != "" {
		const dir = "/sys/fs/cgroup/memory"
		var used uint64
		if used, err = r.number(dir, g.memory, "memory.usage_in_bytes"); err == nil {
			cache, _ := r.keyed(dir, g.memory, "memory.stat", "total_inactive_file")
			return without(used, cache), nil
		}
	}
	if g.unified != "" {
		used, errUnified := r.number(r.unified, g.unified, "memory.current")
		if errUnified == nil {
			cache, _ := r.keyed(r.unified, g.unified, "memory.stat", "inactive_file")
			return without(used, cache), nil
		}
		if !errors.Is(err, ErrRoot) {
			err = errUnified
		}
	}
	return 0, err
}

func without(used, cache uint64) uint64 {
	if cache > used {
		return used
	}
	return used - cache
}

// number reads a file that holds one number.
func (r *reader) number(dir, group, file string) (uint64, error) {
	b, err := r.file(dir, group, file)
	if err != nil {
		return 0, err
	}
	return parseNumber(bytes.TrimSpace(b))
}

// keyed reads one value of a file with lines like "usage_usec 12".
func (r *reader) keyed(dir, group, file, key string) (uint64, error) {
	b, err := r.file(dir, group, file)
	if err != nil {
		return 0, err
	}
	return parseKeyed(b, key)
}

func parseKeyed(b []byte, key string) (uint64, error) {
	for len(b) > 0 {
		line, rest, _ := bytes.Cut(b, []byte("\n"))
		if name, value, ok := bytes.Cut(line, []byte(" ")); ok && string(name) == key {
			return parseNumber(value)
		}
		b = rest
	}
	return 0, ErrUnknown
}

func parseNumber(b []byte) (uint64, error) {
	n, err := strconv.ParseUint(string(b), 10, 64)
	if err != nil {
		return 0, ErrUnknown
	}
	return n, nil
}

// file reads a file of a group. A path that leads out of what this process may see ("/../x", in another namespace) is as
// unknown as the root.
func (r *reader) file(dir, group, file string) ([]byte, error) {
	if group == "/" || path.Clean(group) != group {
		return nil, ErrRoot
	}
	return r.read(dir + group + "/" + file)
}

// read returns at most maxFile bytes, good until the next call. It does without the runtime's poller, which would register
// each file with the kernel only to read it once.
func (r *reader) read(name string) ([]byte, error) {
	fd, err := unix.Open(r.root+name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	defer unix.Close(fd)
	b := r.buf[:0]
	for len(b) < maxFile {
		if len(b) == cap(b) {
			b = slices.Grow(b, cap(b))
		}
		n, err := unix.Read(fd, b[len(b):cap(b)])
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return nil, &os.PathError{Op: "read", Path: name, Err: err}
		}
		if b = b[:len(b)+n]; n == 0 {
			break
		}
	}
	r.buf = b
	return b, nil
}
