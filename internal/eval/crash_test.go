package eval

import (
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

	"atoll/internal/confirm"
	"atoll/internal/model/modeltest"
	"atoll/internal/node"
	"atoll/internal/secret"
)

var (
	kills = flag.Int("kills", 20, "how often TestCrash kills the node")
	seed  = flag.Uint64("seed", 1, "of TestCrash's moments")
)

// serveArg makes this test binary a node: DIR and the address follow.
const serveArg = "__crash-serve"

func serveForCrash(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	err := node.Serve(ctx, node.Options{DataDir: args[0], Listen: args[1], Version: "test", Out: io.Discard,
		Log: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// crash is one data directory under a load, and what the load was told.
type crash struct {
	t      *testing.T
	dir    string
	addr   string
	person *Person
	log    *os.File

	mu        sync.Mutex        // guards the rest
	fresh     map[string]string // message → conversation, for every answer that came back whole since the last kill
	answered  map[string]string // those of before
	approvals int               // sent
	acked     int               // changes reported as done
	asked     []confirm.Pending
}

// kill -9 at random moments: no acknowledged answer is lost, no approved action runs twice, no pending executes, the
// store opens, the audit verifies (C2, C3, H1, F-A22, F-A23, N2).
func TestCrash(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some three seconds a kill")
	}
	rng := rand.New(rand.NewPCG(*seed, 2))
	c := newCrash(t)
	n := 0
	for i := range *kills {
		cmd := c.start()
		c.check(i)
		ctx, cancel := context.WithCancel(t.Context())
		var load, deciding sync.WaitGroup
		for range 3 {
			n++
			worker := n
			load.Go(func() { c.chat(ctx, worker) })
		}
		load.Go(func() { c.decide(ctx, &deciding) })
		pause(time.Duration(rng.Int64N(int64(4 * time.Second))))
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		cancel()
		load.Wait()
		deciding.Wait()
	}
	cmd := c.start()
	c.check(*kills)
	c.lookUp(*kills, c.answered)                        // and all of them once more, at the end
	for _, app := range []string{"counter", "sample"} { // they outlive the node by design
		c.person.Call("apps.stop", map[string]any{"app": app})
	}
	_ = cmd.Process.Signal(syscall.SIGTERM)
	if err := cmd.Wait(); err != nil {
		t.Errorf("the node did not stop in order: %v", err)
	}
	rep, err := node.AuditVerify(t.Context(), c.dir, "")
	if err != nil || !rep.OK {
		t.Errorf("audit: %+v %v", rep, err)
	}
	// Each spent approval left one intent, durably and before its run: more runs than intents is one approval run twice.
	// Approvals sent are no bound for that, since most never arrive.
	var record strings.Builder
	if err := node.AuditExport(t.Context(), c.dir, &record); err != nil {
		t.Fatal(err)
	}
	intents := 0
	for line := range strings.Lines(record.String()) {
		if strings.Contains(line, `"event":"intent"`) && strings.Contains(line, `"subject":"app_restart"`) {
			intents++
		}
	}
	if runs := c.count(); runs > intents {
		t.Errorf("%d runs of %d spent approvals", runs, intents)
	}
	t.Logf("%d intents", intents)
	t.Logf("%d kills: %d answers acknowledged and found, %d approvals sent, %d actions done, %d runs counted, %d audit records",
		*kills, len(c.answered), c.approvals, c.acked, c.count(), rep.Records)
	if len(c.answered) == 0 {
		t.Error("no answer was acknowledged: the load did nothing")
	}
}

// pause waits a part of the experiment, not for a condition.
func pause(d time.Duration) { <-time.After(d) }

func newCrash(t *testing.T) *crash {
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
	user := ""
	if os.Geteuid() == 0 {
		user = "user: root\n"
	}
	write(t, filepath.Join(dir, "config.toml"), "[assistant]\nbackend = \"openai\"\nmodel = \"m\"\nbase_url = \""+srv.URL+"/v1\"\n")
	write(t, filepath.Join(dir, "apps", "counter.yaml"), user+"restart: never\nstop_timeout: 1s\ncommand: [/bin/sh, -c, 'echo x >> "+dir+"/count; exec sleep 600']\n")
	if err := node.UserAdd(t.Context(), dir, "ada", "owner", secret.New(password)); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_ = l.Close()
	c := &crash{t: t, dir: dir, addr: addr, answered: map[string]string{}, fresh: map[string]string{}}
	if c.log, err = os.Create(filepath.Join(t.TempDir(), "log")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			raw, _ := os.ReadFile(c.log.Name())
			t.Logf("the node's log ends:\n%s", raw[max(0, len(raw)-4000):])
		}
	})
	return c
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// start runs the node and waits until it answers.
func (c *crash) start() *exec.Cmd {
	c.t.Helper()
	cmd := exec.Command(os.Args[0], serveArg, c.dir, c.addr)
	cmd.Stderr = c.log
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + c.dir}
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = cmd.Process.Kill() })
	wait(c.t, "the node to start", func() bool {
		res, err := http.Get("http://" + c.addr + "/healthz")
		if err != nil {
			return false
		}
		_ = res.Body.Close()
		return res.StatusCode == 200
	})
	if c.person == nil {
		h := &House{t: c.t, Base: "http://" + c.addr}
		c.person = h.Login("ada")
		c.person.Grant("apps")
	}
	return cmd
}

// check holds what must be true after every crash.
func (c *crash) check(after int) {
	c.t.Helper()
	if r := c.person.Call("assistant.pending", nil); string(r.Result) != `{"pending":[]}` {
		c.t.Errorf("after %d kills: pendings survived: %s %s", after, r.Result, r.Code)
	}
	if r := c.person.Call("audit.verify", nil); !strings.Contains(string(r.Result), `"ok":true`) {
		c.t.Errorf("after %d kills: audit: %s", after, r.Result)
	}
	for _, q := range c.asked { // what stood or was spent does not run now
		if r := c.person.Decide(q, "approve", nil); r.Code == "" && !strings.Contains(string(r.Result), `"approved"`) {
			c.t.Errorf("after %d kills: an old approval was taken: %+v", after, r)
		}
	}
	c.asked = nil
	if runs := c.count(); runs > c.approvals || runs < c.acked {
		c.t.Errorf("after %d kills: %d runs, %d approvals sent, %d reported as done", after, runs, c.approvals, c.acked)
	}
	c.lookUp(after, c.fresh)
	for message, conv := range c.fresh {
		c.answered[message] = conv
	}
	c.fresh = map[string]string{}
}

// lookUp finds acknowledged answers in the history, each conversation read once.
func (c *crash) lookUp(after int, answered map[string]string) {
	c.t.Helper()
	kept := map[string]map[string]bool{}
	for message, conv := range answered {
		if kept[conv] == nil {
			kept[conv] = map[string]bool{}
			r := c.person.Call("assistant.history", map[string]any{"conversation": conv, "limit": 1000})
			var past struct {
				Entries []struct {
					Message string `json:"message"`
					Outcome string `json:"outcome"`
				} `json:"entries"`
			}
			if r.Code != "" || json.Unmarshal(r.Result, &past) != nil {
				c.t.Fatalf("after %d kills: history of %q: %+v", after, message, r)
			}
			for _, e := range past.Entries {
				kept[conv][e.Message] = e.Outcome == "done"
			}
		}
		if !kept[conv][message] {
			c.t.Errorf("after %d kills: the acknowledged answer to %q is lost", after, message)
		}
	}
}

// count is how often the counter app was really started.
func (c *crash) count() int {
	raw, err := os.ReadFile(filepath.Join(c.dir, "count"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		c.t.Fatal(err)
	}
	return strings.Count(string(raw), "x")
}

// chat sends messages into one conversation until the node dies.
func (c *crash) chat(ctx context.Context, worker int) {
	conv := ""
	for i := 0; ctx.Err() == nil; i++ {
		kind := [...]string{"say", "look", "do"}[(worker+i)%3]
		message := fmt.Sprintf("%s %d-%d", kind, worker, i)
		r, err := c.person.Try(ctx, "assistant.chat", map[string]any{"conversation": conv, "message": message})
		if err != nil {
			return
		}
		if r.Code != "" {
			return // the rate limit
		}
		var a Answer
		if json.Unmarshal(r.Result, &a) != nil {
			return
		}
		conv = a.Conversation
		c.mu.Lock()
		c.fresh[message] = conv
		for _, ch := range a.Changes {
			if ch.Outcome == "done" {
				c.acked++
			}
		}
		c.mu.Unlock()
	}
}

// decide approves what is asked, as soon as it may be.
func (c *crash) decide(ctx context.Context, deciding *sync.WaitGroup) {
	req, err := http.NewRequestWithContext(ctx, "GET", "http://"+c.addr+"/events", nil)
	if err != nil {
		return
	}
	req.AddCookie(&http.Cookie{Name: "atoll_session", Value: c.person.cookie})
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return
	}
	defer res.Body.Close()
	_ = Stream(res.Body, func(e Event) bool {
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
			c.mu.Lock()
			c.approvals++
			c.mu.Unlock()
			_, _ = c.person.Try(ctx, "assistant.confirm", map[string]any{"nonce": q.Nonce, "action_key": q.ActionKey, "decision": "approve"})
		})
		c.mu.Lock()
		c.asked = append(c.asked, q)
		c.mu.Unlock()
		return true
	})
}
