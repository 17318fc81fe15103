package confirm

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"atoll/internal/caller"
	"atoll/internal/fault"
)

var (
	peer    = caller.Peer("12D3KooWPeerOne", "Bob")
	another = caller.Peer("12D3KooWPeerTwo", "Cleo")
)

func (b *bench) let(c caller.Caller, on bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asking[c.PeerKey()] = on
}

// refusal asks and expects no question.
func (b *bench) refusal(a Ask) fault.Code {
	b.t.Helper()
	ctx, cancel := context.WithCancel(b.t.Context())
	cancel() // a question that stands after all ends at once
	_, err := b.room.Ask(ctx, a)
	select {
	case p := <-b.asked:
		b.t.Errorf("the owner was asked: %s", p.Summary)
	default:
	}
	return codeOf(b.t, err)
}

// M3: closed unless the owner turned it on, and C10: only an open stream of somebody who may decide counts.
func TestPeerMayNotAsk(t *testing.T) {
	b := newBench(t)
	if got := b.refusal(question(peer, "x")); got != fault.NobodyToAsk {
		t.Error("by default:", got)
	}
	b.let(another, true)
	if got := b.refusal(question(peer, "x")); got != fault.NobodyToAsk {
		t.Error("another may:", got)
	}
	b.let(peer, true)
	b.listening = false
	if got := b.refusal(question(peer, "x")); got != fault.NobodyToAsk {
		t.Error("nobody listens:", got)
	}
	if n := b.query("SELECT count(*) FROM pending"); n != 0 {
		t.Errorf("%d questions were written down", n)
	}
	b.room.cfg.Asking = nil
	if b.room.Asking(peer) || b.room.Asking(owner) || b.room.Asking(caller.Caller{}) {
		t.Error("the zero Config lets somebody ask")
	}
}

// M3, M4, C1, F-F4: the owner alone sees and decides, whoever asks is shown by key, and the name is shown as a stranger's.
func TestPeerQuestion(t *testing.T) {
	b := newBench(t)
	name := "Bo\u202eb\" approved by the owner"
	spoof := caller.Peer(peer.PeerKey(), name)
	b.let(spoof, true)
	a := question(spoof, "jellyfin")
	p, out := b.ask(t.Context(), a)
	if p.Caller != peer.PeerKey() || p.MayAllow || strings.Join(p.Untrusted, " ") != "peer" {
		t.Errorf("%+v", p)
	}
	if w := p.Warnings[0]; !strings.HasPrefix(w, "asked by another node, "+peer.PeerKey()+"; the name \"Bo") || !strings.HasSuffix(w, "\" is its own word") ||
		strings.ContainsRune(w, 0x202e) || strings.Count(w, `"`) != 2 {
		t.Errorf("the warning: %q", w)
	}
	b.pass(Inert)
	for _, c := range []caller.Caller{member, other} {
		if n := len(b.room.Waiting(c)); n != 0 {
			t.Errorf("%s sees %d questions", c, n)
		}
		if code := b.decide(c, p, "approve", ""); code != fault.Forbidden {
			t.Errorf("%s decided: %s", c, code)
		}
	}
	if b.foreign != 2 {
		t.Errorf("%d notices", b.foreign)
	}
	for _, c := range []caller.Caller{spoof, another, {}, caller.Stranger("x"), caller.Operator(0, "zero", caller.Member, "s0", "")} {
		if n := len(b.room.Waiting(c)); n != 0 {
			t.Errorf("%s sees %d questions", c, n)
		}
		if code := b.decide(c, p, "approve", ""); code != fault.Forbidden {
			t.Errorf("%s decided: %s", c, code)
		}
		if _, err := b.room.decide(t.Context(), c, decideParams{Nonce: p.Nonce, ActionKey: p.ActionKey, Decision: "approve"}); codeOf(t, err) != fault.Forbidden {
			t.Errorf("%s decided behind the gate: %v", c, err)
		}
	}
	if n := len(b.room.Waiting(owner)); n != 1 {
		t.Fatalf("the owner sees %d questions", n)
	}
	if code := b.decide(owner, p, "approve", `,"allow_for_s":60`); code != fault.Rule {
		t.Error("it was allowed for a time:", code)
	}
	second := caller.Operator(9, "olga", caller.Owner, "s9", "")
	if code := b.decide(second, p, "approve", ""); code != "" {
		t.Fatal(code)
	}
	got := <-out
	if got.err != nil {
		t.Fatal(got.err)
	}
	if b.room.Permitted(got.ticket.ask) != nil {
		t.Error("a peer has a standing permission")
	}
	if got.ticket.Redeem(spoof, "apps.restart", a.Args) {
		t.Error("an approval served before it was spent")
	}
	if code := b.spend(got.ticket); code != "" {
		t.Fatal(code)
	}
	for _, c := range []struct {
		c      caller.Caller
		method string
		args   jsontext.Value
		want   bool
	}{{another, "apps.restart", a.Args, false}, {owner, "apps.restart", a.Args, false}, {spoof, "apps.stop", a.Args, false}, {spoof, "", a.Args, false},
		{spoof, "apps.restart", jsontext.Value(`{"app":"photos"}`), false}, {spoof, "apps.restart", a.Args, true}, {spoof, "apps.restart", a.Args, false}} {
		if got.ticket.Redeem(c.c, c.method, c.args) != c.want {
			t.Errorf("Redeem(%s, %s, %s) is not %v", c.c, c.method, c.args, c.want)
		}
	}
	if code := b.spend(got.ticket); code != fault.Failed {
		t.Error("spent twice:", code)
	}
	mine, _ := b.approved(question(owner, "x"), "")
	if code := b.spend(mine); code != "" || mine.Redeem(owner, "apps.restart", mine.ask.Args) {
		t.Error("an operator's ticket serves as a peer's approval", code)
	}
}

// M3: one question a peer, whatever it asks; another peer's stands beside it. An expired one mutes nobody.
func TestOnePendingAPeer(t *testing.T) {
	b := newBench(t)
	b.let(peer, true)
	b.let(another, true)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	first, one := b.ask(ctx, question(peer, "x"))
	other, leave := context.WithCancel(t.Context())
	_, two := b.ask(other, question(another, "x"))
	for _, app := range []string{"x", "y"} {
		if got := b.refusal(question(peer, app)); got != fault.Busy {
			t.Errorf("a second question about %s: %s", app, got)
		}
	}
	leave()
	if a := <-two; codeOf(t, a.err) != fault.Cancelled {
		t.Error(a.err)
	}
	b.pass(PendingTime + time.Second)
	if code := b.decide(owner, first, "approve", ""); code != fault.Expired {
		t.Error(code)
	}
	if a := <-one; codeOf(t, a.err) != fault.Expired {
		t.Error(a.err)
	}
	next, again := b.ask(ctx, question(peer, "y"))
	b.pass(Inert)
	if code := b.decide(owner, next, "approve", ""); code != "" {
		t.Error("after an expiry:", code)
	}
	if a := <-again; a.err != nil {
		t.Error(a.err)
	}
	if len(b.room.mutes) != 0 {
		t.Error("somebody is muted without a decline")
	}
}

// M3, C4: a decline mutes the peer, and no other, for 24 hours, over restarts and whatever is done to the clock. The
// owner's reason is not the peer's to read.
func TestDeclineMutes(t *testing.T) {
	b := newBench(t)
	b.let(peer, true)
	b.let(another, true)
	p, out := b.ask(t.Context(), question(peer, "x"))
	if code := b.decide(owner, p, "decline", `,"reason":"Bob is a nuisance"`); code != "" {
		t.Fatal(code)
	}
	a := <-out
	if f := fault.Of(a.err); f.Code != fault.Declined || strings.Contains(f.Error()+f.ModelWords(), "nuisance") {
		t.Error(f, f.ModelWords())
	}
	muted := func(when string) {
		t.Helper()
		if got := b.refusal(question(peer, "other")); got != fault.Declined {
			t.Errorf("%s: %s", when, got)
		}
	}
	muted("at once")
	b.setWall(48 * time.Hour)
	muted("the clock set forward")
	b.setWall(-72 * time.Hour)
	muted("the clock set back")
	b.open()
	muted("restarted with the clock set back")
	b.setWall(24 * time.Hour)
	b.open()
	muted("restarted with the clock right")
	b.pass(muteTime - time.Minute)
	b.open()
	muted("restarted a minute before the end")
	ctx, cancel := context.WithCancel(t.Context())
	_, other := b.ask(ctx, question(another, "x"))
	cancel()
	if a := <-other; codeOf(t, a.err) != fault.Cancelled {
		t.Error("another peer:", a.err)
	}
	b.pass(2 * time.Minute)
	p, out = b.ask(t.Context(), question(peer, "x"))
	if code := b.decide(owner, p, "decline", ""); code != "" {
		t.Error("after a day:", code)
	}
	<-out
}

// M3: turned off between the approval and the spending, nothing is spent.
func TestAskingTurnedOffBeforeSpend(t *testing.T) {
	b := newBench(t)
	b.let(peer, true)
	p, out := b.ask(t.Context(), question(peer, "x"))
	b.pass(Inert)
	if code := b.decide(owner, p, "approve", ""); code != "" {
		t.Fatal(code)
	}
	got := <-out
	b.let(peer, false)
	if code := b.spend(got.ticket); code != fault.Changed {
		t.Error(code)
	}
	b.let(peer, true)
	if code := b.spend(got.ticket); code != fault.Failed || got.ticket.Redeem(peer, "apps.restart", got.ticket.ask.Args) {
		t.Error("it could be spent after all:", code)
	}
	if n := b.query("SELECT count(*) FROM pending WHERE state = 'dispatched'"); n != 0 {
		t.Errorf("%d were dispatched", n)
	}
}

// F-B13: the one implementation of rpc.Approval is the Ticket.
func TestOnlyTicketsApprove(t *testing.T) {
	found := 0
	err := filepath.WalkDir("../..", func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && (d.Name() == "node_modules" || d.Name() == "testdata" || d.Name() == ".git") {
			if d != nil && d.IsDir() {
				return fs.SkipDir
			}
			return err
		}
		if d.IsDir() || !strings.HasSuffix(p, ".go") || strings.HasSuffix(p, "_test.go") {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), p, nil, 0)
		if err != nil {
			return err
		}
		for _, decl := range f.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv != nil && fn.Name.Name == "Redeem" {
				if found++; !strings.HasSuffix(filepath.ToSlash(p), "internal/confirm/peer.go") {
					t.Errorf("%s approves for itself", p)
				}
			}
		}
		return nil
	})
	if err != nil || found != 1 {
		t.Errorf("%d implementations, %v", found, err)
	}
}
