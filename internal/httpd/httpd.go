// Package httpd is the door that people and programs come in by: HTTP on loopback, under TLS, or on a socket in the data
// directory. It turns cookies into callers and errors into statuses, and decides nothing else: the gate does.
package httpd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"atoll/internal/account"
	"atoll/internal/caller"
	"atoll/internal/event"
	"atoll/internal/rpc"
	"atoll/internal/secret"
)

// Accounts is what httpd needs of the account room.
type Accounts interface {
	// Resolve finds the live session of a cookie's token.
	Resolve(ctx context.Context, token secret.String, address string) (account.Session, error)
	// Alive reads a caller's session again.
	Alive(ctx context.Context, c caller.Caller) (caller.Caller, error)
	// Logout ends the caller's session.
	Logout(ctx context.Context, c caller.Caller) error
}

// Config is what a Server needs.
type Config struct {
	Gate     *rpc.Gate
	Accounts Accounts
	Bus      *event.Bus // closed when Run ends
	// CurrentState is what a stream begins with: everything that still stands, as the events that told it.
	CurrentState func(context.Context, caller.Caller) []event.Event
	Version      string

	Hosts          []string       // names and addresses accepted in the Host header besides loopback's and the socket's own
	TLSCert        string         // files; both or none. They are read again when they change
	TLSKey         string         //
	Insecure       bool           // the owner allows plain HTTP beyond loopback
	TrustedProxies []netip.Prefix // only from these does X-Forwarded-* count

	Health       func(context.Context) error // nil is healthy
	Metrics      func(io.Writer)             // Prometheus text; nil means there is no /metrics
	MetricsToken secret.String               // lets a bearer read /metrics from elsewhere than loopback

	// Interface serves GET / and below; it sets its own Content-Security-Policy. nil means a plain page.
	Interface http.Handler
	Log       *slog.Logger
	Times     Times
}

// Times bounds what clients may take. Zero fields have the defaults that are noted.
type Times struct {
	Header    time.Duration // until the header is there: 10 s
	Body      time.Duration // until the body is there: 30 s
	Write     time.Duration // one write to a client: 10 s
	KeepAlive time.Duration // between signs of life on a stream: 15 s
	Idle      time.Duration // a connection between two requests: 2 min
	Grace     time.Duration // for requests that run when the node stops, before they are cancelled: 5 s
}

func (t *Times) fill() {
	for _, f := range []struct {
		field   *time.Duration
		initial time.Duration
	}{{&t.Header, 10 * time.Second}, {&t.Body, 30 * time.Second}, {&t.Write, 10 * time.Second}, {&t.KeepAlive, 15 * time.Second},
		{&t.Idle, 2 * time.Minute}, {&t.Grace, 5 * time.Second}} {
		if *f.field <= 0 {
			*f.field = f.initial
		}
	}
}

// maxHeader bounds a request's header in bytes.
const maxHeader = 32 << 10

// Server is the HTTP door of one node.
type Server struct {
	cfg      Config
	hosts    map[string]bool
	tls      *tls.Config // nil without TLS files
	discover func() (jsontext.Value, error)
	handler  http.Handler
	running  running
}

// New checks the Config and reads the TLS files. Nothing listens until Run.
func New(cfg Config) (*Server, error) {
	if cfg.Gate == nil || cfg.Accounts == nil || cfg.Bus == nil || cfg.CurrentState == nil || cfg.Log == nil {
		return nil, errors.New("httpd: the Config is not complete")
	}
	cfg.Times.fill()
	s := &Server{cfg: cfg, hosts: map[string]bool{"localhost": true, "127.0.0.1": true, "::1": true}}
	for _, h := range cfg.Hosts {
		name, ok := hostName(h)
		if !ok {
			return nil, fmt.Errorf("httpd: %q is no host name", h)
		}
		s.hosts[name] = true
	}
	var err error
	if s.tls, err = tlsConfig(cfg.TLSCert, cfg.TLSKey); err != nil {
		return nil, fmt.Errorf("httpd: %w", err)
	}
	s.discover = sync.OnceValues(func() (jsontext.Value, error) { return rpc.Marshal(cfg.Gate.Describe(cfg.Version)) })
	s.handler = s.routes()
	return s, nil
}

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	handle := func(pattern string, h func(*exchange)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { h(w.(*exchange)) })
	}
	handle("POST /rpc", s.serveRPC)
	handle("GET /session", s.serveSession)
	handle("GET /events", s.serveEvents)
	handle("GET /healthz", s.serveHealth)
	if s.cfg.Metrics != nil {
		handle("GET /metrics", s.serveMetrics)
	}
	if s.cfg.Interface != nil {
		mux.Handle("GET /", s.cfg.Interface)
	} else {
		handle("GET /{$}", s.servePage)
	}
	return s.guard(mux)
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// EndSessions cancels the requests that run in these sessions, chats included (G6). Streams of events are the Bus's.
func (s *Server) EndSessions(sessions []string) { s.running.end(sessions) }

// Run serves the listeners until ctx ends, and closes them. Then streams end at once, requests have Times.Grace to
// finish and are cancelled after it; Run returns when every handler has. TCP listeners beyond loopback are refused
// without TLS or Insecure (G6).
func (s *Server) Run(ctx context.Context, listeners ...net.Listener) error {
	for _, l := range listeners {
		if err := s.mayServe(l); err != nil {
			for _, l := range listeners {
				_ = l.Close()
			}
			return err
		}
	}
	base, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	var handlers sync.RWMutex // each handler holds it for reading; who holds it for writing knows that none runs
	srv := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			handlers.RLock()
			defer handlers.RUnlock()
			if base.Err() == nil {
				s.ServeHTTP(w, r)
			}
		}),
		TLSConfig: s.tls, ReadHeaderTimeout: s.cfg.Times.Header, IdleTimeout: s.cfg.Times.Idle, MaxHeaderBytes: maxHeader,
		BaseContext: func(net.Listener) context.Context { return base },
		ErrorLog:    slog.NewLogLogger(s.cfg.Log.Handler(), slog.LevelDebug),
	}
	failed := make(chan error, len(listeners))
	var serving sync.WaitGroup
	for _, l := range listeners {
		serving.Go(func() { failed <- s.serve(srv, s.bounded(l)) })
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	s.shutdown(srv, cancel)
	serving.Wait()
	handlers.Lock()
	defer handlers.Unlock()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

func (s *Server) serve(srv *http.Server, l net.Listener) error {
	if s.tls != nil && l.Addr().Network() != "unix" {
		return srv.ServeTLS(l, "", "")
	}
	return srv.Serve(l)
}

// shutdown lets requests finish, then cancels them, then cuts their connections.
func (s *Server) shutdown(srv *http.Server, cancel func()) {
	s.cfg.Bus.Close()
	for range 2 { // once before the requests are cancelled, once after
		ctx, done := context.WithTimeout(context.Background(), s.cfg.Times.Grace)
		err := srv.Shutdown(ctx)
		done()
		cancel()
		if err == nil {
			return
		}
	}
	_ = srv.Close()
}

// running are the requests in flight, by session.
type running struct {
	mu       sync.Mutex // guards sessions
	sessions map[string]map[*exchange]context.CancelFunc
}

// add notes a request and returns what takes it off again.
func (r *running) add(session string, q *exchange, cancel context.CancelFunc) (remove func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sessions == nil {
		r.sessions = map[string]map[*exchange]context.CancelFunc{}
	}
	if r.sessions[session] == nil {
		r.sessions[session] = map[*exchange]context.CancelFunc{}
	}
	r.sessions[session][q] = cancel
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.sessions[session], q)
		if len(r.sessions[session]) == 0 {
			delete(r.sessions, session)
		}
	}
}

func (r *running) end(sessions []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range sessions {
		for _, cancel := range r.sessions[id] {
			cancel()
		}
	}
}

// hostName takes the port off a Host header and folds it; ok is false where it can be none.
func hostName(host string) (name string, ok bool) {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	} else {
		host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	}
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	return host, host != "" && !strings.ContainsAny(host, "/@ \t")
}
