package httpd

import (
	"net/http"
	"time"

	"atoll/internal/account"
	"atoll/internal/caller"
	"atoll/internal/fault"
	"atoll/internal/rpc"
	"atoll/internal/secret"
)

// cookieName is the session's cookie (SPEC section 3).
const cookieName = "atoll_session"

// csrfHeader is the header that every call sends the session's CSRF token in.
const csrfHeader = "X-CSRF-Token"

// cookieSetter is a result that changes the session's cookie: a token sets it, an empty one clears it.
type cookieSetter interface {
	SessionCookie() (token secret.String, expires time.Time)
}

func foreignOrigin() error {
	return fault.New(fault.Forbidden, "this request comes from another site; open the node's own address")
}

// session resolves the cookie. Two cookies of the name are none: one of them was planted.
func (s *Server) session(q *exchange) (account.Session, error) {
	cookies := q.r.CookiesNamed(cookieName)
	if len(cookies) != 1 {
		return account.Session{}, fault.New(fault.Unauthenticated, "no live session; log in first")
	}
	sess, err := s.cfg.Accounts.Resolve(q.r.Context(), secret.New(cookies[0].Value), q.address)
	if err == nil {
		q.who = sess.Caller
	}
	return sess, err
}

// admit says who calls a method (G1): an open one a stranger may, every other needs a live session and its CSRF token,
// in this order, whether the method exists or not.
func (s *Server) admit(q *exchange, method string) (caller.Caller, error) {
	if !q.sameOrigin() {
		return caller.Caller{}, foreignOrigin()
	}
	if row, ok := s.cfg.Gate.Row(method); ok && row.Open {
		return caller.Stranger(q.address), nil
	}
	sess, err := s.session(q)
	if err != nil {
		return caller.Caller{}, err
	}
	if !sess.CheckCSRF(q.r.Header.Get(csrfHeader)) {
		return caller.Caller{}, fault.New(fault.CSRF, "the header %s is missing or is not this session's; GET /session tells it", csrfHeader)
	}
	return sess.Caller, nil
}

// setCookie carries out what a result says about the cookie. A login replaces the session that the client had: a token
// never outlives a login.
func (s *Server) setCookie(q *exchange, c caller.Caller, result any) {
	set, ok := result.(cookieSetter)
	if !ok {
		return
	}
	token, expires := set.SessionCookie()
	if !c.IsOperator() && !token.Empty() {
		if old, err := s.session(q); err == nil {
			if err := s.cfg.Accounts.Logout(q.r.Context(), old.Caller); err != nil {
				s.cfg.Log.Warn("the session before a new login was not ended", "caller", old.Caller.String(), "err", err)
			}
		}
	}
	cookie := &http.Cookie{Name: cookieName, Value: token.Reveal(), Path: "/", HttpOnly: true, Secure: q.secure,
		SameSite: http.SameSiteStrictMode, Expires: expires}
	if token.Empty() {
		cookie.MaxAge = -1
	}
	http.SetCookie(q, cookie)
}

// serveSession tells a client that reloaded what it got at login.
func (s *Server) serveSession(q *exchange) {
	if !q.sameOrigin() {
		q.refuse(http.StatusForbidden, foreignOrigin())
		return
	}
	sess, err := s.session(q)
	if err != nil {
		q.refuse(rpc.Status(err), err)
		return
	}
	body, err := rpc.Marshal(account.Login{CSRF: sess.CSRF, Username: sess.Caller.Name(), Role: sess.Caller.Role().String(),
		ExpiresAt: sess.ExpiresAt.UTC()})
	if err != nil {
		q.refuse(http.StatusInternalServerError, err) // unreachable unless a Login is not what JSON can hold
		return
	}
	q.answer(http.StatusOK, "application/json", body)
}
