package eval

import (
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

var binary = flag.String("atoll", "", "the stripped program that BenchmarkStart starts")

// BenchmarkStart is the real program on a directory with 1,000 stored conversations: how soon it answers, and what memory
// it holds when it idles, before and after it was asked for them.
func BenchmarkStart(b *testing.B) {
	if *binary == "" {
		b.Skip("give the program with -atoll=PATH")
	}
	dir := b.TempDir()
	h := Open(b, Options{Dir: dir, Model: openaiAt(b, zeroModel(b).URL)})
	p := h.Owner()
	var tenth, last time.Duration
	for i := range 1000 {
		if i%30 == 0 {
			h.Advance(6 * time.Minute)
		}
		start := time.Now()
		p.Chat("", fmt.Sprintf("hello %d", i))
		switch took := time.Since(start); {
		case i >= 5 && i < 15:
			tenth += took / 10
		case i >= 990:
			last += took / 10
		}
	}
	h.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	addr := l.Addr().String()
	_ = l.Close()
	var ready time.Duration
	var idle, own, after int64
	for b.Loop() {
		cmd := exec.Command(*binary, "serve", "--data-dir", dir, "--listen", addr)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir}
		start := time.Now()
		if err := cmd.Start(); err != nil {
			b.Fatal(err)
		}
		for {
			res, err := http.Get("http://" + addr + "/healthz")
			if err == nil {
				_ = res.Body.Close()
				break
			}
			if time.Since(start) > 20*time.Second {
				b.Fatal("it does not start")
			}
			pause(500 * time.Microsecond)
		}
		ready += time.Since(start)
		pause(2 * time.Second)
		idle, own = resident(b, cmd.Process.Pid, "VmRSS:"), resident(b, cmd.Process.Pid, "RssAnon:")
		q := (&House{t: b, Base: "http://" + addr}).Login("ada")
		q.Call("assistant.conversations", map[string]any{"limit": 1000})
		pause(time.Second)
		after = resident(b, cmd.Process.Pid, "VmRSS:")
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	}
	b.ReportMetric(float64(ready.Microseconds())/1000/float64(b.N), "ms/ready")
	b.ReportMetric(float64(idle)/1024, "MiB-idle")
	b.ReportMetric(float64(own)/1024, "MiB-idle-without-files") // the rest is the program's file, which the system can drop
	b.ReportMetric(float64(after)/1024, "MiB-after-1000")
	b.ReportMetric(float64(last)/float64(tenth), "x-1000th-conversation")
	b.ReportMetric(0, "ns/op")
}

// resident is a line of a process's memory that is in use, in KiB.
func resident(b *testing.B, pid int, what string) int64 {
	b.Helper()
	raw, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		if v, ok := strings.CutPrefix(line, what); ok {
			n, _ := strconv.ParseInt(strings.Fields(v)[0], 10, 64)
			return n
		}
	}
	return 0
}
