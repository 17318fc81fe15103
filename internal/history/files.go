package history

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"atoll/internal/caller"
	"atoll/internal/fault"
	"atoll/internal/store"
)

// everything stands for all conversations of a file where one is claimed.
const everything = 0

// file is one caller's history, open or not.
type file struct {
	name   string // without a folder
	path   string
	caller string

	warm    *window        // guarded by Room.mu: the conversation used last
	users   int            // guarded by Room.mu: operations and turns that hold it
	used    uint64         // guarded by Room.mu: when it was last taken
	claimed map[int64]bool // guarded by Room.mu: conversations with a turn, an undo or a deletion under way
	folding map[int64]bool // guarded by Room.mu: conversations whose summary is being written

	mu      sync.RWMutex // held for reading while db is used, for writing while it is opened, closed or set aside
	db      *store.DB
	damages []damage // set aside and not yet told
}

type damage struct {
	aside string
	cause error
}

// fileName is the name of the caller's file. A peer's key is hashed: whatever it holds, the name is plain and short.
func fileName(c caller.Caller) (string, error) {
	switch {
	case c.IsOperator() && c.Account() > 0:
		return "operator-" + strconv.FormatInt(c.Account(), 10) + ".db", nil
	case c.IsPeer() && c.PeerKey() != "":
		sum := sha256.Sum256([]byte(c.PeerKey()))
		return "peer-" + hex.EncodeToString(sum[:]) + ".db", nil
	}
	return "", fault.New(fault.Forbidden, "only an operator or a peer has a history").Doing("history")
}

// take finds the caller's file and holds it until give.
func (r *Room) take(c caller.Caller) (*file, error) {
	name, err := fileName(c)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, fault.New(fault.Unavailable, "the node is stopping").Doing("history")
	}
	f := r.files[name]
	if f == nil {
		f = &file{name: name, path: filepath.Join(r.cfg.Dir, name), caller: c.Key(), claimed: map[int64]bool{}}
		r.files[name] = f
	}
	f.users++
	r.clock++
	f.used = r.clock
	return f, nil
}

// give ends a take, and closes the file unused for longest when too many are open.
func (r *Room) give(f *file) {
	r.mu.Lock()
	f.users--
	var idle *file
	if len(r.files) > r.cfg.Open && !r.closed {
		for _, g := range r.files {
			if g.users == 0 && (idle == nil || g.used < idle.used) {
				idle = g
			}
		}
	}
	if idle != nil {
		idle.users++
	}
	r.mu.Unlock()
	if idle == nil {
		return
	}
	idle.mu.Lock()
	if err := idle.close(); err != nil {
		r.cfg.Log.Warn("history: closing a file", "file", idle.name, "err", err)
	}
	idle.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	if idle.users--; idle.users == 0 {
		delete(r.files, idle.name)
	}
}

// claim keeps a second turn, an undo and a deletion off a conversation until unclaim (F-D12).
func (r *Room) claim(f *file, conv int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if f.claimed[conv] || f.claimed[everything] || conv == everything && len(f.claimed) > 0 {
		return fault.New(fault.Busy, "a turn is running in this conversation; wait for it or stop it first").Doing("history")
	}
	f.claimed[conv] = true
	return nil
}

// claimNew keeps a deletion of everything off a conversation that has no number yet. It returns what to unclaim.
func (r *Room) claimNew(f *file) (int64, error) {
	r.mu.Lock()
	r.clock++
	stand := -int64(r.clock)
	r.mu.Unlock()
	return stand, r.claim(f, stand)
}

func (r *Room) unclaim(f *file, conv int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(f.claimed, conv)
}

// use runs op on the open file. A damaged one is set aside, and op runs once more, on a fresh file (H6).
func (r *Room) use(ctx context.Context, f *file, op func(*store.DB) error) error {
	err := r.once(ctx, f, op)
	if errors.Is(err, store.ErrDamaged) {
		err = r.once(ctx, f, op)
	}
	return explain(err)
}

func (r *Room) once(ctx context.Context, f *file, op func(*store.DB) error) error {
	defer r.tell(f)
	db, err := r.open(ctx, f)
	if err != nil {
		return err
	}
	err = func() error {
		defer f.mu.RUnlock()
		return op(db)
	}()
	if errors.Is(err, store.ErrDamaged) {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.db == db { // else somebody else met the same damage first
			if aside := r.setAside(f, err); aside != nil {
				return aside
			}
		}
	}
	return err
}

// open returns the file's database with f.mu held for reading.
func (r *Room) open(ctx context.Context, f *file) (*store.DB, error) {
	f.mu.RLock()
	for f.db == nil {
		f.mu.RUnlock()
		f.mu.Lock()
		err := r.openLocked(ctx, f)
		f.mu.Unlock()
		if err != nil {
			return nil, err
		}
		f.mu.RLock()
	}
	return f.db, nil
}

func (r *Room) openLocked(ctx context.Context, f *file) error {
	if f.db != nil {
		return nil
	}
	r.mu.Lock()
	closed := r.closed
	r.mu.Unlock()
	if closed {
		return fault.New(fault.Unavailable, "the node is stopping").Doing("history")
	}
	if err := os.MkdirAll(r.cfg.Dir, 0o700); err != nil {
		return err
	}
	for try := 0; ; try++ {
		err := fit(f.path)
		if err == nil {
			f.db, err = store.Open(ctx, store.Config{Path: f.path, Schemas: []store.Schema{schema()}, PageSize: pageSize})
		}
		if err == nil || !errors.Is(err, store.ErrDamaged) || try > 0 {
			return err
		}
		if err := r.setAside(f, err); err != nil {
			return err
		}
	}
}

// fit refuses what is no regular file, and gives a file back the mode it was made with before anything reads it.
func fit(path string) error {
	st, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !st.Mode().IsRegular():
		return fmt.Errorf("%w: %s is no regular file", store.ErrDamaged, filepath.Base(path))
	case st.Mode().Perm() != 0o600:
		return os.Chmod(path, 0o600)
	}
	return nil
}

// setAside moves the damaged file out of the way; f.mu is held for writing.
func (r *Room) setAside(f *file, cause error) error {
	if err := f.close(); err != nil {
		r.cfg.Log.Warn("history: closing a damaged file", "file", f.name, "err", err)
	}
	aside, err := store.SetAside(f.path, r.cfg.Now().UTC().Format("20060102T150405Z"))
	if err != nil {
		return fmt.Errorf("set a damaged history aside: %w", err)
	}
	f.damages = append(f.damages, damage{aside, cause})
	return nil
}

// tell reports what was set aside, with no lock held.
func (r *Room) tell(f *file) {
	f.mu.Lock()
	damages := f.damages
	f.damages = nil
	f.mu.Unlock()
	for _, d := range damages {
		r.cfg.Log.Error("history: a damaged file was set aside", "caller", f.caller, "aside", filepath.Base(d.aside), "err", d.cause)
		r.cfg.OnDamaged(f.caller, d.aside, d.cause)
	}
}

// close closes the database; f.mu is held for writing.
func (f *file) close() error {
	if f.db == nil {
		return nil
	}
	db := f.db
	f.db = nil
	return db.Close()
}

// asides lists the damaged files that were set aside for this caller, oldest first. They lie beside the file, so the
// list needs no record of its own and outlives a restart. Of some only the log is left.
func (f *file) asides() ([]string, error) {
	entries, err := os.ReadDir(filepath.Dir(f.path))
	if errors.Is(err, fs.ErrNotExist) { // nobody has said anything yet
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), f.name+".damaged-") {
			names = append(names, strings.TrimSuffix(strings.TrimSuffix(e.Name(), "-wal"), "-shm"))
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// SQLite's result codes that have words of their own.
const (
	sqliteReadOnly  = 8
	sqliteInterrupt = 9
	sqliteIO        = 10
	sqliteFull      = 13
	sqliteCantOpen  = 14
)

// explain gives an error its words for the person.
func explain(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*fault.Error](err); ok {
		return err
	}
	code := 0
	if e, ok := errors.AsType[interface {
		error
		Code() int
	}](err); ok {
		code = e.Code() & 0xff
	}
	said := func(c fault.Code, words string) error { return fault.Wrap(err, c, "%s", words).Doing("history") }
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), code == sqliteInterrupt:
		return said(fault.Cancelled, "cancelled")
	case code == sqliteFull, errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return said(fault.Unavailable, "the disk is full, so the conversation cannot be kept; free some space and try again")
	case code == sqliteReadOnly, errors.Is(err, syscall.EROFS), errors.Is(err, fs.ErrPermission):
		return said(fault.Unavailable, "the history cannot be written: the data directory is read-only or not the node's own")
	case errors.Is(err, store.ErrNewer):
		return said(fault.Unavailable, "the history was written by a later version of Atoll; start that version again")
	case errors.Is(err, store.ErrDamaged):
		return said(fault.Unavailable, "the history could not be read, and what was read anew is damaged too; check the disk")
	case code == sqliteIO, code == sqliteCantOpen:
		return said(fault.Unavailable, "the history could not be read or written; check the disk")
	}
	return said(fault.Failed, "the history could not be read or written; the node's log says why")
}
