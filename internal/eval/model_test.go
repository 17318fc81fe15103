package eval

import (
	"strings"
	"testing"
	"time"

	"atoll/internal/fault"
	"atoll/internal/model"
	"atoll/internal/model/claude"
	"atoll/internal/model/modeltest"
	"atoll/internal/model/openai"
	"atoll/internal/secret"
)

// A model server that hangs, resets, floods, answers nonsense or dies mid-stream ends the turn with an error: the node
// goes on, what was answered is kept, and the conversation can be taken up again (B2, section 6).
func TestModelServerFaults(t *testing.T) {
	backends := map[string]func(t *testing.T, cfg modeltest.Config) model.Client{
		"openai": func(t *testing.T, cfg modeltest.Config) model.Client {
			c, err := openai.New(openai.Config{BaseURL: modeltest.NewOpenAI(t, cfg).URL + "/v1", Model: "m", Idle: time.Second})
			if err != nil {
				t.Fatal(err)
			}
			return c
		},
		"claude": func(t *testing.T, cfg modeltest.Config) model.Client {
			c, err := claude.New(claude.Config{BaseURL: modeltest.NewClaude(t, cfg).URL, Key: secret.New("k"), Model: "m", Idle: time.Second})
			if err != nil {
				t.Fatal(err)
			}
			return c
		},
	}
	faults := []modeltest.Fault{modeltest.Abort, modeltest.Reset, modeltest.Cut, modeltest.Overload, modeltest.Silence, modeltest.Garbage,
		modeltest.Endless, modeltest.LongLine, modeltest.HTML, modeltest.Redirect}
	for name, start := range backends {
		for _, f := range faults {
			t.Run(name+"/"+string(f), func(t *testing.T) {
				t.Parallel()
				m := start(t, modeltest.Config{Func: func(s modeltest.Seen) modeltest.Reply {
					if strings.Contains(s.Last, "fail") {
						return modeltest.Reply{Text: []string{"the beginning "}, Fault: f}
					}
					return modeltest.Reply{Text: []string{"all ", "well"}}
				}})
				h := Open(t, Options{Model: m})
				p := h.Owner()
				conv := p.Chat("", "hello").Conversation
				r := p.Call("assistant.chat", map[string]any{"conversation": conv, "message": "now fail"})
				if r.Code != fault.ModelFailed || r.Message == "" {
					t.Errorf("%+v", r)
				}
				past := string(p.Call("assistant.history", map[string]any{"conversation": conv}).Result)
				if before := f != modeltest.Abort && f != modeltest.HTML && f != modeltest.Redirect; before && !strings.Contains(past, "the beginning") {
					t.Errorf("what was answered is lost: %.300s", past)
				}
				if !strings.Contains(past, "now fail") {
					t.Error("the person's words are lost")
				}
				if a := p.Chat(conv, "again?"); a.Answer != "all well" {
					t.Errorf("%+v", a)
				}
			})
		}
	}
}
