package openai

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"atoll/internal/model"
)

// chunk is one line of the stream. Fields that servers are known to fill in their own ways are read as they stand.
type chunk struct {
	Choices []struct {
		Index int `json:"index"`
		Delta struct {
			Content   jsontext.Value `json:"content"`
			Refusal   jsontext.Value `json:"refusal"`
			ToolCalls []callDelta    `json:"tool_calls"`
		} `json:"delta"`
		FinishReason jsontext.Value `json:"finish_reason"`
	} `json:"choices"`
	Usage jsontext.Value `json:"usage"`
	Error jsontext.Value `json:"error"`
}

type callDelta struct {
	Index    *int           `json:"index"`
	ID       jsontext.Value `json:"id"`
	Function struct {
		Name      jsontext.Value `json:"name"`
		Arguments jsontext.Value `json:"arguments"`
	} `json:"function"`
}

// lenient is for a stranger's framing only: what a call says is read strictly at the choke point.
func lenient() json.Options {
	return json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
}

type reader struct {
	opts    json.Options
	answer  *model.Assembly
	calls   []*call
	usage   model.Usage
	stop    model.Stop // zero until the answer is complete
	refused bool
	waiting bool
}

// call is one call as its pieces come in.
type call struct {
	index  int
	id     string
	name   string
	args   []byte
	whole  bool // the arguments came as an object
	broken string
}

func (r *reader) chunk(line []byte) error {
	if r.opts == nil {
		r.opts = lenient()
	}
	var c chunk
	if err := json.Unmarshal(line, &c, r.opts); err != nil {
		return &model.Failure{Kind: model.Garbled, Words: "a line that is no chunk of a chat completion"}
	}
	if len(c.Error) > 0 && c.Error.Kind() != 'n' {
		return streamFailure(c.Error)
	}
	r.count(c.Usage)
	if r.stop != 0 {
		return nil
	}
	for _, choice := range c.Choices {
		if choice.Index != 0 {
			continue // only one was asked for
		}
		text, err := contentText(choice.Delta.Content)
		if err == nil {
			err = r.answer.Text(text)
		}
		if err != nil {
			return err
		}
		if refusal := word(choice.Delta.Refusal); refusal != "" {
			r.refused = true
			if err := r.answer.Text(refusal); err != nil {
				return err
			}
		}
		for _, d := range choice.Delta.ToolCalls {
			if err := r.piece(d); err != nil {
				return err
			}
		}
		if reason := word(choice.FinishReason); reason != "" {
			r.stop = stopOf(reason)
			if r.refused {
				r.stop = model.StopRefused
			}
		}
	}
	return nil
}

// contentText reads a content that is a string, nothing, or a list of parts.
func contentText(v jsontext.Value) (string, error) {
	switch v.Kind() {
	case 0, 'n':
		return "", nil
	case '"':
		return word(v), nil
	case '[':
		var parts []struct {
			Text string `json:"text"`
		}
		if json.Unmarshal(v, &parts, lenient()) == nil {
			var b strings.Builder
			for _, p := range parts {
				b.WriteString(p.Text)
			}
			return b.String(), nil
		}
	}
	return "", &model.Failure{Kind: model.Garbled, Words: "a content that is no text"}
}

// word is the text of a JSON string; anything else is "".
func word(v jsontext.Value) string {
	if v.Kind() != '"' {
		return ""
	}
	s, _ := jsontext.AppendUnquote(nil, v) // the error only tells of U+FFFD: the syntax was read before
	return string(s)
}

// piece adds a delta to the call it belongs to: by index; where servers leave that out or give all the same, a new
// identifier or a name begins a new call.
func (r *reader) piece(d callDelta) error {
	id, name := word(d.ID), word(d.Function.Name)
	c := r.find(d.Index, id, name)
	if c == nil {
		if len(r.calls) >= model.MaxCalls {
			return flooded("calls")
		}
		c = &call{index: len(r.calls), id: id}
		if d.Index != nil {
			c.index = *d.Index
		}
		r.calls = append(r.calls, c)
	}
	if c.id == "" {
		c.id = id
	}
	switch {
	case name == "" || name == c.name:
	case c.name == "" && len(c.args) == 0:
		c.name = name
	default:
		c.broken = "the tool's name came in more than one form"
	}
	c.add(d.Function.Arguments)
	if len(c.args) > model.MaxArgs || len(c.name) > model.MaxArgs {
		return flooded("arguments")
	}
	return nil
}

func (r *reader) find(index *int, id, name string) *call {
	for i := len(r.calls) - 1; i >= 0; i-- {
		c := r.calls[i]
		switch {
		case id != "" && c.id != "" && id != c.id:
			continue
		case index != nil && *index == c.index:
			return c
		case index == nil && (id != "" && id == c.id || id == "" && name == ""):
			return c
		}
	}
	return nil
}

// add takes arguments: pieces of a string, as the protocol has it, or the object itself, once.
func (c *call) add(v jsontext.Value) {
	switch v.Kind() {
	case 0, 'n':
	case '"':
		if !v.IsValid(jsontext.AllowDuplicateNames(true)) {
			c.broken = "the arguments are not valid UTF-8"
		}
		more := word(v)
		if c.whole && more != "" {
			c.broken = "the arguments came twice"
		}
		c.args = append(c.args, more...)
	case '{':
		if len(c.args) > 0 {
			c.broken = "the arguments came twice"
		}
		c.whole, c.args = true, append(c.args, v...)
	default:
		c.broken = "the arguments are not a JSON object"
	}
}

// finish turns the pieces into calls. An identifier that is missing or used twice is replaced.
func (r *reader) finish(ctx context.Context, w *model.Wire) (model.Answer, error) {
	seen := map[string]bool{}
	for i, c := range r.calls {
		if c.id == "" || seen[c.id] {
			c.id = fmt.Sprintf("call-%d", i+1)
		}
		seen[c.id] = true
		if err := r.answer.Call(model.Call{ID: c.id, Name: c.name, Args: c.args, Broken: c.broken}); err != nil {
			return r.fail(ctx, w, err)
		}
	}
	return r.answer.Done(r.stop, r.usage), nil
}

func (r *reader) fail(ctx context.Context, w *model.Wire, err error) (model.Answer, error) {
	partial := r.answer.Partial(r.usage)
	if own := r.answer.Failed(); own != nil {
		return partial, own
	}
	return partial, w.Fault(ctx, err)
}

// count reads the usage where the server gives one; prompt_tokens includes what came from the cache.
func (r *reader) count(v jsontext.Value) {
	if v.Kind() != '{' {
		return
	}
	var u struct {
		Prompt     int64 `json:"prompt_tokens"`
		Completion int64 `json:"completion_tokens"`
		Details    struct {
			Cached int64 `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	}
	if json.Unmarshal(v, &u, lenient()) != nil {
		return
	}
	cached := min(max(u.Details.Cached, 0), max(u.Prompt, 0))
	r.usage = model.Usage{In: max(u.Prompt, 0) - cached, Out: max(u.Completion, 0), CacheRead: cached}
}

func stopOf(reason string) model.Stop {
	switch reason {
	case "stop", "eos", "stop_sequence":
		return model.StopEnd
	case "tool_calls", "function_call":
		return model.StopCalls
	case "content_filter":
		return model.StopRefused
	}
	return model.StopTruncated // "length", and reasons of tomorrow: nothing is run on them
}

// streamFailure reads an error object inside a stream that began well. Only what is plainly about the request or the
// account is for good.
func streamFailure(v jsontext.Value) error {
	var e struct {
		Message jsontext.Value `json:"message"`
		Type    jsontext.Value `json:"type"`
		Code    jsontext.Value `json:"code"`
	}
	words := word(v)
	if v.Kind() == '{' && json.Unmarshal(v, &e, lenient()) == nil {
		words = word(e.Message)
	}
	kind := word(e.Type) + " " + strings.Trim(string(e.Code), `"`)
	f := &model.Failure{Kind: model.Overloaded, Status: 500, Cause: errors.New("error in the stream: " + kind)}
	switch {
	case strings.Contains(kind, "insufficient_quota"):
		f.Kind, f.Status = model.Refused, 402
	case strings.Contains(kind, "invalid_request"), strings.Contains(kind, "BadRequest"), strings.Contains(kind, "400"):
		f.Kind, f.Status, f.Words = model.Refused, 400, words
	case strings.Contains(kind, "rate_limit"), strings.Contains(kind, "429"):
		f.Status = 429
	}
	return f
}

func flooded(what string) *model.Failure {
	return &model.Failure{Kind: model.Flooded, Cause: errors.New("too much: " + what)}
}
