package link

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	"github.com/libp2p/go-libp2p/p2p/transport/tcp"
)

// The benchmarks put this package beside the library alone: the same hosts, transport and bytes, without standing, limits,
// deadlines and strict JSON. Their pairs are bare/… and link/….

const bulk = 64 << 20

// bare is two hosts of the library that are connected.
func bare(b *testing.B, serve network.StreamHandler) (host.Host, host.Host) {
	b.Helper()
	make := func() host.Host {
		x, err := libp2p.New(libp2p.ListenAddrStrings(tcpHere), libp2p.DisableMetrics(), libp2p.Transport(tcp.NewTCPTransport))
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = x.Close() })
		return x
	}
	x, y := make(), make()
	y.SetStreamHandler("/bare/1", serve)
	if err := x.Connect(context.Background(), *host.InfoFromHost(y)); err != nil {
		b.Fatal(err)
	}
	return x, y
}

// bareEcho sends back what a varint announces.
func bareEcho(s network.Stream) {
	defer s.Close()
	in := bufio.NewReader(s)
	for bareTurn(s, in) == nil {
	}
}

func bareTurn(s network.Stream, in *bufio.Reader) error {
	n, err := binary.ReadUvarint(in)
	if err != nil || n > 1<<20 {
		return io.EOF
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(in, body); err != nil {
		return err
	}
	_, err = s.Write(append(binary.AppendUvarint(nil, n), body...))
	return err
}

func must(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func bareOpen(b *testing.B, x, y host.Host) network.Stream {
	b.Helper()
	s, err := x.NewStream(context.Background(), y.ID(), protocol.ID("/bare/1"))
	must(b, err)
	return s
}

func bareAsk(b *testing.B, s network.Stream, in *bufio.Reader, frame []byte, back []byte) {
	b.Helper()
	_, err := s.Write(frame)
	must(b, err)
	n, err := binary.ReadUvarint(in)
	must(b, err)
	_, err = io.ReadFull(in, back[:n])
	must(b, err)
}

func linkAsk(b *testing.B, s *Stream, w word) {
	b.Helper()
	must(b, s.Send(w))
	var back word
	must(b, s.Receive(&back))
	if len(back.Text) != len(w.Text) {
		b.Fatal("cut")
	}
}

// pairOf is two connected nodes with no rate in the way.
func pairOf(b *testing.B, p Protocol) (*node, *node) {
	b.Helper()
	p.Rate, p.Concurrent = Rate{32767, time.Millisecond}, 64
	x, y := start(b, "x", with(p)), start(b, "y", with(p))
	join(b, x, y)
	return x, y
}

func BenchmarkAsk(b *testing.B) {
	w := word{strings.Repeat("a", 1000)}
	frame := append(binary.AppendUvarint(nil, 1024), bytes.Repeat([]byte{'a'}, 1024)...)
	back := make([]byte, 2048)
	b.Run("reused/bare", func(b *testing.B) {
		x, y := bare(b, bareEcho)
		s := bareOpen(b, x, y)
		in := bufio.NewReader(s)
		for b.Loop() {
			bareAsk(b, s, in, frame, back)
		}
		_ = s.Reset()
	})
	b.Run("reused/link", func(b *testing.B) {
		p := echo("echo")
		p.Total = time.Hour
		x, y := pairOf(b, p)
		s, err := x.Open(context.Background(), y.Key(), "echo")
		must(b, err)
		for b.Loop() {
			linkAsk(b, s, w)
		}
		s.Reset()
	})
	b.Run("fresh/bare", func(b *testing.B) {
		x, y := bare(b, bareEcho)
		for b.Loop() {
			s := bareOpen(b, x, y)
			bareAsk(b, s, bufio.NewReader(s), frame, back)
			_ = s.Close()
		}
	})
	b.Run("fresh/link", func(b *testing.B) {
		x, y := pairOf(b, echo("echo"))
		for b.Loop() {
			s, err := x.Open(context.Background(), y.Key(), "echo")
			must(b, err)
			linkAsk(b, s, w)
			_ = s.Close()
		}
	})
}

func BenchmarkBulk(b *testing.B) {
	b.Run("bare", func(b *testing.B) {
		x, y := bare(b, func(s network.Stream) {
			defer s.Close()
			_, _ = io.CopyBuffer(onlyWriter{s}, io.LimitReader(endless{}, bulk), make([]byte, chunk))
		})
		b.SetBytes(bulk)
		for b.Loop() {
			s := bareOpen(b, x, y)
			_, err := s.Write(nil)
			must(b, err)
			n, err := io.CopyBuffer(onlyWriter{io.Discard}, s, make([]byte, chunk))
			must(b, err)
			if n != bulk {
				b.Fatal(n)
			}
			_ = s.Close()
		}
	})
	b.Run("link", func(b *testing.B) {
		p := echo("bulk")
		p.Serve = func(_ context.Context, _ string, s *Stream) error {
			_, err := s.WriteFrom(endless{}, bulk)
			return err
		}
		x, y := pairOf(b, p)
		b.SetBytes(bulk)
		for b.Loop() {
			s, err := x.Open(context.Background(), y.Key(), "bulk")
			must(b, err)
			_, err = s.s.Write(nil)
			must(b, err)
			n, err := s.ReadInto(io.Discard, bulk)
			must(b, err)
			if n != bulk {
				b.Fatal(n)
			}
			_ = s.Close()
		}
	})
}

type onlyWriter struct{ w io.Writer }

func (o onlyWriter) Write(p []byte) (int, error) { return o.w.Write(p) }

// BenchmarkIdlePeers says what fifty connected nodes that do nothing cost one of them. They run in processes of their own.
func BenchmarkIdlePeers(b *testing.B) {
	const peers = 50
	for b.Loop() {
		a := start(b, "a", nil)
		debug.FreeOSMemory()
		heap, rss := used(), resident(b)
		c := crowd(b, peers, a.Addrs()[0])
		until(b, "the crowd", func() bool { return len(a.Connected()) == peers })
		debug.FreeOSMemory()
		b.ReportMetric(float64(int64(used())-int64(heap))/(1<<20), "heap+stack-MB")
		b.ReportMetric(float64(resident(b)-rss)/(1<<20), "rss-MB")
		c()
		must(b, a.Close())
	}
}

// resident is the process's resident memory in bytes.
func resident(b *testing.B) int64 {
	b.Helper()
	if runtime.GOOS != "linux" {
		return 0
	}
	text, err := os.ReadFile("/proc/self/statm")
	must(b, err)
	var size, pages int64
	if _, err := fmt.Sscan(string(text), &size, &pages); err != nil {
		b.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}

// crowd has a process of its own connect many nodes to addr, and returns what ends it.
func crowd(b *testing.B, n int, addr string) func() {
	b.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestCrowd$")
	cmd.Env = append(os.Environ(), "LINK_CROWD="+addr, fmt.Sprintf("LINK_CROWD_SIZE=%d", n))
	in, err := cmd.StdinPipe()
	must(b, err)
	must(b, cmd.Start())
	return func() { _ = in.Close(); _ = cmd.Wait() }
}

// TestCrowd is the other process of crowd: it stays until its input ends.
func TestCrowd(t *testing.T) {
	addr := os.Getenv("LINK_CROWD")
	if addr == "" {
		t.Skip("only for BenchmarkIdlePeers")
	}
	var n int
	if _, err := fmt.Sscan(os.Getenv("LINK_CROWD_SIZE"), &n); err != nil {
		t.Fatal(err)
	}
	info, err := peer.AddrInfoFromString(addr)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		x := start(t, fmt.Sprintf("crowd-%d", i), nil)
		if err := x.Connect(within(t), info.ID.String(), []string{addr}); err != nil {
			t.Fatal(err)
		}
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
}
