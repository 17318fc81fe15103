package account

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"atoll/internal/audit"
	"atoll/internal/caller"
	"atoll/internal/fault"
	"atoll/internal/secret"
	"atoll/internal/store"
)

// benchHouse has one owner, ada.
func benchHouse(b *testing.B) *Room {
	b.Helper()
	db, err := store.Open(b.Context(), store.Config{Path: filepath.Join(b.TempDir(), "node.db"), Schemas: []store.Schema{audit.Schema(), Schema()}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { db.Close() })
	r, err := New(b.Context(), Config{DB: db, OnEnded: func(Ended) {}, Log: slog.New(slog.DiscardHandler),
		Record: func(context.Context, *sql.Tx, audit.Entry) error { return nil }})
	if err != nil {
		b.Fatal(err)
	}
	if err := r.Add(b.Context(), "ada", caller.Owner, secret.New(goodPassword)); err != nil {
		b.Fatal(err)
	}
	return r
}

func TestAdd(t *testing.T) {
	h, _ := newHouse(t)
	h.mustAdd(t, "Ada", caller.Owner)
	for _, c := range []struct {
		name, password string
		role           caller.Role
		code           fault.Code
		field          string
	}{
		{"ada", goodPassword, caller.Viewer, fault.Rule, "username"},
		{"ADA", goodPassword, caller.Viewer, fault.Rule, "username"},
		{"b d", goodPassword, caller.Viewer, fault.InvalidParams, "username"},
		{"ben", "short", caller.Viewer, fault.InvalidParams, "password"},
		{"ben", goodPassword, caller.Nobody, fault.InvalidParams, "role"},
	} {
		wantCode(t, h.Add(t.Context(), c.name, c.role, secret.New(c.password)), c.code, c.field)
	}
	if u := h.Users(); len(u) != 1 || u[0].Username != "ada" || u[0].Role != "owner" {
		t.Fatalf("%+v", u)
	}
	if rec := h.records(t)[0]; rec.Kind != "account" || rec.Event != "add" || rec.Caller != local || rec.Subject != "ada" {
		t.Fatalf("%+v", rec)
	}
}

// C11: what ends with a password, a role or an account ends in the same transaction; if it cannot, nothing was changed.
func TestAltered(t *testing.T) {
	h, _ := newHouse(t)
	h.mustAdd(t, "ada", caller.Owner)
	h.mustAdd(t, "ben", caller.Member)
	ben, token := h.in(t, "ben", goodPassword)
	for name, change := range map[string]func() error{
		"password": func() error { return h.SetPassword(t.Context(), "ben", secret.New(nextPassword)) },
		"own password": func() error {
			_, err := h.changePassword(t.Context(), ben.Caller, passwdParams{goodPassword, nextPassword})
			return err
		},
		"role":    func() error { return h.SetRole(t.Context(), "ben", caller.Viewer) },
		"removal": func() error { return h.Remove(t.Context(), "ben") },
	} {
		asked := int64(0)
		h.cfg.Altered = func(_ context.Context, _ *sql.Tx, account int64) error { asked = account; return errors.New("no") }
		wantCode(t, change(), fault.Unavailable, "")
		h.cfg.Altered = nil
		if asked != ben.Caller.Account() {
			t.Errorf("%s: told of account %d", name, asked)
		}
		if s, err := h.Resolve(t.Context(), token, "x"); err != nil || !s.Caller.May(caller.Member) {
			t.Errorf("%s: changed all the same: %v", name, err)
		}
	}
	h.in(t, "ben", goodPassword)
}

// G6: password, role and removal end every session of the account at once, and no other's; C11 learns of it even where
// there is no session.
func TestChangesEndSessions(t *testing.T) {
	for name, change := range map[string]func(*house) error{
		"password": func(h *house) error {
			return h.SetPassword(context.Background(), "ben", secret.New(nextPassword))
		},
		"role":    func(h *house) error { return h.SetRole(context.Background(), "Ben", caller.Viewer) },
		"removal": func(h *house) error { return h.Remove(context.Background(), "ben") },
	} {
		t.Run(name, func(t *testing.T) {
			h, _ := newHouse(t)
			h.mustAdd(t, "ada", caller.Owner)
			h.mustAdd(t, "ben", caller.Member)
			_, adas := h.in(t, "ada", goodPassword)
			s, one := h.in(t, "ben", goodPassword)
			_, two := h.in(t, "ben", goodPassword)
			h.reported()
			if err := change(h); err != nil {
				t.Fatal(err)
			}
			dead(t, h, "the first session", one)
			dead(t, h, "the second session", two)
			if _, err := h.Resolve(t.Context(), adas, "x"); err != nil {
				t.Fatal("ada's session ended")
			}
			got := h.reported()
			if len(got) != 1 || got[0].Account != s.Caller.Account() || len(got[0].Sessions) != 2 || !got[0].Changed {
				t.Fatalf("%+v", got)
			}
			again, err := New(t.Context(), h.cfg) // and so after a restart
			if err != nil {
				t.Fatal(err)
			}
			if n := len(again.of(s.Caller.Account())); n != 0 {
				t.Fatal(n, "sessions in the file")
			}
		})
	}
	t.Run("without a session", func(t *testing.T) {
		h, _ := newHouse(t)
		h.mustAdd(t, "ada", caller.Owner)
		if err := h.SetPassword(t.Context(), "ada", secret.New(nextPassword)); err != nil {
			t.Fatal(err)
		}
		if got := h.reported(); len(got) != 1 || !got[0].Changed {
			t.Fatalf("%+v", got)
		}
	})
	t.Run("the same role is no change", func(t *testing.T) {
		h, _ := newHouse(t)
		h.mustAdd(t, "ada", caller.Owner)
		_, token := h.in(t, "ada", goodPassword)
		h.reported()
		if err := h.SetRole(t.Context(), "ada", caller.Owner); err != nil {
			t.Fatal(err)
		}
		if _, err := h.Resolve(t.Context(), token, "x"); err != nil || len(h.reported()) != 0 {
			t.Fatal("the session ended")
		}
	})
}

func TestTheLastOwnerStays(t *testing.T) {
	h, _ := newHouse(t)
	h.mustAdd(t, "ada", caller.Owner)
	h.mustAdd(t, "ben", caller.Member)
	wantCode(t, h.Remove(t.Context(), "ada"), fault.Rule, "username")
	wantCode(t, h.SetRole(t.Context(), "ada", caller.Member), fault.Rule, "username")
	wantCode(t, h.Remove(t.Context(), "cyd"), fault.NotFound, "username")
	wantCode(t, h.SetRole(t.Context(), "", caller.Owner), fault.NotFound, "username")
	wantCode(t, h.SetPassword(t.Context(), "cyd", secret.New(goodPassword)), fault.NotFound, "username")
	if err := h.SetRole(t.Context(), "ben", caller.Owner); err != nil {
		t.Fatal(err)
	}
	if err := h.Remove(t.Context(), "ada"); err != nil {
		t.Fatal(err)
	}
	wantCode(t, h.Remove(t.Context(), "ben"), fault.Rule, "username")
}

// H1: an account's number names its files, so a new account never has that of a removed one.
func TestNumbersAreNeverUsedTwice(t *testing.T) {
	h, _ := newHouse(t)
	h.mustAdd(t, "ada", caller.Owner)
	h.mustAdd(t, "ben", caller.Member)
	was := h.find("ben").id
	if err := h.Remove(t.Context(), "ben"); err != nil {
		t.Fatal(err)
	}
	h.mustAdd(t, "ben", caller.Member)
	if h.find("ben").id == was {
		t.Fatal("the new ben has the old one's number")
	}
}

// auth.passwd: the old password is needed, every session ends, and the one that asked goes on under a new token.
func TestChangePassword(t *testing.T) {
	h, clock := newHouse(t)
	h.mustAdd(t, "ada", caller.Owner)
	s, token := h.in(t, "ada", goodPassword)
	_, other := h.in(t, "ada", goodPassword)
	h.reported()
	for _, c := range []struct {
		in    passwdParams
		field string
	}{{passwdParams{"wrong password", nextPassword}, "old"}, {passwdParams{goodPassword, "short"}, "new"},
		{passwdParams{goodPassword, goodPassword}, "new"}} {
		_, err := h.changePassword(t.Context(), s.Caller, c.in)
		wantCode(t, err, fault.InvalidParams, c.field)
	}
	if _, err := h.Resolve(t.Context(), token, "x"); err != nil || len(h.reported()) != 0 {
		t.Fatal("a refused change ended something")
	}
	*clock = clock.Add(time.Hour) // the wrong attempt's pause is over
	l, err := h.changePassword(t.Context(), s.Caller, passwdParams{goodPassword, nextPassword})
	if err != nil {
		t.Fatal(err)
	}
	dead(t, h, "the session that asked", token)
	dead(t, h, "the other session", other)
	if got := h.reported(); len(got) != 1 || len(got[0].Sessions) != 2 || !got[0].Changed {
		t.Fatalf("%+v", got)
	}
	next, _ := l.SessionCookie()
	if _, err := h.Resolve(t.Context(), next, "x"); err != nil {
		t.Fatal(err)
	}
	_, err = h.login(t.Context(), caller.Stranger("x"), loginParams{"ada", goodPassword})
	wantCode(t, err, fault.Unauthenticated, "")
	_, err = h.changePassword(t.Context(), s.Caller, passwdParams{nextPassword, goodPassword})
	wantCode(t, err, fault.Unauthenticated, "") // by a session that has ended
}

func TestUsersCountsLiveSessions(t *testing.T) {
	h, clock := newHouse(t)
	h.mustAdd(t, "ada", caller.Owner)
	h.mustAdd(t, "ben", caller.Viewer)
	h.in(t, "ada", goodPassword)
	if u := h.Users(); len(u) != 2 || u[0].Sessions != 1 || !u[0].LastSeen.Equal(*clock) || u[1].Sessions != 0 || !u[1].LastSeen.IsZero() {
		t.Fatalf("%+v", u)
	}
	*clock = clock.Add(Idle)
	if u := h.Users(); u[0].Sessions != 0 {
		t.Fatalf("%+v", u)
	}
}
