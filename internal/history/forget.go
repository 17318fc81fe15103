package history

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"

	"atoll/internal/caller"
	"atoll/internal/fault"
	"atoll/internal/store"
)

// Undone is what Undo took out of the conversation.
type Undone struct {
	Message string   `json:"message"` // for the person to change and send again
	Changes []Change `json:"changes"` // what was done in the world and stays done
}

// Undo takes the last turn out of the conversation, and off the disk: not out of the world, nor out of what was spent.
// Turns that were folded long ago come back word for word when the last ones go. Errors: NotFound, Busy, Rule.
func (r *Room) Undo(ctx context.Context, c caller.Caller, conversation string) (Undone, error) {
	out := Undone{Changes: []Change{}}
	err := r.find(ctx, c, conversation, func(f *file, is ref) error {
		if err := r.claim(f, is.conv); err != nil {
			return err
		}
		defer r.unclaim(f, is.conv)
		r.cool(f)
		return r.use(ctx, f, func(db *store.DB) error {
			err := db.Write(ctx, store.Durable, func(ctx context.Context, tx *sql.Tx) (err error) {
				out, err = undo(ctx, tx, is)
				return err
			})
			if err != nil {
				return err
			}
			return db.Scrub(ctx)
		})
	})
	return out, err
}

func undo(ctx context.Context, tx *sql.Tx, is ref) (Undone, error) {
	out := Undone{Changes: []Change{}}
	if err := exists(ctx, tx, is); err != nil {
		return out, err
	}
	last, err := lastTurn(ctx, tx, is.conv)
	if err != nil {
		return out, err
	}
	if last == 0 {
		return out, fault.New(fault.Rule, "there is no turn to undo").Doing("history")
	}
	if out, err = readUndone(ctx, tx, is.conv, last); err != nil {
		return out, err
	}
	steps := []statement{
		{"DELETE FROM entry WHERE id >= ? AND id < ?", []any{entryID(is.conv, last, 0), entryID(is.conv, last+1, 0)}},
		{"UPDATE conversation SET turns = ? WHERE id = ?", []any{last - 1, is.conv}},
		// The rows of the summary that stand for what is verbatim again.
		{"DELETE FROM summary WHERE id > ? AND id < ?", []any{summaryID(is.conv, max(0, last-1-verbatim)), summaryID(is.conv+1, 0)}},
	}
	return out, erase(ctx, tx, steps)
}

func readUndone(ctx context.Context, tx *sql.Tx, conv int64, turn int) (Undone, error) {
	out := Undone{Changes: []Change{}}
	found, err := tx.QueryContext(ctx, "SELECT kind, body FROM entry WHERE id >= ? AND id < ? AND kind IN (1, 5)",
		entryID(conv, turn, 0), entryID(conv, turn+1, 0))
	if err != nil {
		return out, err
	}
	defer found.Close()
	for found.Next() {
		var of kind
		var body string
		if err := found.Scan(&of, &body); err != nil {
			return out, err
		}
		if of == kindAsked {
			out.Message = body
			continue
		}
		e, err := decodeEnd(body)
		if err != nil {
			return out, err
		}
		out.Changes = append(out.Changes, e.Changes...)
	}
	return out, found.Err()
}

// Clear deletes one conversation of the caller's own, or all with an empty name, so that nothing of it is left in the
// file. All takes the damaged files along. Errors: NotFound, Busy.
func (r *Room) Clear(ctx context.Context, c caller.Caller, conversation string) error {
	if conversation == "" {
		return r.clearAll(ctx, c)
	}
	return r.find(ctx, c, conversation, func(f *file, is ref) error {
		if err := r.claim(f, is.conv); err != nil {
			return err
		}
		defer r.unclaim(f, is.conv)
		r.cool(f)
		return r.wipe(ctx, f, func(ctx context.Context, tx *sql.Tx) error {
			if err := exists(ctx, tx, is); err != nil {
				return err
			}
			return erase(ctx, tx, []statement{
				{"DELETE FROM entry WHERE id >= ? AND id < ?", []any{entryID(is.conv, 0, 0), entryID(is.conv+1, 0, 0)}},
				{"DELETE FROM summary WHERE id >= ? AND id < ?", []any{summaryID(is.conv, 0), summaryID(is.conv+1, 0)}},
				{"DELETE FROM touched WHERE conversation = ?", []any{is.conv}},
				{"DELETE FROM conversation WHERE id = ?", []any{is.conv}},
			})
		})
	})
}

func (r *Room) clearAll(ctx context.Context, c caller.Caller) error {
	return r.with(ctx, c, func(f *file) error {
		if err := r.claim(f, everything); err != nil {
			return err
		}
		defer r.unclaim(f, everything)
		r.cool(f)
		err := r.wipe(ctx, f, func(ctx context.Context, tx *sql.Tx) error {
			return erase(ctx, tx, []statement{{"DELETE FROM entry", nil}, {"DELETE FROM summary", nil},
				{"DELETE FROM touched", nil}, {"DELETE FROM conversation", nil}})
		})
		if err != nil {
			return err
		}
		names, err := f.asides()
		errs := []error{err}
		for _, n := range names {
			for _, suffix := range []string{"", "-wal", "-shm"} {
				errs = append(errs, os.RemoveAll(filepath.Join(r.cfg.Dir, n+suffix)))
			}
		}
		return explain(errors.Join(errs...))
	})
}

type statement struct {
	query string
	args  []any
}

// erase runs deletions that overwrite what they free.
func erase(ctx context.Context, tx *sql.Tx, steps []statement) error {
	var mode int
	if err := tx.QueryRowContext(ctx, "PRAGMA secure_delete = ON").Scan(&mode); err != nil {
		return err
	}
	var errs []error
	for _, s := range steps {
		if _, err := tx.ExecContext(ctx, s.query, s.args...); err != nil {
			errs = append(errs, err)
			break
		}
	}
	errs = append(errs, tx.QueryRowContext(ctx, "PRAGMA secure_delete = FAST").Scan(&mode))
	return errors.Join(errs...)
}

// wipe deletes, and then rebuilds the file: what a page once held beside the rows deleted now is gone too. Where that shows
// that the file is damaged, it is done once more on the fresh one (H6).
func (r *Room) wipe(ctx context.Context, f *file, deletions func(context.Context, *sql.Tx) error) error {
	for try := 0; ; try++ {
		err := r.use(ctx, f, func(db *store.DB) error { return db.Write(ctx, store.Durable, deletions) })
		if err != nil {
			return err
		}
		err = r.rebuild(context.WithoutCancel(ctx), f)
		if err == nil || !errors.Is(err, store.ErrDamaged) || try > 0 {
			return explain(err)
		}
	}
}

// rebuild leaves the file closed.
func (r *Room) rebuild(ctx context.Context, f *file) error {
	defer r.tell(f)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := r.openLocked(ctx, f); err != nil {
		return err
	}
	db := f.db
	f.db = nil
	err := db.Rebuild(ctx)
	if errors.Is(err, store.ErrDamaged) {
		if aside := r.setAside(f, err); aside != nil {
			return aside
		}
	}
	return err
}

func exists(ctx context.Context, tx *sql.Tx, is ref) error {
	var found int
	err := tx.QueryRowContext(ctx, existsQuery, is.conv, is.token).Scan(&found)
	if errors.Is(err, sql.ErrNoRows) {
		return errMissing
	}
	return err
}
