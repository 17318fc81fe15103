// Package account holds the people who may use the node, and their sessions. It is the one place that makes an
// operator's caller.Caller. It speaks no HTTP and sets no cookie: httpd does.
package account

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"time"

	"atoll/internal/audit"
	"atoll/internal/caller"
	"atoll/internal/fault"
	"atoll/internal/store"
)

// Schema is the room's tables in the node's file. Account numbers are never given twice: files are named by them (H1).
func Schema() store.Schema {
	return store.Schema{Room: "account", Steps: []string{`
CREATE TABLE account (
	id         INTEGER PRIMARY KEY AUTOINCREMENT,
	name       TEXT NOT NULL UNIQUE,
	role       TEXT NOT NULL,
	password   TEXT NOT NULL,    -- Argon2id, in the PHC string format
	created_at INTEGER NOT NULL  -- Unix seconds, like every time here
);
CREATE TABLE session (
	id         TEXT PRIMARY KEY, -- the public identifier
	token      BLOB NOT NULL UNIQUE, -- SHA-256 of the token
	account    INTEGER NOT NULL REFERENCES account (id) ON DELETE CASCADE,
	address    TEXT NOT NULL,
	created_at INTEGER NOT NULL,
	last_seen  INTEGER NOT NULL
) WITHOUT ROWID`}}
}

// Bounds of a session and of an account's sessions (G6).
const (
	Idle        = 7 * 24 * time.Hour  // a session unused for this long is over
	Absolute    = 30 * 24 * time.Hour // and so is one this old
	maxSessions = 32                  // an account's; a further login ends the one unused for longest
)

// Ended tells which sessions of an account are over.
type Ended struct {
	Account  int64
	Sessions []string // public identifiers; may be empty when Changed
	Changed  bool     // password or role changed, or the account was removed: standing permissions end too (C11)
}

// Config is what a Room needs.
type Config struct {
	DB  *store.DB        // holds Schema
	Now func() time.Time // nil means time.Now
	// Record writes to the audit in the transaction of what it speaks of; if it fails, nothing was changed.
	Record func(context.Context, *sql.Tx, audit.Entry) error
	// Altered joins the transaction that changes an account's password or role or removes it: what was built on them ends
	// with it, however the process ends. An error changes nothing. Nil does nothing.
	Altered func(ctx context.Context, tx *sql.Tx, account int64) error
	// OnEnded is told after sessions ended, for streams and pendings. It may call Resolve and Alive.
	OnEnded func(Ended)
	Log     *slog.Logger
}

// Room holds the accounts and sessions of one node. It is safe for concurrent use. What is in the file is also in
// memory, so that resolving a session reads no disk; one Room owns the tables.
type Room struct {
	cfg    Config
	hasher hasher
	slow   slowdown

	change sync.Mutex // held over a change of file and memory; taken before mu

	mu       sync.RWMutex // guards the maps, and the fields of what they hold
	accounts map[int64]*person
	names    map[string]*person
	tokens   map[tokenHash]*session
	sessions map[string]*session // by public identifier
	setup    setupToken
}

type person struct {
	id       int64
	name     string
	role     caller.Role
	password string // PHC string
	created  time.Time
}

type tokenHash [sha256.Size]byte

// New reads accounts and sessions. Expired sessions are left for Sweep; they resolve no more.
func New(ctx context.Context, cfg Config) (*Room, error) {
	if cfg.DB == nil || cfg.Record == nil || cfg.OnEnded == nil || cfg.Log == nil {
		return nil, errors.New("account: the Config is not complete")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	r := &Room{cfg: cfg, hasher: newHasher(hashMemory), accounts: map[int64]*person{}, names: map[string]*person{},
		tokens: map[tokenHash]*session{}, sessions: map[string]*session{}}
	r.slow = newSlowdown(cfg.Now)
	if err := errors.Join(r.loadAccounts(ctx), r.loadSessions(ctx)); err != nil {
		return nil, fmt.Errorf("account: %w", err)
	}
	return r, nil
}

func (r *Room) loadAccounts(ctx context.Context) error {
	rows, err := r.cfg.DB.Reader().QueryContext(ctx, "SELECT id, name, role, password, created_at FROM account")
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var p person
		var role string
		var created int64
		if err := rows.Scan(&p.id, &p.name, &role, &p.password, &created); err != nil {
			return err
		}
		if p.role, err = caller.ParseRole(role); err != nil {
			return fmt.Errorf("%w: account %d: %w", store.ErrDamaged, p.id, err)
		}
		if _, err := parseHash(p.password); err != nil {
			return fmt.Errorf("%w: account %d: %w", store.ErrDamaged, p.id, err)
		}
		p.created = time.Unix(created, 0)
		r.accounts[p.id], r.names[p.name] = &p, &p
	}
	return rows.Err()
}

// write changes the file, and then the memory by apply. r.change must be held.
func (r *Room) write(ctx context.Context, how store.Durability, f func(context.Context, *sql.Tx) error, apply func()) error {
	if err := r.cfg.DB.Write(ctx, how, f); err != nil {
		if _, ok := errors.AsType[*fault.Error](err); ok {
			return err
		}
		return fault.Wrap(err, fault.Unavailable, "the accounts cannot be written, so nothing was changed; is the disk full or read-only?")
	}
	if how == store.Durable { // a lost log opens no set-up (G7), and brings back no password, role or session
		r.cfg.DB.Settle(ctx)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	apply()
	return nil
}

// nameShape is a name before folding. It is checked first: other letters may fold to these.
var nameShape = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,31}$`)

// fold gives the one form of a name; ok is false where no account can have it.
func fold(name string) (folded string, ok bool) {
	if !nameShape.MatchString(name) {
		return "", false
	}
	return strings.ToLower(name), true
}

// checkName folds the name of a new account.
func checkName(name string) (string, error) {
	folded, ok := fold(name)
	if !ok {
		return "", fault.New(fault.InvalidParams, "a username is 1 to 32 of the letters a-z, digits, dot, underscore and hyphen, and begins with a letter or digit").At("username")
	}
	return folded, nil
}

// find returns the account of that name, or nil.
func (r *Room) find(name string) *person {
	folded, ok := fold(name)
	if !ok {
		return nil
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.names[folded]
}

// HasOwner reports whether the node has been set up.
func (r *Room) HasOwner() bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.owners() > 0
}

// owners counts them; mu is held.
func (r *Room) owners() int {
	n := 0
	for _, p := range r.accounts {
		if p.role == caller.Owner {
			n++
		}
	}
	return n
}

// newToken makes 256 random bits as text.
func newToken() string { return randomHex(32) }

func randomHex(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

func hashToken(token string) tokenHash { return sha256.Sum256([]byte(token)) }
