package link

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/protocol"

	"atoll/internal/fault"
)

// rawStream is a stream whose bytes are the test's own.
func rawStream(t *testing.T, n *node, name protocol.ID) network.Stream {
	t.Helper()
	x := foreign(t)
	if err := x.Connect(within(t), infoOf(t, n)); err != nil {
		t.Fatal(err)
	}
	s, err := x.NewStream(within(t), n.self, name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Reset() })
	_ = s.SetDeadline(time.Now().Add(patience))
	return s
}

// Each hostile frame is answered by one clear refusal, counted, and the node goes on.
func TestHostileFrames(t *testing.T) {
	a := start(t, "a", func(c *Config, _ *node) { c.Protocols[0].MaxFrame = 16 << 10 })
	b := start(t, "b", nil)
	for name, data := range hostile() {
		s := rawStream(t, a, "/atoll/echo/1")
		if _, err := s.Write(data); err != nil {
			t.Fatal(err)
		}
		_ = s.CloseWrite()
		got, err := io.ReadAll(io.LimitReader(s, 1<<20))
		if f := Said(read(got, 16<<10)); err != nil || f == nil || f.Code != fault.BadRequest || f.Message != "that is no echo of version 1" {
			t.Errorf("%s: %v, %q", name, err, got)
		}
		if why := next(t, a.refusals, "refusal"); why != "a bad frame of echo" {
			t.Errorf("%s: refused for %s", name, why)
		}
	}
	// A caller's refusal is no answer to anything, and nothing of it is reflected.
	s := rawStream(t, a, "/atoll/echo/1")
	_, _ = s.Write(encodeError(fault.New(fault.Busy, "canary")))
	if got, _ := io.ReadAll(s); bytes.Contains(got, []byte("canary")) || Said(read(got, 1<<10)) == nil {
		t.Errorf("answered: %q", got)
	}
	if why := next(t, a.refusals, "refusal"); why != "a bad frame of echo" {
		t.Errorf("refused for %s", why)
	}
	join(t, b, a)
	if err := talk(t, b, a, "echo"); err != nil {
		t.Error(err)
	}
}

// Another version or name of this program's protocols gets one clear refusal; others get nothing.
func TestOtherProtocols(t *testing.T) {
	a := start(t, "a", nil)
	for name, want := range map[protocol.ID]string{
		"/atoll/echo/2": "this node speaks echo version 1", "/atoll/echo": "this node speaks echo version 1", "/atoll/echo/1/x": "this node speaks echo version 1",
		"/atoll/teleport/1": "this node does not speak that; it may be older or newer than yours", "/atoll/": "this node does not speak that; it may be older or newer than yours",
	} {
		s := rawStream(t, a, name)
		got, err := io.ReadAll(s)
		if f := Said(read(got, 1<<10)); err != nil || f == nil || f.Code != fault.NotFound || f.Message != want {
			t.Errorf("%s: %v, %q", name, err, got)
		}
	}
	x := foreign(t)
	if err := x.Connect(within(t), infoOf(t, a)); err != nil {
		t.Fatal(err)
	}
	if s, err := x.NewStream(within(t), a.self, "/atol/echo/1"); err == nil {
		_ = s.Reset()
		t.Error("a foreign protocol is served")
	}
}

// A newer node that asks an older one is told so by name, though it sent its question first.
func TestVersionMismatch(t *testing.T) {
	newer := echo("echo")
	newer.Version = 2
	a, b := start(t, "a", nil), start(t, "b", with(newer))
	join(t, b, a)
	if f := Said(talk(t, b, a, "echo")); f == nil || f.Message != "this node speaks echo version 1" {
		t.Errorf("%+v", f)
	}
}

// A caller that is refused while it still sends learns why.
func TestRefusedWhileSending(t *testing.T) {
	for name, listen := range map[string]string{"tcp": tcpHere, "quic": quicHere} {
		t.Run(name, func(t *testing.T) {
			p := echo("no")
			p.Idle = 500 * time.Millisecond // over TCP, only a full window tells the sender
			p.Serve = func(context.Context, string, *Stream) error { return fault.New(fault.Rule, "not now") }
			change := func(c *Config, n *node) { with(p)(c, n); c.Listen = []string{listen} }
			a, b := start(t, "a", change), start(t, "b", change)
			join(t, b, a)
			s := open(t, b, a, "no")
			var err error
			for range 10_000 {
				if err = s.Send(word{strings.Repeat("x", 10_000)}); err != nil {
					break
				}
			}
			if err == nil {
				err = s.Receive(&word{})
			}
			if f := Said(err); f == nil || f.Code != fault.Rule {
				t.Errorf("learnt %v", err)
			}
		})
	}
}

// A stream ends with its time, also where nothing is read or written.
func TestTotal(t *testing.T) {
	ended := make(chan error, 1)
	p := echo("long")
	p.Total = 200 * time.Millisecond
	p.Serve = func(ctx context.Context, _ string, _ *Stream) error {
		<-ctx.Done()
		ended <- ctx.Err()
		return nil
	}
	a, b := start(t, "a", with(p)), start(t, "b", with(p))
	join(t, b, a)
	if err := open(t, b, a, "long").Send(word{}); err != nil {
		t.Fatal(err)
	}
	if err := next(t, ended, "end"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("ended with %v", err)
	}
}

// What Serve returns is told only as far as it is the peer's business.
func TestServeErrors(t *testing.T) {
	var out error
	boom := false
	p := echo("fail")
	p.Serve = func(context.Context, string, *Stream) error {
		if boom {
			panic("canary")
		}
		return out
	}
	a, b := start(t, "a", with(p)), start(t, "b", with(p))
	join(t, b, a)
	ask := func() *RemoteError {
		s := open(t, b, a, "fail")
		_ = s.Send(word{})
		return Said(s.Receive(&word{}))
	}
	for _, tc := range []struct {
		err  error
		code fault.Code
		text string
	}{
		{fault.New(fault.Rule, "no such thing").After(1500 * time.Millisecond), fault.Rule, "no such thing"},
		{errors.New("canary"), fault.Unavailable, "this node cannot do that now"},
		{fault.Wrap(errors.New("canary"), fault.Failed, "canary"), fault.Unavailable, "this node cannot do that now"},
	} {
		out = tc.err
		f := ask()
		if f == nil || f.Code != tc.code || f.Message != tc.text {
			t.Errorf("%v: %+v", tc.err, f)
		} else if f.Code == fault.Rule && f.RetryAfter != 2*time.Second {
			t.Errorf("wait of %v", f.RetryAfter)
		}
	}
	boom = true
	if f := ask(); f == nil || f.Code != fault.Unavailable || strings.Contains(f.Message, "canary") {
		t.Errorf("a panic: %+v", f)
	}
}

// M2: each peer has its own rate and places; a flood is told of at a bounded rate.
func TestRateAndConcurrency(t *testing.T) {
	const most = 20
	hold := make(chan struct{})
	slow := echo("slow")
	slow.Concurrent = 2
	slow.Serve = func(_ context.Context, _ string, s *Stream) error {
		_ = s.Send(word{"in"})
		<-hold
		return nil
	}
	quick := echo("quick")
	quick.Rate = Rate{most, time.Hour}
	all := with(slow, quick)
	a, b, c := start(t, "a", all), start(t, "b", all), start(t, "c", all)
	join(t, b, a)
	join(t, c, a)
	for range 2 {
		s := open(t, b, a, "slow")
		if err := s.Send(word{}); err != nil {
			t.Fatal(err)
		}
		if err := s.Receive(&word{}); err != nil {
			t.Fatal(err)
		}
	}
	if f := Said(talk(t, b, a, "slow")); f == nil || f.Code != fault.Busy {
		t.Errorf("a third at once: %+v", f)
	}
	s := open(t, c, a, "slow")
	_ = s.Send(word{})
	if err := s.Receive(&word{}); err != nil {
		t.Errorf("another peer's first: %v", err)
	}
	close(hold)
	for range most {
		if err := talk(t, b, a, "quick"); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 * refusalsTold {
		if f := Said(talk(t, b, a, "quick")); f == nil || f.Code != fault.RateLimited || f.RetryAfter <= 59*time.Minute {
			t.Fatalf("above the rate: %+v", f)
		}
	}
	if err := talk(t, c, a, "quick"); err != nil {
		t.Errorf("another peer pays for it: %v", err)
	}
	if n := len(a.refusals); n < 2 || n > refusalsTold {
		t.Errorf("%d refusals told of", n)
	}
}

// A node that sends or takes a byte now and then is given up after Idle, and one that keeps on after Total.
func TestSlow(t *testing.T) {
	type end struct {
		err  error
		took time.Duration
	}
	ended := make(chan end, 1)
	timed := func(f func(s *Stream) error) func(context.Context, string, *Stream) error {
		return func(_ context.Context, _ string, s *Stream) error {
			began := time.Now()
			err := f(s)
			ended <- end{err, time.Since(began)}
			return err
		}
	}
	shape := func(name string, idle, total time.Duration, f func(s *Stream) error) Protocol {
		p := echo(name)
		p.Idle, p.Total, p.Serve = idle, total, timed(f)
		return p
	}
	frame := func(s *Stream) error { return s.Receive(&word{}) }
	frames := func(s *Stream) error {
		for {
			if err := s.Receive(&word{}); err != nil {
				return err
			}
		}
	}
	take := func(s *Stream) error { _, err := s.ReadInto(io.Discard, 1<<30); return err }
	give := func(s *Stream) error { _, err := s.WriteFrom(endless{}, 1<<30); return err }
	const short, long = 300 * time.Millisecond, time.Minute
	a := start(t, "a", with(shape("frame", short, long, frame), shape("frames", long, short, frames), shape("take", short, long, take), shape("give", short, long, give),
		shape("silent", short, long, frame)))
	for name, drip := range map[protocol.ID][]byte{
		"/atoll/frame/1": []byte("\x40d{\"text\":\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaa"), "/atoll/frames/1": bytes.Repeat([]byte("\x03d{}"), 50),
		"/atoll/take/1": bytes.Repeat([]byte{'x'}, 100), "/atoll/give/1": nil, "/atoll/silent/1": nil,
	} {
		s := rawStream(t, a, name)
		_, _ = s.Write(nil) // the stream's name
		tick := time.NewTicker(20 * time.Millisecond)
		var e end
		for i := 0; e.err == nil; {
			select {
			case e = <-ended:
			case <-tick.C:
				if i < len(drip) {
					_, _ = s.Write(drip[i : i+1])
					i++
				}
			case <-time.After(patience):
				t.Fatalf("%s goes on", name)
			}
		}
		tick.Stop()
		if !errors.Is(e.err, ErrReset) || e.took < short/2 || e.took > 10*short {
			t.Errorf("%s ended after %v with %v", name, e.took, e.err)
		}
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// Bytes go through as they are, in both directions, and a cut copy keeps what came.
func TestCopy(t *testing.T) {
	want := bytes.Repeat([]byte("0123456789abcdef\n"), 100_000)
	give := echo("give")
	give.Serve = func(_ context.Context, _ string, s *Stream) error {
		var w word
		if err := s.Receive(&w); err != nil {
			return err
		}
		n := len(want)
		if w.Text == "half" {
			n /= 2
		}
		_, err := s.WriteFrom(bytes.NewReader(want[:n]), int64(len(want)))
		return err
	}
	a, b := start(t, "a", with(give)), start(t, "b", with(give))
	join(t, b, a)
	for _, how := range []string{"all", "half"} {
		s := open(t, b, a, "give")
		if err := s.Send(word{how}); err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		n, err := s.ReadInto(&got, int64(len(want)))
		if n != int64(got.Len()) || !bytes.HasPrefix(want, got.Bytes()) || (how == "all") != (err == nil) || (err == nil) != (got.Len() == len(want)) {
			t.Errorf("%s: %d bytes of %d, %v", how, n, len(want), err)
		}
	}
	// A fault of the one who writes stays his own.
	s := open(t, b, a, "give")
	_ = s.Send(word{"all"})
	full := fault.New(fault.Unavailable, "the disk is full")
	if _, err := s.ReadInto(broke{full}, 100); !fault.Is(err, fault.Unavailable) || errors.Is(err, ErrReset) {
		t.Errorf("a full disk: %v", err)
	}
}

type broke struct{ err error }

func (b broke) Write([]byte) (int, error) { return 0, b.err }

// A peer that gives up ends what is done for it.
func TestWatch(t *testing.T) {
	for _, how := range []string{"reset", "more", "disconnect", "close in order"} {
		t.Run(how, func(t *testing.T) {
			began, ended := make(chan struct{}), make(chan struct{})
			p := echo("long")
			p.Serve = func(ctx context.Context, _ string, s *Stream) error {
				if err := s.Receive(&word{}); err != nil {
					return err
				}
				ctx = s.Watch(ctx)
				close(began)
				<-ctx.Done()
				close(ended)
				return ctx.Err()
			}
			a, b := start(t, "a", with(p)), start(t, "b", with(p))
			join(t, b, a)
			s := open(t, b, a, "long")
			if err := s.Send(word{}); err != nil {
				t.Fatal(err)
			}
			next(t, began, "stream")
			switch how {
			case "reset":
				s.Reset()
			case "more":
				_ = s.Send(word{})
			case "disconnect":
				b.Disconnect(a.Key())
			default: // it still wants its answer
				_ = s.CloseWrite()
				select {
				case <-ended:
					t.Fatal("ended")
				case <-time.After(50 * time.Millisecond):
				}
				a.Disconnect(b.Key())
			}
			next(t, ended, "end")
		})
	}
}

// The caller's context ends his stream.
func TestOpenEnds(t *testing.T) {
	p := echo("silent")
	p.Serve = func(ctx context.Context, _ string, _ *Stream) error { <-ctx.Done(); return nil }
	a, b := start(t, "a", with(p)), start(t, "b", with(p))
	if _, err := b.Open(within(t), a.Key(), "silent"); !errors.Is(err, ErrReset) {
		t.Errorf("without a connection: %v", err)
	}
	join(t, b, a)
	if _, err := b.Open(within(t), a.Key(), "other"); err == nil {
		t.Error("a protocol that is none")
	}
	ctx, cancel := context.WithCancel(context.Background())
	s, err := b.Open(ctx, a.Key(), "silent")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Reset()
	if err := s.Send(word{}); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := s.Receive(&word{}); !errors.Is(err, ErrReset) {
		t.Errorf("after the end: %v", err)
	}
	if err := s.Send(word{strings.Repeat("x", 64<<10)}); err == nil || errors.Is(err, ErrReset) {
		t.Errorf("a frame too large: %v", err)
	}
}
