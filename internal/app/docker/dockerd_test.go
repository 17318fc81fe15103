package docker

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"atoll/internal/app"
	"atoll/internal/app/apptest"
	"atoll/internal/fault"
)

// dockerd is a real Docker engine of its own.
type dockerd struct {
	home, script, socket string
	client               *client.Client // for what other programs would do
	engine               *exec.Cmd      // nil while it is down
	made                 int
}

func startDockerd(t *testing.T) *dockerd {
	t.Helper()
	if _, err := exec.LookPath("dockerd"); err != nil {
		t.Skip("dockerd is not installed: scripts/test installs it")
	}
	if os.Geteuid() != 0 {
		t.Skip("dockerd needs root")
	}
	home, err := os.MkdirTemp("", "dockerd-") // the path of a socket must be short
	done(t, err)
	script, err := filepath.Abs("../../../scripts/peers/dockerd")
	done(t, err)
	d := &dockerd{home: home, script: script, socket: filepath.Join(home, "docker.sock")}
	d.client, err = client.New(client.WithHost("unix://" + d.socket))
	done(t, err)
	t.Cleanup(func() { d.end(t); _ = d.client.Close() })
	d.serve(t)

	dir := t.TempDir()
	build := exec.Command("go", "build", "-o", filepath.Join(dir, "app"), "./testdata/app")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	for _, c := range []*exec.Cmd{build, exec.Command("tar", "-C", dir, "-cf", filepath.Join(dir, "app.tar"), "app")} {
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", c.Args, err, out)
		}
	}
	image, err := os.Open(filepath.Join(dir, "app.tar"))
	done(t, err)
	defer image.Close()
	said, err := d.client.ImageImport(t.Context(), client.ImageImportSource{Source: image, SourceName: "-"}, "atoll-test:1",
		client.ImageImportOptions{Changes: []string{`ENTRYPOINT ["/app"]`}})
	done(t, err)
	defer said.Close()
	_, _ = io.Copy(io.Discard, said) // a container cannot be made without it
	return d
}

// serve starts the engine. A new one takes over what runs, as on a machine with live-restore.
func (d *dockerd) serve(t *testing.T) {
	t.Helper()
	log, err := os.OpenFile(filepath.Join(d.home, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	done(t, err)
	defer log.Close()
	d.engine = exec.Command(d.script, "--live-restore")
	d.engine.Env = append(os.Environ(), "DOCKERD_HOME="+d.home)
	d.engine.Stdout, d.engine.Stderr = log, log
	done(t, d.engine.Start())
	late := time.Now().Add(2 * patience)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for range tick.C {
		if _, err = d.client.Ping(context.Background(), client.PingOptions{}); err == nil {
			return
		}
		if time.Now().After(late) {
			said, _ := os.ReadFile(log.Name())
			t.Fatalf("dockerd does not answer: %v: %.3000s", err, said[max(0, len(said)-3000):])
		}
	}
}

// stop ends the engine with a signal; its containers go on.
func (d *dockerd) stop(sig syscall.Signal) {
	_, _ = d.engine.Process.Signal(sig), d.engine.Wait()
	d.engine = nil
}

// end removes everything and sees to it that nothing is left.
func (d *dockerd) end(t *testing.T) {
	if d.engine == nil {
		d.serve(t)
	}
	ctx := context.Background()
	left, err := d.client.ContainerList(ctx, client.ContainerListOptions{All: true})
	if err != nil {
		t.Error(err)
	}
	for _, c := range left.Items {
		if _, err := d.client.ContainerRemove(ctx, c.ID, client.ContainerRemoveOptions{Force: true}); err != nil {
			t.Error(err)
		}
	}
	d.stop(syscall.SIGTERM)
	wait(t, "the engine's helpers to end", func() bool {
		lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		return !slices.ContainsFunc(lines, func(path string) bool {
			line, _ := os.ReadFile(path)
			return strings.Contains(string(line), d.home+"/")
		})
	})
	groups, _ := filepath.Glob("/sys/fs/cgroup/*/" + filepath.Base(d.home))
	for _, g := range append(groups, "/sys/fs/cgroup/"+filepath.Base(d.home)) {
		if err := os.Remove(g); err != nil && !os.IsNotExist(err) {
			t.Errorf("left behind: %v", err)
		}
	}
	if err := os.RemoveAll(d.home); err != nil {
		t.Errorf("left behind: %v", err)
	}
}

// create makes a container that is not started, and removes it when the test ends.
func (d *dockerd) create(t *testing.T, name string, change func(*container.Config, *container.HostConfig), command ...string) {
	t.Helper()
	cfg, host := &container.Config{Image: "atoll-test:1", Cmd: command, StopTimeout: new(2)}, &container.HostConfig{NetworkMode: "none"}
	if change != nil {
		change(cfg, host)
	}
	_, err := d.client.ContainerCreate(t.Context(), client.ContainerCreateOptions{Name: name, Config: cfg, HostConfig: host})
	done(t, err)
	t.Cleanup(func() { d.remove(t, name) })
}

func (d *dockerd) remove(t *testing.T, name string) {
	t.Helper()
	_, err := d.client.ContainerRemove(context.Background(), name, client.ContainerRemoveOptions{Force: true})
	if err != nil && !strings.Contains(err.Error(), "No such container") {
		t.Error(err)
	}
}

func (d *dockerd) state(t *testing.T, name string) container.State {
	t.Helper()
	r, err := d.client.ContainerInspect(t.Context(), name, client.ContainerInspectOptions{})
	done(t, err)
	return *r.Container.State
}

func member(project, service, needs string) func(*container.Config, *container.HostConfig) {
	return func(c *container.Config, _ *container.HostConfig) { c.Labels = composed(project, service, needs) }
}

// checked has the engine run a check each second, which fails as long as ill holds the file "sick".
func checked(ill string, retries int) func(*container.Config, *container.HostConfig) {
	return func(c *container.Config, h *container.HostConfig) {
		c.Healthcheck = &container.HealthConfig{Test: []string{"CMD", "/app", "check"}, Interval: time.Second, Timeout: 10 * time.Second, Retries: retries}
		h.Binds = []string{ill + ":/tmp"}
	}
}

func sicken(t *testing.T, ill string) { done(t, os.WriteFile(filepath.Join(ill, "sick"), nil, 0o600)) }

func cure(t *testing.T, ill string) { done(t, os.Remove(filepath.Join(ill, "sick"))) }

// TestDockerd: issue 3 against a real Docker engine.
func TestDockerd(t *testing.T) {
	t.Parallel()
	d := startDockerd(t)
	t.Run("contract", func(t *testing.T) {
		apptest.Run(t, func(t *testing.T) apptest.Fixture {
			d.made++
			steady, brief := fmt.Sprint("steady-", d.made), fmt.Sprint("brief-", d.made)
			d.create(t, steady, nil, "steady", "it")
			d.create(t, brief, nil, "brief")
			return apptest.Fixture{Runtime: begin(t, d.socket), Steady: steady, Greeting: "hello from it", Brief: brief,
				Redefine: func(t *testing.T) {
					d.remove(t, steady)
					d.create(t, steady, func(c *container.Config, _ *container.HostConfig) { c.Env = []string{"NEW=1"} }, "steady", "it")
				}}
		})
	})
	t.Run("health", func(t *testing.T) { dockerdHealth(t, d) })
	t.Run("side by side", func(t *testing.T) {
		t.Run("needs health", func(t *testing.T) { t.Parallel(); dockerdNeeds(t, d) })
		t.Run("stopped by others", func(t *testing.T) { t.Parallel(); dockerdOthers(t, d) })
		t.Run("faults", func(t *testing.T) { t.Parallel(); dockerdFaults(t, d) })
	})
	t.Run("engine goes and comes back", func(t *testing.T) { dockerdAway(t, d) })
}

// TestDockerdProject: the contract with a project of a real Docker engine.
func TestDockerdProject(t *testing.T) {
	t.Parallel()
	d := startDockerd(t)
	apptest.Run(t, func(t *testing.T) apptest.Fixture {
		d.made++
		one, two := fmt.Sprint("one", d.made), fmt.Sprint("two", d.made)
		web := member(one, "web", "db:service_started:false")
		d.create(t, one+"-db-1", member(one, "db", ""), "steady", "db")
		d.create(t, one+"-web-1", web, "steady", "web")
		d.create(t, two+"-job-1", member(two, "job", ""), "brief")
		d.create(t, two+"-job-2", member(two, "job", ""), "brief")
		return apptest.Fixture{Runtime: begin(t, d.socket), Steady: one, Greeting: "hello from web", Brief: two,
			Redefine: func(t *testing.T) {
				d.remove(t, one+"-web-1")
				d.create(t, one+"-web-1", web, "steady", "web", "anew")
			}}
	})
}

// counted is the engine's socket behind one that counts the requests.
func (d *dockerd) counted(t *testing.T) (path string, count *atomic.Int64) {
	t.Helper()
	path, count = filepath.Join(d.home, "counted.sock"), new(atomic.Int64)
	l, err := net.Listen("unix", path)
	done(t, err)
	to := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", d.socket)
	}}
	pass := &httputil.ReverseProxy{Transport: to, FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = "http", "engine" }}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		count.Add(1)
		pass.ServeHTTP(w, r)
	})}
	over := make(chan struct{})
	go func() { defer close(over); _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close(); <-over; to.CloseIdleConnections() })
	return path, count
}

// listed is an app as the list has it, from memory.
func listed(t *testing.T, e *Engine, name string) app.App {
	t.Helper()
	list, problems, err := e.List(t.Context())
	if err != nil || len(problems) > 0 {
		t.Fatal(problems, err)
	}
	for _, a := range list {
		if a.Name == name {
			return a
		}
	}
	t.Fatalf("%s is not listed", name)
	return app.App{}
}

// dockerdHealth: the engine's own checks, of which only a change is told, and the engine is asked about nothing else.
func dockerdHealth(t *testing.T, d *dockerd) {
	ill := t.TempDir()
	d.create(t, "ill", checked(ill, 1), "steady")
	path, count := d.counted(t)
	e := begin(t, path)
	listed(t, e, "ill")
	ctx, cancel := context.WithCancel(t.Context())
	told, over := make(chan string, 1000), make(chan struct{})
	go func() { defer close(over); _ = e.Watch(ctx, func(name string) { told <- name }) }()
	defer func() { cancel(); <-over }()
	wait(t, "the watcher", func() bool { return e.watchers.Len() == 1 })

	done(t, e.Start(t.Context(), "ill"))
	if a := inspect(t, e, "ill"); a.State != app.Running || a.Health != app.HealthStarting {
		t.Errorf("%+v", a)
	}
	asked := count.Load()
	turns := func(to app.Health) {
		t.Helper()
		late := time.After(patience)
		for listed(t, e, "ill").Health != to {
			select {
			case name := <-told:
				if name != "ill" {
					t.Errorf("told of %q", name)
				}
			case <-late:
				t.Fatalf("it is not told to be %s", to)
			}
		}
	}
	turns(app.Healthy)
	sicken(t, ill)
	turns(app.Unhealthy)
	if a := listed(t, e, "ill"); a.State != app.Running {
		t.Errorf("%+v", a)
	}
	cure(t, ill)
	turns(app.Healthy)
	if n := count.Load() - asked; n > 6 { // the start's own event, and the three changes
		t.Errorf("the engine was asked %d times", n)
	}
	asked = count.Load()
	checks := len(d.state(t, "ill").Health.Log)
	wait(t, "more checks", func() bool { return len(d.state(t, "ill").Health.Log) != checks || checks == 5 })
	if n := count.Load() - asked; n > 0 {
		t.Errorf("the engine was asked %d times about checks that changed nothing", n)
	}
	if a := inspect(t, e, "ill"); a.Health != app.Healthy || a.Restarts != 0 {
		t.Errorf("%+v", a)
	}
}

// dockerdNeeds: what needs a healthy service is started once the engine says so, and not at all where it turns unhealthy.
func dockerdNeeds(t *testing.T, d *dockerd) {
	ill := t.TempDir()
	db := func(project string, retries int) func(c *container.Config, h *container.HostConfig) {
		return func(c *container.Config, h *container.HostConfig) {
			checked(ill, retries)(c, h)
			member(project, "db", "")(c, h)
		}
	}
	d.create(t, "shop-web-1", member("shop", "web", "db:service_healthy:true"), "steady", "web")
	d.create(t, "shop-db-1", db("shop", 30), "steady", "db")
	d.create(t, "poor-web-1", member("poor", "web", "db:service_healthy:true"), "steady", "web")
	d.create(t, "poor-db-1", db("poor", 1), "steady", "db")
	e := begin(t, d.socket)
	sicken(t, ill)
	refused(t, e.Start(t.Context(), "poor"), fault.Failed, "poor/db", "is unhealthy")
	if a := inspect(t, e, "poor"); a.State != app.Partly || a.Health != app.Unhealthy || d.state(t, "poor-web-1").StartedAt != "0001-01-01T00:00:00Z" {
		t.Errorf("%+v", a)
	}

	started := make(chan error, 1)
	go func() { started <- e.Start(t.Context(), "shop") }()
	wait(t, "two checks of db", func() bool { h := d.state(t, "shop-db-1").Health; return h != nil && len(h.Log) >= 2 })
	if a := inspect(t, e, "shop"); a.State != app.Partly || a.Health != app.HealthStarting || len(a.Services) != 2 || a.Services[1].State != app.Stopped {
		t.Errorf("%+v", a)
	}
	cure(t, ill)
	done(t, <-started)
	a := inspect(t, e, "shop")
	if a.State != app.Running || a.Health != app.Healthy || a.Services[0].Name != "shop/db" {
		t.Errorf("%+v", a)
	}
	var healthy time.Time
	for _, check := range d.state(t, "shop-db-1").Health.Log {
		if check.ExitCode == 0 {
			healthy = check.End
			break
		}
	}
	if web := inspect(t, e, "shop/web").Since; healthy.IsZero() || !web.After(healthy) {
		t.Errorf("db is healthy since %v, web was started at %v", healthy, web)
	}
	done(t, e.Stop(t.Context(), "shop"))
	if db, web := d.state(t, "shop-db-1").FinishedAt, d.state(t, "shop-web-1").FinishedAt; db < web {
		t.Errorf("db ended at %s, before what needs it at %s", db, web)
	}
}

// dockerdOthers: T9, an end that another program asked for reads stopped, and one of its own does not.
func dockerdOthers(t *testing.T, d *dockerd) {
	ctx := t.Context()
	e := begin(t, d.socket)
	one := 1
	for _, c := range []struct {
		name, command string
		act           func(name string) error
		want          app.State
	}{
		{"stopped", "steady", func(name string) error {
			_, err := d.client.ContainerStop(ctx, name, client.ContainerStopOptions{})
			return err
		}, app.Stopped},
		{"stopped-hard", "stubborn", func(name string) error {
			_, err := d.client.ContainerStop(ctx, name, client.ContainerStopOptions{Timeout: &one})
			return err
		}, app.Stopped},
		{"killed", "steady", func(name string) error {
			_, err := d.client.ContainerKill(ctx, name, client.ContainerKillOptions{Signal: "SIGKILL"})
			return err
		}, app.Stopped},
		{"restarted", "steady", func(name string) error {
			_, err := d.client.ContainerRestart(ctx, name, client.ContainerRestartOptions{})
			return err
		}, app.Running},
		{"died", "steady", func(name string) error { return syscall.Kill(d.state(t, name).Pid, syscall.SIGKILL) }, app.Exited},
		{"paused", "steady", func(name string) error {
			_, err := d.client.ContainerPause(ctx, name, client.ContainerPauseOptions{})
			return err
		}, app.Paused},
	} {
		t.Run(c.name, func(t *testing.T) {
			d.create(t, c.name, nil, c.command)
			done(t, e.Start(ctx, c.name))
			wait(t, "its word that it is ready", func() bool {
				log, err := e.Logs(ctx, c.name, 10)
				return err == nil && slices.ContainsFunc(log.Lines, func(l app.Line) bool { return l.Text == "this is stderr" })
			})
			before := inspect(t, e, c.name)
			done(t, c.act(c.name))
			wait(t, "the list to say so", func() bool {
				a := listed(t, e, c.name)
				return a.State == c.want && (a.State != app.Running || a.PID != before.PID)
			})
			up := c.want == app.Running || c.want == app.Paused
			if a := inspect(t, e, c.name); a.State != c.want || (a.PID != 0) != up {
				t.Errorf("%+v", a)
			}
			if c.want == app.Paused {
				refused(t, e.Start(ctx, c.name), fault.Rule, "unpause it first")
				done(t, e.Stop(ctx, c.name))
				if a := inspect(t, e, c.name); a.State != app.Stopped {
					t.Errorf("%+v", a)
				}
			}
		})
	}
}

// dockerdFaults: a container that ignores SIGTERM, one in a restart loop, one with odd output, with a terminal and without.
func dockerdFaults(t *testing.T, d *dockerd) {
	d.create(t, "stubborn", func(c *container.Config, _ *container.HostConfig) { c.StopTimeout = new(1) }, "stubborn")
	d.create(t, "loop", func(_ *container.Config, h *container.HostConfig) { h.RestartPolicy.Name = "always" }, "brief")
	d.create(t, "odd", nil, "odd")
	d.create(t, "tty", func(c *container.Config, _ *container.HostConfig) { c.Tty = true }, "odd")
	e := begin(t, d.socket)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, name := range []string{"stubborn", "loop", "odd", "tty"} {
		done(t, e.Start(ctx, name))
	}
	done(t, e.Stop(ctx, "stubborn"))
	if a := inspect(t, e, "stubborn"); a.State != app.Stopped || a.Signal != "SIGKILL" {
		t.Errorf("%+v", a)
	}
	wait(t, "a long pause between two rounds", func() bool {
		a := listed(t, e, "loop")
		return a.Restarts > 1 && a.State == app.Backoff && time.Since(a.Since) > 1200*time.Millisecond
	})
	done(t, e.Stop(ctx, "loop"))
	for quiet := time.Now().Add(2 * time.Second); time.Now().Before(quiet); <-time.After(50 * time.Millisecond) {
		if a := inspect(t, e, "loop"); a.State != app.Stopped {
			t.Fatalf("it goes on: %+v", a)
		}
	}
	for name, stream := range map[string]string{"odd": "stdout", "tty": "output"} {
		wait(t, "the log of "+name, func() bool {
			log, err := e.Logs(ctx, name, 100)
			done(t, err)
			var all strings.Builder
			for _, l := range log.Lines {
				if l.Time.IsZero() || len(l.Text) > app.MaxLine || strings.ContainsAny(l.Text, "\x1b\r\a") {
					t.Errorf("%+v", l)
				}
				fmt.Fprintf(&all, "%s:%.30s\n", l.Stream, l.Text)
			}
			text := strings.ReplaceAll(all.String(), "\uFFFD\uFFFD", "\uFFFD") // Docker's own log has one for each byte
			return strings.Contains(text, stream+":red \uFFFD bell\n"+stream+":10% 20%") && strings.Contains(text, "xxxxxx") && strings.Contains(text, "this is stderr")
		})
	}
}

// dockerdAway: the engine is killed while a log is followed; the next one has the container as it was.
func dockerdAway(t *testing.T, d *dockerd) {
	d.create(t, "lasting", nil, "steady", "it")
	e := begin(t, d.socket)
	done(t, e.Start(t.Context(), "lasting"))
	before := inspect(t, e, "lasting")
	lines, over := make(chan app.Line, 1000), make(chan error, 1)
	go func() {
		over <- e.Follow(t.Context(), "lasting", 10, func(l app.Line) error { lines <- l; return nil })
	}()
	<-lines // it is in the middle of it
	d.stop(syscall.SIGKILL)
	select {
	case err := <-over:
		refused(t, err, fault.Unavailable)
	case <-time.After(patience):
		t.Fatal("Follow hangs")
	}
	wait(t, "the problem", func() bool {
		n, problem := e.problems(t)
		return n == 0 && strings.Contains(problem, "does not answer since")
	})
	_, err := e.Inspect(t.Context(), "lasting")
	refused(t, err, fault.Unavailable)
	d.serve(t)
	wait(t, "the engine to be back", func() bool { return e.State().Up })
	if after := inspect(t, e, "lasting"); after.PID != before.PID || !after.Since.Equal(before.Since) || after.State != app.Running {
		t.Errorf("%+v, then %+v", before, after)
	}
	done(t, e.Stop(t.Context(), "lasting"))
	if a := inspect(t, e, "lasting"); a.State != app.Stopped {
		t.Errorf("%+v", a)
	}
}
