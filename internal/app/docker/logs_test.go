package docker

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"

	"atoll/internal/app"
	"atoll/internal/fault"
)

func texts(lines []app.Line) string {
	var out []string
	for _, l := range lines {
		out = append(out, strings.TrimPrefix(fmt.Sprintf("%s/%s:%s", l.Service, l.Stream, l.Text), "/"))
	}
	return strings.Join(out, "|")
}

// Issue 3: demultiplexed, with a terminal and without, services and replicas put together by time, the last n of all.
func TestLogs(t *testing.T) {
	f := newFake(t)
	at := time.Date(2026, 12, 2, 8, 0, 0, 0, time.UTC)
	line := func(second int, stream byte, text string) fakeLine {
		return fakeLine{at.Add(time.Duration(second) * time.Second), stream, text + "\n"}
	}
	f.add(fakeBox{name: "p-db-1", labels: composed("p", "db", ""), log: []fakeLine{line(1, 1, "db one"), line(4, 2, "db two")}})
	f.add(fakeBox{name: "p-web-1", labels: composed("p", "web", "db"), log: []fakeLine{line(2, 1, "web one"), line(5, 1, "web two\r")}})
	f.add(fakeBox{name: "p-web-2", labels: composed("p", "web", "db"), tty: true, log: []fakeLine{line(3, 1, "\x1b[1mother\xff")}})
	f.add(fakeBox{name: "empty"})
	e := begin(t, f.path)
	cases := []struct {
		name string
		n    int
		want string
	}{
		{"p", 100, "db/stdout:db one|web/stdout:web one|web/output:other\uFFFD|db/stderr:db two|web/stdout:web two"},
		{"p", 2, "db/stderr:db two|web/stdout:web two"},
		{"p", 0, ""},
		{"p", -5, ""},
		{"p/web", 100, "stdout:web one|output:other\uFFFD|stdout:web two"},
		{"p/db", 1, "stderr:db two"},
		{"empty", 100, ""},
	}
	for _, c := range cases {
		log, err := e.Logs(t.Context(), c.name, c.n)
		if err != nil {
			t.Fatal(err)
		}
		if got := texts(log.Lines); got != c.want || log.Truncated {
			t.Errorf("%s, %d: %q, truncated %v", c.name, c.n, got, log.Truncated)
		}
		for _, l := range log.Lines {
			if l.Time.IsZero() {
				t.Errorf("no time: %+v", l)
			}
		}
	}
}

// send writes a frame.
func send(w io.Writer, stream byte, text string) {
	head := []byte{stream, 0, 0, 0, 0, 0, 0, 0}
	binary.BigEndian.PutUint32(head[4:], uint32(len(text)))
	_, _ = w.Write(head)
	_, _ = io.WriteString(w, text)
}

// Issue 3, faults: a log of 1 GB that the engine sends whole, and a line of 10 MB, in bounded memory.
func TestHugeLog(t *testing.T) {
	size := 1 << 30
	if testing.Short() {
		size = 64 << 20
	}
	f := newFake(t)
	stamp := "2026-12-02T08:00:00.000000001Z "
	block := strings.Repeat(stamp+strings.Repeat("0123456789", 9)+"\n", 500)
	f.add(fakeBox{name: "big", bigLog: func(w io.Writer) {
		for sent := 0; sent < size; sent += len(block) {
			send(w, 1, block)
		}
		send(w, 2, stamp+"the end\n")
	}})
	f.add(fakeBox{name: "long", bigLog: func(w io.Writer) {
		send(w, 1, stamp+"before\n")
		send(w, 1, stamp+strings.Repeat("x", 10<<20)+"\n")
		send(w, 1, stamp+"after\n")
	}})
	f.add(fakeBox{name: "wide", bigLog: func(w io.Writer) {
		for range 500 {
			send(w, 1, stamp+strings.Repeat("y", 16<<10)+"\n")
		}
	}})
	e := begin(t, f.path)
	inspect(t, e, "big")
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	log, err := e.Logs(t.Context(), "big", 500)
	runtime.ReadMemStats(&after)
	if err != nil || len(log.Lines) != 500 || log.Lines[499].Text != "the end" || log.Lines[499].Stream != "stderr" || log.Truncated {
		t.Fatal(err, len(log.Lines))
	}
	t.Logf("%d MB of log: %d KB allocated, heap from %d to %d KB", size>>20, (after.TotalAlloc-before.TotalAlloc)>>10, before.HeapInuse>>10, after.HeapInuse>>10)
	if used := after.TotalAlloc - before.TotalAlloc; used > 64<<20 {
		t.Errorf("%d MB allocated", used>>20)
	}
	if after.HeapInuse > before.HeapInuse+32<<20 {
		t.Errorf("heap from %d to %d MB", before.HeapInuse>>20, after.HeapInuse>>20)
	}
	log, err = e.Logs(t.Context(), "long", 10)
	if err != nil || len(log.Lines) != 3 || !log.Truncated || len(log.Lines[1].Text) > app.MaxLine || log.Lines[0].Text != "before" || log.Lines[2].Text != "after" {
		t.Error(err, len(log.Lines), log.Truncated)
	}
	log, err = e.Logs(t.Context(), "wide", 500)
	sum := 0
	for _, l := range log.Lines {
		sum += len(l.Text)
	}
	if err != nil || sum > tailBytes || sum < tailBytes/2 || !log.Truncated {
		t.Error(err, sum, log.Truncated)
	}
}

// Issue 3, faults: the engine stops mid-log, says nothing, says no, or sends something else: an error, and nothing hangs.
func TestBrokenLogs(t *testing.T) {
	f := newFake(t)
	stamp := "2026-12-02T08:00:00Z "
	f.add(fakeBox{name: "p-good-1", labels: composed("p", "good", ""), log: []fakeLine{{time.Now(), 1, "fine\n"}}})
	f.add(fakeBox{name: "p-none-1", labels: composed("p", "none", ""), bigLog: func(w io.Writer) {
		send(w, 3, "configured logging driver does not support reading")
	}})
	f.add(fakeBox{name: "odd", bigLog: func(w io.Writer) { _, _ = io.WriteString(w, "<html>not a log</html>") }})
	f.add(fakeBox{name: "silent", bigLog: func(w io.Writer) {
		send(w, 1, stamp+"one\n")
		_ = w.(interface{ FlushError() error }).FlushError()
		<-f.quit
	}})
	begun := make(chan struct{})
	f.add(fakeBox{name: "dying", bigLog: func(w io.Writer) {
		send(w, 1, stamp+"one\n")
		_ = w.(interface{ FlushError() error }).FlushError()
		close(begun)
		<-f.quit
	}})
	e := made(t, f.path)
	e.logIdle = 100 * time.Millisecond
	run(t, e)
	_, err := e.Logs(t.Context(), "p/none", 10)
	refused(t, err, fault.Failed, "p/none", "does not support reading")
	log, err := e.Logs(t.Context(), "p", 10)
	if got := texts(log.Lines); err != nil || !strings.Contains(got, "good/stdout:fine") || !strings.Contains(got, "none/atoll:the engine gives no log") {
		t.Error(got, err)
	}
	notes := make(chan app.Line, 100)
	ctx, cancel := context.WithCancel(t.Context())
	followed := make(chan error, 1)
	go func() {
		followed <- e.Follow(ctx, "p", 10, func(l app.Line) error { notes <- l; return nil })
	}()
	wait(t, "both", func() bool { return len(notes) == 2 })
	done(t, e.Start(t.Context(), "p")) // a log that cannot be read is said once a run, not again and again
	wait(t, "a run each", func() bool { return len(notes) == 4 })
	<-time.After(3 * followAgain)
	if len(notes) != 4 {
		t.Errorf("%d lines", len(notes))
	}
	cancel()
	<-followed
	_, err = e.Logs(t.Context(), "odd", 10)
	refused(t, err, fault.Failed, "no log")
	_, err = e.Logs(t.Context(), "silent", 10)
	refused(t, err, fault.Unavailable, "fell silent")
	e.logIdle = time.Minute
	read := make(chan error, 1)
	go func() {
		_, err := e.Logs(t.Context(), "dying", 10)
		read <- err
	}()
	<-begun
	f.die()
	select {
	case err := <-read:
		refused(t, err, fault.Unavailable, "went away")
	case <-time.After(patience):
		t.Fatal("it hangs")
	}
}

// follow collects what Follow gives.
func follow(t *testing.T, e *Engine, name string, n int) (lines chan app.Line, over chan error) {
	t.Helper()
	lines, over = make(chan app.Line, 10_000), make(chan error, 1)
	go func() {
		over <- e.Follow(t.Context(), name, n, func(l app.Line) error {
			lines <- l
			return nil
		})
	}()
	return lines, over
}

func next(t *testing.T, lines chan app.Line, over chan error, want string) {
	t.Helper()
	select {
	case l := <-lines:
		if got := texts([]app.Line{l}); got != want {
			t.Fatalf("%q, want %q", got, want)
		}
	case err := <-over:
		t.Fatalf("it ended with %v before %q", err, want)
	case <-time.After(patience):
		t.Fatalf("waited in vain for %q", want)
	}
}

// Issue 3: followed over restarts and recreations, each line once, though many bear the same time.
func TestFollow(t *testing.T) {
	f := newFake(t)
	at := time.Now().Add(-time.Hour).Truncate(time.Second)
	old := []fakeLine{{at, 1, "a\n"}, {at, 1, "b\n"}, {at, 1, "c\n"}}
	web := f.add(fakeBox{name: "p-web-1", labels: composed("p", "web", ""), log: old})
	e := begin(t, f.path)
	lines, over := follow(t, e, "p", 1)
	next(t, lines, over, "web/stdout:c")
	done(t, e.Start(t.Context(), "p"))
	next(t, lines, over, "web/stdout:hello from p-web-1, run 1")
	f.print(web, 2, "oops")
	next(t, lines, over, "web/stderr:oops")
	f.set(web, func(b *fakeBox) { // three of one time, and then it ends before they can be told apart by it
		now := time.Now().Truncate(time.Second)
		b.log = append(b.log, fakeLine{now, 1, "x\n"}, fakeLine{now, 1, "y\n"}, fakeLine{now, 1, "z\n"})
	})
	for _, want := range []string{"x", "y", "z"} {
		next(t, lines, over, "web/stdout:"+want)
	}
	done(t, e.Restart(t.Context(), "p"))
	next(t, lines, over, "web/stdout:hello from p-web-1, run 2")
	second := f.add(fakeBox{name: "p-web-2", labels: composed("p", "web", "")})
	wait(t, "the replica", func() bool { return e.box(second.id) != nil })
	done(t, e.Start(t.Context(), "p"))
	next(t, lines, over, "web/stdout:hello from p-web-2, run 1")
	f.drop(web)
	f.print(second, 1, "still here")
	next(t, lines, over, "web/stdout:still here")
	f.drop(second)
	select {
	case err := <-over:
		refused(t, err, fault.NotFound)
	case <-time.After(patience):
		t.Fatal("it goes on though the app is gone")
	}
	if len(lines) > 0 {
		t.Errorf("more: %q", texts([]app.Line{<-lines}))
	}
}

// A run that was over before anybody looked is followed all the same.
func TestFollowBrief(t *testing.T) {
	f := newFake(t)
	f.add(fakeBox{name: "brief", brief: true, code: 1})
	e := begin(t, f.path)
	lines, over := follow(t, e, "brief", 10)
	wait(t, "Follow to begin", func() bool { return e.watchers.Len() > 1 })
	for run := range 3 {
		done(t, e.Start(t.Context(), "brief"))
		next(t, lines, over, fmt.Sprint("stdout:hello from brief, run ", run+1))
		wait(t, "its end", func() bool { return inspect(t, e, "brief").State == app.Exited })
	}
}

// Issue 3, faults: the engine stops while a log is followed; the one who reads stops by himself.
func TestFollowEnds(t *testing.T) {
	f := newFake(t)
	f.add(fakeBox{name: "steady"})
	e := begin(t, f.path)
	done(t, e.Start(t.Context(), "steady"))
	enough := errors.New("enough")
	if err := e.Follow(t.Context(), "steady", 10, func(app.Line) error { return enough }); !errors.Is(err, enough) {
		t.Error(err)
	}
	lines, over := follow(t, e, "steady", 10)
	next(t, lines, over, "stdout:hello from steady, run 1")
	f.die()
	select {
	case err := <-over:
		refused(t, err, fault.Unavailable)
	case <-time.After(patience):
		t.Fatal("it hangs")
	}
	refused(t, e.Follow(t.Context(), "steady", 10, func(app.Line) error { return nil }), fault.Unavailable)
}
