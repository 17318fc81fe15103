package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/rogpeppe/go-internal/testscript"

	"atoll/internal/app/process"
	"atoll/internal/model/modeltest"
)

// TestMain makes the test's own program act as atoll, for the scripts and for what a node starts itself by.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == process.LaunchArg || os.Args[1] == process.SampleArg) {
		main() // started by way of /proc/self/exe, so under another name
	}
	testscript.Main(m, map[string]func(){"atoll": main})
}

var update = flag.Bool("update", false, "write what the scripts' cmp found into them")

// TestScript runs testdata/script: the whole program, as a person meets it.
func TestScript(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script", RequireUniqueNames: true, UpdateScripts: *update, Deadline: time.Now().Add(10 * time.Minute), Setup: setup,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"serve": serveCmd, "halt": haltCmd, "kill9": kill9Cmd, "model": modelCmd, "seen": seenCmd, "waitapp": waitAppCmd, "tty": ttyCmd,
			"jsonok": jsonCmd, "capture": captureCmd, "corrupt": corruptCmd, "gone": goneCmd, "exits": exitsCmd, "within": withinCmd,
			"engine": engineCmd, "bitcoin": bitcoinCmd,
		},
		Condition: condition,
	})
}

// patience bounds everything that a script waits for.
const patience = time.Minute

const often = 20 * time.Millisecond

// house is what one script has running.
type house struct {
	node    *exec.Cmd
	ended   chan struct{} // closed when the node's process is gone
	models  []*httptest.Server
	model   *modeltest.Handler // the one started last
	engine  *engine            // nil until a script starts one
	bitcoin *bitcoin           // likewise
}

type houseKey struct{}

func houseOf(ts *testscript.TestScript) *house { return ts.Value(houseKey{}).(*house) }

func setup(env *testscript.Env) error {
	h := &house{}
	env.Values[houseKey{}] = h
	env.Setenv("HOME", filepath.Join(env.WorkDir, "home"))
	env.Setenv("ATOLL_DATA_DIR", filepath.Join(env.WorkDir, "data"))
	env.Setenv("ATOLL_APPS_DOCKER", "off") // whatever this machine runs is no business of a script
	env.Setenv("TERM", "xterm")
	env.Setenv("TZ", "UTC")
	env.Defer(func() { h.close(env.WorkDir) })
	return nil
}

// close ends whatever the script left: the node, its apps, the model servers.
func (h *house) close(work string) {
	if h.node != nil {
		_ = h.node.Process.Kill()
		<-h.ended
	}
	h.engine.close()
	h.bitcoin.close()
	for _, s := range h.models {
		s.CloseClientConnections()
		s.Close()
	}
	for _, pid := range ofScript(work) { // an app of a killed node goes on by design
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// ofScript lists the processes that were started for the script in work.
func ofScript(work string) []int {
	var pids []int
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, proc := range all {
		line, _ := os.ReadFile(filepath.Join(proc, "cmdline")) // one that ended meanwhile has none
		cwd, _ := os.Readlink(filepath.Join(proc, "cwd"))
		if bytes.Contains(line, []byte(work+"/")) || strings.HasPrefix(cwd+"/", work+"/") {
			pid, _ := strconv.Atoi(filepath.Base(proc))
			pids = append(pids, pid)
		}
	}
	return pids
}

var (
	setupLine = regexp.MustCompile(`(?m)^Create the owner, within one hour: (\S+)$`)
	readyLine = regexp.MustCompile(`(?m)msg="the node is ready" address=(\S+)`)
)

// serveCmd starts a node: serve [flags of atoll serve]. It listens on a free port of this machine unless told otherwise,
// and sets ADDR, PID and, on a new node, SETUP. What it writes is in serve.out and serve.err.
func serveCmd(ts *testscript.TestScript, neg bool, args []string) {
	h := houseOf(ts)
	if neg || h.node != nil {
		ts.Fatalf("usage: serve [flags], once at a time; where it must fail, use ! exec atoll serve")
	}
	if !strings.Contains(strings.Join(args, " "), "--listen") {
		args = append(args, "--listen", "127.0.0.1:0")
	}
	cmd := exec.Command(program(ts), append([]string{"serve"}, args...)...)
	cmd.Dir, cmd.Env = ts.MkAbs("."), environ(ts)
	out, err := os.Create(ts.MkAbs("serve.out"))
	ts.Check(err)
	defer out.Close()
	log, err := os.OpenFile(ts.MkAbs("serve.err"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	ts.Check(err)
	defer log.Close()
	before, err := log.Stat()
	ts.Check(err)
	cmd.Stdout, cmd.Stderr = out, log
	ts.Check(cmd.Start())
	h.node, h.ended = cmd, make(chan struct{})
	go func() { defer close(h.ended); _ = cmd.Wait() }() // waited for in halt, kill9 or close
	poll(ts, often, "the node's start", func() bool {
		select {
		case <-h.ended:
			ts.Fatalf("the node ended: %s", ts.ReadFile("serve.err"))
		default:
		}
		m := readyLine.FindStringSubmatch(ts.ReadFile("serve.err")[before.Size():])
		if m != nil {
			ts.Setenv("ADDR", m[1])
		}
		return m != nil
	})
	ts.Setenv("SETUP", "")
	if m := setupLine.FindStringSubmatch(ts.ReadFile("serve.out")); m != nil {
		ts.Setenv("SETUP", m[1])
	}
	ts.Setenv("PID", strconv.Itoa(cmd.Process.Pid))
}

// program is atoll as the scripts' PATH has it.
func program(ts *testscript.TestScript) string {
	for _, dir := range filepath.SplitList(ts.Getenv("PATH")) {
		if path := filepath.Join(dir, "atoll"); fileExists(path) {
			return path
		}
	}
	ts.Fatalf("atoll is not in PATH")
	return ""
}

func fileExists(path string) bool { _, err := os.Stat(path); return err == nil }

// environ is the script's environment with what the node and its commands read.
func environ(ts *testscript.TestScript) []string {
	var env []string
	for _, name := range []string{"PATH", "HOME", "TMPDIR", "TERM", "TZ", "ATOLL_DATA_DIR", "ATOLL_ASSISTANT_BACKEND", "ATOLL_ASSISTANT_MODEL",
		"ATOLL_ASSISTANT_BASE_URL", "ATOLL_APPS_DOCKER", "ATOLL_MESH_ENABLED", "ATOLL_MESH_LISTEN", "ATOLL_MESH_DISCOVER", "ATOLL_WALLET_URL", "ATOLL_WALLET_USER", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "OPENAI_API_KEY", "HTTP_PROXY"} {
		if v := ts.Getenv(name); v != "" {
			env = append(env, name+"="+v)
		}
	}
	return env
}

// poll asks until ok.
func poll(ts *testscript.TestScript, every time.Duration, what string, ok func() bool) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	late := time.NewTimer(patience)
	defer late.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-late.C:
			ts.Fatalf("waited too long for %s", what)
		}
	}
}

// haltCmd ends the node as a service manager does, and expects it to end well.
func haltCmd(ts *testscript.TestScript, neg bool, args []string) {
	h := houseOf(ts)
	if neg || len(args) > 0 || h.node == nil {
		ts.Fatalf("usage: halt, with a node running")
	}
	ts.Check(h.node.Process.Signal(syscall.SIGTERM))
	h.gone(ts)
	if code := h.node.ProcessState.ExitCode(); code != 0 {
		ts.Fatalf("the node ended with %d: %s", code, ts.ReadFile("serve.err"))
	}
	h.node = nil
}

// kill9Cmd ends the node as a power cut does.
func kill9Cmd(ts *testscript.TestScript, neg bool, args []string) {
	h := houseOf(ts)
	if neg || len(args) > 0 || h.node == nil {
		ts.Fatalf("usage: kill9, with a node running")
	}
	ts.Check(h.node.Process.Kill())
	h.gone(ts)
	h.node = nil
}

func (h *house) gone(ts *testscript.TestScript) {
	select {
	case <-h.ended:
	case <-time.After(patience):
		ts.Fatalf("the node does not end")
	}
}

// modelCmd starts a fake model server: model openai|claude FILE [KEY]. In FILE, $WORK is the script's
// directory. It sets MODEL_URL, without a path.
func modelCmd(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 || len(args) > 3 {
		ts.Fatalf("usage: model openai|claude FILE [KEY]")
	}
	replies, err := modeltest.ReadReplies(strings.NewReader(strings.ReplaceAll(ts.ReadFile(args[1]), "$WORK", ts.Getenv("WORK"))))
	ts.Check(err)
	cfg := modeltest.Config{Replies: replies}
	if len(args) == 3 {
		cfg.Key = args[2]
	}
	h := houseOf(ts)
	switch args[0] {
	case "openai":
		h.model = modeltest.OpenAI(cfg)
	case "claude":
		h.model = modeltest.Claude(cfg)
	default:
		ts.Fatalf("no wire is called %s", args[0])
	}
	server := httptest.NewServer(h.model)
	h.models = append(h.models, server)
	ts.Setenv("MODEL_URL", server.URL)
}

// fenceToken is what differs from run to run in what a model is sent.
var fenceToken = regexp.MustCompile(`[0-9a-zA-Z]{20,}`)

// seenCmd writes what the model server was asked, one paragraph a request; random tokens are written TOKEN.
func seenCmd(ts *testscript.TestScript, neg bool, args []string) {
	h := houseOf(ts)
	if neg || len(args) > 0 || h.model == nil {
		ts.Fatalf("usage: seen, after model")
	}
	out := bufio.NewWriter(ts.Stdout())
	defer out.Flush()
	for _, s := range h.model.Seen() {
		fmt.Fprintf(out, "request %d model %s\n", s.N, s.Model)
		fmt.Fprintf(out, "tools %s\n", strings.Join(s.Tools, " "))
		if s.Problem != "" {
			fmt.Fprintf(out, "problem %s\n", s.Problem)
		}
		for line := range strings.Lines(fenceToken.ReplaceAllString(s.Last, "TOKEN")) {
			fmt.Fprintf(out, "| %s\n", strings.TrimRight(line, "\n"))
		}
	}
}

// waitAppCmd waits for an app's state: waitapp APP STATE.
func waitAppCmd(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: waitapp APP STATE")
	}
	row := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(args[0]) + ` .*\b` + regexp.QuoteMeta(args[1]) + ` `)
	poll(ts, 300*time.Millisecond, args[0]+" to be "+args[1], func() bool { // apps.list has a limit of calls
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		cmd := exec.CommandContext(ctx, program(ts), "apps", "list")
		cmd.Env = environ(ts)
		out, err := cmd.CombinedOutput()
		if err != nil {
			ts.Fatalf("apps list: %v: %s", err, out)
		}
		return row.Match(out)
	})
}

// jsonCmd expects the last command to have written one JSON value, or with the word lines a value on each line.
func jsonCmd(ts *testscript.TestScript, neg bool, args []string) {
	docs := []string{ts.ReadFile("stdout")}
	if len(args) == 1 && args[0] == "lines" {
		docs = strings.Split(strings.TrimRight(docs[0], "\n"), "\n")
	}
	for _, d := range docs {
		if v := jsontext.Value(strings.TrimSpace(d)); v.IsValid() == neg || d == "" {
			ts.Fatalf("JSON is %v: %q", !neg, d)
		}
	}
}

// captureCmd keeps a part of the last command's output: capture NAME REGEXP, the part being its first group.
func captureCmd(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: capture NAME REGEXP")
	}
	re, err := regexp.Compile("(?m)" + args[1])
	ts.Check(err)
	m := re.FindStringSubmatch(ts.ReadFile("stdout"))
	if len(m) < 2 {
		ts.Fatalf("%s is not in the output", args[1])
	}
	ts.Setenv(args[0], m[1])
}

// corruptCmd changes bytes of a file in place: corrupt FILE OLD NEW, of one length; the last place that holds OLD.
func corruptCmd(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 || len(args[1]) != len(args[2]) {
		ts.Fatalf("usage: corrupt FILE OLD NEW, both of one length")
	}
	data := []byte(ts.ReadFile(args[0]))
	at := bytes.LastIndex(data, []byte(args[1]))
	if at < 0 {
		ts.Fatalf("%s does not hold %q", args[0], args[1])
	}
	copy(data[at:], args[2])
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), data, 0o600))
}

// goneCmd waits until no process of this script runs whose command line holds the words: gone WORDS.
func goneCmd(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: gone WORDS")
	}
	poll(ts, often, args[0]+" to be gone", func() bool {
		for _, pid := range ofScript(ts.MkAbs(".")) {
			line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			if err == nil && bytes.Contains(bytes.ReplaceAll(line, []byte{0}, []byte{' '}), []byte(args[0])) {
				return false
			}
		}
		return true
	})
}

// exitsCmd runs a command and expects its exit code: exits CODE PROGRAM [ARGS].
func exitsCmd(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM [ARGS]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program(ts), args[2:]...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = ts.MkAbs("."), environ(ts), ts.Stdout(), ts.Stderr()
	err = cmd.Run()
	if _, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		ts.Fatalf("%v", err)
	}
	if code := cmd.ProcessState.ExitCode(); code != want {
		ts.Fatalf("exit code %d instead of %d", code, want)
	}
}

// withinCmd is exits with a limit of time: within SECONDS exits CODE PROGRAM [ARGS].
func withinCmd(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 4 || args[1] != "exits" {
		ts.Fatalf("usage: within SECONDS exits CODE PROGRAM [ARGS]")
	}
	limit, err := strconv.Atoi(args[0])
	ts.Check(err)
	began := time.Now()
	exitsCmd(ts, false, args[2:])
	if took := time.Since(began); took > time.Duration(limit)*time.Second {
		ts.Fatalf("it took %s", took.Round(time.Millisecond))
	}
}
