package account

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"database/sql"
	"encoding/hex"
	"slices"
	"sync/atomic"
	"time"

	"atoll/internal/audit"
	"atoll/internal/caller"
	"atoll/internal/fault"
	"atoll/internal/secret"
	"atoll/internal/store"
)

// session is one login in memory. All but seen never change.
type session struct {
	id      string
	token   tokenHash
	account int64
	address string
	created time.Time
	seen    atomic.Int64 // Unix seconds of the last use
	saved   int64        // what the file has of seen; guarded by Room.change
}

func (s *session) lastSeen() time.Time { return time.Unix(s.seen.Load(), 0) }

// expires is when the session is over if nobody uses it again.
func (s *session) expires() time.Time {
	idle, absolute := s.lastSeen().Add(Idle), s.created.Add(Absolute)
	if idle.Before(absolute) {
		return idle
	}
	return absolute
}

// Session is a live login, resolved for one request. The zero Session matches no CSRF token.
type Session struct {
	Caller    caller.Caller
	CSRF      string    // sent back by the client with every call
	ExpiresAt time.Time // if it is not used again
}

// CheckCSRF compares a request's token with the session's, in constant time.
func (s Session) CheckCSRF(token string) bool {
	return s.CSRF != "" && subtle.ConstantTimeCompare([]byte(s.CSRF), []byte(token)) == 1
}

// csrf derives a session's CSRF token from its own random token, so that neither is in the file.
func csrf(token string) string {
	m := hmac.New(sha256.New, []byte(token))
	m.Write([]byte("atoll csrf token"))
	return hex.EncodeToString(m.Sum(nil))
}

func noSession() *fault.Error {
	return fault.New(fault.Unauthenticated, "no live session; log in first")
}

// Resolve finds the live session of a token and notes its use. address is where the request came from. The error is
// Unauthenticated.
func (r *Room) Resolve(_ context.Context, token secret.String, address string) (Session, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	s := r.tokens[hashToken(token.Reveal())]
	if s == nil {
		return Session{}, noSession()
	}
	now := r.cfg.Now()
	if !now.Before(s.expires()) {
		return Session{}, noSession()
	}
	if seen := now.Unix(); seen > s.seen.Load() {
		s.seen.Store(seen)
	}
	p := r.accounts[s.account]
	return Session{Caller: caller.Operator(p.id, p.name, p.role, s.id, address), CSRF: csrf(token.Reveal()), ExpiresAt: s.expires()}, nil
}

// Alive reads account, role and session of an operator again (T2) and returns the caller as it now is, with no more
// authority than c had. It is no use of the session. The error is Unauthenticated.
func (r *Room) Alive(_ context.Context, c caller.Caller) (caller.Caller, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	s := r.sessions[c.Session()]
	if !c.IsOperator() || s == nil || s.account != c.Account() || !r.cfg.Now().Before(s.expires()) {
		return caller.Caller{}, noSession()
	}
	p := r.accounts[s.account]
	return caller.Operator(p.id, p.name, p.role, s.id, c.Address()).Narrow(c.Role()), nil
}

// opening is a login about to be written: a new session, and what changes with it in the same transaction.
type opening struct {
	who     *person
	address string
	entry   audit.Entry
	ends    []string // sessions it replaces
	also    func(context.Context, *sql.Tx) error
	apply   func()
}

// open writes the opening and returns the login. r.change is held; the caller reports the ended sessions.
func (r *Room) open(ctx context.Context, how store.Durability, o opening) (Login, []string, error) {
	now := r.cfg.Now()
	token := newToken()
	s := &session{id: randomHex(8), token: hashToken(token), account: o.who.id, address: o.address, created: now, saved: now.Unix()}
	s.seen.Store(s.saved)
	ends := slices.Concat(o.ends, r.surplus(o.who.id, o.ends))
	o.entry.Session = s.id
	err := r.write(ctx, how, func(ctx context.Context, tx *sql.Tx) error {
		if o.also != nil {
			if err := o.also(ctx, tx); err != nil {
				return err
			}
			s.account = o.who.id // a new account has its number only now
		}
		if err := deleteSessions(ctx, tx, ends); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, "INSERT INTO session (id, token, account, address, created_at, last_seen) VALUES (?, ?, ?, ?, ?, ?)",
			s.id, s.token[:], s.account, s.address, now.Unix(), s.saved)
		if err != nil {
			return err
		}
		return r.cfg.Record(ctx, tx, o.entry)
	}, func() {
		if o.apply != nil {
			o.apply()
		}
		r.forget(ends)
		r.tokens[s.token], r.sessions[s.id] = s, s
	})
	if err != nil {
		return Login{}, nil, err
	}
	return Login{CSRF: csrf(token), Username: o.who.name, Role: o.who.role.String(), ExpiresAt: s.expires().UTC(),
		token: secret.New(token), until: s.created.Add(Absolute)}, ends, nil
}

// surplus names the sessions that make room for one more of the account, besides those that end anyway.
func (r *Room) surplus(account int64, ending []string) []string {
	live := slices.DeleteFunc(r.of(account), func(s *session) bool { return slices.Contains(ending, s.id) })
	if len(live) < maxSessions {
		return nil
	}
	slices.SortFunc(live, func(a, b *session) int { return cmp.Compare(a.seen.Load(), b.seen.Load()) })
	return ids(live[:len(live)-maxSessions+1])
}

// of lists an account's sessions.
func (r *Room) of(account int64) []*session {
	r.mu.RLock()
	defer r.mu.RUnlock()
	var out []*session
	for _, s := range r.sessions {
		if s.account == account {
			out = append(out, s)
		}
	}
	return out
}

func ids(sessions []*session) []string {
	out := make([]string, len(sessions))
	for i, s := range sessions {
		out[i] = s.id
	}
	return out
}

func deleteSessions(ctx context.Context, tx *sql.Tx, ids []string) error {
	for _, id := range ids {
		if _, err := tx.ExecContext(ctx, "DELETE FROM session WHERE id = ?", id); err != nil {
			return err
		}
	}
	return nil
}

// forget drops sessions from memory; mu is held.
func (r *Room) forget(ids []string) {
	for _, id := range ids {
		if s := r.sessions[id]; s != nil {
			delete(r.sessions, id)
			delete(r.tokens, s.token)
		}
	}
}

// told reports ended sessions. No lock may be held.
func (r *Room) told(account int64, ended []string, changed bool) {
	if len(ended) > 0 || changed {
		r.cfg.OnEnded(Ended{Account: account, Sessions: ended, Changed: changed})
	}
}

// end is how one session is taken away by its own account; false if the account has no such session.
func (r *Room) end(ctx context.Context, c caller.Caller, id, event string) (bool, error) {
	r.change.Lock()
	defer r.change.Unlock()
	if !slices.ContainsFunc(r.of(c.Account()), func(s *session) bool { return s.id == id }) {
		return false, nil
	}
	err := r.write(ctx, store.Durable, func(ctx context.Context, tx *sql.Tx) error {
		if err := deleteSessions(ctx, tx, []string{id}); err != nil {
			return err
		}
		return r.cfg.Record(ctx, tx, audit.Entry{Kind: "session", Event: event, Caller: c.String(), Session: c.Session(), Subject: id, Outcome: "done"})
	}, func() { r.forget([]string{id}) })
	return err == nil, err
}

// Logout ends the caller's own session. One that has ended already is no error.
func (r *Room) Logout(ctx context.Context, c caller.Caller) error {
	ok, err := r.end(ctx, c, c.Session(), "logout")
	if ok {
		r.told(c.Account(), []string{c.Session()}, false)
	}
	return err
}

// Run keeps the file up with the memory until ctx ends: last uses are written, expired sessions removed.
func (r *Room) Run(ctx context.Context) {
	tick := time.NewTicker(time.Minute)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			r.sweepLogged(context.WithoutCancel(ctx))
			return
		}
		r.sweepLogged(ctx)
	}
}

func (r *Room) sweepLogged(ctx context.Context) {
	if err := r.Sweep(ctx); err != nil {
		r.cfg.Log.Warn("the last uses of sessions were not written; they will be again in a minute", "err", err)
	}
}

// Sweep writes last uses and removes expired sessions, once.
func (r *Room) Sweep(ctx context.Context) error {
	over, err := r.sweep(ctx)
	for account, ids := range over {
		r.told(account, ids, false)
	}
	return err
}

func (r *Room) sweep(ctx context.Context) (map[int64][]string, error) {
	r.change.Lock()
	defer r.change.Unlock()
	over := map[int64][]string{}
	var gone []string
	used := map[*session]int64{}
	now := r.cfg.Now()
	r.mu.RLock()
	for _, s := range r.sessions {
		seen := s.seen.Load()
		switch {
		case !now.Before(s.expires()):
			over[s.account] = append(over[s.account], s.id)
			gone = append(gone, s.id)
		case seen != s.saved:
			used[s] = seen
		}
	}
	r.mu.RUnlock()
	if len(gone) == 0 && len(used) == 0 {
		return nil, nil
	}
	err := r.write(ctx, store.Relaxed, func(ctx context.Context, tx *sql.Tx) error {
		for s, seen := range used {
			if _, err := tx.ExecContext(ctx, "UPDATE session SET last_seen = ? WHERE id = ?", seen, s.id); err != nil {
				return err
			}
		}
		return deleteSessions(ctx, tx, gone)
	}, func() {
		r.forget(gone)
		for s, seen := range used {
			s.saved = seen
		}
	})
	if err != nil {
		return nil, err
	}
	return over, nil
}

func (r *Room) loadSessions(ctx context.Context) error {
	rows, err := r.cfg.DB.Reader().QueryContext(ctx, "SELECT id, token, account, address, created_at, last_seen FROM session")
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		s := new(session)
		var token []byte
		var created int64
		if err := rows.Scan(&s.id, &token, &s.account, &s.address, &created, &s.saved); err != nil {
			return err
		}
		if len(token) != len(s.token) || r.accounts[s.account] == nil {
			return store.ErrDamaged
		}
		s.token = tokenHash(token)
		s.created = time.Unix(created, 0)
		s.seen.Store(s.saved)
		r.tokens[s.token], r.sessions[s.id] = s, s
	}
	return rows.Err()
}
