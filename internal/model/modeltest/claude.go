package modeltest

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"regexp"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// claudeWire is the Messages API as of anthropic-version 2026-10-21.
type claudeWire struct{}

func (claudeWire) path() string { return "/v1/messages" }

// key takes either header: the API accepts both, and the official library has moved from the one to the other.
func (claudeWire) key(h http.Header) string {
	if k := h.Get("X-Api-Key"); k != "" {
		return k
	}
	return strings.TrimPrefix(h.Get("Authorization"), "Bearer ")
}

type claudeRequest struct {
	Model        string          `json:"model"`
	MaxTokens    int             `json:"max_tokens"`
	Stream       bool            `json:"stream"`
	System       []claudeBlock   `json:"system"`
	Tools        []claudeTool    `json:"tools"`
	Messages     []claudeMessage `json:"messages"`
	CacheControl jsontext.Value  `json:"cache_control"`
}

type claudeTool struct {
	Name         string         `json:"name"`
	Description  string         `json:"description"`
	InputSchema  jsontext.Value `json:"input_schema"`
	CacheControl jsontext.Value `json:"cache_control"`
}

type claudeMessage struct {
	Role    string        `json:"role"`
	Content []claudeBlock `json:"content"`
}

type claudeBlock struct {
	Type         string         `json:"type"`
	Text         *string        `json:"text"`
	ID           string         `json:"id"`
	Name         string         `json:"name"`
	Input        jsontext.Value `json:"input"`
	ToolUseID    string         `json:"tool_use_id"`
	Content      []claudeBlock  `json:"content"`
	IsError      bool           `json:"is_error"`
	Thinking     *string        `json:"thinking"`
	Signature    string         `json:"signature"`
	Data         string         `json:"data"`
	CacheControl jsontext.Value `json:"cache_control"`
}

var (
	claudeName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,128}$`)
	claudeID   = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)
)

func (w claudeWire) read(h http.Header, body []byte) (request, error) {
	switch {
	case w.key(h) == "":
		return request{}, fmt.Errorf("x-api-key: header is required")
	case h.Get("Anthropic-Version") == "":
		return request{}, fmt.Errorf("anthropic-version: header is required")
	case !strings.HasPrefix(h.Get("Content-Type"), "application/json"):
		return request{}, fmt.Errorf("content-type: must be application/json")
	}
	var r claudeRequest
	if err := json.Unmarshal(body, &r, json.RejectUnknownMembers(true)); err != nil {
		return request{}, err
	}
	if err := r.check(); err != nil {
		return request{}, err
	}
	out := request{model: r.Model}
	for _, b := range r.System {
		out.system += *b.Text
	}
	for _, t := range r.Tools {
		out.tools = append(out.tools, t.Name)
	}
	for _, b := range r.Messages[len(r.Messages)-1].Content {
		if b.Text != nil {
			out.last += *b.Text + "\n"
		}
		for _, c := range b.Content {
			out.last += *c.Text + "\n"
		}
	}
	return out, nil
}

func (r claudeRequest) check() error {
	switch {
	case r.Model == "":
		return fmt.Errorf("model: Field required")
	case r.MaxTokens < 1:
		return fmt.Errorf("max_tokens: Input should be greater than or equal to 1")
	case !r.Stream:
		return fmt.Errorf("stream: this server streams only")
	case len(r.Messages) == 0:
		return fmt.Errorf("messages: at least one message is required")
	case r.Messages[0].Role != "user":
		return fmt.Errorf("messages: first message must use the \"user\" role")
	case r.Messages[len(r.Messages)-1].Role != "user":
		return fmt.Errorf("this model does not support assistant message prefill; the conversation must end with a user message")
	}
	cached := count(r.CacheControl)
	for _, b := range r.System {
		if b.Type != "text" || b.Text == nil || *b.Text == "" {
			return fmt.Errorf("system: text content blocks must be non-empty")
		}
		cached += count(b.CacheControl)
	}
	names := map[string]bool{}
	for i, t := range r.Tools {
		if !claudeName.MatchString(t.Name) {
			return fmt.Errorf("tools.%d.name: String should match pattern", i)
		}
		if names[t.Name] {
			return fmt.Errorf("tools: Tool names must be unique")
		}
		names[t.Name] = true
		var schema struct {
			Type string `json:"type"`
		}
		if err := json.Unmarshal(t.InputSchema, &schema); err != nil || schema.Type != "object" {
			return fmt.Errorf("tools.%d.input_schema.type: Input should be 'object'", i)
		}
		cached += count(t.CacheControl)
	}
	open, ids := []string{}, map[string]bool{}
	for i, m := range r.Messages {
		if m.Role != "user" && m.Role != "assistant" {
			return fmt.Errorf("messages.%d.role: Input should be 'user' or 'assistant'", i)
		}
		if len(m.Content) == 0 {
			return fmt.Errorf("messages.%d: all messages must have non-empty content", i)
		}
		var err error
		if open, err = m.check(i, open, ids); err != nil {
			return err
		}
		for _, b := range m.Content {
			cached += count(b.CacheControl)
		}
	}
	if cached > 4 {
		return fmt.Errorf("a maximum of 4 blocks with cache_control may be provided. Found %d", cached)
	}
	return nil
}

func count(v jsontext.Value) int {
	if len(v) == 0 {
		return 0
	}
	return 1
}

// check holds one message to the rules; open are the calls of the message before it. It returns this message's calls.
func (m claudeMessage) check(i int, open []string, ids map[string]bool) ([]string, error) {
	var calls []string
	answered, other := map[string]bool{}, false
	for j, b := range m.Content {
		at := fmt.Sprintf("messages.%d.content.%d", i, j)
		if err := b.check(at); err != nil {
			return nil, err
		}
		switch {
		case b.Type == "tool_use" && m.Role == "assistant":
			if ids[b.ID] {
				return nil, fmt.Errorf("%s: `tool_use` ids must be unique", at)
			}
			ids[b.ID], calls = true, append(calls, b.ID)
		case b.Type == "tool_result" && m.Role == "user":
			if other {
				return nil, fmt.Errorf("%s: tool_result blocks must come before other content", at)
			}
			answered[b.ToolUseID] = true
			found := false
			for _, id := range open {
				found = found || id == b.ToolUseID
			}
			if !found {
				return nil, fmt.Errorf("%s: unexpected `tool_use_id` found in `tool_result` blocks: %s", at, b.ToolUseID)
			}
		case b.Type == "text":
			other = true
		case (b.Type == "thinking" || b.Type == "redacted_thinking") && m.Role == "assistant":
			if j == len(m.Content)-1 {
				return nil, fmt.Errorf("messages.%d: The final block in an assistant message cannot be `thinking`", i)
			}
		default:
			return nil, fmt.Errorf("%s: a block of type %q may not stand in a message of role %s", at, b.Type, m.Role)
		}
	}
	for _, id := range open {
		if !answered[id] {
			return nil, fmt.Errorf("messages.%d: `tool_use` ids were found without `tool_result` blocks immediately after: %s", i, id)
		}
	}
	return calls, nil
}

func (b claudeBlock) check(at string) error {
	switch b.Type {
	case "text":
		if b.Text == nil || strings.TrimSpace(*b.Text) == "" {
			return fmt.Errorf("%s: text content blocks must contain non-whitespace text", at)
		}
	case "tool_use":
		if !claudeID.MatchString(b.ID) {
			return fmt.Errorf("%s.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'", at)
		}
		if !claudeName.MatchString(b.Name) {
			return fmt.Errorf("%s.tool_use.name: String should match pattern", at)
		}
		if b.Input.Kind() != '{' {
			return fmt.Errorf("%s.tool_use.input: Input should be a valid dictionary", at)
		}
	case "tool_result":
		for _, c := range b.Content {
			if c.Type != "text" || c.Text == nil || *c.Text == "" {
				return fmt.Errorf("%s: text content blocks must be non-empty", at)
			}
		}
	case "thinking":
		if b.Thinking == nil || b.Signature != sign(*b.Thinking) {
			return fmt.Errorf("%s: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified", at)
		}
		if len(b.CacheControl) > 0 {
			return fmt.Errorf("%s: cache_control cannot be set on thinking blocks", at)
		}
	case "redacted_thinking":
		if !strings.HasPrefix(b.Data, sign("")) {
			return fmt.Errorf("%s: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified", at)
		}
	}
	return nil
}

// sign makes the signature of a thinking block, which the server checks when the block comes back.
func sign(thinking string) string {
	sum := sha256.Sum256([]byte("modeltest\x00" + thinking))
	return base64.StdEncoding.EncodeToString(sum[:])
}

func (claudeWire) fail(w http.ResponseWriter, status int, kind, message string) {
	(&sender{w: w}).errorStatus(status, claudeError(kind, message))
}

func claudeError(kind, message string) map[string]any {
	return map[string]any{"type": "error", "request_id": "req_test",
		"error": map[string]any{"type": kind, "message": message}}
}

type object = map[string]any

// claudeDelta writes one delta by hand: a benchmark's server must cost little beside its client.
func (s *sender) claudeDelta(index int, kind, field, value string) {
	s.buf.Reset()
	fmt.Fprintf(&s.buf, "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":%d,\"delta\":{\"type\":\"%s\",\"%s\":%s}}\n\n",
		index, kind, field, quote(value))
	s.raw(s.buf.String())
}

func (claudeWire) stream(s *sender, req request, r Reply) {
	send := func(kind string, fields object) {
		fields["type"] = kind
		s.event(kind, fields)
	}
	usage := object{"input_tokens": r.In - r.CacheIn, "cache_read_input_tokens": r.CacheIn, "cache_creation_input_tokens": 0, "output_tokens": 1}
	send("message_start", object{"message": object{"id": "msg_test", "type": "message", "role": "assistant", "model": req.model,
		"content": []any{}, "stop_reason": nil, "stop_sequence": nil, "usage": usage}})
	s.raw("event: ping\ndata: {\"type\": \"ping\"}\n\n")
	index := 0
	block := func(start object, kind, field string, deltas ...string) {
		send("content_block_start", object{"index": index, "content_block": start})
		for _, d := range deltas {
			s.claudeDelta(index, kind, field, d)
		}
		send("content_block_stop", object{"index": index})
		index++
	}
	if r.Thinking != "" {
		send("content_block_start", object{"index": 0, "content_block": object{"type": "thinking", "thinking": "", "signature": ""}})
		s.claudeDelta(0, "thinking_delta", "thinking", r.Thinking)
		s.claudeDelta(0, "signature_delta", "signature", sign(r.Thinking))
		send("content_block_stop", object{"index": 0})
		index = 1
		block(object{"type": "redacted_thinking", "data": sign("") + "redacted"}, "", "")
	}
	if len(r.Text) > 0 {
		block(object{"type": "text", "text": ""}, "text_delta", "text", r.Text...)
	}
	for i, c := range r.Calls {
		id := c.ID
		if id == "" {
			id = fmt.Sprintf("toolu_%d", i+1)
		}
		block(object{"type": "tool_use", "id": id, "name": c.Name, "input": object{}}, "input_json_delta", "partial_json", pieces(c.Args)...)
	}
	if !s.wait(r.Wait) {
		return
	}
	switch {
	case r.Fault == Overload:
		s.event("error", claudeError("overloaded_error", "Overloaded"))
		return
	case r.Fault == Endless:
		send("content_block_start", object{"index": index, "content_block": object{"type": "text", "text": ""}})
		for s.err == nil {
			s.claudeDelta(index, "text_delta", "text", strings.Repeat("more ", 2000))
		}
		return
	case s.fault(r.Fault):
		return
	}
	stop := stopWord(r, "end_turn", "tool_use")
	usage["output_tokens"] = r.Out
	send("message_delta", object{"delta": object{"stop_reason": stop, "stop_sequence": nil}, "usage": usage})
	send("message_stop", object{})
}
