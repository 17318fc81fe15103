package history

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"atoll/internal/fault"
	"atoll/internal/fence"
	"atoll/internal/store"
)

// keptHistory makes a closed history of anna's and returns its directory, its file and the conversation.
func keptHistory(t *testing.T, turns int) (dir, file, id string) {
	t.Helper()
	dir = t.TempDir()
	r := newRoom(t, config(dir))
	for i := range turns {
		id = use(t, r, anna, id, fmt.Sprintf("question %d", i), fence.Outside("app_logs", strings.Repeat("a line of a log\n", 40)))
	}
	must(t, r.Close())
	return dir, filepath.Join(dir, "operator-1.db"), id
}

// H6, F-D9, F-D10: a damaged file is set aside whole and said, never shown as an empty chat in silence; the next
// conversation works, and so do other callers and the next start.
func TestDamagedFile(t *testing.T) {
	size := func(b []byte) int { return len(b) }
	for name, damage := range map[string]func([]byte) []byte{
		"empty":           func([]byte) []byte { return nil },
		"one byte":        func([]byte) []byte { return []byte{'S'} },
		"garbage":         func(b []byte) []byte { return bytes.Repeat([]byte("garbage!"), size(b)/8) },
		"cut in half":     func(b []byte) []byte { return b[:size(b)/2] },
		"cut in the head": func(b []byte) []byte { return b[:50] },
		"all NUL":         func(b []byte) []byte { return make([]byte, size(b)) },
		"NUL tail":        func(b []byte) []byte { return append(b[:size(b)/3:size(b)/3], make([]byte, size(b)-size(b)/3)...) },
		"garbage tail": func(b []byte) []byte {
			return append(b[:600:600], bytes.Repeat([]byte{0xa5}, size(b)-600)...)
		},
		"JSON": func([]byte) []byte { return []byte(`{"messages": [{"role": "us`) },
	} {
		t.Run(name, func(t *testing.T) {
			dir, file, id := keptHistory(t, 20)
			whole, err := os.ReadFile(file)
			must(t, err)
			bad := damage(whole)
			must(t, os.WriteFile(file, bad, 0o600))
			var seen damagesSeen
			cfg := config(dir)
			cfg.OnDamaged = seen.on
			r := newRoom(t, cfg)
			say(t, r, bert, "", "hello", "fine")
			if seen.count() != 0 {
				t.Error("another caller's history met the damage")
			}
			_, err = r.Begin(t.Context(), anna, id, "are you there?")
			wantCode(t, err, fault.Unavailable)
			if !strings.Contains(err.Error(), "set aside") {
				t.Errorf("the words do not say it: %v", err)
			}
			if seen.count() != 1 || !strings.HasPrefix(seen.said[0], anna.Key()+" operator-1.db.damaged-") {
				t.Errorf("told: %q", seen.said)
			}
			aside, _ := filepath.Glob(file + ".damaged-*")
			if len(aside) == 0 {
				t.Fatal("nothing was set aside")
			}
			if raw, _ := os.ReadFile(aside[0]); !bytes.Equal(raw, bad) {
				t.Error("the damaged file was changed")
			}
			workAfterDamage(t, r, dir)
		})
	}
}

// workAfterDamage checks that the fresh file serves and that the damage is said over a restart too, until the file is gone.
func workAfterDamage(t *testing.T, r *Room, dir string) {
	t.Helper()
	list, err := r.Conversations(t.Context(), anna, Page{})
	must(t, err)
	if len(list.Conversations) != 0 || len(list.Problems) != 1 {
		t.Fatalf("listing: %+v", list)
	}
	id := say(t, r, anna, "", "a new beginning", "welcome")
	must(t, r.Close())
	r = newRoom(t, config(dir))
	list, err = r.Conversations(t.Context(), anna, Page{})
	must(t, err)
	if len(list.Conversations) != 1 || len(list.Problems) != 1 || !strings.Contains(list.Problems[0].Text, "could not be read") {
		t.Fatalf("after a restart: %+v", list)
	}
	finds, err := r.Search(t.Context(), anna, "beginning")
	must(t, err)
	if len(finds.Problems) != 1 || len(finds.Finds) == 0 {
		t.Errorf("search: %+v", finds)
	}
	other, err := r.Conversations(t.Context(), bert, Page{})
	must(t, err)
	if len(other.Problems) != 0 {
		t.Errorf("another caller is told: %+v", other.Problems)
	}
	for _, suffix := range []string{"", "-wal", "-shm"} {
		must(t, os.RemoveAll(filepath.Join(dir, list.Problems[0].File+suffix)))
	}
	list, err = r.Conversations(t.Context(), anna, Page{})
	must(t, err)
	if len(list.Problems) != 0 || list.Conversations[0].ID != id {
		t.Errorf("after the file is gone: %+v", list)
	}
	_, err = r.History(t.Context(), anna, "99-0123456789abcdef", Span{})
	wantCode(t, err, fault.NotFound)
}

// A file that is gone while its log is there is damage too, and is said.
func TestLostFile(t *testing.T) {
	dir := t.TempDir()
	r := newRoom(t, config(dir))
	id := say(t, r, anna, "", "first", "first answer")
	crashed := image(t, dir, 0)
	must(t, os.Remove(filepath.Join(crashed, "operator-1.db")))
	var seen damagesSeen
	cfg := config(crashed)
	cfg.OnDamaged = seen.on
	r = newRoom(t, cfg)
	_, err := r.History(t.Context(), anna, id, Span{})
	wantCode(t, err, fault.Unavailable)
	if seen.count() != 1 {
		t.Errorf("told %q", seen.said)
	}
	workAfterDamage(t, r, crashed)
}

// An operation that panics gives the file back.
func TestPanicInAnOperation(t *testing.T) {
	r := newRoom(t, config(t.TempDir()))
	f, err := r.take(anna)
	must(t, err)
	func() {
		defer func() { _ = recover() }()
		_ = r.use(t.Context(), f, func(*store.DB) error { panic("a bug") })
	}()
	r.give(f)
	say(t, r, anna, "", "hello", "fine")
	must(t, r.Close())
}

// F-D9: a wrong mode is put right, a folder or a link in the file's place is set aside.
func TestWrongKindOfFile(t *testing.T) {
	dir, file, id := keptHistory(t, 1)
	must(t, os.Chmod(file, 0o666))
	r := newRoom(t, config(dir))
	if _, err := r.History(t.Context(), anna, id, Span{}); err != nil {
		t.Error(err)
	}
	must(t, r.Close())
	if st, err := os.Stat(file); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
	for name, put := range map[string]func(string) error{
		"a folder": func(p string) error { return os.Mkdir(p, 0o700) },
		"a link":   func(p string) error { return os.Symlink("/etc/hostname", p) },
	} {
		must(t, os.Rename(file, file+"."+strings.ReplaceAll(name, " ", "")))
		must(t, put(file))
		var seen damagesSeen
		cfg := config(dir)
		cfg.OnDamaged = seen.on
		r := newRoom(t, cfg)
		say(t, r, anna, "", "hello", "fine")
		if seen.count() != 1 {
			t.Errorf("%s: told %q", name, seen.said)
		}
		must(t, r.Close())
	}
	entries, err := os.ReadDir(dir)
	must(t, err)
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() && info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v", e.Name(), info.Mode())
		}
	}
}

// H6: damage that is met in the middle of a turn costs the earlier turns, not this one: it goes to the fresh file under
// the same name.
func TestDamageInATurn(t *testing.T) {
	dir, file, id := keptHistory(t, 3)
	var seen damagesSeen
	cfg := config(dir)
	cfg.OnDamaged = seen.on
	r := newRoom(t, cfg)
	ctx := t.Context()
	turn := begin(t, r, anna, id, "restart it")
	must(t, turn.Round(ctx, call("c1", "app_restart", "{}"), []bool{false}, false))
	f, err := r.take(anna)
	must(t, err)
	broken := true
	err = r.use(ctx, f, func(*store.DB) error {
		if broken {
			broken = false
			return fmt.Errorf("page 7: %w", store.ErrDamaged)
		}
		return nil
	})
	must(t, err)
	r.give(f)
	must(t, turn.Results(ctx, result("c1", fence.Ours("running")), []bool{false}))
	wantValid(t, turn)
	must(t, turn.End(ctx, Ending{Answer: fence.Words("it runs"), Outcome: Done}))
	if seen.count() != 1 {
		t.Errorf("told %q", seen.said)
	}
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
	h, err := r.History(ctx, anna, id, Span{})
	must(t, err)
	if len(h.Entries) != 1 || h.Entries[0].Message != "restart it" || h.Entries[0].Blocks[0].Result != "running" || h.Entries[0].Number != 1 {
		t.Errorf("kept: %+v", h.Entries)
	}
	next := begin(t, r, anna, id, "and?")
	if got := script(wantValid(t, next)); strings.Contains(got, "question") || !strings.Contains(got, "it runs") {
		t.Errorf("the next turn starts from\n%s", got)
	}
	next.Abandon(ctx)
}

// A file of a later version is left alone.
func TestNewerFile(t *testing.T) {
	dir, file, id := keptHistory(t, 1)
	db, err := sql.Open("sqlite", file)
	must(t, err)
	_, err = db.Exec("UPDATE schema_version SET step = 99")
	must(t, errors.Join(err, db.Close()))
	r := newRoom(t, config(dir))
	_, err = r.History(t.Context(), anna, id, Span{})
	wantCode(t, err, fault.Unavailable)
	if !strings.Contains(err.Error(), "later version") {
		t.Error(err)
	}
	if aside, _ := filepath.Glob(file + ".damaged-*"); len(aside) != 0 {
		t.Errorf("set aside: %v", aside)
	}
}

// mounted gives a small file system of its own, or skips.
func mounted(t *testing.T, options string) string {
	t.Helper()
	dir := t.TempDir()
	if os.Getuid() != 0 {
		t.Skip("only root can mount a small file system")
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		t.Skipf("mount: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	return dir
}

// F-D9: on a full disk a turn is refused with words that say so, nothing of before is lost or set aside, and it goes on
// when there is room.
func TestFullDisk(t *testing.T) {
	dir := mounted(t, "size=512k")
	var seen damagesSeen
	cfg := config(filepath.Join(dir, "history"))
	cfg.OnDamaged = seen.on
	r := newRoom(t, cfg)
	id := say(t, r, anna, "", "first", "first answer")
	long := begin(t, r, anna, id, "a long one")
	ballast := filepath.Join(dir, "ballast")
	raw := make([]byte, 1<<20)
	_ = os.WriteFile(ballast, raw, 0o600) // takes what there is
	refused := 0
	var err error
	for range 300 {
		if err = long.End(t.Context(), Ending{Answer: fence.Words(strings.Repeat("x", 20_000)), Outcome: Done}); err == nil {
			id = long.Conversation()
			long, err = r.Begin(t.Context(), anna, id, "another")
		}
		if err != nil {
			refused++
			break
		}
	}
	wantCode(t, err, fault.Unavailable)
	if !strings.Contains(err.Error(), "disk is full") || refused != 1 {
		t.Errorf("the words do not say it: %v", err)
	}
	if long != nil {
		long.Abandon(context.WithoutCancel(t.Context()))
	}
	_, err = r.Begin(t.Context(), bert, "", "can I?") // a new file on a full disk
	wantCode(t, err, fault.Unavailable)
	h, err := r.History(t.Context(), anna, id, Span{})
	must(t, err)
	if h.Entries[0].Blocks[0].Text != "first answer" {
		t.Errorf("kept: %+v", h.Entries)
	}
	must(t, os.Remove(ballast))
	say(t, r, anna, id, "is there room?", "there is")
	say(t, r, bert, "", "and now?", "you can")
	must(t, r.Close())
	again := newRoom(t, cfg)
	h, err = again.History(t.Context(), anna, id, Span{})
	must(t, err)
	if n := len(h.Entries); h.Entries[n-1].Message != "is there room?" || h.Entries[0].Message != "first" {
		t.Errorf("after a restart: %+v", h.Entries)
	}
	must(t, again.Close())
	if seen.count() != 0 {
		t.Errorf("set aside: %q", seen.said)
	}
}

// On a file system that cannot be written the refusal says so, and nothing is set aside.
func TestReadOnlyDisk(t *testing.T) {
	dir := mounted(t, "size=4m")
	cfg := config(filepath.Join(dir, "history"))
	r := newRoom(t, cfg)
	id := say(t, r, anna, "", "first", "first answer")
	must(t, r.Close())
	must(t, syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT|syscall.MS_RDONLY, "size=4m"))
	var seen damagesSeen
	cfg.OnDamaged = seen.on
	r = newRoom(t, cfg)
	_, err := r.Begin(t.Context(), anna, id, "hello")
	wantCode(t, err, fault.Unavailable)
	if !strings.Contains(err.Error(), "read-only") || seen.count() != 0 {
		t.Errorf("error %v, told %q", err, seen.said)
	}
	_, err = r.Conversations(t.Context(), anna, Page{})
	wantCode(t, err, fault.Unavailable) // an error, never an empty list
	must(t, syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT, "size=4m"))
	say(t, r, anna, id, "hello", "hello")
	must(t, r.Close())
}

// Open files are bounded, and a file that was closed for it serves on.
func TestOpenBound(t *testing.T) {
	cfg := config(t.TempDir())
	cfg.Open = 2
	r := newRoom(t, cfg)
	ids := map[int]string{}
	for range 2 {
		for i := 1; i <= 6; i++ {
			c := operator(i)
			ids[i] = say(t, r, c, ids[i], "hello", "fine")
		}
	}
	turn := begin(t, r, operator(1), ids[1], "held open")
	for i := 2; i <= 6; i++ {
		say(t, r, operator(i), ids[i], "more", "fine")
	}
	must(t, turn.End(t.Context(), Ending{Answer: fence.Words("still here"), Outcome: Done}))
	r.mu.Lock()
	open := len(r.files)
	r.mu.Unlock()
	if open > 2 {
		t.Errorf("%d files are open", open)
	}
	for i := 1; i <= 6; i++ {
		h, err := r.History(t.Context(), operator(i), ids[i], Span{})
		if err != nil || len(h.Entries) != 3 {
			t.Errorf("operator %d: %d turns, %v", i, len(h.Entries), err)
		}
	}
}

// A peer's key never shapes a path.
func TestFileName(t *testing.T) {
	name, err := fileName(peer)
	if err != nil || filepath.Base(name) != name || strings.ContainsAny(name, "/\x00 ") || len(name) > 80 {
		t.Errorf("%q, %v", name, err)
	}
}
