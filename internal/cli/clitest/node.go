// Package clitest is a small node for the tests of the command line: real HTTP, a session, a scripted chat and a stream of
// events, and no rule of a real node.
package clitest

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"atoll/internal/cli/client"
	"atoll/internal/fault"
	"atoll/internal/secret"
)

// The one session of a Node.
const (
	Token    = "test-session"
	CSRF     = "test-csrf"
	Username = "ada"
	Password = "a long password"
)

// Emit sends one event of a streaming chat.
type Emit func(name string, data any)

// Call is one call that came in.
type Call struct {
	Method string
	Params jsontext.Value
}

// Node is the fake. Its script must be set before it is used.
type Node struct {
	URL string
	// Chat answers assistant.chat; the last event it emits should be answer or error.
	Chat func(ctx context.Context, req client.ChatRequest, emit Emit)
	// Methods answer the others by name. A *fault.Error travels as on the real wire.
	Methods map[string]func(params jsontext.Value) (any, error)
	// Streams answer other methods that stream, as Chat does.
	Streams map[string]func(ctx context.Context, params jsontext.Value, emit Emit)

	tb     testing.TB
	calls  chan Call
	ended  chan struct{} // closed at the end
	mu     sync.Mutex    // guards the rest
	subs   map[chan frame]bool
	nextID int
	joined chan struct{}
}

type frame struct{ id, name, data string }

// New starts a node that ends with the test.
func New(tb testing.TB) *Node {
	n := &Node{tb: tb, Methods: map[string]func(jsontext.Value) (any, error){}, calls: make(chan Call, 1000), ended: make(chan struct{}),
		subs: map[chan frame]bool{}, joined: make(chan struct{}, 100)}
	srv := httptest.NewServer(n.handler())
	tb.Cleanup(func() { close(n.ended); srv.CloseClientConnections(); srv.Close() })
	n.URL = srv.URL
	return n
}

// Listen serves the node on a socket too.
func (n *Node) Listen(path string) {
	l, err := (&net.ListenConfig{}).Listen(n.tb.Context(), "unix", path)
	if err != nil {
		n.tb.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(n.handler())
	_ = srv.Listener.Close()
	srv.Listener = l
	srv.Start()
	n.tb.Cleanup(srv.Close)
}

// Client is a logged-in client of the node.
func (n *Node) Client() *client.Client {
	c, err := client.New(client.Config{Address: n.URL, ChatTimeout: time.Minute,
		Session: client.Session{Token: secret.New(Token), CSRF: secret.New(CSRF)}})
	if err != nil {
		n.tb.Fatal(err)
	}
	n.tb.Cleanup(c.Close)
	return c
}

// Next returns the next call of a method, whatever was called before it.
func (n *Node) Next(method string) Call {
	n.tb.Helper()
	deadline := time.After(20 * time.Second)
	for {
		select {
		case c := <-n.calls:
			if c.Method == method {
				return c
			}
		case <-deadline:
			n.tb.Fatalf("%s was not called", method)
		}
	}
}

// Calls returns what came in and was not yet taken by Next.
func (n *Node) Calls() (all []Call) {
	for {
		select {
		case c := <-n.calls:
			all = append(all, c)
		default:
			return all
		}
	}
}

// Joined waits until a stream of events is open.
func (n *Node) Joined() {
	n.tb.Helper()
	select {
	case <-n.joined:
	case <-time.After(20 * time.Second):
		n.tb.Fatal("nobody listens for events")
	}
}

// Listeners is how many streams of events are open.
func (n *Node) Listeners() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.subs)
}

// Publish sends an event to every open stream.
func (n *Node) Publish(name string, data any) {
	raw := mustJSON(data)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.nextID++
	for sub := range n.subs {
		sub <- frame{strconv.Itoa(n.nextID), name, raw}
	}
}

// Break cuts every stream of events off.
func (n *Node) Break() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for sub := range n.subs {
		close(sub)
		delete(n.subs, sub)
	}
}

func mustJSON(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(raw)
}

func (n *Node) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	mux.HandleFunc("GET /events", n.events)
	mux.HandleFunc("POST /rpc", n.rpc)
	return mux
}

func loggedIn(r *http.Request) bool {
	c, err := r.Cookie("atoll_session")
	return err == nil && c.Value == Token && r.Header.Get("X-CSRF-Token") == CSRF
}

func (n *Node) events(w http.ResponseWriter, r *http.Request) {
	if !loggedIn(r) {
		http.Error(w, "no session", http.StatusUnauthorized)
		return
	}
	sub := make(chan frame, 100)
	n.mu.Lock()
	n.subs[sub] = true
	n.mu.Unlock()
	defer func() {
		n.mu.Lock()
		delete(n.subs, sub)
		n.mu.Unlock()
	}()
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = io.WriteString(w, ": hello\n\n")
	flush(w)
	n.joined <- struct{}{}
	for {
		select {
		case f, ok := <-sub:
			if !ok {
				return
			}
			fmt.Fprintf(w, "id: %s\nevent: %s\ndata: %s\n\n", f.id, f.name, f.data)
			flush(w)
		case <-r.Context().Done():
			return
		case <-n.ended:
			return
		}
	}
}

func flush(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() }

func (n *Node) rpc(w http.ResponseWriter, r *http.Request) {
	var req struct {
		Version string         `json:"jsonrpc"`
		ID      int            `json:"id"`
		Method  string         `json:"method"`
		Params  jsontext.Value `json:"params"`
	}
	if err := json.UnmarshalRead(r.Body, &req, json.RejectUnknownMembers(true)); err != nil || req.Version != "2.0" {
		http.Error(w, "bad request", http.StatusBadRequest)
		return
	}
	open := req.Method == "auth.login" || req.Method == "auth.setup" || req.Method == "node.version"
	if !open && !loggedIn(r) {
		answer(w, http.StatusUnauthorized, nil, fault.New(fault.Unauthenticated, "no live session"))
		return
	}
	n.calls <- Call{req.Method, req.Params}
	if req.Method == "assistant.chat" && n.Chat != nil {
		n.chat(w, r, req.Params)
		return
	}
	if stream, ok := n.Streams[req.Method]; ok {
		stream(r.Context(), req.Params, streamTo(w))
		return
	}
	h, ok := n.Methods[req.Method]
	switch {
	case ok:
		result, err := h(req.Params)
		if open && err == nil && req.Method != "node.version" {
			http.SetCookie(w, &http.Cookie{Name: "atoll_session", Value: Token, HttpOnly: true})
		}
		answer(w, http.StatusOK, result, err)
	case req.Method == "auth.login":
		n.login(w, req.Params)
	default:
		answer(w, http.StatusNotFound, nil, fault.New(fault.UnknownMethod, "no method %s", req.Method))
	}
}

func (n *Node) login(w http.ResponseWriter, params jsontext.Value) {
	var p struct{ Username, Password string }
	_ = json.Unmarshal(params, &p, json.MatchCaseInsensitiveNames(true))
	if p.Username != Username || p.Password != Password {
		answer(w, http.StatusUnauthorized, nil, fault.New(fault.Unauthenticated, "wrong username or password"))
		return
	}
	http.SetCookie(w, &http.Cookie{Name: "atoll_session", Value: Token, HttpOnly: true})
	answer(w, http.StatusOK, map[string]string{"csrf": CSRF, "username": Username, "role": "owner", "expires_at": "2099-01-01T00:00:00Z"}, nil)
}

func answer(w http.ResponseWriter, status int, result any, err error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if err != nil {
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"error":`+mustJSON(wireError(err))+`}`)
		return
	}
	_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":`+mustJSON(result)+`}`)
}

func wireError(err error) any {
	f := fault.Of(err)
	data := map[string]any{"code": f.Code}
	if f.Field != "" {
		data["field"] = f.Field
	}
	if f.RetryAfter > 0 {
		data["retry_after_s"] = int64(f.RetryAfter.Seconds())
	}
	return map[string]any{"code": -32000, "message": f.Public, "data": data}
}

func (n *Node) chat(w http.ResponseWriter, r *http.Request, params jsontext.Value) {
	var req client.ChatRequest
	if err := json.Unmarshal(params, &req, json.RejectUnknownMembers(true)); err != nil {
		answer(w, http.StatusBadRequest, nil, fault.New(fault.InvalidParams, "bad parameters"))
		return
	}
	n.Chat(r.Context(), req, streamTo(w))
}

// streamTo opens a stream of events.
func streamTo(w http.ResponseWriter) Emit {
	w.Header().Set("Content-Type", "text/event-stream")
	flush(w)
	return func(name string, data any) {
		if err, ok := data.(error); ok {
			data = wireError(err)
		}
		fmt.Fprintf(w, "event: %s\ndata: %s\n\n", name, mustJSON(data))
		flush(w)
	}
}
