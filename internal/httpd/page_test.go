package httpd

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"atoll/internal/fault"
	"atoll/internal/secret"
)

func TestPage(t *testing.T) {
	g := newRig(t, nil)
	a := g.stranger().get(t, "/", nil)
	if a.status != 200 || !strings.Contains(a.body, "atoll setup ADDRESS") || strings.Contains(a.body, "<script") {
		t.Fatal(a.status, a.body)
	}
	if a := g.stranger().get(t, "/nothing", nil); a.status != 404 {
		t.Fatal(a.status)
	}
}

func TestInterfaceTakesThePagesPlace(t *testing.T) {
	g := newRig(t, func(c *Config) {
		c.Interface = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Security-Policy", "default-src 'self'")
			io.WriteString(w, "the interface")
		})
	})
	a := g.stranger().get(t, "/some/page", nil)
	if a.body != "the interface" || a.header.Get("Content-Security-Policy") != "default-src 'self'" || a.header.Get("X-Frame-Options") != "DENY" {
		t.Fatal(a.body, a.header)
	}
	want(t, "the API beside it", g.stranger().call(t, "x.y", `{}`), 401, fault.Unauthenticated)
}

func TestHealth(t *testing.T) {
	var sick error
	g := newRig(t, func(c *Config) { c.Health = func(context.Context) error { return sick } })
	if a := g.stranger().get(t, "/healthz", nil); a.status != 200 || a.body != `{"status":"ok"}` {
		t.Fatal(a.status, a.body)
	}
	sick = errors.New("the disk is a canary")
	if a := g.stranger().get(t, "/healthz", nil); a.status != 503 || strings.Contains(a.body, "canary") {
		t.Fatal(a.status, a.body)
	}
}

// Section 3: loopback or token. A proxy on loopback is not loopback.
func TestMetrics(t *testing.T) {
	g := newRig(t, func(c *Config) { c.MetricsToken = secret.New("a-metrics-token") })
	if a := g.stranger().get(t, "/metrics", nil); a.status != 200 || a.body != "atoll_up 1\n" {
		t.Fatal(a.status, a.body)
	}
	proxied := header("X-Forwarded-For", "1.2.3.4")
	want(t, "by a proxy", g.stranger().get(t, "/metrics", proxied), 403, fault.Forbidden)
	for _, auth := range []string{"Bearer wrong", "Bearer ", "a-metrics-token", "Basic a-metrics-token"} {
		want(t, auth, g.stranger().get(t, "/metrics", func(r *http.Request) { proxied(r); r.Header.Set("Authorization", auth) }), 403, fault.Forbidden)
	}
	if a := g.stranger().get(t, "/metrics", func(r *http.Request) { proxied(r); r.Header.Set("Authorization", "Bearer a-metrics-token") }); a.status != 200 {
		t.Fatal(a.status)
	}
	none := newRig(t, nil)
	want(t, "an empty token is none", none.stranger().get(t, "/metrics", func(r *http.Request) {
		proxied(r)
		r.Header.Set("Authorization", "Bearer ")
	}), 403, fault.Forbidden)
}
