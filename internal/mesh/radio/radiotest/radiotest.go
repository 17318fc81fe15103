// Package radiotest is a Meshtastic device for tests: it speaks the stream protocol as the device's side, on 127.0.0.1 or
// a pipe, and fails in the ways that a test asks for. It has a codec of its own, so that a mistake of package radio's is
// not made twice, and is itself proved by the Python client of the Meshtastic project.
package radiotest

import (
	"bufio"
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"time"
)

// Config is what the device is. The zero Config has node number 0x11223344 and the preset LongFast.
type Config struct {
	Own    uint32
	Nodes  []Node // its node database, itself left out
	Preset uint32
	// Answer is what becomes of a packet that a client sends with want_ack; nil means Ack at once. n counts from one.
	Answer func(n int, p Packet) Answer
}

// Node is an entry of the node database.
type Node struct {
	Num         uint32
	Long, Short string
	Key         []byte
}

// Packet is a text or an acknowledgement on its way through the device.
type Packet struct {
	From, To, ID uint32
	Channel      uint32
	Port         uint32 // zero means text
	Payload      []byte
	Request      uint32
	Reply        uint32
	Emoji        uint32
	WantAck      bool
	MQTT, PKI    bool
	Key          []byte
	At           time.Time // when a client sent it
}

// Answer is what becomes of a packet. The zero Answer is an acknowledgement by the receiver.
type Answer struct {
	After  time.Duration
	Silent bool   // nothing
	Twice  bool   // the acknowledgement comes twice
	Passed bool   // only the device's word that somebody passed it on
	Error  uint32 // the error_reason of the device
	Refuse int32  // the res of the queue's state, and nothing else
	Reboot bool   // the device is gone, and every connection
}

// Radio is the device. Use New, and Close at the end.
type Radio struct {
	cfg   Config
	sent  chan Packet
	ready chan struct{}
	work  sync.WaitGroup
	done  chan struct{}

	mu      sync.Mutex // guards what follows
	clients map[*client]bool
	packets int
	beats   int
	setups  int
	mute    bool
	lastID  uint32
}

type client struct {
	conn net.Conn
	mu   sync.Mutex // one frame at a time
	up   bool       // has its settings
}

// New makes a device that nobody is connected to.
func New(cfg Config) *Radio {
	if cfg.Own == 0 {
		cfg.Own = 0x11223344
	}
	return &Radio{cfg: cfg, sent: make(chan Packet, 1000), ready: make(chan struct{}, 1000), done: make(chan struct{}), clients: map[*client]bool{}}
}

// Dial connects a client by a pipe: for Config.Dial of package radio.
func (r *Radio) Dial(context.Context, string, string) (net.Conn, error) {
	select {
	case <-r.done:
		return nil, net.ErrClosed
	default:
	}
	here, there := net.Pipe()
	r.work.Go(func() { r.serve(here) })
	return there, nil
}

// Listen takes clients on 127.0.0.1 until Close, and says where.
func (r *Radio) Listen() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	r.work.Go(func() { <-r.done; _ = l.Close() })
	r.work.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			r.work.Go(func() { r.serve(conn) })
		}
	})
	return l.Addr().String(), nil
}

// Close ends the device and waits for all that it started.
func (r *Radio) Close() {
	close(r.done)
	r.Reboot()
	r.work.Wait()
}

// Reboot ends every connection.
func (r *Radio) Reboot() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.clients {
		_ = c.conn.Close()
	}
}

// Mute makes the device say nothing and take nothing, its connections standing.
func (r *Radio) Mute(on bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mute = on
}

// Sent has the packets that clients sent, in order.
func (r *Radio) Sent() <-chan Packet { return r.sent }

// Ready has a value for every client that has its settings.
func (r *Radio) Ready() <-chan struct{} { return r.ready }

// Seen is how many clients got their settings, and how many heartbeats came.
func (r *Radio) Seen() (setups, beats int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.setups, r.beats
}

// Deliver gives a packet that came over the air to every client. To zero means this device; ID zero means a new one.
func (r *Radio) Deliver(p Packet) uint32 {
	r.mu.Lock()
	if p.To == 0 {
		p.To = r.cfg.Own
	}
	if p.ID == 0 {
		r.lastID++
		p.ID = 0x70000000 + r.lastID
	}
	r.mu.Unlock()
	r.toAll(framed(fromPacket(p)))
	return p.ID
}

// Say gives bytes as they are to every client.
func (r *Radio) Say(b []byte) { r.toAll(b) }

// Message frames the fields of a FromRadio message for Say.
func Message(body []byte) []byte { return framed(body) }

// Rebooted tells every client that the device has rebooted, without ending a connection.
func (r *Radio) Rebooted() { r.toAll(framed(rebooted())) }

func (r *Radio) toAll(b []byte) {
	r.mu.Lock()
	var all []*client
	for c := range r.clients {
		if c.up {
			all = append(all, c)
		}
	}
	r.mu.Unlock()
	for _, c := range all {
		r.write(c, b)
	}
}

func (r *Radio) write(c *client, b []byte) {
	r.mu.Lock()
	mute := r.mute
	r.mu.Unlock()
	if mute {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	_, _ = c.conn.Write(b) // a lost client is found by its reader
}

func (r *Radio) serve(conn net.Conn) {
	c := &client{conn: conn}
	r.mu.Lock()
	r.clients[c] = true
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		delete(r.clients, c)
		r.mu.Unlock()
		_ = conn.Close()
	}()
	select {
	case <-r.done: // Close may have gone by before the client was one
		return
	default:
	}
	in := bufio.NewReader(conn)
	for {
		body, err := readFrame(in)
		if err != nil {
			return
		}
		m, err := parseToRadio(body)
		if err != nil || m.disconnect {
			return
		}
		r.handle(c, m)
	}
}

// readFrame reads as the firmware does: byte by byte, back to the start at the first that does not fit.
func readFrame(in *bufio.Reader) ([]byte, error) {
	for {
		for at := 0; at < 2; {
			b, err := in.ReadByte()
			switch {
			case err != nil:
				return nil, err
			case at == 0 && b == 0x94, at == 1 && b == 0xC3:
				at++
			case b != 0x94:
				at = 0
			}
		}
		var n [2]byte
		if _, err := io.ReadFull(in, n[:]); err != nil {
			return nil, err
		}
		if size := binary.BigEndian.Uint16(n[:]); size <= 512 {
			body := make([]byte, size)
			_, err := io.ReadFull(in, body)
			return body, err
		}
	}
}

func (r *Radio) handle(c *client, m toRadio) {
	r.mu.Lock()
	mute := r.mute
	if m.heartbeat {
		r.beats++
	}
	r.mu.Unlock()
	switch {
	case mute:
	case m.wantConfig != nil:
		r.setup(c, *m.wantConfig)
	case m.heartbeat:
		r.write(c, framed(queueState(0, 0)))
	case m.packet != nil:
		r.send(c, *m.packet)
	}
}

// setup sends what a device sends to a new client, in its order.
func (r *Radio) setup(c *client, id uint32) {
	all := [][]byte{myInfo(r.cfg.Own), metadata()}
	if id != 69420 { // the client wants no nodes
		all = append(all, nodeInfo(Node{Num: r.cfg.Own, Long: "The device", Short: "DEV"}))
		for _, n := range r.cfg.Nodes {
			all = append(all, nodeInfo(n))
		}
	}
	for i := range 8 {
		all = append(all, channel(i))
	}
	all = append(all, lora(r.cfg.Preset), complete(id))
	for _, b := range all {
		r.write(c, framed(b))
	}
	r.mu.Lock()
	c.up = true
	r.setups++
	r.mu.Unlock()
	r.ready <- struct{}{}
}

// send takes a client's packet for the air.
func (r *Radio) send(c *client, p Packet) {
	p.At = time.Now()
	r.mu.Lock()
	r.packets++
	n := r.packets
	r.mu.Unlock()
	var a Answer
	if r.cfg.Answer != nil {
		a = r.cfg.Answer(n, p)
	}
	r.sent <- p
	r.write(c, framed(queueState(a.Refuse, p.ID)))
	if !p.WantAck || a.Silent || a.Refuse != 0 {
		return
	}
	r.work.Go(func() {
		timer := time.NewTimer(a.After)
		defer timer.Stop()
		select {
		case <-r.done:
			return
		case <-timer.C:
		}
		r.end(p, a)
	})
}

func (r *Radio) end(p Packet, a Answer) {
	ack := Packet{From: p.To, Port: routing, Request: p.ID, Payload: routingError(a.Error)}
	if a.Passed || a.Error != 0 {
		ack.From = r.cfg.Own
	}
	switch {
	case a.Reboot:
		r.Reboot()
		return
	case a.Twice:
		r.Deliver(ack)
	}
	r.Deliver(ack)
}

// Framed is a packet's frame as the device would send it, for one that is hidden in something else.
func Framed(p Packet) []byte {
	if p.To == 0 {
		p.To = 0x11223344
	}
	return framed(fromPacket(p))
}
