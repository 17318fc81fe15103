// Package eval tries a real node from outside: a house is a node with its rooms, store and HTTP door in this process, a
// model that a test scripts, and people who come in over HTTP. It judges; it changes nothing of the product.
package eval

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"atoll/internal/clock"
	"atoll/internal/confirm"
	"atoll/internal/fault"
	"atoll/internal/model"
	"atoll/internal/node"
)

// T is what a house needs of who uses it: a test, or a run of the suite outside of one. Fatal and Fatalf do not return.
type T interface {
	Helper()
	Context() context.Context
	TempDir() string
	Cleanup(func())
	Errorf(format string, args ...any)
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// House is one running node.
type House struct {
	t    T
	Dir  string
	Node *node.Node
	Base string
	Log  *bytes.Buffer

	mu   sync.Mutex // guards wall, mono and Log's writer
	wall time.Time
	mono time.Duration
	stop context.CancelFunc
	done chan error
}

// Options describe a house. The zero Options are a fresh node on a temporary directory with no model but local.
type Options struct {
	Dir      string // empty: a fresh temporary one
	Model    model.Client
	Settings func(*node.Settings)
	Exe      string // this program, for the sample app; empty: this test binary
}

type lockedLog struct{ h *House }

func (l lockedLog) Write(p []byte) (int, error) {
	l.h.mu.Lock()
	defer l.h.mu.Unlock()
	return l.h.Log.Write(p)
}

// Open starts a node and stops it when the test ends.
func Open(t T, o Options) *House {
	t.Helper()
	h := &House{t: t, Dir: o.Dir, Log: &bytes.Buffer{}, wall: time.Now()}
	if h.Dir == "" {
		h.Dir = t.TempDir()
	}
	if o.Exe == "" {
		exe, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		o.Exe = exe
	}
	settings, err := node.LoadSettings(h.Dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	settings.Listen = "127.0.0.1:0"
	if o.Settings != nil {
		o.Settings(&settings)
	}
	start := time.Now()
	c := clock.New(func() time.Time { h.mu.Lock(); defer h.mu.Unlock(); return time.Now().Add(h.wall.Sub(start)) },
		func() time.Duration { h.mu.Lock(); defer h.mu.Unlock(); return time.Since(start) + h.mono })
	h.wall = start
	h.Node, err = node.New(t.Context(), node.Config{DataDir: h.Dir, Settings: settings, Version: "test", Executable: o.Exe,
		Log: slog.New(slog.NewTextHandler(lockedLog{h}, nil)), Clock: c, StopApps: true, Model: o.Model})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h.Base = "http://" + l.Addr().String()
	ctx, stop := context.WithCancel(context.Background())
	h.stop, h.done = stop, make(chan error, 1)
	go func() { h.done <- h.Node.Run(ctx, l) }()
	t.Cleanup(h.Close)
	return h
}

// Close stops the node. A second call does nothing.
func (h *House) Close() {
	if h.stop == nil {
		return
	}
	h.stop()
	h.stop = nil
	if err := errors.Join(<-h.done, h.Node.Close()); err != nil {
		h.t.Errorf("closing the node: %v", err)
	}
}

// Advance moves both clocks on; what waits on real timers is not moved.
func (h *House) Advance(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wall, h.mono = h.wall.Add(d), h.mono+d
}

// Person is one session over HTTP.
type Person struct {
	h      *House
	cookie string
	csrf   string
	Name   string
}

// password is every test account's.
const password = "correct horse battery staple"

// Password is what every person of a house logs in with.
const Password = password

// Owner creates the owner by the one-time token and is logged in.
func (h *House) Owner() *Person {
	h.t.Helper()
	address, ok := h.Node.SetupAddress(h.t.Context(), "")
	if !ok {
		return h.Login("ada")
	}
	_, token, _ := strings.Cut(address, "#setup=")
	return h.enter("auth.setup", map[string]any{"token": token, "username": "ada", "password": password})
}

// Login opens another session.
func (h *House) Login(name string) *Person {
	h.t.Helper()
	return h.enter("auth.login", map[string]any{"username": name, "password": password})
}

func (h *House) enter(method string, params any) *Person {
	h.t.Helper()
	p := &Person{h: h}
	r := p.Call(method, params)
	if r.Code != "" {
		h.t.Fatalf("%s: %s %s", method, r.Code, r.Message)
	}
	var login struct {
		CSRF     string `json:"csrf"`
		Username string `json:"username"`
	}
	r.Into(h.t, &login)
	p.csrf, p.Name = login.CSRF, login.Username
	for _, c := range r.Cookies {
		if c.Name == "atoll_session" {
			p.cookie = c.Value
		}
	}
	return p
}

// Reply is what came back of one call.
type Reply struct {
	Status  int
	Code    fault.Code // empty for success
	Message string
	Field   string
	Result  jsontext.Value
	Cookies []*http.Cookie
}

// Into reads the result.
func (r Reply) Into(t T, v any) {
	t.Helper()
	if err := json.Unmarshal(r.Result, v); err != nil {
		t.Fatalf("%s: %v", r.Result, err)
	}
}

func (p *Person) request(ctx context.Context, method string, params any) *http.Request {
	raw, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
	if err != nil {
		p.h.t.Fatal(err)
	}
	if params == nil {
		raw = []byte(`{"jsonrpc":"2.0","id":1,"method":"` + method + `"}`)
	}
	req, err := http.NewRequestWithContext(ctx, "POST", p.h.Base+"/rpc", bytes.NewReader(raw))
	if err != nil {
		p.h.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-CSRF-Token", p.csrf)
	if p.cookie != "" {
		req.AddCookie(&http.Cookie{Name: "atoll_session", Value: p.cookie})
	}
	return req
}

// Call calls a method.
func (p *Person) Call(method string, params any) Reply {
	p.h.t.Helper()
	r, err := p.Try(p.h.t.Context(), method, params)
	if err != nil {
		p.h.t.Fatal(err)
	}
	return r
}

// Try is Call for a test that expects the connection to break.
func (p *Person) Try(ctx context.Context, method string, params any) (Reply, error) {
	res, err := http.DefaultClient.Do(p.request(ctx, method, params))
	if err != nil {
		return Reply{}, err
	}
	defer res.Body.Close()
	return readReply(res)
}

type wireError struct {
	Message string `json:"message"`
	Data    struct {
		Code  fault.Code `json:"code"`
		Field string     `json:"field"`
	} `json:"data"`
}

func readReply(res *http.Response) (Reply, error) {
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return Reply{}, err
	}
	r := Reply{Status: res.StatusCode, Cookies: res.Cookies()}
	var wire struct {
		Result jsontext.Value `json:"result"`
		Error  *wireError     `json:"error"`
	}
	if err := json.Unmarshal(body, &wire); err != nil {
		return r, fmt.Errorf("%s: %w", body, err)
	}
	if r.Result = wire.Result; wire.Error != nil {
		r.Code, r.Message, r.Field = wire.Error.Data.Code, wire.Error.Message, wire.Error.Data.Field
	}
	return r, nil
}

// Answer is the result of a chat.
type Answer struct {
	Conversation string `json:"conversation"`
	Answer       string `json:"answer"`
	Rounds       int    `json:"rounds"`
	Tools        []struct {
		Tool    string     `json:"tool"`
		Outcome string     `json:"outcome"`
		Code    fault.Code `json:"code"`
	} `json:"tools"`
	Changes []struct {
		Tool    string `json:"tool"`
		Summary string `json:"summary"`
		Outcome string `json:"outcome"`
	} `json:"changes"`
	Offers []struct {
		Category string   `json:"category"`
		Tools    []string `json:"tools"`
		Host     string   `json:"host"`
	} `json:"offers"`
	Notes []string `json:"notes"`
	Usage struct {
		In  int64 `json:"in"`
		Out int64 `json:"out"`
	} `json:"usage"`
}

// Codes is the outcome of every call in short: "done refused:declined".
func (a Answer) Codes() string {
	var out []string
	for _, c := range a.Tools {
		s := c.Outcome
		if c.Code != "" {
			s += ":" + string(c.Code)
		}
		out = append(out, s)
	}
	return strings.Join(out, " ")
}

// Chat sends a message and waits for the answer; a refusal fails the test.
func (p *Person) Chat(conversation, message string) Answer {
	p.h.t.Helper()
	r := p.Call("assistant.chat", map[string]any{"conversation": conversation, "message": message})
	if r.Code != "" {
		p.h.t.Fatalf("chat: %s %s", r.Code, r.Message)
	}
	var a Answer
	r.Into(p.h.t, &a)
	return a
}

// On is the same session at a node that was started again on the same data directory.
func (p *Person) On(h *House) *Person {
	q := *p
	q.h = h
	return &q
}

// ChatStream is Try of a chat by its streaming door; each is told every event as it comes. A refusal is in the Reply.
func (p *Person) ChatStream(ctx context.Context, conversation, message string, each func(Event)) (a Answer, r Reply, err error) {
	req := p.request(ctx, "assistant.chat", map[string]any{"conversation": conversation, "message": message})
	req.Header.Set("Accept", "text/event-stream")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return a, r, err
	}
	defer res.Body.Close()
	if !strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
		r, err = readReply(res)
		return a, r, err
	}
	r.Status, err = res.StatusCode, errors.New("the stream ended without an answer")
	read := Stream(res.Body, func(e Event) bool {
		switch e.Name {
		case "answer":
			r.Result, err = e.Data, json.Unmarshal(e.Data, &a)
		case "error":
			var told wireError
			err = json.Unmarshal(e.Data, &told)
			r.Code, r.Message, r.Field = told.Data.Code, told.Message, told.Data.Field
		}
		each(e)
		return true
	})
	return a, r, errors.Join(err, read)
}

// Grant opens categories for good.
func (p *Person) Grant(categories ...string) {
	p.h.t.Helper()
	grants := map[string]any{}
	for _, c := range categories {
		grants[c] = map[string]any{"granted": true}
	}
	if r := p.Call("assistant.grants-set", map[string]any{"grants": grants}); r.Code != "" {
		p.h.t.Fatalf("grants-set: %s", r.Message)
	}
}

// Event is one server-sent event.
type Event struct {
	ID, Name string
	Data     jsontext.Value
}

// Stream reads server-sent events until the connection ends.
func Stream(body io.Reader, each func(Event) bool) error {
	in := bufio.NewReader(body)
	var e Event
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		line = strings.TrimRight(line, "\r\n")
		field, value, _ := strings.Cut(line, ": ")
		switch {
		case line == "" && e.Name != "":
			if !each(e) {
				return nil
			}
			e = Event{}
		case field == "event":
			e.Name = value
		case field == "id":
			e.ID = value
		case field == "data":
			e.Data = append(e.Data, value...)
		}
	}
}

// Listen opens the person's event stream and returns what comes, until the test ends. It returns once the node counts
// the person as listening.
func (p *Person) Listen() <-chan Event {
	p.h.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	p.h.t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, "GET", p.h.Base+"/events", nil)
	if err != nil {
		p.h.t.Fatal(err)
	}
	req.AddCookie(&http.Cookie{Name: "atoll_session", Value: p.cookie})
	res, err := http.DefaultClient.Do(req)
	if err != nil || res.StatusCode != 200 {
		p.h.t.Fatalf("events: %v %v", res, err)
	}
	out := make(chan Event, 1024)
	go func() {
		defer res.Body.Close()
		defer close(out)
		_ = Stream(res.Body, func(e Event) bool { out <- e; return true })
	}()
	return out
}

// Asked waits for the next question on a stream.
func (p *Person) Asked(events <-chan Event) confirm.Pending {
	p.h.t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		select {
		case e, ok := <-events:
			if !ok {
				p.h.t.Fatal("the stream ended before a question came")
			}
			if e.Name == "confirm" {
				var q confirm.Pending
				if err := json.Unmarshal(e.Data, &q); err != nil {
					p.h.t.Fatal(err)
				}
				return q
			}
		case <-deadline:
			p.h.t.Fatal("nobody was asked")
		}
	}
}

// Decide answers a question; more holds further parameters.
func (p *Person) Decide(q confirm.Pending, decision string, more map[string]any) Reply {
	p.h.t.Helper()
	params := map[string]any{"nonce": q.Nonce, "action_key": q.ActionKey, "decision": decision}
	for k, v := range more {
		params[k] = v
	}
	return p.Call("assistant.confirm", params)
}

// Approve lets the inert second pass and approves.
func (p *Person) Approve(q confirm.Pending) {
	p.h.t.Helper()
	p.h.Advance(confirm.Inert)
	if r := p.Decide(q, "approve", nil); r.Code != "" {
		p.h.t.Fatalf("approve: %s %s", r.Code, r.Message)
	}
}

// Logged is the server's log so far.
func (h *House) Logged() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.Log.String()
}
