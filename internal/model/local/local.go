// Package local is the model that needs no model and no network: it matches the caller's own sentences against a file
// of templates, asks for the tools that they mean, and words an answer from the results (B1). It reads nothing else:
// what stands in results, in summaries or between fences is shown as data and steers nothing. It is deterministic.
package local

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"

	"atoll/internal/fault"
	"atoll/internal/fence"
	"atoll/internal/model"
	"atoll/internal/model/local/sentence"
)

// Config is what a Client needs.
type Config struct {
	// Names says what exists now and may be named to this caller. It is asked once a round; required.
	Names func(context.Context) Names
	// Peer makes a client for other nodes' questions. Its callers' words are what the host fenced as a peer's, and
	// nothing else; names are used only where a tool of theirs is offered in the request, so to each peer what its own
	// ceiling opens; and no change is asked for that is not offered.
	Peer bool
}

// Names is what exists on the node now and may be named to the caller.
type Names = sentence.Names

// Client implements model.Client. It is immutable and safe for concurrent use.
type Client struct {
	cfg  Config
	lang *sentence.Language
}

var _ model.Client = (*Client)(nil)

// New reads the sentences. It fails on a Config without Names; a damaged sentence file is an error too.
func New(cfg Config) (*Client, error) {
	if cfg.Names == nil {
		return nil, errors.New("local: the Config has no Names")
	}
	lang, err := sentence.Load()
	if err != nil {
		return nil, fmt.Errorf("local: %w", err)
	}
	return &Client{cfg, lang}, nil
}

// Info implements model.Client: everything stays on this machine.
func (c *Client) Info() model.Info { return model.Info{Backend: "local", Model: "sentences"} }

// Exact reports whether the caller's last words are, as a whole and to the letter, a sentence that this backend knows,
// so that a host may let it answer before another backend does. It is the same in every round of a turn.
func (c *Client) Exact(ctx context.Context, req model.Request) bool {
	t := c.readTurn(req.Messages)
	return !slices.ContainsFunc(c.lang.Understand(t.said, c.names(ctx, req)), func(in sentence.Intent) bool { return !in.Exact })
}

// Stream implements model.Client.
func (c *Client) Stream(ctx context.Context, req model.Request, emit func(string) error) (model.Answer, error) {
	if err := ctx.Err(); err != nil {
		return model.Answer{}, ended(err)
	}
	t := c.readTurn(req.Messages)
	names := c.names(ctx, req)
	var plans []plan
	for _, in := range c.lang.Understand(t.said, names) {
		plans = append(plans, plan{Intent: in, req: req, names: names, peer: c.cfg.Peer})
	}
	calls, text := together(plans, t.done)
	if len(calls) > 0 && t.rounds < maxRounds {
		blocks := make([]model.Block, len(calls))
		for i, call := range calls {
			call.ID = fmt.Sprintf("local-%d-%d", t.rounds+1, i+1)
			blocks[i] = model.Block{Call: &call}
		}
		return model.Answer{Blocks: blocks, Stop: model.StopCalls}, nil
	}
	if text == "" {
		text = "I could not finish that." // unreachable unless a plan asks for more rounds than maxRounds
	}
	return speak(ctx, text, emit)
}

// names is what may be named in this request.
func (c *Client) names(ctx context.Context, req model.Request) Names {
	all := c.cfg.Names(ctx)
	if !c.cfg.Peer {
		return all
	}
	var open Names
	for _, t := range req.Tools {
		switch t.Name {
		case "app_list", "app_logs", "app_start", "app_stop", "app_restart":
			open.Apps = all.Apps
		case "settings_set":
			open.Settings = all.Settings
		}
	}
	return open
}

// speak emits the answer word by word.
func speak(ctx context.Context, text string, emit func(string) error) (model.Answer, error) {
	var sent strings.Builder
	answer := func() model.Answer {
		if sent.Len() == 0 {
			return model.Answer{}
		}
		return model.Answer{Blocks: []model.Block{model.TextBlock(fence.Words(sent.String()))}}
	}
	for piece := range strings.SplitAfterSeq(text, " ") {
		if piece == "" {
			continue
		}
		if err := ctx.Err(); err != nil {
			return answer(), ended(err)
		}
		if err := emit(piece); err != nil {
			return answer(), err
		}
		sent.WriteString(piece)
	}
	a := answer()
	a.Stop = model.StopEnd
	return a, nil
}

func ended(cause error) error {
	return fault.Wrap(cause, fault.Cancelled, "the answer was stopped").Doing("model.local")
}

// maxRounds bounds the rounds of calls in a turn; the longest plan takes three.
const maxRounds = 4

// done is one call of this turn with the host's answer to it.
type done struct {
	name  string
	args  callArgs
	text  string
	code  fault.Code // "" for a success
	error bool
}

// callArgs are the arguments of this backend's own calls, read back.
type callArgs struct {
	App   string `json:"app"`
	Lines int    `json:"lines"`
	Path  string `json:"path"`
	Key   string `json:"key"`
	Peer  string `json:"peer"`
}

// turn is what one request says: the caller's messages up to the one to be answered, and what was done since.
type turn struct {
	said   []sentence.Said
	done   []done
	rounds int
}

// readTurn takes the caller's own words out of the messages and pairs results with their calls.
func (c *Client) readTurn(messages []model.Message) turn {
	var t turn
	calls := map[string]*model.Call{}
	for _, m := range messages {
		if m.Role == model.Assistant {
			asked := false
			for _, b := range m.Blocks {
				if b.Call != nil {
					calls[b.Call.ID], asked = b.Call, true
				}
			}
			if asked {
				t.rounds++
			}
			continue
		}
		if s := c.ownWords(m); s.Words != "" {
			t.said, t.done, t.rounds = append(t.said, s), nil, 0
		}
		for _, b := range m.Blocks {
			if b.Result != nil {
				t.done = append(t.done, readResult(b.Result, calls[b.Result.ID]))
			}
		}
	}
	return t
}

// ownWords joins the parts of a message that the caller wrote. A message that holds more than one such part, or text of
// somebody else, is mixed. What a part is, the host said when it made it: marks in a text make none.
func (c *Client) ownWords(m model.Message) sentence.Said {
	var s sentence.Said
	for _, b := range m.Blocks {
		if b.Text == nil {
			continue
		}
		for _, part := range b.Text.Store() {
			own := part.Grade == "words"
			if c.cfg.Peer {
				own = part.Grade == "outside" && part.Label == peerLabel
			}
			switch {
			case own && s.Words == "":
				s.Words = part.Body
			case own && part.Body != "":
				s.Words, s.Mixed = s.Words+"\n"+part.Body, true
			case part.Grade == "outside", part.Grade == "words" && c.cfg.Peer:
				s.Mixed = true
			}
		}
	}
	if strings.TrimSpace(s.Words) == "" {
		s.Words = ""
	}
	return s
}

// peerLabel is the source by which history fences a peer's words.
const peerLabel = "peer"

func readResult(r *model.Result, call *model.Call) done {
	d := done{name: r.Name, text: r.Text.Payload(), error: r.IsError}
	if call != nil {
		_ = json.Unmarshal(call.Args, &d.args) // this backend's own arguments; others read as none
	}
	if r.IsError {
		d.code, d.text = errorCode(d.text)
	}
	return d
}

// errorCode takes the code from the front of a refusal's text.
func errorCode(text string) (fault.Code, string) {
	head, rest, ok := strings.Cut(text, ": ")
	if ok {
		for _, e := range fault.Catalogue() {
			if string(e.Code) == head {
				return e.Code, rest
			}
		}
	}
	return fault.Failed, text
}
