package download

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"atoll/internal/fault"
)

func newStore(t *testing.T, quota int64) (*Store, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "downloads")
	s, err := New(Config{Dir: dir, Quota: quota})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s, dir
}

// files lists all that lies under the directory, with sizes.
func files(t *testing.T, dir string) map[string]int64 {
	t.Helper()
	out := map[string]int64{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			info, _ := d.Info()
			rel, _ := filepath.Rel(dir, p)
			out[rel] = info.Size()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func begin(t *testing.T, s *Store, p string, body []byte) *File {
	t.Helper()
	f, err := s.Begin(t.Context(), "garden", p, int64(len(body)), sha256.Sum256(body))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestResumed(t *testing.T) {
	s, dir := newStore(t, 1<<20)
	body := bytes.Repeat([]byte("0123456789"), 1000)
	f := begin(t, s, "films/one.mkv", body)
	if _, err := f.Write(body[:6000]); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Finish(); !fault.Is(err, fault.Unavailable) {
		t.Error("a part was taken for the whole:", err)
	}
	if _, err := s.Begin(t.Context(), "garden", "films/one.mkv", int64(len(body)), sha256.Sum256(body)); !fault.Is(err, fault.Busy) {
		t.Error("two downloads write one file:", err)
	}
	if err := errors.Join(f.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	f = begin(t, s, "films/one.mkv", body)
	if f.Offset() != 6000 {
		t.Fatal("goes on from", f.Offset())
	}
	if _, err := f.Write(body[6000:]); err != nil {
		t.Fatal(err)
	}
	at, err := f.Finish()
	if err != nil || at != filepath.Join(dir, "garden/films/one.mkv") {
		t.Fatal(at, err)
	}
	got, err := os.ReadFile(at)
	if err != nil || !bytes.Equal(got, body) || len(files(t, dir)) != 1 {
		t.Error(err, files(t, dir))
	}
	if info, _ := os.Stat(at); info.Mode().Perm() != 0o600 {
		t.Error(info.Mode())
	}
	if s.reserved != 0 && f.Close() == nil && s.reserved != 0 {
		t.Error("still reserved:", s.reserved)
	}
}

// A file that changed at the other end is another file: the old part is not its beginning.
// A part that nobody went on with makes room after a week; one that is being written, or fresh, or a whole file, does not.
func TestOldPartsMakeRoom(t *testing.T) {
	now := time.Now()
	dir := filepath.Join(t.TempDir(), "downloads")
	s, err := New(Config{Dir: dir, Quota: 1000, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	whole, open, left := bytes.Repeat([]byte("w"), 100), bytes.Repeat([]byte("o"), 200), bytes.Repeat([]byte("l"), 300)
	f := begin(t, s, "whole", whole)
	if _, err := f.Write(whole); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Finish(); err != nil {
		t.Fatal(err)
	}
	running := begin(t, s, "open", open)
	given := begin(t, s, "left", left)
	for f, part := range map[*File][]byte{running: open[:5], given: left[:5]} {
		if _, err := f.Write(part); err != nil {
			t.Fatal(err)
		}
	}
	given.Close()
	now = now.Add(keepParts - time.Hour)
	begin(t, s, "one", nil).Close()
	if n := files(t, dir); len(n) != 4 {
		t.Errorf("before its time: %v", n)
	}
	now = now.Add(2 * time.Hour)
	begin(t, s, "two", nil).Close()
	n := files(t, dir)
	for p := range n {
		if strings.HasPrefix(p, "garden/left") {
			t.Error("still there:", p)
		}
	}
	if n["garden/whole"] != 100 || len(n) < 3 {
		t.Errorf("%v", n)
	}
	if _, err := running.Write(open[5:]); err != nil {
		t.Error("a download under way lost its part:", err)
	}
	if _, err := running.Finish(); err != nil {
		t.Error(err)
	}
}

func TestOtherVersion(t *testing.T) {
	s, dir := newStore(t, 1<<20)
	old, next := bytes.Repeat([]byte("a"), 100), bytes.Repeat([]byte("b"), 100)
	f := begin(t, s, "x", old)
	_, _ = f.Write(old[:50])
	f.Close()
	f = begin(t, s, "x", next)
	if f.Offset() != 0 {
		t.Fatal("goes on from", f.Offset())
	}
	_, _ = f.Write(next)
	if _, err := f.Finish(); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(filepath.Join(dir, "garden/x")); !bytes.Equal(got, next) {
		t.Error(string(got))
	}
}

// A hash that does not fit leaves nothing, and an earlier whole file stays as it was.
func TestWrongHash(t *testing.T) {
	s, dir := newStore(t, 1<<20)
	good := []byte("the archive")
	f := begin(t, s, "x", good)
	_, _ = f.Write(good)
	if _, err := f.Finish(); err != nil {
		t.Fatal(err)
	}
	f.Close()
	lie := []byte("the archivE")
	f, err := s.Begin(t.Context(), "garden", "x", int64(len(lie)), sha256.Sum256([]byte("something e")))
	if err != nil {
		t.Fatal(err)
	}
	_, _ = f.Write(lie)
	if _, err := f.Finish(); !errors.Is(err, ErrHash) {
		t.Error(err)
	}
	f.Close()
	if got, _ := os.ReadFile(filepath.Join(dir, "garden/x")); !bytes.Equal(got, good) || len(files(t, dir)) != 1 {
		t.Error(string(got), files(t, dir))
	}
}

func TestLimits(t *testing.T) {
	s, dir := newStore(t, 1000)
	f := begin(t, s, "a", make([]byte, 600))
	if _, err := s.Begin(t.Context(), "garden", "b", 500, [32]byte{}); !fault.Is(err, fault.TooLarge) {
		t.Error("what is still to come does not count:", err)
	}
	if n, err := f.Write(make([]byte, 601)); n != 0 || !fault.Is(err, fault.TooLarge) {
		t.Error("more than the size was taken:", n, err)
	}
	_, _ = f.Write(make([]byte, 600))
	f.Close()
	if _, err := s.Begin(t.Context(), "garden", "b", 401, [32]byte{}); !fault.Is(err, fault.TooLarge) {
		t.Error("what lies there does not count:", err)
	}
	if g, err := s.Begin(t.Context(), "garden", "b", 400, [32]byte{}); err != nil {
		t.Error(err)
	} else {
		g.Close()
	}
	if _, err := s.Begin(t.Context(), "garden", "c", -1, [32]byte{}); err == nil {
		t.Error("a size below zero")
	}
	for p := range files(t, dir) {
		if strings.HasPrefix(p, "garden/c") || p == "garden/b" {
			t.Error("a refused download left", p)
		}
	}
	if big, _ := newStore(t, 1<<62); big != nil {
		if _, err := big.Begin(t.Context(), "g", "x", 1<<61, [32]byte{}); !fault.Is(err, fault.TooLarge) {
			t.Error("more than the disk holds:", err)
		}
	}
}

// Paths of another node stay inside, whatever they hold, and links in the folder lead nowhere.
func TestNoWayOut(t *testing.T) {
	s, dir := newStore(t, 1<<20)
	outside := t.TempDir()
	for _, p := range []string{"", ".", "..", "../x", "/etc/passwd", "a/../../x", "a//b", "a/./b", "a/", "a\x00b", "a\nb", "a\u202eb", `a\b`,
		".ssh/authorized_keys", "a/.hidden", " a", "a ", "x" + partial, "\xff", strings.Repeat("n", maxName+1), strings.Repeat("d/", maxDepth) + "x", strings.Repeat("abcdefg/", 200) + "x"} {
		if f, err := s.Begin(t.Context(), "garden", p, 1, [32]byte{}); err == nil {
			f.Close()
			t.Errorf("%q was taken", p)
		}
	}
	for _, folder := range []string{"", ".", "..", "a/b", "/", ".x"} {
		if f, err := s.Begin(t.Context(), folder, "x", 1, [32]byte{}); err == nil {
			f.Close()
			t.Errorf("the folder %q was taken", folder)
		}
	}
	if err := os.MkdirAll(filepath.Join(dir, "garden"), 0o700); err != nil {
		t.Fatal(err)
	}
	body := []byte("x")
	sum := sha256.Sum256(body)
	part := (&File{path: "garden/file", sum: sum}).partName()
	for link, to := range map[string]string{"garden/away": outside, part: filepath.Join(outside, "made")} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range []string{"away/x", "file"} {
		if f, err := s.Begin(t.Context(), "garden", p, 1, sum); err == nil {
			f.Close()
			t.Errorf("%s was followed", p)
		}
	}
	if left := files(t, outside); len(left) != 0 {
		t.Error("written outside:", left)
	}
}

// Every hostile text as a file's name is kept inside or refused.
func TestHostileNames(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "shared", "attacks", "unicode.jsonl"))
	if err != nil {
		t.Skip("the hostile texts are not here:", err)
	}
	s, dir := newStore(t, 1<<20)
	lines, taken := 0, 0
	for line := range bytes.Lines(raw) {
		var v map[string]any
		if json.Unmarshal(line, &v) != nil {
			continue
		}
		lines++
		for _, value := range v {
			name, ok := value.(string)
			if !ok {
				continue
			}
			f, err := s.Begin(t.Context(), "garden", name, 0, sha256.Sum256(nil))
			if err != nil {
				continue
			}
			taken++
			if at, err := f.Finish(); err == nil && !strings.HasPrefix(at, filepath.Join(dir, "garden")+"/") {
				t.Errorf("%q is kept as %q", name, at)
			}
			f.Close()
		}
	}
	if lines == 0 {
		t.Fatal("no line was read")
	}
	t.Log(lines, "lines,", taken, "names taken")
	if entries, _ := os.ReadDir(filepath.Dir(dir)); len(entries) != 1 {
		t.Error("beside the folder:", entries)
	}
}

func TestStopped(t *testing.T) {
	s, _ := newStore(t, 1<<20)
	body := make([]byte, 100)
	f := begin(t, s, "x", body)
	_, _ = f.Write(body[:10])
	f.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Begin(ctx, "garden", "x", 100, sha256.Sum256(body)); err == nil {
		t.Error("a caller that is gone began a download")
	}
	if f := begin(t, s, "x", body); f.Offset() != 10 {
		t.Error(f.Offset())
	}
	for _, cfg := range []Config{{}, {Dir: "x", Quota: 1}, {Dir: t.TempDir()}} {
		if _, err := New(cfg); err == nil {
			t.Errorf("%+v was taken", cfg)
		}
	}
}

// FuzzCheckPath: a path that another node names is refused, or makes one file below the directory and nothing beside it.
func FuzzCheckPath(f *testing.F) {
	for _, p := range []string{"films/one.mkv", "..", "a/../b", "/etc/passwd", "a//b", "a\x00b", ".hidden", "a ", "a.part", strings.Repeat("a/", 40), strings.Repeat("é", 200), "\xff", "a\u202eb", "a\\b", "."} {
		f.Add(p)
	}
	dir := filepath.Join(f.TempDir(), "downloads")
	s, err := New(Config{Dir: dir, Quota: 1 << 20})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { s.Close() })
	f.Fuzz(func(t *testing.T, p string) {
		if err := CheckPath(p); err != nil {
			if f := fault.Of(err); f.Code != fault.InvalidParams || strings.Contains(f.Public, p) && len(p) > 40 {
				t.Errorf("%q: %v", p, err)
			}
			return
		}
		body := []byte("x")
		d, err := s.Begin(t.Context(), "garden", p, 1, sha256.Sum256(body))
		if err != nil {
			t.Fatalf("%q was accepted and cannot be made: %v", p, err)
		}
		defer d.Close()
		if _, err := d.Write(body); err != nil {
			t.Fatal(err)
		}
		at, err := d.Finish()
		if err != nil {
			t.Fatal(err)
		}
		if rel, err := filepath.Rel(filepath.Join(dir, "garden"), at); err != nil || !filepath.IsLocal(rel) || filepath.ToSlash(rel) != p {
			t.Errorf("%q lies at %q", p, at)
		}
		if got := files(t, filepath.Dir(dir)); len(got) != 1 {
			t.Errorf("%q made %v", p, got)
		}
		if err := os.RemoveAll(filepath.Join(dir, "garden")); err != nil {
			t.Fatal(err)
		}
	})
}
