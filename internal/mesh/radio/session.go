package radio

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// released is a queueStatus.res that is no failure: the packet is no longer the queue's.
const released = 35

var errRebooted = errors.New("the device has rebooted")

// session is one connection to the device.
type session struct {
	conn net.Conn
	own  uint32
	gone chan struct{} // closed when the connection is over
	mu   sync.Mutex    // one frame at a time
}

// write sends a frame. After an error the connection is over: a frame may be half sent.
func (s *session) write(b []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.conn.SetWriteDeadline(time.Now().Add(writeTime))
	if err == nil {
		_, err = s.conn.Write(b)
	}
	if err != nil {
		_ = s.conn.Close()
	}
	return err
}

// connect reaches the device and serves it until the connection ends. up is whether the device was ready.
func (r *Radio) connect(ctx context.Context) (up bool, err error) {
	dial, cancel := context.WithTimeout(ctx, dialTime)
	conn, err := r.cfg.Dial(dial, "tcp", r.address)
	cancel()
	if err != nil {
		return false, err
	}
	s := &session{conn: conn, gone: make(chan struct{})}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() }) // which ends a read and a write
	defer stop()
	in := newFrames(conn)
	if err := r.setup(s, in); err != nil {
		return false, err
	}
	r.became(s)
	defer r.became(nil)
	defer close(s.gone)
	var beats sync.WaitGroup
	done := make(chan struct{})
	beats.Go(func() { s.beat(done) })
	defer func() {
		_ = conn.Close() // first, so that no heartbeat waits for a device that does not read
		close(done)
		beats.Wait()
	}()
	for {
		m, err := r.read(s, in, time.Now().Add(quiet))
		if err != nil {
			return true, err
		}
		if m.rebooted {
			return true, errRebooted
		}
		r.take(ctx, s, m)
	}
}

// setup asks for the device's settings and reads them to their end.
func (r *Radio) setup(s *session, in *frames) error {
	id := rand.Uint32() | 1<<31 // small ones mean something else to some devices
	if err := s.write(append(wake(), frame(wantConfig(id))...)); err != nil {
		return err
	}
	end := time.Now().Add(setupTime)
	m := presetOf(0) // what a device that says nothing has
	for {
		got, err := r.read(s, in, end)
		switch {
		case err != nil:
			return fmt.Errorf("the device does not send its settings: %w", err)
		case got.own != 0:
			s.own = got.own
		case got.modem != nil:
			m = *got.modem
		case got.node != nil:
			r.named(got.node)
		case got.complete != nil && *got.complete == id:
			if s.own == 0 {
				return errors.New("the device does not say which node it is")
			}
			r.tuned(m)
			return nil
		}
	}
}

// read gives the next message that makes sense.
func (r *Radio) read(s *session, in *frames, by time.Time) (fromRadio, error) {
	if err := s.conn.SetReadDeadline(by); err != nil {
		return fromRadio{}, err
	}
	for {
		body, err := in.next()
		if err != nil {
			return fromRadio{}, err
		}
		m, err := parse(body)
		if err == nil {
			return m, nil
		}
		r.mu.Lock()
		r.counts.Malformed++
		r.mu.Unlock()
		r.cfg.Log.Debug("a frame of the radio makes no sense", "error", err)
	}
}

// beat sends heartbeats until done. A device that does not answer them is found by quiet.
func (s *session) beat(done <-chan struct{}) {
	tick := time.NewTicker(beat)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
			if s.write(frame(heartbeat())) != nil {
				return
			}
		}
	}
}

// became makes s the connection, or nil for none.
func (r *Radio) became(s *session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cur = s
	close(r.changed)
	r.changed = make(chan struct{})
	if s != nil {
		r.cfg.Log.Info("connected to the radio", "address", r.address, "node", NodeID(s.own), "modem", r.modem.name)
	}
}

// live waits for a connection.
func (r *Radio) live(ctx context.Context) (*session, error) {
	for {
		r.mu.Lock()
		s, changed := r.cur, r.changed
		r.mu.Unlock()
		if s != nil {
			return s, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-changed:
		}
	}
}

func (r *Radio) named(n *nodeInfo) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if known := r.nodes[n.num]; known != nil {
		known.name = n.name
	}
}

// tuned notes the modem, from which the cost of a packet follows.
func (r *Radio) tuned(m modem) {
	r.mu.Lock()
	r.modem = m
	r.mu.Unlock()
	if partSize(m, r.allowed) == 0 {
		r.cfg.Log.Warn("the radio is too slow for its share of the air: nothing will be answered; raise the share or choose a faster preset",
			"modem", m.name, "share", r.allowed)
	}
}

// take handles a message that came after the settings.
func (r *Radio) take(ctx context.Context, s *session, m fromRadio) {
	switch {
	case m.node != nil:
		r.named(m.node)
	case m.modem != nil:
		r.tuned(*m.modem)
	case m.queue != nil:
		r.mu.Lock()
		r.queue = *m.queue
		d := r.waiting[m.queue.id]
		r.mu.Unlock()
		if d != nil && m.queue.res != 0 && m.queue.res != released {
			d.refused(m.queue.id, uint32(m.queue.res))
		}
	case m.packet == nil || m.packet.data == nil: // nothing, or what only others can read
	case m.packet.data.port == routingApp:
		r.acknowledged(s, m.packet)
	case m.packet.data.port == textApp:
		r.text(ctx, s, m.packet)
	}
}
