// Package script is a model that says what it was told to: for tests, and of equal rank with the others. It checks its
// requests like a real one, streams, stalls and fails.
package script

import (
	"context"
	"errors"
	"slices"
	"sync"
	"unicode/utf8"

	"atoll/internal/fault"
	"atoll/internal/fence"
	"atoll/internal/model"
)

// Step is one round. Its fields happen in this order: Deltas, Opaque, Calls, Wait, Err.
type Step struct {
	Deltas []string       // emitted one by one
	Opaque []model.Opaque // before the calls
	Calls  []model.Call
	Stop   model.Stop // zero means StopEnd, or StopCalls with calls
	Usage  model.Usage
	Wait   <-chan struct{} // the step goes on when it is closed, or stops with the context
	Err    error           // ends the round; the text before it stays, the calls do not
}

// Config is what a Client plays: Steps one a round, or whatever Func answers. One of them is required.
type Config struct {
	Steps []Step
	Func  func(ctx context.Context, req model.Request) (model.Answer, error)
	Chunk int        // Func's text is emitted in pieces of so many characters; zero means whole blocks
	Info  model.Info // an empty Backend means "script"
}

// Client implements model.Client. It is safe for concurrent use.
type Client struct {
	cfg Config

	mu       sync.Mutex // guards the fields below
	requests []model.Request
	next     int
}

var _ model.Client = (*Client)(nil)

// New makes a Client.
func New(cfg Config) (*Client, error) {
	if (len(cfg.Steps) == 0) == (cfg.Func == nil) {
		return nil, errors.New("script: the Config needs Steps or a Func, and not both")
	}
	if cfg.Info.Backend == "" {
		cfg.Info.Backend = "script"
	}
	return &Client{cfg: cfg}, nil
}

// Info implements model.Client.
func (c *Client) Info() model.Info { return c.cfg.Info }

// Requests lists what was asked so far, in order; the failed ones too.
func (c *Client) Requests() []model.Request {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.requests)
}

// Stream implements model.Client. When the steps are used up it fails for good.
func (c *Client) Stream(ctx context.Context, req model.Request, emit func(string) error) (model.Answer, error) {
	if err := req.Check(); err != nil {
		return model.Answer{}, err
	}
	c.mu.Lock()
	n := c.next
	c.next++
	c.requests = append(c.requests, req)
	c.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return model.Answer{}, model.Cancelled(err)
	}
	p := player{ctx, model.NewAssembly(emit)}
	if c.cfg.Func != nil {
		answer, err := c.cfg.Func(ctx, req)
		return p.answer(answer, err, c.cfg.Chunk)
	}
	if n >= len(c.cfg.Steps) {
		return model.Answer{}, Fail(model.Refused, 0, "the script has no further step")
	}
	return p.step(c.cfg.Steps[n])
}

// Fail makes the error of a backend whose server failed, for a Step's Err.
func Fail(kind model.Kind, status int, words string) *fault.Error {
	return fault.Wrap(&model.Failure{Kind: kind, Status: status, Words: words}, fault.ModelFailed, "the model failed: %s", words)
}

type player struct {
	ctx context.Context
	out *model.Assembly
}

func (p player) step(s Step) (model.Answer, error) {
	var blocks []model.Block
	for _, d := range s.Deltas {
		blocks = append(blocks, model.TextBlock(fence.Words(d)))
	}
	for _, o := range s.Opaque {
		blocks = append(blocks, model.Block{Opaque: &o})
	}
	for _, call := range s.Calls {
		blocks = append(blocks, model.Block{Call: &call})
	}
	if err := p.play(blocks, 0); err != nil {
		return p.out.Partial(s.Usage), p.word(err)
	}
	if s.Wait != nil {
		select {
		case <-s.Wait:
		case <-p.ctx.Done():
			return p.out.Partial(s.Usage), model.Cancelled(p.ctx.Err())
		}
	}
	if s.Err != nil {
		return p.out.Partial(s.Usage), s.Err
	}
	return p.done(s.Stop, s.Usage), nil
}

func (p player) answer(a model.Answer, failed error, chunk int) (model.Answer, error) {
	if err := p.play(a.Blocks, chunk); err != nil {
		return p.out.Partial(a.Usage), p.word(err)
	}
	if ended := p.ctx.Err(); failed != nil && ended != nil {
		failed = model.Cancelled(ended)
	}
	if failed != nil {
		return p.out.Partial(a.Usage), failed
	}
	return p.done(a.Stop, a.Usage), nil
}

func (p player) done(stop model.Stop, usage model.Usage) model.Answer {
	if stop == 0 {
		stop = model.StopEnd
	}
	return p.out.Done(stop, usage)
}

// play passes the blocks on in their order, the text in pieces.
func (p player) play(blocks []model.Block, chunk int) error {
	for _, b := range blocks {
		var err error
		switch {
		case b.Opaque != nil:
			err = p.out.Opaque(*b.Opaque)
		case b.Call != nil:
			err = p.out.Call(*b.Call)
		case b.Text != nil:
			for _, piece := range pieces(b.Text.Payload(), chunk) {
				if err = p.ctx.Err(); err == nil {
					err = p.out.Text(piece)
				}
				if err != nil {
					break
				}
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// word gives an error the form that every backend's has.
func (p player) word(err error) error {
	switch f, ok := errors.AsType[*model.Failure](err); {
	case p.out.Failed() != nil:
		return p.out.Failed()
	case ok:
		return Fail(f.Kind, f.Status, f.Error())
	}
	return model.Cancelled(err)
}

// pieces cuts a text after every n characters.
func pieces(s string, n int) []string {
	if n <= 0 {
		return []string{s}
	}
	var out []string
	for s != "" {
		end := 0
		for range n {
			_, size := utf8.DecodeRuneInString(s[end:])
			end += size
		}
		out, s = append(out, s[:end]), s[end:]
	}
	return out
}
