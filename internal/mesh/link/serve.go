package link

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/protocol"

	"atoll/internal/fault"
)

// family is how the names of all protocols of this program begin.
const family = "/atoll/"

func id(p Protocol) protocol.ID {
	return protocol.ID(family + p.Name + "/" + strconv.Itoa(p.Version))
}

// unknown answers streams of a name that this node does not speak.
func unknown() Protocol {
	return Protocol{Name: "unknown", Version: 1, Open: true, MaxFrame: 1 << 10, Concurrent: 2, Rate: Rate{30, time.Minute}, Idle: farewell, Total: 2 * farewell,
		Serve: func(context.Context, string, *Stream) error {
			return fault.New(fault.NotFound, "this node does not speak that; it may be older or newer than yours")
		}}
}

// handle registers what this node serves. Whatever else begins with family gets a clear answer; other protocols get none.
func (h *Host) handle() {
	for _, p := range h.protocols {
		h.host.SetStreamHandler(id(p.Protocol), func(s network.Stream) { h.serve(s, p) })
	}
	h.host.SetStreamHandlerMatch(family, func(other protocol.ID) bool { return strings.HasPrefix(string(other), family) }, func(s network.Stream) {
		name, _, _ := strings.Cut(strings.TrimPrefix(string(s.Protocol()), family), "/")
		p := h.protocols[name]
		if p == nil {
			h.serve(s, h.protocols["unknown"])
			return
		}
		other := *p
		other.Serve = func(context.Context, string, *Stream) error {
			return fault.New(fault.NotFound, "this node speaks %s version %d", p.Name, p.Version)
		}
		h.serve(s, &other)
	})
}

// serve runs one stream within its limits.
func (h *Host) serve(raw network.Stream, p *served) {
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		_ = raw.Reset()
		return
	}
	h.work.Add(1)
	h.mu.Unlock()
	defer h.work.Done()
	key := raw.Conn().RemotePeer().String()
	s := newStream(raw, p.Protocol)
	if why, f := h.enter(raw.Conn(), p); f != nil {
		h.refused(key, why)
		s.refuse(f)
		_ = s.Close()
		return
	}
	defer h.leave(raw.Conn(), p)
	ctx, cancel := context.WithDeadline(h.ctx, s.ends)
	defer cancel()
	h.register(s, cancel)
	defer h.unregister(s)
	gone := context.AfterFunc(ctx, func() { _ = raw.Reset() })
	err := h.run(ctx, key, s)
	gone()
	h.end(s, key, err)
}

// run calls Serve and survives it.
func (h *Host) run(ctx context.Context, key string, s *Stream) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("link: panic in %s: %v\n%s", s.p.Name, r, debug.Stack())
		}
	}()
	return s.p.Serve(ctx, key, s)
}

// register lets a stream's context end with its connection.
func (h *Host) register(s *Stream, cancel context.CancelFunc) {
	c := s.s.Conn()
	h.mu.Lock()
	if h.running[c] == nil {
		h.running[c] = map[*Stream]context.CancelFunc{}
	}
	h.running[c][s] = cancel
	h.mu.Unlock()
	if c.IsClosed() { // and disconnected may have looked before
		cancel()
	}
}

func (h *Host) unregister(s *Stream) {
	c := s.s.Conn()
	h.mu.Lock()
	defer h.mu.Unlock()
	if delete(h.running[c], s); len(h.running[c]) == 0 {
		delete(h.running, c)
	}
}

// end closes a stream that was served, with a refusal where there was one.
func (h *Host) end(s *Stream, key string, err error) {
	if err == nil {
		_ = s.Close()
		return
	}
	f, own := errors.AsType[*fault.Error](err)
	switch {
	case s.raw:
		s.Reset() // a frame would be taken for content
		return
	case errors.Is(err, ErrFrame):
		h.refused(key, "a bad frame of "+s.p.Name)
		f = fault.New(fault.BadRequest, "that is no %s of version %d", s.p.Name, s.p.Version)
	case errors.Is(err, ErrReset) || errors.Is(err, ErrClosed):
		s.Reset()
		return
	case !own || f.Code == fault.Failed || f.Code == fault.Unavailable:
		h.cfg.Log.Warn("a peer was not served", "protocol", s.p.Name, "peer", key, "err", err)
		f = fault.New(fault.Unavailable, "this node cannot do that now")
	}
	s.refuse(f)
	_ = s.Close()
}

// enter counts a stream, or says why there may be none.
func (h *Host) enter(c network.Conn, p *served) (why string, f *fault.Error) {
	from := c.RemotePeer()
	rate, counted := p.known, string(from)
	switch st := h.cfg.Standing(from.String()); {
	case st == Known:
	case st == Guest && p.Open:
		rate, counted = p.guests, h.place(c.RemoteMultiaddr())
	default:
		return p.Name + " by a stranger", fault.New(fault.Forbidden, "this node does not let you in")
	}
	if p.Direct && c.Stat().Limited {
		return p.Name + " through a relay that limits it", fault.New(fault.Unavailable, "%s needs a direct connection", p.Name)
	}
	if d := rate.Allow(counted); !d.OK {
		return "too many of " + p.Name, fault.New(fault.RateLimited, "too many requests; wait %s", d.RetryAfter.Round(time.Second)).After(d.RetryAfter)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	at := seat{from, p.Name}
	if h.busy[at] >= p.Concurrent {
		return "too many of " + p.Name + " at once", fault.New(fault.Busy, "%d requests of this kind are running already", p.Concurrent)
	}
	h.busy[at]++
	return "", nil
}

func (h *Host) leave(c network.Conn, p *served) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := seat{c.RemotePeer(), p.Name}
	if h.busy[at]--; h.busy[at] <= 0 {
		delete(h.busy, at)
	}
}
