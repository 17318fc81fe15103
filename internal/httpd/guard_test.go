package httpd

import (
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"atoll/internal/caller"
	"atoll/internal/fault"
)

// G6: no name but the node's own is answered, so that a page whose name was pointed at this machine gets nothing.
func TestHostList(t *testing.T) {
	g := newRig(t, func(c *Config) { c.Hosts = []string{"Home.Example", "10.1.2.3"} })
	port := g.url[strings.LastIndex(g.url, ":"):]
	for h, status := range map[string]int{"localhost": 200, "LOCALHOST" + port: 200, "127.0.0.1" + port: 200, "[::1]" + port: 200,
		"home.example": 200, "home.example.:1234": 200, "10.1.2.3": 200,
		"evil.example": 403, "evil.example" + port: 403, "127.0.0.1.evil.example": 403, "localhost.evil.example": 403, "10.1.2.4": 403,
		"x.localhost": 403, "[::2]": 403, "0.0.0.0" + port: 403} {
		for _, path := range []string{"/", "/healthz"} {
			if a := g.stranger().get(t, path, host(h)); a.status != status {
				t.Errorf("%q %s: %d, want %d", h, path, a.status, status)
			}
		}
	}
	want(t, "a login under another name", g.stranger().post(t, `{"jsonrpc":"2.0","id":1,"method":"node.version"}`, host("evil.example")), 403, fault.Forbidden)
}

// Cross-site calls get nowhere, open methods included; programs, which say nothing of a site, do.
func TestOrigin(t *testing.T) {
	g := newRig(t, nil)
	g.add(t, "ada", caller.Owner)
	p := g.login(t, "ada")
	call := `{"jsonrpc":"2.0","id":1,"method":"test.change","params":{"text":"x"}}`
	version := `{"jsonrpc":"2.0","id":1,"method":"node.version"}`
	for name, change := range map[string]func(*http.Request){"another origin": header("Origin", "http://evil.example"),
		"no origin at all": header("Origin", "null"), "another site": header("Sec-Fetch-Site", "cross-site"), "a sibling": header("Sec-Fetch-Site", "same-site"),
		"another port": header("Origin", "http://127.0.0.1:9")} {
		want(t, name, p.post(t, call, change), 403, fault.Forbidden)
		want(t, name, p.post(t, version, change), 403, fault.Forbidden)
	}
	if g.runs("test.change") != 0 {
		t.Fatal("it ran")
	}
	for _, change := range []func(*http.Request){nil, header("Origin", g.url), header("Sec-Fetch-Site", "same-origin")} {
		want(t, "our own", p.post(t, call, change), 200, "")
	}
}

func TestSecurityHeaders(t *testing.T) {
	g := newRig(t, nil)
	for _, path := range []string{"/", "/session", "/events", "/healthz", "/metrics", "/nothing-here", "/rpc"} {
		a := g.stranger().get(t, path, nil)
		for name, value := range map[string]string{"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff",
			"Referrer-Policy": "no-referrer", "Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
			"X-Frame-Options": "DENY", "Cache-Control": "no-store", "Access-Control-Allow-Origin": ""} {
			if got := a.header.Get(name); got != value {
				t.Errorf("%s: %s is %q", path, name, got)
			}
		}
	}
}

// G6: X-Forwarded-* counts only from trusted proxies.
func TestForwarded(t *testing.T) {
	proxies := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("10.0.0.0/8")}
	for _, c := range []struct {
		what    string
		proxies []netip.Prefix
		from    string
		forward []string
		want    string
	}{
		{"untrusted", nil, "127.0.0.1:5", []string{"1.2.3.4"}, "127.0.0.1"},
		{"another peer", proxies, "192.0.2.9:5", []string{"1.2.3.4"}, "192.0.2.9"},
		{"trusted", proxies, "127.0.0.1:5", []string{"1.2.3.4"}, "1.2.3.4"},
		{"what the client wrote before", proxies, "127.0.0.1:5", []string{"6.6.6.6, 1.2.3.4"}, "1.2.3.4"},
		{"two headers", proxies, "127.0.0.1:5", []string{"6.6.6.6", "1.2.3.4"}, "1.2.3.4"},
		{"a chain of ours", proxies, "127.0.0.1:5", []string{"6.6.6.6, 1.2.3.4, 10.0.0.1"}, "1.2.3.4"},
		{"all ours", proxies, "127.0.0.1:5", []string{"10.0.0.2, 10.0.0.1"}, "10.0.0.2"},
		{"nonsense", proxies, "127.0.0.1:5", []string{"1.2.3.4, unknown"}, "127.0.0.1"},
		{"nonsense before", proxies, "127.0.0.1:5", []string{"x, 10.0.0.1"}, "10.0.0.1"},
		{"none", proxies, "127.0.0.1:5", nil, "127.0.0.1"},
		{"a network of version six", nil, "[2001:db8:1:2:3:4:5:6]:5", nil, "2001:db8:1:2::/64"},
		{"mapped", nil, "[::ffff:192.0.2.1]:5", nil, "192.0.2.1"},
		{"loopback of version six", nil, "[::1]:5", nil, "::1"},
	} {
		s := &Server{cfg: Config{TrustedProxies: c.proxies}}
		r := httptest.NewRequest("GET", "http://localhost/", nil)
		r.RemoteAddr = c.from
		for _, f := range c.forward {
			r.Header.Add("X-Forwarded-For", f)
		}
		if got := s.exchange(httptest.NewRecorder(), r).address; got != c.want {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
	}
}

// Behind a trusted proxy that speaks TLS the cookie is Secure and the Host is the one that the browser asked for.
func TestForwardedHostAndProto(t *testing.T) {
	forward := func(r *http.Request) {
		r.Header.Set("X-Forwarded-Proto", "https")
		r.Header.Set("X-Forwarded-Host", "home.example")
		r.Header.Set("Origin", "https://home.example")
	}
	body := `{"jsonrpc":"2.0","id":1,"method":"auth.login","params":{"username":"ada","password":"` + password + `"}}`
	trusting := newRig(t, func(c *Config) {
		c.Hosts, c.TrustedProxies = []string{"home.example"}, []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
	})
	trusting.add(t, "ada", caller.Owner)
	a := trusting.stranger().post(t, body, forward)
	if a.status != 200 || len(a.cookies) != 1 || !a.cookies[0].Secure {
		t.Fatal(a.status, a.body, a.cookies)
	}
	want(t, "a name that is not ours", trusting.stranger().post(t, body, func(r *http.Request) {
		r.Header.Set("X-Forwarded-Host", "evil.example")
	}), 403, fault.Forbidden)
	plain := newRig(t, func(c *Config) { c.Hosts = []string{"home.example"} })
	plain.add(t, "ada", caller.Owner)
	want(t, "from nobody we trust", plain.stranger().post(t, body, forward), 403, fault.Forbidden)
}

// The socket asks for the same login as every other way in, whatever Host the client names.
func TestSocket(t *testing.T) {
	g := newRig(t, nil)
	g.add(t, "ada", caller.Owner)
	path := filepath.Join(t.TempDir(), "atoll.sock")
	l, err := ListenSocket(path)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: g.Server}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(l) }()
	defer func() { srv.Close(); <-done }()
	dial := &http.Client{Transport: &http.Transport{DialContext: dialer(path), DisableKeepAlives: true}}
	p := g.stranger()
	p.http = dial
	if a := p.post(t, `{"jsonrpc":"2.0","id":1,"method":"node.version"}`, host("atoll")); string(a.Result) != `{"text":"socket"}` {
		t.Fatal(a.body)
	}
	want(t, "without a session", p.call(t, "test.view", `{}`), 401, fault.Unauthenticated)
	p.take(t, p.call(t, "auth.login", `{"username":"ada","password":"`+password+`"}`))
	want(t, "with one", p.call(t, "test.view", `{}`), 200, "")
}

func FuzzHostName(f *testing.F) {
	for _, s := range []string{"localhost:80", "[::1]:80", "a:b:c", "[", "]:1", "\xff", "evil.example"} {
		f.Add(s)
	}
	s := &Server{hosts: map[string]bool{"localhost": true}}
	f.Fuzz(func(t *testing.T, h string) {
		r := httptest.NewRequest("GET", "http://localhost/", nil)
		r.Host = h
		q := s.exchange(httptest.NewRecorder(), r)
		name, _, err := net.SplitHostPort(h)
		if err != nil {
			name = h
		}
		if s.hostKnown(q) && !strings.EqualFold(strings.TrimSuffix(strings.Trim(name, "[]"), "."), "localhost") {
			t.Fatalf("%q is known", h)
		}
	})
}

func FuzzForwardedFor(f *testing.F) {
	for _, s := range []string{"1.2.3.4", "1.2.3.4, 127.0.0.1", ",,,", "fe80::1%eth0", "::ffff:127.0.0.1", "x"} {
		f.Add(s)
	}
	s := &Server{cfg: Config{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}}
	f.Fuzz(func(t *testing.T, v string) {
		r := httptest.NewRequest("GET", "http://localhost/", nil)
		r.RemoteAddr = "127.0.0.1:1"
		r.Header["X-Forwarded-For"] = []string{v}
		if got := s.exchange(httptest.NewRecorder(), r).address; got == "" || strings.ContainsAny(got, "% \n,") || len(got) > 45 {
			t.Fatalf("%q became %q", v, got)
		}
	})
}
