// Package claude is Anthropic's Messages API behind model.Client, by the official library. It retries nothing (that is
// model.Retry's) and takes nothing from the process environment (B2b).
package claude

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	anthropic "github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/option"

	"atoll/internal/fault"
	"atoll/internal/model"
	"atoll/internal/secret"
)

const (
	// DefaultModel is used where the Config names none.
	DefaultModel = anthropic.ModelClaudeSonnet5_5
	// DefaultMaxTokens bounds an answer; the model's own thinking counts towards it.
	DefaultMaxTokens = 8192

	backend = "claude"
	address = "https://api.anthropic.com"
)

// Config is what a Client needs.
type Config struct {
	Key     secret.String // required
	Model   string        // empty means DefaultModel
	BaseURL string        // without a path; empty means Anthropic's own
	Idle    time.Duration // the longest silence; zero means model.IdleDefault
}

// Client implements model.Client. It is safe for concurrent use.
type Client struct {
	wire     *model.Wire
	messages anthropic.MessageService
	info     model.Info
}

var _ model.Client = (*Client)(nil)

// New makes a Client; it sends nothing. Its errors say which setting is wrong.
func New(cfg Config) (*Client, error) {
	if cfg.Key.Empty() {
		return nil, fault.New(fault.NotConfigured, "the claude backend needs a key: put it into secrets/claude-api-key").At("assistant.backend")
	}
	if cfg.Model == "" {
		cfg.Model = DefaultModel
	}
	if cfg.BaseURL == "" {
		cfg.BaseURL = address
	}
	u, host, err := checkAddress(cfg.BaseURL)
	if err != nil {
		return nil, fault.Wrap(err, fault.InvalidParams, "assistant.base_url is wrong for claude: %s", err).At("assistant.base_url")
	}
	wire, err := model.NewWire(model.WireConfig{
		Host: u.Host, KeyFile: "secrets/claude-api-key", Key: cfg.Key, Model: cfg.Model, Idle: cfg.Idle,
	})
	if err != nil {
		return nil, err // unreachable: checkAddress leaves no empty host
	}
	info := model.Info{Backend: backend, Model: cfg.Model, Host: host}
	return &Client{wire: wire, messages: service(wire, u, cfg.Key), info: info}, nil
}

// service is the library with everything set that it would otherwise look for by itself.
func service(doer option.HTTPClient, u *url.URL, key secret.String) anthropic.MessageService {
	return anthropic.NewClient(
		option.WithoutEnvironmentDefaults(),
		option.WithoutOpenTelemetry(),
		option.WithHTTPClient(doer),
		option.WithMaxRetries(0),
		option.WithBaseURL(u.Scheme+"://"+u.Host),
		option.WithAPIKey(key.Reveal()),
	).Messages
}

func checkAddress(base string) (*url.URL, string, error) {
	u, host, err := model.Address(base)
	switch {
	case err != nil:
		return nil, "", err
	case u.Path != "" && u.Path != "/":
		return nil, "", fmt.Errorf("it must have no path, so without %q", u.Path)
	case u.Scheme == "http" && host != "":
		return nil, "", errors.New("it must begin with https://, or the key would travel in the clear")
	}
	return u, host, nil
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
	params, err := encode(c.info.Model, req)
	if err != nil {
		return model.Answer{}, err
	}
	whole, cancel := context.WithCancel(ctx)
	defer cancel()
	stream := c.messages.NewStreaming(whole, params)
	defer stream.Close()
	r := reader{answer: model.NewAssembly(emit)}
	for stream.Next() {
		if r.done() {
			continue
		}
		if err := r.event(stream.Current()); err != nil {
			return r.fail(ctx, c.wire, err)
		}
		if r.done() { // what is left is the end of the body; reading it keeps the connection for the next round
			defer time.AfterFunc(endWait, cancel).Stop()
		}
	}
	if r.done() {
		return r.answer.Done(r.stop, r.usage), nil
	}
	err = stream.Err()
	if err == nil {
		err = &model.Failure{Kind: model.Dropped, Cause: errors.New("the stream ended before the message did")}
	}
	return r.fail(ctx, c.wire, streamFailure(err))
}

// endWait bounds the wait for the end of a body whose message is complete.
const endWait = time.Second

// streamFailure reads an error event inside a stream that began well. Its status is 200, so its type decides.
func streamFailure(err error) error {
	e, ok := errors.AsType[*anthropic.Error](err)
	if !ok {
		return err
	}
	f := &model.Failure{Kind: model.Refused, Words: e.Message, Cause: errors.New("error event " + string(e.Type()))}
	switch e.Type() {
	case "overloaded_error", "api_error", "timeout_error":
		f.Kind, f.Status = model.Overloaded, 529
	case "rate_limit_error":
		f.Kind, f.Status = model.Overloaded, 429
	case "authentication_error", "permission_error":
		f.Status = 401
	case "billing_error":
		f.Status = 402
	}
	return f
}
