// Package radio answers text questions that come over a slow radio: it talks to a Meshtastic device over TCP, splits the
// answers into numbered parts and keeps to a budget of time on air (M5). It decides nothing about an answer and knows no
// assistant: a question goes to Config.Ask. Whatever comes from the radio, names included, is a stranger's text.
package radio

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"time"
)

// Port is where a Meshtastic device listens.
const Port = "4403"

// Bounds.
const (
	maxListed   = 64
	maxQuestion = 237  // bytes; a packet holds no more
	maxIDs      = 1024 // packets of a node that are remembered, so that a copy is known as one
	hour        = time.Hour

	dialTime  = 10 * time.Second
	writeTime = 10 * time.Second
	setupTime = time.Minute     // from the connection to the end of the device's settings
	beat      = time.Minute     // between heartbeats, which the device answers
	quiet     = 5 * time.Minute // without a frame, and the device is given up
	firstWait = time.Second     // before the next try to connect; doubles
	maxWait   = 5 * time.Minute
	stable    = time.Minute // a connection that lasted so long makes the next wait short again
)

// Config is what a Radio needs.
type Config struct {
	Address string // host, or host:port, of the device
	// Dial is how the device is reached; nil means by TCP.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	Log  *slog.Logger
	// Nodes are those that may ask, each as ParseListed reads it: at most 64. See Listed for what an id without a key is worth.
	Nodes []string
	// Ask answers a question: untrusted text of a listed node, at most 237 bytes. The context ends after Patience. An
	// error's public words are sent in place of an answer.
	Ask func(ctx context.Context, node uint32, question string) (string, error)
	// Refused is told the first time that something is refused for a reason, for a listed node each. It must not block.
	Refused func(Refusal)

	Questions int           // a node may ask in any hour, 1 to 60; zero means 12
	Patience  time.Duration // for one answer; zero means three minutes
	Parts     int           // of one reply, 1 to 9; zero means 4
	// DutyCycle is the part of any hour that the law lets the device send; zero means 0.1, as in the European Union.
	// Share is the part of any hour that replies may take, not above it; zero means 0.01, which is 36 seconds. The device
	// keeps the duty cycle itself, and its own traffic counts for that; replies are counted here, retries included.
	DutyCycle, Share float64
}

// Radio is a connection to a device and the replies under way. Use New.
type Radio struct {
	cfg     Config
	address string
	nodes   map[uint32]*node
	order   []uint32
	allowed time.Duration
	work    sync.WaitGroup // questions; Run waits for them
	turn    chan struct{}  // holds a value while a reply is on the air: one at a time

	mu      sync.Mutex           // guards what follows, and the nodes
	cur     *session             // nil while not connected
	changed chan struct{}        // closed and made anew when cur is another
	air     window               // nanoseconds sent
	modem   modem                // the device's
	waiting map[uint32]*delivery // packets without an acknowledgement yet
	queue   queueStatus
	counts  Counts
	told    map[Refusal]bool
}

// node is a listed node.
type node struct {
	Listed
	name   string // its own word
	asking bool   // a question is being answered
	saying bool   // a refusal is on its way
	rate   window
	seen   map[uint32]bool
	recent []uint32 // the ids in seen, a ring
	next   int
}

// Counts is what happened since New.
type Counts struct {
	Questions uint64 // put to Ask
	Answered  uint64 // replies that were acknowledged to their end
	Dropped   uint64 // replies of which a part was not
	Resent    uint64 // parts sent again
	Malformed uint64 // frames that made no sense
	Refused   map[Reason]uint64
}

// Status is how the radio is.
type Status struct {
	Connected     bool
	Own           uint32 // the device's node, zero while not connected
	Modem         string // its preset; untested settings are taken for the slowest
	Used, Allowed time.Duration
	QueueFree     int // packets that the device can take, as it last said
	QueueSize     int
	Nodes         []NodeStatus
	Counts
}

// NodeStatus is a listed node. Its name is its own word: untrusted text.
type NodeStatus struct {
	ID    string
	Name  string
	Keyed bool
}

// New checks a Config. It opens nothing: Run does.
func New(cfg Config) (*Radio, error) {
	cfg.Questions, cfg.Parts = orElse(cfg.Questions, 12), orElse(cfg.Parts, 4)
	cfg.Patience = orElse(cfg.Patience, 3*time.Minute)
	cfg.DutyCycle, cfg.Share = orElse(cfg.DutyCycle, 0.1), orElse(cfg.Share, 0.01)
	switch {
	case cfg.Address == "":
		return nil, errors.New("radio: Address is empty")
	case cfg.Ask == nil || cfg.Log == nil:
		return nil, errors.New("radio: Ask and Log are needed")
	case len(cfg.Nodes) > maxListed:
		return nil, fmt.Errorf("radio: %d nodes are listed, at most %d can be", len(cfg.Nodes), maxListed)
	case cfg.Questions < 1 || cfg.Questions > 60:
		return nil, fmt.Errorf("radio: Questions is %d, it must be 1 to 60", cfg.Questions)
	case cfg.Parts < 1 || cfg.Parts > maxParts:
		return nil, fmt.Errorf("radio: Parts is %d, it must be 1 to %d", cfg.Parts, maxParts)
	case cfg.Patience < 0:
		return nil, errors.New("radio: Patience is negative")
	case !(cfg.DutyCycle > 0 && cfg.DutyCycle <= 1):
		return nil, fmt.Errorf("radio: DutyCycle is %v, it must be above 0 and at most 1", cfg.DutyCycle)
	case !(cfg.Share > 0 && cfg.Share <= cfg.DutyCycle):
		return nil, fmt.Errorf("radio: Share is %v, it must be above 0 and at most DutyCycle, which is %v", cfg.Share, cfg.DutyCycle)
	}
	if cfg.Dial == nil {
		cfg.Dial = (&net.Dialer{}).DialContext
	}
	if cfg.Refused == nil {
		cfg.Refused = func(Refusal) {}
	}
	r := &Radio{cfg: cfg, address: cfg.Address, nodes: map[uint32]*node{}, turn: make(chan struct{}, 1),
		allowed: time.Duration(cfg.Share * float64(hour)), changed: make(chan struct{}), modem: presetOf(0),
		waiting: map[uint32]*delivery{}, told: map[Refusal]bool{}}
	r.air = window{span: hour, max: int64(r.allowed)}
	r.counts.Refused = map[Reason]uint64{}
	if _, _, err := net.SplitHostPort(cfg.Address); err != nil {
		r.address = net.JoinHostPort(strings.Trim(cfg.Address, "[]"), Port)
	}
	for _, s := range cfg.Nodes {
		l, err := ParseListed(s)
		if err != nil {
			return nil, err
		}
		if r.nodes[l.Node] != nil {
			return nil, fmt.Errorf("radio: %s is listed twice", NodeID(l.Node))
		}
		r.nodes[l.Node] = &node{Listed: l, rate: window{span: hour, max: int64(cfg.Questions)}, seen: map[uint32]bool{}}
		r.order = append(r.order, l.Node)
	}
	return r, nil
}

func orElse[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}

// Run keeps a connection to the device until ctx ends, and then waits for the questions under way, whose context has
// ended too. Only one Run at a time.
func (r *Radio) Run(ctx context.Context) error {
	defer r.work.Wait()
	wait, lost := firstWait, false
	for {
		began := time.Now()
		up, err := r.connect(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if up && time.Since(began) >= stable {
			wait = firstWait
		}
		if up || !lost { // told once for as long as it does not come back
			r.cfg.Log.Warn("no connection to the radio; trying again", "address", r.address, "error", err)
		}
		lost = true
		timer := time.NewTimer(wait/2 + rand.N(wait/2))
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		}
		wait = min(2*wait, maxWait)
	}
}

// Status is how the radio is now.
func (r *Radio) Status() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := Status{Modem: r.modem.name, Used: time.Duration(r.air.used(time.Now())), Allowed: r.allowed,
		QueueFree: int(r.queue.free), QueueSize: int(r.queue.max), Counts: r.counts}
	s.Refused = make(map[Reason]uint64, len(r.counts.Refused))
	for k, v := range r.counts.Refused {
		s.Refused[k] = v
	}
	if r.cur != nil {
		s.Connected, s.Own = true, r.cur.own
	}
	for _, num := range r.order {
		n := r.nodes[num]
		s.Nodes = append(s.Nodes, NodeStatus{NodeID(num), n.name, n.Key != nil})
	}
	return s
}

// Name is what a listed node calls itself: untrusted text, empty where it did not say.
func (r *Radio) Name(num uint32) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := r.nodes[num]; n != nil {
		return n.name
	}
	return ""
}
