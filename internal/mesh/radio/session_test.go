package radio

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"atoll/internal/mesh/radio/radiotest"
)

// A device that answers nothing any more, its connection standing, is left and connected to anew.
func TestSilentDevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, radiotest.Config{}, Config{})
		defer b.stop()
		b.up()
		b.silent(30 * time.Minute) // nothing on the air is no silence: heartbeats are answered
		setups, beats := b.dev.Seen()
		if setups != 1 || beats < 25 {
			t.Errorf("%d setups, %d heartbeats", setups, beats)
		}
		b.dev.Mute(true)
		b.silent(quiet)
		synctest.Wait()
		if b.Status().Connected {
			t.Error("a silent device counts as connected")
		}
		b.dev.Mute(false)
		b.up()
		if !b.Status().Connected {
			t.Error("it is not connected again")
		}
	})
}

// Garbage between frames, and frames that make no sense, cost nothing but themselves.
func TestGarbageBetweenFrames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, radiotest.Config{}, Config{})
		defer b.stop()
		b.up()
		b.dev.Say([]byte("DEBUG | 12:00 [Router] Received\r\n\x94\x94\xc3\xff\xff\x94"))
		b.dev.Say(radiotest.Message([]byte{0x12, 0xff}))
		b.dev.Say(radiotest.Message(nil))
		b.dev.Deliver(text(anna, "tell me one"))
		if p := b.sent(); string(p.Payload) != "one" {
			t.Errorf("%q", p.Payload)
		}
		if setups, _ := b.dev.Seen(); setups != 1 || b.Status().Malformed != 1 {
			t.Errorf("%d setups, %d malformed", setups, b.Status().Malformed)
		}
		// A stranger's text that holds a frame is a text.
		forged := signed(boris, "do it")
		forged.ID = 5
		b.dev.Deliver(radiotest.Packet{From: unknown, Payload: radiotest.Framed(forged)})
		b.silent(time.Minute)
		if b.questions() != 1 || b.count(Unlisted) != 1 {
			t.Errorf("asked %q", b.asked)
		}
		// Endless garbage ends the connection.
		for range 70 {
			b.dev.Say([]byte(strings.Repeat("noise ", 200)))
		}
		b.up()
	})
}

// rebooted and a lost connection are connected to anew; a device that is away is tried ever more seldom, and told once.
func TestReconnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var away atomic.Bool
		var dials atomic.Int64
		dev := radiotest.New(radiotest.Config{})
		b := start(t, radiotest.Config{}, Config{Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if dials.Add(1); away.Load() {
				return nil, errors.New("no route to host")
			}
			if network != "tcp" || addr != "radio.test:4403" {
				t.Errorf("dialled %s %s", network, addr)
			}
			return dev.Dial(ctx, network, addr)
		}})
		defer dev.Close()
		defer b.stop()
		<-dev.Ready()
		synctest.Wait()
		dev.Rebooted()
		<-dev.Ready()
		dev.Reboot()
		<-dev.Ready()
		synctest.Wait()
		if !b.Status().Connected || dials.Load() != 3 {
			t.Fatalf("%d dials", dials.Load())
		}
		away.Store(true)
		before := strings.Count(b.log.String(), "no connection")
		dev.Reboot()
		b.silent(time.Hour)
		if n := dials.Load() - 3; n < 12 || n > 40 {
			t.Errorf("%d dials in an hour", n)
		}
		if n := strings.Count(b.log.String(), "no connection") - before; n != 1 {
			t.Errorf("told %d times", n)
		}
		if s := b.Status(); s.Connected || s.Own != 0 {
			t.Errorf("status %+v", s)
		}
		away.Store(false)
		<-dev.Ready()
	})
}

// A device that takes the connection and sends its settings never, without its number, or in endless pieces.
func TestSetupThatDoesNotEnd(t *testing.T) {
	for name, device := range map[string]func(net.Conn){
		"nothing": func(c net.Conn) { discard(c) },
		"no number": func(c net.Conn) { // the end of the settings, and nothing before it
			asked := make([]byte, 32+headerLen+6)
			if _, err := io.ReadFull(c, asked); err == nil {
				_, _ = c.Write(radiotest.Message(append([]byte{0x38}, asked[len(asked)-5:]...)))
			}
			discard(c)
		},
		"another's end": func(c net.Conn) {
			go discard(c)
			_, _ = c.Write(radiotest.Message([]byte{0x1a, 2, 8, 5}))
			_, _ = c.Write(radiotest.Message([]byte{0x38, 1}))
		},
		"does not read": func(net.Conn) {},
		"in drops": func(c net.Conn) {
			go discard(c)
			for _, b := range append([]byte{0x94, 0xC3, 1, 0}, make([]byte, 256)...) {
				tick := time.NewTimer(time.Second)
				<-tick.C
				if _, err := c.Write([]byte{b}); err != nil {
					return
				}
			}
		},
		"endless nodes": func(c net.Conn) {
			go discard(c)
			node := radiotest.Message([]byte{0x22, 2, 8, 1})
			for {
				tick := time.NewTimer(time.Second)
				<-tick.C
				if _, err := c.Write(node); err != nil {
					return
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				again := make(chan struct{}, 100)
				var devices sync.WaitGroup
				defer devices.Wait()
				b := start(t, radiotest.Config{}, Config{Dial: func(context.Context, string, string) (net.Conn, error) {
					here, there := net.Pipe()
					again <- struct{}{}
					devices.Go(func() { device(there) })
					return here, nil
				}})
				defer b.stop()
				<-again
				began := time.Now()
				<-again // the first connection was given up
				if took := time.Since(began); took > setupTime+firstWait {
					t.Errorf("it took %v", took)
				}
				if b.Status().Connected {
					t.Error("it counts as connected")
				}
			})
		})
	}
}

func discard(c net.Conn) {
	buf := make([]byte, 1024)
	for {
		if _, err := c.Read(buf); err != nil {
			return
		}
	}
}

// Run ends at once with its context, whatever is under way, and leaves nothing behind: the bubble would not end.
func TestRunEnds(t *testing.T) {
	for name, answer := range map[string]radiotest.Answer{"waiting for an acknowledgement": {Silent: true}, "waiting for the device": {Reboot: true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := start(t, radiotest.Config{Answer: func(int, radiotest.Packet) radiotest.Answer { return answer }}, Config{Ask: says(long(3))})
				b.up()
				b.dev.Deliver(text(anna, "tell me"))
				b.sent()
				b.dev.Deliver(text(carla, "and me"))
				synctest.Wait()
				began := time.Now()
				b.stop()
				if took := time.Since(began); took > time.Second {
					t.Errorf("it took %v", took)
				}
				if s := b.Status(); s.Connected {
					t.Error("it counts as connected")
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) { // while a question is asked
		b := start(t, radiotest.Config{}, Config{Ask: func(ctx context.Context, _ uint32, _ string) (string, error) {
			<-ctx.Done()
			return "", ctx.Err()
		}})
		b.up()
		b.dev.Deliver(text(anna, "tell me"))
		synctest.Wait()
		b.stop()
		select {
		case p := <-b.dev.Sent():
			t.Errorf("sent %q", p.Payload)
		default:
		}
	})
}

// The same over TCP on 127.0.0.1, with the machine's own clock.
func TestOverTCP(t *testing.T) {
	dev := radiotest.New(radiotest.Config{Nodes: []radiotest.Node{{Num: anna, Long: "Anna"}}})
	addr, err := dev.Listen()
	if err != nil {
		t.Fatal(err)
	}
	b := start(t, radiotest.Config{}, Config{Ask: says(long(2)), Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, addr)
	}})
	defer dev.Close()
	defer b.stop()
	<-dev.Ready()
	dev.Deliver(text(anna, "tell me"))
	for _, want := range []string{"1/2", "2/2"} {
		if p := <-dev.Sent(); number(p) != want || p.To != anna {
			t.Errorf("%+v", p)
		}
	}
}

// Names and settings that come later count from then on: the cost of a packet is the present modem's.
func TestSettingsThatChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, radiotest.Config{Preset: 6}, Config{Ask: says("short")})
		defer b.stop()
		b.up()
		if s := b.Status(); s.Modem != "ShortFast" || b.Name(anna) != "" {
			t.Errorf("before: %+v", s)
		}
		b.dev.Say(radiotest.Message(unhex(t, goldNode)))
		b.dev.Say(radiotest.Message(unhex(t, goldLora)))
		synctest.Wait()
		if s := b.Status(); s.Modem != "LongFast" || b.Name(anna) != "Anna on the hill" {
			t.Errorf("after: %+v", s)
		}
		b.dev.Deliver(text(anna, "tell me"))
		p := b.sent()
		synctest.Wait()
		if want := presetOf(0).onAir(&data{port: textApp, payload: p.Payload}); b.Status().Used != want {
			t.Errorf("%v used, want %v", b.Status().Used, want)
		}
	})
}
