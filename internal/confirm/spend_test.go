package confirm

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"atoll/internal/fault"
)

// C2: a ticket is spent once; approving twice is fine and runs nothing again; a decline after it comes too late.
func TestOnce(t *testing.T) {
	b := newBench(t)
	ticket, p := b.approved(question(owner, "jellyfin"), "")
	if code := b.decide(owner, p, "approve", ""); code != "" {
		t.Errorf("approved twice: %q", code)
	}
	if code := b.decide(owner, p, "decline", ""); code != fault.Rule {
		t.Errorf("declined after approval: %q", code)
	}
	copied := *ticket
	var spent [4]fault.Code
	var wg sync.WaitGroup
	for i, tk := range []*Ticket{ticket, ticket, &copied, &copied} {
		wg.Go(func() { spent[i] = b.spend(tk) })
	}
	wg.Wait()
	if slices.Sort(spent[:]); spent != [4]fault.Code{"", fault.Failed, fault.Failed, fault.Failed} {
		t.Errorf("spent as %q", spent)
	}
	if got := b.events()["tool intent"]; got != 1 {
		t.Errorf("%d intents", got)
	}
	b.settle(ticket, false)
	if code := b.spend(ticket); code != fault.Failed {
		t.Errorf("after the end: %q", code)
	}
	b.open()
	if code := b.decide(owner, p, "approve", ""); code != "" || len(b.left.Unknown)+len(b.left.Dropped) != 0 {
		t.Errorf("after a restart: %q, %+v", code, b.left)
	}
	if code := b.decide(owner, p, "decline", ""); code != fault.Rule {
		t.Errorf("declined after a restart: %q", code)
	}
	for name, tk := range map[string]*Ticket{"old": ticket, "zero": {}, "made up": {permission: "x"}, "unapproved": {pending: &pending{}}} {
		if code := b.spend(tk); code == "" {
			t.Errorf("%s: spent", name)
		}
	}
	if got := b.events()["tool intent"]; got != 1 {
		t.Errorf("%d intents", got)
	}
}

// C2, C4: no approval outlives its question's time, and a dropped one cannot run.
func TestSpendTooLate(t *testing.T) {
	for name, tc := range map[string]struct {
		move func(b *bench, t *Ticket)
		want fault.Code
		told fault.Code
	}{
		"expired":  {func(b *bench, _ *Ticket) { b.pass(PendingTime) }, fault.Expired, fault.Expired},
		"set back": {func(b *bench, _ *Ticket) { b.setWall(-time.Minute) }, fault.Expired, fault.Expired},
		"dropped":  {func(b *bench, tk *Ticket) { b.room.Drop(b.t.Context(), tk, fault.Changed) }, fault.Failed, fault.Changed},
		"dropped on a full disk": {func(b *bench, tk *Ticket) {
			b.exec("CREATE TRIGGER full BEFORE UPDATE ON pending BEGIN SELECT RAISE(ABORT, 'full'); END")
			b.room.Drop(b.t.Context(), tk, fault.Changed)
			b.exec("DROP TRIGGER full")
		}, fault.Failed, fault.Changed},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			ticket, p := b.approved(question(owner, "jellyfin"), `,"allow_for_s":60`)
			tc.move(b, ticket)
			for range 2 {
				if code := b.spend(ticket); code == "" {
					t.Fatal("it was spent")
				} else if code != tc.want && code != fault.Failed {
					t.Errorf("%q", code)
				}
			}
			if got := b.events()["tool intent"] + b.query("SELECT count(*) FROM pending WHERE state = 'dispatched'") + b.query("SELECT count(*) FROM permission"); got != 0 {
				t.Error("something was written as if it had run")
			}
			if code := b.decide(owner, p, "approve", ""); code != tc.told {
				t.Errorf("asked again how it ended: %q", code)
			}
			if b.room.Permitted(question(owner, "jellyfin")) != nil {
				t.Error("and left a permission")
			}
		})
	}
}

// C2, C3, F-A22, F-A23: after a crash in any state nothing runs, and what was lost is told once.
func TestCrash(t *testing.T) {
	for _, state := range []string{"waiting", "approved", "dispatched", "done", "unknown", "declined", "cancelled", "changed"} {
		t.Run(state, func(t *testing.T) {
			b := newBench(t)
			a := question(member, "jellyfin")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var p Pending
			var out <-chan answer
			var ticket *Ticket
			switch state {
			case "waiting", "declined", "cancelled":
				p, out = b.ask(ctx, a)
			default:
				ticket, p = b.approved(a, "")
			}
			switch state {
			case "dispatched", "done", "unknown":
				if code := b.spend(ticket); code != "" {
					t.Fatal(code)
				}
				if state != "dispatched" {
					b.settle(ticket, state == "unknown")
				}
			case "declined":
				b.decide(member, p, "decline", "")
				<-out
			case "cancelled":
				cancel()
				<-out
			case "changed":
				b.room.Drop(ctx, ticket, fault.Changed)
			}
			b.open() // a question's goroutine of before is left with a closed file
			dropped, unknown := len(b.left.Dropped), len(b.left.Unknown)
			wantDropped, wantUnknown := 0, 0
			switch state {
			case "waiting", "approved":
				wantDropped = 1
			case "dispatched":
				wantUnknown = 1
			}
			if dropped != wantDropped || unknown != wantUnknown {
				t.Errorf("left: %+v", b.left)
			}
			told := map[string]fault.Code{"waiting": fault.Dropped, "approved": fault.Dropped, "declined": fault.Declined, "cancelled": fault.Cancelled, "changed": fault.Changed}[state]
			if code := b.decide(member, p, "approve", ""); code != told {
				t.Errorf("approved again: %q, want %q", code, told)
			}
			if code := b.decide(other, p, "approve", ""); code != fault.Forbidden {
				t.Errorf("by another: %q", code)
			}
			if ticket != nil && b.spend(ticket) == "" {
				t.Error("the old ticket was spent")
			}
			if len(b.room.Waiting(owner)) != 0 {
				t.Error("something waits")
			}
			q, outQ := b.ask(t.Context(), a)
			if want := state == "dispatched" || state == "unknown"; q.MaybeRan != want {
				t.Errorf("asked again: may have run is %v", q.MaybeRan)
			}
			b.decide(member, q, "decline", "")
			<-outQ
			if state == "waiting" {
				cancel()
				if got := <-out; got.ticket != nil {
					t.Error("the question of before was let through")
				}
			}
			b.open()
			if len(b.left.Dropped)+len(b.left.Unknown) != 0 {
				t.Errorf("told twice: %+v", b.left)
			}
			if rep, err := b.log.Verify(t.Context(), b.key.Public().(ed25519.PublicKey), ""); err != nil || !rep.OK {
				t.Errorf("%+v, %v", rep, err)
			}
		})
	}
}

// C3: a question that stood at the crash is told as dropped, with who asked and what.
func TestDropped(t *testing.T) {
	b := newBench(t)
	for i, state := range []string{"waiting", "dispatched"} {
		b.exec(fmt.Sprintf("INSERT INTO pending VALUES (x'%064d', '%064x', 2, 'operator:mia', 'app_stop', 'Stop it', '%s', %d)", i+1, i+1, state, b.now().Unix()))
	}
	b.open()
	want := Left{Tool: "app_stop", Summary: "Stop it", Caller: "operator:mia", ActionKey: fmt.Sprintf("%064x", 1), At: time.Unix(b.now().Unix(), 0)}
	if len(b.left.Dropped) != 1 || b.left.Dropped[0] != want || len(b.left.Unknown) != 1 || b.left.Unknown[0].ActionKey != fmt.Sprintf("%064x", 2) {
		t.Errorf("%+v", b.left)
	}
	if got := b.events(); got["confirm dropped"] != 1 || got["tool outcome"] != 1 {
		t.Errorf("audit: %v", got)
	}
	b.pass(25 * time.Hour)
	b.open()
	if n := b.query("SELECT count(*) FROM pending"); n != 0 {
		t.Errorf("%d rows are kept for ever", n)
	}
	b.exec("INSERT INTO pending VALUES (x'00', 'not a key', 2, 'x', 'app_stop', '', 'waiting', 0)")
	_, _, err := New(t.Context(), b.room.cfg)
	if err == nil {
		t.Error("a row that cannot be read was passed over")
	}
}

// T14: "may already have run" is said until the state is known again, over restarts, and for a day.
func TestMaybeRan(t *testing.T) {
	b := newBench(t)
	maybe := func() bool {
		t.Helper()
		p, out := b.ask(t.Context(), question(owner, "jellyfin"))
		b.decide(owner, p, "decline", "")
		<-out
		return p.MaybeRan
	}
	run := func(unknown bool) {
		t.Helper()
		ticket, _ := b.approved(question(owner, "jellyfin"), "")
		if code := b.spend(ticket); code != "" {
			t.Fatal(code)
		}
		b.settle(ticket, unknown)
	}
	if maybe() {
		t.Error("before anything ran")
	}
	run(true)
	if !maybe() {
		t.Error("not said")
	}
	if b.open(); !maybe() {
		t.Error("not said after a restart")
	}
	run(false)
	if maybe() {
		t.Error("said though the state is known")
	}
	if b.open(); maybe() {
		t.Error("said after a restart though the state is known")
	}
	run(true)
	if b.pass(25 * time.Hour); maybe() {
		t.Error("said after a day")
	}
}

// C2: what cannot be written down first is not asked, not approved and not run.
func TestDiskFull(t *testing.T) {
	b := newBench(t)
	full := func() {
		b.exec("CREATE TRIGGER full BEFORE INSERT ON audit BEGIN SELECT RAISE(ABORT, 'full'); END")
	}
	free := func() { b.exec("DROP TRIGGER full") }
	full()
	if _, err := b.room.Ask(t.Context(), question(owner, "jellyfin")); codeOf(t, err) != fault.Unavailable || len(b.asked) != 0 || len(b.room.Waiting(owner)) != 0 {
		t.Errorf("asked: %v", err)
	}
	free()
	p, out := b.ask(t.Context(), question(owner, "jellyfin"))
	b.pass(Inert)
	full()
	if code := b.decide(owner, p, "approve", ""); code != fault.Unavailable || len(b.room.Waiting(owner)) != 1 {
		t.Errorf("approved: %q", code)
	}
	free()
	if code := b.decide(owner, p, "approve", ""); code != "" {
		t.Fatal(code)
	}
	got := <-out
	full()
	if code := b.spend(got.ticket); code != fault.Unavailable || b.query("SELECT count(*) FROM pending WHERE state = 'dispatched'") != 0 {
		t.Errorf("spent: %q", code)
	}
	free()
	p, out2 := b.ask(t.Context(), question(owner, "photos"))
	full()
	if code := b.decide(owner, p, "decline", ""); code != "" { // a no is a no, written down or not
		t.Errorf("declined: %q", code)
	}
	if got := <-out2; !fault.Is(got.err, fault.Declined) {
		t.Error(got.err)
	}
}
