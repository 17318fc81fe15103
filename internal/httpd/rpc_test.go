package httpd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"atoll/internal/caller"
	"atoll/internal/event"
	"atoll/internal/fault"
	"atoll/internal/rpc"
)

// G1: the live method table, walked: every method but the open ones needs, in this order, a session, the CSRF token,
// the role. Nothing ran on the way.
func TestGateOrder(t *testing.T) {
	g := newRig(t, nil)
	for _, role := range []caller.Role{caller.Owner, caller.Member, caller.Viewer} {
		g.add(t, role.String(), role)
	}
	people := map[caller.Role]*person{}
	for _, role := range []caller.Role{caller.Owner, caller.Member, caller.Viewer} {
		people[role] = g.login(t, role.String())
	}
	names := append(g.cfg.Gate.Names(), "rpc.discover", "no.such-method", "assistant.chat", "", "x")
	for _, name := range names {
		if slices.Contains(rpc.OpenMethods(), name) {
			continue
		}
		if name == "" { // not even a call
			want(t, "no method", g.stranger().call(t, name, `{}`), 400, fault.BadRequest)
			continue
		}
		want(t, name+" without a session", g.stranger().call(t, name, `{"odd":1}`), 401, fault.Unauthenticated)
		forged := g.stranger()
		forged.cookie, forged.csrf = strings.Repeat("0", 64), strings.Repeat("0", 64)
		want(t, name+" with a made-up cookie", forged.call(t, name, `{}`), 401, fault.Unauthenticated)
		for _, csrf := range []string{"", "x", people[caller.Member].csrf} {
			p := *people[caller.Owner]
			p.csrf = csrf
			want(t, name+" with a wrong CSRF token", p.call(t, name, `{"odd":1}`), 403, fault.CSRF)
		}
		row, ok := g.cfg.Gate.Row(name)
		if !ok {
			continue
		}
		for role, p := range people {
			if role < row.Role {
				want(t, name+" as "+role.String(), p.call(t, name, `{"odd":1}`), 403, fault.Forbidden)
			}
		}
	}
	for _, name := range []string{"test.view", "test.change", "test.own"} {
		if g.runs(name) != 0 {
			t.Error(name, "ran")
		}
	}
	want(t, "an unknown method with a session", people[caller.Owner].call(t, "no.such-method", `{}`), 404, fault.UnknownMethod)
	a := people[caller.Member].call(t, "test.change", `{"text":"done"}`)
	if a.status != 200 || string(a.Result) != `{"text":"done"}` || g.runs("test.change") != 1 || a.Version != "2.0" || a.ID != 7.0 {
		t.Fatalf("%d %s", a.status, a.body)
	}
}

// The open methods need neither session nor CSRF, and know the client's address for their limits.
func TestOpenMethods(t *testing.T) {
	g := newRig(t, nil)
	if a := g.stranger().call(t, "node.version", `{}`); string(a.Result) != `{"text":"127.0.0.1"}` {
		t.Fatal(a.body)
	}
	for range 10 {
		want(t, "a login", g.stranger().call(t, "auth.setup", `{"token":"x","username":"ada","password":"`+password+`"}`), 403, fault.Forbidden)
	}
	a := g.stranger().call(t, "auth.setup", `{"token":"x","username":"ada","password":"`+password+`"}`)
	want(t, "the eleventh", a, 429, fault.RateLimited)
	if after := a.header.Get("Retry-After"); after == "" || after == "0" || a.Error.Data.RetryAfterS == 0 {
		t.Fatalf("Retry-After %q, %s", after, a.body)
	}
}

// G5 and section 6: every bad body has its status, changes nothing, and the server goes on.
func TestBadBodies(t *testing.T) {
	g := newRig(t, nil)
	g.add(t, "ada", caller.Owner)
	p := g.login(t, "ada")
	deep := strings.Repeat(`[`, 70) + strings.Repeat(`]`, 70)
	call := func(params string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"test.change","params":` + params + `}`
	}
	for _, c := range []struct {
		what, body string
		status     int
		code       fault.Code
		field      string
	}{
		{"empty", ``, 400, fault.BadRequest, ""},
		{"no JSON", `hello`, 400, fault.BadRequest, ""},
		{"cut off", call(`{"text":"x"`)[:50], 400, fault.BadRequest, ""},
		{"a batch", `[` + call(`{}`) + `]`, 400, fault.BadRequest, ""},
		{"an empty batch", ` []`, 400, fault.BadRequest, ""},
		{"a notification", `{"jsonrpc":"2.0","method":"test.change"}`, 400, fault.BadRequest, "id"},
		{"a null id", `{"jsonrpc":"2.0","id":null,"method":"test.change"}`, 400, fault.BadRequest, "id"},
		{"an object for an id", `{"jsonrpc":"2.0","id":{},"method":"test.change"}`, 400, fault.BadRequest, "id"},
		{"another version", `{"jsonrpc":"1.0","id":1,"method":"test.change"}`, 400, fault.BadRequest, "jsonrpc"},
		{"trailing data", call(`{"text":"x"}`) + `{}`, 400, fault.BadRequest, ""},
		{"a method twice", `{"jsonrpc":"2.0","id":1,"method":"test.view","method":"test.change"}`, 400, fault.BadRequest, ""},
		{"other case", `{"jsonrpc":"2.0","id":1,"METHOD":"test.change"}`, 400, fault.BadRequest, ""},
		{"an unknown member", `{"jsonrpc":"2.0","id":1,"method":"test.change","x":1}`, 400, fault.BadRequest, ""},
		{"invalid UTF-8", call("{\"text\":\"\xff\"}"), 400, fault.BadRequest, ""},
		{"a lone surrogate", call(`{"text":"\ud800"}`), 400, fault.BadRequest, ""},
		{"a NUL byte", call("{\"text\":\"\x00\"}"), 400, fault.BadRequest, ""},
		{"deep nesting", call(deep), 400, fault.BadRequest, ""},
		{"very deep nesting", strings.Repeat(`[`, 500_000), 400, fault.BadRequest, ""},
		{"parameters by position", call(`["x"]`), 400, fault.InvalidParams, ""},
		{"a parameter twice", call(`{"text":"safe","text":"photos"}`), 400, fault.BadRequest, ""},
		{"a parameter in other case", call(`{"text":"safe","TEXT":"photos"}`), 400, fault.InvalidParams, "TEXT"},
		{"an unknown parameter", call(`{"text":"x","force":true}`), 400, fault.InvalidParams, "force"},
		{"a wrong type", call(`{"text":7}`), 400, fault.InvalidParams, "text"},
		{"too large", call(`{"text":"` + strings.Repeat("x", maxBody) + `"}`), 413, fault.TooLarge, ""},
		{"much too large", strings.Repeat("x", 8*maxBody), 413, fault.TooLarge, ""},
	} {
		a := p.post(t, c.body, nil)
		want(t, c.what, a, c.status, c.code)
		if a.Error != nil && a.Error.Data.Field != c.field {
			t.Errorf("%s: field %q, want %q", c.what, a.Error.Data.Field, c.field)
		}
	}
	if g.runs("test.change") != 0 {
		t.Fatal("a bad body ran something")
	}
	want(t, "a good one", p.call(t, "test.change", `{"text":"x"}`), 200, "")
}

// A body without a length is bounded too.
func TestChunkedBodyIsBounded(t *testing.T) {
	g := newRig(t, nil)
	endless := io.LimitReader(zeros{}, 64*maxBody)
	p := g.stranger()
	r := p.request(t, http.MethodPost, "/rpc", endless, nil)
	r.ContentLength = -1
	res, err := p.http.Do(r)
	if err != nil {
		return // the connection was cut while we still wrote; as good
	}
	defer res.Body.Close()
	if res.StatusCode != 413 {
		t.Fatal(res.Status)
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = ' '
	}
	return len(b), nil
}

func TestContentType(t *testing.T) {
	g := newRig(t, nil)
	body := `{"jsonrpc":"2.0","id":1,"method":"node.version"}`
	for kind, status := range map[string]int{"application/json": 200, "application/json; charset=utf-8": 200, "Application/JSON": 200,
		"text/plain": 415, "application/x-www-form-urlencoded": 415, "": 415, "application/jsonx": 415, "application/json;;;": 415} {
		if a := g.stranger().post(t, body, header("Content-Type", kind)); a.status != status {
			t.Errorf("%q: %d", kind, a.status)
		}
	}
	for _, method := range []string{"GET", "PUT", "DELETE", "OPTIONS", "HEAD"} {
		if a := g.stranger().do(t, g.stranger().request(t, method, "/rpc", nil, nil)); a.status != 405 {
			t.Errorf("%s: %d", method, a.status)
		}
	}
}

// Section 6: a body that does not come holds nothing for longer than its time.
func TestSlowBody(t *testing.T) {
	g := newRig(t, func(c *Config) { c.Times.Body = 150 * time.Millisecond })
	conn, err := net.Dial("tcp", strings.TrimPrefix(g.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	fmt.Fprintf(conn, "POST /rpc HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n{\"jsonrpc\"")
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != 408 || !res.Close {
		t.Fatal(res.Status, res.Close)
	}
}

func TestSilentClient(t *testing.T) {
	g := newRig(t, func(c *Config) { c.Times.Header = 150 * time.Millisecond })
	conn, err := net.Dial("tcp", strings.TrimPrefix(g.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	fmt.Fprintf(conn, "POST /rpc HTTP/1.1\r\nHost: loc")
	if _, err := io.ReadAll(conn); err != nil {
		t.Fatal("the connection was not ended:", err)
	}
}

// Section 3: the status mirrors the error, application errors are 200, and no cause leaves the node.
func TestErrors(t *testing.T) {
	g := newRig(t, nil)
	g.add(t, "ada", caller.Owner)
	p := g.login(t, "ada")
	want(t, "busy", p.call(t, "test.fail", `{"text":"busy"}`), 200, fault.Busy)
	for _, how := range []string{"plain", "panic"} {
		a := p.call(t, "test.fail", `{"text":"`+how+`"}`)
		want(t, how, a, 200, fault.Failed)
		if strings.Contains(a.body, "inside") && strings.Contains(a.body, "cause") || strings.Contains(a.body, "canary") {
			t.Error("the cause is in", a.body)
		}
	}
	want(t, "the first", p.call(t, "test.limited", `{}`), 200, "")
	a := p.call(t, "test.limited", `{}`)
	want(t, "the second", a, 429, fault.RateLimited)
	if a.header.Get("Retry-After") != "3600" || a.Error.Data.RetryAfterS != 3600 {
		t.Fatalf("Retry-After %q, %s", a.header.Get("Retry-After"), a.body)
	}
	if a := p.call(t, "test.nothing", `{}`); string(a.Result) != "{}" { // a JSON-RPC answer without a result is none
		t.Errorf("the empty result is missing: %s", a.body)
	}
	if a := p.call(t, "test.exact", `{"n":9007199254740993}`); string(a.Result) != `{"n":9007199254740993}` { // F-E15
		t.Error(a.body)
	}
	for _, n := range []string{"1.0", "1e3", "9223372036854775808"} {
		want(t, n, p.call(t, "test.exact", `{"n":`+n+`}`), 400, fault.InvalidParams)
	}
}

func TestDiscover(t *testing.T) {
	g := newRig(t, nil)
	g.add(t, "ada", caller.Viewer)
	p := g.login(t, "ada")
	a := p.call(t, "rpc.discover", `{}`)
	for _, part := range []string{`"openrpc":"1.3.2"`, `"version":"9.9.9"`, `"name":"auth.login"`, `"name":"test.chat"`} {
		if !strings.Contains(a.body, part) {
			t.Errorf("no %s in %.200s", part, a.body)
		}
	}
	want(t, "with parameters", p.call(t, "rpc.discover", `{"x":1}`), 400, fault.InvalidParams)
}

// C9: a client that goes away takes its call with it.
func TestClientGone(t *testing.T) {
	g := newRig(t, nil)
	g.add(t, "ada", caller.Owner)
	p := g.login(t, "ada")
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	r := p.request(t, http.MethodPost, "/rpc", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"test.wait"}`), nil).WithContext(ctx)
	go func() {
		_, err := p.http.Do(r)
		gone <- err
	}()
	receive(t, "the call", g.started)
	cancel()
	if err := receive(t, "the handler's end", g.ended); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	<-gone
}

// G6: what runs in a session that ends is cancelled at once; another session's goes on.
func TestEndedSessionCancelsItsCalls(t *testing.T) {
	g := newRig(t, nil)
	g.add(t, "ada", caller.Owner)
	g.add(t, "ben", caller.Viewer)
	ada, ben := g.login(t, "ada"), g.login(t, "ben")
	waiting := make(chan answer, 1)
	go func() { waiting <- ben.call(t, "test.wait", `{}`) }()
	receive(t, "the call", g.started)
	want(t, "remove", ada.call(t, "users.remove", `{"username":"ben"}`), 200, "")
	if err := receive(t, "the handler's end", g.ended); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	want(t, "ben's call", receive(t, "its answer", waiting), 200, fault.Cancelled)
	want(t, "ben's next", ben.call(t, "test.view", `{}`), 401, fault.Unauthenticated)
	want(t, "ada's next", ada.call(t, "test.view", `{}`), 200, "")
	if n := len(g.running.sessions); n != 0 {
		t.Fatal(n, "sessions still counted as running")
	}
}

func FuzzRPC(f *testing.F) {
	for _, s := range []string{``, `{}`, `[]`, `{"jsonrpc":"2.0","id":1,"method":"node.version"}`, `{"jsonrpc":"2.0","id":"a","method":"test.view","params":{}}`,
		`{"jsonrpc":"2.0","id":1e999,"method":"x","params":[[[]]]}`, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}", `{"jsonrpc":"2.0","id":1,"method":"auth.login","params":{"username":1}}`} {
		f.Add([]byte(s))
	}
	version := rpc.Spec[rpc.None, text]{Row: rpc.Row{Name: "node.version", Summary: "x", Effect: rpc.Read, Doors: rpc.People, Open: true,
		Rates: []rpc.Rate{{Max: 1 << 14, Window: time.Millisecond}}},
		Handle: func(context.Context, caller.Caller, rpc.None) (text, error) { return text{"v"}, nil }}.Method()
	s, err := New(Config{Gate: rpc.NewGate(rpc.Config{Methods: []rpc.Method{version}, Log: quiet()}), Accounts: noAccounts{}, Bus: event.New(),
		CurrentState: func(context.Context, caller.Caller) []event.Event { return nil }, Log: quiet()})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		r := httptest.NewRequest("POST", "http://localhost/rpc", strings.NewReader(string(body)))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if !slices.Contains([]int{200, 400, 401, 413}, w.Code) {
			t.Fatalf("%d: %s", w.Code, w.Body)
		}
		if (w.Code == 200) != strings.Contains(w.Body.String(), `"result"`) {
			t.Fatalf("%d: %s", w.Code, w.Body)
		}
	})
}
