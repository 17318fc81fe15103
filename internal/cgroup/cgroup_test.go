package cgroup

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// lay writes the files of a tree.
func lay(t testing.TB, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		p := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

const stat2 = "anon 5\nfile 700\ninactive_file 300\nactive_file 400\n"

func TestOf(t *testing.T) {
	const fs = "/sys/fs/cgroup"
	for name, tc := range map[string]struct {
		files map[string]string
		want  Usage
		err   error
	}{
		"version 2": {map[string]string{
			"/proc/7/cgroup":                              "0::/system.slice/a.service\n",
			fs + "/cpu.stat":                              "usage_usec 999999\n",
			fs + "/memory.current":                        "999999",
			fs + "/cgroup.controllers":                    "cpu memory\n",
			fs + "/system.slice/a.service/cpu.stat":       "usage_usec 1500\nuser_usec 1000\n",
			fs + "/system.slice/a.service/memory.current": "1000\n",
			fs + "/system.slice/a.service/memory.stat":    stat2,
		}, Usage{1500 * time.Microsecond, 700}, nil},
		"version 1, joint controllers": {map[string]string{
			"/proc/7/cgroup": "5:cpu,cpuacct:/docker/x\n4:memory:/docker/x\n1:name=systemd:/docker/x\n",
			fs + "/cpu,cpuacct/docker/x/cpuacct.usage":    "2000000\n",
			fs + "/memory/docker/x/memory.usage_in_bytes": "5000\n",
			fs + "/memory/docker/x/memory.stat":           "inactive_file 1\ntotal_inactive_file 1000\n",
		}, Usage{2 * time.Millisecond, 4000}, nil},
		"both: processor by version 2, memory by version 1": {map[string]string{
			"/proc/7/cgroup":                       "3:cpuacct:/\n4:memory:/m\n0::/u\n",
			fs + "/cpuacct/cpuacct.usage":          "999999\n",
			fs + "/unified/u/cpu.stat":             "usage_usec 30\n",
			fs + "/memory/m/memory.usage_in_bytes": "50\n",
			fs + "/memory/m/memory.stat":           "total_inactive_file 60\n",
		}, Usage{30 * time.Microsecond, 50}, nil},
		"the root": {map[string]string{
			"/proc/7/cgroup":       "0::/\n",
			fs + "/cpu.stat":       "usage_usec 999999\n",
			fs + "/memory.current": "999999",
		}, Usage{}, ErrRoot},
		"the root of version 1": {map[string]string{
			"/proc/7/cgroup":                     "3:cpuacct:/\n4:memory:/\n",
			fs + "/cpuacct/cpuacct.usage":        "999999\n",
			fs + "/memory/memory.usage_in_bytes": "999999\n",
		}, Usage{}, ErrRoot},
		"outside this namespace": {map[string]string{
			"/proc/7/cgroup":         "0::/../other\n",
			fs + "/other/cpu.stat":   "usage_usec 999999\n",
			"/sys/fs/other/cpu.stat": "usage_usec 999999\n",
		}, Usage{}, ErrRoot},
		"no memory controller": {map[string]string{
			"/proc/7/cgroup":   "0::/a\n",
			fs + "/a/cpu.stat": "usage_usec 1500\n",
		}, Usage{CPU: 1500 * time.Microsecond}, os.ErrNotExist},
		"no such process": {nil, Usage{}, os.ErrNotExist},
		"rubbish": {map[string]string{
			"/proc/7/cgroup":         "0::/a\n\nx\n9:\n:::\n",
			fs + "/a/cpu.stat":       "usage_usec -1\nusage_usec\n",
			fs + "/a/memory.current": "max\n",
		}, Usage{}, ErrUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := newReader(lay(t, tc.files)).of(7)
			if got != tc.want || !errors.Is(err, tc.err) || tc.err == nil && err != nil {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}

// A group is read by its path as well, and never the root or what is above it.
func TestAt(t *testing.T) {
	tr := newReader(lay(t, map[string]string{
		"/sys/fs/cgroup/cpu.stat":                   "usage_usec 999999\n",
		"/sys/fs/cgroup/memory.current":             "999999",
		"/sys/fs/cgroup/s/a.service/cpu.stat":       "usage_usec 12\n",
		"/sys/fs/cgroup/s/a.service/memory.current": "400\n",
		"/sys/fs/cgroup/s/a.service/memory.stat":    stat2,
	}))
	if u, err := tr.at("/s/a.service"); err != nil || u != (Usage{12 * time.Microsecond, 100}) {
		t.Errorf("got %+v, %v", u, err)
	}
	for _, group := range []string{"", "/", "s/a.service", "/s/../..", "/s/", "/s/other.service"} {
		if u, err := tr.at(group); err == nil || u != (Usage{}) {
			t.Errorf("%q: got %+v, %v", group, u, err)
		}
	}
}

// The real kernel: a process in a group that this test makes, where it may.
func TestRealGroup(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("not root: no group can be made")
	}
	name := "/atoll-test-" + strconv.Itoa(os.Getpid())
	procs := []string{}
	for _, dir := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/cpuacct", "/sys/fs/cgroup/memory"} {
		if _, err := os.Stat(dir + "/cgroup.procs"); err != nil || os.Mkdir(dir+name, 0o700) != nil {
			continue
		}
		t.Cleanup(func() { _ = os.Remove(dir + name) })
		procs = append(procs, dir+name+"/cgroup.procs")
	}
	if len(procs) == 0 {
		t.Skip("no group can be made here")
	}
	cmd := exec.Command("sh", "-c", "read go; i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; echo done; read end")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		in.Close()
		_ = cmd.Wait()
	}()
	for _, p := range procs {
		if err := os.WriteFile(p, []byte(strconv.Itoa(cmd.Process.Pid)), 0); err != nil {
			t.Skipf("the process cannot be put into a group: %v", err)
		}
	}
	if _, err := in.Write([]byte("go\n")); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	u, err := Of(cmd.Process.Pid)
	t.Logf("%+v, %v", u, err)
	if u.CPU <= 0 || u.CPU > time.Minute {
		t.Errorf("processor time %s, %v", u.CPU, err)
	}
	if err == nil && (u.Memory == 0 || u.Memory > 1<<30) {
		t.Errorf("memory %d", u.Memory)
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"", "0::/\n", "4:cpu,cpuacct:/system.slice\n0::/a\n", "usage_usec 12\n", ":::", "1:memory:/a:b\n"} {
		f.Add([]byte(s), "usage_usec")
	}
	f.Fuzz(func(t *testing.T, b []byte, key string) {
		g := parsePlace(b)
		for _, group := range []string{g.unified, g.cpu, g.memory} {
			if group != "" && !strings.HasPrefix(group, "/") {
				t.Errorf("group %q", group)
			}
		}
		if n, err := parseKeyed(b, key); err != nil && n != 0 {
			t.Errorf("%d with %v", n, err)
		}
	})
}
