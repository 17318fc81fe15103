package model

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"atoll/internal/fault"
	"atoll/internal/secret"
)

const canary = "sk-canary-1234567890"

func testWire(t *testing.T, host string) *Wire {
	t.Helper()
	w, err := NewWire(WireConfig{Host: host, KeyFile: "secrets/claude-api-key", Key: secret.New(canary), Model: "m", Idle: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w
}

// send posts to url and gives the fault of the failure, or nil.
func send(t *testing.T, w *Wire, url string) *fault.Error {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+canary)
	resp, err := w.Do(req)
	if err == nil {
		_, err = io.ReadAll(resp.Body)
		_ = resp.Body.Close()
	}
	if err == nil {
		return nil
	}
	fe := fault.Of(w.Fault(t.Context(), err))
	if text := fe.Error() + fe.Public + fe.ModelWords(); strings.Contains(text, canary) {
		t.Errorf("the key is in the error: %s", text)
	}
	return fe
}

// TestWireWords: each failure says what to do, whatever the server wrote, and never repeats the key (F-D15).
func TestWireWords(t *testing.T) {
	tests := []struct {
		status      int
		kind, body  string
		want        []string
		wantPassing bool
	}{
		{401, "application/json", `{"error":{"message":"Incorrect API key provided: ` + canary + `"}}`, []string{"refused the key", "secrets/claude-api-key"}, false},
		{403, "text/html", "<html>" + canary, []string{"refused the key", "secrets/claude-api-key"}, false},
		{404, "application/json", `{"error":"model 'm' not found, try pulling it first"}`, []string{`"m"`, "assistant.model", "try pulling it first"}, false},
		{404, "text/html", "<html>nothing here", []string{"assistant.base_url", "an HTML page"}, false},
		{400, "application/json", `{"type":"error","error":{"type":"invalid_request_error","message":"max_tokens: \u001b[31m bad\n` + canary + `"}}`, []string{"refused the request", "max_tokens: [31m bad ***"}, false},
		{400, "text/plain", strings.Repeat("long ", 1000), []string{"…"}, false},
		{429, "application/json", `{"error":{"message":"quota","code":"insufficient_quota"}}`, []string{"no credit"}, false},
		{429, "application/json", `{"error":{"message":"limit","details":{"error_code":"enforced_spend_limit_reached"}}}`, []string{"no credit"}, false},
		{429, "application/json", `{}`, []string{"limits this key", "wait"}, true},
		{503, "text/plain", "loading", []string{"overloaded", "503", "wait"}, true},
		{501, "text/plain", "", []string{"refused"}, false},
		{200, "text/html", "<html>", []string{"text/html", "assistant.base_url"}, false},
		{200, "application/json", "{}", []string{"application/json", "assistant.base_url"}, false},
		{204, "", "", []string{"refused"}, false},
	}
	for _, tt := range tests {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", tt.kind)
			w.WriteHeader(tt.status)
			_, _ = io.WriteString(w, tt.body)
		}))
		fe := send(t, testWire(t, "models.example"), s.URL)
		s.Close()
		if fe == nil || fe.Code != fault.ModelFailed {
			t.Fatalf("%d %s: got %v", tt.status, tt.body, fe)
		}
		for _, want := range append(tt.want, "models.example") {
			if !strings.Contains(fe.Public, want) {
				t.Errorf("%d: %q does not say %q", tt.status, fe.Public, want)
			}
		}
		if len(fe.Public) > 600 || strings.ContainsAny(fe.Public, "\x1b\n") {
			t.Errorf("%d: not fit to show: %q", tt.status, fe.Public)
		}
		if Passing(fe) != tt.wantPassing {
			t.Errorf("%d: passing is %v", tt.status, !tt.wantPassing)
		}
	}
}

// TestWireNoProxy: B2b: a proxy of the environment is not used.
func TestWireNoProxy(t *testing.T) {
	var hits atomic.Int32
	proxy := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { hits.Add(1) }))
	defer proxy.Close()
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY"} {
		t.Setenv(name, proxy.URL)
	}
	w := testWire(t, "192.0.2.1")
	if w.client.Transport.(*http.Transport).Proxy != nil {
		t.Error("the transport has a proxy")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://192.0.2.1/v1", nil) // an address for documentation
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Do(req); err == nil || hits.Load() != 0 {
		t.Errorf("%d requests reached the proxy, %v", hits.Load(), err)
	}
}

// TestWireNoRedirect: B2b: neither the conversation nor the key goes to another address.
func TestWireNoRedirect(t *testing.T) {
	var hits atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { hits.Add(1) }))
	defer other.Close()
	for _, status := range []int{301, 302, 303, 307, 308} {
		s := httptest.NewServer(http.RedirectHandler(other.URL, status))
		fe := send(t, testWire(t, "models.example"), s.URL)
		s.Close()
		if fe == nil || !strings.Contains(fe.Public, "redirects") || Passing(fe) {
			t.Errorf("%d: got %v", status, fe)
		}
	}
	if hits.Load() != 0 {
		t.Errorf("%d requests were redirected", hits.Load())
	}
}

// TestWireUnreachable: SPEC section 3, section 6.
func TestWireUnreachable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_ = l.Close()
	fe := send(t, testWire(t, addr), "http://"+addr)
	if fe == nil || !strings.Contains(fe.Public, addr) || !strings.Contains(fe.Public, "assistant.base_url") || !Passing(fe) {
		t.Errorf("got %v", fe)
	}
}

// TestWireTLS: a server that this machine has no reason to trust gets no key.
func TestWireTLS(t *testing.T) {
	var hits atomic.Int32
	h := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { hits.Add(1) })
	secure := httptest.NewUnstartedServer(h)
	secure.Config.ErrorLog = nil
	secure.StartTLS()
	defer secure.Close()
	plain := httptest.NewServer(h)
	defer plain.Close()
	if fe := send(t, testWire(t, "models.example"), secure.URL); fe == nil || !strings.Contains(fe.Public, "certificate") || Passing(fe) {
		t.Errorf("unknown certificate: %v", fe)
	}
	if fe := send(t, testWire(t, "models.example"), strings.Replace(plain.URL, "http:", "https:", 1)); fe == nil || !strings.Contains(fe.Public, "TLS") || Passing(fe) {
		t.Errorf("no TLS: %v", fe)
	}
	if hits.Load() != 0 {
		t.Errorf("%d requests went through", hits.Load())
	}
}

// trickle is a body that gives a piece after each wait.
type trickle struct {
	ctx   context.Context
	wait  time.Duration
	piece string
}

func (b *trickle) Read(p []byte) (int, error) {
	select {
	case <-b.ctx.Done():
		return 0, b.ctx.Err()
	case <-time.After(b.wait):
		return copy(p, b.piece), nil
	}
}

func (b *trickle) Close() error { return nil }

// TestWireSilence: B2, F-E4: with the clock of a test, to the second.
func TestWireSilence(t *testing.T) {
	tests := []struct {
		name  string
		wait  time.Duration
		piece string
		after time.Duration // when the stream is ended; zero means not within an hour
	}{
		{"nothing", 24 * time.Hour, "", 60 * time.Second},
		{"slow data", 50 * time.Second, "data: {}\n", 0},
		{"comments", 20 * time.Second, ": still here\n", 320 * time.Second},
		{"pings", 20 * time.Second, "data: {\"type\": \"ping\"}\n", 320 * time.Second},
		{"a line that never ends", 20 * time.Second, "x", 320 * time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, err := NewWire(WireConfig{Host: "h"})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancelCause(t.Context())
				timer := time.AfterFunc(time.Hour, func() { cancel(errSilent) })
				b := &watched{body: &trickle{ctx, tt.wait, tt.piece}, wire: w, parent: t.Context(), ctx: ctx, timer: timer,
					end: func() { timer.Stop(); cancel(nil) }}
				defer b.Close()
				start := time.Now()
				for err == nil && time.Since(start) < time.Hour {
					_, err = b.Read(make([]byte, 64))
				}
				switch took := time.Since(start); {
				case tt.after == 0 && err != nil:
					t.Errorf("ended after %s: %v", took, err)
				case tt.after != 0 && took != tt.after:
					t.Errorf("ended after %s: %v, want %s", took, err, tt.after)
				case tt.after != 0 && !strings.Contains(fault.Of(w.Fault(t.Context(), err)).Public, "said nothing"):
					t.Errorf("got %v", err)
				}
			})
		})
	}
}

func TestAddress(t *testing.T) {
	for in, want := range map[string]string{
		"https://api.anthropic.com": "api.anthropic.com", "http://192.168.1.9:11434/v1": "192.168.1.9:11434",
		"http://127.0.0.1:1/v1": "", "http://localhost:1/v1": "", "http://[::1]:1/v1": "",
	} {
		if _, host, err := Address(in); err != nil || host != want {
			t.Errorf("%s: got %q, %v", in, host, err)
		}
	}
	for _, in := range []string{"", "api.anthropic.com", "ftp://x", "http://", "http://:80", "http://u:p@x/v1", "http://x/v1?key=1", "http://x/v1?", "http://x#f", "http://x\n"} {
		if _, _, err := Address(in); err == nil {
			t.Errorf("accepted %q", in)
		}
	}
}

func TestRetryAfterHeader(t *testing.T) {
	now := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	for in, want := range map[string]time.Duration{
		"": 0, "7": 7 * time.Second, "0": 0, "-3": 0, "soon": 0, "1e9": 0, "Sun, 01 Nov 2026 12:00:30 GMT": 30 * time.Second,
		"Sun, 01 Nov 2026 11:00:00 GMT": 0,
	} {
		if got := retryAfter(http.Header{"Retry-After": {in}}, now); got != want {
			t.Errorf("%q: got %s, want %s", in, got, want)
		}
	}
	if got := retryAfter(http.Header{"Retry-After-Ms": {"250"}}, now); got != 250*time.Millisecond {
		t.Errorf("milliseconds: got %s", got)
	}
}
