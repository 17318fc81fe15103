package docker

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"atoll/internal/app"
	"atoll/internal/app/apptest"
)

const patience = 20 * time.Second

// begin makes a runtime on a socket and runs it.
func begin(t testing.TB, path string, change ...func(*Config)) *Engine {
	t.Helper()
	e := made(t, path, change...)
	run(t, e)
	select {
	case <-e.first: // however slow the machine is
	case <-time.After(patience):
		t.Error("the engine is not looked for")
	}
	return e
}

func made(t testing.TB, path string, change ...func(*Config)) *Engine {
	t.Helper()
	cfg := Config{Log: slog.New(slog.DiscardHandler), Socket: "unix://" + path, SelfID: func() string { return "" }}
	for _, c := range change {
		c(&cfg)
	}
	e, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// run runs a runtime until the test or end ends it.
func run(t testing.TB, e *Engine) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan struct{})
	go func() {
		defer close(over)
		e.Run(ctx)
	}()
	end = func() {
		cancel()
		select {
		case <-over:
		case <-time.After(patience):
			t.Error("Run goes on after its context")
		}
	}
	t.Cleanup(end)
	return end
}

// composed is the labels of a container that Compose made.
func composed(project, service, needs string) map[string]string {
	return map[string]string{"com.docker.compose.project": project, "com.docker.compose.service": service,
		"com.docker.compose.depends_on": needs, "com.docker.compose.container-number": "1", "com.docker.compose.oneoff": "False"}
}

// TestContractFake: the contract over an engine that behaves like Docker, with a lone container and with a service.
func TestContractFake(t *testing.T) {
	t.Run("container", func(t *testing.T) {
		apptest.Run(t, func(t *testing.T) apptest.Fixture {
			f := newFake(t)
			box := f.add(fakeBox{name: "steady"})
			f.add(fakeBox{name: "brief", brief: true, code: 3})
			return fixture(t, f, box, "steady", "brief")
		})
	})
	t.Run("project", func(t *testing.T) {
		apptest.Run(t, func(t *testing.T) apptest.Fixture {
			f := newFake(t)
			f.add(fakeBox{name: "p-db-1", labels: composed("p", "db", "")})
			box := f.add(fakeBox{name: "p-web-1", labels: composed("p", "web", "db:service_started:false")})
			f.add(fakeBox{name: "q-job-1", brief: true, code: 3, labels: composed("q", "job", "")})
			f.add(fakeBox{name: "q-job-2", brief: true, code: 3, labels: composed("q", "job", "")})
			return fixture(t, f, box, "p", "q")
		})
	})
}

func fixture(t *testing.T, f *fake, box *fakeBox, steady, brief string) apptest.Fixture {
	return apptest.Fixture{Runtime: begin(t, f.path), Steady: steady, Greeting: "hello from " + f.get(box).name, Brief: brief,
		Redefine: func(*testing.T) {
			old := f.get(box)
			f.drop(box)
			f.add(fakeBox{name: old.name, labels: old.labels, env: []string{"NEW=1"}})
		}}
}

func inspect(t *testing.T, e *Engine, name string) app.App {
	t.Helper()
	a, err := e.Inspect(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return a
}
