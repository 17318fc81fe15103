package history

import (
	"context"
	"database/sql"
	"errors"
	"slices"

	"atoll/internal/caller"
	"atoll/internal/store"
)

// Touch notes what the turn's words may come from: categories, in the registry's own names. They are on the disk no
// later than the results, and stay with the conversation when a turn is undone. It is called before Results.
func (t *Turn) Touch(categories ...string) {
	for _, c := range categories {
		if !slices.Contains(t.touched, c) {
			t.touched = append(t.touched, c)
		}
	}
}

// Touched lists what Touch named, in this turn and in all earlier ones of the conversation.
func (t *Turn) Touched() []string { return slices.Clone(t.touched) }

func (t *Turn) insertTouched(ctx context.Context, tx *sql.Tx) error {
	for _, c := range t.touched {
		if _, err := tx.ExecContext(ctx, "INSERT OR IGNORE INTO touched VALUES (?, ?)", t.ref.conv, c); err != nil {
			return err
		}
	}
	return nil
}

func touched(ctx context.Context, q querier, conv int64) ([]string, error) {
	found, err := q.QueryContext(ctx, "SELECT category FROM touched WHERE conversation = ?", conv)
	if err != nil {
		return nil, err
	}
	defer found.Close()
	var out []string
	for found.Next() {
		var c string
		if err := found.Scan(&c); err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, found.Err()
}

// Touched lists what Touch named in a conversation of the caller's own. Errors: NotFound; Unavailable if it may have
// stood in a damaged file.
func (r *Room) Touched(ctx context.Context, c caller.Caller, conversation string) (out []string, err error) {
	err = r.find(ctx, c, conversation, func(f *file, is ref) error {
		return r.use(ctx, f, func(db *store.DB) error {
			var one int
			err := db.Reader().QueryRowContext(ctx, existsQuery, is.conv, is.token).Scan(&one)
			if errors.Is(err, sql.ErrNoRows) {
				return errMissing
			}
			if err == nil {
				out, err = touched(ctx, db.Reader(), is.conv)
			}
			return err
		})
	})
	return out, err
}
