package mesh

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"atoll/internal/caller"
	"atoll/internal/fault"
	"atoll/internal/mesh/invite"
	"atoll/internal/mesh/link"
)

func (h *house) accept(v Invite) error {
	h.t.Helper()
	return h.call("mesh.accept", map[string]any{"code": v.Code, "key_words": strings.Join(v.KeyWords, " ")}, nil)
}

// An invite is for one node: the first that brings it. The same one may ask again, a second is refused and the owner is
// told once.
func TestInviteIsUsedOnce(t *testing.T) {
	a, b, c := newHouse(t, "alder"), newHouse(t, "birch"), newHouse(t, "cedar")
	v := a.invited()
	for range 2 {
		if err := b.accept(v); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		a.invited() // strangers get as far as the question
		if err := c.accept(v); !refused(err, fault.Forbidden) {
			t.Fatal("a used invite was taken:", err)
		}
	}
	if a.peer(c.self) != nil || len(a.noticed("mesh-invite-used:")) != 1 {
		t.Errorf("%+v", a.notices)
	}
	if s := a.sees(b.self).State; s != asking {
		t.Error(s)
	}
}

// Without an open invite a stranger gets no stream at all; a withdrawn or ended invite is none, whatever the clock says.
func TestClosedToStrangers(t *testing.T) {
	a, b := newHouse(t, "alder"), newHouse(t, "birch")
	v := a.invited()
	a.must("mesh.uninvite", struct{}{}, nil)
	if err := b.accept(v); err == nil {
		t.Fatal("a withdrawn invite was taken")
	}
	for _, hour := range []time.Duration{time.Hour, -time.Hour} { // the clock jumps: C4
		v = a.invited()
		a.mu.Lock()
		a.skew += hour
		a.mu.Unlock()
		if err := b.accept(v); err == nil {
			t.Fatalf("an invite outlived a clock that jumped by %s", hour)
		}
	}
	if len(a.snapshot()) != 0 {
		t.Errorf("%+v", a.shownPeers())
	}
	v = a.invited()
	b.skew = 90 * time.Minute // the other node's clock counts for nothing
	if err := b.accept(v); err != nil {
		t.Error(err)
	}
}

// The key in the invite is the node that answers, or nobody.
func TestWrongKey(t *testing.T) {
	a, b, c := newHouse(t, "alder"), newHouse(t, "birch"), newHouse(t, "cedar")
	v := a.invited()
	parsed, err := invite.Parse(v.Code)
	if err != nil {
		t.Fatal(err)
	}
	c.invited() // so that cedar talks to strangers
	parsed.Addrs = bare(c.host.Addrs())
	if err := b.accept(Invite{Code: parsed.Code(), KeyWords: v.KeyWords}); err == nil {
		t.Fatal("another node's answer was taken for the inviting one's")
	}
	if len(b.snapshot()) != 0 || len(c.snapshot()) != 0 {
		t.Error("a pairing came of it")
	}
}

func bare(addrs []string) (out []string) {
	for _, a := range addrs {
		head, _, _ := strings.Cut(a, "/p2p/")
		out = append(out, head)
	}
	return out
}

// A block takes the connection and the turns down at once, holds over a restart, and asks for no second pairing.
func TestBlock(t *testing.T) {
	a, b := newHouse(t, "alder"), newHouse(t, "birch")
	pair(t, a, b)
	a.allow(b, nil, "system")
	started := make(chan struct{})
	a.answer = func(ctx context.Context, _ caller.Caller, _ Question, say func(string) error) (Answer, error) {
		close(started)
		<-ctx.Done()
		return Answer{}, say("too late")
	}
	failed := make(chan error, 1)
	go func() { failed <- b.call("mesh.ask", map[string]any{"peer": a.self, "question": "hello"}, nil) }()
	<-started
	a.must("mesh.block", map[string]any{"peer": b.self}, nil)
	if err := <-failed; err == nil {
		t.Error("a blocked peer was answered")
	}
	a.mu.Lock()
	if !slices.Equal(a.cancels, []string{b.self}) {
		t.Errorf("cancelled: %v", a.cancels)
	}
	a.answer = nil
	a.mu.Unlock()
	v := a.invited()
	if err := b.accept(v); err == nil {
		t.Error("a blocked node paired again")
	}
	a.stop()
	a.start()
	if s := a.sees(b.self); s.State != blocked || s.Online {
		t.Errorf("%+v", s)
	}
	if err := b.call("mesh.refresh", map[string]any{"peer": a.self}, nil); err == nil {
		t.Error("a blocked node was answered after a restart")
	}
	a.must("mesh.remove", map[string]any{"peer": b.self}, nil)
	if err := b.accept(a.invited()); err != nil {
		t.Error("a forgotten node cannot pair anew:", err)
	}
	if p := a.sees(b.self); p.State != asking || len(p.Ceiling.Categories) != 0 {
		t.Errorf("%+v", p)
	}
}

// A node restored from an old copy does not serve those whom its owner has blocked since: a peer hands it back its own
// signature of a later time, and everything is held until the owner has looked. A lie holds nothing.
func TestRestoredFromAnOldCopy(t *testing.T) {
	a, b, c := newHouse(t, "alder"), newHouse(t, "birch"), newHouse(t, "cedar")
	pair(t, a, b)
	pair(t, a, c)
	a.allow(b, nil, "system")
	a.stop()
	old, err := os.ReadFile(filepath.Join(a.dir, "node.db"))
	if err != nil {
		t.Fatal(err)
	}
	a.start()
	a.must("mesh.block", map[string]any{"peer": b.self}, nil)
	c.until("back", func() bool { return c.sees(a.self).Online })
	c.must("mesh.refresh", map[string]any{"peer": a.self}, nil) // cedar gets the newest statement
	a.stop()
	if err := os.WriteFile(filepath.Join(a.dir, "node.db"), old, 0o600); err != nil {
		t.Fatal(err)
	}
	a.start()
	if !a.Alive(b.self) {
		t.Fatal("the old copy does not hold what the test needs")
	}
	lie := make([]byte, statementBytes+64)
	a.checkRestored(t.Context(), lie)
	if a.held {
		t.Fatal("a statement that this node did not sign holds it")
	}
	a.heard(t.Context(), c.self, c.greeting(a.self))
	if !a.held || a.Alive(b.self) || a.Alive(c.self) || a.Ceiling(b.self) != nil || len(a.noticed("mesh-restored")) != 1 {
		t.Fatalf("held %v, %+v", a.held, a.notices)
	}
	if err := b.exchange(t.Context(), a.self, "status", statusAsk{}, &Figures{}); err == nil {
		t.Error("a peer was served while everything is held")
	}
	a.stop()
	a.start()
	if !a.held {
		t.Error("a restart ended the hold")
	}
	a.must("mesh.block", map[string]any{"peer": b.self}, nil)
	a.must("mesh.resume", struct{}{}, nil)
	if a.held || a.Alive(b.self) || !a.Alive(c.self) {
		t.Error("after the owner has looked:", a.held, a.Alive(b.self), a.Alive(c.self))
	}
	a.heard(t.Context(), c.self, c.greeting(a.self))
	if a.held {
		t.Error("held again by the same statement")
	}
}

// A restored node that decides more, before any peer comes back, than it has forgotten, is told so all the same, whichever
// side calls: what it signed in a start that it does not know gives it away.
func TestRestoredAndBusy(t *testing.T) {
	for _, calls := range []string{"the peer", "the restored one"} {
		a, c := newHouse(t, "alder"), newHouse(t, "cedar")
		pair(t, a, c)
		a.stop()
		old, err := os.ReadFile(filepath.Join(a.dir, "node.db"))
		if err != nil {
			t.Fatal(err)
		}
		a.start()
		a.allow(c, nil, "system")
		c.until("back", func() bool { return c.sees(a.self).Online })
		c.must("mesh.refresh", map[string]any{"peer": a.self}, nil)
		c.stop()
		a.stop()
		if err := os.WriteFile(filepath.Join(a.dir, "node.db"), old, 0o600); err != nil {
			t.Fatal(err)
		}
		a.start()
		for range 20 {
			a.must("mesh.rename", map[string]any{"peer": c.self, "label": "friend"}, nil)
			a.must("mesh.rename", map[string]any{"peer": c.self, "label": ""}, nil)
		}
		lost, ok := readStatement(a.cfg.Key.Public().(ed25519.PublicKey), c.peer(a.self).statement)
		if !ok || lost.generation >= a.generation {
			t.Fatalf("the restored node has not decided enough: %+v, %d", lost, a.generation)
		}
		c.start()
		addr := c.host.Addrs()
		if calls == "the peer" {
			c.note(t.Context(), a.self, func(p *peer) { p.addrs = a.host.Addrs() })
			_ = c.keep(t.Context(), a.self)
		} else {
			a.note(t.Context(), c.self, func(p *peer) { p.addrs = addr })
			_ = a.keep(t.Context(), c.self)
		}
		a.until("held", func() bool { return !a.Alive(c.self) })
		a.stop()
		c.stop()
	}
}

// A partition and its healing: the peer is called again, without anybody asking.
func TestFoundAgain(t *testing.T) {
	a, b := newHouse(t, "alder"), newHouse(t, "birch")
	pair(t, a, b)
	addrs := a.host.Addrs()
	a.stop()
	b.until("gone", func() bool { return !b.sees(a.self).Online })
	a.start(func(c *Config) { c.Listen = bare(addrs)[:1] })
	b.until("back", func() bool { return b.sees(a.self).Online })
}

// outsider is a node that is no Atoll: it has the transport and says what it likes.
func outsider(t *testing.T, name string) *link.Host {
	t.Helper()
	seed := sha256.Sum256([]byte(name))
	h, err := link.New(link.Config{Key: ed25519.NewKeyFromSeed(seed[:]), Listen: []string{"/ip4/127.0.0.1/tcp/0"}, Log: slog.New(slog.DiscardHandler),
		Standing: func(string) link.Standing { return link.Known }, Protocols: []link.Protocol{
			{Name: "pair", Version: 1, MaxFrame: 1 << 20, Concurrent: 8, Rate: link.Rate{Max: 1000, Window: time.Minute}, Idle: time.Minute, Total: time.Minute,
				Serve: func(context.Context, string, *link.Stream) error { return nil }}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	return h
}
