package link

import (
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"

	"atoll/internal/fault"
)

// Connections of one address stay within their number, whatever they do not say, and a known node gets through meanwhile.
func TestConnectionFlood(t *testing.T) {
	const most, calls = 4, 1000
	a := start(t, "a", func(c *Config, _ *node) {
		c.Limits = Limits{Inbound: 64, PerAddress: most}
		c.Listen = []string{"/ip4/127.0.0.1/tcp/0"}
	})
	b := start(t, "b", nil)
	addr := tcpAddr(t, a)
	before := used()
	from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}, Timeout: patience}
	open := make([]net.Conn, 0, calls)
	defer func() {
		for _, c := range open {
			_ = c.Close()
		}
	}()
	for range calls {
		c, err := from.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, c)
	}
	join(t, b, a)
	if err := talk(t, b, a, "echo"); err != nil {
		t.Fatal(err)
	}
	// All but a few were closed by now: reading such a one to its end takes no time.
	alive := 0
	for _, c := range open {
		_ = c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		_, err := io.Copy(io.Discard, c)
		if e, ok := errors.AsType[net.Error](err); ok && e.Timeout() {
			alive++
		}
	}
	if alive == 0 {
		t.Error("none of them is open, so there was no flood")
	}
	if alive > most {
		t.Errorf("%d connections of one address are open, %d may be", alive, most)
	}
	if grew := int64(used()) - int64(before); grew > 16<<20 {
		t.Errorf("%d MB more", grew>>20)
	}
}

func used() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}

func tcpAddr(t *testing.T, n *node) string {
	t.Helper()
	m := ma.StringCast(n.Addrs()[0])
	port, err := m.ValueForProtocol(ma.P_TCP)
	if err != nil {
		t.Fatal(err)
	}
	return "127.0.0.1:" + port
}

// Guests: few at once, few of one address, not for long, and known nodes have their places beside them.
func TestGuests(t *testing.T) {
	pair := echo("pair")
	pair.Open, pair.Rate = true, Rate{3, time.Hour}
	all := with(echo("echo"), pair)
	a := start(t, "a", func(c *Config, n *node) { all(c, n); n.others = Guest })
	b, c, d := start(t, "b", all), start(t, "c", all), start(t, "d", all)
	join(t, b, a)
	join(t, c, a)
	if err := d.Connect(within(t), a.Key(), a.Addrs()); err == nil {
		until(t, "d shown out", func() bool { return !d.Online(a.Key()) })
	}
	if why := next(t, a.refusals, "refusal"); why != "too many guests" {
		t.Errorf("refused for %s", why)
	}
	if f := Said(talk(t, b, a, "echo")); f == nil || f.Code != fault.Forbidden {
		t.Errorf("a guest at a closed protocol: %+v", f)
	}
	for i := range 3 { // the guests of one address share its rate, so that a new key is no new start
		if err := talk(t, []*node{b, c}[i%2], a, "pair"); err != nil {
			t.Fatal(err)
		}
	}
	if f := Said(talk(t, c, a, "pair")); f == nil || f.Code != fault.RateLimited {
		t.Errorf("a guest above the rate: %+v", f)
	}
	a.say(d.Key(), Known)
	join(t, d, a)
	for _, name := range []string{"echo", "pair"} {
		if err := talk(t, d, a, name); err != nil {
			t.Errorf("a known node at %s: %v", name, err)
		}
	}
	// A place that was left is free again.
	e := start(t, "e", all)
	b.Disconnect(a.Key())
	until(t, "b gone", func() bool { return !a.Online(b.Key()) })
	join(t, e, a)
	if err := e.host.Network().ClosePeer(a.self); err != nil {
		t.Error(err)
	}
}

// A guest that has not become known goes; one that has stays.
func TestGuestTime(t *testing.T) {
	a := start(t, "a", func(c *Config, n *node) { n.others, c.Limits.GuestTime = Guest, 200*time.Millisecond })
	b, c := start(t, "b", nil), start(t, "c", nil)
	join(t, b, a)
	join(t, c, a)
	a.say(c.Key(), Known)
	until(t, "b shown out", func() bool { return !a.Online(b.Key()) })
	until(t, "c looked at", func() bool { a.Host.mu.Lock(); defer a.Host.mu.Unlock(); return len(a.guests) == 0 })
	if err := talk(t, c, a, "echo"); err != nil {
		t.Error(err)
	}
}

// A and B reach each other through R, which carries only for nodes it knows; a relay named by its user is let in no
// further than that.
func TestRelay(t *testing.T) {
	direct := echo("fetch")
	direct.Direct = true
	both := with(echo("echo"), direct)
	r := start(t, "r", func(c *Config, n *node) { both(c, n); c.ServeRelay = true })
	through := func(c *Config, n *node) {
		both(c, n)
		c.Relays = r.Addrs()
		n.standing[r.Key()] = Stranger // a relay need not be known
	}
	a, b := start(t, "a", through), start(t, "b", through)
	var circuit []string
	until(t, "a reachable through r", func() bool {
		circuit = nil
		for _, addr := range a.Addrs() {
			if strings.Contains(addr, "/p2p-circuit/") {
				circuit = append(circuit, addr)
			}
		}
		return len(circuit) > 0
	})
	until(t, "b connected through r", func() bool { return b.Connect(within(t), a.Key(), circuit) == nil }) // a's reservation comes after its connection
	for _, c := range b.host.Network().ConnsToPeer(a.self) {
		if _, err := c.RemoteMultiaddr().ValueForProtocol(ma.P_CIRCUIT); err != nil {
			t.Errorf("not through the relay: %s", c.RemoteMultiaddr())
		}
	}
	for _, name := range []string{"echo", "fetch"} { // our relays do not limit what they carry
		if err := talk(t, b, a, name); err != nil {
			t.Errorf("%s through the relay: %v", name, err)
		}
	}
	if err := talk(t, r, a, "echo"); err == nil || Said(err) == nil || Said(err).Code != fault.Forbidden {
		t.Errorf("the relay itself: %v", err)
	}
	// A stranger of R's is carried nowhere, though A would let him in; nor is one whom R knows carried to one whom it does not.
	c := start(t, "c", both)
	r.say(c.Key(), Stranger)
	if err := c.Connect(within(t), a.Key(), circuit); err == nil {
		t.Error("r carries for a stranger")
	}
	r.say(c.Key(), Guest)
	if err := c.Connect(within(t), a.Key(), circuit); err == nil {
		t.Error("r carries for a guest")
	}
	r.say(c.Key(), Known)
	r.say(a.Key(), Guest)
	if err := c.Connect(within(t), a.Key(), circuit); err == nil {
		t.Error("r carries to a guest")
	}
	r.say(a.Key(), Known)
	if err := c.Connect(within(t), a.Key(), circuit); err != nil {
		t.Errorf("c through r, whom only the address names: %v", err)
	}
}

// A stream that needs a direct connection is refused on one that a relay limits.
func TestLimitedConnection(t *testing.T) {
	p := echo("fetch")
	p.Direct = true
	h := start(t, "a", with(p, echo("echo")))
	for name, want := range map[string]fault.Code{"fetch": fault.Unavailable, "echo": ""} {
		why, f := h.enter(limited{}, h.protocols[name])
		if (f == nil) != (want == "") || f != nil && (f.Code != want || why == "") {
			t.Errorf("%s: %v %v", name, why, f)
		}
	}
}

type limited struct{ network.Conn }

func (limited) RemotePeer() peer.ID {
	id, _ := peer.Decode(keyText("b"))
	return id
}

func (limited) RemoteMultiaddr() ma.Multiaddr { return ma.StringCast("/ip4/192.0.2.1/tcp/1") }

func (limited) Stat() network.ConnStats {
	return network.ConnStats{Stats: network.Stats{Limited: true}}
}

// A relay that serves nobody: without ServeRelay there is none.
func TestNoRelayService(t *testing.T) {
	r := start(t, "r", nil)
	a := start(t, "a", func(c *Config, _ *node) { c.Relays = r.Addrs() })
	until(t, "a connected to r", func() bool { return a.Online(r.Key()) })
	b := start(t, "b", nil)
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	if err := b.Connect(ctx, a.Key(), []string{r.Addrs()[0] + "/p2p-circuit"}); err == nil {
		t.Error("r carries")
	}
}

func TestNamed(t *testing.T) {
	for _, tc := range []struct {
		named, dialled string
		want           bool
	}{
		{"/ip4/192.0.2.1/tcp/1", "/ip4/192.0.2.1/tcp/1", true},
		{"/ip4/192.0.2.1/tcp/1", "/ip4/192.0.2.1/tcp/2", false},
		{"/ip4/192.0.2.1/tcp/1", "/ip4/192.0.2.2/tcp/1", false},
		{"/ip4/192.0.2.1/tcp/1", "/ip4/192.0.2.1/udp/1/quic-v1", false},
		{"/dns4/a.example/tcp/1", "/ip4/192.0.2.2/tcp/1", true},
		{"/dns4/a.example/tcp/1", "/ip4/192.0.2.2/tcp/2", false},
		{"/dns/a.example/udp/1/quic-v1", "/ip6/2001:db8::1/udp/1/quic-v1", true},
	} {
		if got := same(ma.StringCast(tc.named), ma.StringCast(tc.dialled)); got != tc.want {
			t.Errorf("%s for %s: %v", tc.dialled, tc.named, got)
		}
	}
}
