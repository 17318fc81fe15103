package confirm

import (
	"context"
	"database/sql"
	"testing"

	"atoll/internal/fault"
	"atoll/internal/store"
)

// watchDisk has the store note, for each audit record, whether its transaction waits for the disk.
func (b *bench) watchDisk() {
	b.t.Helper()
	b.exec("CREATE TEMP TABLE noted (event TEXT, level INTEGER)")
	b.exec("CREATE TEMP TRIGGER noting AFTER INSERT ON main.audit BEGIN " +
		"INSERT INTO noted SELECT json_extract(new.body, '$.kind') || ' ' || json_extract(new.body, '$.event'), synchronous FROM pragma_synchronous; END")
}

// levels are what was noted: SQLite's level of synchronous for each kind of record, 2 where it waits.
func (b *bench) levels() map[string]int {
	b.t.Helper()
	out := map[string]int{}
	err := b.db.Write(b.t.Context(), store.Relaxed, func(ctx context.Context, tx *sql.Tx) error {
		rows, err := tx.QueryContext(ctx, "SELECT event, min(level) FROM noted GROUP BY event")
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var event string
			var level int
			if err := rows.Scan(&event, &level); err != nil {
				return err
			}
			out[event] = level
		}
		return rows.Err()
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return out
}

// C2, C11, M3: what must not come back after a loss of power waits for the disk: a spent approval, a permission given, its
// end, and a peer's mute. The rest of a question does not.
func TestWaitsForTheDisk(t *testing.T) {
	b := newBench(t)
	b.asking[peer.PeerKey()] = true
	b.watchDisk()
	a := question(owner, "jellyfin")
	b.allow(a, 3600)
	if !b.use(a) {
		t.Fatal("not permitted")
	}
	b.room.DropAllPermissions(t.Context())
	p, out := b.ask(t.Context(), question(peer, "photos"))
	if code := b.decide(owner, p, "decline", ""); code != "" {
		t.Fatal(code)
	}
	if got := <-out; !fault.Is(got.err, fault.Declined) {
		t.Fatal(got.err)
	}
	got := b.levels()
	for event, want := range map[string]int{"confirm asked": 1, "confirm approved": 1, "tool intent": 2, "permission given": 2, "permission ended": 2,
		"confirm declined": 2} {
		if got[event] != want {
			t.Errorf("%s: synchronous is %d, want %d", event, got[event], want)
		}
	}
}
