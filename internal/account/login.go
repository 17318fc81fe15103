package account

import (
	"context"
	"crypto/subtle"
	"database/sql"
	"time"

	"atoll/internal/audit"
	"atoll/internal/caller"
	"atoll/internal/fault"
	"atoll/internal/secret"
	"atoll/internal/store"
)

// setupTime is how long a set-up token can be used (G7).
const setupTime = time.Hour

// Login is what a person gets for the right password. The session's token is not in its JSON: httpd sets it as a
// cookie.
type Login struct {
	CSRF      string    `json:"csrf"`
	Username  string    `json:"username"`
	Role      string    `json:"role"`
	ExpiresAt time.Time `json:"expires_at"` // if it is not used again

	token secret.String
	until time.Time
}

// SessionCookie is the session's token and the time after which it is of no use.
func (l Login) SessionCookie() (secret.String, time.Time) { return l.token, l.until }

// Logout is the answer that ends a session.
type Logout struct {
	LoggedOut bool `json:"logged_out"`
}

// SessionCookie says by an empty token that the cookie is to be cleared.
func (Logout) SessionCookie() (secret.String, time.Time) { return secret.String{}, time.Time{} }

type loginParams struct {
	Username string `json:"username" rpc:"required"`
	Password string `json:"password" rpc:"required"`
}

func wrongPassword() *fault.Error {
	return fault.New(fault.Unauthenticated, "wrong username or password")
}

func (r *Room) login(ctx context.Context, c caller.Caller, in loginParams) (Login, error) {
	p := r.find(in.Username)
	if err := r.prove(ctx, p, in.Username, in.Password); err != nil {
		if fault.Is(err, fault.Unauthenticated) {
			r.recordRefusal(ctx, c, p)
		}
		return Login{}, err
	}
	login, ended, err := r.enter(ctx, c, p)
	r.told(p.id, ended, false)
	return login, err
}

// prove takes a password through the pause and the hash. The error is Unauthenticated where it is wrong.
func (r *Room) prove(ctx context.Context, p *person, name, password string) error {
	if folded, ok := fold(name); ok {
		name = folded
	}
	if err := r.slow.begin(ctx, p, name); err != nil {
		return err
	}
	right, err := r.hasher.verify(ctx, p, password)
	switch {
	case err != nil:
		return err
	case !right:
		return wrongPassword()
	}
	r.slow.clear(p)
	return nil
}

// enter opens a session for somebody who proved to be p, unless p has changed since.
func (r *Room) enter(ctx context.Context, c caller.Caller, p *person) (Login, []string, error) {
	r.change.Lock()
	defer r.change.Unlock()
	if !r.current(p) {
		return Login{}, nil, fault.New(fault.Unauthenticated, "the account was changed just now; log in again")
	}
	return r.open(ctx, store.Relaxed, opening{who: p, address: c.Address(), entry: audit.Entry{Kind: "session", Event: "login",
		Caller: operator(p.name), Subject: p.name, Outcome: "done", Detail: "from " + c.Address()}})
}

// current reports whether p is still what the account is; a person is replaced whenever it changes.
func (r *Room) current(p *person) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.accounts[p.id] == p
}

// operator is how caller.Caller prints an operator who has no session yet.
func operator(name string) string { return "operator:" + name }

// recordRefusal writes a refused login down. A name that no account has is left out: people type passwords into the
// wrong field.
func (r *Room) recordRefusal(ctx context.Context, c caller.Caller, p *person) {
	e := audit.Entry{Kind: "session", Event: "login", Caller: c.String(), Code: string(fault.Unauthenticated), Outcome: "refused",
		Detail: "from " + c.Address()}
	if p != nil {
		e.Subject = p.name
	}
	err := r.cfg.DB.Write(ctx, store.Relaxed, func(ctx context.Context, tx *sql.Tx) error { return r.cfg.Record(ctx, tx, e) })
	if err != nil {
		r.cfg.Log.Warn("a refused login was not written to the audit", "err", err)
	}
}

// setupToken is the right to create the first owner. The zero one matches nothing.
type setupToken struct {
	hash  tokenHash
	until time.Time
}

// SetupToken mints a token for auth.setup, good for an hour, if the node has no owner; ok is false where it has one. An
// earlier token is dead from then on.
func (r *Room) SetupToken(context.Context) (token string, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.owners() > 0 {
		return "", false
	}
	token = newToken()
	r.setup = setupToken{hash: hashToken(token), until: r.cfg.Now().Add(setupTime)}
	return token, true
}

type setupParams struct {
	Token    string `json:"token" rpc:"required"`
	Username string `json:"username" rpc:"required"`
	Password string `json:"password" rpc:"required"`
}

func (r *Room) setUp(ctx context.Context, c caller.Caller, in setupParams) (Login, error) {
	if err := r.checkSetup(in.Token); err != nil {
		return Login{}, err
	}
	p, err := r.newPerson(ctx, in.Username, caller.Owner, in.Password)
	if err != nil {
		return Login{}, err
	}
	r.change.Lock()
	defer r.change.Unlock()
	if err := r.checkSetup(in.Token); err != nil { // somebody else may have been first
		return Login{}, err
	}
	if r.find(p.name) != nil {
		return Login{}, nameTaken(p.name)
	}
	login, _, err := r.open(ctx, store.Durable, opening{who: p, address: c.Address(),
		entry: audit.Entry{Kind: "account", Event: "setup", Caller: operator(p.name), Subject: p.name, Outcome: "done", Detail: "from " + c.Address()},
		also:  func(ctx context.Context, tx *sql.Tx) error { return insertPerson(ctx, tx, p) },
		apply: func() {
			r.accounts[p.id], r.names[p.name] = p, p
			r.setup = setupToken{}
		}})
	return login, err
}

// checkSetup says whether a token may create the owner now.
func (r *Room) checkSetup(token string) error {
	r.mu.RLock()
	defer r.mu.RUnlock()
	got := hashToken(token)
	switch {
	case r.owners() > 0:
		return fault.New(fault.Forbidden, "this node has an owner already; log in instead")
	case subtle.ConstantTimeCompare(got[:], r.setup.hash[:]) != 1 || !r.cfg.Now().Before(r.setup.until):
		return fault.New(fault.Forbidden, "the set-up address is wrong or older than an hour; restart the node for a new one, or use `atoll user add`")
	}
	return nil
}
