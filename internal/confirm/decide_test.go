package confirm

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"atoll/internal/caller"
	"atoll/internal/fault"
)

// C1: what is approved is what was asked: another key, another nonce, another person change nothing.
func TestApprovalNamesTheQuestion(t *testing.T) {
	b := newBench(t)
	p, out := b.ask(t.Context(), question(member, "jellyfin"))
	q, outQ := b.ask(t.Context(), question(member, "photos"))
	b.pass(Inert)
	for name, tc := range map[string]struct {
		nonce, key string
		want       fault.Code
	}{"the other's key": {p.Nonce, q.ActionKey, fault.InvalidParams}, "key in capitals": {p.Nonce, strings.ToUpper(p.ActionKey), fault.InvalidParams},
		"key cut": {p.Nonce, p.ActionKey[:63], fault.InvalidParams}, "nonce in capitals": {strings.ToUpper(p.Nonce), p.ActionKey, fault.NotFound},
		"nonce cut": {p.Nonce[:31], p.ActionKey, fault.NotFound}, "invented": {strings.Repeat("0", 32), p.ActionKey, fault.NotFound}, "empty": {"", p.ActionKey, fault.InvalidParams}} {
		if strings.ToUpper(p.Nonce) == p.Nonce && name == "nonce in capitals" {
			continue
		}
		for _, decision := range []string{"approve", "decline"} {
			if code := b.decide(member, Pending{Nonce: tc.nonce, ActionKey: tc.key}, decision, ""); code != tc.want {
				t.Errorf("%s, %s: %q", name, decision, code)
			}
		}
	}
	for _, params := range []string{`,"reason":"x"`, `,"allow_for_s":-1`, `,"allow_for_s":86401`, `,"allow_for_s":1.5`, `,"args":{}`, `,"allow_for_s":9223372036854775807`} {
		if code := b.decide(member, p, "approve", params); code != fault.InvalidParams {
			t.Errorf("approve%s: %q", params, code)
		}
	}
	for _, decision := range []string{"", "yes", "APPROVE", "approve ", "allow"} {
		if code := b.decide(member, p, decision, ""); code != fault.InvalidParams {
			t.Errorf("%q: %q", decision, code)
		}
	}
	if code := b.decide(member, p, "decline", `,"reason":"`+strings.Repeat("é", 501)+`"`); code != fault.InvalidParams {
		t.Errorf("a long reason: %q", code)
	}
	if code := b.decide(other, p, "approve", ""); code != fault.Forbidden || b.foreign != 1 { // F-F4
		t.Errorf("another member: %q, told %d", code, b.foreign)
	}
	for _, c := range []caller.Caller{{}, caller.Peer("k", "ada"), caller.Stranger("x"), caller.Operator(2, "mia", caller.Viewer, "s9", "")} {
		if code := b.decide(c, p, "approve", ""); code != fault.Forbidden {
			t.Errorf("%s: %q", c, code)
		}
	}
	if w := b.room.Waiting(member); len(w) != 2 || len(b.room.Waiting(other)) != 0 || len(b.room.Waiting(owner)) != 2 || len(b.room.Waiting(caller.Caller{})) != 0 {
		t.Errorf("%d wait", len(w))
	}
	if code := b.decide(owner, p, "approve", ""); code != "" { // an owner may
		t.Fatal(code)
	}
	if got := <-out; got.err != nil || b.spend(got.ticket) != "" {
		t.Errorf("%v", got.err)
	}
	if code := b.decide(caller.Operator(2, "mia", caller.Member, "phone", ""), q, "decline", ""); code != "" { // and so another device
		t.Fatal(code)
	}
	if got := <-outQ; !fault.Is(got.err, fault.Declined) {
		t.Errorf("%v", got.err)
	}
}

// C1, C2: whoever decides first decides, however many try at once, and the loser is told.
func TestRace(t *testing.T) {
	b := newBench(t)
	for range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		p, out := b.ask(ctx, question(owner, "jellyfin"))
		b.pass(Inert)
		var codes [5]fault.Code
		var wg sync.WaitGroup
		for i, decision := range []string{"approve", "decline", "approve", "decline"} {
			wg.Go(func() { codes[i] = b.decide(owner, p, decision, "") })
		}
		wg.Go(cancel)
		wg.Wait()
		got := <-out
		ran := got.err == nil
		if ran == (got.ticket == nil) {
			t.Fatalf("%+v", got)
		}
		for i, code := range codes[:4] {
			switch approve := i%2 == 0; {
			case ran && approve && code != "", ran && !approve && code != fault.Rule:
				t.Errorf("it was approved, and %d heard %q", i, code)
			case fault.Is(got.err, fault.Declined) && (approve && code != fault.Declined || !approve && code != ""):
				t.Errorf("it was declined, and %d heard %q", i, code)
			case fault.Is(got.err, fault.Cancelled) && code != fault.Cancelled:
				t.Errorf("it was cancelled, and %d heard %q", i, code)
			}
		}
		if e := <-b.ended; e.Nonce != p.Nonce || len(b.ended) != 0 {
			t.Errorf("it ended more than once: %+v", e)
		}
		if ran {
			b.room.Drop(ctx, got.ticket, fault.Changed)
		}
	}
	if len(b.room.allowing)+len(b.room.pendings) != 0 {
		t.Error("something is left")
	}
}

// F-A20, C8: an approval within the first second leaves the question standing; a decline counts at once.
func TestInert(t *testing.T) {
	b := newBench(t)
	p, out := b.ask(t.Context(), question(owner, "jellyfin"))
	for _, d := range []time.Duration{0, time.Millisecond, Inert - 2*time.Millisecond} {
		b.pass(d)
		if code := b.decide(owner, p, "approve", ""); code != fault.TooSoon {
			t.Fatalf("%s: %q", d, code)
		}
	}
	b.setWall(time.Minute) // only the monotonic clock tells an age
	if code := b.decide(owner, p, "approve", ""); code != fault.TooSoon {
		t.Errorf("with the wall set ahead: %q", code)
	}
	if code := b.decide(owner, p, "decline", ""); code != "" {
		t.Error(code)
	}
	<-out
}
