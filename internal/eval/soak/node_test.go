package soak

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"atoll/internal/app/process"
	"atoll/internal/node"
	"atoll/internal/secret"
)

// serveArg makes this test binary a node: DIR and the address follow.
const serveArg = "__soak-serve"

// TestMain lets this binary be the node, and the program that process apps are launched by.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case process.LaunchArg:
			os.Exit(process.Launch())
		case process.SampleArg:
			os.Exit(process.Sample(os.Args[2:], os.Stdout, os.Stderr))
		case serveArg:
			os.Exit(serve(os.Args[2:]))
		}
	}
	os.Exit(m.Run())
}

// inside is what only the process itself knows of itself.
type inside struct {
	Goroutines int    `json:"goroutines"`
	Heap       uint64 `json:"heap"` // bytes in live and not yet collected objects
	Stack      uint64 `json:"stack"`
	Held       uint64 `json:"held"` // bytes that Go has of the system; what is resident beyond them is the program and SQLite
}

// serve runs a node that answers "sample", "collect" (after a collection) and "stacks" on its standard input, and ends
// with it: no node outlives its test.
func serve(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	go func() {
		defer stop()
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			switch in.Text() {
			case "stacks":
				_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 1)
			case "heap":
				_ = pprof.Lookup("heap").WriteTo(os.Stderr, 1)
			case "collect":
				runtime.GC()
				debug.FreeOSMemory()
			}
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			line, err := json.Marshal(inside{runtime.NumGoroutine(), m.HeapAlloc, m.StackInuse, m.Sys - m.HeapReleased})
			if err != nil {
				return
			}
			fmt.Printf("%s\n", line)
		}
	}()
	err := node.Serve(ctx, node.Options{DataDir: args[0], Listen: args[1], Version: "test", Out: io.Discard,
		Log: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// modelKey is what the node authenticates to the model server with.
const modelKey = "sk-canary-1234567890"

// server is the node under test, a process of its own.
type server struct {
	t    *testing.T
	dir  string
	addr string
	log  *os.File
	cmd  *exec.Cmd

	mu  sync.Mutex // guards the pipe: one question at a time
	in  io.WriteCloser
	out *bufio.Scanner
}

// startServer makes a data directory with apps and an owner, and runs a node on it whose model is at modelURL. more is
// the end of its configuration.
func startServer(t *testing.T, modelURL, more string) *server {
	t.Helper()
	s := &server{t: t, dir: t.TempDir(), addr: freeAddress(t)}
	shared := t.TempDir()
	for i := range 20 {
		write(t, filepath.Join(shared, fmt.Sprintf("song-%02d.ogg", i)), strings.Repeat("la ", 100*i))
	}
	write(t, filepath.Join(s.dir, "config.toml"), `trusted_proxies = ["127.0.0.1/32"]
[assistant]
backend = "openai"
model = "m"
base_url = "`+modelURL+`/v1"
[apps]
docker = "off"
[content]
dir = "`+shared+`"
`+more)
	write(t, filepath.Join(s.dir, "secrets", "openai-api-key"), modelKey)
	user := ""
	if os.Geteuid() == 0 {
		user = "user: root\n"
	}
	for name, text := range map[string]string{
		"steady": "restart: always\nautostart: true\nstop_timeout: 1s\ncommand: [/bin/sh, -c, 'exec sleep 100000']\n",
		"second": "restart: always\nautostart: true\nstop_timeout: 1s\ncommand: [/bin/sh, -c, 'exec sleep 100000']\n",
		"crashy": "restart: always\nautostart: true\nstop_timeout: 1s\ncommand: [/bin/sh, -c, 'echo no cache; sleep 2; exit 3']\n",
		"noisy":  "restart: always\nautostart: true\nstop_timeout: 1s\ncommand: [/bin/sh, -c, 'while :; do for i in 1 2 3 4 5 6 7 8; do echo line $i of many words to fill the file with; done; sleep 0.2; done']\n",
	} {
		write(t, filepath.Join(s.dir, "apps", name+".yaml"), user+text)
	}
	if err := node.UserAdd(t.Context(), s.dir, ownerName, "owner", secret.New(password)); err != nil {
		t.Fatal(err)
	}
	var err error
	if s.log, err = os.Create(filepath.Join(t.TempDir(), "log")); err != nil {
		t.Fatal(err)
	}
	s.run()
	return s
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
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

func (s *server) run() {
	s.t.Helper()
	s.cmd = exec.Command(os.Args[0], serveArg, s.dir, s.addr)
	s.cmd.Stderr = s.log
	s.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + s.dir}
	in, err := s.cmd.StdinPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	s.in, s.out = in, bufio.NewScanner(out)
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = s.cmd.Process.Kill() })
	deadline := time.Now().Add(30 * time.Second)
	for {
		if res, err := http.Get("http://" + s.addr + "/healthz"); err == nil {
			_ = res.Body.Close()
			if res.StatusCode == 200 {
				return
			}
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("the node does not start:\n%s", s.tail())
		}
		pause(s.t.Context(), 20*time.Millisecond)
	}
}

// ask puts one question to the process.
func (s *server) ask(word string) inside {
	s.mu.Lock()
	defer s.mu.Unlock()
	var v inside
	if _, err := fmt.Fprintln(s.in, word); err != nil || !s.out.Scan() {
		s.t.Errorf("the node does not answer %q: %v %v", word, err, s.out.Err())
		return v
	}
	if err := json.Unmarshal(s.out.Bytes(), &v); err != nil {
		s.t.Error(err)
	}
	return v
}

// stop ends the node in order.
func (s *server) stop() error {
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	return s.cmd.Wait()
}

func (s *server) tail() string {
	raw, _ := os.ReadFile(s.log.Name())
	return string(raw[max(0, len(raw)-4000):])
}

// resident is the memory of the process in bytes: all of it, and what of it is no mapped file.
func (s *server) resident() (all, anonymous int64) {
	raw, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	for line := range strings.Lines(string(raw)) {
		name, value, _ := strings.Cut(line, ":")
		kib, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		switch name {
		case "VmRSS":
			all = kib << 10
		case "RssAnon":
			anonymous = kib << 10
		}
	}
	return all, anonymous
}

// files counts the open files of the process.
func (s *server) files() int {
	list, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", s.cmd.Process.Pid))
	return len(list)
}

// disk adds up the data directory, and the write-ahead logs in it.
func (s *server) disk() (all, wal int64) {
	_ = filepath.WalkDir(s.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil // what was just removed
		}
		if st, err := d.Info(); err == nil {
			all += st.Size()
			if strings.HasSuffix(path, "-wal") {
				wal += st.Size()
			}
		}
		return nil
	})
	return all, wal
}

// pause waits a part of the experiment; false if ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
