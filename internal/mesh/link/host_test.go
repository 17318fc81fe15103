package link

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	ma "github.com/multiformats/go-multiaddr"
)

// M1: nodes talk over TCP and over QUIC, each told of the other once.
func TestTransports(t *testing.T) {
	for name, listen := range map[string]string{"tcp": tcpHere, "quic": quicHere} {
		t.Run(name, func(t *testing.T) {
			a := start(t, "a", func(c *Config, _ *node) { c.Listen = []string{listen} })
			b := start(t, "b", func(c *Config, _ *node) { c.Listen = []string{listen} })
			join(t, a, b)
			if err := talk(t, a, b, "echo"); err != nil {
				t.Fatal(err)
			}
			if err := talk(t, b, a, "echo"); err != nil { // the connection serves both ways
				t.Fatal(err)
			}
			if e := next(t, a.edges, "edge"); e != "+"+b.Key() {
				t.Errorf("a was told %s", e)
			}
			if !a.Online(b.Key()) || len(a.Connected()) != 1 || !has(a.PeerAddrs(b.Key()), "/127.0.0.1/") || len(b.PeerAddrs(a.Key())) != 0 {
				t.Errorf("a: %v %v; b: %v", a.Connected(), a.PeerAddrs(b.Key()), b.PeerAddrs(a.Key()))
			}
			a.Disconnect(b.Key())
			if e := next(t, b.edges, "edge"); e != "+"+a.Key() {
				t.Errorf("b was told %s", e)
			}
			if e := next(t, b.edges, "edge"); e != "-"+a.Key() {
				t.Errorf("b was told %s", e)
			}
			if len(a.edges) > 1 || len(b.edges) > 0 {
				t.Error("more edges than there were")
			}
		})
	}
}

// M1: a key is pinned: another node's address does not answer for it, and the wrong node learns of no stream.
func TestWrongKey(t *testing.T) {
	for name, listen := range map[string]string{"tcp": tcpHere, "quic": quicHere} {
		t.Run(name, func(t *testing.T) {
			a := start(t, "a", func(c *Config, _ *node) { c.Listen = []string{listen} })
			b := start(t, "b", func(c *Config, _ *node) { c.Listen = []string{listen} })
			bare, _, _ := strings.Cut(b.Addrs()[0], "/p2p/")
			wrong := keyText("c")
			if err := a.Connect(within(t), wrong, []string{bare}); err == nil {
				t.Fatal("b answered for c")
			}
			if a.Online(wrong) || a.Online(b.Key()) || len(a.edges) > 0 {
				t.Error("a connection came of it")
			}
			// An address that names b is not dialled for c at all.
			if err := a.Connect(within(t), keyText("d"), b.Addrs()); err == nil {
				t.Fatal("b answered for d")
			}
		})
	}
}

// A stranger's connection ends with the handshake: no stream, no identify, no edge; and no stranger is called.
func TestStranger(t *testing.T) {
	for name, listen := range map[string]string{"tcp": tcpHere, "quic": quicHere} {
		t.Run(name, func(t *testing.T) {
			a := start(t, "a", func(c *Config, n *node) { c.Listen, n.others = []string{listen}, Stranger })
			learnt := make(chan string, 1)
			x := foreign(t)
			x.Network().Notify(&network.NotifyBundle{DisconnectedF: func(network.Network, network.Conn) {
				select {
				case learnt <- "closed":
				default:
				}
			}})
			info := infoOf(t, a)
			if err := x.Connect(within(t), info); err == nil { // the dialler may be done with the handshake first
				next(t, learnt, "end of the connection")
			}
			if s, err := x.NewStream(network.WithNoDial(within(t), "test"), info.ID, "/atoll/echo/1"); err == nil {
				_ = s.Reset()
				t.Error("a stranger has a stream")
			}
			if v, err := x.Peerstore().Get(info.ID, "AgentVersion"); err == nil {
				t.Errorf("a stranger was told %v", v)
			}
			if p, _ := x.Peerstore().GetProtocols(info.ID); len(p) > 0 {
				t.Errorf("a stranger was told of %v", p)
			}
			if why := next(t, a.refusals, "refusal"); why != "a connection of a stranger" {
				t.Errorf("refused for %s", why)
			}
			if len(a.edges) > 0 || len(a.Connected()) > 0 {
				t.Error("a stranger counts as connected")
			}
			if err := a.Connect(within(t), x.ID().String(), texts(x)); err == nil {
				t.Error("a stranger was called")
			}
		})
	}
}

// What a known node is told of this one: a name of the program without a version, and no protocol that is not used.
func TestIdentify(t *testing.T) {
	a, x := start(t, "a", nil), foreign(t)
	info := infoOf(t, a)
	if err := x.Connect(within(t), info); err != nil {
		t.Fatal(err)
	}
	until(t, "identify", func() bool { p, _ := x.Peerstore().GetProtocols(info.ID); return len(p) > 0 })
	if v, _ := x.Peerstore().Get(info.ID, "AgentVersion"); v != agent {
		t.Errorf("agent %v", v)
	}
	allowed := map[protocol.ID]bool{"/ipfs/id/1.0.0": true, "/ipfs/id/push/1.0.0": true, "/libp2p/dcutr": true, "/libp2p/circuit/relay/0.2.0/stop": true,
		"/atoll/": true, "/atoll/echo/1": true, "/atoll/unknown/1": true}
	got, _ := x.Peerstore().GetProtocols(info.ID)
	for _, p := range got {
		if !allowed[p] {
			t.Errorf("%s is served", p)
		}
	}
	for _, p := range []protocol.ID{"/ipfs/ping/1.0.0", "/libp2p/autonat/1.0.0", "/libp2p/circuit/relay/0.2.0/hop", "/ipfs/kad/1.0.0", "/other/1"} {
		if s, err := x.NewStream(within(t), info.ID, p); err == nil {
			_ = s.Reset()
			t.Errorf("%s is served", p)
		}
	}
}

// Nothing is dialled that the owner did not name: not at the start, not what another node says of itself, not again after
// a connection ends.
func TestDialsOnlyNamed(t *testing.T) {
	trap, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var calls atomic.Int32
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := trap.Accept()
			if err != nil {
				return
			}
			calls.Add(1)
			_ = c.Close()
		}
	}()
	defer func() { _ = trap.Close(); <-done }()
	a := start(t, "a", nil)
	// x announces the trap as an address of its own.
	x := foreign(t, libp2p.AddrsFactory(announce(t, trap.Addr())))
	id := x.ID().String()
	real := listens(x)
	if err := a.Connect(within(t), id, real); err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(trap.Addr().String())
	until(t, "x's word of itself", func() bool {
		return slices.ContainsFunc(a.host.Peerstore().Addrs(x.ID()), func(m ma.Multiaddr) bool { return strings.HasSuffix(m.String(), "/"+port) })
	})
	_ = x.Network().ClosePeer(a.self)
	until(t, "the end of the connection", func() bool { return !a.Online(id) })
	if err := a.Connect(within(t), id, real); err != nil {
		t.Fatal(err)
	}
	a.Disconnect(id)
	if err := a.Connect(within(t), id, nil); err == nil {
		t.Error("a node was called at an address that it gave itself")
	}
	if n := calls.Load(); n > 0 {
		t.Errorf("the trap was called %d times", n)
	}
	// The trap works.
	_ = a.Connect(within(t), id, []string{"/ip4/127.0.0.1/tcp/" + port})
	until(t, "the trap called", func() bool { return calls.Load() > 0 })
}

// A block takes effect on what runs: streams end, their contexts too, and the node does not come back.
func TestDisconnectEndsStreams(t *testing.T) {
	began, ended := make(chan struct{}), make(chan error, 1)
	p := echo("long")
	p.Serve = func(ctx context.Context, _ string, _ *Stream) error {
		close(began)
		<-ctx.Done()
		ended <- ctx.Err()
		return ctx.Err()
	}
	a, b := start(t, "a", with(p)), start(t, "b", with(p))
	join(t, b, a)
	s := open(t, b, a, "long")
	if err := s.Send(word{"x"}); err != nil {
		t.Fatal(err)
	}
	next(t, began, "stream")
	a.say(b.Key(), Stranger)
	a.Disconnect(b.Key())
	next(t, ended, "end of the stream's context")
	if err := s.Receive(&word{}); err == nil {
		t.Error("the blocked node's stream goes on")
	}
	until(t, "b disconnected", func() bool { return !b.Online(a.Key()) })
	if err := b.Connect(within(t), a.Key(), a.Addrs()); err == nil {
		until(t, "b shown out", func() bool { return !b.Online(a.Key()) })
	}
	if a.Online(b.Key()) {
		t.Error("a blocked node is connected")
	}
}

// Standing is asked again at each stream.
func TestStandingOfStream(t *testing.T) {
	pair := echo("pair")
	pair.Open = true
	a, b := start(t, "a", with(echo("echo"), pair)), start(t, "b", with(echo("echo"), pair))
	join(t, b, a)
	if err := talk(t, b, a, "echo"); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		as         Standing
		echo, pair string
	}{{Guest, "forbidden", ""}, {Stranger, "forbidden", "forbidden"}, {Known, "", ""}} {
		a.say(b.Key(), tc.as)
		for name, want := range map[string]string{"echo": tc.echo, "pair": tc.pair} {
			got := ""
			if err := talk(t, b, a, name); err != nil {
				if f := Said(err); f != nil {
					got = string(f.Code)
				} else {
					got = err.Error()
				}
			}
			if got != want {
				t.Errorf("%s for %d: %q, want %q", name, tc.as, got, want)
			}
		}
	}
}

// What New refuses.
func TestNewChecks(t *testing.T) {
	good := func() Config {
		return Config{Key: keyFor("a"), Standing: func(string) Standing { return Known }, Log: quiet(), Protocols: []Protocol{echo("echo")}}
	}
	for name, spoil := range map[string]func(*Config){
		"no key":        func(c *Config) { c.Key = nil },
		"no standing":   func(c *Config) { c.Standing = nil },
		"no log":        func(c *Config) { c.Log = nil },
		"twice":         func(c *Config) { c.Protocols = append(c.Protocols, echo("echo")) },
		"reserved":      func(c *Config) { c.Protocols = append(c.Protocols, echo("unknown")) },
		"slash":         func(c *Config) { c.Protocols[0].Name = "a/b" },
		"no rate":       func(c *Config) { c.Protocols[0].Rate = Rate{} },
		"no version":    func(c *Config) { c.Protocols[0].Version = 0 },
		"no idle":       func(c *Config) { c.Protocols[0].Idle = 0 },
		"no serve":      func(c *Config) { c.Protocols[0].Serve = nil },
		"keyless relay": func(c *Config) { c.Relays = []string{"/ip4/192.0.2.1/tcp/8421"} },
		"no relay":      func(c *Config) { c.Relays = []string{"relay.example"} },
	} {
		c := good()
		spoil(&c)
		if h, err := New(c); err == nil {
			_ = h.Close()
			t.Errorf("%s: accepted", name)
		}
	}
	h, err := New(good())
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // before Start, and again
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Close ends what is served, promptly.
func TestCloseEndsStreams(t *testing.T) {
	began, ended := make(chan struct{}), make(chan struct{})
	p := echo("long")
	p.Serve = func(ctx context.Context, _ string, _ *Stream) error {
		close(began)
		<-ctx.Done()
		close(ended)
		return nil
	}
	a, b := start(t, "a", with(p)), start(t, "b", with(p))
	join(t, b, a)
	if err := open(t, b, a, "long").Send(word{}); err != nil {
		t.Fatal(err)
	}
	next(t, began, "stream")
	at := time.Now()
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	select {
	case <-ended:
	default:
		t.Error("Close did not wait for the stream")
	}
	if took := time.Since(at); took > 5*time.Second {
		t.Errorf("Close took %v", took)
	}
}

// Nodes on one network hear of each other, and nothing more comes of it than OnFound.
func TestDiscover(t *testing.T) {
	if !multicasts() {
		t.Skip("this machine has no interface for multicast")
	}
	found := make(chan string, 100)
	change := func(c *Config, _ *node) {
		c.Discover, c.Listen = true, []string{"/ip4/0.0.0.0/tcp/0"}
		c.OnFound = func(key string, addrs []string) {
			if len(addrs) > 0 {
				select {
				case found <- key:
				default:
				}
			}
		}
	}
	a, b := start(t, "a", change), start(t, "b", change)
	for seen := map[string]bool{}; !seen[a.Key()] || !seen[b.Key()]; {
		seen[next(t, found, "node on the local network")] = true
	}
	if a.Online(b.Key()) || len(a.edges)+len(b.edges) > 0 {
		t.Error("a node that was found was called")
	}
}

func multicasts() bool {
	all, _ := net.Interfaces()
	for _, i := range all {
		if addrs, _ := i.Addrs(); i.Flags&net.FlagMulticast != 0 && i.Flags&net.FlagUp != 0 && i.Flags&net.FlagLoopback == 0 && len(addrs) > 0 {
			return true
		}
	}
	return false
}

func infoOf(t testing.TB, n *node) peer.AddrInfo {
	t.Helper()
	info, err := peer.AddrInfoFromString(n.Addrs()[0])
	if err != nil {
		t.Fatal(err)
	}
	return *info
}
