package radio

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

const (
	tries     = 3
	tryPause  = 3 * time.Second // before a part is sent again
	reconnect = 2 * time.Minute // that a part waits for the connection to come back
)

var (
	errAir     = errors.New("the share of the air is used up")
	errNoAck   = errors.New("no acknowledgement")
	errRefused = errors.New("refused by the radio")
)

// outcome is how one packet ended.
type outcome struct {
	id  uint32
	nak uint32 // zero: acknowledged by its receiver
}

// delivery is a part until it is acknowledged. A try is a packet with an id of its own, as the firmware takes a known id
// for a copy; the acknowledgement of any of them will do.
type delivery struct {
	to    uint32
	ended chan outcome
}

// acknowledged takes an acknowledgement. It is not authenticated on the air: a forged one can make a reply shorter, never
// longer.
func (r *Radio) acknowledged(s *session, p *packet) {
	r.mu.Lock()
	d := r.waiting[p.data.request]
	r.mu.Unlock()
	switch {
	case d == nil || p.to != s.own || p.data.nak == nil: // another's, a late copy, or a route
	case p.from == d.to && *p.data.nak == 0:
		d.end(outcome{id: p.data.request})
	case (p.from == d.to || p.from == s.own) && *p.data.nak != 0:
		d.refused(p.data.request, *p.data.nak)
	}
	// What is left is the device's own word that somebody passed the packet on. The receiver's is still to come.
}

func (d *delivery) refused(id, nak uint32) { d.end(outcome{id, nak}) }

func (d *delivery) end(o outcome) {
	select {
	case d.ended <- o:
	default: // unreachable unless somebody floods with refusals; the try then ends by its time
	}
}

// final reports whether an error_reason will be the same the next time. (Meshtastic protobufs, Routing.Error.)
func final(nak uint32) bool {
	switch nak {
	case 6, 7, 9, 32, 33, 34, 35, 38, 39: // no channel, too large, duty cycle, bad request, not authorized, keys, rate limit
		return true
	}
	return false
}

// partSize is how many bytes of text a packet can have so that, sent as often as the device may, it fits in the share:
// zero where nothing useful does.
func partSize(m modem, share time.Duration) int {
	for n := maxPart; n >= minPart; n -= 10 {
		if deviceSends*m.onAir(&data{port: textApp, payload: make([]byte, n)}) <= share {
			return n
		}
	}
	return 0
}

// affordable reports whether a reply of one part could be sent now.
func (r *Radio) affordable() bool {
	size := partSize(r.modem, r.allowed)
	return size > 0 && r.fitting(size, 1) == 1
}

// fitting is how many parts of a size the budget holds, most at most: each once, and the last as often as the device
// might send it.
func (r *Radio) fitting(size, most int) int {
	each := int64(r.modem.onAir(&data{port: textApp, payload: make([]byte, size)}))
	left := r.air.left(time.Now())
	return max(0, min(most, int(left/each)-deviceSends+1))
}

// reply sends an answer, or says that the air is used up.
func (r *Radio) reply(ctx context.Context, n *node, p *packet, text string, most int) {
	done, err := r.speak(ctx, n, p, text, most)
	r.mu.Lock()
	if err == nil {
		r.counts.Answered++
	} else {
		r.counts.Dropped++
	}
	r.mu.Unlock()
	if err == nil {
		return
	}
	r.cfg.Log.Warn("an answer by radio was not delivered to its end", "node", NodeID(n.Node), "delivered", done, "error", err)
	if !errors.Is(err, errAir) {
		return
	}
	if r.refuse(n.Node, n, NoAirtime, done == 0) {
		r.brief(ctx, n, p, airWords)
	}
}

// speak sends a text in parts, each after the one before was acknowledged. Where one fails the rest is dropped; done is
// how many were delivered.
func (r *Radio) speak(ctx context.Context, n *node, p *packet, text string, most int) (done int, err error) {
	select {
	case r.turn <- struct{}{}:
		defer func() { <-r.turn }()
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	r.mu.Lock()
	size := max(partSize(r.modem, r.allowed), minPart)
	if len(text) > size {
		most = max(1, r.fitting(size, most))
	}
	r.mu.Unlock()
	for _, part := range split(text, size, most) {
		if err := r.deliver(ctx, n, p, part); err != nil {
			return done, err
		}
		done++
	}
	return done, nil
}

// deliver sends one part, again where it is not acknowledged.
func (r *Radio) deliver(ctx context.Context, n *node, p *packet, part string) (err error) {
	d := &delivery{to: n.Node, ended: make(chan outcome, 2*tries)}
	defer r.forget(d)
	out := &packet{to: n.Node, data: &data{port: textApp, payload: []byte(part), reply: p.id}}
	if n.Key != nil {
		out.pki, out.key = true, n.Key
	} else {
		out.channel = p.channel
	}
	for try := range tries {
		if try > 0 {
			if wait(ctx, tryPause+rand.N(tryPause)) != nil {
				return ctx.Err()
			}
			r.mu.Lock()
			r.counts.Resent++
			r.mu.Unlock()
		}
		if err = r.try(ctx, d, out); err == nil || errors.Is(err, errAir) || errors.Is(err, errRefused) || ctx.Err() != nil {
			return err
		}
	}
	return err
}

func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// try sends a packet once, under a new id, and waits for its end.
func (r *Radio) try(ctx context.Context, d *delivery, out *packet) error {
	up, cancel := context.WithTimeout(ctx, reconnect)
	s, err := r.live(up)
	cancel()
	if err != nil {
		return err
	}
	paid, onAir := r.reserve(d, out)
	if paid == nil {
		return errAir
	}
	began, times := time.Now(), deviceSends
	defer func() { r.settle(paid, onAir, times) }()
	if err := s.write(frame(out.send())); err != nil {
		return err
	}
	timer := time.NewTimer(ackWait(onAir))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done(): // and the device may go on sending, as it may in the next case
			return ctx.Err()
		case <-s.gone:
			return errors.New("the connection was lost")
		case <-timer.C:
			return errNoAck
		case o := <-d.ended:
			if o.nak != 0 && o.id != out.id { // the end of an earlier try
				continue
			}
			if o.id == out.id {
				times = sent(onAir, time.Since(began))
			}
			switch {
			case o.nak == 0:
				return nil
			case final(o.nak):
				return errRefused
			}
			return errNoAck
		}
	}
}

// reserve takes the airtime of all the sends that the device may make of a packet, and gives it an id to be waited for.
func (r *Radio) reserve(d *delivery, out *packet) (*charge, time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	onAir := r.modem.onAir(out.data)
	paid := r.air.take(time.Now(), int64(deviceSends*onAir))
	if paid == nil {
		return nil, 0
	}
	for out.id = 0; out.id == 0 || r.waiting[out.id] != nil; {
		out.id = rand.Uint32()
	}
	r.waiting[out.id] = d
	return paid, onAir
}

func (r *Radio) settle(paid *charge, onAir time.Duration, times int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.air.settle(paid, time.Now(), int64(onAir)*int64(times))
}

func (r *Radio) forget(d *delivery) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, other := range r.waiting {
		if other == d {
			delete(r.waiting, id)
		}
	}
}
