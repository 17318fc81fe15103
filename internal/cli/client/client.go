// Package client speaks to a node as any other client does: JSON-RPC over HTTP, by address or by the node's socket, with
// a session cookie and a CSRF token. It shows nothing to a person and has no authority of its own.
package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"atoll/internal/fault"
	"atoll/internal/secret"
)

// Bounds of what a node, or what poses as one, may send.
const (
	maxResponse = 64 << 20 // bytes of one ordinary answer; an export is the largest
	maxLine     = 4 << 20  // bytes of one line of a stream
	maxEvent    = 8 << 20  // bytes of one event of a stream
)

const (
	callTimeout  = 180 * time.Second // an ordinary call: longer than any handler runs
	dialTimeout  = 5 * time.Second
	silentStream = 60 * time.Second // the node sends a sign of life every 15 s
	cookieName   = "atoll_session"
	csrfHeader   = "X-CSRF-Token"
)

// failure is an error that is a constant.
type failure string

func (f failure) Error() string { return string(f) }

// ErrUnreachable is in the chain of every error that says no node could be talked to.
const ErrUnreachable = failure("the node cannot be reached")

// Session is a login: what a client must keep to be known again.
type Session struct {
	Token     secret.String
	CSRF      secret.String
	Username  string
	Role      string
	ExpiresAt time.Time
}

// Config is what a Client needs.
type Config struct {
	Address string  // as Address returns it
	Session Session // the zero Session may only call what needs no login
	// ChatTimeout bounds one chat call (C9). It must be set.
	ChatTimeout time.Duration
}

// Client talks to one node. It is safe for concurrent use.
type Client struct {
	cfg  Config
	base string
	http *http.Client

	mu      sync.Mutex // guards session
	session Session
}

// Address brings an address into its one form: "http://host:port", "https://host:port" or "unix:///path". A bare
// host:port is http, a path is a socket.
func Address(s string) (string, error) {
	bad := func() (string, error) {
		return "", fault.New(fault.InvalidParams, "%q is no address of a node; write it like http://127.0.0.1:8420 or unix:///path/atoll.sock", s).At("address")
	}
	if path, ok := strings.CutPrefix(s, "unix:"); ok || strings.HasPrefix(s, "/") {
		if path = strings.TrimPrefix(path, "//"); !ok {
			path = s
		}
		if !filepath.IsAbs(path) {
			return bad()
		}
		return "unix://" + filepath.Clean(path), nil
	}
	if !strings.Contains(s, "://") {
		s = "http://" + s
	}
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" {
		return bad()
	}
	return u.Scheme + "://" + strings.ToLower(u.Host), nil
}

// Plain reports whether an address sends passwords and sessions unencrypted to another machine.
func Plain(address string) bool {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback())
}

// New makes a Client. It connects to nothing.
func New(cfg Config) (*Client, error) {
	address, err := Address(cfg.Address)
	if err != nil {
		return nil, err
	}
	if cfg.ChatTimeout <= 0 {
		return nil, errors.New("client: ChatTimeout is not set")
	}
	cfg.Address = address
	dialer := &net.Dialer{Timeout: dialTimeout}
	t := &http.Transport{Proxy: nil, DialContext: dialer.DialContext, TLSHandshakeTimeout: dialTimeout, MaxIdleConnsPerHost: 4,
		IdleConnTimeout: time.Minute, ForceAttemptHTTP2: true}
	base := address
	if path, ok := strings.CutPrefix(address, "unix://"); ok {
		base = "http://localhost"
		t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return dialer.DialContext(ctx, "unix", path) }
	}
	return &Client{cfg: cfg, base: base, session: cfg.Session, http: &http.Client{Transport: t,
		// A redirect would carry the session to whoever it names.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}, nil
}

// Close drops idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Address is the node's address in its one form.
func (c *Client) Address() string { return c.cfg.Address }

// Session is the login in use.
func (c *Client) Session() Session {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session
}

func (c *Client) setSession(s Session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.session = s
}

// Call calls a method and decodes its result into result, which may be nil. A refusal is a *fault.Error as the node
// worded it.
func (c *Client) Call(ctx context.Context, method string, params, result any) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	resp, err := c.post(ctx, method, params, "application/json")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return c.readResult(resp, result)
}

func (c *Client) post(ctx context.Context, method string, params any, accept string) (*http.Response, error) {
	if params == nil {
		params = struct{}{}
	}
	body, err := json.Marshal(struct {
		Version string `json:"jsonrpc"`
		ID      int    `json:"id"`
		Method  string `json:"method"`
		Params  any    `json:"params"`
	}{"2.0", 1, method, params})
	if err != nil {
		return nil, fault.Wrap(err, fault.InvalidParams, "what was given cannot be sent as text (is it valid UTF-8?)")
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+"/rpc", bytes.NewReader(body))
	if err != nil {
		return nil, fault.Wrap(err, fault.Failed, "the request cannot be made")
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", accept)
	return c.send(req)
}

func (c *Client) send(req *http.Request) (*http.Response, error) {
	if s := c.Session(); !s.Token.Empty() {
		req.AddCookie(&http.Cookie{Name: cookieName, Value: s.Token.Reveal()})
		req.Header.Set(csrfHeader, s.CSRF.Reveal())
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.broken(req.Context(), err)
	}
	return resp, nil
}

// broken says what a failed connection means.
func (c *Client) broken(ctx context.Context, err error) error {
	op, dialing := errors.AsType[*net.OpError](err)
	switch {
	case errors.Is(context.Cause(ctx), context.Canceled):
		return fault.Wrap(err, fault.Cancelled, "stopped")
	case dialing && op.Op == "dial":
		return fault.Wrap(fmt.Errorf("%w: %w", ErrUnreachable, err), fault.Unavailable,
			"no node answers at %s — start one with `atoll serve`, or name another with --address", c.cfg.Address)
	case errors.Is(err, context.DeadlineExceeded):
		return fault.Wrap(fmt.Errorf("%w: %w", ErrUnreachable, err), fault.Unavailable,
			"the node at %s did not answer in time — see its log; whether it did what was asked is not known", c.cfg.Address)
	}
	return fault.Wrap(fmt.Errorf("%w: %w", ErrUnreachable, err), fault.Unavailable,
		"the connection to the node at %s broke — check that it runs; whether it did what was asked is not known", c.cfg.Address)
}

// wireError is the error object of the node.
type wireError struct {
	Message string `json:"message"`
	Data    struct {
		Code        fault.Code `json:"code"`
		Field       string     `json:"field"`
		RetryAfterS int64      `json:"retry_after_s"`
	} `json:"data"`
}

func (e *wireError) fault() *fault.Error {
	f := fault.New(e.Data.Code, "%s", e.Message).At(e.Data.Field).After(time.Duration(e.Data.RetryAfterS) * time.Second)
	if f.Code == "" {
		f.Code = fault.Failed
	}
	if f.Public == "" {
		f.Public = "the node refused and gave no words (" + string(f.Code) + ")"
	}
	return f
}

func (c *Client) readResult(resp *http.Response, result any) error {
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxResponse+1))
	switch {
	case err != nil:
		return c.broken(resp.Request.Context(), err)
	case len(body) > maxResponse:
		return fault.New(fault.TooLarge, "the node's answer is larger than %d MiB", maxResponse>>20)
	}
	var wire struct {
		Version string         `json:"jsonrpc"`
		Result  jsontext.Value `json:"result"`
		Error   *wireError     `json:"error"`
	}
	if err := json.Unmarshal(body, &wire); err != nil || wire.Version != "2.0" {
		return c.notANode(resp)
	}
	if wire.Error != nil {
		return wire.Error.fault()
	}
	if result == nil {
		return nil
	}
	if err := json.Unmarshal(wire.Result, result); err != nil {
		return fault.Wrap(err, fault.Failed, "the node's answer is not what this version of atoll reads — are both of one version?")
	}
	return nil
}

func (c *Client) notANode(resp *http.Response) error {
	return fault.Wrap(ErrUnreachable, fault.Unavailable, "what answers at %s (HTTP %d) is no Atoll node — check the address", c.cfg.Address, resp.StatusCode)
}
