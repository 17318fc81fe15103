package durable

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"atoll/internal/app/process"
	"atoll/internal/eval"
	"atoll/internal/node"
)

var (
	seed = flag.Uint64("seed", 1, "of what is tried and when")
	all  = flag.Bool("all", false, "every damage of every file, not a seeded part of them")
)

// The hidden first arguments of this test binary.
const (
	serveArg = "__durable-serve" // a node: DIR and the address follow
	tryArg   = "__durable-try"   // opens a node on DIR once and says how that went
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case process.LaunchArg:
			os.Exit(process.Launch())
		case process.SampleArg:
			os.Exit(process.Sample(os.Args[2:], os.Stdout, os.Stderr))
		case serveArg:
			os.Exit(serve(os.Args[2], os.Args[3]))
		case tryArg:
			os.Exit(tryOnce(os.Args[2]))
		}
	}
	os.Exit(m.Run())
}

// attempt is an eval.T for a node that may refuse to start: what would fail the test ends the attempt instead.
type attempt struct {
	t        *testing.T
	cleanups []func()
}

// refusal is what the node said.
type refusal string

func (a *attempt) Helper()                  {}
func (a *attempt) Context() context.Context { return a.t.Context() }
func (a *attempt) TempDir() string          { return a.t.TempDir() }
func (a *attempt) Cleanup(f func())         { a.cleanups = append(a.cleanups, f) }
func (a *attempt) Errorf(format string, args ...any) {
	a.t.Errorf(format, args...)
}
func (a *attempt) Fatal(args ...any)                 { panic(refusal(strings.TrimSuffix(fmt.Sprintln(args...), "\n"))) }
func (a *attempt) Fatalf(format string, args ...any) { panic(refusal(fmt.Sprintf(format, args...))) }

func (a *attempt) done() {
	for _, f := range a.cleanups {
		f()
	}
}

// startTime bounds how long a node may take to start, or to say why not. It is long for slow machines.
const startTime = 60 * time.Second

// tryOpen opens a node with its doors. Where it refuses, why says what it said.
func tryOpen(t *testing.T, dir string) (h *eval.House, why string, end func()) {
	t.Helper()
	a := &attempt{t: t}
	done := make(chan struct{})
	go func() { // waited for below, unless it hangs, which fails the test
		defer close(done)
		defer func() {
			if r := recover(); r != nil {
				said, ok := r.(refusal)
				if !ok {
					panic(r)
				}
				why, h = string(said), nil
				a.done()
			}
		}()
		h = eval.Open(a, eval.Options{Dir: dir, Settings: quiet})
		listeners, err := h.Node.Listen(t.Context())
		for _, l := range listeners {
			a.Cleanup(func() { _ = l.Close() })
		}
		if err != nil {
			a.Fatal(err)
		}
	}()
	select {
	case <-done:
	case <-time.After(startTime):
		t.Fatal("the node neither starts nor says why")
	}
	return h, why, a.done
}

// quiet keeps a node off this machine's engines and network, also where its config.toml is gone.
func quiet(s *node.Settings) {
	s.Apps.Docker = "off"
	s.Mesh.Discover = false
	s.Mesh.Listen = []string{"/ip4/127.0.0.1/tcp/0"}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// until waits for something that nothing tells of.
func until(t *testing.T, what string, good func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	late := time.After(startTime)
	for !good() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatal(what, "never came")
		}
	}
}

// runAs is the line that a definition needs where the node runs as root.
func runAs() string {
	if os.Geteuid() == 0 {
		return "user: root\n"
	}
	return ""
}
