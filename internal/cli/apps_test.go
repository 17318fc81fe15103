package cli

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/creack/pty"
	"github.com/go-json-experiment/json/jsontext"

	"atoll/internal/cli/clitest"
	"atoll/internal/fault"
)

const project = `{"apps":[
	{"app":"docker:immich","runtime":"docker","state":"partly running","restarts":0,"services":[
		{"app":"docker:immich/db","runtime":"docker","state":"running","health":"healthy","restarts":0,"image":"docker.io/tensorchord/pgvecto-rs:pg14-v0.2.0@sha256:90724186f0a3517cf6914295b5ab410db9ce23190a2d9d0b9dd6463e3fa298f0"},
		{"app":"docker:immich/server","runtime":"docker","state":"backoff","exit_code":1,"restarts":7,"reason":"out of memory","warning":"It serves the assistant's model.",
			"ports":[{"port":2283,"container_port":3001,"protocol":"tcp"},{"address":"::","port":2283,"container_port":3001,"protocol":"tcp"},{"address":"127.0.0.1","port":53,"container_port":53,"protocol":"udp"}]}]},
	{"app":"sample","runtime":"process","state":"running","since":"2026-12-02T12:00:00Z","pid":77,"restarts":0}],
	"problems":[{"problem":"systemd: the bus does not answer"},{"file":"bad.yaml","problem":"unknown key"}]}`

// Point 1 of issue 3: all runtimes in one list, services under their app, with what is wrong.
func TestAppsList(t *testing.T) {
	h := newHouse(t).login()
	h.gives("apps.list", project)
	code, stdout, stderr := h.run("", "apps", "list")
	if code != 0 {
		t.Fatalf("%d %s", code, stderr)
	}
	lines := strings.Split(stdout, "\n")
	for i, want := range []string{"APP ", "docker:immich ", "  db ", "  server ", "sample "} {
		if !strings.HasPrefix(lines[i], want) {
			t.Errorf("line %d is %q", i, lines[i])
		}
	}
	for _, want := range []string{"partly running", "healthy", "2283->3001/tcp, 127.0.0.1:53/udp", "out of memory", "docker.io/tensorchord/pgvecto-rs:pg14-v0.2.0 ",
		"Note on docker:immich/server: It serves the assistant's model.", "Problem: systemd: the bus does not answer", "Problem with bad.yaml: unknown key"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("no %q in\n%s", want, stdout)
		}
	}
	if _, stdout, _ := h.run("", "apps", "list", "--json"); !strings.Contains(stdout, "90724186f0a3517cf") || !jsontext.Value(stdout).IsValid() {
		t.Errorf("--json leaves something out: %s", stdout)
	}
}

// A name that begins with blanks does not pass as a service of the app above it.
func TestAppsListForgedService(t *testing.T) {
	h := newHouse(t).login()
	h.gives("apps.list", `{"apps":[{"app":"docker:a","state":"running"},{"app":"  \u00a0 docker:b","state":"running","services":[{"app":"docker:b/\u001b[2J\n  x","state":"running"}]}]}`)
	_, stdout, _ := h.run("", "apps", "list")
	if lines := strings.Split(stdout, "\n"); !strings.HasPrefix(lines[2], "docker:b ") || !strings.HasPrefix(lines[3], "  x ") || strings.Contains(stdout, "\x1b") {
		t.Errorf("%q", stdout)
	}
}

// On a terminal the list keeps to its width: name, state and what is wrong stay.
func TestAppsListFitsTerminal(t *testing.T) {
	h := newHouse(t).login()
	h.gives("apps.list", project)
	for columns, want := range map[uint16]string{300: "IMAGE", 100: "HEALTH", 60: "STATE", 20: "STATE"} {
		master, tty, err := pty.Open()
		if err != nil {
			t.Skipf("no pseudo-terminal here: %v", err)
		}
		if err := pty.Setsize(tty, &pty.Winsize{Rows: 40, Cols: columns}); err != nil {
			t.Fatal(err)
		}
		got := make(chan string, 1)
		go func() { // ends when tty is closed
			var all bytes.Buffer
			_, _ = all.ReadFrom(master)
			got <- all.String()
		}()
		code := Main(t.Context(), []string{"apps", "list"}, h.deps(strings.NewReader(""), tty, tty))
		_ = tty.Close()
		text := <-got
		_ = master.Close()
		table := strings.Split(strings.ReplaceAll(text, "\r\n", "\n"), "\n")[:5]
		for _, line := range table {
			if n := len([]rune(line)); columns >= 60 && n > int(columns) {
				t.Errorf("%d columns: %d in %q", columns, n, line)
			}
		}
		if code != 0 || !strings.Contains(table[0], want) || !strings.Contains(table[1], "partly running") || columns < 300 && strings.Contains(table[0], "IMAGE") {
			t.Errorf("%d columns: %d\n%s", columns, code, text)
		}
	}
}

// T9: an app that did not come up, or not down, is an exit code, with the end of its log.
func TestAppActions(t *testing.T) {
	h := newHouse(t).login()
	for _, c := range []struct {
		verb, result string
		code         int
		words        string
	}{
		{"start", `{"app":"one","state":"running","restarts":0,"observed":true}`, ExitOK, "one is running."},
		{"start", `{"app":"one","state":"running","health":"healthy","observed":true}`, ExitOK, "one is running (healthy)."},
		{"start", `{"app":"one","state":"running","health":"starting","observed":false}`, ExitOK, "(its health check has not decided yet)."},
		{"start", `{"app":"one","state":"failed","reason":"no such program","observed":true,"log":[{"stream":"atoll","text":"could not be started\u001b[2J"}]}`, ExitFailed,
			"one is failed: no such program.\nThe last lines of its log:\natoll   could not be started\n"},
		{"restart", `{"app":"docker:p","state":"partly running","observed":true,"log":[{"stream":"stderr","service":"db","text":"disk full"}]}`, ExitFailed, "db stderr  disk full"},
		{"restart", `{"app":"one","state":"running","health":"unhealthy","observed":true}`, ExitFailed, "one is running (unhealthy)."},
		{"restart", `{"app":"one","state":"starting","observed":false}`, ExitFailed, "was not observed"},
		{"stop", `{"app":"one","state":"stopped","warning":"It serves the assistant's model.","observed":true}`, ExitOK, "Note on one: It serves"},
		{"stop", `{"app":"one","state":"exited","exit_code":137,"observed":true}`, ExitOK, "one is exited."},
		{"stop", `{"app":"one","state":"running","observed":false}`, ExitFailed, "was not observed"},
	} {
		h.gives("apps."+c.verb, c.result)
		code, stdout, stderr := h.run("", "apps", c.verb, "one")
		if code != c.code || !strings.Contains(stdout, c.words) || stderr != "" || strings.Contains(stdout, "\x1b") {
			t.Errorf("%s %s: %d %q %q", c.verb, c.result, code, stdout, stderr)
		}
		if code, stdout, _ := h.run("", "apps", c.verb, "one", "--json"); code != c.code || !jsontext.Value(stdout).IsValid() {
			t.Errorf("%s --json: %d %s", c.verb, code, stdout)
		}
	}
}

// until is an output that calls a function once it holds a text.
type until struct {
	bytes.Buffer
	text string
	do   func()
}

func (u *until) Write(p []byte) (int, error) {
	n, err := u.Buffer.Write(p)
	if strings.Contains(u.String(), u.text) {
		u.do()
	}
	return n, err
}

// A followed log is shown as it comes, and asked for again when the node's hour is over; Ctrl-C is no failure.
func TestLogsFollow(t *testing.T) {
	for flag, want := range map[string]string{
		"":       "stdout    one\ndb atoll  two\n",
		"--json": `{"stream":"stdout","text":"  one\u001b[2J\r"}` + "\n" + `{"text":"two"}` + "\n",
	} {
		h := newHouse(t).login()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		calls := 0
		h.node.Streams = map[string]func(context.Context, jsontext.Value, clitest.Emit){"apps.follow": func(ctx context.Context, params jsontext.Value, emit clitest.Emit) {
			calls++
			emit("start", map[string]string{"app": "sample"})
			lines := `"lines":0`
			if calls == 1 {
				lines = `"lines":3`
			}
			if !strings.Contains(string(params), `"app":"sample"`) || !strings.Contains(string(params), lines) {
				t.Errorf("call %d with %s", calls, params)
			}
			if calls == 1 {
				emit("line", jsontext.Value(`{"stream":"stdout","text":"  one\u001b[2J\r"}`))
				emit("answer", map[string]any{"app": "sample", "lines": 1})
				return
			}
			last := `{"stream":"atoll","service":"db","text":"two"}`
			if flag != "" {
				last = `{"text":"two"}`
			}
			emit("line", jsontext.Value(last))
			<-ctx.Done()
		}}
		out, errs := until{text: "two", do: cancel}, bytes.Buffer{}
		args := append([]string{"apps", "logs", "sample", "-f", "-n", "3"}, strings.Fields(flag)...)
		if code := Main(ctx, args, h.deps(strings.NewReader(""), &out, &errs)); code != 0 || errs.String() != "" || out.String() != want {
			t.Errorf("%d %q %q", code, out.String(), errs.String())
		}
	}
}

func TestLogsFollowFails(t *testing.T) {
	h := newHouse(t).login()
	h.node.Streams = map[string]func(context.Context, jsontext.Value, clitest.Emit){"apps.follow": func(_ context.Context, _ jsontext.Value, emit clitest.Emit) {
		emit("error", fault.New(fault.NotFound, "there is no app one"))
	}}
	if code, _, stderr := h.run("", "apps", "logs", "one", "--follow"); code != ExitFailed || !strings.Contains(stderr, "there is no app one") {
		t.Errorf("%d %s", code, stderr)
	}
	h.node.Streams = nil
	h.gives("apps.follow", `{"app":"one","lines":0}`)
	if code, _, stderr := h.run("", "apps", "logs", "one", "--follow"); code != ExitFailed || !strings.Contains(stderr, "does not stream") {
		t.Errorf("%d %s", code, stderr)
	}
}
