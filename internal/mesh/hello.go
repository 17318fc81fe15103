package mesh

import (
	"context"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	ma "github.com/multiformats/go-multiaddr"

	"atoll/internal/fault"
	"atoll/internal/mesh/link"
)

// Times of keeping in touch.
const (
	lookEvery    = 5 * time.Second  // how often the room looks whom to call
	firstRetry   = 5 * time.Second  // after a call that failed; doubled each time
	lastRetry    = 5 * time.Minute  // the longest pause between two calls
	refreshEvery = 10 * time.Minute // status and catalogue of a connected peer
	callTime     = 30 * time.Second
)

// hello is what two nodes that know each other say first. Each hands the other back the newest statement that it has
// signed: a node that was restored from an old copy learns by its own signature that it once knew more.
type hello struct {
	Name      string   `json:"name"`
	Version   string   `json:"version"`
	Addrs     []string `json:"addrs"`
	Admits    bool     `json:"admits"` // the sender lets the other one in
	Statement []byte   `json:"statement"`
	Yours     []byte   `json:"yours,omitzero"`
}

func (r *Room) greeting(key string) hello {
	h := hello{Name: plainName(r.cfg.Name())}
	if p := r.peer(key); p != nil {
		h.Admits, h.Yours = p.state == paired, p.statement
	}
	if h.Admits { // before it is let in, where and what this node is is not told
		h.Version, h.Statement, h.Addrs = r.cfg.Version, r.statement(), r.host.Addrs()
		h.Addrs = h.Addrs[:min(len(h.Addrs), maxAddrs)]
	}
	return h
}

func (r *Room) serveHello(ctx context.Context, from string, s *link.Stream) error {
	var theirs hello
	if err := s.Receive(&theirs); err != nil {
		return err
	}
	if r.peer(from) == nil {
		return fault.New(fault.Forbidden, "this node does not know you; pair with an invite first")
	}
	// What is handed back is what was kept before: a restored node that has decided much since would cover it up.
	ours := r.greeting(from)
	r.checkRestored(ctx, theirs.Yours)
	if err := s.Send(ours); err != nil {
		return err
	}
	r.heard(ctx, from, theirs)
	return nil
}

// heard keeps what a peer says about itself, and looks at what it hands back.
func (r *Room) heard(ctx context.Context, key string, h hello) {
	r.checkRestored(ctx, h.Yours)
	pub, err := link.PublicKey(key)
	if err != nil {
		return // unreachable unless the host verified a key that is none
	}
	r.note(ctx, key, func(p *peer) {
		p.name, p.admits, p.seen = plainName(h.Name), h.Admits, r.cfg.Clock.Now()
		p.version = plainName(h.Version)
		if addrs := goodAddrs(h.Addrs); len(addrs) > 0 {
			p.addrs = addrs
		}
		next, ok := readStatement(pub, h.Statement)
		if old, _ := readStatement(pub, p.statement); ok && next.generation > old.generation {
			p.statement = h.Statement
		}
	})
}

// onPeer is told by the host of the first and the last connection of a peer: the one is greeted, the other called again.
func (r *Room) onPeer(key string, _ bool) {
	r.soon(key)
	r.cfg.Changed()
}

// onFound is told of a node on the local network. Where many wait already, it is found again later.
func (r *Room) onFound(key string, addrs []string) {
	select {
	case r.found <- sighting{key, addrs}:
	default:
	}
}

// sighting is where a node was seen on the local network: its own claim, which the transport checks when it is called.
type sighting struct {
	key   string
	addrs []string
}

// soon has the peer called without waiting for its turn. Where many wait already, its turn comes anyhow.
func (r *Room) soon(key string) {
	select {
	case r.wake <- key:
	default:
	}
}

// attempt is when to call a peer next.
type attempt struct {
	at    time.Duration // by the monotonic clock
	pause time.Duration
}

// Run keeps in touch with the peers until ctx ends: it calls those that are not connected, ever more rarely, and asks
// those that are how they stand and what they share.
func (r *Room) Run(ctx context.Context) {
	if r.host == nil {
		return
	}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	next := map[string]attempt{}
	done := make(chan called)
	busy := map[string]bool{}
	tried := map[string]time.Duration{} // when a sighting of a peer counts again
	call := func(key string, seen ...string) {
		if p := r.peer(key); p == nil || p.state != paired || busy[key] || len(busy) >= maxCalls || r.isRadio(key) {
			return
		}
		busy[key] = true
		go func() { // ends with ctx, and is waited for below
			done <- called{key, r.keep(ctx, key, seen...)}
		}()
	}
	look := func() {
		for _, p := range r.snapshot() {
			if r.cfg.Clock.Mono() >= next[p.key].at {
				call(p.key)
			}
		}
	}
	look()
	for {
		select {
		case <-ctx.Done():
			for range busy {
				<-done
			}
			return
		case c := <-done:
			delete(busy, c.key)
			a := next[c.key]
			if c.err == nil {
				a = attempt{pause: 0, at: r.cfg.Clock.Mono() + refreshEvery}
			} else {
				a.pause = min(max(2*a.pause, firstRetry), lastRetry)
				a.at = r.cfg.Clock.Mono() + a.pause + rand.N(a.pause/4)
			}
			next[c.key] = a
		case key := <-r.wake:
			call(key)
		case f := <-r.found:
			// Anybody can announce anything, so it is tried, not often, and not kept: what the peer says itself is.
			if now := r.cfg.Clock.Mono(); !r.host.Online(f.key) && r.peer(f.key) != nil && now >= tried[f.key] {
				tried[f.key] = now + firstRetry
				call(f.key, nearby(f.addrs)...)
			}
		case <-tick.C:
			look()
		}
	}
}

// nearby keeps the addresses that can be of the local network: no names, no relays, nothing public but the IPv6 addresses
// that such a network has too.
func nearby(addrs []string) []string {
	return slices.DeleteFunc(slices.Clone(addrs), func(a string) bool {
		m, err := ma.NewMultiaddr(a)
		if err != nil {
			return true
		}
		ip, err := netip.ParseAddr(first(m))
		_, circuit := m.ValueForProtocol(ma.P_CIRCUIT)
		return err != nil || circuit == nil || ip.Is4() && !ip.IsPrivate() && !ip.IsLoopback() && !ip.IsLinkLocalUnicast()
	})
}

// maxCalls bounds the peers that are called at once.
const maxCalls = 8

type called struct {
	key string
	err error
}

// keep connects to a peer, says hello and asks what it has; who asks meanwhile gets the same outcome.
func (r *Room) keep(ctx context.Context, key string, seen ...string) error {
	_, err, _ := r.keeping.Do(key, func() (any, error) { return nil, r.keepOnce(ctx, key, seen) })
	return err
}

// keepAnew is keep by a run that begins after the call.
func (r *Room) keepAnew(ctx context.Context, key string) (err error) {
	for range 2 { // the second run cannot be one that was under way
		mine := false
		_, err, _ = r.keeping.Do(key, func() (any, error) { mine = true; return nil, r.keepOnce(ctx, key, nil) })
		if mine {
			break
		}
	}
	return err
}

func (r *Room) keepOnce(ctx context.Context, key string, seen []string) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	p := r.peer(key)
	if p == nil {
		return nil
	}
	if err := r.host.Connect(ctx, key, append(seen, p.addrs...)); err != nil {
		return err
	}
	var theirs hello
	if err := r.exchange(ctx, key, "hello", r.greeting(key), &theirs); err != nil {
		return err
	}
	r.heard(ctx, key, theirs)
	if !theirs.Admits {
		return nil
	}
	if err := r.refresh(ctx, key); err != nil {
		r.cfg.Log.Debug("a peer's state was not read", "peer", key, "err", err)
	}
	return nil
}
