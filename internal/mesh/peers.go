package mesh

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"

	"atoll/internal/audit"
	"atoll/internal/caller"
	"atoll/internal/fault"
	"atoll/internal/fence"
	"atoll/internal/store"
)

// Bounds of what is known about peers.
const (
	maxPeers   = 256
	maxAsking  = 16 // nodes that used an invite and wait for the owner
	maxName    = 64 // characters of a name or label
	maxAddrs   = 8  // addresses kept a peer
	maxFolders = 64
)

const contentCategory = "content"

// Schema is the room's tables. Times are milliseconds since 1970. state holds the generation of the trust in peers,
// which only grows, and whether everything is held after an old copy was restored.
func Schema() store.Schema {
	return store.Schema{Room: "mesh", Steps: []string{`
CREATE TABLE mesh_peer (
	key        TEXT PRIMARY KEY,
	state      TEXT NOT NULL,
	name       TEXT NOT NULL,
	label      TEXT NOT NULL,
	categories TEXT NOT NULL, -- JSON lists
	folders    TEXT NOT NULL,
	asking     INTEGER NOT NULL,
	addrs      TEXT NOT NULL,
	since      INTEGER NOT NULL,
	seen       INTEGER NOT NULL,
	statement  BLOB NOT NULL -- the newest that the peer signed about its own generation
) WITHOUT ROWID;
CREATE TABLE mesh_invite (
	hash    BLOB PRIMARY KEY, -- SHA-256 of the secret
	from_at INTEGER NOT NULL,
	till_at INTEGER NOT NULL,
	used_by TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE mesh_item (
	peer     TEXT NOT NULL,
	path     TEXT NOT NULL,
	size     INTEGER NOT NULL,
	modified INTEGER NOT NULL,
	sha256   BLOB NOT NULL,
	PRIMARY KEY (peer, path)
) WITHOUT ROWID;
CREATE TABLE mesh_state (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID`, `
CREATE TABLE mesh_run (id BLOB PRIMARY KEY) WITHOUT ROWID -- every start of this node with the mesh on`}}
}

// State is how this node stands to another.
type State string

// The states. A node that is none of them is a stranger.
const (
	asking  State = "asking"  // it used an invite; the owner has not answered
	paired  State = "paired"  // the owner let it in
	blocked State = "blocked" // it gets no connection
)

// Ceiling is the most that the owner lets a peer have; what the owner's own assistant has not, it has not either (A5).
type Ceiling struct {
	Categories []string `json:"categories"`
	Folders    []string `json:"folders"` // of the shared content; "" is all of it
	// Asking says that the owner is asked about a change that the peer wants (M3); otherwise it is refused.
	Asking bool `json:"asking"`
}

// peer is one other node. Its key is the libp2p peer id of its Ed25519 key, or the id of a radio's node.
type peer struct {
	key       string
	state     State
	name      string // its own word: untrusted text (M4)
	label     string // the owner's
	ceiling   Ceiling
	addrs     []string
	since     time.Time
	seen      time.Time
	statement []byte

	// not kept:
	admits  bool // it said that it lets this node in
	version string
	figures *Figures
	shared  shared
}

// shared is what was last received of a peer's catalogue.
type shared struct {
	Files     int       `json:"files"`
	Bytes     int64     `json:"bytes"`
	Truncated bool      `json:"truncated,omitzero"`
	At        time.Time `json:"at,omitzero"`
}

func (p *peer) clone() *peer {
	next := *p
	return &next
}

// called is what people read: the owner's label, else the peer's own name as a quotation, else the end of its key.
func (p *peer) called() string {
	switch {
	case p.label != "":
		return p.label
	case p.name != "":
		return quoted(p.name)
	}
	return "…" + p.key[max(0, len(p.key)-8):]
}

// quoted puts another node's words where they cannot be taken for the host's: visible, in quotation marks that they cannot
// close.
func quoted(words string) string {
	shown, _ := fence.Visible(words)
	return "“" + strings.NewReplacer("“", "‘", "”", "’").Replace(shown) + "”"
}

// plainName cuts another node's name to something that can be kept.
func plainName(s string) string {
	s = strings.TrimSpace(strings.ToValidUTF8(s, "\uFFFD"))
	for i := range s {
		if utf8.RuneCountInString(s[:i]) == maxName {
			return s[:i]
		}
	}
	return s
}

func (r *Room) peer(key string) *peer {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.peers[key]
}

// snapshot lists the peers, by what people call them.
func (r *Room) snapshot() []*peer {
	r.mu.RLock()
	out := slices.Collect(maps.Values(r.peers))
	r.mu.RUnlock()
	slices.SortFunc(out, func(a, b *peer) int {
		return strings.Compare(strings.ToLower(a.called())+"\x00"+a.key, strings.ToLower(b.called())+"\x00"+b.key)
	})
	return out
}

// Labels lists the names that the owner gave to peers, sorted. A peer's own name is none.
func (r *Room) Labels() []string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	var out []string
	for _, p := range r.peers {
		if p.label != "" {
			out = append(out, p.label)
		}
	}
	slices.Sort(out)
	return out
}

// find takes a peer's key, a label, or the last eight or more characters of a key. A peer's own name finds nothing: it is
// its own word, and could be another's.
func (r *Room) find(word string) (*peer, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if p := r.peers[word]; p != nil {
		return p, nil
	}
	var found []*peer
	for _, p := range r.peers {
		if word != "" && (strings.EqualFold(p.label, word) || len(word) >= 8 && strings.HasSuffix(p.key, word)) {
			found = append(found, p)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return nil, fault.New(fault.NotFound, "there is no such peer; name it by its label or its key (atoll mesh peers lists them)").At("peer")
	}
	return nil, fault.New(fault.InvalidParams, "%d peers fit; name the whole key", len(found)).At("peer")
}

// load reads what was kept. A row that cannot be read is left out and said: a peer less is safer than a wrong one.
func (r *Room) load(ctx context.Context) error {
	rows, err := r.cfg.DB.Reader().QueryContext(ctx, "SELECT key, state, name, label, categories, folders, asking, addrs, since, seen, statement FROM mesh_peer")
	if err != nil {
		return fmt.Errorf("mesh: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		p, err := scan(rows)
		if err != nil {
			r.cfg.Log.Error("a peer's record is damaged and left out", "err", err)
			continue
		}
		if isRadioKey(p.key) && !r.isRadio(p.key) {
			continue // no longer configured, so it may nothing
		}
		r.peers[p.key] = p
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("mesh: %w", err)
	}
	for _, key := range r.cfg.Radio {
		if r.peers[key] == nil {
			r.peers[key] = &peer{key: key, state: paired, since: r.cfg.Clock.Now()}
		}
	}
	if err := r.loadState(ctx); err != nil {
		return fmt.Errorf("mesh: %w", err)
	}
	if err := r.loadShared(ctx); err != nil {
		return fmt.Errorf("mesh: %w", err)
	}
	return r.loadInvites(ctx)
}

func scan(rows *sql.Rows) (*peer, error) {
	p := &peer{}
	var categories, folders, addrs string
	var since, seen int64
	if err := rows.Scan(&p.key, &p.state, &p.name, &p.label, &categories, &folders, &p.ceiling.Asking, &addrs, &since, &seen, &p.statement); err != nil {
		return nil, err
	}
	for text, list := range map[string]*[]string{categories: &p.ceiling.Categories, folders: &p.ceiling.Folders, addrs: &p.addrs} {
		if err := json.Unmarshal([]byte(text), list); err != nil {
			return nil, err
		}
	}
	if p.state != asking && p.state != paired && p.state != blocked {
		return nil, fmt.Errorf("unknown state %q", p.state)
	}
	p.since, p.seen = time.UnixMilli(since), time.UnixMilli(seen)
	return p, nil
}

func (r *Room) loadState(ctx context.Context) error {
	rows, err := r.cfg.DB.Reader().QueryContext(ctx, "SELECT name, value FROM mesh_state")
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		var value int64
		if err := rows.Scan(&name, &value); err != nil {
			return err
		}
		switch name {
		case "generation":
			r.generation = uint64(value)
		case "held":
			r.held = value != 0
		}
	}
	return rows.Err()
}

// change writes a peer's new record, or takes it out where next is nil, with its audit record, and then the memory. Each
// change of trust is a new generation.
func (r *Room) change(ctx context.Context, key string, next *peer, e audit.Entry, more ...func(context.Context, *sql.Tx) error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changeLocked(ctx, key, next, e, more...)
}

func (r *Room) changeLocked(ctx context.Context, key string, next *peer, e audit.Entry, more ...func(context.Context, *sql.Tx) error) error {
	generation := r.generation + 1
	err := r.cfg.DB.Write(ctx, store.Durable, func(ctx context.Context, tx *sql.Tx) error {
		if err := putPeer(ctx, tx, key, next); err != nil {
			return err
		}
		for _, f := range more {
			if err := f(ctx, tx); err != nil {
				return err
			}
		}
		if err := putState(ctx, tx, "generation", int64(generation)); err != nil {
			return err
		}
		e.Kind, e.Subject = "mesh", key
		return r.cfg.Record(ctx, tx, e)
	})
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, "this cannot be written down, so nothing was changed")
	}
	r.cfg.DB.Settle(ctx) // a lost log brings back nobody who was blocked
	r.generation = generation
	if next == nil {
		delete(r.peers, key)
	} else {
		r.peers[key] = next
	}
	r.cfg.Changed()
	return nil
}

func putState(ctx context.Context, tx *sql.Tx, name string, value int64) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO mesh_state VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value", name, value)
	return err
}

func putPeer(ctx context.Context, tx *sql.Tx, key string, p *peer) error {
	if p == nil {
		_, err := tx.ExecContext(ctx, "DELETE FROM mesh_peer WHERE key = ?", key)
		return err
	}
	list := func(v []string) string {
		raw, _ := json.Marshal(append([]string{}, v...)) // a list of valid texts never fails
		return string(raw)
	}
	_, err := tx.ExecContext(ctx, "INSERT OR REPLACE INTO mesh_peer VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", key, string(p.state), p.name, p.label,
		list(p.ceiling.Categories), list(p.ceiling.Folders), p.ceiling.Asking, list(p.addrs), p.since.UnixMilli(), p.seen.UnixMilli(), append([]byte{}, p.statement...))
	return err
}

// note keeps what a peer told about itself. It changes no trust and is no generation.
func (r *Room) note(ctx context.Context, key string, f func(*peer)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.peers[key]
	if p == nil {
		return
	}
	next := p.clone()
	f(next)
	if err := r.cfg.DB.Write(ctx, store.Relaxed, func(ctx context.Context, tx *sql.Tx) error { return putPeer(ctx, tx, key, next) }); err != nil {
		r.cfg.Log.Error("what a peer said was not kept", "err", err)
	}
	r.peers[key] = next
	r.cfg.Changed()
}

// by is the audit's form of who changed something.
func by(c caller.Caller, event, detail string) audit.Entry {
	return audit.Entry{Event: event, Caller: c.String(), Session: c.Session(), Outcome: "done", Detail: detail}
}

// setState moves a known peer from one of the named states to another and takes down what it has open.
func (r *Room) setState(ctx context.Context, c caller.Caller, word string, from []State, to State, event string) (*peer, error) {
	p, err := r.find(word)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	p = r.peers[p.key]
	if p == nil || !slices.Contains(from, p.state) {
		r.mu.Unlock()
		return nil, fault.New(fault.Rule, "the peer is not in a state for that; atoll mesh peers shows it").At("peer")
	}
	next := p.clone()
	next.state, next.since = to, r.cfg.Clock.Now()
	if to == paired {
		next.ceiling = Ceiling{} // nothing is shared by default
	}
	err = r.changeLocked(ctx, p.key, next, by(c, event, ""))
	r.mu.Unlock()
	if err == nil && to != paired {
		r.takeDown(p.key)
	}
	return next, err
}

// RadioKey is the key of a radio's node, "!a1b2c3d4": no node's key of the transport looks like it.
func RadioKey(node string) string { return "radio" + node }

func isRadioKey(key string) bool { return strings.HasPrefix(key, "radio!") }

// takeDown ends what a peer has open: its turns first, then its connections.
func (r *Room) takeDown(key string) {
	r.cfg.Cancel(key)
	r.host.Disconnect(key)
}
