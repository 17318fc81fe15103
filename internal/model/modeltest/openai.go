package modeltest

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// openaiWire is chat completions, as strict as the strictest of its servers.
type openaiWire struct{}

func (openaiWire) path() string { return "/v1/chat/completions" }
func (openaiWire) key(h http.Header) string {
	return strings.TrimPrefix(h.Get("Authorization"), "Bearer ")
}

type openaiRequest struct {
	Model               string          `json:"model"`
	Stream              bool            `json:"stream"`
	StreamOptions       *streamOptions  `json:"stream_options"`
	MaxTokens           *int            `json:"max_tokens"`
	MaxCompletionTokens *int            `json:"max_completion_tokens"`
	Messages            []openaiMessage `json:"messages"`
	Tools               []openaiTool    `json:"tools"`
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

type openaiTool struct {
	Type     string `json:"type"`
	Function struct {
		Name        string         `json:"name"`
		Description string         `json:"description"`
		Parameters  jsontext.Value `json:"parameters"`
	} `json:"function"`
}

type openaiMessage struct {
	Role       string       `json:"role"`
	Content    *string      `json:"content"`
	ToolCalls  []openaiCall `json:"tool_calls"`
	ToolCallID string       `json:"tool_call_id"`
}

type openaiCall struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

var openaiName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

func (openaiWire) read(h http.Header, body []byte) (request, error) {
	if !strings.HasPrefix(h.Get("Content-Type"), "application/json") {
		return request{}, fmt.Errorf("Content-Type must be application/json")
	}
	var r openaiRequest
	if err := json.Unmarshal(body, &r, json.RejectUnknownMembers(true)); err != nil {
		return request{}, err
	}
	if err := r.check(); err != nil {
		return request{}, err
	}
	out := request{model: r.Model, usage: r.StreamOptions != nil && r.StreamOptions.IncludeUsage}
	for _, t := range r.Tools {
		out.tools = append(out.tools, t.Function.Name)
	}
	for _, m := range r.Messages {
		switch m.Role {
		case "system":
			out.system += *m.Content
		case "assistant":
			out.last = ""
		default:
			out.last += *m.Content + "\n"
		}
	}
	return out, nil
}

func (r openaiRequest) check() error {
	switch {
	case r.Model == "":
		return fmt.Errorf("you must provide a model parameter")
	case !r.Stream:
		return fmt.Errorf("stream: this server streams only")
	case len(r.Messages) == 0:
		return fmt.Errorf("messages: empty array")
	case r.MaxTokens != nil && r.MaxCompletionTokens != nil:
		return fmt.Errorf("setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported")
	}
	for i, t := range r.Tools {
		if t.Type != "function" || !openaiName.MatchString(t.Function.Name) || t.Function.Parameters.Kind() != '{' {
			return fmt.Errorf("tools[%d]: invalid function", i)
		}
	}
	open := map[string]bool{}
	for i, m := range r.Messages {
		if len(open) > 0 && m.Role != "tool" {
			return fmt.Errorf("messages[%d]: an assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'", i)
		}
		empty := m.Content == nil || strings.TrimSpace(*m.Content) == ""
		switch m.Role {
		case "system", "user":
			if empty {
				return fmt.Errorf("messages[%d].content: expected a non-empty string", i)
			}
			if m.Role == "user" && i > 0 && r.Messages[i-1].Role == "user" {
				return fmt.Errorf("messages[%d]: conversation roles must alternate", i)
			}
		case "tool":
			if !open[m.ToolCallID] {
				return fmt.Errorf("messages[%d]: messages with role 'tool' must be a response to a preceding message with 'tool_calls'", i)
			}
			if empty {
				return fmt.Errorf("messages[%d].content: expected a non-empty string", i)
			}
			delete(open, m.ToolCallID)
		case "assistant":
			if empty && len(m.ToolCalls) == 0 {
				return fmt.Errorf("messages[%d]: an assistant message needs content or tool_calls", i)
			}
			for _, c := range m.ToolCalls {
				if err := c.check(); err != nil {
					return fmt.Errorf("messages[%d]: %w", i, err)
				}
				open[c.ID] = true
			}
		default:
			return fmt.Errorf("messages[%d].role: %q is not one of system, user, assistant, tool", i, m.Role)
		}
	}
	if len(open) > 0 || r.Messages[len(r.Messages)-1].Role == "assistant" {
		return fmt.Errorf("messages: the last message is not the user's or a tool's, or a call is open")
	}
	return nil
}

func (c openaiCall) check() error {
	if c.ID == "" || c.Type != "function" || !openaiName.MatchString(c.Function.Name) {
		return fmt.Errorf("invalid tool call %q", c.Function.Name)
	}
	if v := jsontext.Value(c.Function.Arguments); !v.IsValid() || v.Kind() != '{' {
		return fmt.Errorf("the arguments of %q are not a JSON object", c.Function.Name)
	}
	return nil
}

func (openaiWire) fail(w http.ResponseWriter, status int, kind, message string) {
	(&sender{w: w}).errorStatus(status, openaiError(kind, message))
}

func openaiError(kind, message string) object {
	return object{"error": object{"message": message, "type": kind, "param": nil, "code": nil}}
}

// openaiText writes one piece of text by hand: a benchmark's server must cost little beside its client.
func (s *sender) openaiText(model, text string) {
	s.buf.Reset()
	s.buf.WriteString(`data: {"id":"chatcmpl-test","object":"chat.completion.chunk","created":1,"model":`)
	s.buf.Write(quote(model))
	s.buf.WriteString(`,"choices":[{"index":0,"delta":{"content":`)
	s.buf.Write(quote(text))
	s.buf.WriteString("},\"finish_reason\":null}]}\n\n")
	s.raw(s.buf.String())
}

func (openaiWire) stream(s *sender, req request, r Reply) {
	send := func(delta object, finish any) {
		s.event("", object{"id": "chatcmpl-test", "object": "chat.completion.chunk", "created": 1, "model": req.model,
			"choices": []object{{"index": 0, "delta": delta, "finish_reason": finish}}})
	}
	send(object{"role": "assistant", "content": ""}, nil)
	for _, t := range r.Text {
		s.openaiText(req.model, t)
	}
	for i, c := range r.Calls {
		for _, entry := range callDeltas(i, c) {
			send(object{"tool_calls": []any{entry}}, nil)
		}
	}
	if !s.wait(r.Wait) {
		return
	}
	switch {
	case r.Fault == Overload:
		s.event("", openaiError("overloaded_error", "Overloaded"))
		return
	case r.Fault == Endless:
		for s.err == nil {
			s.openaiText(req.model, strings.Repeat("more ", 2000))
		}
		return
	case s.fault(r.Fault):
		return
	}
	send(object{}, stopWord(r, "stop", "tool_calls"))
	if req.usage {
		s.event("", object{"id": "chatcmpl-test", "object": "chat.completion.chunk", "created": 1, "model": req.model, "choices": []any{},
			"usage": object{"prompt_tokens": r.In, "completion_tokens": r.Out, "total_tokens": r.In + r.Out,
				"prompt_tokens_details": object{"cached_tokens": r.CacheIn}}})
	}
	s.raw("data: [DONE]\n\n")
}

// callDeltas is a call as the wire carries it: its head first, then its arguments in pieces.
func callDeltas(i int, c Call) []any {
	if c.Raw != "" {
		return []any{jsontext.Value(c.Raw)}
	}
	function := object{"name": c.Name, "arguments": ""}
	head := object{"index": i, "type": "function", "function": function}
	if c.ID != "" {
		head["id"] = c.ID
	}
	deltas := []any{head}
	for _, p := range pieces(c.Args) {
		deltas = append(deltas, object{"index": i, "function": object{"arguments": p}})
	}
	return deltas
}
