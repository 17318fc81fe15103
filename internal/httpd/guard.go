package httpd

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"atoll/internal/caller"
	"atoll/internal/fault"
	"atoll/internal/rpc"
)

// policy is the Content-Security-Policy of everything but the interface: an answer is data and loads nothing.
const policy = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// socketAddress is the address of a client that came by the socket.
const socketAddress = "socket"

// exchange is one request and its answer, with what is known about the client.
type exchange struct {
	http.ResponseWriter
	r       *http.Request
	control *http.ResponseController
	times   Times

	peer    netip.Addr // who is connected; the zero Addr on the socket
	address string     // the client's, for limits and records
	host    string     // the Host it asked for
	secure  bool       // it speaks TLS with us or with a trusted proxy

	// for the log
	status int
	method string
	who    caller.Caller
	code   fault.Code
}

// Unwrap is for http.ResponseController.
func (q *exchange) Unwrap() http.ResponseWriter { return q.ResponseWriter }

// WriteHeader notes the status.
func (q *exchange) WriteHeader(status int) {
	if q.status == 0 {
		q.status = status
	}
	q.ResponseWriter.WriteHeader(status)
}

func (q *exchange) Write(b []byte) (int, error) {
	if q.status == 0 {
		q.status = http.StatusOK
	}
	return q.ResponseWriter.Write(b)
}

// guard is what every request passes: headers on the answer, the Host list, one line in the log.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		q := s.exchange(w, r)
		defer s.logged(q, start)
		secured(w.Header())
		_ = q.control.SetWriteDeadline(time.Time{}) // the connection may still have the last answer's
		if !s.hostKnown(q) {
			q.refuse(http.StatusForbidden, fault.New(fault.Forbidden, "this node does not answer to the name in the Host header; add it to hosts"))
			return
		}
		next.ServeHTTP(q, r)
	})
}

// secured sets the headers that are on every answer. There is no Strict-Transport-Security: it would bind whatever else
// the machine serves under the same name.
func secured(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
	h.Set("Cache-Control", "no-store")
}

func (s *Server) exchange(w http.ResponseWriter, r *http.Request) *exchange {
	q := &exchange{ResponseWriter: w, r: r, control: http.NewResponseController(w), times: s.cfg.Times,
		host: r.Host, secure: r.TLS != nil}
	if local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok && local.Network() == "unix" {
		q.address = socketAddress
		return q
	}
	if from, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		q.peer = from.Addr().Unmap().WithZone("")
	}
	client := q.peer
	if s.trusted(q.peer) {
		client = s.forwardedFor(r, q.peer)
		if h := last(r.Header.Values("X-Forwarded-Host")); h != "" {
			q.host = h
		}
		if p := last(r.Header.Values("X-Forwarded-Proto")); p != "" {
			q.secure = strings.EqualFold(p, "https")
		}
	}
	q.address = limitAddress(client)
	return q
}

func (s *Server) trusted(ip netip.Addr) bool {
	return ip.IsValid() && slices.ContainsFunc(s.cfg.TrustedProxies, func(p netip.Prefix) bool { return p.Contains(ip) })
}

// forwardedFor walks the proxies' list from its near end to the first address that is no trusted proxy. What cannot be
// read ends the walk at the last address that could.
func (s *Server) forwardedFor(r *http.Request, peer netip.Addr) netip.Addr {
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for _, hop := range slices.Backward(hops) {
		ip, err := netip.ParseAddr(strings.TrimSpace(hop))
		if err != nil {
			return peer
		}
		peer = ip.Unmap().WithZone("")
		if !s.trusted(peer) {
			return peer
		}
	}
	return peer
}

// last is the value that the nearest proxy wrote.
func last(values []string) string {
	all := strings.Split(strings.Join(values, ","), ",")
	return strings.TrimSpace(all[len(all)-1])
}

// limitAddress is what limits count: an IPv6 network of 64 bits is one client, since it has all of its addresses.
func limitAddress(ip netip.Addr) string {
	if ip.Is6() && ip.IsGlobalUnicast() {
		if p, err := ip.Prefix(64); err == nil {
			return p.String()
		}
	}
	return ip.String()
}

// hostKnown is the defence against DNS rebinding (G6): the Host is on the list, or is the very address that was
// connected to. On the socket there is no browser and any Host will do.
func (s *Server) hostKnown(q *exchange) bool {
	if q.address == socketAddress {
		return true
	}
	name, ok := hostName(q.host)
	if !ok {
		return false
	}
	if s.hosts[name] {
		return true
	}
	ip, err := netip.ParseAddr(name)
	if err != nil {
		return false
	}
	local, ok := q.r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return false
	}
	at, err := netip.ParseAddrPort(local.String())
	return err == nil && at.Addr().Unmap().WithZone("") == ip.Unmap()
}

// sameOrigin reports whether a request that bears the cookie may come from where its browser says. Programs say
// nothing. The rule is that of http.CrossOriginProtection, held on reads too.
func (q *exchange) sameOrigin() bool {
	switch q.r.Header.Get("Sec-Fetch-Site") {
	case "same-origin", "none":
		return true
	case "":
	default:
		return false
	}
	origin := q.r.Header.Get("Origin")
	if origin == "" {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && strings.EqualFold(u.Host, q.host)
}

// answer writes a whole answer within the time for a write.
func (q *exchange) answer(status int, kind string, body []byte) {
	_ = q.control.SetWriteDeadline(time.Now().Add(q.times.Write))
	q.Header().Set("Content-Type", kind)
	q.WriteHeader(status)
	_, _ = q.Write(body) // a client that is gone is nobody's error
}

// refuse answers with an error object outside any call.
func (q *exchange) refuse(status int, err error) {
	q.code = fault.Of(err).Code
	q.answer(status, "application/json", rpc.ErrorBytes(nil, err))
}

// logged writes the request's line: never parameters, cookies or a stranger's path.
func (s *Server) logged(q *exchange, start time.Time) {
	path := q.r.Pattern
	if path == "" {
		path = "none"
	}
	attrs := []slog.Attr{slog.String("path", path), slog.Int("status", q.status), slog.Duration("took", time.Since(start)),
		slog.String("from", q.address)}
	if q.method != "" {
		attrs = append(attrs, slog.String("rpc", q.method))
	}
	if !q.who.IsZero() {
		attrs = append(attrs, slog.String("caller", q.who.String()))
	}
	if q.code != "" {
		attrs = append(attrs, slog.String("code", string(q.code)))
	}
	s.cfg.Log.LogAttrs(context.WithoutCancel(q.r.Context()), slog.LevelInfo, "request", attrs...)
}
