package proc

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == LaunchArg {
		os.Exit(Launch())
	}
	os.Exit(m.Run())
}

// A launcher whose node dies before the order is given runs nothing, so nothing is up that nobody knows of.
func TestLauncherWithoutOrder(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "mark")
	for _, order := range []string{"", `{"Command":["/usr/bin/touch"`, `{"Command":["/usr/bin/touch","` + mark + `"],"Direc`} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(os.Args[0], LaunchArg)
		cmd.ExtraFiles = []*os.File{r, os.Stderr}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		_ = r.Close()
		_, _ = w.WriteString(order)
		_ = w.Close()
		var exit *exec.ExitError
		if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 127 {
			t.Errorf("%q: %v", order, err)
		}
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("half an order was obeyed")
	}
}

// The identity is known before the program runs.
func TestStartWritesFirst(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "mark")
	o := Order{Command: []string{"/usr/bin/touch", mark}, Directory: "/"}
	launcher := []string{"/proc/self/exe", LaunchArg}
	refuse := errors.New("the disk is full")
	pid := 0
	_, err := Start(launcher, o, os.Stderr, func(p int, start uint64) error {
		pid = p
		if _, err := os.Stat(mark); err == nil || start == 0 {
			t.Error("it ran before it was written down")
		}
		return refuse
	})
	if !errors.Is(err, refuse) {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("it ran though it was not written down")
	}
	if _, err := Read(pid); err == nil {
		t.Error("the launcher is still there")
	}
	h, err := Start(launcher, o, os.Stderr, func(int, uint64) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	if !h.Wait() {
		t.Error("not seen to end")
	}
	h.Close()
	if ws, ok := Reap(h.PID); !ok || ws.ExitStatus() != 0 {
		t.Errorf("%v %v", ws, ok)
	}
	if _, err := Start([]string{"/no/such/launcher"}, o, os.Stderr, nil); !errors.Is(err, unix.ENOENT) {
		t.Errorf("%v", err)
	}
}
