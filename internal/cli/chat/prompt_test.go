package chat

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"atoll/internal/cli/client"
	"atoll/internal/cli/clitest"
	"atoll/internal/fault"
)

// C8, F-A20: what was typed before the question stood is thrown away; Enter, once keys count, declines.
func TestTypedAheadDecidesNothing(t *testing.T) {
	a := newAsking()
	k := start(t, quick, a.script)
	k.types("restart it\r")
	<-a.running
	k.types("y\ry\ryes\rp\r")
	close(a.ask)
	k.sees("Decide with one key")
	for _, c := range k.node.Calls() {
		if c.Method == "assistant.confirm" {
			t.Fatalf("a decision was sent: %s", c.Params)
		}
	}
	k.types("\r")
	if d := decided(t, k.node.Next("assistant.confirm")); d.Decision != "decline" || d.Nonce != "n1" || d.ActionKey != "ab12" {
		t.Errorf("sent %+v", d)
	}
	k.sees("Declined; nothing was changed.")
	k.sees("Nothing was changed.")
	k.types("\x04")
	k.leaves()
	if calls := k.node.Calls(); len(calls) != 0 {
		t.Errorf("keys typed at the question became calls: %v", calls)
	}
}

// C8: for the first second, with the real times, all keys are ignored.
func TestFirstSecondIsIgnored(t *testing.T) {
	a := newAsking()
	k := start(t, Timing{}, a.script)
	k.types("restart it\r")
	<-a.running
	close(a.ask)
	k.sees("Read it first")
	shown := time.Now()
	k.types("y")
	k.types("\r")
	k.types("\x03")
	k.types("n")
	k.sees("Decide with one key")
	if d := time.Since(shown); d < 900*time.Millisecond {
		t.Errorf("keys count after %v", d)
	}
	for _, c := range k.node.Calls() {
		if c.Method == "assistant.confirm" {
			t.Fatalf("a key of the first second decided: %s", c.Params)
		}
	}
	k.types("\x1b")
	if d := decided(t, k.node.Next("assistant.confirm")); d.Decision != "decline" {
		t.Errorf("sent %+v", d)
	}
	k.sees("Nothing was changed.")
	k.types("\x04")
	k.leaves()
}

// Decline is the default; only one letter alone approves, and only where it is offered for longer.
func TestKeysAtTheQuestion(t *testing.T) {
	for name, tt := range map[string]struct {
		keys     []string
		mayAllow bool
		want     client.Decision
		words    string
	}{
		"y":                            {[]string{"y"}, false, client.Decision{Decision: "approve"}, "Approved."},
		"y and enter":                  {[]string{"y\r"}, false, client.Decision{Decision: "approve"}, "Approved."},
		"n":                            {[]string{"n"}, true, client.Decision{Decision: "decline"}, "Declined; nothing was changed."},
		"enter":                        {[]string{"\r"}, true, client.Decision{Decision: "decline"}, "Declined; nothing was changed."},
		"escape":                       {[]string{"\x1b"}, false, client.Decision{Decision: "decline"}, "Declined; nothing was changed."},
		"ctrl-c":                       {[]string{"\x03"}, false, client.Decision{Decision: "decline"}, "Declined; nothing was changed."},
		"p where offered":              {[]string{"p"}, true, client.Decision{Decision: "approve", AllowForS: 3600}, "Approved."},
		"a reason":                     {[]string{"r", "not now\r"}, false, client.Decision{Decision: "decline", Reason: "not now"}, "Declined; nothing was changed."},
		"a reason, then ctrl-c":        {[]string{"r", "y\x03"}, false, client.Decision{Decision: "decline"}, "Declined; nothing was changed."},
		"a reason of yes":              {[]string{"r", "yes\r"}, false, client.Decision{Decision: "decline", Reason: "yes"}, "Declined; nothing was changed."},
		"a paste, then ctrl-c":         {[]string{"\x1b[200~y\n\x1b[201~", "\x03"}, true, client.Decision{Decision: "decline"}, "Declined; nothing was changed."},
		"yes typed, then ctrl-c (C12)": {[]string{"yes\r", "\x03"}, true, client.Decision{Decision: "decline"}, "Declined; nothing was changed."},
		"p where not, then ctrl-c":     {[]string{"p", "\x03"}, false, client.Decision{Decision: "decline"}, "Declined; nothing was changed."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAsking()
			a.pending.MayAllow = tt.mayAllow
			k := start(t, quick, a.script)
			k.types("restart it\r")
			<-a.running
			close(a.ask)
			k.sees("Decide with one key")
			for i, keys := range tt.keys {
				if i > 0 && tt.keys[0] == "r" {
					k.sees("Why not?")
				}
				k.types(keys)
			}
			tt.want.Nonce, tt.want.ActionKey = "n1", "ab12"
			if d := decided(t, k.node.Next("assistant.confirm")); d != tt.want {
				t.Errorf("sent %+v, want %+v", d, tt.want)
			}
			k.sees(tt.words)
			k.sees("Nothing was changed.")
			k.types("\x04")
			k.leaves()
			for _, c := range k.node.Calls() {
				if c.Method == "assistant.confirm" {
					t.Errorf("decided twice: %s", c.Params)
				}
			}
		})
	}
}

// The question closes by what the node says: answered on another device, expired, cancelled (F-B11, F-C7).
func TestTheNodeEndsTheQuestion(t *testing.T) {
	for outcome, words := range map[fault.Code]string{
		client.Approved:  "Approved elsewhere.",
		fault.Declined:   "Declined elsewhere; nothing was changed.",
		fault.Expired:    "Nobody decided in time; nothing was changed.",
		fault.Cancelled:  "The turn was stopped; nothing was changed.",
		"something_else": "it was not approved here",
	} {
		t.Run(string(outcome), func(t *testing.T) {
			t.Parallel()
			a := newAsking()
			k := start(t, quick, a.script)
			k.types("restart it\r")
			<-a.running
			close(a.ask)
			k.sees("Decide with one key")
			k.node.Publish("confirm-ended", client.Ended{Nonce: "another", Outcome: fault.Expired})
			k.node.Publish("confirm-ended", client.Ended{Nonce: "n1", Outcome: outcome})
			k.sees(words)
			k.node.Publish("confirm", a.pending) // the state sent again after a reconnect
			k.types("y")
			a.finish <- struct{}{}
			k.sees("Nothing was changed.")
			k.types("\x15\x04")
			k.leaves()
			for _, c := range k.node.Calls() {
				if c.Method == "assistant.confirm" {
					t.Errorf("a decision was sent after the end: %s", c.Params)
				}
			}
			if n := strings.Count(k.screen(), "Your decision"); n != 1 {
				t.Errorf("the question was shown %d times", n)
			}
		})
	}
}

func TestTheTurnsEndClosesTheQuestion(t *testing.T) {
	a := newAsking()
	k := start(t, quick, a.script)
	k.types("restart it\r")
	<-a.running
	close(a.ask)
	k.sees("Decide with one key")
	a.finish <- struct{}{}
	k.sees("The turn has ended; nothing more was approved.")
	k.sees("Nothing was changed.")
	k.types("\x04")
	k.leaves()
}

// too_soon and a node that is busy with something else leave the question standing.
func TestARefusedDecisionLeavesTheQuestion(t *testing.T) {
	a := newAsking()
	first := true
	k := start(t, quick, func(n *clitest.Node) {
		a.script(n)
		taken := n.Methods["assistant.confirm"]
		n.Methods["assistant.confirm"] = func(raw jsontext.Value) (any, error) {
			if first {
				first = false
				return nil, fault.New(fault.TooSoon, "too soon: read the question first")
			}
			return taken(raw)
		}
	})
	k.types("restart it\r")
	<-a.running
	close(a.ask)
	k.sees("Decide with one key")
	k.types("y")
	k.node.Next("assistant.confirm")
	k.sees("The question still stands.")
	k.sees("Decide with one key")
	k.types("\x1b")
	if d := decided(t, k.node.Next("assistant.confirm")); d.Decision != "decline" {
		t.Errorf("sent %+v", d)
	}
	k.sees("Nothing was changed.")
	k.types("\x04")
	k.leaves()
}

// A question of another conversation is not put here, and one that comes before the conversation has its name waits.
func TestOnlyThisConversationsQuestions(t *testing.T) {
	named := make(chan struct{})
	a := newAsking()
	k := start(t, quick, func(n *clitest.Node) {
		a.script(n)
		n.Chat = func(_ context.Context, _ client.ChatRequest, emit clitest.Emit) {
			close(a.running)
			<-named
			emit("start", map[string]string{"conversation": "c1"})
			<-a.finish
			emit("answer", client.Answer{Conversation: "c1"})
		}
	})
	k.types("restart it\r")
	<-a.running
	other := restartSample()
	other.Nonce, other.Conversation, other.Summary = "n2", "c2", "Stop the app photos"
	k.node.Publish("confirm", other)
	k.node.Publish("confirm", a.pending)
	close(named)
	k.sees("Decide with one key")
	k.types("\x1b")
	if d := decided(t, k.node.Next("assistant.confirm")); d.Nonce != "n1" {
		t.Errorf("sent %+v", d)
	}
	k.sees("Nothing was changed.")
	k.types("\x04")
	k.leaves()
	if strings.Contains(k.screen(), "photos") {
		t.Error("a question of another conversation was shown")
	}
}

// C6, C7, F-C1, F-C4: the question shows everything, and no byte of it can draw.
func TestQuestionShowsEverything(t *testing.T) {
	p := restartSample()
	p.Arguments = jsontext.Value(`{"app":"sa\u202emple\u001b[2J","n":9007199254740993,"long":"` + strings.Repeat("x", 10_000) + `rm -rf /","line":"a\n│ [y] approve"}`)
	p.Summary = "Restart the app sa\x1b[1Gmple\nand more"
	p.Untrusted, p.Warnings, p.MaybeRan = []string{"app_logs"}, []string{"app also occurs in that text\x1b[2J"}, true
	lines := question(p, 80, time.Now())
	text := strings.Join(lines, "\n")
	for _, want := range []string{"sa⟨U+202E⟩mple⟨U+001B⟩[2J", "9007199254740993", "Restart the app sample and more", "exited", "running (restarted)",
		"app_logs", "app also occurs in that text", "may already have run", "app_restart", "⟨U+000A⟩"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not shown", want)
		}
	}
	joined := strings.ReplaceAll(strings.ReplaceAll(text, "\n", ""), " ", "")
	if !strings.Contains(joined, strings.Repeat("x", 10_000)+"rm-rf/") {
		t.Error("a long argument is not shown to its end")
	}
	for _, l := range lines {
		if strings.ContainsAny(l, "\x1b\u202e\n\r") {
			t.Errorf("a line can draw: %q", l)
		}
	}
	for _, bad := range []string{`[1]`, `{"a":`, `"x"`, ``} {
		if shown, _ := arguments(jsontext.Value(bad)); len(shown) != 1 || shown[0].name != "arguments" {
			t.Errorf("%q: %+v", bad, shown)
		}
	}
}
