package docker

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"atoll/internal/app"
	"atoll/internal/fault"
)

func (e *Engine) problems(t *testing.T) (apps int, problem string) {
	t.Helper()
	list, problems, err := e.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, p := range problems {
		all = append(all, p.Problem)
	}
	return len(list), strings.Join(all, "|")
}

// Issue 3: the engine going away and coming back is a state that the list shows, never an error.
func TestEngineAway(t *testing.T) {
	f := newFake(t)
	box := f.add(fakeBox{name: "steady"})
	var log bytes.Buffer
	e := made(t, f.path, func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	end := run(t, e)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	told := make(chan string, 1000)
	watched := make(chan error, 1)
	go func() { watched <- e.Watch(ctx, func(name string) { told <- name }) }()
	wait(t, "the watcher", func() bool { return e.watchers.Len() == 1 })
	done(t, e.Start(t.Context(), "steady"))
	for round := range 2 {
		f.die()
		wait(t, "the problem", func() bool {
			n, p := e.problems(t)
			return n == 0 && strings.Contains(p, "does not answer since") && strings.Contains(p, f.path)
		})
		_, err := e.Inspect(t.Context(), "steady")
		refused(t, err, fault.Unavailable, "does not answer since")
		_, _, err = e.Examine(t.Context(), "steady")
		refused(t, err, fault.Unavailable)
		if round == 1 {
			_ = os.Remove(f.path) // a socket that is gone is no other state
			wait(t, "the words", func() bool { _, p := e.problems(t); return strings.Contains(p, "does not answer since") })
		}
		f.set(box, func(b *fakeBox) { b.state, b.finished, b.exit, b.pid = "exited", time.Now(), 3, 0 })
		for len(told) > 0 {
			<-told
		}
		f.listen()
		wait(t, "the engine", func() bool { n, p := e.problems(t); return n == 1 && p == "" })
		if a := inspect(t, e, "steady"); a.State != app.Exited || *a.ExitCode != 3 {
			t.Errorf("stale: %+v", a)
		}
		if name := <-told; name != "steady" {
			t.Errorf("told %q", name)
		}
		done(t, e.Start(t.Context(), "steady"))
	}
	cancel()
	<-watched
	end()
	if strings.Contains(log.String(), "level=ERROR") {
		t.Error(log.String())
	}
}

// Issue 3, faults: an engine that takes questions and answers none. Nothing hangs longer than a look may take.
func TestEngineHangs(t *testing.T) {
	f := newFake(t)
	f.add(fakeBox{name: "steady"})
	e := made(t, f.path)
	e.lookTime = 300 * time.Millisecond
	run(t, e)
	done(t, e.Start(t.Context(), "steady"))
	f.hang()
	began := time.Now()
	wait(t, "an error", func() bool {
		_, err := e.Inspect(t.Context(), "steady")
		return fault.Is(err, fault.Unavailable)
	})
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("it took %v", took)
	}
	wait(t, "the problem", func() bool { n, p := e.problems(t); return n == 0 && strings.Contains(p, "does not answer since") })
	f.unhang()
	wait(t, "the engine", func() bool { n, p := e.problems(t); return n == 1 && p == "" })
}

// An engine that hangs from the beginning: a list waits a moment and says so.
func TestHangsFromTheStart(t *testing.T) {
	f := newFake(t)
	f.hang()
	e := made(t, f.path)
	run(t, e)
	began := time.Now()
	n, p := e.problems(t)
	if n != 0 || !strings.Contains(p, "not been asked yet") || time.Since(began) > firstWait+time.Second {
		t.Errorf("%d apps, %q, after %v", n, p, time.Since(began))
	}
	_, err := e.Inspect(t.Context(), "x")
	refused(t, err, fault.Unavailable)
}

// Where no engine is and none was configured there is neither an app nor a problem; where one was configured there is.
func TestNoEngine(t *testing.T) {
	dir := t.TempDir()
	e := begin(t, filepath.Join(dir, "no.sock"))
	if n, p := e.problems(t); n != 0 || !strings.Contains(p, "is not there") || !strings.Contains(p, "[apps]") {
		t.Errorf("%d apps, %q", n, p)
	}
	_, err := e.Inspect(t.Context(), "x")
	refused(t, err, fault.Unavailable, "is not there")

	e = made(t, "", func(c *Config) { c.Socket, c.RuntimeDir = "auto", dir })
	e.sockets = e.sockets[2:] // this machine may have one in the other places
	run(t, e)
	wait(t, "the first try", func() bool { return e.State().Absent })
	if n, p := e.problems(t); n != 0 || p != "" {
		t.Errorf("%d apps, %q", n, p)
	}
	_, err = e.Inspect(t.Context(), "x")
	refused(t, err, fault.NotFound)
	refused(t, e.Start(t.Context(), "x"), fault.NotFound)
}

// An engine that is found by itself where one may be, even when it comes later.
func TestFoundLater(t *testing.T) {
	f := newFake(t)
	f.add(fakeBox{name: "steady"})
	f.die()
	_ = os.Remove(f.path)
	e := made(t, "", func(c *Config) { c.Socket, c.RuntimeDir = "auto", filepath.Dir(f.path) })
	e.sockets = e.sockets[2:]
	end := run(t, e)
	wait(t, "the first try", func() bool { return e.State().Absent })
	f.listen()
	wait(t, "the engine", func() bool { n, p := e.problems(t); return n == 1 && p == "" })
	if l := e.State(); !l.Up || l.Engine != "Docker" || l.Version != "27.0.1" || l.API != "1.47" || l.Socket != f.path {
		t.Errorf("%+v", l)
	}
	end()
	refused(t, e.Start(t.Context(), "steady"), fault.Unavailable)
}

// Issue 3, point 7: doctor's look.
func TestProbe(t *testing.T) {
	f := newFake(t)
	f.podman = true
	r, err := Probe(t.Context(), Config{Socket: "unix://" + f.path})
	if err != nil || !r.Up || r.Engine != "Podman" || r.Version != "27.0.1" || r.Socket != f.path || r.Problem != "" {
		t.Errorf("%+v, %v", r, err)
	}
	r, err = Probe(t.Context(), Config{Socket: "unix:///no/such.sock"})
	if err != nil || r.Up || r.Absent || !strings.Contains(r.Problem, "is not there") {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err = Probe(t.Context(), Config{Socket: "tcp://x"}); err == nil {
		t.Error("a place that is none was taken")
	}
	for _, cfg := range []Config{{Socket: "auto"}, {Log: slog.New(slog.DiscardHandler)}, {Log: slog.New(slog.DiscardHandler), Socket: "auto", Model: "http://[::1"}} {
		if _, err := New(cfg); err == nil {
			t.Errorf("%+v was taken", cfg)
		}
	}
}

// F-A2: what is decided on is what is there, though no event has told of it; a garbled description hides no other.
func TestFresh(t *testing.T) {
	f := newFake(t)
	box := f.add(fakeBox{name: "a"})
	bad := f.add(fakeBox{name: "bad", garbled: true, labels: map[string]string{"com.docker.compose.project": "p", "com.docker.compose.service": "s"}})
	e := begin(t, f.path)
	mark := func(name string) string {
		t.Helper()
		_, m, err := e.Examine(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	first := mark("a")
	f.set(box, func(b *fakeBox) { b.env = []string{"NEW=1"} })
	if mark("a") == first {
		t.Error("an old fingerprint")
	}
	f.set(box, func(b *fakeBox) { b.state, b.started, b.pid = "running", time.Now(), 77 })
	wait(t, "the truth", func() bool { a := inspect(t, e, "a"); return a.State == app.Running && a.PID == 77 })
	f.mu.Lock() // a new one of the same name, and nobody told
	delete(f.boxes, box.id)
	again := *box
	again.id, again.env = fmt.Sprintf("%064x", 0xfff), nil
	f.boxes[again.id] = &again
	f.mu.Unlock()
	if mark("a") != first {
		t.Error("made anew by the first definition, it has another mark")
	}
	n, p := e.problems(t)
	if n != 2 || p != "" {
		t.Errorf("%d apps, %q", n, p)
	}
	_, _, err := e.Examine(t.Context(), "p/s")
	refused(t, err, fault.Failed, "cannot be read")
	if a := inspect(t, e, "p"); a.State != app.Stopped {
		t.Errorf("%+v", a)
	}
	f.drop(bad)
	wait(t, "it to be gone", func() bool { n, _ := e.problems(t); return n == 1 })
}

// With 300 containers the start asks the engine once for each and no more, a list asks nothing, and nothing is asked while
// nothing happens.
func TestManyContainers(t *testing.T) {
	f := newFake(t)
	for i := range 300 {
		b := fakeBox{name: fmt.Sprint("lone-", i), state: "created"}
		if i%3 != 0 {
			b.name, b.labels = fmt.Sprintf("p%d-s%d-1", i/10, i%10), composed(fmt.Sprint("p", i/10), fmt.Sprint("s", i%10), fmt.Sprint("s", i%10-1))
		}
		box := f.add(b)
		f.set(box, func(b *fakeBox) {
			b.state, b.started, b.pid = "running", time.Now(), os.Getpid()
			b.ports = `{"80/tcp":[{"HostIp":"0.0.0.0","HostPort":"8080"},{"HostIp":"::","HostPort":"8080"}]}`
		})
	}
	began := time.Now()
	e := begin(t, f.path)
	if n, p := e.problems(t); n != 130 || p != "" {
		t.Fatalf("%d apps, %q", n, p)
	}
	start := time.Since(began)
	asked := f.count()
	if asked > 310 {
		t.Errorf("%d requests to start", asked)
	}
	began = time.Now()
	const lists = 20
	for range lists {
		e.problems(t)
	}
	t.Logf("start %v, %d requests; a list %v", start, asked, time.Since(began)/lists)
	quiet := time.After(time.Second)
	<-quiet
	if now := f.count(); now != asked {
		t.Errorf("%d requests while nothing happened", now-asked)
	}
	// Checks of health, which an engine runs by exec, are no reason to ask.
	b := f.add(fakeBox{name: "late"})
	wait(t, "the new one", func() bool { return e.box(b.id) != nil })
	asked = f.count()
	for range 100 {
		f.emit("exec_start: /bin/true", b, "")
		f.emit("exec_die", b, "")
	}
	for range 100 {
		f.emit("update", b, "")
	}
	wait(t, "the question", func() bool { return f.count() > asked })
	<-time.After(5 * gather)
	if now := f.count(); now > asked+5 {
		t.Errorf("%d requests for one burst of events", now-asked)
	}
}

// Issue 3: Atoll's own container and the model's are marked; from inside a container the numbers of processes are others'.
func TestMarked(t *testing.T) {
	f := newFake(t)
	own := f.add(fakeBox{name: "p-atoll-1", labels: composed("p", "atoll", "")})
	model := f.add(fakeBox{name: "ollama"})
	for _, b := range []*fakeBox{own, model} {
		f.set(b, func(b *fakeBox) { b.state, b.started, b.pid = "running", time.Now(), os.Getpid() })
	}
	f.set(model, func(b *fakeBox) {
		b.ports = `{"11434/tcp":[{"HostIp":"127.0.0.1","HostPort":"11434"}]}`
	})
	e := begin(t, f.path, func(c *Config) {
		c.SelfID = func() string { return own.id[:12] }
		c.Model = "http://localhost:11434/v1"
	})
	list, _, err := e.Measure(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"p": "Atoll itself runs in it; stopping it ends this node.", "ollama": "It serves the assistant's model; without it the assistant does not answer."}
	for _, a := range list {
		if a.Warning != want[a.Name] {
			t.Errorf("%s: %q", a.Name, a.Warning)
		}
		if a.MemoryBytes != nil {
			t.Errorf("%s has the figures of another process", a.Name)
		}
	}
	if a := inspect(t, e, "p/atoll"); a.Warning != want["p"] {
		t.Errorf("%q", a.Warning)
	}
}
