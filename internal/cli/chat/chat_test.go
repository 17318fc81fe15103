package chat

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/sys/unix"

	"atoll/internal/cli/client"
	"atoll/internal/cli/clitest"
	"atoll/internal/cli/term"
	"atoll/internal/fault"
)

func says(deltas ...string) func(context.Context, client.ChatRequest, clitest.Emit) {
	return func(_ context.Context, _ client.ChatRequest, emit clitest.Emit) {
		emit("start", map[string]string{"conversation": "c1"})
		for _, d := range deltas {
			emit("text", map[string]string{"delta": d})
		}
		emit("answer", client.Answer{Conversation: "c1", Answer: strings.Join(deltas, "")})
	}
}

// SPEC section 5, F-B7: the model's words cannot draw what the host draws, neither as text nor as a tool's name.
func TestModelCannotDrawTheHostsLines(t *testing.T) {
	k := start(t, quick, func(n *clitest.Node) {
		n.Chat = func(_ context.Context, _ client.ChatRequest, emit clitest.Emit) {
			emit("start", map[string]string{"conversation": "c1"})
			for _, d := range []string{"Hello \x1b", "[2J\x1b[1;1", "H│ Forged one.\r│ Forged two.\n│ Forged three.\n\x1b]0;", "title\x07\u009b", "31m", strings.Repeat("x", 98), "│ Forged four. end."} {
				emit("text", map[string]string{"delta": d})
			}
			emit("tool", map[string]string{"tool": "│ Forged five.\n│ Forged six.", "state": "refused", "code": "unknown_tool"})
			emit("tool", map[string]string{"tool": "app_list", "state": "\x1b[2Jforged\n│ seven"})
			emit("answer", client.Answer{Conversation: "c1", Changes: []client.Change{{Tool: "x", Summary: "a\n│ Forged eight.\x1b[2J", Outcome: "done"}}})
		}
	})
	k.types("hi\r")
	k.sees("› hi\r\n")
	from := k.mark()
	k.sees("│ a │ Forged eight.")
	k.types("\x04")
	k.leaves()
	drawn := k.screen()[from:]
	drawn = drawn[:strings.Index(drawn, "│ a │")]
	if strings.ContainsAny(drawn, "\x1b\u009b\x07\b") {
		t.Errorf("control bytes were drawn: %q", drawn)
	}
	for line := range strings.SplitSeq(strings.ReplaceAll(drawn, "\r\n", "\n"), "\n") {
		if strings.Contains(line, "\r") || strings.Contains(line, "Forged") && !strings.HasPrefix(line, "  ") {
			t.Errorf("a forged line: %q", line)
		}
	}
	for _, want := range []string{"│ a tool that does not exist refused", "│ app_list forged │ seven"} {
		if !strings.Contains(drawn, want) {
			t.Errorf("%q is not there: %q", want, drawn)
		}
	}
}

func TestAnswerStreamsAndHostSumsUp(t *testing.T) {
	more := make(chan struct{})
	cost := 0.0123
	k := start(t, quick, func(n *clitest.Node) {
		n.Chat = func(_ context.Context, _ client.ChatRequest, emit clitest.Emit) {
			emit("start", map[string]string{"conversation": "c1"})
			emit("tool", map[string]string{"tool": "app_list", "state": "started"})
			emit("tool", map[string]string{"tool": "app_list", "state": "done"})
			emit("text", map[string]string{"delta": "The sample "})
			<-more
			emit("text", map[string]string{"delta": "app runs. I restarted everything!"})
			emit("answer", client.Answer{Conversation: "c1", Usage: client.Usage{In: 120, Out: 45, CostUSD: &cost}})
		}
	})
	k.types("is it running?\r")
	k.sees("│ app_list …")
	k.sees("│ app_list done")
	k.sees("  The sample") // before the rest was sent
	close(more)
	k.sees("app runs. I restarted everything!")
	k.sees("│ Nothing was changed.  (120 tokens in, 45 out, about $0.0123)") // T11, F-E11
	k.types("and now?\r")
	k.node.Next("assistant.chat")
	call := k.node.Next("assistant.chat")
	if !strings.Contains(string(call.Params), `"conversation":"c1"`) {
		t.Errorf("the second message went to another conversation: %s", call.Params)
	}
	k.sees("│ Nothing was changed.") // so that the key meets the prompt, not the turn
	k.types("\x04")
	k.leaves()
}

// Ctrl-C cancels the turn, a second one leaves (C9: the request ends).
func TestCtrlC(t *testing.T) {
	running, gone := make(chan struct{}), make(chan struct{})
	k := start(t, quick, func(n *clitest.Node) {
		n.Chat = func(ctx context.Context, _ client.ChatRequest, emit clitest.Emit) {
			emit("start", map[string]string{"conversation": "c1"})
			emit("text", map[string]string{"delta": "thinking about it "})
			close(running)
			<-ctx.Done()
			close(gone)
		}
		n.Methods["assistant.cancel"] = func(jsontext.Value) (any, error) { return struct{}{}, nil }
	})
	k.types("restart it\r")
	<-running
	k.sees("thinking")
	k.types("\x03")
	if c := k.node.Next("assistant.cancel"); string(c.Params) != `{"conversation":"c1"}` {
		t.Errorf("cancelled %s", c.Params)
	}
	k.sees("│ Stopping")
	k.types("\x03")
	<-gone
	k.leaves()
}

func TestCancelledTurnGoesBackToThePrompt(t *testing.T) {
	cancelled := make(chan struct{})
	k := start(t, quick, func(n *clitest.Node) {
		n.Chat = func(_ context.Context, _ client.ChatRequest, emit clitest.Emit) {
			emit("start", map[string]string{"conversation": "c1"})
			emit("text", map[string]string{"delta": "thinking about it "})
			<-cancelled
			emit("error", error(fault.New(fault.Cancelled, "cancelled")))
		}
		n.Methods["assistant.cancel"] = func(jsontext.Value) (any, error) { close(cancelled); return struct{}{}, nil }
	})
	k.types("restart it\r")
	k.sees("thinking")
	k.types("\x03")
	k.sees("│ Stopped.")
	k.sees("› ")
	k.types("\x04")
	k.leaves()
}

func TestEmptyLineLeavesOnTheSecondCtrlC(t *testing.T) {
	k := start(t, quick, func(*clitest.Node) {})
	k.types("half a message\x03")
	k.types("\x03")
	k.sees("Ctrl-C again leaves")
	k.types("\x03")
	k.leaves()
	if len(k.node.Calls()) != 0 {
		t.Error("something was sent")
	}
}

// A pasted text of many lines is one message, never a command.
func TestPasteIsOneMessage(t *testing.T) {
	k := start(t, quick, func(n *clitest.Node) { n.Chat = says("ok") })
	k.types("\x1b[200~/mode off\r\nrestart everything\r\n\x1b[201~")
	k.types("\r")
	var req client.ChatRequest
	if err := json.Unmarshal(k.node.Next("assistant.chat").Params, &req); err != nil {
		t.Fatal(err)
	}
	if req.Message != "/mode off\nrestart everything" {
		t.Errorf("sent %q", req.Message)
	}
	k.sees("Nothing was changed.")
	k.types("\x1b[200~/mode off\x1b[201~\r")
	k.node.Next("assistant.chat")
	k.sees("Nothing was changed.")
	k.types("\x04")
	k.leaves()
	for _, c := range k.node.Calls() {
		if c.Method != "assistant.chat" {
			t.Errorf("a paste called %s", c.Method)
		}
	}
}

// What is typed while an answer comes is the next message.
func TestTypedAheadIsTheNextMessage(t *testing.T) {
	running, finish := make(chan struct{}, 2), make(chan struct{})
	k := start(t, quick, func(n *clitest.Node) {
		n.Chat = func(_ context.Context, _ client.ChatRequest, emit clitest.Emit) {
			emit("start", map[string]string{"conversation": "c1"})
			running <- struct{}{}
			<-finish
			emit("answer", client.Answer{Conversation: "c1"})
		}
	})
	k.types("one\r")
	<-running
	k.types("two\r")
	close(finish)
	<-running
	k.node.Next("assistant.chat")
	if c := k.node.Next("assistant.chat"); !strings.Contains(string(c.Params), `"two"`) {
		t.Errorf("sent %s", c.Params)
	}
	k.types("\x04")
	k.leaves()
}

// The terminal is given back as it was, and a terminal that goes away ends turn and chat.
func TestTerminalIsRestored(t *testing.T) {
	p, tty := newPerson(t)
	before, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	terminal, err := term.Open(tty, tty)
	if err != nil {
		t.Fatal(err)
	}
	if raw, _ := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS); raw.Lflag&(unix.ECHO|unix.ISIG|unix.ICANON) != 0 {
		t.Error("the terminal is not raw")
	}
	if err := terminal.Close(); err != nil {
		t.Fatal(err)
	}
	after, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS)
	if err != nil || *after != *before {
		t.Errorf("%+v is not %+v (%v)", after, before, err)
	}
	p.sees("\x1b[?2004l\x1b[?7h")
}

func TestHangUpEndsTheTurn(t *testing.T) {
	running, gone := make(chan struct{}), make(chan struct{})
	k := start(t, quick, func(n *clitest.Node) {
		n.Chat = func(ctx context.Context, _ client.ChatRequest, emit clitest.Emit) {
			emit("start", map[string]string{"conversation": "c1"})
			close(running)
			<-ctx.Done()
			close(gone)
		}
	})
	k.types("restart it\r")
	<-running
	_ = k.master.Close()
	<-gone
	select {
	case <-k.done:
	case <-time.After(20 * time.Second):
		t.Fatal("the chat did not end")
	}
}

// C10: where there is no terminal, nobody is asked: no stream of events is opened, and what is piped in decides nothing.
func TestWithoutATerminalNobodyIsAsked(t *testing.T) {
	n := clitest.New(t)
	n.Chat = func(_ context.Context, _ client.ChatRequest, emit clitest.Emit) {
		if n.Listeners() != 0 {
			t.Error("somebody listens")
		}
		emit("start", map[string]string{"conversation": "c1"})
		emit("tool", map[string]string{"tool": "app_restart", "state": "refused", "code": "nobody_to_ask"})
		emit("answer", client.Answer{Conversation: "c1", Offers: []client.Offer{{Category: "system", Tools: []string{"app_stop"}, Host: "api.anthropic.com"}}})
	}
	var out bytes.Buffer
	screen := term.NewScreen(&out, nil)
	c, err := New(Config{Client: n.Client(), Text: screen, Chrome: screen, Lines: strings.NewReader("restart it\ny\nyes\n")})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	calls := n.Calls()
	if len(calls) != 3 {
		t.Errorf("%d calls: %v", len(calls), calls)
	}
	for _, c := range calls {
		if c.Method != "assistant.chat" {
			t.Errorf("%s was called", c.Method)
		}
	}
	for _, want := range []string{"app_restart refused: no person is listening", "The category system is closed", "sent to api.anthropic.com", "app_stop", "/open system opens it"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not there: %s", want, out.String())
		}
	}
}

func TestOnceReturnsErrorsWithoutShowingThem(t *testing.T) {
	n := clitest.New(t)
	n.Chat = func(_ context.Context, _ client.ChatRequest, emit clitest.Emit) {
		emit("error", error(fault.New(fault.ModelFailed, "the model at x cannot be reached")))
	}
	var out bytes.Buffer
	screen := term.NewScreen(&out, nil)
	c, err := New(Config{Client: n.Client(), Text: screen, Chrome: screen})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Once(t.Context(), "hi"); !fault.Is(err, fault.ModelFailed) || out.Len() != 0 {
		t.Errorf("%v, %q", err, out.String())
	}
}

// T8: the offer is quiet, opens on one key, and asks again by itself.
func TestOffer(t *testing.T) {
	for name, tt := range map[string]struct {
		keys  string
		grant string // part of what grants-set gets; empty: it is not called
		then  string // what is typed afterwards
	}{
		"for an hour":           {"h", `"system":{"granted":true,"expires_at":"`, ""},
		"for good":              {"p", `"system":{"granted":true}`, ""},
		"enter":                 {"\r", "", ""},
		"no":                    {"n", "", "n"},
		"a message that begins": {"how is it?", "", "how is it?"},
		"a paste":               {"\x1b[200~h\x1b[201~", "", "h"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := start(t, quick, func(n *clitest.Node) {
				opened := false
				n.Chat = func(_ context.Context, _ client.ChatRequest, emit clitest.Emit) {
					emit("start", map[string]string{"conversation": "c1"})
					a := client.Answer{Conversation: "c1"}
					if !opened {
						a.Offers = []client.Offer{{Category: "system", Host: "this machine"}}
					}
					emit("answer", a)
				}
				n.Methods["assistant.grants-set"] = func(jsontext.Value) (any, error) { opened = true; return struct{}{}, nil }
			})
			k.types("how full is the disk?\r")
			k.node.Next("assistant.chat")
			k.sees("The category system is closed to the assistant. What it reads stays on this machine.")
			k.sees("Open it?")
			k.types(tt.keys)
			if tt.grant == "" {
				k.sees("Left closed. /open system opens it later.")
				k.sees("› " + tt.then)
				k.types("\x15\x04")
				k.leaves()
				if calls := k.node.Calls(); len(calls) != 0 {
					t.Errorf("called %v", calls)
				}
				return
			}
			if c := k.node.Next("assistant.grants-set"); !strings.Contains(string(c.Params), tt.grant) {
				t.Errorf("sent %s", c.Params)
			}
			k.sees("Asking again: how full is the disk?")
			if c := k.node.Next("assistant.chat"); !strings.Contains(string(c.Params), `"how full is the disk?"`) || !strings.Contains(string(c.Params), "c1") {
				t.Errorf("asked again: %s", c.Params)
			}
			k.sees("Nothing was changed.")
			k.types("\x04")
			k.leaves()
		})
	}
}

func TestSlashCommands(t *testing.T) {
	k := start(t, quick, func(n *clitest.Node) {
		n.Methods["assistant.grants-get"] = func(jsontext.Value) (any, error) {
			return map[string]any{"grants": map[string]any{"apps": map[string]any{"granted": true}, "wallet": map[string]any{"granted": false}}}, nil
		}
		n.Methods["assistant.grants-set"] = func(jsontext.Value) (any, error) { return struct{}{}, nil }
		n.Methods["assistant.mode-set"] = func(jsontext.Value) (any, error) {
			return nil, fault.New(fault.InvalidParams, "mode must be off, read-only or confirm").At("mode")
		}
	})
	k.types("/help\r")
	k.sees("/open     CATEGORY")
	k.types("/grants\r")
	k.sees("│ apps: open")
	k.sees("│ wallet: closed")
	k.types("/open apps 30m\r")
	k.sees("│ Open until ")
	k.types("/open apps forever\r")
	k.sees("│ Open until you close it: apps.")
	k.types("/close apps\r")
	k.sees("│ Closed: apps.")
	k.types("/open apps never\r")
	k.sees("│ Not done: write it as /open")
	k.types("/mode sideways\r")
	k.sees("│ Not done: mode must be off, read-only or confirm.")
	k.types("/undo\r")
	k.sees("│ Not done: nothing was said yet")
	k.types("/frobnicate\r")
	k.sees("│ There is no command /frobnicate")
	k.types("/quit\r")
	k.leaves()
	for _, c := range k.node.Calls() {
		if c.Method == "assistant.chat" {
			t.Errorf("a command was sent to the model: %s", c.Params)
		}
	}
}

// A lost stream of events comes back; while it is away, it is said that nobody can be asked.
func TestListenerComesBack(t *testing.T) {
	k := start(t, quick, func(n *clitest.Node) { n.Chat = says("ok") })
	k.node.Break()
	k.node.Joined()
	k.types("hi\r")
	k.sees("Nothing was changed.")
	k.types("\x04")
	k.leaves()
}

func TestALostSessionEndsTheChat(t *testing.T) {
	k := start(t, quick, func(n *clitest.Node) {
		n.Methods["assistant.chat"] = func(jsontext.Value) (any, error) { return nil, fault.New(fault.Unauthenticated, "no live session") }
	})
	k.types("hi\r")
	select {
	case err := <-k.done:
		if !fault.Is(err, fault.Unauthenticated) {
			t.Errorf("ended with %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the chat did not end")
	}
}

func TestNewChecksItsConfig(t *testing.T) {
	if _, err := New(Config{}); err == nil {
		t.Error("an empty Config was taken")
	}
}
