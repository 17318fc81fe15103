package openai

import (
	stdjson "encoding/json"
	"strings"

	goopenai "github.com/sashabaranov/go-openai"

	"atoll/internal/model"
)

func (c *Client) encode(req model.Request) goopenai.ChatCompletionRequest {
	limit := DefaultMaxTokens
	if req.MaxTokens > 0 {
		limit = req.MaxTokens
	}
	r := goopenai.ChatCompletionRequest{
		Model:         c.info.Model,
		Stream:        true,
		StreamOptions: &goopenai.StreamOptions{IncludeUsage: true},
	}
	if c.newer {
		r.MaxCompletionTokens = limit
	} else {
		r.MaxTokens = limit
	}
	for _, t := range req.Tools {
		r.Tools = append(r.Tools, goopenai.Tool{Type: goopenai.ToolTypeFunction, Function: &goopenai.FunctionDefinition{
			Name: t.Name, Description: t.Description, Parameters: stdjson.RawMessage(t.Schema),
		}})
	}
	if s := req.System.Prompt(); strings.TrimSpace(s) != "" {
		r.Messages = append(r.Messages, goopenai.ChatCompletionMessage{Role: goopenai.ChatMessageRoleSystem, Content: s})
	}
	for _, m := range req.Messages {
		r.Messages = appendMessage(r.Messages, m)
	}
	return r
}

// appendMessage writes results as messages of their own, before the user's words, and joins words of the user that
// became neighbours: many servers' templates demand that the sides alternate.
func appendMessage(all []goopenai.ChatCompletionMessage, m model.Message) []goopenai.ChatCompletionMessage {
	out := goopenai.ChatCompletionMessage{Role: goopenai.ChatMessageRoleUser}
	if m.Role == model.Assistant {
		out.Role = goopenai.ChatMessageRoleAssistant
	}
	var texts []string
	for _, b := range m.Blocks {
		switch {
		case b.Text != nil:
			if s := b.Text.Prompt(); strings.TrimSpace(s) != "" {
				texts = append(texts, s)
			}
		case b.Call != nil:
			out.ToolCalls = append(out.ToolCalls, goopenai.ToolCall{ID: b.Call.ID, Type: goopenai.ToolTypeFunction,
				Function: goopenai.FunctionCall{Name: model.WireName(b.Call.Name), Arguments: string(b.Call.Object())}})
		case b.Result != nil:
			text := b.Result.Text.Prompt()
			if strings.TrimSpace(text) == "" {
				text = "(no output)"
			}
			all = append(all, goopenai.ChatCompletionMessage{Role: goopenai.ChatMessageRoleTool, ToolCallID: b.Result.ID, Content: text})
		}
	}
	out.Content = strings.Join(texts, "\n\n")
	if out.Content == "" && len(out.ToolCalls) == 0 {
		return all
	}
	if n := len(all); n > 0 && out.Role == goopenai.ChatMessageRoleUser && all[n-1].Role == out.Role {
		all[n-1].Content += "\n\n" + out.Content
		return all
	}
	return append(all, out)
}
