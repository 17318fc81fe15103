package account

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"database/sql"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"atoll/internal/audit"
	"atoll/internal/caller"
	"atoll/internal/fault"
	"atoll/internal/secret"
	"atoll/internal/store"
)

const (
	goodPassword = "four words of ada"
	nextPassword = "another four words"
)

// house is a Room on a real file, with its audit, its log and what it reported.
type house struct {
	*Room
	db    *store.DB
	audit *audit.Log
	log   *bytes.Buffer
	now   func() time.Time

	mu    sync.Mutex // guards ended
	ended []Ended
}

func (h *house) reported() []Ended {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := h.ended
	h.ended = nil
	return out
}

func (h *house) records(t *testing.T) []audit.Record {
	t.Helper()
	out, err := h.audit.List(t.Context(), audit.Filter{Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func openHouse(t *testing.T, dir string, now func() time.Time) *house {
	t.Helper()
	db, err := store.Open(t.Context(), store.Config{Path: filepath.Join(dir, "node.db"), Schemas: []store.Schema{audit.Schema(), Schema()}})
	if err != nil {
		t.Fatal(err)
	}
	_, key, _ := ed25519.GenerateKey(nil)
	log, err := audit.New(audit.Config{DB: db, Key: key, Now: now})
	if err != nil {
		t.Fatal(err)
	}
	h := &house{db: db, audit: log, log: new(bytes.Buffer), now: now}
	h.Room, err = New(t.Context(), Config{DB: db, Now: now, Record: log.AppendTx, Log: slog.New(slog.NewTextHandler(h.log, nil)),
		OnEnded: func(e Ended) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.ended = append(h.ended, e)
		}})
	if err != nil {
		t.Fatal(err)
	}
	h.hasher = newHasher(64) // KiB: the cost is password_test.go's
	return h
}

// newHouse is one on a clock that the test moves; it stands still otherwise.
func newHouse(t *testing.T) (*house, *time.Time) {
	t.Helper()
	clock := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	h := openHouse(t, t.TempDir(), func() time.Time { return clock })
	t.Cleanup(func() { h.db.Close() })
	return h, &clock
}

func (h *house) mustAdd(t *testing.T, name string, role caller.Role) {
	t.Helper()
	if err := h.Add(t.Context(), name, role, secret.New(goodPassword)); err != nil {
		t.Fatal(err)
	}
}

// in logs in and returns the live session with its token.
func (h *house) in(t *testing.T, name, password string) (Session, secret.String) {
	t.Helper()
	l, err := h.login(t.Context(), caller.Stranger("192.0.2.1"), loginParams{name, password})
	if err != nil {
		t.Fatal(err)
	}
	token, _ := l.SessionCookie()
	s, err := h.Resolve(t.Context(), token, "192.0.2.1")
	if err != nil {
		t.Fatal(err)
	}
	return s, token
}

func dead(t *testing.T, h *house, what string, token secret.String) {
	t.Helper()
	if _, err := h.Resolve(t.Context(), token, "x"); !fault.Is(err, fault.Unauthenticated) {
		t.Fatalf("%s: %v, want unauthenticated", what, err)
	}
}

func wantCode(t *testing.T, err error, code fault.Code, field string) {
	t.Helper()
	if !fault.Is(err, code) || fault.Of(err).Field != field {
		t.Fatalf("got %v at %q, want %s at %q", err, fault.Of(err).Field, code, field)
	}
}

func TestNewNeedsItsConfig(t *testing.T) {
	if _, err := New(t.Context(), Config{}); err == nil {
		t.Fatal("an empty Config")
	}
}

// Accounts and sessions are the same after a restart, and a clean stop loses no last use.
func TestReopen(t *testing.T) {
	dir := t.TempDir()
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	clock := func() time.Time { return now }
	h := openHouse(t, dir, clock)
	h.mustAdd(t, "ada", caller.Owner)
	s, token := h.in(t, "ada", goodPassword)
	now = now.Add(6 * 24 * time.Hour)
	if _, err := h.Resolve(t.Context(), token, "x"); err != nil {
		t.Fatal(err)
	}
	if err := h.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.db.Close()
	now = now.Add(6 * 24 * time.Hour)
	h = openHouse(t, dir, clock)
	defer h.db.Close()
	again, err := h.Resolve(t.Context(), token, "192.0.2.1")
	if err != nil {
		t.Fatal(err)
	}
	if again.Caller != s.Caller || again.CSRF != s.CSRF {
		t.Fatalf("%+v, want %+v", again, s)
	}
}

// A damaged table stops the start and is not taken for an empty one (G7).
func TestDamagedRowsStopTheStart(t *testing.T) {
	for name, damage := range map[string]string{
		"role":    "UPDATE account SET role = 'king'",
		"hash":    "UPDATE account SET password = 'x'",
		"session": "UPDATE session SET token = x'00'",
	} {
		t.Run(name, func(t *testing.T) {
			h, _ := newHouse(t)
			h.mustAdd(t, "ada", caller.Owner)
			h.in(t, "ada", goodPassword)
			err := h.db.Write(t.Context(), store.Relaxed, func(ctx context.Context, tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, damage)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := New(t.Context(), h.cfg); !errors.Is(err, store.ErrDamaged) {
				t.Fatalf("%v, want ErrDamaged", err)
			}
		})
	}
}

// Section 6: where nothing can be written, nothing changes, and the words say so.
func TestUnwritableChangesNothing(t *testing.T) {
	h, _ := newHouse(t)
	h.mustAdd(t, "ada", caller.Owner)
	s, token := h.in(t, "ada", goodPassword)
	h.reported()
	h.cfg.Record = func(context.Context, *sql.Tx, audit.Entry) error { return errors.New("no space") }
	wantCode(t, h.Add(t.Context(), "ben", caller.Viewer, secret.New(goodPassword)), fault.Unavailable, "")
	wantCode(t, h.SetRole(t.Context(), "ada", caller.Viewer), fault.Rule, "username") // the rule comes first
	wantCode(t, h.SetPassword(t.Context(), "ada", secret.New(nextPassword)), fault.Unavailable, "")
	wantCode(t, h.Logout(t.Context(), s.Caller), fault.Unavailable, "")
	_, err := h.login(t.Context(), caller.Stranger("x"), loginParams{"ada", goodPassword})
	wantCode(t, err, fault.Unavailable, "")
	if _, err := h.Resolve(t.Context(), token, "x"); err != nil {
		t.Fatal("the session is gone:", err)
	}
	if len(h.Users()) != 1 || len(h.reported()) != 0 {
		t.Fatal("something changed")
	}
	if _, err := New(t.Context(), h.cfg); err != nil {
		t.Fatal(err)
	}
}

// G6, N3, F-D15: no password and no token is in the file, the audit or the log, as text or as the bytes that log in.
func TestNoSecretOnTheDisk(t *testing.T) {
	dir := t.TempDir()
	h := openHouse(t, dir, time.Now)
	setup, _ := h.SetupToken(t.Context())
	_, err := h.setUp(t.Context(), caller.Stranger("x"), setupParams{setup, "ada", goodPassword})
	if err != nil {
		t.Fatal(err)
	}
	s, token := h.in(t, "ada", goodPassword)
	_, _ = h.login(t.Context(), caller.Stranger("x"), loginParams{"ada", "wrong-canary-one"})
	_, _ = h.login(t.Context(), caller.Stranger("x"), loginParams{"my-password-as-name", "wrong-canary-two"})
	l, err := h.changePassword(t.Context(), s.Caller, passwdParams{goodPassword, nextPassword})
	if err != nil {
		t.Fatal(err)
	}
	next, _ := l.SessionCookie()
	canaries := []string{goodPassword, nextPassword, "wrong-canary", "my-password-as-name", setup, token.Reveal(), next.Reveal(), s.CSRF, l.CSRF}
	look := func(where string, b []byte) {
		for _, c := range canaries {
			if bytes.Contains(b, []byte(c)) {
				t.Errorf("%q is in %s", c, where)
			}
		}
	}
	readAll := func() {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			b, err := os.ReadFile(path)
			look(path, b)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	readAll() // with the write-ahead log
	h.db.Close()
	readAll()
	look("the log", h.log.Bytes())
}

func TestFold(t *testing.T) {
	for in, want := range map[string]string{"Ada": "ada", "a": "a", "a.b_c-9": "a.b_c-9", strings.Repeat("x", 32): strings.Repeat("x", 32)} {
		if got, ok := fold(in); !ok || got != want {
			t.Errorf("%q: %q %v", in, got, ok)
		}
	}
	for _, in := range []string{"", "-a", ".", "a b", "ä", "а", "a\x00", "a\n", strings.Repeat("x", 33), "K" + "\u212a"} {
		if got, ok := fold(in); ok {
			t.Errorf("%q became %q", in, got)
		}
	}
}
