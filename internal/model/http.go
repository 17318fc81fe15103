package model

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/go-json-experiment/json"

	"atoll/internal/secret"
)

// Limits of one exchange.
const (
	// IdleDefault is how long a model server may say nothing (B2, F-E4).
	IdleDefault = 60 * time.Second
	// pingIdles is for how many idle times pings and comments alone count as life: a model may think for minutes behind
	// them, and a proxy may send them for ever.
	pingIdles = 5
	// connectTimeout bounds the name look-up with the connection, and the TLS handshake, each. With Retry's reach it
	// keeps "cannot be reached" within 20 s (SPEC section 3).
	connectTimeout = 5 * time.Second

	maxStream    = 32 << 20 // bytes of one streamed response with its framing
	maxLine      = 1 << 20  // bytes of one line of it
	maxErrorBody = 64 << 10 // bytes read of a response that is an error
)

// WireConfig says whom a Wire talks to.
type WireConfig struct {
	Host    string        // host of the server, for people
	KeyFile string        // where the key lives, for people: "secrets/claude-api-key"
	Key     secret.String // kept out of every text; the backend sets the header
	Model   string        // for people
	Idle    time.Duration // longest silence; zero means IdleDefault
}

// Wire carries the requests of one backend. It takes nothing from the environment (no proxy), follows no redirect
// (B2b), ends a silent or endless response, and turns every response that is no event stream into a *Failure, so that
// no library above it retries or interprets one.
type Wire struct {
	cfg    WireConfig
	client *http.Client
}

// NewWire makes a Wire. Host is required.
func NewWire(cfg WireConfig) (*Wire, error) {
	if cfg.Host == "" {
		return nil, errors.New("model: the wire has no host")
	}
	if cfg.Idle == 0 {
		cfg.Idle = IdleDefault
	}
	dialer := &net.Dialer{Timeout: connectTimeout, KeepAlive: 15 * time.Second}
	return &Wire{cfg: cfg, client: &http.Client{
		Transport: &http.Transport{
			Proxy:                  nil, // never from HTTP_PROXY
			DialContext:            dialer.DialContext,
			TLSHandshakeTimeout:    connectTimeout,
			ForceAttemptHTTP2:      true,
			MaxIdleConnsPerHost:    16,
			IdleConnTimeout:        90 * time.Second,
			DisableCompression:     true, // a small compressed answer could unpack to a large one
			MaxResponseHeaderBytes: 64 << 10,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return errRedirect },
	}}, nil
}

// Close drops the connections kept open.
func (w *Wire) Close() { w.client.CloseIdleConnections() }

var (
	errRedirect = errors.New("the server redirects to another address, and none is followed")
	errSilent   = errors.New("silence")
)

// Do sends the request and returns a response with status 200 and an event stream as its body; anything else is a
// *Failure, or the context's error.
func (w *Wire) Do(req *http.Request) (*http.Response, error) {
	parent := req.Context()
	ctx, cancel := context.WithCancelCause(parent)
	timer := time.AfterFunc(w.cfg.Idle, func() { cancel(errSilent) })
	end := func() { timer.Stop(); cancel(nil) }
	resp, err := w.client.Do(req.WithContext(ctx))
	if err != nil {
		end()
		return nil, w.sendFailure(parent, ctx, err)
	}
	if resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody)) // half a message is better than none
		_ = resp.Body.Close()
		end()
		return nil, failureOf(resp.StatusCode, resp.Header, w.serverWords(body), time.Now())
	}
	if t, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type")); err == nil && t != "text/event-stream" {
		_ = resp.Body.Close()
		end()
		return nil, &Failure{Kind: Garbled, Words: w.clean("a " + t + " page instead of a stream")}
	}
	timer.Stop()
	resp.Body = &watched{body: resp.Body, wire: w, parent: parent, ctx: ctx, timer: timer, end: end}
	return resp, nil
}

func (w *Wire) sendFailure(parent, ctx context.Context, err error) error {
	if cause := parent.Err(); cause != nil {
		return cause
	}
	if errors.Is(context.Cause(ctx), errSilent) {
		return &Failure{Kind: Silent, Cause: errSilent}
	}
	if errors.Is(err, errRedirect) {
		return &Failure{Kind: Refused, Words: errRedirect.Error()}
	}
	f := &Failure{Kind: Dropped, Cause: errors.New(w.clean(err.Error()))}
	var (
		op   *net.OpError
		dns  *net.DNSError
		cert *tls.CertificateVerificationError
		auth x509.UnknownAuthorityError
		rec  tls.RecordHeaderError
	)
	switch {
	case errors.As(err, &cert), errors.As(err, &auth):
		f.Kind, f.Words = Refused, "its certificate is not one this machine trusts"
	case errors.As(err, &rec), strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		f.Kind, f.Words = Refused, "it does not speak TLS; the address may have to begin with http://"
	case errors.As(err, &dns), errors.As(err, &op) && op.Op == "dial", strings.Contains(err.Error(), "TLS handshake timeout"):
		f.Kind = Unreachable
	}
	return f
}

// serverWords finds the message in an error body of either wire, or takes what readable text there is.
func (w *Wire) serverWords(body []byte) string {
	var shape struct {
		Error   jsontext.Value `json:"error"`
		Message string         `json:"message"`
	}
	opts := json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if json.Unmarshal(body, &shape, opts) == nil {
		var inner struct {
			Message string         `json:"message"`
			Type    string         `json:"type"`
			Code    jsontext.Value `json:"code"`
			Details jsontext.Value `json:"details"`
		}
		var text string
		switch {
		case json.Unmarshal(shape.Error, &inner, opts) == nil && inner.Message != "":
			text = inner.Message
			for _, more := range []string{inner.Type, plainCode(inner.Code), plainCode(inner.Details)} {
				if more != "" {
					text += " (" + more + ")"
				}
			}
		case json.Unmarshal(shape.Error, &text, opts) == nil && text != "":
		default:
			text = shape.Message
		}
		return w.clean(text)
	}
	if bytes.HasPrefix(bytes.TrimSpace(body), []byte("<")) {
		return "an HTML page"
	}
	return w.clean(string(body))
}

func plainCode(v jsontext.Value) string {
	if v.Kind() == 'n' {
		return ""
	}
	return strings.Trim(string(v), `"`)
}

// watched is a response body under the limits of a Wire. Its timer runs only while a read waits, so that a slow reader
// is not taken for a silent server.
type watched struct {
	body        io.ReadCloser
	wire        *Wire
	parent, ctx context.Context
	timer       *time.Timer
	end         func()

	total  int
	line   int           // length of the line so far
	head   []byte        // its beginning
	waited time.Duration // spent waiting since the last line of data
	failed error
}

func (b *watched) Read(p []byte) (int, error) {
	if b.failed != nil {
		return 0, b.failed
	}
	start := time.Now()
	b.timer.Reset(b.wire.cfg.Idle)
	n, err := b.body.Read(p)
	b.timer.Stop()
	b.waited += time.Since(start)
	if err != nil && err != io.EOF {
		b.failed = b.reason(err)
		return n, b.failed
	}
	if f := b.look(p[:n]); f != nil {
		b.failed = f
		return 0, f
	}
	return n, err
}

func (b *watched) reason(err error) error {
	if cause := b.parent.Err(); cause != nil {
		return cause
	}
	if errors.Is(context.Cause(b.ctx), errSilent) {
		return &Failure{Kind: Silent, Cause: errSilent}
	}
	return &Failure{Kind: Dropped, Cause: errors.New(b.wire.clean(err.Error()))}
}

// headLen is how much of a line is kept to tell data from pings.
const headLen = 48

func (b *watched) look(p []byte) error {
	if b.total += len(p); b.total > maxStream {
		return &Failure{Kind: Flooded, Cause: fmt.Errorf("more than %d bytes", maxStream)}
	}
	for len(p) > 0 {
		i := bytes.IndexByte(p, '\n')
		part := p
		if i >= 0 {
			part = p[:i]
		}
		if room := headLen - len(b.head); room > 0 {
			b.head = append(b.head, part[:min(room, len(part))]...)
		}
		if b.line += len(part); b.line > maxLine {
			return &Failure{Kind: Flooded, Cause: fmt.Errorf("a line of more than %d bytes", maxLine)}
		}
		if i < 0 {
			break
		}
		if bytes.HasPrefix(b.head, []byte("data:")) && !bytes.Contains(b.head, []byte(`"ping"`)) {
			b.waited = 0
		}
		b.head, b.line, p = b.head[:0], 0, p[i+1:]
	}
	if b.waited > pingIdles*b.wire.cfg.Idle {
		return &Failure{Kind: Silent, Cause: errors.New("nothing but pings")}
	}
	return nil
}

func (b *watched) Close() error {
	b.end()
	return b.body.Close()
}

// Address checks the address of a model server: http or https, a host, nothing that could hold a secret or change the
// path. It returns the URL and the host that text is sent to, which is empty for this machine.
func Address(base string) (*url.URL, string, error) {
	u, err := url.Parse(base)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" {
		return nil, "", errors.New("base_url is not an http or https address")
	}
	if u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
		return nil, "", errors.New("base_url must hold no user name, password, query or fragment")
	}
	if ip := net.ParseIP(u.Hostname()); u.Hostname() == "localhost" || ip != nil && ip.IsLoopback() {
		return u, "", nil
	}
	return u, u.Host, nil
}
