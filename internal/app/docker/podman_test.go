package docker

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"atoll/internal/app"
	"atoll/internal/app/apptest"
	"atoll/internal/fault"
)

// podman is a real engine of its own.
type podman struct {
	home, script, socket string
	service              *exec.Cmd
	made                 int
}

func startPodman(t *testing.T) *podman {
	t.Helper()
	for _, name := range []string{"podman", "runc"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skip(name + " is not installed: scripts/test installs it")
		}
	}
	if os.Geteuid() != 0 {
		t.Skip("a rootful podman needs root")
	}
	home, err := os.MkdirTemp("", "podman-") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	script, err := filepath.Abs("../../../scripts/peers/podman")
	if err != nil {
		t.Fatal(err)
	}
	p := &podman{home: home, script: script, socket: filepath.Join(home, "podman.sock")}
	t.Cleanup(func() {
		if out, err := p.command("rm", "-fa", "-t", "0").CombinedOutput(); err != nil {
			t.Errorf("containers are left: %v: %s", err, out)
		}
		p.kill()
		if err := os.RemoveAll(home); err != nil {
			_ = syscall.Unmount(filepath.Join(home, "root", "overlay"), syscall.MNT_DETACH)
			if err := os.RemoveAll(home); err != nil {
				t.Errorf("left behind: %v", err)
			}
		}
	})
	dir := t.TempDir()
	build := exec.Command("go", "build", "-o", filepath.Join(dir, "app"), "./testdata/app")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	for _, c := range []*exec.Cmd{build, exec.Command("tar", "-C", dir, "-cf", filepath.Join(dir, "app.tar"), "app"),
		p.command("import", "--change", `ENTRYPOINT ["/app"]`, filepath.Join(dir, "app.tar"), "atoll-test:1")} {
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", c.Args, err, out)
		}
	}
	p.serve(t)
	return p
}

func (p *podman) command(args ...string) *exec.Cmd {
	c := exec.Command(p.script, args...)
	c.Env = append(os.Environ(), "PODMAN_HOME="+p.home)
	return c
}

func (p *podman) run(t *testing.T, args ...string) string {
	t.Helper()
	out, err := p.command(args...).CombinedOutput()
	if err != nil {
		t.Fatalf("podman %v: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func (p *podman) serve(t *testing.T) {
	t.Helper()
	p.service = p.command("system", "service", "--time=0", "unix://"+p.socket)
	if err := p.service.Start(); err != nil {
		t.Fatal(err)
	}
	wait(t, "podman to listen", func() bool {
		c, err := net.Dial("unix", p.socket)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
}

// kill ends the engine; its containers go on.
func (p *podman) kill() {
	_ = p.service.Process.Kill()
	_ = p.service.Wait()
}

// create makes a container that is not started.
func (p *podman) create(t *testing.T, name string, options []string, command ...string) {
	t.Helper()
	args := append([]string{"create", "--name", name, "--network", "none"}, options...)
	p.run(t, append(append(args, "atoll-test:1"), command...)...)
}

// labels are the options for a service of a project.
func labels(project, service, needs string) []string {
	var out []string
	for k, v := range composed(project, service, needs) {
		out = append(out, "--label", k+"="+v)
	}
	return out
}

func wait(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	late := time.After(patience)
	for !ok() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// TestPodman: issue 3 against a real engine.
func TestPodman(t *testing.T) {
	p := startPodman(t)
	t.Run("contract, container", func(t *testing.T) {
		apptest.Run(t, func(t *testing.T) apptest.Fixture {
			p.made++
			steady, brief := fmt.Sprint("steady-", p.made), fmt.Sprint("brief-", p.made)
			p.create(t, steady, nil, "steady", "it")
			p.create(t, brief, nil, "brief")
			t.Cleanup(func() { p.run(t, "rm", "-f", "-t", "0", steady, brief) })
			return apptest.Fixture{Runtime: begin(t, p.socket), Steady: steady, Greeting: "hello from it", Brief: brief,
				Redefine: func(t *testing.T) {
					p.run(t, "rm", "-f", "-t", "0", steady)
					p.create(t, steady, []string{"--env", "NEW=1"}, "steady", "it")
				}}
		})
	})
	t.Run("contract, project", func(t *testing.T) {
		apptest.Run(t, func(t *testing.T) apptest.Fixture {
			p.made++
			one, two := fmt.Sprint("one", p.made), fmt.Sprint("two", p.made)
			p.create(t, one+"-db-1", labels(one, "db", ""), "steady", "db")
			p.create(t, one+"-web-1", labels(one, "web", "db:service_started:false"), "steady", "web")
			p.create(t, two+"-job-1", labels(two, "job", ""), "brief")
			p.create(t, two+"-job-2", labels(two, "job", ""), "brief")
			t.Cleanup(func() { p.run(t, "rm", "-f", "-t", "0", one+"-db-1", one+"-web-1", two+"-job-1", two+"-job-2") })
			return apptest.Fixture{Runtime: begin(t, p.socket), Steady: one, Greeting: "hello from web", Brief: two,
				Redefine: func(t *testing.T) {
					p.run(t, "rm", "-f", "-t", "0", one+"-web-1")
					p.create(t, one+"-web-1", labels(one, "web", "db:service_started:false"), "steady", "web", "anew")
				}}
		})
	})
	t.Run("two projects", func(t *testing.T) { twoProjects(t, p) })
	t.Run("faults", func(t *testing.T) { podmanFaults(t, p) })
	t.Run("health", func(t *testing.T) { podmanHealth(t, p) })
	t.Run("ports", func(t *testing.T) { podmanPorts(t, p) })
	t.Run("engine goes and comes back", func(t *testing.T) { podmanAway(t, p) })
}

// twoProjects: order of services, names, logs of several put together, figures.
func twoProjects(t *testing.T, p *podman) {
	p.create(t, "shop-db-1", labels("shop", "db", ""), "steady", "db")
	p.create(t, "shop-api-1", labels("shop", "api", "db:service_started:true,setup:service_completed_successfully:false"), "steady", "api one")
	p.create(t, "shop-api-2", labels("shop", "api", "db:service_started:true,setup:service_completed_successfully:false"), "steady", "api two")
	p.create(t, "shop-setup-1", labels("shop", "setup", "db:service_started:false"), "job", "setup")
	p.create(t, "blog-web-1", labels("blog", "web", ""), "steady", "blog")
	t.Cleanup(func() {
		p.run(t, "rm", "-f", "-t", "0", "shop-db-1", "shop-api-1", "shop-api-2", "shop-setup-1", "blog-web-1")
	})
	e := begin(t, p.socket)
	ctx := t.Context()
	if err := e.Start(ctx, "shop"); err != nil {
		t.Fatal(err)
	}
	a := inspect(t, e, "shop")
	var order []string
	for _, s := range a.Services {
		order = append(order, s.Name+" "+string(s.State))
	}
	if got := strings.Join(order, ", "); a.State != app.Running || got != "shop/db running, shop/setup exited, shop/api running" {
		t.Errorf("%s: %s", a.State, got)
	}
	if db, api := inspect(t, e, "shop/db"), inspect(t, e, "shop/api"); !db.Since.Before(api.Since) {
		t.Errorf("db since %v, api since %v", db.Since, api.Since)
	}
	wait(t, "all greetings in the log", func() bool {
		log, err := e.Logs(ctx, "shop", 100)
		if err != nil {
			t.Fatal(err)
		}
		var said []string
		for _, l := range log.Lines {
			if strings.HasPrefix(l.Text, "hello") {
				said = append(said, l.Service+": "+l.Text)
			}
		}
		slices.Sort(said) // its times are to the second
		return strings.Join(said, ", ") == "api: hello from api one, api: hello from api two, db: hello from db, setup: hello from setup"
	})
	list, problems, err := e.Measure(ctx)
	if err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
	for _, a := range list {
		if a.Name == "shop" && (a.MemoryBytes == nil || *a.MemoryBytes == 0 || a.CPUPercent == nil) {
			t.Errorf("no figures: %+v", a)
		}
	}
	if err := e.Stop(ctx, "shop"); err != nil {
		t.Fatal(err)
	}
	db, api := p.run(t, "inspect", "--format", "{{.State.FinishedAt.UnixNano}}", "shop-db-1"), p.run(t, "inspect", "--format", "{{.State.FinishedAt.UnixNano}}", "shop-api-2")
	if d, _ := strconv.ParseInt(db, 10, 64); d == 0 || db < api {
		t.Errorf("db ended at %s, before what needs it at %s", db, api)
	}
	if a := inspect(t, e, "shop"); a.State != app.Stopped {
		t.Errorf("%+v", a)
	}
	if a := inspect(t, e, "blog"); a.State != app.Stopped || len(a.Services) != 1 {
		t.Errorf("the other project was touched: %+v", a)
	}
}

// podmanFaults: a container that ignores SIGTERM, one in a restart loop, one with odd output, one with a terminal.
func podmanFaults(t *testing.T, p *podman) {
	p.create(t, "stubborn", []string{"--stop-timeout", "1"}, "stubborn")
	p.create(t, "loop", []string{"--restart", "always"}, "brief")
	p.create(t, "odd", nil, "odd")
	p.create(t, "tty", []string{"--tty"}, "odd")
	t.Cleanup(func() { p.run(t, "rm", "-f", "-t", "0", "stubborn", "loop", "odd", "tty") })
	e := begin(t, p.socket)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, name := range []string{"stubborn", "loop", "odd", "tty"} {
		if err := e.Start(ctx, name); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.Stop(ctx, "stubborn"); err != nil {
		t.Fatal(err)
	}
	if a := inspect(t, e, "stubborn"); a.State != app.Stopped || a.Signal != "SIGKILL" {
		t.Errorf("%+v", a)
	}
	wait(t, "the loop to go round", func() bool { return inspect(t, e, "loop").Restarts > 0 })
	if err := e.Stop(ctx, "loop"); err != nil {
		t.Fatal(err)
	}
	quiet := time.After(2 * time.Second)
	for still := true; still; {
		select {
		case <-quiet:
			still = false
		case <-time.After(50 * time.Millisecond):
		}
		if a := inspect(t, e, "loop"); a.State != app.Stopped {
			t.Fatalf("it goes on: %+v", a)
		}
	}
	for _, name := range []string{"odd", "tty"} {
		wait(t, "the log of "+name, func() bool {
			log, err := e.Logs(ctx, name, 100)
			if err != nil {
				t.Fatal(err)
			}
			var all bytes.Buffer
			for _, l := range log.Lines {
				if l.Time.IsZero() || len(l.Text) > app.MaxLine || strings.ContainsAny(l.Text, "\x1b\r\a") {
					t.Errorf("%+v", l)
				}
				fmt.Fprintf(&all, "%s:%.30s\n", l.Stream, l.Text)
			}
			stream := map[string]string{"odd": "stdout", "tty": "output"}[name]
			return strings.Contains(all.String(), stream+":red \uFFFD bell\n"+stream+":10% 20%") && strings.Contains(all.String(), "xxxxxx") && strings.Contains(all.String(), "this is stderr")
		})
	}
}

// podmanHealth: a check run by hand, since Podman leaves its times to systemd.
func podmanHealth(t *testing.T, p *podman) {
	p.create(t, "ill", []string{"--health-cmd", `["/app","check"]`, "--health-interval", "disable", "--health-retries", "1"}, "steady")
	t.Cleanup(func() { p.run(t, "rm", "-f", "-t", "0", "ill") })
	e := begin(t, p.socket)
	if err := e.Start(t.Context(), "ill"); err != nil {
		t.Fatal(err)
	}
	if a := inspect(t, e, "ill"); a.State != app.Running || a.Health != app.HealthStarting {
		t.Errorf("%+v", a)
	}
	p.run(t, "healthcheck", "run", "ill")
	wait(t, "health", func() bool { return inspect(t, e, "ill").Health == app.Healthy })
}

func podmanPorts(t *testing.T, p *podman) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	_ = l.Close()
	p.run(t, "create", "--name", "model", "-p", fmt.Sprintf("127.0.0.1:%d:11434", port), "atoll-test:1", "steady")
	t.Cleanup(func() { p.run(t, "rm", "-f", "-t", "0", "model") })
	e := begin(t, p.socket, func(c *Config) { c.Model = fmt.Sprintf("http://localhost:%d/v1", port) })
	if err := e.Start(t.Context(), "model"); err != nil {
		t.Fatal(err)
	}
	want := app.Port{Address: "127.0.0.1", Port: port, Container: 11434, Protocol: "tcp"}
	if a := inspect(t, e, "model"); len(a.Ports) != 1 || a.Ports[0] != want || !strings.Contains(a.Warning, "model") {
		t.Errorf("%+v", a)
	}
}

// podmanAway: the engine is killed while a log is followed and comes back on a new socket.
func podmanAway(t *testing.T, p *podman) {
	p.create(t, "lasting", nil, "steady")
	t.Cleanup(func() { p.run(t, "rm", "-f", "-t", "0", "lasting") })
	e := begin(t, p.socket)
	if err := e.Start(t.Context(), "lasting"); err != nil {
		t.Fatal(err)
	}
	before := inspect(t, e, "lasting")
	followed := make(chan error, 1)
	go func() { followed <- e.Follow(t.Context(), "lasting", 10, func(app.Line) error { return nil }) }()
	p.kill()
	select {
	case err := <-followed:
		if !fault.Is(err, fault.Unavailable) {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Fatal("Follow hangs")
	}
	wait(t, "the problem", func() bool {
		apps, problems, err := e.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return len(apps) == 0 && len(problems) == 1 && strings.Contains(problems[0].Problem, "does not answer since")
	})
	if _, err := e.Inspect(t.Context(), "lasting"); !fault.Is(err, fault.Unavailable) {
		t.Error(err)
	}
	p.serve(t)
	wait(t, "the engine to be back", func() bool { return e.State().Up })
	if after := inspect(t, e, "lasting"); after.PID != before.PID || !after.Since.Equal(before.Since) || after.State != app.Running {
		t.Errorf("%+v, then %+v", before, after)
	}
}
