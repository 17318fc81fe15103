// Package setting keeps the few settings that may be changed while the node runs, and shows a few facts beside them
// (T5). It is not the configuration: what widens authority, names a machine to talk to or is secret lives in
// config.toml and secrets/, and has no key here.
package setting

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"atoll/internal/fault"
	"atoll/internal/fence"
	"atoll/internal/store"
)

// Schema is the table of values that differ from the default, each as its JSON text.
func Schema() store.Schema {
	return store.Schema{Room: "setting", Steps: []string{`
CREATE TABLE setting (
	key   TEXT PRIMARY KEY,
	value TEXT NOT NULL
) WITHOUT ROWID`}}
}

// Config is what a Room needs.
type Config struct {
	DB  *store.DB // has Schema
	Log *slog.Logger
	// Name is the node's name until one is set; one that would not be accepted becomes "atoll".
	Name    string
	Version string        // for node.version
	Backend string        // for assistant.backend: local, claude or openai
	Mode    func() string // for assistant.mode: off, read-only or confirm
	// OnChange is told the key after a value changed; may be nil.
	OnChange func(key string)
	// OnDamaged is told a key whose stored value is not acceptable; the default is in force and the row is left as it
	// is. May be nil.
	OnDamaged func(key string, err error)
}

// Room holds the settings. It is safe for concurrent use.
type Room struct {
	cfg Config

	writing sync.Mutex   // orders changes, so that memory and file agree
	mu      sync.RWMutex // guards values
	values  map[Key]any  // of every settable key: a fence.Word or an int64
}

// New reads the settings. A row that is damaged or of a key this version does not know is left alone and does not count.
func New(ctx context.Context, cfg Config) (*Room, error) {
	if cfg.DB == nil || cfg.Log == nil || cfg.Mode == nil {
		return nil, errors.New("setting: a database, a log and a mode are needed")
	}
	r := &Room{cfg: cfg, values: map[Key]any{}}
	for _, s := range settable() {
		r.values[s.key] = s.initial
	}
	if nameable(cfg.Name) {
		r.values[NodeName] = fence.Word(cfg.Name)
	}
	if err := r.load(ctx); err != nil {
		return nil, fmt.Errorf("setting: %w", err)
	}
	return r, nil
}

func (r *Room) load(ctx context.Context) error {
	rows, err := r.cfg.DB.Reader().QueryContext(ctx, "SELECT key, value FROM setting")
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var key, text sql.RawBytes
		if err := rows.Scan(&key, &text); err != nil {
			return err
		}
		s, known := find(Key(key))
		if !known {
			r.cfg.Log.Warn("a stored setting is not one that this version knows; it is ignored", "key", string(key))
			continue
		}
		value, err := s.parse(jsontext.Value(text))
		if err != nil {
			r.cfg.Log.Warn("a stored setting is damaged; the default is in force", "key", s.key, "default", s.initial)
			if r.cfg.OnDamaged != nil {
				r.cfg.OnDamaged(string(s.key), err)
			}
			continue
		}
		r.values[s.key] = value
	}
	return rows.Err()
}

func (r *Room) value(key Key) any {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.values[key]
}

// NodeName is what the owner calls this node.
func (r *Room) NodeName() string { return string(r.value(NodeName).(fence.Word)) }

// WarnPercent is how full a disk may be before it is marked.
func (r *Room) WarnPercent() int { return int(r.value(DiskWarnPercent).(int64)) }

// Keys lists the keys that can be set, in the order people see.
func (r *Room) Keys() []string {
	var out []string
	for _, s := range settable() {
		out = append(out, string(s.key))
	}
	return out
}

// set writes the file and then the memory; on an error nothing has changed.
func (r *Room) set(ctx context.Context, key Key, raw jsontext.Value) (change, error) {
	s, value, err := accept(key, raw)
	if err != nil {
		return change{}, err
	}
	r.writing.Lock()
	defer r.writing.Unlock()
	text := render(value)
	err = r.cfg.DB.Write(ctx, store.Durable, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "INSERT OR REPLACE INTO setting (key, value) VALUES (?, ?)", string(s.key), text)
		return err
	})
	if err != nil {
		return change{}, fault.Wrap(err, fault.Unavailable, "the setting cannot be written, so nothing was changed; is the disk full or read-only?")
	}
	r.mu.Lock()
	previous := r.values[s.key]
	r.values[s.key] = value
	r.mu.Unlock()
	if r.cfg.OnChange != nil {
		r.cfg.OnChange(string(s.key))
	}
	return change{Key: fence.Word(s.key), Value: value, Previous: previous}, nil
}
