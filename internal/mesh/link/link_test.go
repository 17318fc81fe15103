package link

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	quic "github.com/libp2p/go-libp2p/p2p/transport/quic"
	"github.com/libp2p/go-libp2p/p2p/transport/tcp"
	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"
	"go.uber.org/goleak"
)

// Close leaves nothing running, whatever a test did.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds what a test waits for that should come at once.
const patience = 20 * time.Second

const (
	tcpHere  = "/ip4/127.0.0.1/tcp/0"
	quicHere = "/ip4/127.0.0.1/udp/0/quic-v1"
)

// node is a Host with what it was told.
type node struct {
	*Host
	mu       sync.Mutex
	standing map[string]Standing
	others   Standing // of those not in the map
	edges    chan string
	refusals chan string
}

func keyFor(name string) ed25519.PrivateKey {
	seed := sha256.Sum256([]byte(name))
	return ed25519.NewKeyFromSeed(seed[:])
}

func keyText(name string) string { return KeyOf(keyFor(name).Public().(ed25519.PublicKey)) }

func (n *node) say(key string, s Standing) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.standing[key] = s
}

func (n *node) ask(key string) Standing {
	n.mu.Lock()
	defer n.mu.Unlock()
	if s, ok := n.standing[key]; ok {
		return s
	}
	return n.others
}

// start makes a node that knows everybody, unless change says otherwise.
func start(t testing.TB, name string, change func(*Config, *node)) *node {
	t.Helper()
	n := &node{standing: map[string]Standing{}, others: Known, edges: make(chan string, 1000), refusals: make(chan string, 100_000)}
	cfg := Config{Key: keyFor(name), Listen: []string{tcpHere}, Standing: n.ask, Log: slog.New(slog.DiscardHandler),
		OnPeer: func(key string, on bool) {
			if on {
				n.edges <- "+" + key
			} else {
				n.edges <- "-" + key
			}
		},
		OnRefused: func(_, why string) { n.refusals <- why },
		Protocols: []Protocol{echo("echo")}}
	if change != nil {
		change(&cfg, n)
	}
	h, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	n.Host = h
	t.Cleanup(func() {
		began := time.Now()
		if err := h.Close(); err != nil {
			t.Errorf("close %s: %v", name, err)
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("close of %s took %v", name, took)
		}
	})
	if err := h.Start(); err != nil {
		t.Fatal(err)
	}
	return n
}

type word struct {
	Text string `json:"text"`
}

// echo answers each frame with itself until the other end has no more.
func echo(name string) Protocol {
	return Protocol{Name: name, Version: 1, MaxFrame: 64 << 10, Concurrent: 8, Rate: Rate{10_000, time.Minute}, Idle: patience, Total: time.Minute,
		Serve: func(_ context.Context, _ string, s *Stream) error {
			for {
				var w word
				if err := s.Receive(&w); err != nil {
					return err
				}
				if err := s.Send(w); err != nil {
					return err
				}
			}
		}}
}

func with(protocols ...Protocol) func(*Config, *node) {
	return func(c *Config, _ *node) { c.Protocols = protocols }
}

func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// join connects a to b.
func join(t testing.TB, a, b *node) {
	t.Helper()
	if err := a.Connect(within(t), b.Key(), b.Addrs()); err != nil {
		t.Fatal(err)
	}
}

func open(t testing.TB, a, b *node, name string) *Stream {
	t.Helper()
	s, err := a.Open(within(t), b.Key(), name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Reset)
	return s
}

// talk sends a word over a fresh stream and wants it back.
func talk(t testing.TB, a, b *node, name string) error {
	t.Helper()
	s, err := a.Open(within(t), b.Key(), name)
	if err != nil {
		return err
	}
	defer s.Reset()
	if err := s.Send(word{"hello"}); err != nil {
		return err
	}
	var back word
	if err := s.Receive(&back); err != nil {
		return err
	}
	if back.Text != "hello" {
		t.Errorf("came back as %q", back.Text)
	}
	return nil
}

func next[T any](t testing.TB, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("no %s", what)
		panic("unreachable")
	}
}

// until wants a condition that the library brings about on its own time.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	end := time.After(patience)
	for !ok() {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("never: %s", what)
		}
	}
}

func has(addrs []string, part string) bool {
	for _, a := range addrs {
		if strings.Contains(a, part) {
			return true
		}
	}
	return false
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// foreign is a host of the library as it comes, which no rule of this package holds back.
func foreign(t testing.TB, options ...libp2p.Option) host.Host {
	t.Helper()
	x, err := libp2p.New(append([]libp2p.Option{libp2p.ListenAddrStrings(tcpHere), libp2p.DisableMetrics(), libp2p.ResourceManager(&network.NullResourceManager{}),
		libp2p.Transport(tcp.NewTCPTransport), libp2p.Transport(quic.NewTransport)}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = x.Close() })
	return x
}

// announce makes a host say that it is also at addr.
func announce(t testing.TB, addr net.Addr) func([]ma.Multiaddr) []ma.Multiaddr {
	t.Helper()
	m, err := manet.FromNetAddr(addr)
	if err != nil {
		t.Fatal(err)
	}
	return func(own []ma.Multiaddr) []ma.Multiaddr { return append(slices.Clone(own), m) }
}

func listens(x host.Host) []string {
	var out []string
	for _, a := range x.Network().ListenAddresses() {
		out = append(out, a.String())
	}
	return out
}

func texts(x host.Host) []string {
	var out []string
	for _, a := range x.Addrs() {
		out = append(out, a.String())
	}
	return out
}
