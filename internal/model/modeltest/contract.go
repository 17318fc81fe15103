package modeltest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"atoll/internal/fault"
	"atoll/internal/fence"
	"atoll/internal/model"
)

// Make starts a backend whose other side plays the replies, and says nothing for at most idle (zero: the backend's own
// default).
type Make func(t *testing.T, idle time.Duration, replies ...Reply) model.Client

// Ask is a request of one question with two tools.
func Ask(words string) model.Request {
	return model.Request{
		System: fence.Ours("You help with a server."),
		Tools: []model.Tool{
			{Name: "app_list", Description: "Lists the apps.", Schema: []byte(`{"type":"object","properties":{},"additionalProperties":false}`)},
			{Name: "app_restart", Description: "Restarts an app.", Schema: []byte(`{"type":"object","properties":{"app":{"type":"string"}},"required":["app"],"additionalProperties":false}`)},
		},
		Messages: []model.Message{{Role: model.User, Blocks: []model.Block{model.TextBlock(fence.Words(words))}}},
	}
}

// Answered continues a request with the model's answer, the results of its calls, and identifiers of the host's own.
func Answered(req model.Request, a model.Answer, result string) model.Request {
	said := model.Message{Role: model.Assistant}
	back := model.Message{Role: model.User}
	for i, b := range a.Blocks {
		if b.Call != nil {
			call := *b.Call
			call.ID = "host-" + string(rune('a'+len(req.Messages))) + string(rune('a'+i))
			b.Call = &call
			back.Blocks = append(back.Blocks, model.Block{Result: &model.Result{
				ID: call.ID, Name: call.Name, Text: fence.Outside("app_list", result), IsError: call.Broken != "",
			}})
		}
		said.Blocks = append(said.Blocks, b)
	}
	if len(back.Blocks) == 0 {
		back.Blocks = []model.Block{model.TextBlock(fence.Words("go on"))}
	}
	req.Messages = append(slices.Clone(req.Messages), said, back)
	return req
}

// heard is one answer with everything that came with it.
type heard struct {
	model.Answer
	deltas []string
	err    error
}

func listen(ctx context.Context, c model.Client, req model.Request) heard {
	var h heard
	h.Answer, h.err = c.Stream(ctx, req, func(d string) error { h.deltas = append(h.deltas, d); return nil })
	return h
}

// Run is the contract of a backend that can be scripted.
func Run(t *testing.T, start Make) {
	t.Run("any", func(t *testing.T) {
		Any(t, start(t, 0, Reply{Repeat: true, Text: []string{"All ", "is ", "well."}}), Ask("how are you"))
	})
	t.Run("answers", func(t *testing.T) { runAnswers(t, start) })
	t.Run("broken calls", func(t *testing.T) { runBroken(t, start) })
	t.Run("failures", func(t *testing.T) { runFailures(t, start) })
	t.Run("cancel", func(t *testing.T) { runCancel(t, start) })
	t.Run("history", func(t *testing.T) { runHistory(t, start) })
}

// Any is the contract of every backend, whatever it answers to req.
func Any(t *testing.T, c model.Client, req model.Request) {
	if c.Info().Backend == "" {
		t.Error("Info names no backend")
	}
	var wg sync.WaitGroup
	for range 4 { // safe for concurrent use
		wg.Go(func() {
			h := listen(t.Context(), c, req)
			if h.err != nil {
				t.Errorf("Stream: %v", h.err)
				return
			}
			if got := strings.Join(h.deltas, ""); got != h.Text() {
				t.Errorf("emitted %q, but the answer's text is %q", got, h.Text())
			}
			wellFormed(t, h.Answer)
		})
	}
	wg.Wait()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if h := listen(ended, c, req); !fault.Is(h.err, fault.Cancelled) || len(h.deltas) > 0 {
		t.Errorf("an ended context gave %v and %q, want cancelled and nothing emitted", h.err, h.deltas)
	}
	own := errors.New("the listener left")
	if a, err := c.Stream(t.Context(), req, func(string) error { return own }); err != own && len(a.Calls()) == 0 {
		t.Errorf("emit's error came back as %v, want it unchanged", err)
	}
}

func wellFormed(t *testing.T, a model.Answer) {
	t.Helper()
	if a.Stop == 0 || (a.Stop == model.StopCalls) != (len(a.Calls()) > 0) && a.Stop != model.StopTruncated && a.Stop != model.StopRefused {
		t.Errorf("stop %d with %d calls", a.Stop, len(a.Calls()))
	}
	for i, b := range a.Blocks {
		set := 0
		for _, there := range []bool{b.Text != nil, b.Call != nil, b.Opaque != nil, b.Result != nil} {
			if there {
				set++
			}
		}
		if set != 1 || b.Result != nil {
			t.Errorf("block %d has %d fields set, or is a result", i, set)
		}
		if b.Text != nil && b.Text.IsOutside() {
			t.Errorf("block %d: the model's words are fenced as a stranger's", i)
		}
	}
}

func runAnswers(t *testing.T, start Make) {
	t.Run("text and usage", func(t *testing.T) { // B2, B4
		h := listen(t.Context(), start(t, 0, Reply{Text: []string{"One", " two", " drei ✓"}, In: 120, Out: 7, CacheIn: 100}), Ask("count"))
		want := model.Usage{In: 20, Out: 7, CacheRead: 100}
		if h.err != nil || h.Text() != "One two drei ✓" || len(h.deltas) != 3 || h.Stop != model.StopEnd || h.Usage != want {
			t.Errorf("got %q in %q, stop %d, usage %+v, error %v", h.Text(), h.deltas, h.Stop, h.Usage, h.err)
		}
	})
	t.Run("calls keep every byte", func(t *testing.T) { // F-E15 begins here
		args := `{"id":9007199254740993, "b":"é\u202e", "a":1.0}`
		h := listen(t.Context(), start(t, 0, Reply{Text: []string{"Let me see."},
			Calls: []Call{{ID: "x1", Name: "app_list"}, {ID: "x2", Name: "App.Delete ", Args: args}}}), Ask("go"))
		calls := h.Calls()
		if h.err != nil || len(calls) != 2 || h.Stop != model.StopCalls || h.Text() != "Let me see." {
			t.Fatalf("got %+v, error %v", h.Answer, h.err)
		}
		if calls[0].Name != "app_list" || calls[0].Broken != "" || calls[1].Name != "App.Delete " || string(calls[1].Args) != args || calls[1].Broken != "" {
			t.Errorf("got %+v and %+v", *calls[0], *calls[1])
		}
	})
	t.Run("same and missing identifiers", func(t *testing.T) { // T10
		h := listen(t.Context(), start(t, 0, Reply{Calls: []Call{{ID: "a", Name: "app_list", Args: "{}"}, {ID: "b", Name: "app_list", Args: "{}"}}}), Ask("go"))
		if h.err != nil || len(h.Calls()) != 2 {
			t.Errorf("got %+v, error %v", h.Answer, h.err)
		}
	})
	t.Run("nothing at all", func(t *testing.T) {
		h := listen(t.Context(), start(t, 0, Reply{}), Ask("go"))
		if h.err != nil || h.Stop != model.StopEnd || len(h.Blocks) != 0 {
			t.Errorf("got %+v, error %v", h.Answer, h.err)
		}
	})
}

func runBroken(t *testing.T, start Make) {
	tests := []struct {
		name, tool, args string
	}{ // B3, F-D4, F-E6: never repaired, never an error of the round
		{"cut off", "app_restart", `{"app":`},
		{"a string", "app_restart", `"{\"app\":\"sample\"}"`},
		{"a list", "app_restart", `["sample"]`},
		{"a number", "app_restart", `7`},
		{"null", "app_restart", `null`},
		{"prose", "app_restart", `Sure! {"app":"sample"}`},
		{"prose after", "app_restart", `{"app":"sample"} Done.`},
		{"two objects", "app_restart", `{"app":"a"}{"app":"b"}`},
		{"code fence", "app_restart", "```json\n{\"app\":\"sample\"}\n```"},
		{"no name", "", `{"app":"sample"}`},
		{"endless name", strings.Repeat("x", 500), `{}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			good := Call{ID: "g", Name: "app_list", Args: "{}"}
			c := start(t, 0, Reply{Calls: []Call{{ID: "b", Name: tt.tool, Args: tt.args}, good}}, Reply{Text: []string{"I see."}})
			req := Ask("restart it")
			h := listen(t.Context(), c, req)
			calls := h.Calls()
			if h.err != nil || len(calls) != 2 {
				t.Fatalf("got %+v, error %v", h.Answer, h.err)
			}
			if calls[0].Broken == "" {
				t.Errorf("the call is not marked: %+v", *calls[0])
			}
			if calls[1].Broken != "" {
				t.Errorf("its sibling is marked: %q", calls[1].Broken)
			}
			if next := listen(t.Context(), c, Answered(req, h.Answer, "NOT executed")); next.err != nil || next.Text() != "I see." {
				t.Errorf("the next round failed: %v", next.err)
			}
		})
	}
	t.Run("token limit", func(t *testing.T) { // T12, F-E3: even where the arguments parse
		for _, stop := range []string{"max_tokens", "length"} {
			h := listen(t.Context(), start(t, 0, Reply{Text: []string{"Restarting"}, Stop: stop,
				Calls: []Call{{ID: "a", Name: "app_list", Args: "{}"}, {ID: "b", Name: "app_restart", Args: `{"app":"sam"}`}}}), Ask("go"))
			if h.err != nil || h.Stop != model.StopTruncated || len(h.Calls()) != 2 {
				t.Fatalf("%s: got %+v, error %v", stop, h.Answer, h.err)
			}
			for _, call := range h.Calls() {
				if call.Broken == "" {
					t.Errorf("%s: %s is not marked", stop, call.Name)
				}
			}
		}
	})
	t.Run("a call as text is text", func(t *testing.T) { // T12, F-E5
		text := `{"name": "app_restart", "arguments": {"app": "sample"}}`
		h := listen(t.Context(), start(t, 0, Reply{Text: []string{text}}), Ask("restart it"))
		if h.err != nil || len(h.Calls()) != 0 || h.Text() != text || model.CallInText(h.Text(), Ask("").Tools) != "app_restart" {
			t.Errorf("got %+v, error %v", h.Answer, h.err)
		}
	})
}

func runFailures(t *testing.T, start Make) {
	tests := []struct {
		name    string
		reply   Reply
		passing bool
	}{ // B2, F-E4: a server that fails never takes the node down; what was answered is kept
		{"bad request", Reply{Status: 400, Message: "no"}, false},
		{"bad key", Reply{Status: 401, Message: "no"}, false},
		{"no such model", Reply{Status: 404, Message: "no"}, false},
		{"limited", Reply{Status: 429, Message: "slow down"}, true},
		{"no credit", Reply{Status: 429, Message: "insufficient_quota"}, false},
		{"broken", Reply{Status: 500, Message: "oops"}, true},
		{"overloaded", Reply{Status: 529, Message: "busy"}, true},
		{"aborted", Reply{Fault: Abort}, true},
		{"reset", Reply{Text: []string{"Half an", " answer"}, Calls: []Call{{ID: "a", Name: "app_restart", Args: `{"app":"x"}`}}, Fault: Reset}, true},
		{"cut short", Reply{Text: []string{"Half an", " answer"}, Fault: Cut}, true},
		{"overload inside", Reply{Text: []string{"Half an", " answer"}, Fault: Overload}, true},
		{"silent", Reply{Text: []string{"Half an", " answer"}, Fault: Silence}, false},
		{"silent at once", Reply{Fault: Silence}, false},
		{"only pings", Reply{Text: []string{"Half an", " answer"}, Fault: Pings}, false},
		{"garbage", Reply{Text: []string{"Half an", " answer"}, Fault: Garbage}, false},
		{"endless", Reply{Text: []string{"Half an", " answer"}, Fault: Endless}, false},
		{"endless line", Reply{Text: []string{"Half an", " answer"}, Fault: LongLine}, false},
		{"web page", Reply{Fault: HTML}, false},
		{"redirect", Reply{Fault: Redirect}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var idle time.Duration
			if tt.reply.Fault == Silence || tt.reply.Fault == Pings {
				idle = time.Second // a loaded machine must not look silent
			}
			c := start(t, idle, tt.reply, Reply{Text: []string{"well again"}})
			h := listen(t.Context(), c, Ask("go"))
			if !fault.Is(h.err, fault.ModelFailed) {
				t.Fatalf("got %v, want model_failed", h.err)
			}
			if model.Passing(h.err) != tt.passing {
				t.Errorf("passing is %v for %v", !tt.passing, h.err)
			}
			if want := strings.Join(tt.reply.Text, ""); !strings.HasPrefix(h.Text(), want) || len(h.Text()) > model.MaxText {
				t.Errorf("%d bytes of text are left, want %q", len(h.Text()), want)
			}
			if len(h.Calls()) != 0 {
				t.Errorf("a call of a failed answer is left: %+v", *h.Calls()[0])
			}
			if got := strings.Join(h.deltas, ""); got != h.Text() {
				t.Errorf("%d bytes were emitted, %d are kept", len(got), len(h.Text()))
			}
			if next := listen(t.Context(), c, Ask("again")); next.err != nil || next.Text() != "well again" {
				t.Errorf("the client is not usable any more: %v", next.err)
			}
		})
	}
	t.Run("retry after", func(t *testing.T) {
		h := listen(t.Context(), start(t, 0, Reply{Status: 529, RetryAfter: "7"}), Ask("go"))
		if fe := fault.Of(h.err); fe.RetryAfter != 7*time.Second {
			t.Errorf("RetryAfter is %s", fe.RetryAfter)
		}
	})
}

func runCancel(t *testing.T, start Make) {
	t.Run("in the middle", func(t *testing.T) { // B2: a turn can be cancelled
		c := start(t, 0, Reply{Text: []string{"Half", " an answer"}, Wait: make(chan struct{})})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		seen := 0
		a, err := c.Stream(ctx, Ask("go"), func(string) error {
			if seen++; seen == 2 {
				cancel()
			}
			return nil
		})
		if !fault.Is(err, fault.Cancelled) || a.Text() != "Half an answer" {
			t.Errorf("got %q and %v", a.Text(), err)
		}
	})
	t.Run("by deadline", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		h := listen(ctx, start(t, 0, Reply{Wait: make(chan struct{})}), Ask("go"))
		if !fault.Is(h.err, fault.Cancelled) {
			t.Errorf("got %v", h.err)
		}
	})
	t.Run("by the listener", func(t *testing.T) {
		own := errors.New("the listener left")
		seen := 0
		a, err := start(t, 0, Reply{Text: []string{"One", "two", "three"}}).Stream(t.Context(), Ask("go"), func(string) error {
			if seen++; seen == 2 {
				return own
			}
			return nil
		})
		if err != own || a.Text() != "One" || seen != 2 {
			t.Errorf("got %q, %v, %d deltas", a.Text(), err, seen)
		}
	})
}

func runHistory(t *testing.T, start Make) {
	user := func(blocks ...model.Block) model.Message { return model.Message{Role: model.User, Blocks: blocks} }
	said := func(blocks ...model.Block) model.Message {
		return model.Message{Role: model.Assistant, Blocks: blocks}
	}
	text := func(s string) model.Block { return model.TextBlock(fence.Words(s)) }
	call := func(id string) model.Block {
		return model.Block{Call: &model.Call{ID: id, Name: "app_list", Args: []byte("{}")}}
	}
	result := func(id, s string) model.Block {
		return model.Block{Result: &model.Result{ID: id, Name: "app_list", Text: fence.Words(s)}}
	}
	foreign := model.Block{Opaque: &model.Opaque{Backend: "another", Raw: []byte(`{"type":"thinking"}`)}}
	good := map[string][]model.Message{ // F-D1, H5: what the host keeps is always sendable
		"empty texts":      {user(text("hello"), text(""), text("  \n")), said(text("")), user(text("are you there"))},
		"results first":    {user(text("a")), said(text("b"), call("1"), call("2")), user(text("also"), result("2", "x"), result("1", ""))},
		"broken call":      {user(text("a")), said(model.Block{Call: &model.Call{ID: "1", Name: "a b/c", Args: []byte(`{"a":`), Broken: "cut"}}), user(result("1", "no"))},
		"strange id":       {user(text("a")), said(call("é/ 1"), call("é_ 1")), user(result("é/ 1", "x"), result("é_ 1", "y"))},
		"foreign thinking": {user(text("a")), said(foreign, text("b")), user(text("c"))},
		"only thinking":    {user(text("a")), said(foreign), user(text("c"))},
	}
	for name, messages := range good {
		t.Run(name, func(t *testing.T) {
			req := Ask("")
			req.Messages = messages
			if h := listen(t.Context(), start(t, 0, Reply{Text: []string{"fine"}}), req); h.err != nil {
				t.Errorf("refused: %v", h.err)
			}
		})
	}
	bad := map[string][]model.Message{
		"nothing":          {},
		"assistant first":  {said(text("a"))},
		"assistant last":   {user(text("a")), said(text("b"))},
		"same side twice":  {user(text("a")), user(text("b")), user(text("c"))},
		"call unanswered":  {user(text("a")), said(call("1"), call("2")), user(result("1", "x"))},
		"result of none":   {user(text("a")), said(text("b")), user(result("1", "x"))},
		"identifier twice": {user(text("a")), said(call("1"), call("1")), user(result("1", "x"))},
	}
	for name, messages := range bad {
		t.Run(name, func(t *testing.T) {
			req := Ask("")
			req.Messages = messages
			if h := listen(t.Context(), start(t, 0, Reply{Text: []string{"fine"}}), req); !fault.Is(h.err, fault.Failed) {
				t.Errorf("got %v, want it refused before it is sent", h.err)
			}
		})
	}
}
