package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

var notes = Schema{Room: "notes", Steps: []string{"CREATE TABLE note (id INTEGER PRIMARY KEY, text TEXT NOT NULL)"}}

func open(t *testing.T, path string, schemas ...Schema) (*DB, error) {
	t.Helper()
	if schemas == nil {
		schemas = []Schema{notes}
	}
	d, err := Open(t.Context(), Config{Path: path, Schemas: schemas, Readers: 2})
	if err == nil {
		t.Cleanup(func() { _ = d.Close() })
	}
	return d, err
}

func must(t *testing.T, path string, schemas ...Schema) *DB {
	t.Helper()
	d, err := open(t, path, schemas...)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func add(ctx context.Context, d *DB, how Durability, text string) error {
	return d.Write(ctx, how, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO note (text) VALUES (?)", text)
		return err
	})
}

func texts(t *testing.T, d *DB) string {
	t.Helper()
	var got sql.NullString
	if err := d.Reader().QueryRowContext(t.Context(), "SELECT group_concat(text, ' ') FROM (SELECT text FROM note ORDER BY id)").Scan(&got); err != nil {
		t.Fatal(err)
	}
	return got.String
}

// full makes a closed file with n notes and returns its path.
func full(t *testing.T, n int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "node.db")
	d := must(t, path)
	for i := range n {
		if err := add(t.Context(), d, Relaxed, fmt.Sprintf("note-%d-%s", i, strings.Repeat("x", 200))); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// crashed makes what a killed process leaves: the file and a log that was not folded in. It returns the path.
func crashed(t *testing.T) string {
	t.Helper()
	from, to := filepath.Join(t.TempDir(), "node.db"), filepath.Join(t.TempDir(), "node.db")
	d := must(t, from)
	for _, text := range []string{"one", "two"} {
		if err := add(t.Context(), d, Relaxed, text); err != nil {
			t.Fatal(err)
		}
	}
	for _, suffix := range []string{"", "-wal"} {
		raw, err := os.ReadFile(from + suffix)
		if err != nil || len(raw) == 0 {
			t.Fatalf("%s: %d bytes, %v", suffix, len(raw), err)
		}
		if err := os.WriteFile(to+suffix, raw, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return to
}

func names(t *testing.T, path string) string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return strings.Join(out, " ")
}

// H1: a new file is private and whole, and nothing of its making is left; odd names are names.
func TestOpenNew(t *testing.T) {
	for _, name := range []string{"node.db", "a b.db", "q?mode=memory&x=y.db", "h#x.db", "p%20q.db", "ünï.db", "-x.db", "a:b.db"} {
		path := filepath.Join(t.TempDir(), name)
		d := must(t, path)
		if err := add(t.Context(), d, Durable, "x"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, f := range strings.Split(strings.ReplaceAll(names(t, path), "a b", "a\x00b"), " ") {
			f = strings.ReplaceAll(f, "\x00", " ")
			st, err := os.Stat(filepath.Join(filepath.Dir(path), f))
			if err != nil || st.Mode().Perm() != 0o600 {
				t.Errorf("%s: %v, %v", f, st.Mode(), err)
			}
			if f != name && f != name+"-wal" && f != name+"-shm" {
				t.Errorf("%s was left behind", f)
			}
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		if got := names(t, path); got != name {
			t.Errorf("after the end: %s", got)
		}
		if got := texts(t, must(t, path)); got != "x" {
			t.Errorf("%s holds %q", name, got)
		}
	}
}

// F-D9, F-D10: what is no whole database is refused as damaged and left byte for byte as it was; it is never taken for
// a new one.
func TestDamaged(t *testing.T) {
	for name, damage := range map[string]func(raw []byte) []byte{
		"empty":       func([]byte) []byte { return nil },
		"cut":         func(raw []byte) []byte { return raw[:len(raw)/2] },
		"cut by one":  func(raw []byte) []byte { return raw[:len(raw)-1] },
		"header only": func(raw []byte) []byte { return raw[:100] },
		"half header": func(raw []byte) []byte { return raw[:50] },
		"NULs":        func(raw []byte) []byte { return make([]byte, len(raw)) },
		"garbage":     func(raw []byte) []byte { return []byte(strings.Repeat("garbage ", len(raw)/8)) },
		"text":        func([]byte) []byte { return []byte("{}") },
		"first page": func(raw []byte) []byte {
			for i := 100; i < 4096; i++ {
				raw[i] = 0xA5
			}
			return raw
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := full(t, 100)
			raw, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			raw = damage(raw)
			if err := os.WriteFile(path, raw, 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := open(t, path); !errors.Is(err, ErrDamaged) {
				t.Errorf("opened: %v", err)
			}
			if after, err := os.ReadFile(path); err != nil || string(after) != string(raw) {
				t.Errorf("the damaged file was touched: %v", err)
			}
		})
	}
}

// A file that is whole at its front and damaged behind fails as damaged where it is met, and says so.
func TestDamagedInside(t *testing.T) {
	path := full(t, 500)
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := 2 * 4096; i < len(raw); i++ {
		raw[i] = 0xA5
	}
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := open(t, path)
	if err == nil {
		err = d.Write(t.Context(), Relaxed, func(ctx context.Context, tx *sql.Tx) error {
			var n int
			return tx.QueryRowContext(ctx, "SELECT count(text) FROM note").Scan(&n)
		})
	}
	if !errors.Is(err, ErrDamaged) {
		t.Errorf("read: %v", err)
	}
}

// A NUL tail, as a power cut leaves it, loses nothing.
func TestNULTail(t *testing.T) {
	path := full(t, 3)
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(make([]byte, 10_000)); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(texts(t, must(t, path)), "note-"); got != 3 {
		t.Errorf("%d notes are left", got)
	}
}

// H1: what was committed is there after kill -9, and what is there is private whatever it was before.
func TestAfterKill(t *testing.T) {
	path := crashed(t)
	d := must(t, path)
	if got := texts(t, d); got != "one two" {
		t.Errorf("holds %q", got)
	}
	if err := add(t.Context(), d, Relaxed, "three"); err != nil {
		t.Error(err)
	}
	for _, f := range strings.Fields(names(t, path)) {
		if st, err := os.Stat(filepath.Join(filepath.Dir(path), f)); err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", f, st.Mode(), err)
		}
	}
}

// A log without its file is not replayed into a new, empty one: the loss is said, and the log stays for a repair.
func TestLogWithoutFile(t *testing.T) {
	path := crashed(t)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := open(t, path); !errors.Is(err, ErrDamaged) {
		t.Fatalf("opened: %v", err)
	}
	aside, err := SetAside(path, "20260101T000000Z")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(aside + "-wal"); err != nil {
		t.Error(err)
	}
	if got := texts(t, must(t, path)); got != "" {
		t.Errorf("the new file holds %q", got)
	}
}

// A crash while the file was being made leaves no half of it.
func TestHalfMade(t *testing.T) {
	path := filepath.Join(t.TempDir(), "node.db")
	for _, left := range []string{".new", ".new-journal"} {
		if err := os.WriteFile(path+left, []byte("half"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	d := must(t, path)
	if got := texts(t, d); got != "" {
		t.Errorf("holds %q", got)
	}
	if got := names(t, path); strings.Contains(got, ".new") {
		t.Errorf("left: %s", got)
	}
}

func TestSchemas(t *testing.T) {
	path := full(t, 1)
	more := Schema{Room: "notes", Steps: append(notes.Steps[:1:1], "ALTER TABLE note ADD COLUMN done INTEGER NOT NULL DEFAULT 0")}
	other := Schema{Room: "other", Steps: []string{"CREATE TABLE other (x)"}}
	bad := Schema{Room: "notes", Steps: append(more.Steps[:2:2], "CREATE TABLE half (x)", "CREATE TABLE no good")}
	must(t, path, more, other)
	d := must(t, path, other, more) // again, in another order: nothing is applied twice
	if _, err := open(t, path, notes); !errors.Is(err, ErrNewer) || errors.Is(err, ErrDamaged) {
		t.Errorf("an older version opened it: %v", err)
	}
	if _, err := open(t, path, bad); err == nil || !strings.Contains(err.Error(), "schema notes step 4") {
		t.Errorf("a bad step: %v", err)
	}
	var n int
	if err := d.Reader().QueryRow("SELECT count(*) FROM sqlite_schema WHERE name = 'half'").Scan(&n); err != nil || n != 0 {
		t.Errorf("a failed migration left %d tables: %v", n, err)
	}
	fresh := filepath.Join(t.TempDir(), "node.db")
	if _, err := open(t, fresh, bad); err == nil {
		t.Error("made with a bad step")
	}
	if _, err := os.Lstat(fresh); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a failed making left a file: %v", err)
	}
	must(t, fresh)
}

// C2: each transaction has the durability it asked for, whatever the one before had.
func TestDurability(t *testing.T) {
	d := must(t, filepath.Join(t.TempDir(), "node.db"))
	for i, how := range []Durability{Durable, Relaxed, Relaxed, Durable, Relaxed, Durable, Durable} {
		want := map[Durability]int{Relaxed: 1, Durable: 2}[how]
		fail := errors.New("no")
		err := d.Write(t.Context(), how, func(ctx context.Context, tx *sql.Tx) error {
			var got int
			if err := tx.QueryRowContext(ctx, "PRAGMA synchronous").Scan(&got); err != nil || got != want {
				t.Errorf("write %d: synchronous is %d, %v; want %d", i, got, err, want)
			}
			if i%2 == 1 {
				return fail
			}
			return nil
		})
		if (i%2 == 1) != errors.Is(err, fail) {
			t.Error(err)
		}
	}
}

// F-D2: a write is done though its caller gave up; a failed one is not there at all.
func TestWrite(t *testing.T) {
	d := must(t, filepath.Join(t.TempDir(), "node.db"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := add(ctx, d, Durable, "cancelled"); err != nil {
		t.Errorf("a cancelled caller: %v", err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	err := d.Write(ctx, Relaxed, func(inner context.Context, tx *sql.Tx) error {
		cancel()
		if inner.Err() != nil {
			t.Error("the transaction is cancelled with its caller")
		}
		_, err := tx.ExecContext(inner, "INSERT INTO note (text) VALUES ('midway')")
		return err
	})
	if err != nil {
		t.Error(err)
	}
	fail := errors.New("no")
	err = d.Write(t.Context(), Relaxed, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "INSERT INTO note (text) VALUES ('failed')"); err != nil {
			t.Error(err)
		}
		return fail
	})
	if !errors.Is(err, fail) {
		t.Error(err)
	}
	if got := texts(t, d); got != "cancelled midway" {
		t.Errorf("holds %q", got)
	}
}

// A panic in one write takes nothing else down: the gate makes it an error, and the next write must find the way free.
func TestPanicInWrite(t *testing.T) {
	d := must(t, filepath.Join(t.TempDir(), "node.db"))
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		_ = d.Write(t.Context(), Relaxed, func(ctx context.Context, tx *sql.Tx) error {
			_, _ = tx.ExecContext(ctx, "INSERT INTO note (text) VALUES ('half')")
			panic("x")
		})
	}()
	if d.writer.Stats().InUse != 0 {
		t.Fatal("the writer's connection is lost; the next write would wait for ever")
	}
	if err := add(t.Context(), d, Durable, "next"); err != nil {
		t.Error(err)
	}
	if got := texts(t, d); got != "next" {
		t.Errorf("holds %q", got)
	}
}

// A transaction that cannot begin, or cannot be committed, leaves a connection that the next one can use.
func TestFailedTransaction(t *testing.T) {
	parts := Schema{Room: "parts", Steps: []string{
		"CREATE TABLE part (of INTEGER NOT NULL REFERENCES note (id) DEFERRABLE INITIALLY DEFERRED)"}}
	d := must(t, filepath.Join(t.TempDir(), "node.db"), notes, parts)
	err := d.Write(t.Context(), Durable, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO part VALUES (99)")
		return err
	})
	if err == nil {
		t.Error("a part of nothing was committed")
	}
	if err := add(t.Context(), d, Durable, "first"); err != nil {
		t.Error("after a failed commit: ", err)
	}

	held, err := d.Reader().BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if tx, err := d.writer.BeginTx(ctx, nil); err == nil {
		t.Error("two transactions write at once", tx.Rollback())
	}
	if err := held.Rollback(); err != nil {
		t.Error(err)
	}
	if err := add(t.Context(), d, Durable, "second"); err != nil {
		t.Error("after one that could not begin: ", err)
	}
	if got := texts(t, d); got != "first second" {
		t.Errorf("holds %q", got)
	}
}

// Writers take turns and lose nothing; readers see whole transactions.
func TestConcurrent(t *testing.T) {
	d := must(t, filepath.Join(t.TempDir(), "node.db"))
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for range 20 {
				err := d.Write(t.Context(), Durability(w%4 == 0), func(ctx context.Context, tx *sql.Tx) error {
					_, err := tx.ExecContext(ctx, "INSERT INTO note (text) VALUES ('a'), ('b')")
					return err
				})
				var n int
				if err := errors.Join(err, d.Reader().QueryRowContext(t.Context(), "SELECT count(*) FROM note").Scan(&n)); err != nil || n%2 != 0 {
					t.Errorf("%d notes, %v", n, err)
				}
			}
		})
	}
	wg.Wait()
	if got := len(strings.Fields(texts(t, d))); got != 320 {
		t.Errorf("%d notes", got)
	}
}

// H7: scrubbed text is in no file.
func TestScrub(t *testing.T) {
	path := filepath.Join(t.TempDir(), "node.db")
	d := must(t, path)
	const canary = "canary-1f2e3d"
	err := errors.Join(add(t.Context(), d, Relaxed, canary), d.Write(t.Context(), Durable, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "DELETE FROM note")
		return err
	}), d.Scrub(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range strings.Fields(names(t, path)) {
		if raw, err := os.ReadFile(filepath.Join(filepath.Dir(path), f)); err != nil || strings.Contains(string(raw), canary) {
			t.Errorf("%s still holds it, %v", f, err)
		}
	}
}

// H7: a file that was rebuilt holds what is left and nothing of what was deleted; what a crash left half-made is gone with
// the next start. Where another program holds the file, it stays as it is.
func TestRebuild(t *testing.T) {
	path := full(t, 3)
	d, other := must(t, path), must(t, path)
	if err := errors.Join(os.WriteFile(path+".new", []byte("half"), 0o600), add(t.Context(), d, Relaxed, "another")); err != nil {
		t.Fatal(err)
	}
	before := texts(t, other)
	if err := d.Rebuild(t.Context()); err == nil || !strings.Contains(err.Error(), "another program") {
		t.Errorf("beside another: %v", err)
	}
	if got := texts(t, other); got != before {
		t.Errorf("beside another: %q, was %q", got, before)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	d = must(t, path)
	err := d.Write(t.Context(), Durable, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "DELETE FROM note WHERE text LIKE 'note-1%'")
		return err
	})
	if err := errors.Join(err, d.Rebuild(t.Context())); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(path)
	if st, e := os.Stat(path); err != nil || e != nil || st.Mode().Perm() != 0o600 || strings.Contains(string(raw), "note-1") || !strings.Contains(string(raw), "note-2") {
		t.Errorf("rebuilt: %v %v, %d bytes", err, e, len(raw))
	}
	if got := names(t, path); got != "node.db" {
		t.Errorf("files: %s", got)
	}
	if err := os.WriteFile(path+".new", raw, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := texts(t, must(t, path)); strings.Contains(got, "note-1") || !strings.Contains(got, "another") {
		t.Errorf("after it: %q", got)
	}
	if got := names(t, path); strings.Contains(got, ".new") {
		t.Errorf("files: %s", got)
	}
}

// A symbolic link is followed to a whole file, and never replaced or filled where it leads nowhere.
func TestSymlink(t *testing.T) {
	real := full(t, 1)
	link := filepath.Join(t.TempDir(), "node.db")
	if err := os.Symlink(real, link); err != nil {
		t.Fatal(err)
	}
	if got := texts(t, must(t, link)); !strings.HasPrefix(got, "note-0") {
		t.Errorf("through the link: %q", got)
	}
	nowhere, target := filepath.Join(t.TempDir(), "node.db"), filepath.Join(t.TempDir(), "elsewhere.db")
	if err := os.Symlink(target, nowhere); err != nil {
		t.Fatal(err)
	}
	if _, err := open(t, nowhere); err == nil {
		t.Error("opened what is not there")
	}
	if _, err := os.Lstat(target); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("made through the link: %v", err)
	}
	if st, err := os.Lstat(nowhere); err != nil || st.Mode()&fs.ModeSymlink == 0 {
		t.Errorf("the link was replaced: %v", err)
	}
	if _, err := open(t, t.TempDir()); err == nil {
		t.Error("opened a directory")
	}
}

// F-D9: a file is set aside under a name of its own each time, with its log, and nothing is overwritten.
func TestSetAside(t *testing.T) {
	path := filepath.Join(t.TempDir(), "node.db")
	asides := map[string]string{}
	for _, text := range []string{"first", "second", "third"} {
		for suffix, more := range map[string]string{"": "", "-wal": " log"} {
			if err := os.WriteFile(path+suffix, []byte(text+more), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		aside, err := SetAside(path, "20260101T000000Z")
		if err != nil || asides[aside] != "" {
			t.Fatalf("%s: %v", aside, err)
		}
		asides[aside] = text
	}
	for aside, text := range asides {
		if raw, err := os.ReadFile(aside); err != nil || string(raw) != text {
			t.Errorf("%s holds %q, %v", aside, raw, err)
		}
		if raw, err := os.ReadFile(aside + "-wal"); err != nil || string(raw) != text+" log" {
			t.Errorf("%s-wal holds %q, %v", aside, raw, err)
		}
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("still there: %v", err)
	}
	if _, err := SetAside(path, "20260101T000000Z"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("set aside nothing: %v", err)
	}
}

// G7: what was settled is there without the log, and a write goes on after it.
func TestSettle(t *testing.T) {
	path := filepath.Join(t.TempDir(), "node.db")
	d := must(t, path)
	if err := add(t.Context(), d, Durable, "settled"); err != nil {
		t.Fatal(err)
	}
	d.Settle(t.Context())
	if err := add(t.Context(), d, Durable, "later"); err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(t.TempDir(), "node.db")
	raw, err := os.ReadFile(path)
	if err := errors.Join(err, os.WriteFile(other, raw, 0o600), os.WriteFile(other+"-wal", nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if got := texts(t, must(t, other)); got != "settled" {
		t.Errorf("without its log the file holds %q", got)
	}
}

// What is no regular file is damage: a pipe holds nobody, and nothing is written through a link in the log's place.
func TestNotRegular(t *testing.T) {
	for _, suffix := range []string{"", "-wal", "-shm"} {
		for kind, put := range map[string]func(string) error{
			"a pipe":      func(p string) error { return syscall.Mkfifo(p, 0o600) },
			"a directory": func(p string) error { return os.Mkdir(p, 0o700) },
		} {
			path := full(t, 1)
			_ = os.Remove(path + suffix) // the log is gone where the file was closed in order
			if err := put(path + suffix); err != nil {
				t.Fatal(err)
			}
			if _, err := open(t, path); !errors.Is(err, ErrDamaged) {
				t.Errorf("%s in the place of node.db%s: %v", kind, suffix, err)
			}
		}
	}
	path := full(t, 1)
	victim := filepath.Join(t.TempDir(), "victim")
	if err := errors.Join(os.WriteFile(victim, []byte("precious"), 0o600), os.Symlink(victim, path+"-wal")); err != nil {
		t.Fatal(err)
	}
	_, err := open(t, path)
	if raw, rerr := os.ReadFile(victim); !errors.Is(err, ErrDamaged) || rerr != nil || string(raw) != "precious" {
		t.Errorf("%v; elsewhere is %q", err, raw)
	}
}

// A name that cannot be looked up ends the search for one that is free.
func TestSetAsideInAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := SetAside(filepath.Join(file, "node.db"), "x"); err == nil {
		t.Error("set aside in what is no folder")
	}
}
