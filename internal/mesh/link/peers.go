package link

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/peerstore"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"
	ma "github.com/multiformats/go-multiaddr"
)

// maxFound bounds the addresses that one announcement on the local network is believed.
const maxFound = 16

// Connect calls a node at these addresses, if it is not connected, and fails where another key answers. Only they, and
// those of earlier calls, are dialled.
func (h *Host) Connect(ctx context.Context, key string, addrs []string) error {
	id, err := peer.Decode(key)
	if err != nil {
		return fmt.Errorf("link: %q is no node's key: %w", key, err)
	}
	var list []ma.Multiaddr
	for _, a := range addrs {
		m, err := ma.NewMultiaddr(a)
		if err != nil || CheckAddr(a) != nil {
			continue
		}
		transport, other := peer.SplitAddr(m)
		if transport != nil && (other == "" || other == id) {
			list = append(list, transport)
		}
	}
	h.name(id, list)
	h.host.Peerstore().AddAddrs(id, list, peerstore.TempAddrTTL)
	// When to try again is the caller's to say.
	if s, ok := h.host.Network().(*swarm.Swarm); ok {
		s.Backoff().Clear(id)
	}
	if err := h.host.Connect(network.WithAllowLimitedConn(ctx, agent), peer.AddrInfo{ID: id, Addrs: list}); err != nil {
		return fmt.Errorf("link: %w", err)
	}
	return nil
}

// Disconnect closes all connections of a node; its streams end with them. The node is not kept out: that is Standing's.
func (h *Host) Disconnect(key string) {
	id, err := peer.Decode(key)
	if err != nil {
		return
	}
	h.mu.Lock()
	if !h.carriers[id] {
		delete(h.named, id)
	}
	h.mu.Unlock()
	_ = h.host.Network().ClosePeer(id)
}

// Connected lists the nodes that are connected now.
func (h *Host) Connected() []string {
	var out []string
	for _, id := range h.host.Network().Peers() {
		out = append(out, id.String())
	}
	return out
}

// Online reports whether a node is connected now.
func (h *Host) Online(key string) bool {
	id, err := peer.Decode(key)
	return err == nil && len(h.host.Network().ConnsToPeer(id)) > 0
}

// Relayed reports whether a node is connected, and by a relay only.
func (h *Host) Relayed(key string) bool {
	id, err := peer.Decode(key)
	if err != nil {
		return false
	}
	conns := h.host.Network().ConnsToPeer(id)
	return len(conns) > 0 && !slices.ContainsFunc(conns, func(c network.Conn) bool {
		_, err := c.RemoteMultiaddr().ValueForProtocol(ma.P_CIRCUIT)
		return err != nil
	})
}

// PeerAddrs are the addresses at which a node was called and is connected now.
func (h *Host) PeerAddrs(key string) []string {
	id, err := peer.Decode(key)
	if err != nil {
		return nil
	}
	var out []string
	for _, c := range h.host.Network().ConnsToPeer(id) {
		if a := c.RemoteMultiaddr().String(); c.Stat().Direction == network.DirOutbound && !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	return out
}

func (h *Host) connected(_ network.Network, c network.Conn) {
	id := c.RemotePeer()
	if !h.welcome(c) {
		_ = c.Close() // its standing fell since the handshake
	}
	h.edge.Lock()
	defer h.edge.Unlock()
	h.mu.Lock()
	h.conns[id]++
	first := h.conns[id] == 1
	h.mu.Unlock()
	if first && h.cfg.OnPeer != nil {
		h.cfg.OnPeer(id.String(), true)
	}
}

// welcome asks again who a connection is from, now that it can be found by Disconnect, and gives a guest its place.
func (h *Host) welcome(c network.Conn) bool {
	id, inbound := c.RemotePeer(), c.Stat().Direction == network.DirInbound
	switch h.cfg.Standing(id.String()) {
	case Known:
		return true
	case Guest:
		place := h.place(c.RemoteMultiaddr())
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.closed || inbound && !h.roomLocked(id, place) {
			return false
		}
		if h.guests[id] == nil {
			h.guests[id] = &guest{timer: time.AfterFunc(h.cfg.Limits.filled().GuestTime, func() { h.showOut(id) }), place: place, inbound: inbound}
		}
		return true
	}
	return !inbound && h.carries(id)
}

// showOut ends the visit of a guest that has not become known.
func (h *Host) showOut(id peer.ID) {
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return
	}
	h.work.Add(1)
	delete(h.guests, id)
	h.mu.Unlock()
	defer h.work.Done()
	if h.cfg.Standing(id.String()) != Known {
		_ = h.host.Network().ClosePeer(id)
	}
}

func (h *Host) disconnected(_ network.Network, c network.Conn) {
	id := c.RemotePeer()
	h.edge.Lock()
	defer h.edge.Unlock()
	h.mu.Lock()
	for _, stop := range h.running[c] {
		stop()
	}
	h.conns[id]--
	last := h.conns[id] <= 0
	if last {
		delete(h.conns, id)
		if g := h.guests[id]; g != nil {
			g.timer.Stop()
			delete(h.guests, id)
		}
	}
	h.mu.Unlock()
	if last && h.cfg.OnPeer != nil {
		h.cfg.OnPeer(id.String(), false)
	}
}

// found passes on what mDNS finds, which anybody on the local network can have said. It implements mdns.Notifee.
type found struct{ h *Host }

// HandlePeerFound implements mdns.Notifee.
func (f found) HandlePeerFound(info peer.AddrInfo) {
	if info.ID == f.h.self || f.h.cfg.OnFound == nil {
		return
	}
	var addrs []string
	for _, a := range info.Addrs {
		if text := a.String(); len(addrs) < maxFound && CheckAddr(text) == nil {
			addrs = append(addrs, text)
		}
	}
	if len(addrs) > 0 {
		f.h.cfg.OnFound(info.ID.String(), addrs)
	}
}
