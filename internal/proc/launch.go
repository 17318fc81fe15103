package proc

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"
	"golang.org/x/sys/unix"
)

// LaunchArg is the hidden first argument by which the program becomes an app's launcher: main must call Launch for it
// before anything else.
const LaunchArg = "__launch"

const (
	launchTimeout = 10 * time.Second // from the order to the app's program being executed
	maxReport     = 512
	orderFD       = 3 // the launcher's pipes
	reportFD      = 4
)

// Order is what a launcher is told. It travels by pipe, since arguments can be read by every user of the machine.
type Order struct {
	Command     []string
	Environment []string
	Directory   string
	Fallback    bool // Directory is a default: where it cannot be entered, / will do
	Become      bool // UID, GID and Groups are to be taken on
	UID, GID    int
	Groups      []int
}

// Start starts one program in a session of its own. written is called with the process's identity before the app's program
// is let run: if this node dies before it has written that down, the launcher sees its pipe end and runs nothing, so
// that no app is ever up unknown (and then doubled).
func Start(launcher []string, o Order, output *os.File, written func(pid int, start uint64) error) (*Handle, error) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	orderR, orderW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer orderW.Close()
	reportR, reportW, err := os.Pipe()
	if err != nil {
		_ = orderR.Close()
		return nil, err
	}
	defer reportR.Close()
	p, err := os.StartProcess(launcher[0], launcher, &os.ProcAttr{
		Dir: "/", Env: []string{}, Files: []*os.File{null, output, output, orderR, reportW},
		Sys: &syscall.SysProcAttr{Setsid: true},
	})
	_, _ = orderR.Close(), reportW.Close()
	if err != nil {
		return nil, err
	}
	pid := p.Pid
	_ = p.Release() // reaped by its number, as a process taken over is
	h, err := instruct(pid, o, orderW, reportR, written)
	if err != nil {
		_ = unix.Kill(pid, unix.SIGKILL) // ours and not reaped, so the number is still its own
		if h != nil {
			h.Wait()
			h.Close()
		}
		awaitReap(pid)
		return nil, err
	}
	return h, nil
}

func instruct(pid int, o Order, orderW, reportR *os.File, written func(int, uint64) error) (*Handle, error) {
	s, err := Read(pid)
	if err != nil {
		return nil, err
	}
	h, err := Follow(pid, s.Start)
	if err != nil {
		return nil, err
	}
	if err := written(pid, s.Start); err != nil {
		return h, err
	}
	deadline := time.Now().Add(launchTimeout)
	_, _ = orderW.SetWriteDeadline(deadline), reportR.SetReadDeadline(deadline)
	if err := json.MarshalWrite(orderW, o); err != nil {
		return h, fmt.Errorf("the launcher did not take its order: %w", err)
	}
	_ = orderW.Close()
	report, err := io.ReadAll(io.LimitReader(reportR, maxReport))
	switch {
	case err != nil:
		return h, fmt.Errorf("the launcher did not answer: %w", err)
	case len(report) > 0:
		return h, errors.New(string(report))
	}
	return h, nil
}

// awaitReap reaps a child that was killed.
func awaitReap(pid int) {
	var ws unix.WaitStatus
	for {
		if _, err := unix.Wait4(pid, &ws, 0, nil); !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// Launch is the launcher's side: it reads its Order, takes on the app's user, gives up the right to gain privileges,
// and becomes the app's program. It returns an exit code only where that failed.
func Launch() int {
	runtime.LockOSThread() // no_new_privs belongs to the thread that executes the program
	keepFiles()
	in, report := os.NewFile(orderFD, "order"), os.NewFile(reportFD, "report")
	var o Order
	if err := json.UnmarshalRead(in, &o); err != nil {
		return 127 // the node died before it gave the Order, or this is no launch at all
	}
	_ = in.Close()
	fmt.Fprint(report, obey(o))
	return 127
}

// keepFiles keeps every open file but the three standard ones from the app: the launcher's pipes, and what the node itself
// was started with.
func keepFiles() {
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		unix.CloseOnExec(reportFD)
		return
	}
	for _, e := range open {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
}

func obey(o Order) error {
	unix.Umask(0o022)
	if o.Become {
		if err := syscall.Setgroups(o.Groups); err != nil {
			return fmt.Errorf("cannot take on the user's groups: %w", err)
		}
		if err := syscall.Setgid(o.GID); err != nil {
			return fmt.Errorf("cannot take on the user's group: %w", err)
		}
		if err := syscall.Setuid(o.UID); err != nil {
			return fmt.Errorf("cannot take on the user: %w", err)
		}
	}
	if err := os.Chdir(o.Directory); err != nil {
		if !o.Fallback {
			return fmt.Errorf("cannot enter the directory %s: %s", o.Directory, cause(err))
		}
		if err := os.Chdir("/"); err != nil {
			return err
		}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("cannot give up new privileges: %w", err)
	}
	program, err := FindProgram(o.Command[0], pathOf(o.Environment))
	if err != nil {
		return err
	}
	err = syscall.Exec(program, o.Command, o.Environment)
	if errors.Is(err, unix.ENOEXEC) {
		return fmt.Errorf("%s is no program (a script needs a first line such as #!/bin/sh)", program)
	}
	return fmt.Errorf("cannot run %s: %w", program, err)
}

func pathOf(environment []string) string {
	for _, kv := range environment {
		if len(kv) > 5 && kv[:5] == "PATH=" {
			return kv[5:]
		}
	}
	return ""
}

// cause is the last words of a file error, without the path that its reader knows.
func cause(err error) string {
	if e, ok := errors.AsType[*os.PathError](err); ok {
		return e.Err.Error()
	}
	return err.Error()
}
