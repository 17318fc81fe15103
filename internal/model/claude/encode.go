package claude

import (
	stdjson "encoding/json"
	"fmt"
	"strings"

	anthropic "github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/packages/param"

	"atoll/internal/fault"
	"atoll/internal/model"
)

// encode writes a request in the order and form that the Messages API accepts. The prompt cache is asked to keep three
// prefixes: the tools, the tools with the system prompt, and everything up to the last block.
func encode(name string, req model.Request) (anthropic.MessageNewParams, error) {
	p := anthropic.MessageNewParams{Model: name, MaxTokens: DefaultMaxTokens, CacheControl: anthropic.NewCacheControlEphemeralParam()}
	if req.MaxTokens > 0 {
		p.MaxTokens = int64(req.MaxTokens)
	}
	if s := req.System.Prompt(); strings.TrimSpace(s) != "" {
		p.System = []anthropic.TextBlockParam{{Text: s, CacheControl: anthropic.NewCacheControlEphemeralParam()}}
	}
	for i, t := range req.Tools {
		tool := &anthropic.ToolParam{
			Name:        t.Name,
			Description: param.NewOpt(t.Description),
			InputSchema: param.Override[anthropic.ToolInputSchemaParam](stdjson.RawMessage(t.Schema)),
		}
		if i == len(req.Tools)-1 {
			tool.CacheControl = anthropic.NewCacheControlEphemeralParam()
		}
		p.Tools = append(p.Tools, anthropic.ToolUnionParam{OfTool: tool})
	}
	turns := merge(req.Messages)
	if len(turns) == 0 || turns[0].role != model.User {
		return p, fault.New(fault.Failed, "the first message of the conversation is empty").Doing("model.claude")
	}
	for _, t := range turns {
		if t.role == model.User {
			p.Messages = append(p.Messages, anthropic.NewUserMessage(t.blocks...))
		} else {
			p.Messages = append(p.Messages, anthropic.NewAssistantMessage(t.blocks...))
		}
	}
	return p, nil
}

type turn struct {
	role   model.Role
	blocks []anthropic.ContentBlockParamUnion
}

// merge converts the messages and joins those that became neighbours where an empty one between them fell away.
func merge(messages []model.Message) []turn {
	var turns []turn
	for _, m := range messages {
		blocks := userBlocks(m)
		if m.Role == model.Assistant {
			blocks = assistantBlocks(m)
		}
		if n := len(turns); n > 0 && turns[n-1].role == m.Role {
			turns[n-1].blocks = append(turns[n-1].blocks, blocks...)
		} else if len(blocks) > 0 {
			turns = append(turns, turn{m.Role, blocks})
		}
	}
	return turns
}

// userBlocks puts the results first, as the API demands after calls.
func userBlocks(m model.Message) []anthropic.ContentBlockParamUnion {
	var results, texts []anthropic.ContentBlockParamUnion
	for _, b := range m.Blocks {
		switch {
		case b.Result != nil:
			results = append(results, anthropic.NewToolResultBlock(wireID(b.Result.ID), resultText(b.Result), b.Result.IsError))
		case b.Text != nil:
			texts = appendText(texts, b.Text.Prompt())
		}
	}
	return append(results, texts...)
}

func resultText(r *model.Result) string {
	if s := r.Text.Prompt(); strings.TrimSpace(s) != "" {
		return s
	}
	return "(no output)"
}

func assistantBlocks(m model.Message) []anthropic.ContentBlockParamUnion {
	var blocks []anthropic.ContentBlockParamUnion
	last := 0 // blocks up to the last that is not thinking: a message may not end on thinking
	for _, b := range m.Blocks {
		switch {
		case b.Opaque != nil:
			if b.Opaque.Backend == backend {
				blocks = append(blocks, param.Override[anthropic.ContentBlockParamUnion](stdjson.RawMessage(b.Opaque.Raw)))
			}
			continue
		case b.Call != nil:
			input := stdjson.RawMessage(b.Call.Object())
			blocks = append(blocks, anthropic.NewToolUseBlock(wireID(b.Call.ID), input, model.WireName(b.Call.Name)))
		case b.Text != nil:
			blocks = appendText(blocks, b.Text.Prompt())
		}
		last = len(blocks)
	}
	return blocks[:last]
}

// appendText leaves out a text without a visible character: the API refuses those.
func appendText(blocks []anthropic.ContentBlockParamUnion, s string) []anthropic.ContentBlockParamUnion {
	if strings.TrimSpace(s) == "" {
		return blocks
	}
	return append(blocks, anthropic.NewTextBlock(s))
}

// wireID keeps an identifier if the API accepts it, and otherwise writes it in hexadecimal, so that different ones stay
// different.
func wireID(id string) string {
	if id == model.WireName(id) {
		return id
	}
	return fmt.Sprintf("x%x", id)
}
