package history

import (
	"context"
	"database/sql"
	"testing"

	"atoll/internal/fence"
	"atoll/internal/store"
)

// onDisk runs a statement on the connection that writes the turn's file.
func (t *Turn) onDisk(tb testing.TB, f func(context.Context, *sql.Tx) error) {
	tb.Helper()
	must(tb, t.r.use(tb.Context(), t.f, func(db *store.DB) error { return db.Write(tb.Context(), store.Relaxed, f) }))
}

// H1: the end of a turn waits for the disk before its answer is shown, and so what was answered outlives a loss of power;
// what comes before the end does not wait.
func TestEndWaitsForTheDisk(t *testing.T) {
	r := newRoom(t, config(t.TempDir()))
	id := say(t, r, anna, "", "hello", "good day")
	turn := begin(t, r, anna, id, "how is the log?")
	turn.onDisk(t, func(ctx context.Context, tx *sql.Tx) error {
		for _, s := range []string{"CREATE TEMP TABLE noted (kind INTEGER, level INTEGER)",
			"CREATE TEMP TRIGGER noting AFTER INSERT ON main.entry BEGIN INSERT INTO noted SELECT new.kind, synchronous FROM pragma_synchronous; END"} {
			if _, err := tx.ExecContext(ctx, s); err != nil {
				return err
			}
		}
		return nil
	})
	must(t, turn.Round(t.Context(), call("c1", "app_logs", `{"app":"x"}`), []bool{false}, false))
	must(t, turn.Results(t.Context(), result("c1", fence.Outside("app_logs", "all is well")), []bool{false}))
	must(t, turn.End(t.Context(), Ending{Answer: fence.Words("well"), Outcome: Done}))
	levels := map[kind]int{}
	turn.onDisk(t, func(ctx context.Context, tx *sql.Tx) error {
		rows, err := tx.QueryContext(ctx, "SELECT kind, min(level) FROM noted GROUP BY kind")
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var k kind
			var level int
			if err := rows.Scan(&k, &level); err != nil {
				return err
			}
			levels[k] = level
		}
		return rows.Err()
	})
	if levels[kindCall] != 1 || levels[kindResult] != 1 || levels[kindSaid] != 2 || levels[kindEnd] != 2 {
		t.Errorf("SQLite's level of synchronous by kind of row is %v; 2 waits", levels)
	}
}
