package folder

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

func make1(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, path string) *Folder {
	t.Helper()
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestListSaysWhatEachNameIsWithoutFollowing(t *testing.T) {
	dir := t.TempDir()
	make1(t, filepath.Join(dir, "a.txt"), "hello")
	make1(t, filepath.Join(dir, "sub", "b"), "x")
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	entries, more, err := open(t, dir).List(t.Context(), ".", 10)
	if err != nil || more {
		t.Fatal(err, more)
	}
	want := []struct {
		name string
		kind Kind
		size int64
	}{{"a.txt", File, 5}, {"link", Link, 0}, {"pipe", Other, 0}, {"sub", Dir, 0}}
	if len(entries) != len(want) {
		t.Fatalf("%d entries: %+v", len(entries), entries)
	}
	for i, w := range want {
		if e := entries[i]; e.Name != w.name || e.Kind != w.kind || e.Size != w.size || e.Modified.IsZero() {
			t.Errorf("entry %d is %+v, want %+v", i, e, w)
		}
	}
}

func TestListIsBounded(t *testing.T) {
	dir := t.TempDir()
	for _, n := range []string{"c", "a", "b"} {
		make1(t, filepath.Join(dir, n), "")
	}
	entries, more, err := open(t, dir).List(t.Context(), ".", 2)
	if err != nil || !more || len(entries) != 2 || entries[0].Name != "a" || entries[1].Name != "b" {
		t.Fatal(entries, more, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := open(t, dir).List(ctx, ".", 2); !errors.Is(err, context.Canceled) {
		t.Fatal("a cancelled listing went on:", err)
	}
}

// SPEC 4, Files: no path leaves the folder. The words of the error hold no path (H3).
func TestNothingLeadsOut(t *testing.T) {
	base := t.TempDir()
	dir, outside := filepath.Join(base, "in"), filepath.Join(base, "outside-name")
	make1(t, filepath.Join(dir, "ok", "f"), "inside")
	make1(t, filepath.Join(outside, "f"), "SECRET")
	for name, target := range map[string]string{
		"up": "../outside-name", "abs": outside, "file": "../outside-name/f", "chain": "up/f", "deep": "ok/../../outside-name",
	} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	f := open(t, dir)
	for _, rel := range []string{"..", "../outside-name", "up", "abs", "deep", "ok/../../outside-name", outside, "/", "up/"} {
		if got, _, err := f.List(t.Context(), rel, 10); !errors.Is(err, ErrOutside) {
			t.Errorf("List(%q) gave %v, %v", rel, got, err)
		} else if strings.Contains(err.Error(), "outside-name") {
			t.Errorf("the error names a path: %v", err)
		}
	}
	for _, rel := range []string{"file", "chain", "up/f", "../outside-name/f", outside + "/f"} {
		if got, _, err := f.Read(rel); !errors.Is(err, ErrOutside) {
			t.Errorf("Read(%q) gave %v, %v", rel, got, err)
		}
	}
	if _, _, err := f.List(t.Context(), "nothing-here", 10); !errors.Is(err, fs.ErrNotExist) || strings.Contains(err.Error(), "nothing-here") {
		t.Error("a missing directory:", err)
	}
}

func TestPipesDoNotBlock(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := open(t, dir)
	if _, _, err := f.Read("pipe"); !errors.Is(err, ErrNotRegular) {
		t.Error("Read of a pipe:", err)
	}
	if _, _, err := f.List(t.Context(), "pipe", 1); err == nil {
		t.Error("a pipe was listed")
	}
}

// A directory that is swapped for a link to the outside while it is being read never shows the outside.
func TestSwappedDirectoryNeverShowsTheOutside(t *testing.T) {
	base := t.TempDir()
	dir, outside := filepath.Join(base, "in"), filepath.Join(base, "out")
	make1(t, filepath.Join(dir, "d", "inside"), "inside")
	make1(t, filepath.Join(outside, "SECRET"), "SECRET")
	make1(t, filepath.Join(outside, "inside"), "SECRET")
	f := open(t, dir)
	stop := make(chan struct{})
	var swapper sync.WaitGroup
	swapper.Go(func() {
		d, parked, link := filepath.Join(dir, "d"), filepath.Join(base, "parked"), filepath.Join(base, "link")
		for {
			select {
			case <-stop:
				return
			default:
			}
			_ = os.Symlink(outside, link)
			_ = os.Rename(d, parked)
			_ = os.Rename(link, d)
			_ = os.Remove(d)
			_ = os.Rename(parked, d)
		}
	})
	deadline := time.Now().Add(300 * time.Millisecond)
	seen := 0
	for time.Now().Before(deadline) {
		entries, _, err := f.List(t.Context(), "d", 10)
		if err == nil {
			seen++
		}
		for _, e := range entries {
			if e.Name == "SECRET" {
				t.Error("the outside was listed")
			}
		}
		if file, _, err := f.Read("d/inside"); err == nil {
			text, _ := io.ReadAll(file)
			file.Close()
			if string(text) != "inside" {
				t.Errorf("read %q", text)
			}
		}
	}
	close(stop)
	swapper.Wait()
	if seen == 0 {
		t.Error("the trial never saw the directory in place")
	}
}

func TestOverlap(t *testing.T) {
	base := t.TempDir()
	mk := func(p string) string {
		p = filepath.Join(base, p)
		if err := os.MkdirAll(p, 0o700); err != nil {
			t.Fatal(err)
		}
		return p
	}
	data, in, media := mk("data"), mk("data/content"), mk("media")
	link := filepath.Join(base, "link")
	if err := os.Symlink("data", link); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{data, data, true}, {in, data, true}, {data, in, true}, {base, data, true}, {"/", data, true}, {link, data, true},
		{filepath.Join(link, "content"), data, true}, {media, data, false}, {mk("data-other"), data, false},
		{media + "/../data", data, true},
	} {
		if got, err := Overlap(c.a, c.b); err != nil || got != c.want {
			t.Errorf("Overlap(%s, %s) = %v, %v", c.a, c.b, got, err)
		}
	}
	if _, err := Overlap(filepath.Join(base, "none"), data); !errors.Is(err, fs.ErrNotExist) {
		t.Error("a missing directory:", err)
	}
}

func TestStampChangesWhenTheTimeIsSetBack(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	make1(t, path, "one")
	f := open(t, dir)
	file, before, err := f.Read("f")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	at := time.Unix(0, before.Modified)
	// Same length, same modification time, other content: only the change time tells. Kernel clocks tick in
	// milliseconds, so write until it moved.
	for i := 0; ; i++ {
		if err := os.WriteFile(path, []byte("two"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
		after, err := StampOf(file)
		if err != nil {
			t.Fatal(err)
		}
		if after != before {
			break
		}
		if i > 1_000_000 {
			t.Fatal("the stamp never changed")
		}
	}
}

func TestPasses(t *testing.T) {
	dir := t.TempDir()
	make1(t, filepath.Join(dir, "a", "b", "f"), "")
	info, err := os.Stat(filepath.Join(dir, "a"))
	if err != nil {
		t.Fatal(err)
	}
	f := open(t, dir)
	for rel, want := range map[string]bool{"a": true, "a/b": true, ".": false, "": false} {
		if got, err := f.Passes(rel, info); err != nil || got != want {
			t.Errorf("Passes(%q) = %v, %v", rel, got, err)
		}
	}
}
