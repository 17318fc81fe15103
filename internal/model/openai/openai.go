// Package openai is any server that speaks OpenAI's chat completions (Ollama, llama.cpp, vLLM, LM Studio, OpenAI)
// behind model.Client. Weak models stand behind many of them, so what a call means is never guessed here: what is not
// plain is marked Broken. It retries nothing (that is model.Retry's) and takes nothing from the process environment.
package openai

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	goopenai "github.com/sashabaranov/go-openai"

	"atoll/internal/fault"
	"atoll/internal/model"
	"atoll/internal/secret"
)

const (
	// DefaultMaxTokens bounds an answer.
	DefaultMaxTokens = 4096

	backend = "openai"
	// endWait bounds the wait for what may follow a complete answer: the usage, the end of the body.
	endWait = 2 * time.Second
)

// Config is what a Client needs.
type Config struct {
	BaseURL string        // ends in /v1; required
	Model   string        // required
	Key     secret.String // optional
	Idle    time.Duration // the longest silence; zero means model.IdleDefault
}

// Client implements model.Client. It is safe for concurrent use.
type Client struct {
	wire  *model.Wire
	api   *goopenai.Client
	info  model.Info
	newer bool // the server wants max_completion_tokens
}

var _ model.Client = (*Client)(nil)

// New makes a Client; it sends nothing. Its errors say which setting is wrong.
func New(cfg Config) (*Client, error) {
	if cfg.BaseURL == "" {
		return nil, fault.New(fault.NotConfigured, "the openai backend needs the server's address, for example http://127.0.0.1:11434/v1").At("assistant.base_url")
	}
	if cfg.Model == "" {
		return nil, fault.New(fault.NotConfigured, "the openai backend needs the name of a model").At("assistant.model")
	}
	u, host, err := model.Address(cfg.BaseURL)
	if err == nil && !strings.HasSuffix(strings.TrimRight(u.Path, "/"), "/v1") {
		err = errors.New("it must end in /v1")
	}
	if err != nil {
		return nil, fault.Wrap(err, fault.InvalidParams, "assistant.base_url is wrong for openai: %s", err).At("assistant.base_url")
	}
	wire, err := model.NewWire(model.WireConfig{
		Host: u.Host, KeyFile: "secrets/openai-api-key", Key: cfg.Key, Model: cfg.Model, Idle: cfg.Idle,
	})
	if err != nil {
		return nil, err // unreachable: Address leaves no empty host
	}
	return &Client{
		wire: wire, api: library(wire, strings.TrimRight(u.String(), "/"), cfg.Key),
		info:  model.Info{Backend: backend, Model: cfg.Model, Host: host},
		newer: u.Hostname() == "api.openai.com" || reasons(cfg.Model),
	}, nil
}

func library(wire goopenai.HTTPDoer, base string, key secret.String) *goopenai.Client {
	conf := goopenai.DefaultConfig(key.Reveal())
	conf.BaseURL = base
	conf.HTTPClient = doer{wire}
	return goopenai.NewClientWithConfig(conf)
}

// reasons reports whether a model's name is of a family that refuses max_tokens; the library judges by these beginnings.
func reasons(name string) bool {
	for _, family := range []string{"o1", "o3", "o4", "gpt-5", "gpt-6"} {
		if strings.HasPrefix(name, family) {
			return true
		}
	}
	return false
}

// Info implements model.Client.
func (c *Client) Info() model.Info { return c.info }

// Close drops the connections kept open.
func (c *Client) Close() { c.wire.Close() }

// Stream implements model.Client.
func (c *Client) Stream(ctx context.Context, req model.Request, emit func(string) error) (model.Answer, error) {
	if err := req.Check(); err != nil {
		return model.Answer{}, err
	}
	whole, cancel := context.WithCancel(ctx)
	defer cancel()
	r := reader{answer: model.NewAssembly(emit)}
	stream, err := c.api.CreateChatCompletionStream(whole, c.encode(req))
	if err != nil {
		return r.fail(ctx, c.wire, c.sendFailure(err))
	}
	defer func() { // reading the end of the body keeps the connection for the next round
		defer time.AfterFunc(endWait, cancel).Stop()
		_ = stream.Close()
	}()
	for {
		line, err := stream.RecvRaw()
		if err == nil {
			err = r.chunk(line)
		}
		if err != nil && r.stop != 0 && r.answer.Failed() == nil {
			return r.finish(ctx, c.wire) // what went wrong after the end of the answer does not matter
		}
		if err == io.EOF {
			err = &model.Failure{Kind: model.Dropped, Cause: errors.New("the stream ended before the answer did")}
		}
		if err != nil {
			return r.fail(ctx, c.wire, err)
		}
		if r.stop != 0 && !r.waiting {
			r.waiting = true
			defer time.AfterFunc(endWait, cancel).Stop()
		}
	}
}

// sendFailure gives the library's own refusals a kind: it knows models that cannot do what is asked.
func (c *Client) sendFailure(err error) error {
	if _, ok := errors.AsType[*model.Failure](err); ok || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return &model.Failure{Kind: model.Refused, Words: fmt.Sprintf("the model cannot be used this way: %s", err)}
}

// doer is the library's way to the server.
type doer struct{ wire goopenai.HTTPDoer }

// Do implements the library's HTTPDoer.
func (d doer) Do(req *http.Request) (*http.Response, error) {
	resp, err := d.wire.Do(req)
	if err != nil {
		return nil, err
	}
	resp.Body = newLines(resp.Body)
	return resp, nil
}
