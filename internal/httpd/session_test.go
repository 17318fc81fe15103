package httpd

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"atoll/internal/account"
	"atoll/internal/caller"
	"atoll/internal/fault"
	"atoll/internal/secret"
)

func secretOf(p *person) secret.String { return secret.New(p.cookie) }

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// noAccounts knows nobody.
type noAccounts struct{}

func (noAccounts) Resolve(context.Context, secret.String, string) (account.Session, error) {
	return account.Session{}, fault.New(fault.Unauthenticated, "nobody")
}
func (noAccounts) Alive(context.Context, caller.Caller) (caller.Caller, error) {
	return caller.Caller{}, fault.New(fault.Unauthenticated, "nobody")
}
func (noAccounts) Logout(context.Context, caller.Caller) error { return errors.New("nobody") }

// G6: the cookie's attributes; the token is in the cookie only.
func TestCookie(t *testing.T) {
	g := newRig(t, nil)
	g.add(t, "ada", caller.Owner)
	a := g.stranger().call(t, "auth.login", `{"username":"ada","password":"`+password+`"}`)
	if len(a.cookies) != 1 {
		t.Fatal(a.cookies)
	}
	c := a.cookies[0]
	if c.Name != "atoll_session" || !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Path != "/" || c.Secure || c.Domain != "" ||
		time.Until(c.Expires) < 29*24*time.Hour || len(c.Value) != 64 || strings.Contains(a.body, c.Value) {
		t.Fatalf("%+v", c)
	}
	p := g.login(t, "ada")
	a = p.call(t, "auth.logout", `{}`)
	if len(a.cookies) != 1 || a.cookies[0].MaxAge >= 0 || a.cookies[0].Value != "" {
		t.Fatalf("%+v", a.cookies)
	}
	want(t, "after logout", p.call(t, "test.view", `{}`), 401, fault.Unauthenticated)
}

// G6: a login ends the session that its client had; a failed one does not, and neither does one elsewhere.
func TestLoginReplacesTheClientsSession(t *testing.T) {
	g := newRig(t, nil)
	g.add(t, "ada", caller.Owner)
	p, elsewhere := g.login(t, "ada"), g.login(t, "ada")
	before := *p
	want(t, "a wrong password", p.call(t, "auth.login", `{"username":"ada","password":"wrong password"}`), 401, fault.Unauthenticated)
	want(t, "the session", p.call(t, "test.view", `{}`), 200, "")
	p.take(t, p.call(t, "auth.login", `{"username":"ada","password":"`+password+`"}`))
	if p.cookie == before.cookie || p.cookie == "" {
		t.Fatal("the token was kept")
	}
	want(t, "the old token", before.call(t, "test.view", `{}`), 401, fault.Unauthenticated)
	want(t, "the new token", p.call(t, "test.view", `{}`), 200, "")
	want(t, "elsewhere", elsewhere.call(t, "test.view", `{}`), 200, "")
}

// A changed password gives the one who changed it a new token in the same answer.
func TestPasswdRotates(t *testing.T) {
	g := newRig(t, nil)
	g.add(t, "ada", caller.Owner)
	p := g.login(t, "ada")
	before := *p
	a := p.call(t, "auth.passwd", `{"old":"`+password+`","new":"another four words"}`)
	want(t, "passwd", a, 200, "")
	p.take(t, a)
	want(t, "the old token", before.call(t, "test.view", `{}`), 401, fault.Unauthenticated)
	want(t, "the new token", p.call(t, "test.view", `{}`), 200, "")
}

func TestSessionPath(t *testing.T) {
	g := newRig(t, nil)
	g.add(t, "ada", caller.Member)
	want(t, "no cookie", g.stranger().get(t, "/session", nil), 401, fault.Unauthenticated)
	p := g.login(t, "ada")
	a := p.get(t, "/session", nil)
	if a.status != 200 || !strings.HasPrefix(a.body, `{"csrf":"`+p.csrf+`","username":"ada","role":"member","expires_at":"`) {
		t.Fatal(a.status, a.body)
	}
	if a.header.Get("Access-Control-Allow-Origin") != "" || a.header.Get("Cache-Control") != "no-store" {
		t.Fatal(a.header)
	}
	want(t, "another origin", p.get(t, "/session", header("Origin", "https://evil.example")), 403, fault.Forbidden)
	want(t, "another site", p.get(t, "/session", header("Sec-Fetch-Site", "cross-site")), 403, fault.Forbidden)
	want(t, "two cookies", p.get(t, "/session", func(r *http.Request) {
		r.AddCookie(&http.Cookie{Name: cookieName, Value: p.cookie})
	}), 401, fault.Unauthenticated)
}

// N3, F-D15: no password, cookie, CSRF token or parameter is in the log of a run.
func TestLogHasNoSecrets(t *testing.T) {
	g := newRig(t, nil)
	g.add(t, "ada", caller.Owner)
	p := g.login(t, "ada")
	g.stranger().call(t, "auth.login", `{"username":"ada","password":"canary-wrong-password"}`)
	g.stranger().call(t, "auth.login", `{"username":"ada","password":{"canary-object":1}}`)
	g.stranger().call(t, "canary-method", `{}`)
	p.call(t, "test.view", `{"text":"canary-parameter"}`)
	p.call(t, "test.view", `{"text":["canary-type"]}`)
	p.call(t, "test.fail", `{"text":"panic"}`)
	p.get(t, "/canary-path?canary-query", nil)
	log := g.log.String()
	for _, c := range []string{"canary", password, p.cookie, p.csrf} {
		if strings.Contains(log, c) {
			t.Errorf("%q is in the log", c)
		}
	}
	for _, part := range []string{"rpc=test.view", "caller=operator:ada", "status=200", "code=unauthenticated", "took="} {
		if !strings.Contains(log, part) {
			t.Errorf("no %s in the log", part)
		}
	}
}
