package wallet

import (
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"atoll/internal/fault"
	"atoll/internal/secret"
)

// Issue 3, 6: the cookie changes when the node restarts. It is read anew each time, and once more where the node refuses
// it in the middle.
func TestCookieRotates(t *testing.T) {
	f := newFake(t)
	cfg := f.cookieConfig()
	r := open(t, cfg)
	for i, password := range []string{canary + "2", canary + "3:with:colons"} {
		f.cookie(cfg.CookieFile, password)
		r.renew()
		if _, err := r.Status(t.Context()); err != nil {
			t.Fatalf("%d: %v", i, err)
		}
	}
	if f.refused != 0 {
		t.Errorf("%d old cookies were sent", f.refused)
	}
	// The node restarts between two questions of one look.
	f.during = func(method string, _ *http.Request) {
		if method == "getnetworkinfo" {
			f.cookie(cfg.CookieFile, canary+"4")
			f.during = nil
		}
	}
	r.renew()
	s, err := r.Status(t.Context())
	if err != nil || s.Wallet != WalletLoaded || f.refused != 1 {
		t.Errorf("%+v, %v, %d refused", s, err, f.refused)
	}
}

// A cookie that stays wrong is tried once, and a node that changes it without end is not followed.
func TestCookieIsReadOnceMore(t *testing.T) {
	f := newFake(t)
	cfg := f.cookieConfig()
	f.set(func() { f.password = "another" })
	r := open(t, cfg)
	if _, err := r.Status(t.Context()); !fault.Is(err, fault.NotConfigured) || f.refused != 1 {
		t.Errorf("%v, %d tries", err, f.refused)
	}
	n := 0
	f.during = func(string, *http.Request) {
		n++
		f.cookie(cfg.CookieFile, canary+string(rune('a'+n)))
		f.set(func() { f.password = "another" })
	}
	f.refused = 0
	r.renew()
	if _, err := r.Status(t.Context()); !fault.Is(err, fault.NotConfigured) || f.refused != 2 {
		t.Errorf("%v, %d tries", err, f.refused)
	}
	// The cookie is gone when it is looked for again: the node has stopped.
	f.during = func(string, *http.Request) { os.Remove(cfg.CookieFile) }
	r.renew()
	f.cookie(cfg.CookieFile, canary)
	f.set(func() { f.password = "another" })
	if rep := r.Probe(t.Context()); rep.Reason != CookieMissing {
		t.Errorf("%+v", rep)
	}
}

// A password that a person replaced is used without a restart of Atoll.
func TestPasswordIsReadAnew(t *testing.T) {
	f := newFake(t)
	cfg := f.config()
	now := canary + "old"
	cfg.Password = func() (secret.String, error) { return secret.New(now), nil }
	r := open(t, cfg)
	if _, err := r.Status(t.Context()); !fault.Is(err, fault.NotConfigured) {
		t.Errorf("%v", err)
	}
	now = canary
	r.renew()
	if _, err := r.Status(t.Context()); err != nil {
		t.Error(err)
	}
}

// What stands where the cookie should be must not hold the request: a named pipe has no end.
func TestCookieIsAPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	done := make(chan *problem)
	go func() { _, p := readCookie(path); done <- p }()
	select {
	case p := <-done:
		if p == nil || p.reason != CookieBad {
			t.Errorf("%+v", p)
		}
	case <-time.After(5 * time.Second):
		t.Fatal("it hangs")
	}
}
