// Package notice keeps what the owner should know: what happened and what to do about it (N1). It decides nothing and
// reaches nobody outside the node; beside it are the node's counters and the bursts that turn counts into notices.
package notice

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"atoll/internal/store"
)

// Kind is what a notice is about.
type Kind string

// The kinds. Security is about who may do what, Configuration about how the node is set up, Operation about how it runs.
const (
	Security      Kind = "security"
	Configuration Kind = "configuration"
	Operation     Kind = "operation"
)

// Severity is how soon somebody should look.
type Severity string

// The severities in rising order.
const (
	Info     Severity = "info"
	Warning  Severity = "warning"
	Critical Severity = "critical"
)

func kinds() []Kind          { return []Kind{Security, Configuration, Operation} }
func severities() []Severity { return []Severity{Info, Warning, Critical} }

// Notice is what is raised. What and Do are the host's own words; a stranger's name in them must have been made visible
// before.
type Notice struct {
	Kind     Kind
	Severity Severity
	// Key tells what is the same again: while a notice of the key stands unacknowledged, another one only adds to its
	// count.
	Key  string
	What string // what happened
	Do   string // what to do
}

// Item is a notice as it is kept and sent.
type Item struct {
	ID             int64     `json:"id"`
	Kind           Kind      `json:"kind"`
	Severity       Severity  `json:"severity"`
	What           string    `json:"what"`
	Do             string    `json:"do"`
	Count          int64     `json:"count"`
	FirstAt        time.Time `json:"first_at"`
	LastAt         time.Time `json:"last_at"`
	AcknowledgedAt time.Time `json:"acknowledged_at,omitzero"`
	AcknowledgedBy string    `json:"acknowledged_by,omitzero"`
}

// Schema is the table of notices. Times are milliseconds since 1970; an acked of zero means that it stands.
func Schema() store.Schema {
	return store.Schema{Room: "notice", Steps: []string{`
CREATE TABLE notice (
	id       INTEGER PRIMARY KEY AUTOINCREMENT,
	kind     TEXT NOT NULL,
	severity TEXT NOT NULL,
	key      TEXT NOT NULL,
	what     TEXT NOT NULL,
	todo     TEXT NOT NULL,
	count    INTEGER NOT NULL,
	first    INTEGER NOT NULL,
	last     INTEGER NOT NULL,
	acked    INTEGER NOT NULL DEFAULT 0,
	acked_by TEXT NOT NULL DEFAULT ''
);
CREATE UNIQUE INDEX notice_standing ON notice (key) WHERE acked = 0`}}
}

// Bounds of the table and of one notice.
const (
	maxKept = 1000 // notices; beyond it acknowledged ones go first, the oldest of them first
	maxKey  = 200  // bytes
	maxText = 1000 // characters of What and of Do
)

// tellEvery is how often a notice that repeats is told again.
const tellEvery = time.Minute

// Config is what a Room needs.
type Config struct {
	DB  *store.DB // has Schema
	Log *slog.Logger
	Now func() time.Time // nil means time.Now
	// OnNotice is told of a new notice, of one that repeats (once a minute at most), and of one that was acknowledged.
	// It must not block. May be nil.
	OnNotice func(Item)
}

// Room keeps the notices. It is safe for concurrent use.
type Room struct {
	cfg Config

	mu   sync.Mutex          // guards told
	told map[int64]time.Time // when a standing notice was last told
}

// New makes a Room on a file that has Schema.
func New(cfg Config) (*Room, error) {
	if cfg.DB == nil || cfg.Log == nil {
		return nil, errors.New("notice: a database and a log are needed")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Room{cfg: cfg, told: map[int64]time.Time{}}, nil
}

// Raise keeps a notice. It must not be called inside a transaction of the same file. An error means that it was not
// kept; it is logged too, so that a caller with nothing better to do may leave it.
func (r *Room) Raise(ctx context.Context, n Notice) error {
	if !slices.Contains(kinds(), n.Kind) || !slices.Contains(severities(), n.Severity) || n.Key == "" || len(n.Key) > maxKey || n.What == "" {
		err := fmt.Errorf("notice: %s/%s without a kind, a severity, a key or words", n.Kind, n.Key)
		r.cfg.Log.Error("a notice is not complete", "err", err)
		return err
	}
	n.What, n.Do = tidy(n.What), tidy(n.Do)
	how := store.Relaxed
	if n.Kind == Security {
		how = store.Durable
	}
	var item Item
	err := r.cfg.DB.Write(ctx, how, func(ctx context.Context, tx *sql.Tx) (err error) {
		item, err = r.put(ctx, tx, n)
		return err
	})
	if err != nil {
		r.cfg.Log.Error("a notice cannot be kept", "kind", n.Kind, "key", n.Key, "err", err)
		return fmt.Errorf("notice: %w", err)
	}
	r.tell(item)
	return nil
}

// put adds to the standing notice of the key, or makes one and drops what is too much.
func (r *Room) put(ctx context.Context, tx *sql.Tx, n Notice) (Item, error) {
	now := r.cfg.Now().UnixMilli()
	item, err := scan(tx.QueryRowContext(ctx, `
UPDATE notice SET kind = ?, severity = ?, what = ?, todo = ?, count = count + 1, last = ? WHERE key = ? AND acked = 0
RETURNING `+columns, n.Kind, n.Severity, n.What, n.Do, now, n.Key))
	if !errors.Is(err, sql.ErrNoRows) {
		return item, err
	}
	item, err = scan(tx.QueryRowContext(ctx, `
INSERT INTO notice (kind, severity, key, what, todo, count, first, last) VALUES (?, ?, ?, ?, ?, 1, ?, ?)
RETURNING `+columns, n.Kind, n.Severity, n.Key, n.What, n.Do, now, now))
	if err != nil {
		return Item{}, err
	}
	_, err = tx.ExecContext(ctx, `
DELETE FROM notice WHERE id IN (
	SELECT id FROM notice WHERE id <> ? ORDER BY acked = 0,
		CASE WHEN acked <> 0 THEN 0 WHEN severity = 'critical' THEN 2 WHEN severity = 'warning' THEN 1 ELSE 0 END, last, id
	LIMIT max(0, (SELECT count(*) FROM notice) - ?))`, item.ID, maxKept)
	return item, err
}

func (r *Room) tell(i Item) {
	if r.cfg.OnNotice == nil {
		return
	}
	now := r.cfg.Now()
	r.mu.Lock()
	last, known := r.told[i.ID]
	again := known && now.Sub(last) < tellEvery && !now.Before(last)
	if !again {
		if len(r.told) >= maxKept {
			clear(r.told)
		}
		r.told[i.ID] = now
	}
	r.mu.Unlock()
	if !again {
		r.cfg.OnNotice(i)
	}
}

// tidy makes a text fit for a row: UTF-8 and not longer than a person reads.
func tidy(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if utf8.RuneCountInString(s) <= maxText {
		return s
	}
	n := 0
	for i := range s {
		if n == maxText-1 {
			return s[:i] + "…"
		}
		n++
	}
	return s // unreachable unless the count above is wrong
}

const columns = "id, kind, severity, what, todo, count, first, last, acked, acked_by"

func scan(row interface{ Scan(...any) error }) (Item, error) {
	var i Item
	var first, last, acked int64
	if err := row.Scan(&i.ID, &i.Kind, &i.Severity, &i.What, &i.Do, &i.Count, &first, &last, &acked, &i.AcknowledgedBy); err != nil {
		return Item{}, err
	}
	i.FirstAt, i.LastAt = time.UnixMilli(first).UTC(), time.UnixMilli(last).UTC()
	if acked != 0 {
		i.AcknowledgedAt = time.UnixMilli(acked).UTC()
	}
	return i, nil
}

// List gives the notices, the latest first: of one kind, or of all for an empty kind; the acknowledged ones only with
// all. A damaged row is left out and logged.
func (r *Room) List(ctx context.Context, kind Kind, all bool) ([]Item, error) {
	rows, err := r.cfg.DB.Reader().QueryContext(ctx,
		"SELECT "+columns+" FROM notice WHERE (? = '' OR kind = ?) AND (? OR acked = 0) ORDER BY last DESC, id DESC LIMIT ?", kind, kind, all, maxKept)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	items := []Item{}
	for rows.Next() {
		i, err := scan(rows)
		if err != nil || !slices.Contains(kinds(), i.Kind) || !slices.Contains(severities(), i.Severity) {
			r.cfg.Log.Warn("a kept notice is damaged and left out", "err", err)
			continue
		}
		i.What, i.Do, i.AcknowledgedBy = tidy(i.What), tidy(i.Do), tidy(i.AcknowledgedBy)
		items = append(items, i)
	}
	return items, rows.Err()
}
