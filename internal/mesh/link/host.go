// Package link connects this node with others over libp2p: one identity, authenticated and encrypted connections, and
// framed, limited, versioned streams on them. Whom to let in and what the streams mean is told by its user. It dials no
// address that it was not given.
package link

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/p2p/discovery/mdns"
	"github.com/libp2p/go-libp2p/p2p/host/autorelay"
	"github.com/libp2p/go-libp2p/p2p/protocol/circuitv2/relay"
	quic "github.com/libp2p/go-libp2p/p2p/transport/quic"
	"github.com/libp2p/go-libp2p/p2p/transport/tcp"
	ma "github.com/multiformats/go-multiaddr"

	"atoll/internal/limit"
)

// Standing is what another node may do here. The zero Standing is a stranger's: nothing.
type Standing uint8

// The standings. A Guest may open protocols that are Open.
const (
	Stranger Standing = iota
	Guest
	Known
)

// Rate is an exact sliding window.
type Rate struct {
	Max    int
	Window time.Duration
}

// Protocol is one kind of stream, "/atoll/NAME/VERSION". All limits are for one peer.
type Protocol struct {
	Name       string
	Version    int
	Open       bool          // for guests too
	MaxFrame   int           // bytes, at most 64 MiB
	Concurrent int           // streams at once
	Rate       Rate          // of new streams
	Idle       time.Duration // longest time for one frame, or one chunk of a copy, in either direction
	Total      time.Duration // longest life of a stream
	Direct     bool          // not over a connection that a relay limits
	// Serve answers one stream. ctx ends with the stream's time, the peer's connection and the Host; see Stream.Watch for
	// a peer that gives up. What it returns is told to the peer, as far as it is a peer's business.
	Serve func(ctx context.Context, from string, s *Stream) error
}

// Config is what a Host needs.
type Config struct {
	Key        ed25519.PrivateKey
	Listen     []string // multiaddrs; empty means DefaultListen
	Discover   bool     // tell and hear of nodes on the local network by mDNS
	Relays     []string // multiaddrs with /p2p/…; the host keeps itself reachable through them
	ServeRelay bool     // carry connections between known nodes
	Log        *slog.Logger
	// Standing is asked at each connection and each stream; it must not block.
	Standing func(key string) Standing
	// OnPeer is told of the first and the last connection of a node, OnFound of one on the local network, OnRefused of
	// what was not served, at most refusalsTold times a minute for one node. None may block; all may be nil.
	OnPeer    func(key string, connected bool)
	OnFound   func(key string, addrs []string)
	OnRefused func(key, why string)
	Protocols []Protocol
	Limits    Limits
	Now       func() time.Time // by which requests are counted; nil is the machine's monotonic clock
}

// DefaultListen is where a node listens unless told otherwise.
func DefaultListen() []string {
	return []string{"/ip4/0.0.0.0/tcp/8421", "/ip4/0.0.0.0/udp/8421/quic-v1", "/ip6/::/tcp/8421", "/ip6/::/udp/8421/quic-v1"}
}

// agent is all that a node says about its program.
const agent = "atoll"

// serviceName is under which nodes find each other on a local network.
const serviceName = "_atoll._udp"

const (
	// dialTime bounds one attempt at one address.
	dialTime = 10 * time.Second
	// relayPause is how long a relay that refused is let alone.
	relayPause = time.Minute
	// maxFrame bounds Protocol.MaxFrame, in bytes.
	maxFrame = 64 << 20
	// maxRateKeys bounds the nodes that a protocol's rate is counted for.
	maxRateKeys = 1024
	// refusalsTold is how many refusals of one node, or of all strangers together, OnRefused hears of in a minute.
	refusalsTold = 60
)

// Host is this node among others. It is safe for concurrent use.
type Host struct {
	cfg    Config
	self   peer.ID
	host   host.Host
	mdns   mdns.Service
	relay  *relay.Relay
	relays []peer.AddrInfo

	protocols map[string]*served // by name
	told      *limit.Limiter     // what OnRefused was told

	started chan struct{}   // closed by Start
	ctx     context.Context // ends with the Host
	cancel  context.CancelFunc
	work    sync.WaitGroup // streams being served, guests being shown out

	edge sync.Mutex // held while OnPeer is told, so that edges come in order; taken before mu

	mu       sync.Mutex // guards the rest
	closed   bool
	busy     map[seat]int
	conns    map[peer.ID]int
	running  map[network.Conn]map[*Stream]context.CancelFunc
	guests   map[peer.ID]*guest
	named    map[peer.ID][]ma.Multiaddr // what may be dialled
	carriers map[peer.ID]bool           // relays, which may be dialled whatever their standing
}

// served is a protocol with its counts. Guests are counted by their address and apart, so that invented keys take
// nothing from those who are known.
type served struct {
	Protocol
	known, guests *limit.Limiter
}

// seat counts the streams of one peer in one protocol.
type seat struct {
	peer     peer.ID
	protocol string
}

// guest is a node that may not stay.
type guest struct {
	timer   *time.Timer
	place   string
	inbound bool
}

// New makes a Host. Nothing listens and nobody is called before Start.
func New(cfg Config) (*Host, error) {
	if len(cfg.Key) != ed25519.PrivateKeySize || cfg.Log == nil || cfg.Standing == nil {
		return nil, errors.New("link: a key, a log and Standing are needed")
	}
	key, err := crypto.UnmarshalEd25519PrivateKey(cfg.Key)
	if err != nil {
		return nil, fmt.Errorf("link: %w", err)
	}
	h := &Host{cfg: cfg, started: make(chan struct{}), protocols: map[string]*served{}, busy: map[seat]int{}, conns: map[peer.ID]int{},
		running: map[network.Conn]map[*Stream]context.CancelFunc{}, guests: map[peer.ID]*guest{}, named: map[peer.ID][]ma.Multiaddr{}, carriers: map[peer.ID]bool{}}
	if h.told, err = limit.New(limit.Config{Max: refusalsTold, Window: time.Minute, MaxKeys: maxRateKeys, Now: cfg.Now}); err != nil {
		return nil, fmt.Errorf("link: %w", err)
	}
	for _, p := range append([]Protocol{unknown()}, cfg.Protocols...) {
		if err := h.add(p); err != nil {
			return nil, err
		}
	}
	var all []ma.Multiaddr
	for _, a := range cfg.Relays {
		m, err := ma.NewMultiaddr(a)
		if err != nil {
			return nil, fmt.Errorf("link: the relay %q: %w", a, err)
		}
		all = append(all, m)
	}
	if h.relays, err = peer.AddrInfosFromP2pAddrs(all...); err != nil {
		return nil, fmt.Errorf("link: relays need their key, as in …/p2p/12D3KooW…: %w", err)
	}
	for _, r := range h.relays {
		h.named[r.ID], h.carriers[r.ID] = r.Addrs, true
	}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	if err := h.build(key); err != nil {
		h.cancel()
		return nil, fmt.Errorf("link: %w", err)
	}
	return h, nil
}

func (h *Host) add(p Protocol) error {
	plain := regexp.MustCompile(`^[a-z][a-z0-9-]*$`)
	switch {
	case !plain.MatchString(p.Name), p.Version <= 0, p.MaxFrame <= 0, p.MaxFrame > maxFrame, p.Concurrent <= 0, p.Idle <= 0, p.Total <= 0, p.Serve == nil:
		return fmt.Errorf("link: the protocol %q is not complete", p.Name)
	case h.protocols[p.Name] != nil:
		return fmt.Errorf("link: two protocols %q", p.Name)
	}
	s := &served{Protocol: p}
	for _, l := range []**limit.Limiter{&s.known, &s.guests} {
		var err error
		if *l, err = limit.New(limit.Config{Max: p.Rate.Max, Window: p.Rate.Window, MaxKeys: maxRateKeys, Now: h.cfg.Now}); err != nil {
			return fmt.Errorf("link: the rate of %q: %w", p.Name, err)
		}
	}
	h.protocols[p.Name] = s
	return nil
}

// build makes the library's host with no more than is used here. A fixed reachability keeps it from asking other nodes
// for theirs.
func (h *Host) build(key crypto.PrivKey) error {
	manager, err := h.manager()
	if err != nil {
		return err
	}
	options := []libp2p.Option{libp2p.Identity(key), libp2p.NoListenAddrs, libp2p.UserAgent(agent), libp2p.ProtocolVersion(agent), libp2p.DisableMetrics(),
		libp2p.Transport(tcp.NewTCPTransport), libp2p.Transport(quic.NewTransport), libp2p.DefaultSecurity, libp2p.DefaultMuxers,
		libp2p.ResourceManager(manager), libp2p.ConnectionGater(&gater{h}), libp2p.EnableRelay(), libp2p.EnableHolePunching(), libp2p.Ping(false),
		libp2p.WithDialTimeout(dialTime)}
	if len(h.relays) > 0 {
		n := len(h.relays)
		options = append(options, libp2p.ForceReachabilityPrivate(), libp2p.EnableAutoRelayWithPeerSource(h.relaySource, autorelay.WithMinCandidates(n),
			autorelay.WithMaxCandidates(n), autorelay.WithNumRelays(n), autorelay.WithBootDelay(0), autorelay.WithBackoff(relayPause),
			autorelay.WithMinInterval(relayPause/4)))
	} else {
		options = append(options, libp2p.ForceReachabilityPublic())
	}
	if h.host, err = libp2p.New(options...); err != nil {
		return errors.Join(err, manager.Close())
	}
	h.self = h.host.ID()
	h.host.Network().Notify(&network.NotifyBundle{ConnectedF: h.connected, DisconnectedF: h.disconnected})
	h.handle()
	if h.cfg.ServeRelay {
		h.relay, err = relay.New(h.host, relay.WithACL(&acl{h}), relay.WithInfiniteLimits(),
			relay.WithReservationAddressFilter(func(ma.Multiaddr) bool { return true })) // a relay on the local network is one too
		if err != nil {
			return errors.Join(err, h.host.Close())
		}
	}
	return nil
}

// relaySource gives the library the owner's relays, once the Host has started. It implements autorelay.PeerSource.
func (h *Host) relaySource(ctx context.Context, _ int) <-chan peer.AddrInfo {
	out := make(chan peer.AddrInfo, len(h.relays))
	defer close(out)
	select {
	case <-h.started:
		for _, r := range h.relays {
			out <- r
		}
	case <-ctx.Done():
	case <-h.ctx.Done():
	}
	return out
}

// Start listens, and makes the node known on the local network where that is wanted. It is called once; a Host that could not
// start is to be closed all the same.
func (h *Host) Start() error {
	listen := h.cfg.Listen
	if len(listen) == 0 {
		listen = DefaultListen()
	}
	var addrs []ma.Multiaddr
	for _, a := range listen {
		m, err := ma.NewMultiaddr(a)
		if err != nil {
			return fmt.Errorf("link: mesh.listen: %q: %w", a, err)
		}
		addrs = append(addrs, m)
	}
	if err := h.host.Network().Listen(addrs...); err != nil { // fails only where none of them can be listened on
		return fmt.Errorf("link: cannot listen for other nodes: %w; is the port in use? give others with mesh.listen", err)
	}
	close(h.started)
	if h.cfg.Discover {
		s := mdns.NewMdnsService(h.host, serviceName, found{h})
		if err := s.Start(); err != nil {
			h.cfg.Log.Warn("other nodes on the local network cannot be looked for", "err", err)
			_ = s.Close()
			return nil
		}
		h.mdns = s
	}
	return nil
}

// Close ends all connections and waits for the streams that are served. It may be called again.
func (h *Host) Close() error {
	h.mu.Lock()
	again := h.closed
	h.closed = true
	for _, g := range h.guests {
		g.timer.Stop()
	}
	h.mu.Unlock()
	if again {
		h.work.Wait()
		return nil
	}
	h.cancel()
	var errs []error
	if h.mdns != nil {
		errs = append(errs, h.mdns.Close())
	}
	if h.relay != nil {
		errs = append(errs, h.relay.Close())
	}
	errs = append(errs, h.host.Close())
	h.work.Wait()
	return errors.Join(errs...)
}

// Key is this node's own key.
func (h *Host) Key() string { return h.self.String() }

// Addrs are where others can reach this node, with its key: what it listens on, and its relays as the owner named them,
// while they are connected. (The library would leave a relay on the local network out, and a public address of this node
// where it has a relay.)
func (h *Host) Addrs() []string {
	own := h.host.Addrs()
	if all, ok := h.host.(interface{ AllAddrs() []ma.Multiaddr }); ok {
		own = all.AllAddrs()
	}
	var out []string
	add := func(a string) {
		if a += "/p2p/" + h.self.String(); !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	for _, a := range own {
		add(a.String())
	}
	for _, r := range h.relays {
		if len(h.host.Network().ConnsToPeer(r.ID)) == 0 {
			continue
		}
		for _, a := range r.Addrs {
			add(a.String() + "/p2p/" + r.ID.String() + "/p2p-circuit")
		}
	}
	return out
}

// refused counts what was not served, strangers as one.
func (h *Host) refused(key, why string) {
	if h.cfg.OnRefused == nil {
		return
	}
	who := key
	if h.cfg.Standing(key) != Known {
		who = ""
	}
	if h.told.Allow(who).OK {
		h.cfg.OnRefused(key, why)
	}
}
