package notice

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"atoll/internal/caller"
	"atoll/internal/fault"
	"atoll/internal/rpc"
	"atoll/internal/store"
)

// desk is a room with a hand-moved clock that keeps what it was told.
type desk struct {
	*Room
	path string
	mu   sync.Mutex
	now  time.Time
	told []Item
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	d := &desk{path: filepath.Join(t.TempDir(), "node.db"), now: time.UnixMilli(1_800_000_000_000)}
	d.open(t)
	return d
}

func (d *desk) open(t *testing.T) {
	t.Helper()
	db, err := store.Open(t.Context(), store.Config{Path: d.path, Schemas: []store.Schema{Schema()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	d.Room, err = New(Config{DB: db, Log: slog.New(slog.DiscardHandler), Now: d.clock,
		OnNotice: func(i Item) { d.mu.Lock(); defer d.mu.Unlock(); d.told = append(d.told, i) }})
	if err != nil {
		t.Fatal(err)
	}
}

func (d *desk) clock() time.Time { d.mu.Lock(); defer d.mu.Unlock(); return d.now }

func (d *desk) pass(by time.Duration) { d.mu.Lock(); defer d.mu.Unlock(); d.now = d.now.Add(by) }

func (d *desk) raise(t *testing.T, n Notice) {
	t.Helper()
	if err := d.Raise(t.Context(), n); err != nil {
		t.Fatal(err)
	}
}

func (d *desk) list(t *testing.T, kind Kind, all bool) []Item {
	t.Helper()
	items, err := d.List(t.Context(), kind, all)
	if err != nil {
		t.Fatal(err)
	}
	return items
}

func (d *desk) call(t *testing.T, c caller.Caller, door rpc.Doors, method, params string) (any, error) {
	t.Helper()
	return rpc.NewGate(rpc.Config{Methods: d.Methods(), Log: slog.New(slog.DiscardHandler)}).
		Call(t.Context(), c, door, method, jsontext.Value(params), nil)
}

func as(role caller.Role) caller.Caller { return caller.Operator(1, "ann", role, "s1", "127.0.0.1") }

var full = Notice{Kind: Operation, Severity: Warning, Key: "disk /", What: "The disk is nearly full.", Do: "Make room."}

// N1: the same again, while it stands, is one notice with a count; after it was acknowledged it is a new one.
func TestDeduplicated(t *testing.T) {
	d := newDesk(t)
	d.raise(t, full)
	d.pass(time.Second)
	again := full
	again.What, again.Severity = "The disk is full.", Critical
	d.raise(t, again)
	items := d.list(t, "", false)
	if len(items) != 1 || items[0].Count != 2 || items[0].What != again.What || items[0].Severity != Critical ||
		items[0].LastAt.Sub(items[0].FirstAt) != time.Second {
		t.Fatalf("%+v", items)
	}
	if _, err := d.call(t, as(caller.Owner), rpc.People, "notices.ack", fmt.Sprintf(`{"id":%d}`, items[0].ID)); err != nil {
		t.Fatal(err)
	}
	d.raise(t, full)
	if standing := d.list(t, "", false); len(standing) != 1 || standing[0].Count != 1 || standing[0].ID == items[0].ID {
		t.Errorf("%+v", standing)
	}
	if all := d.list(t, "", true); len(all) != 2 || all[1].AcknowledgedBy != "ann" || all[1].AcknowledgedAt.IsZero() {
		t.Errorf("%+v", all)
	}
}

// N1, live: a new one, a repeat once a minute at most, an acknowledgement.
func TestTold(t *testing.T) {
	d := newDesk(t)
	for range 50 {
		d.raise(t, full)
	}
	d.pass(tellEvery)
	d.raise(t, full)
	id := d.list(t, "", false)[0].ID
	for range 2 {
		if _, err := d.call(t, as(caller.Owner), rpc.People, "notices.ack", fmt.Sprintf(`{"id":%d}`, id)); err != nil {
			t.Fatal(err)
		}
	}
	var counts []int64
	for _, i := range d.told {
		counts = append(counts, i.Count)
	}
	if fmt.Sprint(counts) != "[1 51 51]" || d.told[1].AcknowledgedAt != (time.Time{}) || d.told[2].AcknowledgedAt.IsZero() {
		t.Errorf("told %v", counts)
	}
}

func TestNoticesSurviveARestart(t *testing.T) {
	d := newDesk(t)
	d.raise(t, full)
	if err := d.cfg.DB.Close(); err != nil {
		t.Fatal(err)
	}
	d.open(t)
	d.raise(t, full)
	if items := d.list(t, Operation, false); len(items) != 1 || items[0].Count != 2 {
		t.Errorf("%+v", items)
	}
}

// The table is bounded: what was acknowledged goes first, critical standing ones last, the new one never.
func TestBounded(t *testing.T) {
	d := newDesk(t)
	err := d.cfg.DB.Write(t.Context(), store.Relaxed, func(ctx context.Context, tx *sql.Tx) error {
		for i := range maxKept {
			severity, acked := Critical, 0
			switch {
			case i >= 998:
				acked = 1
			case i == 500:
				severity = Info
			}
			if _, err := tx.ExecContext(ctx, "INSERT INTO notice (kind, severity, key, what, todo, count, first, last, acked) VALUES ('operation', ?, ?, 'x', '', 1, ?, ?, ?)",
				severity, fmt.Sprint(i), i, i, acked); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	left := func(key string) bool {
		var n int
		if err := d.cfg.DB.Reader().QueryRowContext(t.Context(), "SELECT count(*) FROM notice WHERE key = ?", key).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n == 1
	}
	for i, gone := range []string{"998", "999", "500", "new 0"} {
		if !left(gone) {
			t.Errorf("%s went too early", gone)
		}
		d.raise(t, Notice{Kind: Operation, Severity: Info, Key: fmt.Sprintf("new %d", i), What: "x"})
		if left(gone) || !left(fmt.Sprintf("new %d", i)) {
			t.Errorf("%s stayed, or the new one did not", gone)
		}
		d.pass(time.Second)
	}
	if all := d.list(t, "", true); len(all) != maxKept {
		t.Errorf("%d are kept", len(all))
	}
}

func TestIncompleteNoticesAreRefused(t *testing.T) {
	d := newDesk(t)
	for _, n := range []Notice{{}, {Kind: "gossip", Severity: Info, Key: "k", What: "x"}, {Kind: Security, Severity: "loud", Key: "k", What: "x"},
		{Kind: Security, Severity: Info, What: "x"}, {Kind: Security, Severity: Info, Key: "k"}, {Kind: Security, Severity: Info, Key: strings.Repeat("k", 201), What: "x"}} {
		if err := d.Raise(t.Context(), n); err == nil {
			t.Errorf("%+v was kept", n)
		}
	}
	if items := d.list(t, "", true); len(items) != 0 || len(d.told) != 0 {
		t.Errorf("%+v", items)
	}
	long := full
	long.What = "\xff" + strings.Repeat("ß", 2000)
	d.raise(t, long)
	what := d.list(t, "", false)[0].What
	if !utf8.ValidString(what) || utf8.RuneCountInString(what) != maxText || !strings.HasSuffix(what, "ß…") {
		t.Errorf("%d characters: %q", utf8.RuneCountInString(what), what[:20])
	}
}

// A damaged row hides no other.
func TestDamagedRows(t *testing.T) {
	d := newDesk(t)
	d.raise(t, full)
	err := d.cfg.DB.Write(t.Context(), store.Durable, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO notice (kind, severity, key, what, todo, count, first, last) VALUES
			('gossip', 'info', 'a', 'x', '', 1, 1, 1), ('security', 'info', 'b', 'x', '', 'many', 1, 1), ('security', X'00', 'c', 'x', '', 1, 1, 1),
			('security', 'info', 'd', X'FF41', '', 1, 1, 1)`)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	items := d.list(t, "", false)
	if len(items) != 2 || items[0].What != full.What || items[1].What != "\uFFFDA" {
		t.Errorf("%+v", items)
	}
	if _, err := rpc.Marshal(listResult{items}); err != nil {
		t.Error(err)
	}
}

func TestAFailedWriteIsAnError(t *testing.T) {
	d := newDesk(t)
	d.cfg.DB.Close()
	if err := d.Raise(t.Context(), full); err == nil || len(d.told) != 0 {
		t.Errorf("%v, told %v", err, d.told)
	}
	if _, err := d.call(t, as(caller.Owner), rpc.People, "notices.list", "{}"); !fault.Is(err, fault.Unavailable) {
		t.Error(err)
	}
	if _, err := d.call(t, as(caller.Owner), rpc.People, "notices.ack", `{"id":1}`); !fault.Is(err, fault.Unavailable) {
		t.Error(err)
	}
}

func TestRows(t *testing.T) {
	d := newDesk(t)
	d.raise(t, full)
	d.raise(t, Notice{Kind: Security, Severity: Critical, Key: "k", What: "x"})
	got, err := d.call(t, as(caller.Member), rpc.People, "notices.list", `{"kind":"security"}`)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"notices":[{"id":2,"kind":"security","severity":"critical","what":"x","do":"","count":1,"first_at":"2027-01-15T08:00:00Z","last_at":"2027-01-15T08:00:00Z"}]}`
	if raw, err := rpc.Marshal(got); err != nil || string(raw) != want {
		t.Errorf("%s, %v", raw, err)
	}
	if got, err := d.call(t, as(caller.Member), rpc.People, "notices.list", `{}`); err != nil || len(got.(listResult).Notices) != 2 {
		t.Errorf("%+v, %v", got, err)
	}
	for _, c := range []struct {
		role                  caller.Role
		door                  rpc.Doors
		method, params, field string
		code                  fault.Code
	}{
		{caller.Viewer, rpc.People, "notices.list", "{}", "", fault.Forbidden},
		{caller.Owner, rpc.Tools, "notices.list", "{}", "", fault.Forbidden},
		{caller.Owner, rpc.Tools, "notices.ack", `{"id":1}`, "", fault.Forbidden},
		{caller.Member, rpc.People, "notices.ack", `{"id":1}`, "", fault.Forbidden},
		{caller.Owner, rpc.People, "notices.list", `{"kind":"gossip"}`, "kind", fault.InvalidParams},
		{caller.Owner, rpc.People, "notices.list", `{"all":"yes"}`, "all", fault.InvalidParams},
		{caller.Owner, rpc.People, "notices.ack", `{}`, "id", fault.InvalidParams},
		{caller.Owner, rpc.People, "notices.ack", `{"id":1.0}`, "id", fault.InvalidParams},
		{caller.Owner, rpc.People, "notices.ack", `{"id":9007199254740993}`, "id", fault.NotFound},
		{caller.Owner, rpc.People, "notices.ack", `{"id":-1}`, "id", fault.NotFound},
	} {
		_, err := d.call(t, as(c.role), c.door, c.method, c.params)
		if f := fault.Of(err); f == nil || f.Code != c.code || f.Field != c.field {
			t.Errorf("%s %s: %v", c.method, c.params, err)
		}
	}
	if standing := d.list(t, "", false); len(standing) != 2 {
		t.Errorf("a refused call changed something: %+v", standing)
	}
	if _, err := New(Config{}); err == nil {
		t.Error("an empty config was accepted")
	}
}

func TestRaisedTogether(t *testing.T) {
	d := newDesk(t)
	var g sync.WaitGroup
	for range 8 {
		g.Go(func() {
			for range 10 {
				if err := d.Raise(t.Context(), full); err != nil {
					t.Error(err)
				}
				if _, err := d.List(t.Context(), "", true); err != nil {
					t.Error(err)
				}
			}
		})
	}
	g.Wait()
	if items := d.list(t, "", true); len(items) != 1 || items[0].Count != 80 {
		t.Errorf("%+v", items)
	}
}
