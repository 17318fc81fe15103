package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/rogpeppe/go-internal/testscript"
)

// engine is a real container engine for one script, with storage of its own.
type engine struct {
	home, script string
	service      *exec.Cmd
}

// condition is what a script can ask of the machine: [engine], and [btcd] for a Bitcoin node.
func condition(name string) (bool, error) {
	if name == "btcd" {
		_, err := exec.LookPath("btcd")
		return err == nil, nil
	}
	if name != "engine" {
		return false, fmt.Errorf("unknown condition %s", name)
	}
	for _, program := range []string{"podman", "runc", "fuse-overlayfs"} {
		if _, err := exec.LookPath(program); err != nil {
			return false, nil
		}
	}
	return os.Geteuid() == 0, nil
}

// engineCmd starts the engine, or has it do something: engine start, engine stop, engine PODMAN-ARGUMENTS. There is the
// image atoll-test:1, a program that does what its arguments say. start sets SOCKET.
func engineCmd(ts *testscript.TestScript, neg bool, args []string) {
	h := houseOf(ts)
	switch {
	case neg || len(args) == 0:
		ts.Fatalf("usage: engine start|stop|ARGUMENTS")
	case args[0] == "start":
		if h.engine == nil {
			h.engine = newEngine(ts)
		}
		h.engine.start(ts)
	case args[0] == "stop":
		h.engine.stop()
	default:
		out, err := h.engine.podman(args...).CombinedOutput()
		if err != nil {
			ts.Fatalf("podman %v: %v: %s", args, err, out)
		}
	}
}

func newEngine(ts *testscript.TestScript) *engine {
	home, err := os.MkdirTemp("", "engine-") // a socket's path must be short
	ts.Check(err)
	script, err := filepath.Abs("../../scripts/peers/podman")
	ts.Check(err)
	e := &engine{home: home, script: script}
	build := exec.Command("go", "build", "-o", filepath.Join(home, "app"), "../../internal/app/docker/testdata/app")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	for _, c := range []*exec.Cmd{build, exec.Command("tar", "-C", home, "-cf", filepath.Join(home, "app.tar"), "app"),
		e.podman("import", "--change", `ENTRYPOINT ["/app"]`, filepath.Join(home, "app.tar"), "atoll-test:1")} {
		if out, err := c.CombinedOutput(); err != nil {
			ts.Fatalf("%v: %v: %s", c.Args, err, out)
		}
	}
	ts.Setenv("SOCKET", e.socket())
	return e
}

func (e *engine) socket() string { return filepath.Join(e.home, "podman.sock") }

func (e *engine) podman(args ...string) *exec.Cmd {
	c := exec.Command(e.script, args...)
	c.Env = append(os.Environ(), "PODMAN_HOME="+e.home)
	return c
}

func (e *engine) start(ts *testscript.TestScript) {
	e.service = e.podman("system", "service", "--time=0", "unix://"+e.socket())
	ts.Check(e.service.Start())
	poll(ts, often, "the engine to listen", func() bool {
		c, err := net.Dial("unix", e.socket())
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
}

// stop ends the engine; its containers go on.
func (e *engine) stop() {
	_ = e.service.Process.Kill()
	_ = e.service.Wait()
	_ = os.Remove(e.socket())
}

// close takes the engine and its containers away.
func (e *engine) close() {
	if e == nil {
		return
	}
	_ = e.podman("rm", "-fa", "-t", "0").Run()
	if e.service != nil {
		e.stop()
	}
	_ = syscall.Unmount(filepath.Join(e.home, "root", "overlay"), syscall.MNT_DETACH)
	_ = os.RemoveAll(e.home)
}
