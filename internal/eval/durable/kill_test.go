package durable

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"atoll/internal/cli/client"
	"atoll/internal/confirm"
	"atoll/internal/eval"
	"atoll/internal/model/modeltest"
	"atoll/internal/node"
	"atoll/internal/secret"
)

var kills = flag.Int("kills", 3, "how often TestKill kills the node")

// serve is a node of its own process.
func serve(dir, addr string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	err := node.Serve(ctx, node.Options{DataDir: dir, Listen: addr, Version: "test", Out: io.Discard, Log: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// ledger is one node under a load over all its doors, and what the load was told.
type ledger struct {
	t     *testing.T
	dir   string
	addr  string
	log   *os.File
	owner *eval.Person // over HTTP
	peer  *eval.Person // the owner of another node, which asks this one
	key   string       // this node's, by which the other knows it

	mu        sync.Mutex        // guards the rest
	failed    bool              // the disk, see disk.fail
	fresh     map[string]string // message → conversation, acknowledged since the last kill
	before    int               // acknowledged earlier, and found
	asked     []confirm.Pending
	approvals int    // sent
	done      int    // actions reported as done
	settings  int    // the last value of a setting that was acknowledged
	sent      int    // the last that was sent
	peers     int    // answers that the other node was given
	socket    int    // calls over the socket that were answered
	clicks    int    // restarts by the owner's own click
	countIn   string // where the app counts, if not in dir
}

// kill -9 at random moments, under load over HTTP, the socket, event streams and the mesh: no acknowledged answer and no
// acknowledged change is lost, no approved action runs twice, no pending executes, the audit verifies, sessions and peers
// stand as they stood (C2, C3, H1, F-A22, F-A23, N2, M1).
func TestKill(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some two seconds a kill")
	}
	rng := rand.New(rand.NewPCG(*seed, 3))
	l := newLedger(t)
	cmd := l.start()
	l.meet()
	for i := range *kills {
		ctx, cancel := context.WithCancel(t.Context())
		var load sync.WaitGroup
		for w := range 2 {
			load.Go(func() { l.chat(ctx, fmt.Sprintf("%d.%d", i, w)) })
		}
		load.Go(func() { l.decide(ctx) })
		load.Go(func() { l.overSocket(ctx, i) })
		load.Go(func() { l.set(ctx) })
		load.Go(func() { l.askAsPeer(ctx) })
		<-time.After(time.Duration(rng.Int64N(int64(2500 * time.Millisecond)))) // a part of the experiment
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		cancel()
		load.Wait()
		cmd = l.start()
		l.check(i + 1)
		if t.Failed() {
			break
		}
	}
	l.owner.Call("apps.stop", map[string]any{"app": "counter"})
	_ = cmd.Process.Signal(syscall.SIGTERM)
	if err := cmd.Wait(); err != nil {
		t.Errorf("the node did not stop in order: %v", err)
	}
	intents := l.intents()
	if runs := l.count(); runs > intents {
		t.Errorf("%d runs of %d spent approvals", runs, intents)
	}
	t.Logf("%d kills: %d answers and %d settings acknowledged and found, %d approvals sent, %d intents, %d runs, %d reported as done; %d calls over the socket, %d answers to the peer",
		*kills, l.before, l.settings, l.approvals, intents, l.count(), l.done, l.socket, l.peers)
	if l.before == 0 || l.settings == 0 || l.socket == 0 {
		t.Error("the load did nothing")
	}
}

func newLedger(t *testing.T) *ledger {
	t.Helper()
	srv := modeltest.NewOpenAI(t, modeltest.Config{Func: func(s modeltest.Seen) modeltest.Reply {
		switch {
		case strings.Contains(s.Last, "look "):
			return modeltest.Reply{Calls: []modeltest.Call{{ID: "a", Name: "app_list", Args: "{}"}}}
		case strings.Contains(s.Last, "do "):
			return modeltest.Reply{Calls: []modeltest.Call{{ID: "a", Name: "app_restart", Args: `{"app":"counter"}`}}}
		}
		return modeltest.Reply{Text: []string{"that ", "is ", "how ", "it ", "is"}}
	}})
	dir := t.TempDir()
	write(t, filepath.Join(dir, "config.toml"), "[apps]\ndocker = \"off\"\n[mesh]\nenabled = true\ndiscover = false\nlisten = [\"/ip4/127.0.0.1/tcp/"+port(t)+
		"\"]\n[assistant]\nbackend = \"openai\"\nmodel = \"m\"\nbase_url = \""+srv.URL+"/v1\"\n")
	write(t, filepath.Join(dir, "run", "sample.written"), "")
	write(t, filepath.Join(dir, "apps", "counter.yaml"), runAs()+"restart: never\nstop_timeout: 1s\ncommand: [/bin/sh, -c, 'echo x >> "+dir+"/count; exec sleep 600']\n")
	if err := node.UserAdd(t.Context(), dir, "ada", "owner", secret.New(eval.Password)); err != nil {
		t.Fatal(err)
	}
	l := &ledger{t: t, dir: dir, addr: "127.0.0.1:" + port(t), fresh: map[string]string{}}
	var err error
	if l.log, err = os.Create(filepath.Join(t.TempDir(), "log")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			raw, _ := os.ReadFile(l.log.Name())
			t.Logf("the node's log ends:\n%s", raw[max(0, len(raw)-4000):])
		}
	})
	return l
}

// port finds one that is free now.
func port(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, p, _ := net.SplitHostPort(l.Addr().String())
	return p
}

// launch runs the node on a directory and waits until it answers.
func launch(t *testing.T, dir, addr string, log *os.File) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0], serveArg, dir, addr)
	cmd.Stderr, cmd.Env = log, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	up := false
	t.Cleanup(func() {
		if !up {
			_ = cmd.Process.Signal(syscall.SIGQUIT) // what it hangs in goes to the log
			_ = cmd.Wait()
		}
		_ = cmd.Process.Kill()
	})
	until(t, "the start", func() bool {
		res, err := http.Get("http://" + addr + "/healthz")
		if err != nil {
			return false
		}
		_ = res.Body.Close()
		return res.StatusCode == 200
	})
	up = true
	return cmd
}

func (l *ledger) start() *exec.Cmd {
	l.t.Helper()
	cmd := launch(l.t, l.dir, l.addr, l.log)
	if l.owner == nil {
		l.owner = eval.At(l.t, "http://"+l.addr).Login("ada")
		l.owner.Grant("apps", "mesh")
	}
	return cmd
}

// meet pairs another node with this one, and lets it see the apps.
func (l *ledger) meet() {
	l.t.Helper()
	l.peer = eval.Open(l.t, eval.Options{Settings: func(s *node.Settings) { quiet(s); s.Mesh.Enabled = true }}).Owner()
	must := func(p *eval.Person, method string, params map[string]any, out any) {
		l.t.Helper()
		r := p.Call(method, params)
		if r.Code != "" {
			l.t.Fatalf("%s: %s %s", method, r.Code, r.Message)
		}
		if out != nil {
			r.Into(l.t, out)
		}
	}
	var v struct {
		Code     string   `json:"code"`
		KeyWords []string `json:"key_words"`
	}
	var here, there struct {
		Key      string   `json:"key"`
		KeyWords []string `json:"key_words"`
	}
	must(l.owner, "mesh.status", nil, &here)
	must(l.peer, "mesh.status", nil, &there)
	must(l.owner, "mesh.invite", map[string]any{}, &v)
	must(l.peer, "mesh.accept", map[string]any{"code": v.Code, "key_words": strings.Join(v.KeyWords, " "), "label": "killed"}, nil)
	must(l.owner, "mesh.admit", map[string]any{"peer": there.Key, "key_words": strings.Join(there.KeyWords, " ")}, nil)
	must(l.owner, "mesh.allow", map[string]any{"peer": there.Key, "categories": []string{"apps"}}, nil)
	l.key = here.Key
}

// check holds what must be true after every crash.
func (l *ledger) check(after int) {
	t := l.t
	t.Helper()
	if r := l.owner.Call("assistant.pending", nil); string(r.Result) != `{"pending":[]}` {
		t.Errorf("after %d kills: pendings survived: %s %s", after, r.Result, r.Code)
	}
	if r := l.owner.Call("audit.verify", nil); !strings.Contains(string(r.Result), `"ok":true`) {
		t.Errorf("after %d kills: audit: %s", after, r.Result)
	}
	if r := l.owner.Call("mesh.status", nil); l.peer != nil && !strings.Contains(string(r.Result), `"state":"paired"`) || strings.Contains(string(r.Result), `"held":true`) {
		t.Errorf("after %d kills: the peer does not stand as it stood: %s", after, r.Result)
	}
	for _, q := range l.asked { // what stood or was spent does not run now
		if r := l.owner.Decide(q, "approve", nil); r.Code == "" && !strings.Contains(string(r.Result), `"approved"`) {
			t.Errorf("after %d kills: an old approval was taken: %+v", after, r)
		}
	}
	l.asked = nil
	if runs := l.count(); runs > l.approvals+l.clicks || runs < l.done {
		t.Errorf("after %d kills: %d runs, %d approvals sent, %d reported as done", after, runs, l.approvals, l.done)
	}
	var name struct {
		Settings map[string]struct {
			Value string `json:"value"`
		} `json:"settings"`
	}
	l.owner.Call("settings.get", map[string]any{"key": "node.name"}).Into(t, &name)
	var now int
	if _, err := fmt.Sscanf(name.Settings["node.name"].Value, "n%d", &now); l.settings > 0 && (err != nil || now < l.settings || now > l.sent) {
		t.Errorf("after %d kills: the name is %q; n%d was acknowledged, n%d sent", after, name.Settings["node.name"].Value, l.settings, l.sent)
	}
	l.lookUp(after)
}

// acknowledged notes an answer that must be found again; mu is held.
func (l *ledger) acknowledged(message, conversation string) {
	if !l.failed {
		l.fresh[message] = conversation
	}
}

// lookUp finds the acknowledged answers in the history.
func (l *ledger) lookUp(after int) {
	l.t.Helper()
	read := map[string]string{}
	for message, conv := range l.fresh {
		if _, ok := read[conv]; !ok {
			read[conv] = string(l.owner.Call("assistant.history", map[string]any{"conversation": conv, "limit": 1000}).Result)
		}
		if !strings.Contains(read[conv], `"`+message+`"`) {
			l.t.Errorf("after %d kills: the acknowledged answer to %q is lost", after, message)
		}
	}
	l.before += len(l.fresh)
	l.fresh = map[string]string{}
}

// count is how often the counter app was really started.
func (l *ledger) count() int {
	raw, err := os.ReadFile(filepath.Join(cmp.Or(l.countIn, l.dir), "count"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		l.t.Fatal(err)
	}
	return strings.Count(string(raw), "x")
}

func (l *ledger) intents() (n int) {
	var record strings.Builder
	if err := node.AuditExport(l.t.Context(), l.dir, &record); err != nil {
		l.t.Fatal(err)
	}
	for line := range strings.Lines(record.String()) {
		if strings.Contains(line, `"event":"intent"`) && strings.Contains(line, `"subject":"app_restart"`) {
			n++
		}
	}
	return n
}

// chat sends messages into one conversation until the node dies.
func (l *ledger) chat(ctx context.Context, worker string) {
	conv := ""
	for i := 0; ctx.Err() == nil; i++ {
		message := fmt.Sprintf("%s %s-%d", [...]string{"do", "say", "look"}[i%3], worker, i)
		r, err := l.owner.Try(ctx, "assistant.chat", map[string]any{"conversation": conv, "message": message})
		var a eval.Answer
		if err != nil || r.Code != "" || json.Unmarshal(r.Result, &a) != nil {
			return // it died, or that was too much
		}
		conv = a.Conversation
		l.mu.Lock()
		l.acknowledged(message, conv)
		for _, ch := range a.Changes {
			if ch.Outcome == "done" {
				l.done++
			}
		}
		l.mu.Unlock()
	}
}

// decide approves what an event stream asks, as soon as it may be.
func (l *ledger) decide(ctx context.Context) {
	var deciding sync.WaitGroup
	defer deciding.Wait()
	_ = l.owner.Events(ctx, func(e eval.Event) bool {
		var q confirm.Pending
		if e.Name != "confirm" || json.Unmarshal(e.Data, &q) != nil {
			return true
		}
		deciding.Go(func() {
			select {
			case <-ctx.Done():
				return
			case <-time.After(confirm.Inert + 20*time.Millisecond):
			}
			l.mu.Lock()
			l.approvals++
			l.mu.Unlock()
			_, _ = l.owner.Try(ctx, "assistant.confirm", map[string]any{"nonce": q.Nonce, "action_key": q.ActionKey, "decision": "approve"})
		})
		l.mu.Lock()
		l.asked = append(l.asked, q)
		l.mu.Unlock()
		return true
	})
}

// overSocket chats by the terminal's own client.
func (l *ledger) overSocket(ctx context.Context, round int) {
	c, err := client.New(client.Config{Address: "unix://" + filepath.Join(l.dir, "atoll.sock"), ChatTimeout: time.Minute})
	if err != nil {
		l.t.Error(err)
		return
	}
	defer c.Close()
	if _, err := c.Login(ctx, "ada", secret.New(eval.Password)); err != nil {
		return
	}
	conv := ""
	for i := 0; ctx.Err() == nil; i++ {
		message := fmt.Sprintf("say over the socket %d-%d", round, i)
		a, err := c.Chat(ctx, client.ChatRequest{Conversation: conv, Message: message}, func(client.ChatEvent) {})
		if err != nil {
			return
		}
		conv = a.Conversation
		l.mu.Lock()
		l.socket++
		l.acknowledged(message, conv)
		l.mu.Unlock()
	}
}

// set changes a setting, each time to a greater value.
func (l *ledger) set(ctx context.Context) {
	for ctx.Err() == nil {
		l.mu.Lock()
		l.sent++
		n := l.sent
		l.mu.Unlock()
		r, err := l.owner.Try(ctx, "settings.set", map[string]any{"key": "node.name", "value": fmt.Sprintf("n%d", n)})
		if err != nil || r.Code != "" {
			return
		}
		l.mu.Lock()
		if !l.failed {
			l.settings = n
		}
		l.mu.Unlock()
		select { // the audit grows with each
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// askAsPeer has the other node ask this one.
func (l *ledger) askAsPeer(ctx context.Context) {
	for ctx.Err() == nil {
		r, err := l.peer.Try(ctx, "mesh.ask", map[string]any{"peer": l.key, "question": "which apps are running?"})
		if err != nil {
			return
		}
		if r.Code != "" { // not reached yet, or the rate limit
			select {
			case <-ctx.Done():
			case <-time.After(200 * time.Millisecond):
			}
			continue
		}
		l.mu.Lock()
		l.peers++
		l.mu.Unlock()
	}
}
