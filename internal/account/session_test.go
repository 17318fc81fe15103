package account

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"atoll/internal/caller"
	"atoll/internal/fault"
	"atoll/internal/secret"
)

func TestResolve(t *testing.T) {
	h, clock := newHouse(t)
	h.mustAdd(t, "ada", caller.Owner)
	s, token := h.in(t, "ada", goodPassword)
	if len(token.Reveal()) != 64 {
		t.Fatal("not 256 bits")
	}
	if c := s.Caller; !c.IsOperator() || c.Name() != "ada" || c.Role() != caller.Owner || c.Address() != "192.0.2.1" || c.Session() == "" {
		t.Fatalf("%+v", c)
	}
	if !s.ExpiresAt.Equal(clock.Add(Idle)) {
		t.Fatal(s.ExpiresAt)
	}
	for _, bad := range []string{"", "x", token.Reveal() + "0", token.Reveal()[:63], s.Caller.Session(), s.CSRF} {
		dead(t, h, bad, secret.New(bad))
	}
	if !s.CheckCSRF(s.CSRF) || s.CheckCSRF("") || s.CheckCSRF(s.CSRF+"x") || s.CheckCSRF(token.Reveal()) || (Session{}).CheckCSRF("") {
		t.Fatal("CSRF")
	}
	other, _ := h.in(t, "ada", goodPassword)
	if other.CSRF == s.CSRF || other.Caller.Session() == s.Caller.Session() {
		t.Fatal("two logins share something")
	}
}

// G6: idle and absolute expiry; use puts off the first and not the second.
func TestExpiry(t *testing.T) {
	h, clock := newHouse(t)
	h.mustAdd(t, "ada", caller.Owner)
	_, idle := h.in(t, "ada", goodPassword)
	s, used := h.in(t, "ada", goodPassword)
	start := *clock
	*clock = start.Add(Idle - time.Second)
	if _, err := h.Resolve(t.Context(), used, "x"); err != nil {
		t.Fatal(err)
	}
	*clock = start.Add(Idle)
	dead(t, h, "idle", idle)
	for clock.Before(start.Add(Absolute - 24*time.Hour)) {
		*clock = clock.Add(24 * time.Hour)
		if _, err := h.Resolve(t.Context(), used, "x"); err != nil {
			t.Fatal(clock.Sub(start), err)
		}
	}
	*clock = start.Add(Absolute)
	dead(t, h, "absolute", used)
	if _, err := h.Alive(t.Context(), s.Caller); err == nil {
		t.Fatal("alive after its end")
	}
	if err := h.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	var gone []string
	for _, e := range h.reported() {
		gone = append(gone, e.Sessions...)
		if e.Changed {
			t.Fatal("an expiry is no change of the account")
		}
	}
	if len(gone) != 2 || !slices.Contains(gone, s.Caller.Session()) {
		t.Fatal("reported", gone)
	}
}

// T2: account, role and session are read again; nothing gives more than the caller had.
func TestAlive(t *testing.T) {
	h, _ := newHouse(t)
	h.mustAdd(t, "root", caller.Owner)
	h.mustAdd(t, "ada", caller.Member)
	s, _ := h.in(t, "ada", goodPassword)
	if c, err := h.Alive(t.Context(), s.Caller); err != nil || c != s.Caller {
		t.Fatalf("%+v %v", c, err)
	}
	if c, err := h.Alive(t.Context(), s.Caller.Narrow(caller.Viewer)); err != nil || c.Role() != caller.Viewer {
		t.Fatalf("%+v %v", c, err)
	}
	other := caller.Operator(s.Caller.Account()+1, "ada", caller.Owner, s.Caller.Session(), "")
	for name, c := range map[string]caller.Caller{"nobody": {}, "stranger": caller.Stranger("x"), "peer": caller.Peer("k", "n"),
		"another's session": other, "no session": caller.Operator(s.Caller.Account(), "ada", caller.Member, "", "")} {
		if got, err := h.Alive(t.Context(), c); !fault.Is(err, fault.Unauthenticated) || !got.IsZero() {
			t.Errorf("%s: %+v %v", name, got, err)
		}
	}
	if err := h.SetRole(t.Context(), "ada", caller.Viewer); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Alive(t.Context(), s.Caller); err == nil {
		t.Fatal("alive after a change of role")
	}
}

func TestLogoutAndRevoke(t *testing.T) {
	h, _ := newHouse(t)
	h.mustAdd(t, "ada", caller.Owner)
	h.mustAdd(t, "ben", caller.Owner)
	one, oneToken := h.in(t, "ada", goodPassword)
	two, twoToken := h.in(t, "ada", goodPassword)
	_, bens := h.in(t, "ben", goodPassword)
	h.reported()
	if got := h.listSessions(one.Caller).Sessions; len(got) != 2 || got[0].Current == got[1].Current {
		t.Fatalf("%+v", got)
	}
	ben := h.names["ben"]
	benSession := h.of(ben.id)[0].id
	for _, id := range []string{benSession, "nothing", ""} { // G6: revocable by their owner only
		_, err := h.revoke(t.Context(), one.Caller, idParams{id})
		wantCode(t, err, fault.NotFound, "id")
	}
	if len(h.reported()) != 0 {
		t.Fatal("something ended")
	}
	if _, err := h.revoke(t.Context(), one.Caller, idParams{two.Caller.Session()}); err != nil {
		t.Fatal(err)
	}
	dead(t, h, "revoked", twoToken)
	if err := h.Logout(t.Context(), one.Caller); err != nil {
		t.Fatal(err)
	}
	dead(t, h, "logged out", oneToken)
	if err := h.Logout(t.Context(), one.Caller); err != nil {
		t.Fatal("a second logout:", err)
	}
	got := h.reported()
	if len(got) != 2 || got[0].Sessions[0] != two.Caller.Session() || got[1].Sessions[0] != one.Caller.Session() || got[0].Changed {
		t.Fatalf("%+v", got)
	}
	if _, err := h.Resolve(t.Context(), bens, "x"); err != nil {
		t.Fatal("ben's session went too")
	}
}

func TestSessionsOfAnAccountAreBounded(t *testing.T) {
	h, clock := newHouse(t)
	h.mustAdd(t, "ada", caller.Owner)
	_, first := h.in(t, "ada", goodPassword)
	*clock = clock.Add(time.Second)
	_, second := h.in(t, "ada", goodPassword)
	for range maxSessions - 2 {
		*clock = clock.Add(time.Second)
		h.in(t, "ada", goodPassword)
	}
	if _, err := h.Resolve(t.Context(), first, "x"); err != nil { // used just now, so the second is the oldest
		t.Fatal(err)
	}
	h.reported()
	h.in(t, "ada", goodPassword)
	dead(t, h, "the one unused for longest", second)
	if got := h.reported(); len(got) != 1 || len(got[0].Sessions) != 1 {
		t.Fatalf("%+v", got)
	}
	if n := len(h.of(1)); n != maxSessions {
		t.Fatal(n)
	}
}

// Resolving writes nothing; a use reaches the file within a minute, and at the end of Run.
func TestRunWritesLastUses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := openHouse(t, t.TempDir(), time.Now)
		defer h.db.Close()
		h.mustAdd(t, "ada", caller.Owner)
		_, token := h.in(t, "ada", goodPassword)
		ctx, cancel := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() { h.Run(ctx) })
		saved := func() (at int64) {
			if err := h.db.Reader().QueryRowContext(context.Background(), "SELECT last_seen FROM session").Scan(&at); err != nil {
				t.Fatal(err)
			}
			return at
		}
		before := saved()
		<-time.After(30 * time.Second)
		if _, err := h.Resolve(t.Context(), token, "x"); err != nil {
			t.Fatal(err)
		}
		if saved() != before {
			t.Fatal("written at once")
		}
		<-time.After(31 * time.Second)
		synctest.Wait()
		if saved() != before+30 {
			t.Fatal("not written within a minute")
		}
		if _, err := h.Resolve(t.Context(), token, "x"); err != nil {
			t.Fatal(err)
		}
		cancel()
		run.Wait()
		if saved() != before+61 {
			t.Fatal("the end of Run lost a use")
		}
	})
}

func BenchmarkResolve(b *testing.B) {
	h := benchHouse(b)
	ctx := b.Context()
	l, err := h.login(ctx, caller.Stranger("x"), loginParams{"ada", goodPassword})
	if err != nil {
		b.Fatal(err)
	}
	token, _ := l.SessionCookie()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := h.Resolve(ctx, token, "x"); err != nil {
			b.Fatal(err)
		}
	}
}
