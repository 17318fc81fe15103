package chat

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/sys/unix"

	"atoll/internal/cli/client"
	"atoll/internal/cli/clitest"
	"atoll/internal/cli/term"
)

// quick makes prompts answer sooner than people need them to.
var quick = Timing{Inert: 60 * time.Millisecond, Quiet: 30 * time.Millisecond, Settle: 30 * time.Millisecond}

// person sits at a real pseudo-terminal.
type person struct {
	t      *testing.T
	master *os.File

	mu    sync.Mutex // guards the rest
	seen  string     // everything drawn
	read  int        // how much of it was expected already
	grown chan struct{}
}

func newPerson(t *testing.T) (p *person, tty *os.File) {
	master, tty, err := pty.Open()
	if err != nil {
		t.Skipf("no pseudo-terminal here: %v", err)
	}
	if err := pty.Setsize(tty, &pty.Winsize{Rows: 50, Cols: 100}); err != nil {
		t.Fatal(err)
	}
	// A file that waits in the kernel cannot be closed while it is read, and so never hangs up.
	fd, err := unix.Dup(int(master.Fd()))
	if err == nil {
		err = errors.Join(unix.SetNonblock(fd, true), master.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	master = os.NewFile(uintptr(fd), "master")
	p = &person{t: t, master: master, grown: make(chan struct{}, 1)}
	var wg sync.WaitGroup
	wg.Go(p.watch)
	t.Cleanup(func() {
		_ = tty.Close()
		_ = master.Close()
		wg.Wait()
	})
	return p, tty
}

func (p *person) watch() {
	buf := make([]byte, 4096)
	for {
		n, err := p.master.Read(buf)
		if err != nil {
			return
		}
		p.mu.Lock()
		p.seen += string(buf[:n])
		p.mu.Unlock()
		select {
		case p.grown <- struct{}{}:
		default:
		}
	}
}

// sees waits for words after those seen before.
func (p *person) sees(words string) {
	p.t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		p.mu.Lock()
		at := strings.Index(p.seen[p.read:], words)
		if at >= 0 {
			p.read += at + len(words)
		}
		rest := p.seen[p.read:]
		p.mu.Unlock()
		if at >= 0 {
			return
		}
		select {
		case <-p.grown:
		case <-deadline:
			p.t.Fatalf("waited for %q; since then there was %q", words, rest)
		}
	}
}

// mark is where the words seen last end on the screen.
func (p *person) mark() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.read
}

// screen is everything drawn so far.
func (p *person) screen() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen
}

func (p *person) types(keys string) {
	p.t.Helper()
	if _, err := p.master.WriteString(keys); err != nil {
		p.t.Fatal(err)
	}
}

// talk is a chat at a terminal against a fake node.
type talk struct {
	*person
	node *clitest.Node
	done chan error
}

// start begins a chat; setup writes the node's script.
func start(t *testing.T, timing Timing, setup func(*clitest.Node)) *talk {
	t.Helper()
	n := clitest.New(t)
	setup(n)
	p, tty := newPerson(t)
	terminal, err := term.Open(tty, tty)
	if err != nil {
		t.Fatal(err)
	}
	screen := term.NewScreen(terminal, terminal.Width)
	c, err := New(Config{Client: n.Client(), Terminal: terminal, Text: screen, Chrome: screen, Timing: timing})
	if err != nil {
		t.Fatal(err)
	}
	k := &talk{person: p, node: n, done: make(chan error, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		err := c.Run(ctx)
		if closeErr := terminal.Close(); err == nil {
			err = closeErr
		}
		k.done <- err
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
	n.Joined()
	return k
}

// leaves waits for the end of the chat.
func (k *talk) leaves() {
	k.t.Helper()
	select {
	case err := <-k.done:
		if err != nil {
			k.t.Errorf("the chat ended with %v", err)
		}
	case <-time.After(20 * time.Second):
		k.t.Fatal("the chat did not end")
	}
}

// decided is a decision that reached the node.
func decided(t *testing.T, call clitest.Call) client.Decision {
	t.Helper()
	var d client.Decision
	if err := json.Unmarshal(call.Params, &d, json.RejectUnknownMembers(true)); err != nil {
		t.Fatal(err)
	}
	return d
}

// asking is a node whose chat asks one question and answers when it was decided, and the channels of its script.
type asking struct {
	running chan struct{} // closed once the turn runs
	ask     chan struct{} // close it to have the question put
	finish  chan struct{} // ends the turn
	pending client.Pending
}

func restartSample() client.Pending {
	return client.Pending{Nonce: "n1", ActionKey: "ab12", Conversation: "c1", Tool: "app_restart", Summary: "Restart the app sample",
		Target: "sample", Arguments: jsontext.Value(`{"app":"sample"}`), Before: "exited", After: "running (restarted)", ExpiresAt: time.Now().Add(5 * time.Minute)}
}

func newAsking() *asking {
	return &asking{running: make(chan struct{}), ask: make(chan struct{}), finish: make(chan struct{}, 10), pending: restartSample()}
}

func (a *asking) script(n *clitest.Node) {
	n.Chat = func(ctx context.Context, req client.ChatRequest, emit clitest.Emit) {
		emit("start", map[string]string{"conversation": "c1"})
		close(a.running)
		<-a.ask
		emit("tool", map[string]string{"tool": a.pending.Tool, "state": "waiting"})
		n.Publish("confirm", a.pending)
		select {
		case <-a.finish:
		case <-ctx.Done():
			return
		}
		emit("answer", client.Answer{Conversation: "c1", Answer: "Said something."})
	}
	n.Methods["assistant.confirm"] = func(raw jsontext.Value) (any, error) {
		var d client.Decision
		if err := json.Unmarshal(raw, &d); err != nil {
			return nil, err
		}
		out := client.Ended{Nonce: d.Nonce, Outcome: client.Approved}
		if d.Decision == "decline" {
			out.Outcome = "declined"
		}
		a.finish <- struct{}{}
		return out, nil
	}
}
