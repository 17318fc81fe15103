package node

import (
	"context"
	"fmt"
	"log/slog"

	"atoll/internal/model"
	"atoll/internal/model/claude"
	"atoll/internal/model/local"
	"atoll/internal/model/openai"
	"atoll/internal/secret"
)

// ConfiguredModel makes the backend that a data directory and the environment configure. names are for the local one, which
// understands nothing else.
func ConfiguredModel(dir string, env []string, names local.Names, log *slog.Logger) (model.Client, error) {
	s, err := LoadSettings(dir, env)
	if err != nil {
		return nil, err
	}
	sentences, err := local.New(local.Config{Names: func(context.Context) local.Names { return names }})
	if err != nil {
		return nil, err
	}
	return buildModel(dir, s, sentences, log)
}

// buildModel makes the configured backend. local is the one for "local" and is made by the caller, who knows the names.
func buildModel(dir string, s Settings, local model.Client, log *slog.Logger) (model.Client, error) {
	key := func(name string) (secret.String, error) {
		text, err := secretFile(dir, name)
		return secret.New(text), err
	}
	switch s.Assistant.Backend {
	case "claude":
		k, err := key("claude-api-key")
		if err != nil {
			return nil, err
		}
		c, err := claude.New(claude.Config{Key: k, Model: s.Assistant.Model, BaseURL: s.Assistant.BaseURL})
		if err != nil {
			return nil, err
		}
		return model.Retry(c, model.RetryConfig{Log: log}), nil
	case "openai":
		k, err := key("openai-api-key")
		if err != nil {
			return nil, err
		}
		c, err := openai.New(openai.Config{Key: k, Model: s.Assistant.Model, BaseURL: s.Assistant.BaseURL})
		if err != nil {
			return nil, err
		}
		return model.Retry(c, model.RetryConfig{Log: log}), nil
	}
	return local, nil
}

// buildPrices lays the operator's prices over the built-in list. A budget for a model of unknown price refuses to start
// (B4): it could not be kept.
func buildPrices(s Settings, c model.Client) (*model.Prices, error) {
	own := map[string]model.Price{}
	for name, p := range s.Assistant.Prices {
		own[name] = model.Price(p)
	}
	prices, err := model.NewPrices(own)
	if err != nil {
		return nil, err
	}
	if s.Assistant.DailyBudgetUSD > 0 {
		if _, known := prices.Cost(c.Info(), model.Usage{}); !known {
			return nil, fmt.Errorf("assistant.daily_budget_usd is set, but the price of model %q is unknown: give it under [assistant.prices.%q] (in, out, cache_read, cache_write)",
				c.Info().Model, c.Info().Model)
		}
	}
	return prices, nil
}
