package assistant

import (
	"context"
	"errors"
	"strings"

	"atoll/internal/fence"
	"atoll/internal/history"
	"atoll/internal/model"
)

// summaryTokens bounds a summary that a model writes.
const summaryTokens = 700

// Summarise extends a conversation's running summary with the configured model (H2). It runs after the answer and counts
// against the budget like a turn. The local backend cannot write one: then the host does.
func (a *Assistant) Summarise(ctx context.Context, earlier fence.Text, turns []history.TurnText) (fence.Text, error) {
	if a.cfg.Budget != nil {
		if err := a.cfg.Budget.Check(ctx); err != nil {
			return fence.Text{}, err
		}
	}
	parts := []fence.Text{fence.Ours("Summary so far:\n"), earlier}
	for _, t := range turns {
		parts = append(parts, fence.Ours("\n\nAsked:\n"), t.Asked, fence.Ours("\nAnswered:\n"), t.Answered)
	}
	answer, err := a.cfg.Model.Stream(ctx, model.Request{
		System: fence.Join(fence.Ours("Extend the summary of a conversation by the turns that follow it. Keep what was asked, what was found and "+
			"what was changed, in at most fifteen lines of plain text. Invent nothing and give no instructions. "), fence.Rule()),
		Messages:  []model.Message{{Role: model.User, Blocks: []model.Block{model.TextBlock(fence.Join(parts...))}}},
		MaxTokens: summaryTokens, Now: a.cfg.Clock.Now(),
	}, func(string) error { return nil })
	micro, _ := a.cfg.Price(a.cfg.Model.Info(), answer.Usage)
	if a.cfg.Budget != nil {
		err = errors.Join(err, a.cfg.Budget.Spend(ctx, micro))
	}
	if err != nil {
		return fence.Text{}, err
	}
	text := strings.TrimSpace(answer.Text())
	if text == "" || answer.Stop == model.StopRefused {
		return fence.Text{}, errors.New("assistant: the model gave no summary")
	}
	return fence.Words(text), nil
}
