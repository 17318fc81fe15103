package httpd

import (
	"bytes"
	"crypto/subtle"
	"net/http"
	"strings"

	"atoll/internal/fault"
)

// page is GET / where the node has no web interface. It runs no script: a set-up token in the address's fragment never
// leaves the browser.
const page = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Atoll</title>
<h1>Atoll is running</h1>
<p>This node is used from a terminal.</p>
<dl>
<dt>A new node: create its owner, with the whole address that the node printed when it started</dt>
<dd><code>atoll setup ADDRESS</code></dd>
<dt>Log in, then talk to it</dt>
<dd><code>atoll login</code></dd>
<dd><code>atoll chat</code></dd>
<dt>Everything else</dt>
<dd><code>atoll help</code></dd>
</dl>
</html>
`

func (s *Server) servePage(q *exchange) {
	q.answer(http.StatusOK, "text/html; charset=utf-8", []byte(page))
}

// serveHealth tells whether the node works. It is open, so it does not tell what is wrong: the log does.
func (s *Server) serveHealth(q *exchange) {
	if s.cfg.Health != nil {
		if err := s.cfg.Health(q.r.Context()); err != nil {
			s.cfg.Log.Warn("the node is not healthy", "err", err)
			q.answer(http.StatusServiceUnavailable, "application/json", []byte(`{"status":"unhealthy"}`))
			return
		}
	}
	q.answer(http.StatusOK, "application/json", []byte(`{"status":"ok"}`))
}

// serveMetrics gives the figures to programs on this machine and to bearers of the token. A loopback client that speaks
// for somebody else is a proxy, and so is not on this machine.
func (s *Server) serveMetrics(q *exchange) {
	local := q.address == socketAddress || q.peer.IsLoopback() && !forwarded(q.r)
	if !local && !s.bearer(q.r) {
		q.refuse(http.StatusForbidden, fault.New(fault.Forbidden, "metrics are for this machine, or for who bears the metrics token"))
		return
	}
	var b bytes.Buffer
	s.cfg.Metrics(&b)
	q.answer(http.StatusOK, "text/plain; version=0.0.4; charset=utf-8", b.Bytes())
}

func forwarded(r *http.Request) bool {
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-Ip", "Via"} {
		if r.Header.Get(name) != "" {
			return true
		}
	}
	return false
}

func (s *Server) bearer(r *http.Request) bool {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	want := s.cfg.MetricsToken
	return ok && !want.Empty() && subtle.ConstantTimeCompare([]byte(token), []byte(want.Reveal())) == 1
}
