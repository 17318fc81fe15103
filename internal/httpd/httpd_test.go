package httpd

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"atoll/internal/account"
	"atoll/internal/audit"
	"atoll/internal/caller"
	"atoll/internal/event"
	"atoll/internal/fault"
	"atoll/internal/rpc"
	"atoll/internal/secret"
	"atoll/internal/store"
)

const password = "four words of ada"

// rig is a door on a real socket, with real accounts and a gate of small rows.
type rig struct {
	*Server
	url      string
	accounts *account.Room
	bus      *event.Bus
	log      *logBuffer
	stop     func() error // ends Run and gives its error; once

	mu    sync.Mutex // guards the rest
	state []event.Event
	ran   map[string]int // runs of each fake row
	// hold is what test.chat waits for after its first words; nil means nothing.
	hold    chan struct{}
	started chan struct{} // test.chat and test.wait send when they run
	ended   chan error    // and how their context ended
}

type logBuffer struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (g *rig) count(name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ran[name]++
}

func (g *rig) runs(name string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.ran[name]
}

func (g *rig) setState(events ...event.Event) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.state = events
}

type text struct {
	Text string `json:"text"`
}

type exact struct {
	N int64 `json:"n"`
}

// rows are the fake rooms: each counts its runs.
func (g *rig) rows() []rpc.Method {
	row := func(name string, role caller.Role, effect rpc.Effect) rpc.Row {
		return rpc.Row{Name: name, Summary: "A row for tests.", Effect: effect, Doors: rpc.People, Role: role}
	}
	open := rpc.Row{Name: "node.version", Summary: "Tells the version.", Effect: rpc.Read, Doors: rpc.People, Open: true}
	limited := row("test.limited", caller.Viewer, rpc.Read)
	limited.Rates = []rpc.Rate{{Max: 1, Window: time.Hour}}
	echo := func(name string, role caller.Role, effect rpc.Effect) rpc.Method {
		return rpc.Spec[text, text]{Row: row(name, role, effect), Handle: func(_ context.Context, _ caller.Caller, in text) (text, error) {
			g.count(name)
			return in, nil
		}}.Method()
	}
	return []rpc.Method{
		rpc.Spec[rpc.None, text]{Row: open, Handle: func(_ context.Context, c caller.Caller, _ rpc.None) (text, error) {
			return text{c.Address()}, nil
		}}.Method(),
		rpc.Spec[rpc.None, text]{Row: limited, Handle: func(context.Context, caller.Caller, rpc.None) (text, error) {
			return text{}, nil
		}}.Method(),
		echo("test.view", caller.Viewer, rpc.Read), echo("test.change", caller.Member, rpc.Write), echo("test.own", caller.Owner, rpc.Write),
		rpc.Spec[exact, exact]{Row: row("test.exact", caller.Viewer, rpc.Read), Handle: func(_ context.Context, _ caller.Caller, in exact) (exact, error) {
			return in, nil
		}}.Method(),
		rpc.Spec[rpc.None, rpc.None]{Row: row("test.nothing", caller.Viewer, rpc.Read), Handle: func(context.Context, caller.Caller, rpc.None) (rpc.None, error) {
			return rpc.None{}, nil
		}}.Method(),
		rpc.Spec[text, text]{Row: row("test.fail", caller.Viewer, rpc.Read), Handle: func(_ context.Context, _ caller.Caller, in text) (text, error) {
			switch in.Text {
			case "busy":
				return text{}, fault.New(fault.Busy, "busy")
			case "panic":
				panic("a canary in a panic")
			}
			return text{}, errors.New("a cause that stays inside")
		}}.Method(),
		rpc.Spec[rpc.None, text]{Row: row("test.wait", caller.Viewer, rpc.Read), Handle: g.wait}.Method(),
		rpc.Spec[text, text]{Row: row("test.chat", caller.Viewer, rpc.Write), Stream: g.chat}.Method(),
		rpc.Spec[text, text]{Row: streamOnly(row("test.tail", caller.Viewer, rpc.Read)), Stream: g.chat}.Method(),
	}
}

func (g *rig) wait(ctx context.Context, _ caller.Caller, _ rpc.None) (text, error) {
	g.started <- struct{}{}
	<-ctx.Done()
	g.ended <- ctx.Err()
	return text{}, ctx.Err()
}

// chat refuses, or streams a few words, waits for hold and answers. "flood" emits until emit fails.
func (g *rig) chat(ctx context.Context, _ caller.Caller, in text, emit rpc.Emit) (text, error) {
	if in.Text == "busy" {
		return text{}, fault.New(fault.Busy, "a turn is running in this conversation")
	}
	if in.Text == "flood" {
		for {
			if err := emit("text", text{strings.Repeat("x", 64<<10)}); err != nil {
				g.ended <- ctx.Err()
				return text{}, err
			}
		}
	}
	if err := emit("start", text{"one\ntwo"}); err != nil {
		return text{}, err
	}
	if g.hold != nil {
		g.started <- struct{}{}
		select {
		case <-g.hold:
		case <-ctx.Done():
			g.ended <- ctx.Err()
			return text{}, ctx.Err()
		}
	}
	if in.Text == "late failure" {
		return text{}, fault.New(fault.ModelFailed, "the model is gone")
	}
	return text{"all of " + in.Text}, nil
}

// newRig starts a door. change may alter its Config.
func newRig(t *testing.T, change func(*Config)) *rig {
	t.Helper()
	g := &rig{bus: event.New(), log: new(logBuffer), ran: map[string]int{}, started: make(chan struct{}, 16), ended: make(chan error, 16)}
	db, err := store.Open(t.Context(), store.Config{Path: filepath.Join(t.TempDir(), "node.db"), Schemas: []store.Schema{audit.Schema(), account.Schema()}})
	if err != nil {
		t.Fatal(err)
	}
	_, key, _ := ed25519.GenerateKey(nil)
	log := slog.New(slog.NewTextHandler(g.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	aud, err := audit.New(audit.Config{DB: db, Key: key, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	g.accounts, err = account.New(t.Context(), account.Config{DB: db, Record: aud.AppendTx, Log: log, OnEnded: func(e account.Ended) {
		g.bus.EndSessions(e.Sessions)
		g.EndSessions(e.Sessions)
	}})
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{Gate: rpc.NewGate(rpc.Config{Methods: append(g.rows(), g.accounts.Methods()...), Log: log}), Accounts: g.accounts, Bus: g.bus,
		CurrentState: func(context.Context, caller.Caller) []event.Event {
			g.mu.Lock()
			defer g.mu.Unlock()
			return g.state
		}, Version: "9.9.9", Log: log, Metrics: func(w io.Writer) { io.WriteString(w, "atoll_up 1\n") }, Times: Times{Grace: 200 * time.Millisecond}}
	if change != nil {
		change(&cfg)
	}
	if g.Server, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g.url = "http://" + l.Addr().String()
	if cfg.TLSCert != "" {
		g.url = "https://" + l.Addr().String()
	}
	g.serve(t, db, l)
	return g
}

func (g *rig) serve(t *testing.T, db *store.DB, listeners ...net.Listener) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- g.Run(ctx, listeners...) }()
	g.stop = sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	t.Cleanup(func() {
		if err := g.stop(); err != nil {
			t.Error("Run:", err)
		}
		db.Close()
	})
}

func (g *rig) add(t *testing.T, name string, role caller.Role) {
	t.Helper()
	if err := g.accounts.Add(t.Context(), name, role, secret.New(password)); err != nil {
		t.Fatal(err)
	}
}

// person is a client with a session.
type person struct {
	rig    *rig
	http   *http.Client
	cookie string
	csrf   string
}

func (g *rig) stranger() *person {
	return &person{rig: g, http: &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}}
}

func (g *rig) login(t *testing.T, name string) *person {
	t.Helper()
	p := g.stranger()
	a := p.call(t, "auth.login", `{"username":"`+name+`","password":"`+password+`"}`)
	if a.status != 200 || a.Error != nil {
		t.Fatalf("login: %s", a.body)
	}
	p.take(t, a)
	return p
}

// take keeps the cookie and the CSRF token of a login.
func (p *person) take(t *testing.T, a answer) {
	t.Helper()
	var l account.Login
	if err := json.Unmarshal(a.Result, &l); err != nil {
		t.Fatal(err)
	}
	p.csrf, p.cookie = l.CSRF, ""
	for _, c := range a.cookies {
		if c.Name == cookieName {
			p.cookie = c.Value
		}
	}
}

// answer is an HTTP answer with the JSON-RPC in it.
type answer struct {
	status  int
	header  http.Header
	cookies []*http.Cookie
	body    string
	ID      any            `json:"id"`
	Result  jsontext.Value `json:"result"`
	Error   *rpc.WireError `json:"error"`
	Version string         `json:"jsonrpc"`
}

func (a answer) code() fault.Code {
	if a.Error == nil {
		return ""
	}
	return a.Error.Data.Code
}

func (p *person) request(t *testing.T, method, path string, body io.Reader, change func(*http.Request)) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, p.rig.url+path, body)
	if err != nil {
		t.Fatal(err)
	}
	if p.cookie != "" {
		r.AddCookie(&http.Cookie{Name: cookieName, Value: p.cookie})
	}
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/json")
		if p.csrf != "" {
			r.Header.Set(csrfHeader, p.csrf)
		}
	}
	if change != nil {
		change(r)
	}
	return r
}

func (p *person) do(t *testing.T, r *http.Request) answer {
	t.Helper()
	res, err := p.http.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	a := answer{status: res.StatusCode, header: res.Header, cookies: res.Cookies(), body: string(b)}
	if strings.HasPrefix(res.Header.Get("Content-Type"), "application/json") && strings.Contains(a.body, "jsonrpc") {
		if err := json.Unmarshal(b, &a); err != nil {
			t.Fatalf("%s: %v", b, err)
		}
	}
	return a
}

func (p *person) post(t *testing.T, body string, change func(*http.Request)) answer {
	t.Helper()
	return p.do(t, p.request(t, http.MethodPost, "/rpc", strings.NewReader(body), change))
}

func (p *person) get(t *testing.T, path string, change func(*http.Request)) answer {
	t.Helper()
	return p.do(t, p.request(t, http.MethodGet, path, nil, change))
}

func (p *person) call(t *testing.T, method, params string) answer {
	t.Helper()
	return p.post(t, `{"jsonrpc":"2.0","id":7,"method":"`+method+`","params":`+params+`}`, nil)
}

func header(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

func host(h string) func(*http.Request) { return func(r *http.Request) { r.Host = h } }

func want(t *testing.T, what string, a answer, status int, code fault.Code) {
	t.Helper()
	if a.status != status || a.code() != code {
		t.Errorf("%s: %d %q, want %d %q: %s", what, a.status, a.code(), status, code, a.body)
	}
}

func receive[T any](t *testing.T, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(10 * time.Second):
		t.Fatal("waited ten seconds for", what)
		panic("unreachable")
	}
}

func TestNewNeedsItsConfig(t *testing.T) {
	if _, err := New(Config{}); err == nil {
		t.Fatal("an empty Config")
	}
}

// A clean stop lets a quick call finish, ends streams at once, and cancels what runs on.
func TestRunStops(t *testing.T) {
	g := newRig(t, nil)
	g.add(t, "ada", caller.Owner)
	p := g.login(t, "ada")
	st := p.events(t, "")
	st.expect(t, "synced", `{"events":0}`)
	waiting := make(chan answer, 1)
	go func() { waiting <- p.call(t, "test.wait", `{}`) }()
	receive(t, "the call", g.started)
	if err := g.stop(); err != nil {
		t.Fatal(err)
	}
	st.expectEnd(t)
	if err := receive(t, "the handler's end", g.ended); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	want(t, "the call", receive(t, "its answer", waiting), 200, fault.Cancelled)
}

// Run gives back what keeps it from serving.
func TestRunFails(t *testing.T) {
	g := newRig(t, nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if err := g.Run(t.Context(), l); err == nil {
		t.Fatal("a closed listener")
	}
}

func TestHostName(t *testing.T) {
	for in, want := range map[string]string{"localhost": "localhost", "LocalHost:80": "localhost", "[::1]:8420": "::1", "[::1]": "::1",
		"home.example.": "home.example", "127.0.0.1:1": "127.0.0.1", "::1": "::1"} {
		if got, ok := hostName(in); !ok || got != want {
			t.Errorf("%q: %q %v", in, got, ok)
		}
	}
	for _, in := range []string{"", ":80", "a/b", "u@h", "a b"} {
		if got, ok := hostName(in); ok {
			t.Errorf("%q became %q", in, got)
		}
	}
}

func streamOnly(r rpc.Row) rpc.Row {
	r.StreamOnly = true
	return r
}
