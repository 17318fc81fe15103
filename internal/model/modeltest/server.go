package modeltest

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Config is what a fake server plays: Replies one a request, or what Func returns. When the replies are used up, it
// answers 400.
type Config struct {
	Replies []Reply
	Func    func(Seen) Reply
	Key     string // the only key it accepts; empty accepts any on Claude's wire and none is needed on OpenAI's
}

// Handler is a fake server of one wire. It is safe for concurrent use.
type Handler struct {
	cfg  Config
	wire wire

	mu   sync.Mutex // guards the fields below
	seen []Seen
	used []bool
}

// wire is what differs between the two.
type wire interface {
	path() string
	key(http.Header) string
	// read checks a request as strictly as the real server.
	read(h http.Header, body []byte) (request, error)
	fail(w http.ResponseWriter, status int, kind, message string)
	stream(s *sender, req request, r Reply)
}

// request is what both wires know of a request.
type request struct {
	model, system, last string
	tools               []string
	usage               bool // the client asked for it
}

// Claude makes a handler for the Messages API.
func Claude(cfg Config) *Handler { return newHandler(cfg, claudeWire{}) }

// OpenAI makes a handler for chat completions.
func OpenAI(cfg Config) *Handler { return newHandler(cfg, openaiWire{}) }

func newHandler(cfg Config, w wire) *Handler {
	return &Handler{cfg: cfg, wire: w, used: make([]bool, len(cfg.Replies))}
}

// Server is a running fake.
type Server struct {
	*Handler
	URL string // without a path
}

// NewClaude starts a fake Messages API that ends with the test.
func NewClaude(t testing.TB, cfg Config) *Server { return start(t, Claude(cfg)) }

// NewOpenAI starts a fake chat completions server that ends with the test. Its base URL is URL + "/v1".
func NewOpenAI(t testing.TB, cfg Config) *Server { return start(t, OpenAI(cfg)) }

func start(t testing.TB, h *Handler) *Server {
	s := httptest.NewServer(h)
	t.Cleanup(func() {
		s.CloseClientConnections() // a client may still hold a stream open
		s.Close()
	})
	return &Server{h, s.URL}
}

// Seen lists the requests so far.
func (h *Handler) Seen() []Seen {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.seen)
}

// Problems lists why requests were answered with 400: a test of a well-behaved client asserts that there are none.
func (h *Handler) Problems() []string {
	var out []string
	for _, s := range h.Seen() {
		if s.Problem != "" {
			out = append(out, s.Problem)
		}
	}
	return out
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 32<<20))
	if err != nil {
		return
	}
	seen := Seen{Path: r.URL.Path, From: r.RemoteAddr, Body: string(body), Header: map[string]string{}}
	for name := range r.Header {
		seen.Header[name] = r.Header.Get(name)
	}
	if r.URL.Path != h.wire.path() || r.Method != http.MethodPost {
		h.refuse(w, seen, http.StatusNotFound, "not_found_error", "no such path: "+r.Method+" "+r.URL.Path)
		return
	}
	if key := h.wire.key(r.Header); h.cfg.Key != "" && key != h.cfg.Key {
		h.refuse(w, seen, http.StatusUnauthorized, "authentication_error", "invalid key: "+key)
		return
	}
	req, err := h.wire.read(r.Header, body)
	if err != nil {
		h.refuse(w, seen, http.StatusBadRequest, "invalid_request_error", err.Error())
		return
	}
	seen.Model, seen.System, seen.Tools, seen.Last = req.model, req.system, req.tools, req.last
	reply, ok := h.choose(&seen)
	if !ok {
		h.refuse(w, seen, http.StatusBadRequest, "invalid_request_error", "the script has no further reply")
		return
	}
	h.play(w, r, req, reply)
}

func (h *Handler) refuse(w http.ResponseWriter, s Seen, status int, kind, message string) {
	s.Problem = message
	h.record(&s)
	h.wire.fail(w, status, kind, message)
}

func (h *Handler) record(s *Seen) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s.N = len(h.seen)
	h.seen = append(h.seen, *s)
}

func (h *Handler) choose(s *Seen) (Reply, bool) {
	if h.cfg.Func != nil {
		h.record(s)
		return h.cfg.Func(*s), true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	r, ok := pick(h.cfg.Replies, h.used, s.Last)
	if ok {
		s.N = len(h.seen)
		h.seen = append(h.seen, *s)
	}
	return r, ok
}

func (h *Handler) play(w http.ResponseWriter, r *http.Request, req request, reply Reply) {
	switch {
	case reply.Fault == Abort:
		panic(http.ErrAbortHandler)
	case reply.Fault == Redirect:
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		return
	case reply.Fault == HTML:
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, "<html><body>It works!</body></html>")
		return
	case reply.Status != 0:
		if reply.RetryAfter != "" {
			w.Header().Set("Retry-After", reply.RetryAfter)
		}
		h.wire.fail(w, reply.Status, kindOf(reply.Status), reply.Message)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	s := &sender{w: w, gone: r.Context().Done()}
	s.flush()
	if len(reply.Lines) > 0 {
		s.raw(strings.Join(reply.Lines, "\n") + "\n")
		s.fault(reply.Fault)
		return
	}
	h.wire.stream(s, req, reply)
}

func kindOf(status int) string {
	switch status {
	case http.StatusUnauthorized:
		return "authentication_error"
	case http.StatusTooManyRequests:
		return "rate_limit_error"
	case http.StatusBadRequest:
		return "invalid_request_error"
	case http.StatusNotFound:
		return "not_found_error"
	case 529:
		return "overloaded_error"
	}
	return "api_error"
}

// sender writes one stream, each event at once.
type sender struct {
	w    http.ResponseWriter
	gone <-chan struct{}
	err  error
	buf  bytes.Buffer
}

func (s *sender) flush() {
	if f, ok := s.w.(http.Flusher); ok {
		f.Flush()
	}
}

func (s *sender) raw(text string) {
	if s.err == nil {
		_, s.err = io.WriteString(s.w, text)
		s.flush()
	}
}

// event sends one event; an empty name leaves its line out.
func (s *sender) event(name string, data any) {
	s.buf.Reset()
	if name != "" {
		s.buf.WriteString("event: " + name + "\n")
	}
	s.buf.WriteString("data: ")
	if err := json.MarshalWrite(&s.buf, data, json.Deterministic(true)); err != nil {
		panic(err) // unreachable: what is sent are this package's own values
	}
	s.buf.WriteString("\n\n")
	s.raw(s.buf.String())
}

// quote is a text as a JSON string; what is not UTF-8 becomes U+FFFD.
func quote(s string) []byte {
	q, _ := jsontext.AppendQuote(nil, s) // the error only tells of U+FFFD
	return q
}

// wait holds back until the channel closes; it is false if the client left first. No channel means no wait.
func (s *sender) wait(ch <-chan struct{}) bool {
	if ch == nil {
		return true
	}
	select {
	case <-ch:
		return true
	case <-s.gone:
		return false
	}
}

const pingEvery = 10 * time.Millisecond

// fault ends the stream in a way that both wires share. It is false for the faults that each says in its own form.
func (s *sender) fault(f Fault) bool {
	switch f {
	case Reset:
		s.flush()
		panic(http.ErrAbortHandler)
	case Silence:
		<-s.gone
	case Pings:
		tick := time.NewTicker(pingEvery)
		defer tick.Stop()
		for s.err == nil {
			s.raw(": keep-alive\n\nevent: ping\ndata: {\"type\": \"ping\"}\n\n")
			select {
			case <-tick.C:
			case <-s.gone:
				return true
			}
		}
	case Garbage:
		s.raw("event: content_block_delta\ndata: {\"type\": \x00\xff<<<\n\n")
	case LongLine:
		for s.err == nil {
			s.raw("data: " + strings.Repeat("x", 64<<10))
		}
	case Cut:
	default:
		return false
	}
	return true
}

func (s *sender) errorStatus(status int, body any) {
	var buf bytes.Buffer
	if err := json.MarshalWrite(&buf, body); err != nil {
		panic(err) // unreachable: what is sent are this package's own values
	}
	s.w.Header().Set("Content-Type", "application/json")
	s.w.Header().Set("Content-Length", strconv.Itoa(buf.Len()))
	s.w.WriteHeader(status)
	_, _ = s.w.Write(buf.Bytes())
}
