// Package grant keeps what the owner lets the assistant use: a set of categories, closed by default, and one switch
// (A1–A5). It runs nothing and asks nobody.
package grant

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/renameio/v2"

	"atoll/internal/audit"
	"atoll/internal/caller"
	"atoll/internal/clock"
	"atoll/internal/fault"
	"atoll/internal/folder"
	"atoll/internal/store"
)

// Category is what a tool touches.
type Category string

// The closed list of categories (SPEC section 1).
const (
	System   Category = "system"
	Apps     Category = "apps"
	Content  Category = "content"
	Files    Category = "files"
	Mesh     Category = "mesh"
	Settings Category = "settings"
	Wallet   Category = "wallet"
)

// Categories lists all of them, in the order people see.
func Categories() []Category {
	return []Category{System, Apps, Content, Files, Mesh, Settings, Wallet}
}

// Private reports whether arguments and results of the category must never reach the disk (H3).
func (c Category) Private() bool { return c == Wallet || c == Files }

// Mode is the one switch of the assistant (A4).
type Mode string

// The modes. Off refuses at once; ReadOnly offers and runs no destructive tool; Confirm is the default.
const (
	Off      Mode = "off"
	ReadOnly Mode = "read-only"
	Confirm  Mode = "confirm"
)

// Config is what a Room needs.
type Config struct {
	Path  string // DATA/assistant/grants.json
	Clock clock.Clock
	Log   *slog.Logger
	// Ceiling is what the owner allowed one peer; nil, or an empty answer, is nothing (A5).
	Ceiling func(peerKey string) []Category
	// Record writes to the audit; a change whose record fails is not made.
	Record func(context.Context, audit.Entry) error
	// OnMode is told after the mode changed.
	OnMode func(Mode)
	// OnDamaged is told when the file could not be read; aside is where it was put.
	OnDamaged func(aside string, err error)
}

// Room holds the live grants. It is safe for concurrent use.
type Room struct {
	cfg Config

	mu     sync.RWMutex // guards the rest
	mode   Mode
	grants map[Category]live
}

type live struct {
	forGood bool
	span    clock.Span
}

func (l live) open(c clock.Clock) bool { return l.forGood || !l.span.Over(c) }

// file is the form on disk.
type file struct {
	Mode   Mode                   `json:"mode"`
	Grants map[Category]fileGrant `json:"grants"`
}

// maxFile bounds it, in bytes.
const maxFile = 64 << 10

// fileGrant is either for good or has both times; anything else is damage.
type fileGrant struct {
	ForGood bool      `json:"for_good,omitzero"`
	From    time.Time `json:"from,omitzero"` // when a timed grant was given
	Expires time.Time `json:"expires_at,omitzero"`
}

// New reads the grants. A missing file is closed; a damaged one is closed, set aside and reported, and the mode is
// read-only until the owner sets it (A1).
func New(cfg Config) (*Room, error) {
	if cfg.Path == "" || cfg.Log == nil || cfg.Record == nil {
		return nil, errors.New("grant: a path, a log and a record are needed")
	}
	r := &Room{cfg: cfg, mode: Confirm, grants: map[Category]live{}}
	if err := os.MkdirAll(filepath.Dir(cfg.Path), 0o700); err != nil {
		return nil, fmt.Errorf("grant: %w", err)
	}
	raw, err := folder.ReadSmall(cfg.Path, maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err == nil {
		err = r.load(raw)
	}
	if err != nil {
		r.setAside(err)
		return r, nil
	}
	r.closeEnded()
	return r, os.Chmod(cfg.Path, 0o600)
}

func (r *Room) load(raw []byte) error {
	var f file
	if err := json.Unmarshal(raw, &f, json.RejectUnknownMembers(true)); err != nil {
		return err
	}
	if !slices.Contains([]Mode{Off, ReadOnly, Confirm}, f.Mode) {
		return fmt.Errorf("unknown mode %q", f.Mode)
	}
	grants := map[Category]live{}
	for cat, g := range f.Grants {
		if !slices.Contains(Categories(), cat) {
			return fmt.Errorf("unknown category %q", cat)
		}
		timed := !g.From.IsZero() && g.Expires.After(g.From)
		switch {
		case g.ForGood && g.From.IsZero() && g.Expires.IsZero():
			grants[cat] = live{forGood: true}
		case timed && !g.ForGood:
			grants[cat] = live{span: r.cfg.Clock.Resume(g.From, g.Expires)}
		default:
			return fmt.Errorf("the grant of %q is neither for good nor for a time", cat)
		}
	}
	r.mode, r.grants = f.Mode, grants
	return nil
}

// setAside keeps the damaged file under another name and puts a closed one in its place, so that the mode is still
// read-only after the next start.
func (r *Room) setAside(cause error) {
	aside, err := store.SetAside(r.cfg.Path, r.cfg.Clock.Now().UTC().Format("20060102T150405Z"))
	if err == nil {
		err = r.write(ReadOnly, map[Category]live{})
	} else {
		aside = r.cfg.Path
	}
	if err != nil {
		r.mode = ReadOnly
		r.cfg.Log.Error("the damaged grants file could not be replaced; grants stay closed", "err", err)
	}
	r.cfg.Log.Error("the grants file is damaged; every category is closed", "file", aside, "err", cause)
	if r.cfg.OnDamaged != nil {
		r.cfg.OnDamaged(aside, cause)
	}
}

// Open reports whether the caller's assistant may use the category now. Operators share the owner's grants; a peer has
// what the owner allowed it and the owner's own assistant has too; nobody has nothing.
func (r *Room) Open(c caller.Caller, cat Category) bool {
	switch {
	case c.IsPeer():
		if r.cfg.Ceiling == nil || !slices.Contains(r.cfg.Ceiling(c.PeerKey()), cat) {
			return false
		}
	case !c.IsOperator():
		return false
	}
	r.mu.RLock()
	g, ok := r.grants[cat]
	r.mu.RUnlock()
	if ok && !g.open(r.cfg.Clock) {
		r.closeEnded()
		return false
	}
	return ok
}

// closeEnded takes out the timed grants that are over, so that a clock set right again, or set back later, opens none of
// them (C4). Where the file cannot be written they are closed until the next start.
func (r *Room) closeEnded() {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := map[Category]live{}
	for cat, g := range r.grants {
		if g.open(r.cfg.Clock) {
			next[cat] = g
		}
	}
	if len(next) == len(r.grants) {
		return
	}
	if err := r.write(r.mode, next); err != nil {
		r.grants = next
		r.cfg.Log.Error("the end of a grant was not written down; it is closed all the same", "err", err)
	}
}

// Mode is the switch's position.
func (r *Room) Mode() Mode {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.mode
}

// State is one category's grant as the owner sees it.
type State struct {
	Granted   bool      `json:"granted"`
	ExpiresAt time.Time `json:"expires_at,omitzero"`
}

// States lists every category.
func (r *Room) States() map[Category]State {
	r.closeEnded()
	r.mu.RLock()
	defer r.mu.RUnlock()
	out := map[Category]State{}
	for _, cat := range Categories() {
		g := r.grants[cat]
		s := State{Granted: g.open(r.cfg.Clock)}
		if s.Granted && !g.forGood {
			s.ExpiresAt = g.span.Until()
		}
		out[cat] = s
	}
	return out
}

// set changes the named categories and writes the file; on an error nothing has changed.
func (r *Room) set(ctx context.Context, c caller.Caller, change map[Category]State) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := map[Category]live{}
	for cat, g := range r.grants {
		if g.open(r.cfg.Clock) {
			next[cat] = g
		}
	}
	for _, cat := range Categories() {
		s, named := change[cat]
		if !named {
			continue
		}
		e := audit.Entry{Kind: "grant", Event: "close", Caller: c.String(), Session: c.Session(), Subject: string(cat)}
		switch {
		case !s.Granted:
			delete(next, cat)
		case s.ExpiresAt.IsZero():
			next[cat], e.Event, e.Detail = live{forGood: true}, "open", "for good"
		default:
			span := r.cfg.Clock.Span(s.ExpiresAt.Sub(r.cfg.Clock.Now()))
			next[cat], e.Event, e.Detail = live{span: span}, "open", "until "+s.ExpiresAt.UTC().Format(time.RFC3339)
		}
		if err := r.cfg.Record(ctx, e); err != nil {
			return fault.Wrap(err, fault.Unavailable, "the audit record cannot be written, so nothing was changed")
		}
	}
	return r.write(r.mode, next)
}

// write puts the file in place and then the memory; r.mu is held.
func (r *Room) write(mode Mode, grants map[Category]live) error {
	f := file{Mode: mode, Grants: map[Category]fileGrant{}}
	for cat, g := range grants {
		if g.forGood {
			f.Grants[cat] = fileGrant{ForGood: true}
		} else {
			f.Grants[cat] = fileGrant{From: g.span.From(), Expires: g.span.Until()}
		}
	}
	raw, err := json.Marshal(f, json.Deterministic(true), jsontext.WithIndent("  "))
	if err == nil {
		err = renameio.WriteFile(r.cfg.Path, append(raw, '\n'), 0o600, renameio.IgnoreUmask())
	}
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, "the grants file cannot be written, so nothing was changed; is the disk full or read-only?")
	}
	r.mode, r.grants = mode, grants
	return nil
}
