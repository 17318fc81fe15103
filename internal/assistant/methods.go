package assistant

import (
	"context"
	"time"

	"atoll/internal/caller"
	"atoll/internal/rpc"
	"atoll/internal/tool"
)

// The limits of assistant.chat (G4): hard and soft a session, and a second count an account, so that a new login does
// not start afresh.
var chatRates = [...]rpc.Rate{
	{Max: 60, Window: 5 * time.Minute, Soft: 30, By: rpc.BySession},
	{Max: 120, Window: 5 * time.Minute, By: rpc.ByAccount},
}

type conversationParams struct {
	Conversation string `json:"conversation" rpc:"required"`
}

type doneResult struct {
	Conversation string `json:"conversation,omitempty"`
}

type toolsResult struct {
	Tools []tool.Description `json:"tools"`
}

func row(name, summary string, effect rpc.Effect) rpc.Row {
	return rpc.Row{Name: name, Summary: summary, Effect: effect, Doors: rpc.People, Role: caller.Member, Quiet: true}
}

// Methods are the rows of the assistant. They have people's door only, and each touches its caller's own history.
func (a *Assistant) Methods() []rpc.Method {
	chat := row("assistant.chat", "Sends one message to the assistant and returns its answer; streams with Accept: text/event-stream.", rpc.Write)
	chat.Rates, chat.Timeout = chatRates[:], turnTime
	return append([]rpc.Method{
		rpc.Spec[chatParams, Answer]{Row: chat, Rule: a.admit, Stream: a.Chat}.Method(),
		rpc.Spec[conversationParams, doneResult]{
			Row: row("assistant.cancel", "Stops the turn that runs in a conversation.", rpc.Write),
			Handle: func(_ context.Context, c caller.Caller, p conversationParams) (doneResult, error) {
				return doneResult{p.Conversation}, a.Cancel(c, p.Conversation)
			},
		}.Method(),
		rpc.Spec[rpc.None, toolsResult]{
			Row: row("assistant.list-tools", "Lists every tool of the assistant, and which are open to it now.", rpc.Read),
			Handle: func(_ context.Context, c caller.Caller, _ rpc.None) (toolsResult, error) {
				return toolsResult{a.cfg.Tools.Describe(c)}, nil
			},
		}.Method(),
	}, a.historyMethods()...)
}
