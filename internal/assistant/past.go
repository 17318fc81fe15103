package assistant

import (
	"context"
	"strings"

	"atoll/internal/caller"
	"atoll/internal/fault"
	"atoll/internal/history"
	"atoll/internal/rpc"
)

type listParams struct {
	Limit  int    `json:"limit"`
	Before string `json:"before"`
}

type historyParams struct {
	Conversation string `json:"conversation" rpc:"required"`
	Limit        int    `json:"limit"`
	Before       int    `json:"before"`
}

type renameParams struct {
	Conversation string `json:"conversation" rpc:"required"`
	Title        string `json:"title" rpc:"required"`
}

type searchParams struct {
	Query string `json:"query" rpc:"required"`
}

type exportParams struct {
	Conversation string `json:"conversation" rpc:"required"`
	Format       string `json:"format" rpc:"required"`
}

type exportResult struct {
	Format string `json:"format"`
	Text   string `json:"text"`
}

type clearParams struct {
	Conversation string `json:"conversation"`
}

// maxExport bounds an export in bytes: it travels as one answer.
const maxExport = 64 << 20

// historyMethods are the rows over the caller's own past (H7).
func (a *Assistant) historyMethods() []rpc.Method {
	h := a.cfg.History
	return []rpc.Method{
		rpc.Spec[listParams, history.Listing]{
			Row: row("assistant.conversations", "Lists your conversations, the last used first.", rpc.Read),
			Handle: func(ctx context.Context, c caller.Caller, p listParams) (history.Listing, error) {
				return h.Conversations(ctx, c, history.Page{Limit: p.Limit, Before: p.Before})
			},
		}.Method(),
		rpc.Spec[historyParams, history.Transcript]{
			Row: row("assistant.history", "Shows one of your conversations.", rpc.Read),
			Handle: func(ctx context.Context, c caller.Caller, p historyParams) (history.Transcript, error) {
				return h.History(ctx, c, p.Conversation, history.Span{Limit: p.Limit, Before: p.Before})
			},
		}.Method(),
		rpc.Spec[renameParams, doneResult]{
			Row: row("assistant.rename", "Gives a conversation another title.", rpc.Write),
			Handle: func(ctx context.Context, c caller.Caller, p renameParams) (doneResult, error) {
				return doneResult{p.Conversation}, h.Rename(ctx, c, p.Conversation, p.Title)
			},
		}.Method(),
		rpc.Spec[searchParams, history.Finds]{
			Row: row("assistant.search", "Searches what was said in your conversations.", rpc.Read),
			Handle: func(ctx context.Context, c caller.Caller, p searchParams) (history.Finds, error) {
				return h.Search(ctx, c, p.Query)
			},
		}.Method(),
		rpc.Spec[exportParams, exportResult]{
			Row:    row("assistant.export", "Gives one conversation whole, as json or markdown.", rpc.Read),
			Handle: a.export,
		}.Method(),
		rpc.Spec[conversationParams, history.Undone]{
			Row: row("assistant.undo", "Takes the last turn out of a conversation; what was done in it stays done.", rpc.Write),
			Handle: func(ctx context.Context, c caller.Caller, p conversationParams) (history.Undone, error) {
				return h.Undo(ctx, c, p.Conversation)
			},
		}.Method(),
		rpc.Spec[clearParams, doneResult]{
			Row: row("assistant.clear-history", "Deletes one conversation, or all of yours, from the disk.", rpc.Write),
			Handle: func(ctx context.Context, c caller.Caller, p clearParams) (doneResult, error) {
				return doneResult{p.Conversation}, h.Clear(ctx, c, p.Conversation)
			},
		}.Method(),
	}
}

// capped is a builder that refuses to grow beyond maxExport.
type capped struct{ strings.Builder }

func (b *capped) Write(p []byte) (int, error) {
	if b.Len()+len(p) > maxExport {
		return 0, fault.New(fault.TooLarge, "the conversation is too long to be exported in one answer")
	}
	return b.Builder.Write(p)
}

func (a *Assistant) export(ctx context.Context, c caller.Caller, p exportParams) (exportResult, error) {
	var b capped
	if err := a.cfg.History.Export(ctx, c, p.Conversation, p.Format, &b); err != nil {
		return exportResult{}, err
	}
	return exportResult{p.Format, b.String()}, nil
}
