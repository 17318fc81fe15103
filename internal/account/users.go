package account

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"time"

	"atoll/internal/audit"
	"atoll/internal/caller"
	"atoll/internal/fault"
	"atoll/internal/secret"
	"atoll/internal/store"
)

// local is how the audit names who works on the data directory itself.
const local = "local command"

// User is an account as the owner sees it.
type User struct {
	Username  string    `json:"username"`
	Role      string    `json:"role"`
	CreatedAt time.Time `json:"created_at"`
	Sessions  int       `json:"sessions"`
	LastSeen  time.Time `json:"last_seen,omitzero"` // of its live sessions
}

// Users lists the accounts by name.
func (r *Room) Users() []User {
	r.mu.RLock()
	defer r.mu.RUnlock()
	now := r.cfg.Now()
	byID := map[int64]*User{}
	for id, p := range r.accounts {
		byID[id] = &User{Username: p.name, Role: p.role.String(), CreatedAt: p.created.UTC()}
	}
	for _, s := range r.sessions {
		if u := byID[s.account]; now.Before(s.expires()) {
			u.Sessions++
			if seen := s.lastSeen().UTC(); seen.After(u.LastSeen) {
				u.LastSeen = seen
			}
		}
	}
	out := make([]User, 0, len(byID))
	for _, u := range byID {
		out = append(out, *u)
	}
	slices.SortFunc(out, func(a, b User) int { return cmp.Compare(a.Username, b.Username) })
	return out
}

// newPerson checks and hashes; nothing is written. No lock may be held: a hash takes long.
func (r *Room) newPerson(ctx context.Context, name string, role caller.Role, password string) (*person, error) {
	name, err := checkName(name)
	if err != nil {
		return nil, err
	}
	if err := checkPassword("password", name, password); err != nil {
		return nil, err
	}
	if r.find(name) != nil {
		return nil, nameTaken(name)
	}
	hashed, err := r.hasher.create(ctx, password)
	if err != nil {
		return nil, err
	}
	return &person{name: name, role: role, password: hashed, created: r.cfg.Now()}, nil
}

func nameTaken(name string) error {
	return fault.New(fault.Rule, "there is an account %q already", name).At("username")
}

func insertPerson(ctx context.Context, tx *sql.Tx, p *person) error {
	res, err := tx.ExecContext(ctx, "INSERT INTO account (name, role, password, created_at) VALUES (?, ?, ?, ?)",
		p.name, p.role.String(), p.password, p.created.Unix())
	if err != nil {
		return err
	}
	p.id, err = res.LastInsertId()
	return err
}

// Add makes an account from the local command line, where whoever may write the data directory is in charge.
func (r *Room) Add(ctx context.Context, name string, role caller.Role, password secret.String) error {
	if role == caller.Nobody {
		return fault.New(fault.InvalidParams, "role must be owner, member or viewer").At("role")
	}
	return r.add(ctx, audit.Entry{Caller: local}, name, role, password.Reveal())
}

// add takes in by who does it; the entry is completed here.
func (r *Room) add(ctx context.Context, by audit.Entry, name string, role caller.Role, password string) error {
	p, err := r.newPerson(ctx, name, role, password)
	if err != nil {
		return err
	}
	r.change.Lock()
	defer r.change.Unlock()
	if r.find(p.name) != nil {
		return nameTaken(p.name)
	}
	by.Kind, by.Event, by.Subject, by.Outcome, by.Detail = "account", "add", p.name, "done", "as "+role.String()
	return r.write(ctx, store.Durable, func(ctx context.Context, tx *sql.Tx) error {
		if err := insertPerson(ctx, tx, p); err != nil {
			return err
		}
		return r.cfg.Record(ctx, tx, by)
	}, func() { r.accounts[p.id], r.names[p.name] = p, p })
}

// alter replaces what an account is, or removes it where next returns nil, and ends its sessions. An error of next
// changes nothing.
func (r *Room) alter(ctx context.Context, by audit.Entry, name string, next func(person) (*person, error)) error {
	id, ended, err := r.alterLocked(ctx, by, name, next)
	if err == nil && id != 0 {
		r.told(id, ended, true)
	}
	return err
}

func (r *Room) alterLocked(ctx context.Context, by audit.Entry, name string, next func(person) (*person, error)) (int64, []string, error) {
	r.change.Lock()
	defer r.change.Unlock()
	p := r.find(name)
	if p == nil {
		return 0, nil, fault.New(fault.NotFound, "there is no account of that name; users.list shows them").At("username")
	}
	q, err := next(*p)
	if err != nil {
		return 0, nil, err
	}
	if q != nil && *q == *p {
		return 0, nil, nil
	}
	if p.role == caller.Owner && (q == nil || q.role != caller.Owner) && r.lastOwner() {
		return 0, nil, fault.New(fault.Rule, "%s is the last owner; make somebody else an owner first", p.name).At("username")
	}
	ended := ids(r.of(p.id))
	by.Kind, by.Subject, by.Outcome = "account", p.name, "done"
	err = r.write(ctx, store.Durable, func(ctx context.Context, tx *sql.Tx) error {
		if err := r.replacePerson(ctx, tx, p.id, q); err != nil {
			return err
		}
		return r.cfg.Record(ctx, tx, by)
	}, func() {
		r.forget(ended)
		r.put(p, q)
	})
	return p.id, ended, err
}

func (r *Room) lastOwner() bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.owners() == 1
}

// put replaces p by q in memory; mu is held.
func (r *Room) put(p, q *person) {
	if q == nil {
		delete(r.accounts, p.id)
		delete(r.names, p.name)
		return
	}
	r.accounts[p.id], r.names[p.name] = q, q
}

// replacePerson writes what an account is now and removes its sessions, and what Config.Altered does.
func (r *Room) replacePerson(ctx context.Context, tx *sql.Tx, id int64, q *person) error {
	if r.cfg.Altered != nil {
		if err := r.cfg.Altered(ctx, tx, id); err != nil {
			return err
		}
	}
	if _, err := tx.ExecContext(ctx, "DELETE FROM session WHERE account = ?", id); err != nil {
		return err
	}
	if q == nil {
		_, err := tx.ExecContext(ctx, "DELETE FROM account WHERE id = ?", id)
		return err
	}
	_, err := tx.ExecContext(ctx, "UPDATE account SET role = ?, password = ? WHERE id = ?", q.role.String(), q.password, id)
	return err
}

// SetPassword replaces a forgotten password from the local command line and ends the account's sessions.
func (r *Room) SetPassword(ctx context.Context, name string, password secret.String) error {
	p := r.find(name)
	if p == nil {
		return fault.New(fault.NotFound, "there is no account of that name").At("username")
	}
	if err := checkPassword("password", p.name, password.Reveal()); err != nil {
		return err
	}
	hashed, err := r.hasher.create(ctx, password.Reveal())
	if err != nil {
		return err
	}
	return r.alter(ctx, audit.Entry{Event: "passwd", Caller: local}, name, func(q person) (*person, error) {
		q.password = hashed
		return &q, nil
	})
}

// SetRole changes a role from the local command line and ends the account's sessions.
func (r *Room) SetRole(ctx context.Context, name string, role caller.Role) error {
	return r.setRole(ctx, audit.Entry{Caller: local}, name, role)
}

func (r *Room) setRole(ctx context.Context, by audit.Entry, name string, role caller.Role) error {
	by.Event, by.Detail = "set-role", "to "+role.String()
	return r.alter(ctx, by, name, func(q person) (*person, error) {
		q.role = role
		return &q, nil
	})
}

// Remove takes an account away from the local command line; the last owner stays.
func (r *Room) Remove(ctx context.Context, name string) error {
	return r.remove(ctx, audit.Entry{Caller: local}, name)
}

func (r *Room) remove(ctx context.Context, by audit.Entry, name string) error {
	by.Event = "remove"
	return r.alter(ctx, by, name, func(person) (*person, error) { return nil, nil })
}

// changePassword is auth.passwd: every session of the account ends, and the one that asked is followed by a new one.
func (r *Room) changePassword(ctx context.Context, c caller.Caller, in passwdParams) (Login, error) {
	p := r.find(c.Name())
	if p == nil || p.id != c.Account() {
		return Login{}, noSession()
	}
	if err := checkPassword("new", p.name, in.New); err != nil {
		return Login{}, err
	}
	if in.New == in.Old {
		return Login{}, fault.New(fault.InvalidParams, "the new password is the old one").At("new")
	}
	if err := r.prove(ctx, p, p.name, in.Old); err != nil {
		if fault.Is(err, fault.Unauthenticated) { // the session is not what is wrong
			return Login{}, fault.New(fault.InvalidParams, "the old password is wrong").At("old")
		}
		return Login{}, err
	}
	hashed, err := r.hasher.create(ctx, in.New)
	if err != nil {
		return Login{}, err
	}
	login, ended, err := r.replacePassword(ctx, c, p, hashed)
	if err != nil {
		return Login{}, err
	}
	r.told(p.id, ended, true)
	return login, nil
}

func (r *Room) replacePassword(ctx context.Context, c caller.Caller, p *person, hashed string) (Login, []string, error) {
	r.change.Lock()
	defer r.change.Unlock()
	if _, err := r.Alive(ctx, c); err != nil || !r.current(p) {
		return Login{}, nil, noSession()
	}
	q := *p
	q.password = hashed
	return r.open(ctx, store.Durable, opening{who: &q, address: c.Address(), ends: ids(r.of(p.id)),
		entry: audit.Entry{Kind: "account", Event: "passwd", Caller: c.String(), Subject: p.name, Outcome: "done"},
		also:  func(ctx context.Context, tx *sql.Tx) error { return r.replacePerson(ctx, tx, p.id, &q) },
		apply: func() { r.put(p, &q) }})
}

// NumberAfter makes new accounts begin after a number, in a file that has Schema and no accounts yet. What is named by an
// account's number elsewhere, like its history, then stays its own.
func NumberAfter(ctx context.Context, db *store.DB, last int64) error {
	return db.Write(ctx, store.Durable, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO sqlite_sequence (name, seq) SELECT 'account', ? WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = 'account')", last)
		return err
	})
}
