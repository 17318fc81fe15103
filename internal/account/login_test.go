package account

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"atoll/internal/caller"
	"atoll/internal/fault"
	"atoll/internal/secret"
)

func TestLogin(t *testing.T) {
	h, clock := newHouse(t)
	h.mustAdd(t, "ada", caller.Member)
	l, err := h.login(t.Context(), caller.Stranger("192.0.2.7"), loginParams{"Ada", goodPassword})
	if err != nil {
		t.Fatal(err)
	}
	token, until := l.SessionCookie()
	if l.Username != "ada" || l.Role != "member" || !l.ExpiresAt.Equal(clock.Add(Idle)) || !until.Equal(clock.Add(Absolute)) {
		t.Fatalf("%+v %v", l, until)
	}
	if out, err := json.Marshal(l); err != nil || strings.Contains(string(out), token.Reveal()) {
		t.Fatalf("%s %v", out, err)
	}
	if s, err := h.Resolve(t.Context(), token, "x"); err != nil || s.CSRF != l.CSRF {
		t.Fatal(err)
	}
	rec := h.records(t)[0]
	if rec.Kind != "session" || rec.Event != "login" || rec.Caller != "operator:ada" || rec.Outcome != "done" || rec.Detail != "from 192.0.2.7" {
		t.Fatalf("%+v", rec)
	}
}

// One answer for a wrong password and for no such account; both are in the audit, the second without the name (N2).
func TestRefusedLogins(t *testing.T) {
	h, _ := newHouse(t)
	h.mustAdd(t, "ada", caller.Owner)
	var words []string
	for _, in := range []loginParams{{"ada", "wrong password"}, {"ben", "wrong password"}, {"Ünknown name", "wrong password"}} {
		_, err := h.login(t.Context(), caller.Stranger("x"), in)
		wantCode(t, err, fault.Unauthenticated, "")
		words = append(words, fault.Of(err).Public)
	}
	if words[0] != words[1] || words[1] != words[2] {
		t.Fatal(words)
	}
	recs := h.records(t)[:3] // newest first
	for i, subject := range []string{"", "", "ada"} {
		if r := recs[i]; r.Event != "login" || r.Outcome != "refused" || r.Code != "unauthenticated" || r.Subject != subject {
			t.Errorf("%+v", r)
		}
	}
	if len(h.of(1)) != 0 {
		t.Fatal("a refused login opened a session")
	}
}

// A password that is changed while a login with the old one runs does not let it in.
func TestLoginRacesAChange(t *testing.T) {
	h, _ := newHouse(t)
	h.mustAdd(t, "ada", caller.Owner)
	old := h.find("ada")
	if err := h.SetPassword(t.Context(), "ada", secret.New(nextPassword)); err != nil {
		t.Fatal(err)
	}
	_, _, err := h.enter(t.Context(), caller.Stranger("x"), old)
	wantCode(t, err, fault.Unauthenticated, "")
}

func TestConcurrentLogins(t *testing.T) {
	h, _ := newHouse(t)
	h.mustAdd(t, "ada", caller.Owner)
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			h.slow.clear(h.find("ada")) // the pauses are another test's
			l, err := h.login(t.Context(), caller.Stranger("x"), loginParams{"ada", goodPassword})
			if err != nil {
				t.Error(err)
				return
			}
			token, _ := l.SessionCookie()
			s, err := h.Resolve(t.Context(), token, "x")
			if err != nil {
				t.Error(err)
				return
			}
			if err := h.Logout(t.Context(), s.Caller); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := len(h.of(1)); n != 0 {
		t.Fatal(n, "sessions left")
	}
}

// G7: the set-up token creates one owner, within the hour, and is dead from then on.
func TestSetup(t *testing.T) {
	h, clock := newHouse(t)
	if _, err := h.setUp(t.Context(), caller.Stranger("x"), setupParams{"", "ada", goodPassword}); !fault.Is(err, fault.Forbidden) {
		t.Fatal("no token was minted:", err)
	}
	stale, ok := h.SetupToken(t.Context())
	if !ok || len(stale) != 64 {
		t.Fatal(stale, ok)
	}
	*clock = clock.Add(setupTime)
	_, err := h.setUp(t.Context(), caller.Stranger("x"), setupParams{stale, "ada", goodPassword})
	wantCode(t, err, fault.Forbidden, "")
	replaced, _ := h.SetupToken(t.Context())
	token, _ := h.SetupToken(t.Context())
	for _, bad := range []string{"wrong", replaced, stale, token + "0"} {
		_, err := h.setUp(t.Context(), caller.Stranger("x"), setupParams{bad, "ada", goodPassword})
		wantCode(t, err, fault.Forbidden, "")
	}
	_, err = h.setUp(t.Context(), caller.Stranger("x"), setupParams{token, "ada", "short"})
	wantCode(t, err, fault.InvalidParams, "password") // and the token lives on
	_, err = h.setUp(t.Context(), caller.Stranger("x"), setupParams{token, "a b", goodPassword})
	wantCode(t, err, fault.InvalidParams, "username")
	*clock = clock.Add(setupTime - time.Second)
	l, err := h.setUp(t.Context(), caller.Stranger("x"), setupParams{token, "Ada", goodPassword})
	if err != nil {
		t.Fatal(err)
	}
	cookie, _ := l.SessionCookie()
	if s, err := h.Resolve(t.Context(), cookie, "x"); err != nil || s.Caller.Name() != "ada" || s.Caller.Role() != caller.Owner || s.Caller.Account() == 0 {
		t.Fatalf("%+v %v", s, err)
	}
	_, err = h.setUp(t.Context(), caller.Stranger("x"), setupParams{token, "eve", goodPassword})
	wantCode(t, err, fault.Forbidden, "")
	if _, ok := h.SetupToken(t.Context()); ok || !h.HasOwner() {
		t.Fatal("a token beside an owner")
	}
}

// Of two people who use the token at once, one becomes the owner.
func TestSetupRace(t *testing.T) {
	h, _ := newHouse(t)
	token, _ := h.SetupToken(t.Context())
	var wg sync.WaitGroup
	var mu sync.Mutex
	owners := 0
	for _, name := range []string{"ada", "ben", "cyd"} {
		wg.Go(func() {
			if _, err := h.setUp(t.Context(), caller.Stranger("x"), setupParams{token, name, goodPassword}); err == nil {
				mu.Lock()
				defer mu.Unlock()
				owners++
			}
		})
	}
	wg.Wait()
	if owners != 1 || len(h.Users()) != 1 {
		t.Fatalf("%d owners, %+v", owners, h.Users())
	}
}
