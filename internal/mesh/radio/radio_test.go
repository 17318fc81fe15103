package radio

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"atoll/internal/mesh/radio/radiotest"
)

const (
	own     = 0x11223344
	anna    = 0xA1B2C3D4 // listed without a key
	boris   = 0xB0B0B0B0 // listed with keyOf(boris)
	carla   = 0xCACACACA // listed without a key
	unknown = 0xDEAD0001
)

func keyOf(node uint32) []byte { return bytes.Repeat([]byte{byte(node)}, keyLen) }

func listed() []string {
	return []string{NodeID(anna), NodeID(boris) + "=" + base64.StdEncoding.EncodeToString(keyOf(boris)), NodeID(carla)}
}

// bench is a Radio with a device, in a bubble of synctest.
type bench struct {
	*testing.T
	*Radio
	dev  *radiotest.Radio
	stop func()

	mu      sync.Mutex // guards what follows
	asked   []string
	refused []Refusal
	log     bytes.Buffer
}

// Write takes the log.
func (b *bench) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.log.Write(p)
}

// start connects a Radio to a device. cfg.Ask nil answers with the question's last word.
func start(t *testing.T, device radiotest.Config, cfg Config) *bench {
	t.Helper()
	b := &bench{T: t, dev: radiotest.New(device)}
	ask := cfg.Ask
	if ask == nil {
		ask = func(_ context.Context, _ uint32, q string) (string, error) {
			return q[strings.LastIndexByte(q, ' ')+1:], nil
		}
	}
	cfg.Ask = func(ctx context.Context, node uint32, q string) (string, error) {
		b.mu.Lock()
		b.asked = append(b.asked, fmt.Sprintf("%x: %s", node, q))
		b.mu.Unlock()
		return ask(ctx, node, q)
	}
	cfg.Refused = func(r Refusal) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.refused = append(b.refused, r)
	}
	if cfg.Dial == nil {
		cfg.Dial = b.dev.Dial
	}
	cfg.Address, cfg.Log = "radio.test", slog.New(slog.NewTextHandler(b, nil))
	if cfg.Nodes == nil {
		cfg.Nodes = listed()
	}
	var err error
	if b.Radio, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.Radio.Run(ctx) }()
	b.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
		b.dev.Close()
	})
	return b
}

// up waits for the connection.
func (b *bench) up() {
	b.Helper()
	<-b.dev.Ready()
	synctest.Wait()
}

// sent gives the next packet of the Radio, in whatever time it takes; the test ends where none comes in an hour.
func (b *bench) sent() radiotest.Packet {
	b.Helper()
	late := time.NewTimer(time.Hour)
	defer late.Stop()
	select {
	case p := <-b.dev.Sent():
		return p
	case <-late.C:
		b.Fatal("the radio was given nothing")
		panic("unreachable")
	}
}

// silent fails the test where the Radio sends anything in d.
func (b *bench) silent(d time.Duration) {
	b.Helper()
	late := time.NewTimer(d)
	defer late.Stop()
	select {
	case p := <-b.dev.Sent():
		b.Errorf("the radio was given %q for %x", p.Payload, p.To)
	case <-late.C:
	}
}

func (b *bench) count(why Reason) uint64 { return b.Status().Refused[why] }

func (b *bench) questions() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.asked)
}

func text(from uint32, words string) radiotest.Packet {
	return radiotest.Packet{From: from, Payload: []byte(words)}
}

func signed(from uint32, words string) radiotest.Packet {
	p := text(from, words)
	p.PKI, p.Key = true, keyOf(from)
	return p
}

// M5: a direct text of a listed node is asked, and its answer goes back to it alone, by the way that it came.
func TestQuestionIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, radiotest.Config{Nodes: []radiotest.Node{{Num: anna, Long: "Anna\x1b[2J"}, {Num: unknown, Long: "other"}}}, Config{})
		defer b.stop()
		b.up()
		p := text(anna, " is it full? no\n")
		p.Channel = 3
		id := b.dev.Deliver(p)
		got := b.sent()
		if string(got.Payload) != "no" || got.To != anna || got.Reply != id || got.Channel != 3 || !got.WantAck || got.PKI || got.ID == 0 || got.From != 0 {
			t.Errorf("the answer is %+v", got)
		}
		id = b.dev.Deliver(signed(boris, "and now? yes"))
		got = b.sent()
		if string(got.Payload) != "yes" || got.To != boris || got.Reply != id || got.Channel != 0 || !got.PKI || !bytes.Equal(got.Key, keyOf(boris)) {
			t.Errorf("the answer to a key is %+v", got)
		}
		synctest.Wait()
		s := b.Status()
		if !s.Connected || s.Own != own || s.Modem != "LongFast" || s.Questions != 2 || s.Answered != 2 || s.Dropped != 0 || len(s.Refused) != 0 || s.QueueFree != 15 {
			t.Errorf("status %+v", s)
		}
		if s.Allowed != 36*time.Second || s.Used <= 0 || s.Used > 2*time.Second {
			t.Errorf("airtime %v of %v", s.Used, s.Allowed)
		}
		if want := (NodeStatus{"!b0b0b0b0", "", true}); s.Nodes[1] != want || b.Name(anna) != "Anna\x1b[2J" || b.Name(unknown) != "" {
			t.Errorf("nodes %+v", s.Nodes)
		}
		b.silent(time.Hour)
	})
}

// Whatever is no question of somebody who may ask costs nothing, is never answered, and is told once.
func TestWhatIsNoQuestion(t *testing.T) {
	tests := map[string]struct {
		p    radiotest.Packet
		why  Reason
		told int
	}{
		"to all":               {radiotest.Packet{From: anna, To: 1<<32 - 1, Payload: []byte("hi")}, Broadcast, 0},
		"to all with a key":    {radiotest.Packet{From: boris, To: 1<<32 - 1, Payload: []byte("hi"), PKI: true, Key: keyOf(boris)}, Broadcast, 0},
		"to another":           {radiotest.Packet{From: anna, To: own + 1, Payload: []byte("hi")}, Broadcast, 0},
		"of a stranger":        {text(unknown, "hi"), Unlisted, 1},
		"of a signed stranger": {signed(unknown, "hi"), Unlisted, 1},
		"of nobody":            {text(0, "hi"), Unlisted, 1},
		"without its key":      {text(boris, "hi"), Unproved, 1},
		"key, no encryption":   {radiotest.Packet{From: boris, Payload: []byte("hi"), Key: keyOf(boris)}, Unproved, 1},
		"encryption, no key":   {radiotest.Packet{From: boris, Payload: []byte("hi"), PKI: true}, WrongKey, 1},
		"with another's key":   {radiotest.Packet{From: boris, Payload: []byte("hi"), PKI: true, Key: keyOf(anna)}, WrongKey, 1},
		"with half its key":    {radiotest.Packet{From: boris, Payload: []byte("hi"), PKI: true, Key: keyOf(boris)[:16]}, WrongKey, 1},
		"through MQTT":         {radiotest.Packet{From: anna, Payload: []byte("hi"), MQTT: true}, ByInternet, 1},
		"a reaction":           {radiotest.Packet{From: anna, Payload: []byte("hi"), Emoji: 1}, NoQuestion, 1},
		"blank":                {text(anna, " \n"), NoQuestion, 1},
		"no text":              {text(anna, "\xff\xfe"), NoQuestion, 1},
		"too long":             {text(anna, strings.Repeat("a", maxQuestion+1)), NoQuestion, 1},
		"another application":  {radiotest.Packet{From: anna, Port: 3, Payload: []byte("hi")}, "", 0},
		"an admin message":     {radiotest.Packet{From: anna, Port: 6, Payload: []byte("hi")}, "", 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := start(t, radiotest.Config{}, Config{})
				defer b.stop()
				b.up()
				for range 3 {
					b.dev.Deliver(tt.p)
				}
				b.silent(time.Hour)
				s := b.Status()
				if b.questions() != 0 || s.Used != 0 || s.Questions != 0 {
					t.Errorf("it was asked: %q, %+v", b.asked, s)
				}
				if tt.why != "" && s.Refused[tt.why] != 3 || tt.why == "" && len(s.Refused) != 0 {
					t.Errorf("refused: %v", s.Refused)
				}
				if len(b.refused) != tt.told || tt.told == 1 && b.refused[0] != (Refusal{tt.why, tt.p.From}) {
					t.Errorf("told %v", b.refused)
				}
				b.dev.Deliver(signed(boris, "still there? yes"))
				if got := b.sent(); got.To != boris {
					t.Errorf("afterwards: %+v", got)
				}
			})
		})
	}
}

// Strangers under ever new numbers are told of once, and nothing of them is kept.
func TestManyStrangersAreToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, radiotest.Config{}, Config{})
		defer b.stop()
		b.up()
		for i := range uint32(500) {
			b.dev.Deliver(text(unknown+i, "hi"))
		}
		synctest.Wait()
		if b.count(Unlisted) != 500 || len(b.refused) != 1 || len(b.told) != 1 {
			t.Errorf("%d refused, told %v", b.count(Unlisted), b.refused)
		}
	})
}

// A copy of a packet, one of a refused question too, is not another question.
func TestReplayIsIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, radiotest.Config{}, Config{Questions: 2})
		defer b.stop()
		b.up()
		first, second, third := signed(boris, "a one"), signed(boris, "b two"), signed(boris, "c three")
		first.ID, second.ID, third.ID = 101, 102, 103
		for _, p := range []radiotest.Packet{first, first, second, third} {
			b.dev.Deliver(p)
			synctest.Wait()
		}
		if b.sent(); b.count(Duplicate) != 1 || b.count(TooOften) != 1 {
			t.Errorf("refused: %v", b.Status().Refused)
		}
		if got := b.sent(); string(got.Payload) != "two" {
			t.Errorf("then %q", got.Payload)
		}
		b.silent(hour + time.Minute) // a new hour, in which a question would be free
		for _, p := range []radiotest.Packet{first, second, third} {
			b.dev.Deliver(p)
		}
		b.silent(time.Minute)
		if b.questions() != 2 || b.count(Duplicate) != 4 {
			t.Errorf("asked %q, refused %v", b.asked, b.Status().Refused)
		}
		// Another node's packet may have the same id.
		other := text(anna, "mine four")
		other.ID = 101
		b.dev.Deliver(other)
		if got := b.sent(); string(got.Payload) != "four" {
			t.Errorf("%q", got.Payload)
		}
	})
}

// The memory for copies has a bound.
func TestSeenIsBounded(t *testing.T) {
	n := &node{seen: map[uint32]bool{}}
	for i := range uint32(3 * maxIDs) {
		n.saw(i + 1)
	}
	if len(n.seen) != maxIDs || len(n.recent) != maxIDs || !n.seen[3*maxIDs] || !n.seen[2*maxIDs+1] || n.seen[2*maxIDs] {
		t.Errorf("%d ids", len(n.seen))
	}
}

// M2: each node has a limit of its own, exact, and one question at a time.
func TestRateAndOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan string)
		b := start(t, radiotest.Config{Preset: 6}, Config{Questions: 3, Ask: func(_ context.Context, _ uint32, q string) (string, error) {
			if q == "slow" {
				return <-hold, nil
			}
			return "fast", nil
		}})
		defer b.stop()
		b.up()
		b.dev.Deliver(text(anna, "slow"))
		synctest.Wait()
		b.dev.Deliver(text(anna, "again"))
		if got := b.sent(); string(got.Payload) != busyWords {
			t.Errorf("the second question got %q", got.Payload)
		}
		b.dev.Deliver(text(carla, "me"))
		if got := b.sent(); string(got.Payload) != "fast" || got.To != carla {
			t.Errorf("another node got %q", got.Payload)
		}
		hold <- "done"
		if got := b.sent(); string(got.Payload) != "done" {
			t.Errorf("the first question got %q", got.Payload)
		}
		b.silent(59 * time.Minute)
		b.dev.Deliver(text(anna, "third"))
		b.sent()
		b.dev.Deliver(text(anna, "fourth"))
		b.silent(59 * time.Second)
		if b.count(TooOften) != 1 || b.count(Busy) != 1 || b.questions() != 3 {
			t.Errorf("asked %q, refused %v", b.asked, b.Status().Refused)
		}
		b.silent(time.Minute) // the first is an hour ago
		b.dev.Deliver(text(anna, "fifth"))
		if got := b.sent(); string(got.Payload) != "fast" {
			t.Errorf("%q", got.Payload)
		}
	})
}

func TestConfig(t *testing.T) {
	ask := func(context.Context, uint32, string) (string, error) { return "", nil }
	good := Config{Address: "[::1]", Ask: ask, Log: slog.New(slog.DiscardHandler), Nodes: listed()}
	r, err := New(good)
	if err != nil || r.address != "[::1]:4403" {
		t.Fatalf("%v, %v", r, err)
	}
	for name, change := range map[string]func(*Config){
		"no address": func(c *Config) { c.Address = "" },
		"no ask":     func(c *Config) { c.Ask = nil },
		"no log":     func(c *Config) { c.Log = nil },
		"twice":      func(c *Config) { c.Nodes = append(listed(), NodeID(boris)) },
		"no node":    func(c *Config) { c.Nodes = []string{"anna"} },
		"many": func(c *Config) {
			for i := range maxListed + 1 {
				c.Nodes = append(c.Nodes, NodeID(uint32(i+1)))
			}
		},
		"parts":     func(c *Config) { c.Parts = 10 },
		"questions": func(c *Config) { c.Questions = -1 },
		"patience":  func(c *Config) { c.Patience = -1 },
		"share":     func(c *Config) { c.Share = 0.2 },
		"duty":      func(c *Config) { c.DutyCycle = 1.5 },
		"negative":  func(c *Config) { c.Share = -0.01 },
	} {
		c := good
		change(&c)
		if _, err := New(c); err == nil {
			t.Errorf("%s is allowed", name)
		}
	}
}
