package journal

import (
	"context"
	"errors"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// followed joins at n lines and gives back what each look adds, notes in brackets.
func followed(t *testing.T, j *Journal, n int) (first string, look func() string) {
	t.Helper()
	f, lines, err := j.join(n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.leave(f) })
	return inBrackets(lines), func() string {
		var all []Line
		for more := true; more; {
			lines, again, err := j.next(f)
			if err != nil {
				t.Fatal(err)
			}
			all, more = append(all, lines...), again
		}
		return inBrackets(all)
	}
}

func inBrackets(lines []Line) string {
	var out []string
	for _, l := range lines {
		if l.Note {
			l.Text = "[" + l.Text + "]"
		}
		out = append(out, l.Text)
	}
	return strings.Join(out, "|")
}

// Each line comes once, when it is finished, with the notes at their place.
func TestFollowLines(t *testing.T) {
	j := Open(t.TempDir(), "one", 8<<20)
	put(t, j, "a\nb\nhalf")
	first, look := followed(t, j, 1)
	if first != "b" {
		t.Errorf("first %q", first)
	}
	for _, step := range []struct{ output, note, want string }{
		{"", "", ""},
		{" and whole\nc\r\n", "", "half and whole|c"},
		{"d\n", "stopped", "d|[stopped]"},
		{"e", "stopped", "e|[stopped]"}, // a program that ended without the end of its line
		{"f", "", ""},
		{"\n\n", "", "f|"},
		{"\xff\x00g\n", "", "\uFFFD\x00g"},
	} {
		put(t, j, step.output)
		if step.note != "" {
			note(t, j, step.note)
		}
		if got := look(); got != step.want {
			t.Errorf("%+v: %q", step, got)
		}
	}
	late, _ := followed(t, j, 0)
	if late != "" {
		t.Errorf("no line asked for: %q", late)
	}
}

// A note that stands before output which was given already comes late and cuts no line in two.
func TestFollowLateNote(t *testing.T) {
	j := Open(t.TempDir(), "one", 8<<20)
	_, look := followed(t, j, 5)
	put(t, j, "a\nhal")
	look()
	if err := j.Note(time.Now(), 0, "started"); err != nil {
		t.Fatal(err)
	}
	put(t, j, "f\n")
	if got := look(); got != "[started]|half" {
		t.Errorf("%q", got)
	}
}

// Where the log begins within a line, that line is whole once; one that a note has ended is not held back.
func TestFollowFromUnfinished(t *testing.T) {
	j := Open(t.TempDir(), "one", 8<<20)
	put(t, j, "first\nsecond")
	note(t, j, "ended")
	first, look := followed(t, j, 9)
	if first != "first|second|[ended]" {
		t.Errorf("%q", first)
	}
	put(t, j, "third\n")
	if got := look(); got != "third" {
		t.Errorf("%q", got)
	}
	put(t, j, strings.Repeat("x", 3*maxLineBytes))
	_, look = followed(t, j, 9)
	put(t, j, "the end\n")
	if got := look(); got != "[… the beginning of this line is cut by Atoll] the end" {
		t.Errorf("%.80q…", got)
	}
}

// Rotation takes no line away and gives none twice, also where it cuts a line in two.
func TestFollowAcrossRotation(t *testing.T) {
	j := Open(t.TempDir(), "one", 100)
	_, look := followed(t, j, 5)
	var want, got []string
	line := func(s string) string { want = append(want, s); return s + "\n" }
	for round := range 6 {
		put(t, j, line(strings.Repeat("a", 10+round))+line(strings.Repeat("b", 40)))
		got = append(got, look())
		put(t, j, "half ")
		if round%2 == 0 {
			got = append(got, look()) // else it is read from the older file
		}
		put(t, j, line("half of it" + strings.Repeat("c", 50))[5:])
		if err := j.Rotate(); err != nil {
			t.Fatal(err)
		}
		put(t, j, line("after"))
		got = append(got, look())
	}
	got = slices.DeleteFunc(got, func(s string) bool { return s == "" })
	if g, w := strings.Join(got, "|"), strings.Join(want, "|"); g != w {
		t.Errorf("got  %s\nwant %s", g, w)
	}
}

// What a follower cannot keep up with is left out with a mark, in bounded memory, and what comes after is there.
func TestFollowBehind(t *testing.T) {
	j := Open(t.TempDir(), "one", 2<<30)
	_, look := followed(t, j, 5)
	put(t, j, "start\n")
	if err := os.Truncate(j.part(0), 1<<30); err != nil {
		t.Fatal(err)
	}
	put(t, j, "\nlast\n")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got := look()
	runtime.ReadMemStats(&after)
	if !strings.HasPrefix(got, "[[… 10736") || !strings.HasSuffix(got, "|last") || len(got) > 200 {
		t.Errorf("%.200q", got)
	}
	if used := after.TotalAlloc - before.TotalAlloc; used > 4<<20 {
		t.Errorf("%d bytes for it", used)
	}
	put(t, j, strings.Repeat("y", 10<<10)+"\n")
	if got := look(); len(got) > maxLineBytes+100 || !strings.HasSuffix(got, "y [… 6144 bytes cut by Atoll]") {
		t.Errorf("%d: …%.80q", len(got), got[max(0, len(got)-80):])
	}
	if err := os.Truncate(j.part(0), 0); err != nil {
		t.Fatal(err)
	}
	put(t, j, "anew\n")
	if got := look(); got != "anew" {
		t.Errorf("emptied by hand: %q", got)
	}
}

// Two rotations between two looks lose lines, and say so.
func TestFollowLosesRotated(t *testing.T) {
	j := Open(t.TempDir(), "one", 10)
	_, look := followed(t, j, 5)
	for _, s := range []string{"aaaaaaaaaaaa\n", "bbbbbbbbbbbb\n"} {
		put(t, j, s)
		if err := j.Rotate(); err != nil {
			t.Fatal(err)
		}
	}
	put(t, j, "c\n")
	if got := look(); !strings.HasPrefix(got, "[[… ") || !strings.Contains(got, "left out by Atoll") || !strings.HasSuffix(got, "c") || strings.Contains(got, "aa") {
		t.Errorf("%q", got)
	}
}

// It ends with its context or with emit's error, and leaves nothing behind.
func TestFollowEnds(t *testing.T) {
	j := Open(t.TempDir(), "one", 8<<20)
	put(t, j, "a\n")
	ctx, cancel := context.WithCancel(t.Context())
	got := make(chan string)
	ended := make(chan error, 1)
	go func() { ended <- j.Follow(ctx, 5, func(l Line) error { got <- l.Text; return nil }) }()
	if l := <-got; l != "a" {
		t.Errorf("%q", l)
	}
	put(t, j, "b\n")
	note(t, j, "noted")
	if l := <-got + <-got; l != "bnoted" {
		t.Errorf("%q", l)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	enough := errors.New("enough")
	if err := j.Follow(t.Context(), 5, func(Line) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("%v", err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.followers) != 0 {
		t.Errorf("%d followers are left", len(j.followers))
	}
}
