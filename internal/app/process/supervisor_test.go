package process

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"atoll/internal/app"
	"atoll/internal/app/apptest"
	"atoll/internal/caller"
	"atoll/internal/fault"
	"atoll/internal/fence"
	"atoll/internal/proc"
	"atoll/internal/rpc"
)

const superviseArg = "__supervise"

// The test binary stands in for the program: as launcher, as sample app, and as a node that can be killed.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case LaunchArg:
			os.Exit(Launch())
		case SampleArg:
			os.Exit(Sample(os.Args[2:], os.Stdout, os.Stderr))
		case superviseArg:
			os.Exit(superviseUntilKilled(os.Args[2]))
		}
	}
	os.Exit(m.Run())
}

// superviseUntilKilled is a node that starts the app "one", says so, and waits for its end.
func superviseUntilKilled(dir string) int {
	s, err := New(Config{Dir: dir, Log: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	if err == nil {
		err = s.Start(context.Background(), "one")
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("up")
	ctx, cancel := signal.NotifyContext(context.Background(), unix.SIGTERM)
	defer cancel()
	<-ctx.Done()
	return 0
}

// bench is a supervisor on a data directory of its own.
type bench struct {
	*Supervisor
	t   *testing.T
	dir string
}

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// empty is a data directory without apps.
func empty(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{"apps", "logs", "run"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// define writes a definition, with the user that this machine's tests run as.
func define(t *testing.T, dir, name, yaml string) {
	t.Helper()
	if os.Geteuid() == 0 && !strings.Contains(yaml, "user:") {
		yaml += "\nuser: root\n"
	}
	tmp := filepath.Join(dir, name+".tmp")
	if err := os.WriteFile(tmp, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(tmp, filepath.Join(dir, "apps", name+".yaml")); err != nil {
		t.Fatal(err)
	}
}

// shell is a definition that runs a script.
func shell(script string, more ...string) string {
	return "command: [/bin/sh, -c, " + strconv.Quote(script) + "]\n" + strings.Join(more, "\n")
}

// open makes a supervisor that kills what it left when the test ends.
func open(t *testing.T, dir string, change ...func(*Config)) bench {
	t.Helper()
	cfg := Config{Dir: dir, Log: quiet(), RetryFirst: 20 * time.Millisecond, RetryMax: 80 * time.Millisecond}
	for _, c := range change {
		c(&cfg)
	}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	b := bench{s, t, dir}
	t.Cleanup(func() {
		s.Close(context.Background())
		for _, u := range s.all() {
			if r := u.rec; r.PID != 0 {
				proc.SignalSession(r.PID, r.Start, unix.SIGKILL)
			}
		}
	})
	return b
}

func (b bench) start(name string) {
	b.t.Helper()
	if err := b.Start(b.t.Context(), name); err != nil {
		b.t.Fatal(err)
	}
}

func (b bench) stop(name string) {
	b.t.Helper()
	if err := b.Stop(b.t.Context(), name); err != nil {
		b.t.Fatal(err)
	}
}

func (b bench) look(name string) app.App {
	b.t.Helper()
	a, err := b.Inspect(b.t.Context(), name)
	if err != nil {
		b.t.Fatal(err)
	}
	return a
}

func (b bench) await(name string, s app.State) (a app.App) {
	b.t.Helper()
	until(b.t, name+" to be "+string(s), func() bool { a = b.look(name); return a.State == s })
	return a
}

// log is the app's log as text, each line behind its stream.
func (b bench) log(name string) string {
	b.t.Helper()
	l, err := b.Logs(b.t.Context(), name, 500)
	if err != nil {
		b.t.Fatal(err)
	}
	var out strings.Builder
	for _, line := range l.Lines {
		out.WriteString(string(line.Stream) + ": " + line.Text + "\n")
	}
	return out.String()
}

func (b bench) awaitLog(name, text string) {
	b.t.Helper()
	until(b.t, "the log to hold "+text, func() bool { return strings.Contains(b.log(name), text) })
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	late := time.After(20 * time.Second)
	for !ok() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

func TestContract(t *testing.T) {
	apptest.Run(t, func(t *testing.T) apptest.Fixture {
		dir := empty(t)
		define(t, dir, "steady", shell("echo hello from steady; exec sleep 1000"))
		define(t, dir, "brief", shell("echo giving up >&2; exit 3"))
		return apptest.Fixture{
			Runtime: open(t, dir).Supervisor, Steady: "steady", Greeting: "hello from steady", Brief: "brief",
			Redefine: func(t *testing.T) { define(t, dir, "steady", shell("exec sleep 2000")) },
		}
	})
}

// One bad file does not hide the others, and says its name, line and key (SPEC section 3).
func TestListWithBadFile(t *testing.T) {
	dir := empty(t)
	define(t, dir, "good", shell("exec sleep 1000"))
	define(t, dir, "bad", "command: [/bin/true]\ncomand: [x]\n")
	b := open(t, dir)
	apps, problems, err := b.List(t.Context())
	if err != nil || len(apps) != 1 || apps[0].Name != "good" {
		t.Fatalf("%+v %v", apps, err)
	}
	if len(problems) != 1 || problems[0].File != "bad.yaml" || !strings.Contains(problems[0].Problem, "line 2: unknown key comand") {
		t.Fatalf("%+v", problems)
	}
	if err := b.Start(t.Context(), "bad"); !fault.Is(err, fault.Rule) || !strings.Contains(fault.Of(err).Public, "apps/bad.yaml has a problem: line 2: unknown key comand") {
		t.Errorf("an app with a bad definition: %v", err)
	}
}

// A definition written while the node runs is there, one taken away is gone, without anybody asking for it.
func TestFolderIsWatched(t *testing.T) {
	dir := empty(t)
	b := open(t, dir)
	names := func() string {
		apps, _, _ := b.List(t.Context())
		var out []string
		for _, a := range apps {
			out = append(out, a.Name)
		}
		return strings.Join(out, " ")
	}
	define(t, dir, "late", shell("exec sleep 1000"))
	until(t, "late in the list", func() bool { return names() == "late" })
	if err := os.Remove(filepath.Join(dir, "apps", "late.yaml")); err != nil {
		t.Fatal(err)
	}
	until(t, "an empty list", func() bool { return names() == "" })
}

// A new file with autostart starts once; taken away and put back, as editors do, it starts nothing a person stopped.
func TestAutostartOnce(t *testing.T) {
	dir := empty(t)
	b := open(t, dir)
	define(t, dir, "auto", shell("exec sleep 1000", "autostart: true"))
	until(t, "auto to be there", func() bool { _, err := b.Inspect(t.Context(), "auto"); return err == nil })
	b.await("auto", app.Running)
	b.stop("auto")
	if err := os.Remove(filepath.Join(dir, "apps", "auto.yaml")); err != nil {
		t.Fatal(err)
	}
	until(t, "auto to be gone", func() bool { _, err := b.Inspect(t.Context(), "auto"); return fault.Is(err, fault.NotFound) })
	define(t, dir, "auto", shell("exec sleep 1000", "autostart: true"))
	if a := b.look("auto"); a.State != app.Stopped {
		t.Errorf("started by an editor: %s", a.State)
	}
}

// A changed definition of a running app counts from its next start, and its state says so until then.
func TestDefinitionChanges(t *testing.T) {
	dir := empty(t)
	define(t, dir, "one", shell("echo old; exec sleep 1000"))
	b := open(t, dir)
	b.start("one")
	pid := b.look("one").PID
	define(t, dir, "one", shell("echo new; exec sleep 1000", "title: One"))
	if a := b.look("one"); !a.DefinitionChanged || a.PID != pid || a.State != app.Running {
		t.Errorf("%+v", a)
	}
	if err := b.Restart(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
	b.awaitLog("one", "output: new")
	if a := b.look("one"); a.DefinitionChanged || a.Title != "One" {
		t.Errorf("%+v", a)
	}
}

// A running app whose definition goes bad or away is still seen and can be stopped; it cannot be started, and is not
// stopped for a restart that could not start it again.
func TestDefinitionGone(t *testing.T) {
	for _, how := range []string{"gone", "bad"} {
		t.Run(how, func(t *testing.T) {
			dir := empty(t)
			define(t, dir, "one", shell("exec sleep 1000"))
			b := open(t, dir)
			b.start("one")
			if how == "bad" {
				define(t, dir, "one", "command: 7")
			} else if err := os.Remove(filepath.Join(dir, "apps", "one.yaml")); err != nil {
				t.Fatal(err)
			}
			if a := b.look("one"); a.State != app.Running {
				t.Fatalf("%+v", a)
			}
			if err := b.Restart(t.Context(), "one"); !fault.Is(err, fault.Rule) {
				t.Errorf("restart: %v", err)
			}
			if a := b.look("one"); a.State != app.Running {
				t.Fatalf("the refused restart left it %s", a.State)
			}
			b.stop("one")
			code := map[string]fault.Code{"gone": fault.NotFound, "bad": fault.Rule}[how]
			until(t, "one to be gone", func() bool { _, err := b.Inspect(t.Context(), "one"); return fault.Is(err, code) })
		})
	}
}

// A followed log ends when its app is gone, and with the supervisor; neither leaves a goroutine behind.
func TestFollowEnds(t *testing.T) {
	for how, code := range map[string]fault.Code{"gone": fault.NotFound, "closed": fault.Unavailable} {
		t.Run(how, func(t *testing.T) {
			ignore := goleak.IgnoreCurrent()
			dir := empty(t)
			define(t, dir, "one", shell("echo here; exit 0"))
			b := open(t, dir)
			b.start("one")
			lines, ended := make(chan app.Line, 100), make(chan error, 1)
			go func() {
				ended <- b.Follow(t.Context(), "one", 10, func(l app.Line) error { lines <- l; return nil })
			}()
			for l := range lines {
				if l.Stream == "atoll" && !l.Time.IsZero() && strings.HasPrefix(l.Text, "ended") {
					break
				}
			}
			if how == "closed" {
				b.Close(t.Context())
			} else if err := os.Remove(filepath.Join(dir, "apps", "one.yaml")); err != nil {
				t.Fatal(err)
			}
			if err := <-ended; !fault.Is(err, code) {
				t.Errorf("%v", err)
			}
			b.Close(t.Context())
			goleak.VerifyNone(t, ignore)
		})
	}
}

// A caller who gives up after the order was taken gets his context's error, and the stop goes on; one who gives up
// before finds that nothing was done (F-E12).
func TestCallerGivesUp(t *testing.T) {
	dir := empty(t)
	define(t, dir, "one", shell("trap '' TERM; echo deaf; while :; do sleep 0.05; done", "stop_timeout: 400ms"))
	b := open(t, dir)
	b.start("one")
	b.awaitLog("one", "deaf")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.Stop(ctx, "one") }()
	b.await("one", app.Stopping)
	late, cancelLate := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancelLate()
	if err := b.Restart(late, "one"); !fault.Is(err, fault.Busy) {
		t.Errorf("an order that was never taken: %v", err)
	}
	cancel()
	if err := <-ended; err != context.Canceled {
		t.Errorf("an order that was taken: %v", err)
	}
	b.await("one", app.Stopped)
}

// The whole way by the gate, with the sample app: why it ended is in its log, restart it shows before and after, and the
// answer is the state observed (T9). The target's fingerprint outlives the restart and not a change of the definition
// (F-A2, C11).
func TestThroughGate(t *testing.T) {
	dir := t.TempDir()
	if err := WriteSample(dir, program(t), runAs()); err != nil {
		t.Fatal(err)
	}
	b := open(t, dir)
	b.await(SampleName, app.Exited)
	room, err := app.New(app.Config{Runtimes: []app.Runtime{b}, Log: quiet(), Settle: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	gate := rpc.NewGate(rpc.Config{Methods: room.Methods(), Log: quiet()})
	who := caller.Operator(1, "mia", caller.Member, "s1", "127.0.0.1")
	prepare := func(method string) *rpc.Prepared {
		t.Helper()
		params := `{"app":"sample"}`
		if method == "apps.list" {
			params = "{}"
		}
		p, err := gate.Prepare(t.Context(), who, rpc.Tools, method, jsontext.Value(params))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	if logs := runPrepared(t, prepare("apps.logs")); !strings.Contains(logs, "the cache is full") {
		t.Errorf("%s", logs)
	}
	restart := prepare("apps.restart")
	before, err := restart.Preview()
	if err != nil || before.Before != "exited" || before.After != "running" {
		t.Errorf("%+v %v", before, err)
	}
	if got := runPrepared(t, restart); !strings.Contains(got, `"state":"running"`) || !strings.Contains(got, `"observed":true`) {
		t.Errorf("%s", got)
	}
	after, err := prepare("apps.restart").Preview()
	if err != nil || after.Before != "running" || after.Fingerprint != before.Fingerprint {
		t.Errorf("%+v %v", after, err)
	}
	if _, err := gate.Prepare(t.Context(), who, rpc.Tools, "apps.start", jsontext.Value(`{"app":"sample"}`)); !fault.Is(err, fault.Rule) {
		t.Errorf("%v", err)
	}
	define(t, dir, SampleName, shell("exec sleep 1000"))
	changed, err := prepare("apps.restart").Preview()
	if err != nil || changed.Fingerprint == before.Fingerprint {
		t.Errorf("%+v %v", changed, err)
	}
	if got := runPrepared(t, prepare("apps.stop")); !strings.Contains(got, `"state":"stopped"`) {
		t.Errorf("%s", got)
	}
	if got := runPrepared(t, prepare("apps.list")); !strings.Contains(got, `{"apps":[{"app":"sample","runtime":"process","state":"stopped"`) {
		t.Errorf("%s", got)
	}
}

// runPrepared gives a result's JSON and checks that it is of the grade that its row says (U1).
func runPrepared(t *testing.T, p *rpc.Prepared) string {
	t.Helper()
	result, err := p.Run(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := rpc.Marshal(result)
	if err != nil {
		t.Fatal(err)
	}
	if outside := fence.Facts("app", result, string(text)).IsOutside(); outside != !p.Row().Facts {
		t.Errorf("%s: fenced %v", p.Row().Name, outside)
	}
	return string(text)
}

// Close waits for every goroutine, whether apps go on or not.
func TestCloseLeavesNothing(t *testing.T) {
	for _, stop := range []bool{false, true} {
		ignore := goleak.IgnoreCurrent()
		dir := empty(t)
		define(t, dir, "one", shell("exec sleep 1000", "autostart: true"))
		define(t, dir, "loop", shell("exit 1", "autostart: true", "restart: always"))
		b := open(t, dir, func(c *Config) { c.StopOnClose = stop })
		b.await("one", app.Running)
		b.Close(t.Context())
		goleak.VerifyNone(t, ignore)
	}
}

// Orders after Close do nothing.
func TestClosed(t *testing.T) {
	dir := empty(t)
	define(t, dir, "one", shell("exec sleep 1000"))
	b := open(t, dir)
	b.Close(t.Context())
	b.Close(t.Context())
	if err := b.Start(t.Context(), "one"); !fault.Is(err, fault.Unavailable) {
		t.Errorf("%v", err)
	}
}

func TestNewRefuses(t *testing.T) {
	if _, err := New(Config{}); err == nil {
		t.Error("no directory")
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := New(Config{Dir: file, Log: quiet()}); err == nil {
		t.Error("a file as data directory")
	}
}
