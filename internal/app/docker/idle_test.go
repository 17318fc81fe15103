package docker

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// idleEngine is the variable that makes TestIdleEngine an engine; it holds the time in which each container is checked.
const idleEngine = "ATOLL_TEST_IDLE_ENGINE"

// Issue 3: with 300 containers the processor is used under 0.5 % while nothing happens.
func TestIdle(t *testing.T) {
	if use := idle(t, 3*time.Second, 0); use > 0.5 {
		t.Errorf("%.2f %% of a processor", use)
	}
}

// BenchmarkIdle also has the engine check all of the 300 containers twice a minute, each check being three events that
// change nothing.
func BenchmarkIdle(b *testing.B) {
	for _, c := range []struct {
		name   string
		checks time.Duration
	}{{"quiet", 0}, {"checks", 30 * time.Second}} {
		b.Run(c.name, func(b *testing.B) {
			var use float64
			for b.Loop() {
				use += idle(b, 10*time.Second, c.checks)
			}
			b.ReportMetric(use/float64(b.N), "%cpu")
		})
	}
}

// idle is the percentage of one processor that this process takes, linked to an engine in another.
func idle(t testing.TB, span, checks time.Duration) float64 {
	engine := exec.Command(os.Args[0], "-test.run=^TestIdleEngine$")
	engine.Env = append(os.Environ(), idleEngine+"="+checks.String())
	in, err := engine.StdinPipe() // its end is the engine's
	done(t, err)
	out, err := engine.StdoutPipe()
	done(t, err)
	done(t, engine.Start())
	said := bufio.NewReader(out)
	defer func() {
		_ = in.Close()
		words, _ := io.ReadAll(said)
		if err := engine.Wait(); err != nil {
			t.Errorf("the engine: %v: %s", err, words)
		}
	}()
	path, err := said.ReadString('\n')
	done(t, err)
	e := made(t, strings.TrimSpace(path))
	end := run(t, e)
	defer end()
	wait(t, "the list", func() bool { list, _, err := e.List(t.Context()); return err == nil && len(list) == 30 })
	began, before := time.Now(), processorTime(t)
	<-time.After(span)
	return 100 * float64(processorTime(t)-before) / float64(time.Since(began))
}

// processorTime is what this process has taken of the processors.
func processorTime(t testing.TB) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestIdleEngine is no test but the engine for idle, of 300 containers in 30 projects.
func TestIdleEngine(t *testing.T) {
	checks, err := time.ParseDuration(os.Getenv(idleEngine))
	if err != nil {
		return // nobody wants an engine
	}
	f := newFake(t)
	boxes := make([]*fakeBox, 300)
	for i := range boxes {
		project := fmt.Sprint("p", i/10)
		boxes[i] = f.add(fakeBox{name: fmt.Sprint(project, "-s", i%10, "-1"), labels: composed(project, fmt.Sprint("s", i%10), "")})
		f.set(boxes[i], func(b *fakeBox) { b.state, b.started, b.pid = "running", time.Now(), os.Getpid() })
	}
	fmt.Println(f.path)
	over := make(chan struct{})
	go func() { defer close(over); _, _ = io.Copy(io.Discard, os.Stdin) }()
	var tick <-chan time.Time
	if checks > 0 {
		ticker := time.NewTicker(checks / time.Duration(len(boxes)))
		defer ticker.Stop()
		tick = ticker.C
	}
	for n := 0; ; n++ {
		select {
		case <-tick:
		case <-over:
			return
		}
		for _, action := range []string{"exec_create: /check", "exec_start: /check", "exec_die"} {
			f.emit(action, boxes[n%len(boxes)], "")
		}
	}
}
