package mesh

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"atoll/internal/caller"
	"atoll/internal/fault"
)

// M1: an invite is for one use, also where the node that uses it is paired already: it is not left open for another.
func TestInviteUsedByAPairedPeer(t *testing.T) {
	a, b, c := newHouse(t, "alder"), newHouse(t, "birch"), newHouse(t, "cedar")
	pair(t, a, b)
	v := a.invited()
	if err := b.accept(v); err != nil {
		t.Fatal(err)
	}
	if err := c.accept(v); err == nil {
		t.Errorf("a second node used the invite: %v", err)
	}
	if p := a.peer(c.self); p != nil {
		t.Errorf("it is %s", p.state)
	}
	if err := b.accept(v); err != nil { // the answer may have been lost
		t.Error("the same node again:", err)
	}
}

// Accepting a second invite of a known node keeps what the owner set for it.
func TestAcceptedAgain(t *testing.T) {
	a, b := newHouse(t, "alder"), newHouse(t, "birch")
	pair(t, a, b)
	b.allow(a, nil, "system")
	if err := b.accept(a.invited()); err != nil {
		t.Fatal(err)
	}
	if p := b.sees(a.self); p.Label != "alder" || !slices.Equal(p.Ceiling.Categories, []string{"system"}) || p.State != paired {
		t.Errorf("%+v", p)
	}
}

// A block that comes while an invite is being accepted stands, and so does a ceiling that was narrowed meanwhile.
func TestBlockDuringAccept(t *testing.T) {
	a, b := newHouse(t, "alder"), newHouse(t, "birch")
	pair(t, a, b)
	b.must("mesh.block", map[string]any{"peer": a.self}, nil)
	if _, err := b.accepted(t.Context(), owner, a.self, "", nil, pairReply{State: paired, Name: "alder"}); !fault.Is(err, fault.Rule) {
		t.Error(err)
	}
	if p := b.sees(a.self); p.State != blocked {
		t.Errorf("%+v", p)
	}
	for _, said := range []State{blocked, "", "paired\x1b[2J"} {
		if _, err := a.accepted(t.Context(), owner, b.self, "", nil, pairReply{State: said}); err == nil {
			t.Errorf("the state %q of another node was taken", said)
		}
	}
}

// The peers are bounded by accepting too.
func TestAcceptIsBounded(t *testing.T) {
	a, b := newHouse(t, "alder"), newHouse(t, "birch")
	b.Room.mu.Lock()
	for i := range maxPeers {
		key := fmt.Sprintf("peer%d", i)
		b.peers[key] = &peer{key: key, state: blocked}
	}
	b.Room.mu.Unlock()
	if err := b.accept(a.invited()); !fault.Is(err, fault.Rule) {
		t.Error(err)
	}
}

// A5: a folder that is closed ends the file that is on its way out of it, as a closed category does.
func TestFolderClosedDuringAFetch(t *testing.T) {
	body := random(24 << 20)
	a, b := sharing(t, map[string][]byte{"films/big": body})
	a.allow(b, []string{"films", "books"}, "content")
	var sent atomic.Int64
	a.breakAfter(2<<20, func() {
		a.must("mesh.allow", map[string]any{"peer": b.self, "categories": []string{"content"}, "folders": []string{"books"}}, nil)
	}, &sent)
	got, err := b.fetch(t.Context(), owner, a.self, "films/big", func(Progress) error { return nil })
	if err == nil || sent.Load() > 8<<20 {
		t.Errorf("%+v, %v, %d bytes sent", got, err, sent.Load())
	}
}

// Sizes that add up to more than there are numbers for: nothing of it keeps the node from listing, or from starting again.
func TestSizesWithoutEnd(t *testing.T) {
	a, b := newHouse(t, "alder"), newHouse(t, "birch")
	pair(t, a, b)
	a.allow(b, []string{"/"}, "content")
	a.serve(serves{catalogue: func(string, int) ([]Item, bool) {
		return []Item{{Path: "a", Size: math.MaxInt64, SHA256: hexSum(nil), Modified: time.UnixMilli(1)}, {Path: "b", Size: math.MaxInt64, SHA256: hexSum(nil), Modified: time.UnixMilli(1)},
			{Path: "c", Size: 3, SHA256: hexSum(nil), Modified: time.UnixMilli(1)}}, false
	}})
	b.must("mesh.refresh", map[string]any{"peer": a.self}, nil)
	if l, err := b.Received(t.Context(), a.self, "", 100); err != nil || l.Bytes < 0 {
		t.Errorf("%+v, %v", l, err)
	}
	if p := b.sees(a.self); p.Shares.Bytes < 0 {
		t.Errorf("%+v", p.Shares)
	}
	b.stop()
	b.start() // fails where New does
}

// Times at the ends of the calendar do not make a listing unreadable.
func TestTimesWithoutEnd(t *testing.T) {
	a, b := newHouse(t, "alder"), newHouse(t, "birch")
	pair(t, a, b)
	a.allow(b, []string{"/"}, "content")
	at := func(name string, when time.Time) Item {
		return Item{Path: name, Size: 1, SHA256: hexSum(nil), Modified: when}
	}
	a.serve(serves{catalogue: func(string, int) ([]Item, bool) {
		return []Item{at("a", time.Date(9999, 12, 31, 23, 59, 59, 0, time.FixedZone("", -23*3600))), at("b", time.Date(0, 1, 1, 0, 0, 0, 0, time.FixedZone("", 23*3600))), at("c", time.UnixMilli(1))}, false
	}})
	b.must("mesh.refresh", map[string]any{"peer": a.self}, nil)
	l, err := b.Received(t.Context(), a.self, "", 100)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range l.Items {
		if _, err := i.Modified.MarshalJSON(); err != nil {
			t.Errorf("%s: %v", i.Path, err)
		}
	}
}

// M4: a peer's refusal is not this node's own: none of its codes ends the owner's session or tells of a right here.
func TestRefusalsAreNotOurs(t *testing.T) {
	a, b := newHouse(t, "alder"), newHouse(t, "birch")
	pair(t, a, b)
	for _, code := range []fault.Code{fault.Unauthenticated, fault.CSRF, fault.UnknownMethod, fault.BadRequest, fault.Expired, fault.TooSoon, fault.OutcomeUnknown, fault.Declined, fault.Forbidden} {
		a.set(func(context.Context, caller.Caller, Question, func(string) error) (Answer, error) {
			return Answer{}, fault.New(code, "log in again at evil.example")
		})
		if _, err := b.Room.ask(t.Context(), a.self, Question{Text: "?"}, func(string) error { return nil }); err == nil || fault.Of(err).Code == code {
			t.Errorf("%s crossed as this node's own: %v", code, err)
		}
	}
}

// M4: in a notice a peer's own name stands in quotation marks that it cannot close: it goes on in no voice of the host.
func TestNamesInNotices(t *testing.T) {
	a := newHouse(t, "alder")
	b := newHouse(t, "birch", func(c *Config) { c.Name = func() string { return "Bob”. Atoll compared its words, admit it" } })
	if err := b.accept(a.invited()); err != nil {
		t.Fatal(err)
	}
	a.flooded(t.Context(), b.self, "x")
	found := append(a.noticed("mesh-asks:"), a.noticed("mesh-burst:")...)
	if len(found) != 2 {
		t.Fatal(found)
	}
	for _, n := range found {
		_, after, ok := strings.Cut(n.What, "“")
		if inside, _, closed := strings.Cut(after, "”"); !ok || !closed || !strings.HasSuffix(inside, "admit it") {
			t.Errorf("%q", n.What)
		}
	}
}

// What anybody on the local network announces is tried, and takes no place of what the peer itself said.
func TestAnnouncedLies(t *testing.T) {
	a, b := newHouse(t, "alder"), newHouse(t, "birch")
	pair(t, a, b)
	b.until("its addresses", func() bool { return len(b.peer(a.self).addrs) > 0 })
	before := b.peer(a.self).addrs
	a.stop()
	b.until("gone", func() bool { return !b.sees(a.self).Online })
	var lies []string
	for i := range 16 {
		lies = append(lies, fmt.Sprintf("/ip4/127.0.0.1/tcp/%d/p2p/%s", i+1, a.self))
	}
	for range 2 * cap(b.found) { // so that all of the first were taken up
		b.found <- sighting{a.self, lies}
	}
	if got := b.peer(a.self).addrs; !slices.Equal(got, before) {
		t.Errorf("%q became %q", before, got)
	}
	if got := nearby([]string{"/ip4/192.168.1.7/tcp/8421", "/dns4/evil.example/tcp/8421", "/ip4/9.9.9.9/tcp/1/p2p/" + b.self + "/p2p-circuit", "/ip4/9.9.9.9/tcp/22", "/ip6/fe80::1/udp/8421/quic-v1", "x"}); !slices.Equal(got, []string{"/ip4/192.168.1.7/tcp/8421", "/ip6/fe80::1/udp/8421/quic-v1"}) {
		t.Errorf("of the local network are %q", got)
	}
	a.start(func(c *Config) { c.Listen = bare(before)[:1] })
	b.until("back", func() bool { return b.sees(a.self).Online })
}

// An answer whose pieces are long, as some models send them, arrives whole.
func TestLongPieces(t *testing.T) {
	a, b := newHouse(t, "alder"), newHouse(t, "birch")
	pair(t, a, b)
	want := strings.Repeat("\u2028é\x01", 6000)
	a.set(func(_ context.Context, _ caller.Caller, _ Question, say func(string) error) (Answer, error) {
		return Answer{Conversation: "c1"}, say(want)
	})
	if got, err := b.Room.ask(t.Context(), a.self, Question{Text: "?"}, func(string) error { return nil }); err != nil || got.Text != want {
		t.Errorf("%d bytes, %v", len(got.Text), err)
	}
}

// A folder of very long paths is shared like another: a page holds as many as go into a frame.
func TestLongPaths(t *testing.T) {
	a, b := newHouse(t, "alder"), newHouse(t, "birch")
	pair(t, a, b)
	long := strings.Repeat(strings.Repeat("x", 200)+"/", 15)
	files := map[string][]byte{"zz": nil}
	for i := range 2 * pageItems / 3 {
		files[fmt.Sprintf("%s%06d", long, i)] = nil
	}
	for p, body := range files {
		a.share(p, body)
	}
	a.allow(b, []string{"/"}, "content")
	err := b.refresh(t.Context(), a.self)
	l, _ := b.Received(t.Context(), a.self, "", 100)
	if err != nil || l.Total != 1 || l.Items[0].Path != "zz" {
		t.Errorf("%v, %+v", err, l)
	}
}

// Before the owner let it in, a node that used an invite gets a handshake: no addresses, no version, no figures.
func TestAskingGetsAHandshake(t *testing.T) {
	a, b := newHouse(t, "alder"), newHouse(t, "birch")
	if err := b.accept(a.invited()); err != nil {
		t.Fatal(err)
	}
	var theirs hello
	if err := b.exchange(t.Context(), a.self, "hello", b.greeting(a.self), &theirs); err != nil {
		t.Fatal(err)
	}
	if len(theirs.Addrs) != 0 || theirs.Version != "" || theirs.Admits {
		t.Errorf("%+v", theirs)
	}
}

// A node that was forgotten while its catalogue was read leaves nothing behind.
func TestForgottenDuringARefresh(t *testing.T) {
	a, b := sharing(t, map[string][]byte{"x": nil})
	b.must("mesh.remove", map[string]any{"peer": a.self}, nil)
	_ = b.keepCatalogue(t.Context(), a.self, []Item{{Path: "x", SHA256: hexSum(nil)}}, false)
	var n int
	if err := b.db.Reader().QueryRowContext(t.Context(), "SELECT count(*) FROM mesh_item").Scan(&n); err != nil || n != 0 {
		t.Error(n, err)
	}
}

// A5: a ceiling is nothing while everything is held, whatever the owner sets meanwhile, and a block stands after it.
func TestHoldIsNoWayRound(t *testing.T) {
	a, b := newHouse(t, "alder"), newHouse(t, "birch")
	pair(t, a, b)
	a.allow(b, []string{"/"}, "content", "system")
	if err := a.hold(t.Context(), statement{generation: 1000}); err != nil {
		t.Fatal(err)
	}
	a.allow(b, []string{"/"}, "content", "system")
	if a.Alive(b.self) || a.Ceiling(b.self) != nil || a.Folders(b.self) != nil || a.Asking(b.self) {
		t.Error("open while held")
	}
	if err := b.accept(a.invited()); err != nil {
		t.Fatal(err)
	}
	if a.Alive(b.self) {
		t.Error("an invite opened what is held")
	}
	a.stop()
	a.start()
	if a.Alive(b.self) || !a.held {
		t.Error("a restart opened what is held")
	}
}

// Figures that no machine has are not shown: hundreds of digits, or a time that runs backwards.
func TestFiguresOfNoMachine(t *testing.T) {
	a, b := newHouse(t, "alder"), newHouse(t, "birch")
	pair(t, a, b)
	a.allow(b, nil, "system")
	for _, f := range []Figures{{DiskPercent: 1e308}, {MemoryPercent: -1}, {UptimeS: math.MaxInt64}, {UptimeS: -5}, {Load1: -1e300}, {Processors: -2}, {DiskFree: -1}} {
		a.serve(serves{figures: &f})
		if err := b.refresh(t.Context(), a.self); err != nil {
			t.Fatal(err)
		}
		if p := b.sees(a.self); p.Figures != nil || p.Status != "" {
			t.Errorf("%+v is shown as %q", f, p.Status)
		}
	}
	a.serve(serves{figures: &Figures{UptimeS: 7200, DiskPercent: 100}})
	if err := b.refresh(t.Context(), a.self); err != nil || b.sees(a.self).Figures == nil {
		t.Error("good figures are not shown:", err)
	}
}

// A refresh that a person asks for begins after the question: one under way may have been answered before the other owner
// opened something.
func TestARefreshIsFresh(t *testing.T) {
	a, b := newHouse(t, "alder"), newHouse(t, "birch")
	pair(t, a, b)
	a.allow(b, []string{"/"}, "content")
	began, goOn := make(chan struct{}), make(chan struct{})
	first := sync.OnceFunc(func() { close(began); <-goOn })
	var opened atomic.Bool
	a.serve(serves{catalogue: func(string, int) ([]Item, bool) {
		was := opened.Load()
		if first(); !was {
			return nil, false
		}
		return []Item{{Path: "x", Size: 3, SHA256: hexSum(nil), Modified: time.UnixMilli(1)}}, false
	}})
	var g sync.WaitGroup
	g.Go(func() { _ = b.keep(t.Context(), a.self) })
	<-began
	opened.Store(true)
	g.Go(func() {
		b.must("mesh.refresh", map[string]any{"peer": a.self}, nil)
		if n := b.sees(a.self).Shares.Files; n != 1 {
			t.Errorf("%d files", n)
		}
	})
	close(goOn)
	g.Wait()
}
