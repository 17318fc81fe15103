package confirm

import (
	"fmt"
	"testing"
	"time"

	"atoll/internal/caller"
	"atoll/internal/fault"
)

// allow approves an action for a time and runs it once.
func (b *bench) allow(a Ask, seconds int) {
	b.t.Helper()
	ticket, _ := b.approved(a, fmt.Sprintf(`,"allow_for_s":%d`, seconds))
	if code := b.spend(ticket); code != "" {
		b.t.Fatal(code)
	}
	b.settle(ticket, false)
}

// use runs the action by its standing permission, if there is one.
func (b *bench) use(a Ask) bool {
	b.t.Helper()
	ticket := b.room.Permitted(a)
	if ticket == nil {
		return false
	}
	if code := b.spend(ticket); code != "" {
		b.t.Fatalf("permitted and not spent: %s", code)
	}
	b.settle(ticket, false)
	return true
}

func (b *bench) listed() []Permission {
	b.t.Helper()
	result, code := b.call(owner, "assistant.permissions-list", "")
	if code != "" {
		b.t.Fatal(code)
	}
	return result.(permissionsResult).Permissions
}

// C11: a permission is for one exact action of one account on one target, and not with untrusted text in context.
func TestPermitted(t *testing.T) {
	b := newBench(t)
	a := question(member, "jellyfin")
	b.allow(a, 3600)
	for name, change := range map[string]func(*Ask){
		"another account": func(q *Ask) { q.Caller = other },
		"the owner":       func(q *Ask) { q.Caller = owner },
		"a peer":          func(q *Ask) { q.Caller = caller.Peer("k", "mia") },
		"nobody":          func(q *Ask) { q.Caller = caller.Caller{} },
		"another app":     func(q *Ask) { q.Key = question(member, "photos").Key },
		"no key":          func(q *Ask) { q.Key = Key{} },
		"another target":  func(q *Ask) { q.Preview.Fingerprint = "v2" },
		"no target":       func(q *Ask) { q.Preview.Fingerprint = "" },
		"untrusted text":  func(q *Ask) { q.Untrusted = []string{"app_logs"} },
		"not on the list": func(q *Ask) { q.MayAllow = false },
	} {
		q := a
		if change(&q); b.room.Permitted(q) != nil {
			t.Errorf("%s: permitted", name)
		}
	}
	phone := a
	phone.Caller = caller.Operator(2, "mia", caller.Member, "phone", "") // another session of the account
	if !b.use(phone) {
		t.Error("not permitted on another device")
	}
	if l := b.listed(); len(l) != 1 || l[0].Account != 2 || l[0].ActionKey != a.Key.String() || l[0].UsedLastH != 1 || l[0].ExpiresAt.Sub(l[0].Since) != time.Hour {
		t.Errorf("%+v", l)
	}
	if got := b.events(); got["permission given"] != 1 || got["tool intent"] != 2 {
		t.Errorf("%v", got)
	}
	for _, c := range []caller.Caller{member, other, {}, caller.Peer("k", "ada")} {
		for _, method := range []string{"assistant.permissions-list", "assistant.permissions-revoke"} {
			if _, code := b.call(c, method, `{}`); code != fault.Forbidden {
				t.Errorf("%s by %s: %q", method, c, code)
			}
		}
	}
}

// C11: three uses an hour at most, over a restart and over a new permission for the same action.
func TestUses(t *testing.T) {
	b := newBench(t)
	a := question(owner, "jellyfin")
	b.allow(a, 86400)
	for i := range 3 {
		if !b.use(a) {
			t.Fatalf("use %d", i+1)
		}
		b.pass(10 * time.Minute)
	}
	check := func(when string, want bool) {
		t.Helper()
		if got := b.room.Permitted(a) != nil; got != want {
			t.Errorf("%s: permitted is %v", when, got)
		}
	}
	check("after three", false)
	b.open()
	check("after a restart", false)
	b.allow(a, 86400)
	check("after a new permission", false)
	if l := b.listed(); len(l) != 1 || l[0].UsedLastH != 3 {
		t.Errorf("%+v", l)
	}
	b.open()
	check("after that and a restart", false)
	b.pass(31 * time.Minute) // the first use is an hour ago
	check("an hour later", true)
	ticket := b.room.Permitted(a)
	second := b.room.Permitted(a)
	if b.spend(ticket) != "" || b.spend(ticket) != fault.Failed || b.spend(second) != fault.Changed {
		t.Error("one use was spent twice")
	}
	if l := b.listed(); l[0].UsedLastH != 3 {
		t.Errorf("counted %d uses in the hour", l[0].UsedLastH)
	}
}

// C4, C11: a permission survives a restart, ends at its time or when the clock is set back, and then for good.
func TestPermissionTimes(t *testing.T) {
	for name, tc := range map[string]struct {
		move func(b *bench)
		want bool
	}{
		"at once":                         {func(*bench) {}, true},
		"restart":                         {func(b *bench) { b.pass(30 * time.Minute); b.open() }, true},
		"time":                            {func(b *bench) { b.pass(time.Hour) }, false},
		"restart after":                   {func(b *bench) { b.pass(time.Hour); b.open() }, false},
		"set back":                        {func(b *bench) { b.setWall(-time.Minute) }, false},
		"set ahead":                       {func(b *bench) { b.setWall(2 * time.Hour) }, false},
		"started with the clock set back": {func(b *bench) { b.setWall(-time.Hour); b.open() }, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			a := question(owner, "jellyfin")
			b.allow(a, 3600)
			begun := b.now()
			tc.move(b)
			if got := b.room.Permitted(a) != nil; got != tc.want {
				t.Fatalf("permitted is %v", got)
			}
			if got := len(b.listed()) == 1; got != tc.want {
				t.Errorf("listed is %v", got)
			}
			if tc.want {
				return
			}
			b.setWall(begun.Add(time.Minute).Sub(b.now())) // the clock is set right
			if b.room.Permitted(a) != nil {
				t.Error("permitted again with the clock set right")
			}
			if b.query("SELECT count(*) FROM permission") != 0 || b.events()["permission ended"] != 1 {
				t.Error("the row stays, or its end is not in the audit")
			}
			b.open()
			if b.room.Permitted(a) != nil {
				t.Error("permitted again after a restart")
			}
		})
	}
}

// C11: an expired row is deleted at the start, so that the table does not grow for ever.
func TestExpiredRows(t *testing.T) {
	b := newBench(t)
	for i := range 5 {
		b.allow(question(owner, fmt.Sprint("app", i)), 60*(1+i))
	}
	if n := b.query("SELECT count(*) FROM permission"); n != 5 {
		t.Fatal(n)
	}
	b.pass(130 * time.Second)
	b.open()
	if n := b.query("SELECT count(*) FROM permission"); n != len(b.listed()) || n == 0 || n == 5 {
		t.Errorf("%d rows and %d permissions", n, len(b.listed()))
	}
}

// C11: ended by revocation, by a decline, with the account and with the mode.
func TestPermissionEnds(t *testing.T) {
	for name, end := range map[string]func(b *bench, a Ask){
		"revoked": func(b *bench, _ Ask) {
			if _, code := b.call(owner, "assistant.permissions-revoke", `{"id":"`+b.listed()[0].ID+`"}`); code != "" {
				b.t.Fatal(code)
			}
		},
		"mode":    func(b *bench, _ Ask) { b.room.DropAllPermissions(b.t.Context()) },
		"account": func(b *bench, _ Ask) { b.room.EndSessions(b.t.Context(), 1, nil, true) },
		"decline": func(b *bench, a Ask) {
			p, out := b.ask(b.t.Context(), a)
			b.decide(owner, p, "decline", "")
			<-out
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			a, foreign := question(owner, "jellyfin"), question(member, "jellyfin")
			b.allow(a, 3600)
			b.allow(foreign, 3600)
			ticket := b.room.Permitted(a)
			if l := b.listed(); len(l) != 2 || l[0].Account != 1 { // the older one first
				t.Fatalf("%+v", l)
			}
			end(b, a)
			if b.room.Permitted(a) != nil || b.spend(ticket) != fault.Changed {
				t.Error("still permitted")
			}
			if got := b.room.Permitted(foreign) != nil; got != (name != "mode") {
				t.Errorf("another account's: permitted is %v", got)
			}
			b.open()
			if b.room.Permitted(a) != nil {
				t.Error("permitted again after a restart")
			}
		})
	}
	b := newBench(t)
	b.allow(question(owner, "jellyfin"), 3600)
	b.room.EndSessions(t.Context(), 1, []string{"s1"}, false) // a log-out ends the session only
	if len(b.listed()) != 1 {
		t.Error("a log-out ended the permission")
	}
	if _, code := b.call(owner, "assistant.permissions-revoke", `{"id":"no"}`); code != fault.NotFound {
		t.Errorf("%q", code)
	}
	b.exec("CREATE TRIGGER full BEFORE DELETE ON permission BEGIN SELECT RAISE(ABORT, 'full'); END")
	if _, code := b.call(owner, "assistant.permissions-revoke", `{"id":"`+b.listed()[0].ID+`"}`); code != fault.Unavailable {
		t.Errorf("a revocation that is not written down is told as %q", code)
	}
	if b.room.Permitted(question(owner, "jellyfin")) != nil {
		t.Error("and not closed")
	}
}

// C11: between a decline and a permission that race, the decline wins, also where the approval came first and is not
// spent yet; a change of mode or account likewise.
func TestDeclineWins(t *testing.T) {
	for name, end := range map[string]func(b *bench, second Pending){
		"decline": func(b *bench, p Pending) {
			if code := b.decide(owner, p, "decline", ""); code != "" {
				b.t.Fatal(code)
			}
		},
		"mode":    func(b *bench, _ Pending) { b.room.DropAllPermissions(b.t.Context()) },
		"account": func(b *bench, _ Pending) { b.room.EndSessions(b.t.Context(), 1, []string{"s9"}, true) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			a := question(owner, "jellyfin")
			p, out := b.ask(t.Context(), a)
			second, out2 := b.ask(t.Context(), a)
			b.pass(Inert)
			if code := b.decide(owner, p, "approve", `,"allow_for_s":3600`); code != "" {
				t.Fatal(code)
			}
			got := <-out
			end(b, second)
			if code := b.spend(got.ticket); code != "" { // what was approved still runs
				t.Fatal(code)
			}
			if b.room.Permitted(a) != nil || b.query("SELECT count(*) FROM permission") != 0 || len(b.room.allowing) != 0 {
				t.Error("the permission came all the same")
			}
			b.decide(owner, second, "decline", "")
			<-out2
		})
	}
}

// C11: a permission that cannot be kept is none, and what was approved runs all the same.
func TestPermissionNotKept(t *testing.T) {
	b := newBench(t)
	b.exec("CREATE TRIGGER full BEFORE INSERT ON permission BEGIN SELECT RAISE(ABORT, 'full'); END")
	a := question(owner, "jellyfin")
	b.allow(a, 3600)
	if b.room.Permitted(a) != nil || len(b.listed()) != 0 {
		t.Error("there is a permission")
	}
	b.exec("DROP TRIGGER full")
	b.allow(a, 3600)
	b.exec("CREATE TRIGGER full BEFORE INSERT ON audit BEGIN SELECT RAISE(ABORT, 'full'); END")
	ticket := b.room.Permitted(a)
	if code := b.spend(ticket); code != fault.Unavailable {
		t.Errorf("used without an intent: %q", code)
	}
	if l := b.listed(); len(l) != 1 || l[0].UsedLastH != 0 {
		t.Errorf("a use that was none counts: %+v", l)
	}
}
