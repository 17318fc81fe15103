package link

import (
	"net/netip"
	"slices"
	"time"

	"github.com/libp2p/go-libp2p/core/control"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	rcmgr "github.com/libp2p/go-libp2p/p2p/host/resource-manager"
	"github.com/libp2p/go-libp2p/x/rate"
	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"
)

const (
	// guestsPerAddress is how many guests one address may have at once, so that one flood cannot take all their places.
	guestsPerAddress = 2
	// maxNamed bounds the addresses of one node that may be dialled, maxNamedNodes the nodes.
	maxNamed      = 64
	maxNamedNodes = 1024
)

// Limits bound what all other nodes together may hold. A zero field is its default.
type Limits struct {
	Inbound    int           // connections that others opened; default 192, of which a quarter may be in their handshake
	PerAddress int           // connections with one IP address; default 8, and then those of this machine with itself are not counted
	Guests     int           // guests at once; default 8
	Memory     int64         // bytes that the library may hold for connections and streams; default 64 MiB
	GuestTime  time.Duration // how long a guest may stay connected; default two minutes
}

func (l Limits) filled() Limits {
	if l.Inbound <= 0 {
		l.Inbound = 192
	}
	if l.PerAddress <= 0 {
		l.PerAddress = 8
	}
	if l.Guests <= 0 {
		l.Guests = 8
	}
	if l.Memory <= 0 {
		l.Memory = 64 << 20
	}
	if l.GuestTime <= 0 {
		l.GuestTime = 2 * time.Minute
	}
	return l
}

// manager makes the library's resource manager. Those whose handshake has not told yet who they are have a part of their
// own, so that they take no room from those who are known.
func (h *Host) manager() (network.ResourceManager, error) {
	l := h.cfg.Limits.filled()
	inbound, memory := rcmgr.LimitVal(l.Inbound), rcmgr.LimitVal64(l.Memory)
	partial := rcmgr.PartialLimitConfig{
		System: rcmgr.ResourceLimits{Conns: 2 * inbound, ConnsInbound: inbound, ConnsOutbound: inbound, FD: 2 * inbound, Streams: 4096, StreamsInbound: 2048,
			StreamsOutbound: 2048, Memory: memory},
		Transient: rcmgr.ResourceLimits{Conns: max(inbound/2, 2), ConnsInbound: max(inbound/4, 1), ConnsOutbound: max(inbound/4, 1), FD: max(inbound/2, 2), Streams: 256,
			StreamsInbound: 128, StreamsOutbound: 128, Memory: memory / 4},
		PeerDefault: rcmgr.ResourceLimits{Conns: 8, ConnsInbound: 4, ConnsOutbound: 8, FD: 8, Streams: 128, StreamsInbound: 64, StreamsOutbound: 128,
			Memory: memory / 4},
	}
	v4, v6 := slices.Clone(rcmgr.DefaultNetworkPrefixLimitV4), slices.Clone(rcmgr.DefaultNetworkPrefixLimitV6)
	if h.cfg.Limits.PerAddress > 0 {
		v4, v6 = []rcmgr.NetworkPrefixLimit{}, []rcmgr.NetworkPrefixLimit{}
	}
	// All that come through a relay have its address.
	pace := []rate.PrefixLimit{{Prefix: netip.MustParsePrefix("127.0.0.0/8")}, {Prefix: netip.MustParsePrefix("::1/128")}}
	for _, ip := range h.relayAddresses() {
		whole := netip.PrefixFrom(ip, ip.BitLen())
		pace = append(pace, rate.PrefixLimit{Prefix: whole})
		if limit := (rcmgr.NetworkPrefixLimit{Network: whole, ConnCount: l.Inbound}); ip.Is4() {
			v4 = append(v4, limit)
		} else {
			v6 = append(v6, limit)
		}
	}
	one := rate.Limit{RPS: 0.5, Burst: 4 * l.PerAddress}
	return rcmgr.NewResourceManager(rcmgr.NewFixedLimiter(partial.Build(rcmgr.DefaultLimits.AutoScale())), rcmgr.WithMetricsDisabled(),
		rcmgr.WithNetworkPrefixLimit(v4, v6),
		rcmgr.WithLimitPerSubnet([]rcmgr.ConnLimitPerSubnet{{PrefixLength: 32, ConnCount: l.PerAddress}, {PrefixLength: 24, ConnCount: 4 * l.PerAddress}},
			[]rcmgr.ConnLimitPerSubnet{{PrefixLength: 64, ConnCount: l.PerAddress}, {PrefixLength: 48, ConnCount: 4 * l.PerAddress}}),
		rcmgr.WithConnRateLimiters(&rate.Limiter{NetworkPrefixLimits: pace, SubnetRateLimiter: rate.SubnetLimiter{
			IPv4SubnetLimits: []rate.SubnetLimit{{PrefixLength: 32, Limit: one}}, IPv6SubnetLimits: []rate.SubnetLimit{{PrefixLength: 64, Limit: one}},
			GracePeriod: time.Minute}}))
}

// relayAddresses are the IP addresses of the relays that the owner named by one.
func (h *Host) relayAddresses() []netip.Addr {
	var out []netip.Addr
	for _, r := range h.relays {
		for _, a := range r.Addrs {
			if ip := addressOf(a); ip.IsValid() && !ip.IsLoopback() && !slices.Contains(out, ip) {
				out = append(out, ip)
			}
		}
	}
	return out
}

func addressOf(a ma.Multiaddr) netip.Addr {
	ip, err := manet.ToIP(a)
	if err != nil {
		return netip.Addr{}
	}
	out, _ := netip.AddrFromSlice(ip)
	return out.Unmap()
}

// place is whom a guest is counted as: many keys cost nothing, addresses do.
func (h *Host) place(a ma.Multiaddr) string {
	ip := addressOf(a)
	if ip.Is6() {
		if net, err := ip.Prefix(48); err == nil {
			return net.String()
		}
	}
	return ip.String()
}

// gater closes connections as soon as the handshake has told who the other one is, and lets nothing be dialled that was
// not named. It implements connmgr.ConnectionGater.
type gater struct{ h *Host }

func (g *gater) InterceptPeerDial(id peer.ID) bool {
	return g.h.cfg.Standing(id.String()) != Stranger || g.h.carries(id)
}

// InterceptAddrDial lets the named addresses through, and what hole punching tries: public addresses of a node that is
// connected already.
func (g *gater) InterceptAddrDial(id peer.ID, a ma.Multiaddr) bool {
	g.h.mu.Lock()
	ok := slices.ContainsFunc(g.h.named[id], func(n ma.Multiaddr) bool { return same(n, a) })
	g.h.mu.Unlock()
	return ok || manet.IsPublicAddr(a) && len(g.h.host.Network().ConnsToPeer(id)) > 0
}

// same reports whether an address to be dialled is the named one, or what the name in it stands for.
func same(named, a ma.Multiaddr) bool {
	if named.Equal(a) {
		return true
	}
	first, rest := ma.SplitFirst(named)
	_, other := ma.SplitFirst(a)
	if first == nil || len(rest) == 0 || len(other) == 0 {
		return false
	}
	switch first.Protocol().Code {
	case ma.P_DNS, ma.P_DNS4, ma.P_DNS6:
		return rest.Equal(other)
	}
	return false
}

func (g *gater) InterceptAccept(network.ConnMultiaddrs) bool { return true }

func (g *gater) InterceptSecured(dir network.Direction, id peer.ID, c network.ConnMultiaddrs) bool {
	h := g.h
	switch h.cfg.Standing(id.String()) {
	case Known:
		return true
	case Guest:
		h.mu.Lock()
		ok := dir == network.DirOutbound || h.roomLocked(id, h.place(c.RemoteMultiaddr()))
		h.mu.Unlock()
		if !ok {
			h.refused(id.String(), "too many guests")
		}
		return ok
	}
	if dir == network.DirOutbound && h.carries(id) {
		return true
	}
	h.refused(id.String(), "a connection of a stranger")
	return false
}

func (g *gater) InterceptUpgraded(network.Conn) (bool, control.DisconnectReason) { return true, 0 }

// roomLocked reports whether there is a place for a guest.
func (h *Host) roomLocked(id peer.ID, place string) bool {
	if h.guests[id] != nil {
		return true
	}
	near, all := 0, 0
	for _, g := range h.guests {
		if g.inbound {
			all++
			if g.place == place {
				near++
			}
		}
	}
	return all < h.cfg.Limits.filled().Guests && near < guestsPerAddress
}

// name lets addresses be dialled, and the relays in them.
func (h *Host) name(id peer.ID, addrs []ma.Multiaddr) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.nameLocked(id, addrs)
	for _, a := range addrs {
		before, after := ma.SplitFunc(a, func(c ma.Component) bool { return c.Protocol().Code == ma.P_CIRCUIT })
		if len(after) == 0 {
			continue
		}
		if via, err := peer.AddrInfoFromP2pAddr(before); err == nil && via.ID != id && via.ID != h.self {
			if h.nameLocked(via.ID, via.Addrs) {
				h.carriers[via.ID] = true
			}
		}
	}
}

func (h *Host) nameLocked(id peer.ID, addrs []ma.Multiaddr) bool {
	old, ok := h.named[id]
	if !ok && len(h.named) >= maxNamedNodes {
		return false
	}
	next := slices.Clone(addrs)
	for _, a := range old {
		if !slices.ContainsFunc(addrs, a.Equal) {
			next = append(next, a)
		}
	}
	h.named[id] = next[:min(len(next), maxNamed)]
	return true
}

// carries reports whether a node was named as a relay: it is called, but is let in no further than that.
func (h *Host) carries(id peer.ID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.carriers[id]
}

// acl lets known nodes use this one as their relay, between each other. It implements relay.ACLFilter.
type acl struct{ h *Host }

func (a *acl) known(id peer.ID) bool { return a.h.cfg.Standing(id.String()) == Known }

// AllowReserve implements relay.ACLFilter.
func (a *acl) AllowReserve(id peer.ID, _ ma.Multiaddr) bool { return a.known(id) }

// AllowConnect implements relay.ACLFilter.
func (a *acl) AllowConnect(src peer.ID, _ ma.Multiaddr, dest peer.ID) bool {
	return a.known(src) && a.known(dest)
}
