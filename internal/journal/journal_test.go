package journal

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

func put(t *testing.T, j *Journal, text string) {
	t.Helper()
	f, err := j.Output()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

func note(t *testing.T, j *Journal, text string) {
	t.Helper()
	if err := j.Note(time.Now(), j.Offset(), text); err != nil {
		t.Fatal(err)
	}
}

func shown(t *testing.T, j *Journal, n int) string {
	t.Helper()
	log, err := j.Tail(n)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, l := range log.Lines {
		if l.Note {
			l.Text = "*" + l.Text
			if l.Time.IsZero() {
				t.Error("an event without time")
			}
		}
		out = append(out, l.Text)
	}
	return strings.Join(out, " ")
}

// Events stand where they happened among the output, over rotations and a restart of the node; files stay bounded.
func TestRotate(t *testing.T) {
	dir := t.TempDir()
	j := Open(dir, "one", 100)
	rotate := func() {
		t.Helper()
		if err := j.Rotate(); err != nil {
			t.Fatal(err)
		}
	}
	note(t, j, "begin")
	put(t, j, "a1\na2\n")
	rotate() // below its bound: nothing happens
	note(t, j, "mid")
	put(t, j, "a3\n"+strings.Repeat("x", 100)+"\na4\n")
	note(t, j, "full")
	rotate()
	put(t, j, "b1\n")
	note(t, j, "next")
	j = Open(dir, "one", 100)
	put(t, j, "b2\n")
	x := strings.Repeat("x", 100)
	if got := shown(t, j, 100); got != "*begin *mid a4 *full b1 *next b2" && got != "*begin a1 a2 *mid a3 "+x+" a4 *full b1 *next b2" {
		t.Errorf("%s", got)
	}
	if got := shown(t, j, 3); got != "b1 *next b2" {
		t.Errorf("%s", got)
	}
	for i := range 50 {
		put(t, j, fmt.Sprintf("%d %s\n", i, x))
		rotate()
	}
	total := int64(0)
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		total += info.Size()
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %o", e.Name(), info.Mode())
		}
	}
	if len(entries) != 4 || total > 10_000 {
		t.Errorf("%d files of %d bytes", len(entries), total)
	}
}

// The file is emptied for the app that holds it open: what it writes next begins the file anew.
func TestRotateUnderWriter(t *testing.T) {
	j := Open(t.TempDir(), "one", 100)
	w, err := j.Output()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for i := range 30 {
		if _, err := fmt.Fprintf(w, "line %d\n", i); err != nil {
			t.Fatal(err)
		}
		if i == 20 {
			if err := j.Rotate(); err != nil {
				t.Fatal(err)
			}
		}
	}
	b, err := os.ReadFile(j.part(0))
	if err != nil || !bytes.HasPrefix(b, []byte("line 21\n")) || bytes.ContainsRune(b, 0) {
		t.Errorf("%q %v", b, err)
	}
	if got := shown(t, j, 12); got != "line 18 line 19 line 20 line 21 line 22 line 23 line 24 line 25 line 26 line 27 line 28 line 29" {
		t.Errorf("%s", got)
	}
}

// Only the end of a flood is copied: a file far beyond its bound costs no more than one at it.
func TestRotateFlood(t *testing.T) {
	j := Open(t.TempDir(), "one", 1000)
	put(t, j, "first\n")
	if err := os.Truncate(j.part(0), 1<<30); err != nil { // sparse
		t.Fatal(err)
	}
	put(t, j, "\nlast\n")
	if err := j.Rotate(); err != nil {
		t.Fatal(err)
	}
	for n, most := range map[int]int64{0: 0, 1: 1000} {
		if st, err := os.Stat(j.part(n)); err != nil || st.Size() > most {
			t.Errorf("part %d: %v %v", n, st, err)
		}
	}
	if got := shown(t, j, 1); got != "last" {
		t.Errorf("%q", got)
	}
}

// A live file that is not a regular one (a link to somewhere else) is neither written, read nor emptied.
func TestLogIsLink(t *testing.T) {
	dir := t.TempDir()
	j := Open(dir, "one", 10)
	victim := dir + "/victim"
	if err := os.WriteFile(victim, []byte("a secret that is longer than ten bytes"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(victim, j.part(0)); err != nil {
		t.Fatal(err)
	}
	if _, err := j.Output(); err == nil {
		t.Error("written")
	}
	if log, err := j.Tail(10); err == nil {
		t.Errorf("read: %+v", log)
	}
	if err := j.Rotate(); err != nil {
		t.Error(err)
	}
	if b, _ := os.ReadFile(victim); len(b) != 38 {
		t.Errorf("emptied: %q", b)
	}
}

// The file of events is bounded and keeps its newest.
func TestEventsTrim(t *testing.T) {
	j := Open(t.TempDir(), "one", 100)
	put(t, j, strings.Repeat("x", 200)+"\n")
	if err := j.Rotate(); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("e", 4000)
	for i := range 200 {
		note(t, j, fmt.Sprintf("%d %s", i, long))
	}
	st, err := os.Stat(j.eventPath())
	if err != nil || st.Size() > maxEventBytes {
		t.Errorf("%v %v", st, err)
	}
	if got := shown(t, j, 1); !strings.HasPrefix(got, "*199 ") {
		t.Errorf("%.50s", got)
	}
	if again := Open(j.dir, "one", 100); again.base != 201 {
		t.Errorf("the base is lost: %d", again.base)
	}
}
