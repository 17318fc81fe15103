package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"atoll/internal/cli/client"
	"atoll/internal/cli/clitest"
	"atoll/internal/fault"
	"atoll/internal/secret"
)

// house is one person's machine: a home, an environment, a node.
type house struct {
	t       *testing.T
	node    *clitest.Node
	env     map[string]string
	offline []string // what was done without a node
	eval    *EvalResult
}

func newHouse(t *testing.T) *house {
	return &house{t: t, node: clitest.New(t), env: map[string]string{"HOME": t.TempDir()}}
}

func (h *house) deps(stdin io.Reader, stdout, stderr io.Writer) Deps {
	did := func(what ...string) error {
		h.offline = append(h.offline, strings.Join(what, " "))
		return nil
	}
	return Deps{Stdin: stdin, Stdout: stdout, Stderr: stderr, Env: func(k string) string { return h.env[k] }, Version: "1.2.3", ChatTimeout: time.Minute,
		Serve: func(_ context.Context, o ServeOptions) error { return did("serve", o.DataDir, o.Listen) },
		Try:   func(context.Context, TryOptions) (*Local, error) { return h.local(did) },
		UserAdd: func(_ context.Context, dir, name, role string, pw secret.String) error {
			return did("add", filepath.Base(dir), name, role, pw.Reveal())
		},
		UserList: func(context.Context, string) ([]User, error) { return []User{{"ada", "owner"}}, did("list") },
		UserPasswd: func(_ context.Context, _, name string, pw secret.String) error {
			return did("passwd", name, pw.Reveal())
		},
		UserRemove:  func(_ context.Context, _, name string) error { return did("remove", name) },
		UserSetRole: func(_ context.Context, _, name, role string) error { return did("set-role", name, role) },
		AuditVerify: func(_ context.Context, _, head string) (AuditReport, error) {
			return AuditReport{OK: head == "", Records: 3, Head: "abc", Broken: 2, Problem: "changed"}, did("verify", head)
		},
		AuditExport: func(_ context.Context, _ string, w io.Writer) error {
			_, err := io.WriteString(w, "{\"seq\":1}\n")
			return err
		},
		Doctor: func(_ context.Context, _ string, running bool) ([]Check, error) {
			return []Check{{Name: "data", OK: true, Detail: "fine"}, {Name: "model", OK: running, Detail: "no answer", Fix: "start it"}}, nil
		},
		Eval: func(_ context.Context, o EvalOptions) (*EvalResult, error) {
			return h.evaluated(o), did(evalWords(o))
		},
	}
}

func (h *house) local(did func(...string) error) (*Local, error) {
	return &Local{Address: h.node.URL, Session: secret.New(clitest.Token), CSRF: secret.New(clitest.CSRF), Username: "ada", DataDir: "/tmp/atoll-x",
		Temporary: true, Close: func(context.Context) error { return did("closed") }}, nil
}

// run runs one command with standard streams that are no terminal.
func (h *house) run(stdin string, args ...string) (code int, stdout, stderr string) {
	h.t.Helper()
	var out, errs bytes.Buffer
	code = Main(h.t.Context(), args, h.deps(strings.NewReader(stdin), &out, &errs))
	return code, out.String(), errs.String()
}

// login logs in at the node.
func (h *house) login() *house {
	h.t.Helper()
	if code, _, stderr := h.run(clitest.Password+"\n", "login", "--address", h.node.URL, "--username", clitest.Username, "--password-stdin"); code != 0 {
		h.t.Fatalf("login: %d, %s", code, stderr)
	}
	h.node.Calls()
	return h
}

// gives has the node answer a method.
func (h *house) gives(method, result string) {
	h.node.Methods[method] = func(jsontext.Value) (any, error) { return jsontext.Value(result), nil }
}

// Issue 2: every command has help with an example and takes --json.
func TestEveryCommandHasHelpAndExample(t *testing.T) {
	h := newHouse(t)
	a := &app{Deps: h.deps(strings.NewReader(""), io.Discard, io.Discard)}
	count := 0
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		count++
		if c.Short == "" || c.Example == "" {
			t.Errorf("%s: no help or no example", c.CommandPath())
		}
		if c.Flag("json") == nil && c.InheritedFlags().Lookup("json") == nil {
			t.Errorf("%s: no --json", c.CommandPath())
		}
		if code, stdout, _ := h.run("", append(strings.Fields(c.CommandPath())[1:], "--help")...); code != 0 || !strings.Contains(stdout, "Usage:") {
			t.Errorf("%s --help: %d, %s", c.CommandPath(), code, stdout)
		}
		for _, child := range c.Commands() {
			walk(child)
		}
	}
	walk(a.root())
	if count < 45 {
		t.Errorf("%d commands", count)
	}
	if _, stdout, _ := h.run("", "--help"); !strings.Contains(stdout, "5 no node answers") {
		t.Error("the exit codes are not documented")
	}
}

func TestExitCodes(t *testing.T) {
	h := newHouse(t).login()
	fails := func(method string, err error) {
		h.node.Methods[method] = func(jsontext.Value) (any, error) { return nil, err }
	}
	fails("apps.list", fault.New(fault.Failed, "something went wrong"))
	fails("apps.start", fault.New(fault.Rule, "there is no app x; there is sample").At("app"))
	fails("users.list", fault.New(fault.Forbidden, "users.list needs the role owner"))
	fails("apps.logs", fault.New(fault.InvalidParams, "lines must be between 1 and 500").At("lines"))
	fails("assistant.mode-get", fault.New(fault.Unauthenticated, "no live session"))
	h.gives("auth.sessions", `{"sessions":[]}`)
	for _, tt := range []struct {
		args  string
		code  int
		words string
	}{
		{"session list", ExitOK, ""},
		{"apps list", ExitFailed, "something went wrong"},
		{"frobnicate", ExitUsage, "there is no command frobnicate"},
		{"apps", ExitUsage, "say which of the commands in atoll apps"},
		{"apps frobnicate", ExitUsage, "there is no command frobnicate in atoll apps"},
		{"apps start", ExitUsage, "atoll apps start --help"},
		{"apps list --frobnicate", ExitUsage, "unknown flag"},
		{"apps logs sample --lines 0", ExitUsage, "lines"},
		{"completion powershell", ExitUsage, "invalid argument"},
		{"history delete", ExitUsage, "--all"},
		{"apps start x", ExitRefused, "there is sample"},
		{"user list", ExitRefused, "ask the node's owner"},
		{"mode", ExitLogin, "atoll login"},
		{"status --address http://127.0.0.1:1", ExitUnreachable, "atoll serve"},
		{"status --address http://127.0.0.1:1 --socket /x", ExitUsage, "not both"},
		{"status --address ftp://x", ExitUsage, "no address of a node"},
	} {
		code, _, stderr := h.run("", strings.Fields(tt.args)...)
		if code != tt.code || !strings.Contains(stderr, tt.words) {
			t.Errorf("%s: exit %d, %q; want %d with %q", tt.args, code, stderr, tt.code, tt.words)
		}
		code, stdout, stderr := h.run("", append(strings.Fields(tt.args), "--json")...)
		var doc struct {
			Error struct{ Code, Message string }
		}
		if err := json.Unmarshal([]byte(stdout), &doc, json.MatchCaseInsensitiveNames(true)); code == ExitOK {
			continue
		} else if err != nil || doc.Error.Code == "" || doc.Error.Message == "" || stderr != "" {
			t.Errorf("%s --json: %v, %q, %q", tt.args, err, stdout, stderr)
		}
	}
	if code, _, stderr := newHouse(t).run("", "apps", "list", "--address", h.node.URL); code != ExitLogin || !strings.Contains(stderr, "atoll login") {
		t.Errorf("without a login: %d, %s", code, stderr)
	}
}

func TestLoginAndLogout(t *testing.T) {
	h := newHouse(t)
	if code, _, stderr := h.run("wrong\n", "login", "--address", h.node.URL, "--username", "ada", "--password-stdin"); code != ExitLogin || strings.Contains(stderr, "wrong\n") {
		t.Errorf("a wrong password: %d, %s", code, stderr)
	}
	if code, _, stderr := h.run("", "login", "--address", h.node.URL); code != ExitUsage || !strings.Contains(stderr, "--username") {
		t.Errorf("with nobody to ask: %d, %s", code, stderr)
	}
	h.login()
	path := filepath.Join(h.env["HOME"], ".config", "atoll", "credentials.json")
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", info, err)
	}
	h.gives("auth.logout", `{}`)
	h.gives("apps.list", `{"apps":[]}`)
	if code, stdout, _ := h.run("", "apps", "list"); code != 0 || stdout != "No apps.\n" {
		t.Errorf("after login: %d, %q", code, stdout)
	}
	if code, stdout, stderr := h.run("", "logout"); code != 0 || !strings.Contains(stdout, "Logged out") {
		t.Errorf("logout: %d, %q, %q", code, stdout, stderr)
	}
	if raw, err := os.ReadFile(path); err != nil || bytes.Contains(raw, []byte(clitest.Token)) {
		t.Errorf("the session is still kept: %s, %v", raw, err)
	}
}

// G7: the token travels in the fragment and is never printed.
func TestSetup(t *testing.T) {
	h := newHouse(t)
	h.gives("auth.setup", `{"csrf":"test-csrf","username":"ada","role":"owner","expires_at":"2099-01-01T00:00:00Z"}`)
	code, stdout, stderr := h.run("a long password\n", "setup", h.node.URL+"/#setup=t0ken", "--username", "ada", "--password-stdin")
	if code != 0 || strings.Contains(stdout+stderr, "t0ken") {
		t.Fatalf("%d, %q, %q", code, stdout, stderr)
	}
	if c := h.node.Next("auth.setup"); string(c.Params) != `{"password":"a long password","token":"t0ken","username":"ada"}` &&
		!(strings.Contains(string(c.Params), `"token":"t0ken"`) && strings.Contains(string(c.Params), `"username":"ada"`)) {
		t.Errorf("sent %s", c.Params)
	}
	for _, bad := range []string{h.node.URL, h.node.URL + "/#setup=", "x", h.node.URL + "/?setup=t"} {
		if code, _, stderr := h.run("pw\n", "setup", bad, "--username", "ada", "--password-stdin"); code != ExitUsage {
			t.Errorf("%s: %d, %s", bad, code, stderr)
		}
	}
}

// SPEC section 3: user add, audit verify and audit export work on a stopped node's directory, and through a running one.
func TestOfflineAndRunning(t *testing.T) {
	h := newHouse(t)
	dir := filepath.Join(t.TempDir(), "data")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, args := range []string{"user add ada --role owner --password-stdin", "user passwd ada --password-stdin", "user remove ada", "user set-role ada member", "user list", "audit verify", "audit export"} {
		if code, _, stderr := h.run("a long password\n", append(strings.Fields(args), "--data-dir", dir)...); code != 0 {
			t.Errorf("%s: %d, %s", args, code, stderr)
		}
	}
	if want := "add data ada owner a long password|passwd ada a long password|remove ada|set-role ada member|list|verify "; strings.Join(h.offline, "|") != want {
		t.Errorf("did %q", h.offline)
	}
	for args, code := range map[string]int{"user add ada --role king --password-stdin": ExitUsage, "user passwd --password-stdin": ExitUsage, "audit verify --head zzz": ExitFailed, "doctor": ExitFailed} {
		if got, _, stderr := h.run("pw\n", append(strings.Fields(args), "--data-dir", dir)...); got != code {
			t.Errorf("%s: %d, %s", args, got, stderr)
		}
	}
	h.offline = nil
	h.node.Listen(socketOf(dir))
	if code, _, stderr := h.run("pw\n", "user", "add", "bob", "--password-stdin", "--data-dir", dir); code != ExitLogin {
		t.Errorf("a running node without a login: %d, %s", code, stderr)
	}
	if code, _, stderr := h.run(clitest.Password+"\n", "login", "--socket", socketOf(dir), "--username", "ada", "--password-stdin"); code != 0 {
		t.Fatalf("%d, %s", code, stderr)
	}
	h.gives("users.add", `{}`)
	if code, _, stderr := h.run("pw\n", "user", "add", "bob", "--password-stdin", "--data-dir", dir); code != 0 {
		t.Errorf("a running node: %d, %s", code, stderr)
	}
	h.node.Next("users.add")
	if code, stdout, _ := h.run("", "doctor", "--data-dir", dir); code != 0 || !strings.Contains(stdout, "ok    model") {
		t.Errorf("doctor of a running node: %d, %s", code, stdout)
	}
	if len(h.offline) != 0 {
		t.Errorf("the directory of a running node was touched: %q", h.offline)
	}
}

// SPEC section 5: nothing that others wrote reaches the terminal with its escape sequences, in tables, logs, errors, JSON.
func TestOutputIsStripped(t *testing.T) {
	h := newHouse(t).login()
	const hostile = `ti\u001b[2Jtle\r\n\u202ex\u009b31m`
	h.gives("apps.list", `{"apps":[{"app":"sample","title":"`+hostile+`","state":"running","memory_bytes":5242880,"cpu_percent":12.4}],"problems":[{"file":"a.yaml","problem":"`+hostile+`"}]}`)
	h.gives("apps.logs", `{"app":"sample","lines":[{"stream":"stdout","text":"  `+hostile+`"}]}`)
	h.gives("assistant.history", `{"title":"x","entries":[{"turn":1,"message":"`+hostile+`","blocks":[{"kind":"text","text":"│ Approved.`+hostile+`"},{"kind":"call","tool":"app_logs","arguments":"`+hostile+`"}],"changes":[],"outcome":"done"}]}`)
	h.gives("notices.list", `{"notices":[{"id":1,"kind":"security","severity":"warning","what":"`+hostile+`","do":"look","count":2}]}`)
	h.gives("assistant.conversations", `{"conversations":[],"problems":[{"file":"x.db","text":"`+hostile+`"}]}`)
	h.node.Methods["auth.sessions"] = func(jsontext.Value) (any, error) {
		return nil, fault.New(fault.Failed, "bad \x1b[2J\u202e words")
	}
	for _, args := range []string{"apps list", "apps logs sample", "history show c1", "history list", "notices", "session list"} {
		for _, flag := range []string{"", "--json"} {
			_, stdout, stderr := h.run("", strings.Fields(args+" "+flag)...)
			if strings.ContainsAny(stdout+stderr, "\x1b\u009b\u202e\r") {
				t.Errorf("%s %s: %q", args, flag, stdout+stderr)
			}
			if flag != "" && !jsontext.Value(stdout).IsValid() {
				t.Errorf("%s: not JSON: %s", args, stdout)
			}
		}
	}
	_, stdout, _ := h.run("", "apps", "list")
	for _, want := range []string{"sample", "running", "5.0 MiB", "12%", "Problem with a.yaml"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("apps list: no %q in %s", want, stdout)
		}
	}
	if _, stdout, _ := h.run("", "history", "show", "c1"); strings.Contains(stdout, "\n│ Approved") {
		t.Errorf("history show: a forged line: %s", stdout)
	}
	if _, stdout, _ := h.run("", "history", "list"); !strings.Contains(stdout, "Problem with x.db") { // H6, F-D10
		t.Errorf("history list is silent about a damaged file: %s", stdout)
	}
}

// G5: digits stay as they were typed, and a value has the type of its setting.
func TestSettingsSet(t *testing.T) {
	h := newHouse(t).login()
	h.gives("settings.get", `{"settings":{"k":{"value":1,"type":"integer","settable":true},"s":{"value":"x","type":"string","settable":true}}}`)
	h.gives("settings.set", `{}`)
	for args, want := range map[string]string{"k 9007199254740993": `"value":9007199254740993`, "s 90": `"value":"90"`, "unknown true": `"value":"true"`} {
		if code, _, stderr := h.run("", append([]string{"settings", "set"}, strings.Fields(args)...)...); code != 0 {
			t.Errorf("%s: %d, %s", args, code, stderr)
		}
		if c := h.node.Next("settings.set"); !strings.Contains(string(c.Params), want) {
			t.Errorf("%s: sent %s", args, c.Params)
		}
	}
	for _, args := range []string{"k 1.5", "k 1e3", "k x"} {
		if code, _, _ := h.run("", append([]string{"settings", "set"}, strings.Fields(args)...)...); code != ExitUsage {
			t.Errorf("%s: %d", args, code)
		}
	}
}

func TestGrants(t *testing.T) {
	h := newHouse(t).login()
	h.gives("assistant.grants-set", `{"grants":{"apps":{"granted":true,"expires_at":"2099-01-01T00:00:00Z"},"wallet":{"granted":false}}}`)
	for args, want := range map[string]string{"open apps --for 30m": `"expires_at":"`, "open apps system --for forever": `"system":{"granted":true}`, "close apps": `"apps":{"granted":false}`, "open apps": `"expires_at":"`} {
		if code, stdout, stderr := h.run("", append([]string{"grants"}, strings.Fields(args)...)...); code != 0 || !strings.Contains(stdout, "open until 20") {
			t.Errorf("%s: %d, %s, %s", args, code, stdout, stderr)
		}
		if c := h.node.Next("assistant.grants-set"); !strings.Contains(string(c.Params), want) {
			t.Errorf("%s: sent %s", args, c.Params)
		}
	}
	if code, _, stderr := h.run("", "grants", "open", "apps", "--for", "-1h"); code != ExitUsage || !strings.Contains(stderr, "--for") {
		t.Errorf("%d, %s", code, stderr)
	}
}

func TestAuditExportPages(t *testing.T) {
	h := newHouse(t).login()
	h.node.Methods["audit.export"] = func(raw jsontext.Value) (any, error) {
		if strings.Contains(string(raw), `"after":0`) {
			return jsontext.Value(`{"lines":["{\"seq\":1}","{\"seq\":2}"],"next":2}`), nil
		}
		return jsontext.Value(`{"lines":["{\"seq\":3}"]}`), nil
	}
	if code, stdout, stderr := h.run("", "audit", "export"); code != 0 || stdout != "{\"seq\":1}\n{\"seq\":2}\n{\"seq\":3}\n" {
		t.Errorf("%d, %q, %q", code, stdout, stderr)
	}
}

// C10: without a terminal nobody is asked; the exit code says that something was refused.
func TestChatMessage(t *testing.T) {
	h := newHouse(t).login()
	h.node.Chat = func(_ context.Context, req client.ChatRequest, emit clitest.Emit) {
		if h.node.Listeners() != 0 {
			t.Error("somebody listens")
		}
		a := client.Answer{Conversation: "c1", Answer: "It is \x1b[2Jfine.", Tools: []client.ToolCall{{Tool: "app_list", Outcome: "done"}}}
		if req.Message == "restart it" {
			a.Tools = append(a.Tools, client.ToolCall{Tool: "app_restart", Outcome: "refused", Code: fault.NobodyToAsk})
		}
		emit("start", map[string]string{"conversation": "c1"})
		emit("text", map[string]string{"delta": a.Answer})
		emit("answer", a)
	}
	if code, stdout, _ := h.run("", "chat", "-m", "how is it?"); code != 0 || stdout != "  It is fine.\n│ Nothing was changed.\n" {
		t.Errorf("%d, %q", code, stdout)
	}
	if code, _, _ := h.run("y\n", "chat", "-m", "restart it"); code != ExitRefused {
		t.Errorf("refused: %d", code)
	}
	code, stdout, stderr := h.run("", "chat", "-m", "restart it", "--json")
	var a client.Answer
	if err := json.Unmarshal([]byte(stdout), &a); err != nil || code != ExitRefused || a.Conversation != "c1" || strings.Contains(stdout, "\x1b") || stderr != "" {
		t.Errorf("%d, %v, %q, %q", code, err, stdout, stderr)
	}
	if code, stdout, _ := h.run("how is it?\n/quit\n", "chat"); code != 0 || !strings.Contains(stdout, "It is fine.") {
		t.Errorf("piped: %d, %q", code, stdout)
	}
	if code, _, _ := h.run("", "chat", "--json"); code != ExitUsage {
		t.Errorf("--json without -m: %d", code)
	}
}

func TestTry(t *testing.T) {
	h := newHouse(t)
	h.node.Chat = func(_ context.Context, _ client.ChatRequest, emit clitest.Emit) {
		emit("answer", client.Answer{Conversation: "c1"})
	}
	code, stdout, stderr := h.run("hi\n", "try")
	if code != 0 || !strings.Contains(stdout, "│ Atoll: a node with a small sample app") || strings.Join(h.offline, "") != "closed" {
		t.Errorf("%d, %q, %q, %q", code, stdout, stderr, h.offline)
	}
	if _, err := os.Stat(filepath.Join(h.env["HOME"], ".config")); !errors.Is(err, os.ErrNotExist) {
		t.Error("try kept something in the home") // section 5: its session stays in memory
	}
}

func TestCompletionAndVersion(t *testing.T) {
	h := newHouse(t)
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if code, stdout, _ := h.run("", "completion", shell); code != 0 || !strings.Contains(stdout, "atoll") {
			t.Errorf("%s: %d", shell, code)
		}
	}
	if _, stdout, _ := h.run("", "__complete", "grants", "open", "sy"); !strings.Contains(stdout, "system") {
		t.Errorf("categories: %q", stdout)
	}
	h.login()
	h.gives("apps.list", `{"apps":[{"app":"sample"},{"app":"photos"}]}`)
	if _, stdout, _ := h.run("", "__complete", "apps", "restart", "sa"); !strings.Contains(stdout, "sample") || strings.Contains(stdout, "photos") {
		t.Errorf("apps: %q", stdout)
	}
	h.gives("node.version", `{"name":"atoll","version":"9.9"}`)
	if code, stdout, _ := h.run("", "version"); code != 0 || !strings.Contains(stdout, "atoll 1.2.3") || !strings.Contains(stdout, "9.9") {
		t.Errorf("%d, %q", code, stdout)
	}
	if code, stdout, _ := h.run("", "version", "--address", "http://127.0.0.1:1", "--json"); code != 0 || !jsontext.Value(stdout).IsValid() {
		t.Errorf("without a node: %d, %q", code, stdout)
	}
}

func TestRefused(t *testing.T) {
	done, no := client.ToolCall{Tool: "app_list", Outcome: "done"}, client.ToolCall{Tool: "app_list", Outcome: "refused", Code: fault.Truncated}
	other := client.ToolCall{Tool: "app_stop", Outcome: "done"}
	for _, tt := range []struct {
		calls []client.ToolCall
		want  bool
	}{{nil, false}, {[]client.ToolCall{done}, false}, {[]client.ToolCall{no}, true}, {[]client.ToolCall{no, done}, false}, {[]client.ToolCall{done, no}, true}, {[]client.ToolCall{no, other}, true},
		{[]client.ToolCall{{Tool: "x", Outcome: "refused", Code: fault.UnknownTool}, {Tool: "app_logs", Outcome: "refused", Code: fault.InvalidArgs}}, false}} {
		if got := refused(tt.calls); got != tt.want {
			t.Errorf("%+v: %v", tt.calls, got)
		}
	}
}

// A password is asked on the terminal and never shown.
func TestPasswordIsHidden(t *testing.T) {
	h := newHouse(t)
	master, tty, err := pty.Open()
	if err != nil {
		t.Skipf("no pseudo-terminal here: %v", err)
	}
	defer master.Close()
	if _, err := master.WriteString(clitest.Password); err != nil { // typed ahead: the terminal itself shows it, we do not
		t.Fatal(err)
	}
	seen := make(chan string, 1)
	code := make(chan int, 1)
	go func() { // ends when tty is closed below
		var all strings.Builder
		buf := make([]byte, 4096)
		for {
			n, err := master.Read(buf)
			all.Write(buf[:n])
			if strings.Contains(all.String(), "Password: ") && n > 0 && !strings.Contains(all.String(), "sent") {
				all.WriteString("sent")
				_, _ = master.WriteString("\r")
			}
			if err != nil {
				seen <- all.String()
				return
			}
		}
	}()
	var out bytes.Buffer
	go func() { // waited for by code
		code <- Main(t.Context(), []string{"login", "--address", h.node.URL, "--username", "ada"}, h.deps(tty, &out, tty))
	}()
	if c := <-code; c != 0 {
		t.Errorf("exit %d", c)
	}
	_ = tty.Close()
	text := <-seen
	if _, after, _ := strings.Cut(text, "Password: "); strings.Contains(after, clitest.Password) || !strings.Contains(out.String(), "Logged in") {
		t.Errorf("%q, %q", text, out.String())
	}
}

func TestMissingDepsPanic(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("empty Deps were taken")
		}
	}()
	Main(t.Context(), nil, Deps{})
}
