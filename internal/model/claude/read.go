package claude

import (
	"context"
	"errors"

	anthropic "github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/go-json-experiment/json"

	"atoll/internal/model"
)

// reader assembles the events of one stream. Blocks come one after the other, each between its start and its stop.
type reader struct {
	answer *model.Assembly
	usage  model.Usage
	stop   model.Stop
	ended  bool // message_stop was seen

	kind    string // of the block that is open: "" for none
	call    model.Call
	given   []byte // arguments that came with the start of the block
	thought []byte
	signed  []byte
	bytes   int
}

// thinking is a thinking block as it must go back: unchanged, its signature covers it.
type thinking struct {
	Type      string `json:"type"`
	Thinking  string `json:"thinking"`
	Signature string `json:"signature"`
}

type redacted struct {
	Type string `json:"type"`
	Data string `json:"data"`
}

// done reports whether the message is complete.
func (r *reader) done() bool { return r.ended && r.stop != 0 && r.kind == "" }

func (r *reader) event(e anthropic.MessageStreamEventUnion) error {
	switch e.Type {
	case "message_start":
		u := e.Message.Usage
		r.usage = model.Usage{In: u.InputTokens, Out: u.OutputTokens, CacheRead: u.CacheReadInputTokens, CacheWrite: u.CacheCreationInputTokens}
	case "content_block_start":
		return r.open(e.ContentBlock)
	case "content_block_delta":
		return r.delta(e.Delta)
	case "content_block_stop":
		return r.close()
	case "message_delta":
		r.stop = stopOf(string(e.Delta.StopReason))
		// The figures are totals; a server may leave those out that it told before.
		u := e.Usage
		r.usage.Out = max(r.usage.Out, u.OutputTokens)
		r.usage.In = max(r.usage.In, u.InputTokens)
		r.usage.CacheRead = max(r.usage.CacheRead, u.CacheReadInputTokens)
		r.usage.CacheWrite = max(r.usage.CacheWrite, u.CacheCreationInputTokens)
	case "message_stop":
		r.ended = true
	}
	return nil
}

func (r *reader) open(b anthropic.ContentBlockStartEventContentBlockUnion) error {
	if r.kind != "" {
		return garbled("a block begins inside another")
	}
	r.kind, r.bytes = b.Type, 0
	switch b.Type {
	case "text":
		return r.answer.Text(b.Text)
	case "tool_use":
		r.call, r.given = model.Call{ID: b.ID, Name: b.Name}, []byte(b.JSON.Input.Raw())
	case "thinking":
		r.thought, r.signed = []byte(b.Thinking), []byte(b.Signature)
	case "redacted_thinking":
		raw, err := json.Marshal(redacted{"redacted_thinking", b.Data})
		if err != nil {
			return garbled("a redacted block is not valid UTF-8")
		}
		return r.answer.Opaque(model.Opaque{Backend: backend, Raw: raw})
	}
	return nil
}

func (r *reader) delta(d anthropic.MessageStreamEventUnionDelta) error {
	r.bytes += len(d.PartialJSON) + len(d.Thinking) + len(d.Signature)
	switch {
	case r.kind == "text" && d.Type == "text_delta":
		return r.answer.Text(d.Text)
	case r.kind == "tool_use" && d.Type == "input_json_delta":
		if r.bytes > model.MaxArgs {
			return &model.Failure{Kind: model.Flooded, Cause: errors.New("too much: arguments")}
		}
		r.call.Args = append(r.call.Args, d.PartialJSON...)
	case r.kind == "thinking":
		if r.bytes > model.MaxText {
			return &model.Failure{Kind: model.Flooded, Cause: errors.New("too much: thinking")}
		}
		r.thought, r.signed = append(r.thought, d.Thinking...), append(r.signed, d.Signature...)
	}
	return nil
}

func (r *reader) close() error {
	kind := r.kind
	r.kind = ""
	switch kind {
	case "tool_use":
		if len(r.call.Args) == 0 && string(r.given) != "{}" {
			r.call.Args = r.given
		}
		return r.answer.Call(r.call)
	case "thinking":
		raw, err := json.Marshal(thinking{"thinking", string(r.thought), string(r.signed)})
		if err != nil {
			return garbled("a thinking block is not valid UTF-8")
		}
		return r.answer.Opaque(model.Opaque{Backend: backend, Raw: raw})
	}
	return nil
}

// stopOf maps a stop reason; zero is one that a finished message cannot have.
func stopOf(reason string) model.Stop {
	switch reason {
	case "end_turn", "stop_sequence":
		return model.StopEnd
	case "tool_use":
		return model.StopCalls
	case "max_tokens", "model_context_window_exceeded", "pause_turn":
		return model.StopTruncated // pause_turn belongs to the server's own tools, which are never asked for
	case "refusal":
		return model.StopRefused
	case "":
		return 0
	}
	return model.StopTruncated // a reason of tomorrow: nothing is run on it
}

func garbled(why string) *model.Failure {
	return &model.Failure{Kind: model.Garbled, Words: why}
}

func (r *reader) fail(ctx context.Context, w *model.Wire, err error) (model.Answer, error) {
	partial := r.answer.Partial(r.usage)
	if own := r.answer.Failed(); own != nil {
		return partial, own
	}
	return partial, w.Fault(ctx, err)
}
