package assistant

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"atoll/internal/caller"
	"atoll/internal/fault"
	"atoll/internal/fence"
	"atoll/internal/grant"
	"atoll/internal/history"
	"atoll/internal/model"
	"atoll/internal/rpc"
	"atoll/internal/tool"
)

// Usage is what a turn took.
type Usage struct {
	In         int64 `json:"in"`
	Out        int64 `json:"out"`
	CacheRead  int64 `json:"cache_read"`
	CacheWrite int64 `json:"cache_write"`
	// CostUSD is an estimate from the price list; absent where the price is unknown.
	CostUSD *float64 `json:"cost_usd,omitempty"`
}

// Answer is the result of a turn. Everything but Answer is the host's own word.
type Answer struct {
	Conversation string         `json:"conversation"`
	Answer       string         `json:"answer"`
	Rounds       int            `json:"rounds"`
	Tools        []tool.Outcome `json:"tools"`
	Changes      []tool.Change  `json:"changes"`
	Offers       []Offer        `json:"offers,omitempty"`
	Notes        []string       `json:"notes,omitempty"`
	Usage        Usage          `json:"usage"`
}

type startEvent struct {
	Conversation string `json:"conversation"`
}

type textEvent struct {
	Delta string `json:"delta"`
}

type chatParams struct {
	Conversation string `json:"conversation"`
	Message      string `json:"message" rpc:"required"`
}

// admit refuses before anything is opened or written down: such refusals are ordinary answers.
func (a *Assistant) admit(ctx context.Context, _ caller.Caller, p chatParams) error {
	switch {
	case strings.TrimSpace(p.Message) == "":
		return fault.New(fault.InvalidParams, "the message is blank").At("message")
	case len(p.Message) > maxMessage:
		return fault.New(fault.InvalidParams, "the message is longer than %d KiB", maxMessage>>10).At("message")
	case !utf8.ValidString(p.Message):
		return fault.New(fault.InvalidParams, "the message is not valid UTF-8").At("message")
	case a.cfg.Grants.Mode() == grant.Off:
		return fault.New(fault.Off, "the assistant is switched off; its owner can switch it on (atoll mode confirm)")
	}
	if a.cfg.Budget != nil && a.cfg.Model.Info().Host != "" {
		return a.cfg.Budget.Check(ctx)
	}
	return nil
}

// turn is one turn on its way.
type turn struct {
	a       *Assistant
	c       caller.Caller
	at      place
	kept    *history.Turn
	tools   *tool.Turn
	backend model.Client
	first   LocalFirst
	budget  *Budget
	limit   time.Duration
	emit    rpc.Emit
	stop    context.CancelFunc
	barred  *fault.Error // why nothing more may leave for the peer

	rounds int
	usage  model.Usage
	text   strings.Builder // what was said so far, as it was streamed
	last   fence.Text      // the text of the answer that is not yet kept as a round
	notes  []string
}

// Chat runs one turn. It is the handler of assistant.chat.
func (a *Assistant) Chat(ctx context.Context, c caller.Caller, p chatParams, emit rpc.Emit) (Answer, error) {
	t := &turn{a: a, c: c, emit: emit, backend: a.cfg.Model, first: a.cfg.LocalFirst, budget: a.cfg.Budget, limit: turnTime}
	return t.take(ctx, p.Conversation, p.Message)
}

// take claims the conversation and runs the turn in it.
func (t *turn) take(ctx context.Context, conversation, message string) (Answer, error) {
	a, c := t.a, t.c
	ctx, cancel := context.WithTimeout(ctx, t.limit)
	defer cancel()
	t.stop = cancel
	me := &running{cancel: cancel, c: c}
	t.at = place{c.Key(), conversation}
	if conversation != "" {
		if err := a.claim(t.at, me); err != nil {
			return Answer{}, err
		}
		defer a.release(t.at)
	}
	kept, err := a.cfg.History.Begin(ctx, c, conversation, message)
	if err != nil {
		return Answer{}, err
	}
	defer kept.Abandon(ctx)
	t.kept = kept
	if conversation == "" {
		t.at.conversation = kept.Conversation()
		if err := a.claim(t.at, me); err != nil {
			return Answer{}, err
		}
		defer a.release(t.at)
	}
	deadline, _ := ctx.Deadline()
	t.tools = a.cfg.Tools.Begin(tool.TurnConfig{Caller: c, Conversation: t.at.conversation, Outside: kept.Outside(),
		Deadline: a.cfg.Clock.Now().Add(time.Until(deadline)), Notify: func(e tool.Event) { t.send("tool", e) }})
	t.send("start", startEvent{t.at.conversation})
	a.cfg.Count("assistant_turns_total", 1)
	return t.finish(ctx, t.run(ctx))
}

// send passes an event on. A client that is gone takes the turn with it (C9).
func (t *turn) send(event string, data any) {
	if err := t.emit(event, data); err != nil {
		t.stop()
	}
}

// run is the loop: a model round, its calls, again, at most MaxRounds times (T7).
func (t *turn) run(ctx context.Context) error {
	last := false
	for {
		t.rounds++
		answer, err := t.round(ctx)
		t.usage = t.usage.Add(answer.Usage)
		if err != nil {
			t.last = said(answer)
			return err
		}
		calls := answer.Calls()
		if len(calls) == 0 {
			t.last = said(answer)
			return t.ended(answer)
		}
		for i, c := range calls {
			c.ID = fmt.Sprintf("call_%d_%d", t.rounds, i+1) // the host's own, so that a repeated or empty one cannot pair wrongly (T10)
		}
		private := t.tools.Private(calls)
		if err := t.kept.Round(ctx, answer, private, t.tools.Reads(calls)); err != nil {
			return err
		}
		if last || t.rounds == MaxRounds {
			return t.stopped(ctx, calls, private, last)
		}
		results, verdict := t.tools.Run(ctx, calls, answer.Stop == model.StopTruncated)
		t.touch()
		if err := t.kept.Results(ctx, results, private); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if !verdict.End.IsEmpty() {
			t.say(verdict.End)
			return nil
		}
		last = verdict.Loop
	}
}

// round asks the model once and streams what it says.
func (t *turn) round(ctx context.Context) (model.Answer, error) {
	if err := t.mayLeave(); err != nil {
		return model.Answer{}, err
	}
	req := model.Request{System: t.a.system(t.c, t.a.cfg.Clock.Now()), Tools: t.a.cfg.Tools.Offer(t.c), Messages: t.kept.Messages(),
		Now: t.a.cfg.Clock.Now()}
	if t.rounds == 1 && t.first != nil && t.first.Exact(ctx, req) {
		t.backend = t.first
	}
	between := t.text.Len() > 0
	return t.backend.Stream(ctx, req, func(delta string) error {
		if between {
			delta, between = "\n\n"+delta, false
		}
		t.text.WriteString(delta)
		return t.emit("text", textEvent{delta})
	})
}

// said is an answer's text as the model's own words.
func said(answer model.Answer) fence.Text {
	var texts []fence.Text
	for _, b := range answer.Blocks {
		if b.Text != nil {
			texts = append(texts, *b.Text)
		}
	}
	return fence.Join(texts...)
}

// say puts the host's words at the end of the answer.
func (t *turn) say(words fence.Text) {
	delta := words.Payload()
	if t.text.Len() > 0 {
		delta = "\n\n" + delta
	}
	t.text.WriteString(delta)
	t.send("text", textEvent{delta})
	t.last = words
}

// ended looks at an answer without calls: how it ended, and what the person should know about it.
func (t *turn) ended(answer model.Answer) error {
	switch {
	case answer.Stop == model.StopRefused:
		t.notes = append(t.notes, "The model refused to answer.")
	case answer.Stop == model.StopTruncated:
		t.notes = append(t.notes, "The answer was cut off by the model's length limit.")
	}
	if model.CallInText(answer.Text(), t.a.cfg.Tools.Offer(t.c)) != "" {
		t.notes = append(t.notes, "The model wrote a tool call as text; it was not run. This model may not support tool calling.")
		t.a.cfg.Count("assistant_text_calls_total", 1)
		t.a.cfg.TextCalls(context.Background())
	}
	if strings.TrimSpace(t.text.String()) == "" {
		t.say(fence.Ours("The assistant gave no answer."))
	}
	return nil
}

// stopped answers calls that come after the end of what the turn may do.
func (t *turn) stopped(ctx context.Context, calls []*model.Call, private []bool, looped bool) error {
	if err := t.kept.Results(ctx, t.tools.Stop(ctx, calls), private); err != nil {
		return err
	}
	if looped {
		t.say(fence.Ours("I kept asking for the same thing, so I was stopped here."))
		return nil
	}
	t.say(fence.Ours("I was stopped here: this took more steps than one turn may take."))
	who := t.c.Session()
	if t.c.IsPeer() {
		who = t.c.Key()
	}
	t.a.cfg.RoundLimit(ctx, who)
	return nil
}

// finish keeps the end of the turn and makes the result. What was answered is on the disk before the caller sees it.
func (t *turn) finish(ctx context.Context, cause error) (Answer, error) {
	end := history.Ending{Answer: t.last, Usage: history.Usage(t.usage), Outcome: history.Done}
	for _, c := range t.tools.Changes() {
		end.Changes = append(end.Changes, history.Change{Tool: c.Tool, Summary: c.Summary, Outcome: c.Outcome, Private: c.Private})
	}
	micro, priced := t.a.cfg.Price(t.backend.Info(), t.usage)
	end.CostUSD = float64(micro) / 1e6
	f := t.fault(ctx, cause)
	if barred := t.mayLeave(); barred != nil {
		f = fault.Of(barred)
	}
	if f != nil {
		end.Outcome, end.Code = history.Failed, f.Code
		if f.Code == fault.Cancelled {
			end.Outcome = history.Cancelled
		}
	}
	t.account(ctx, micro)
	if err := t.kept.End(ctx, end); err != nil {
		return Answer{}, err
	}
	if f != nil {
		return Answer{}, tellChanges(f, t.tools.Changes())
	}
	out := Answer{Conversation: t.at.conversation, Answer: t.text.String(), Rounds: t.rounds, Tools: t.tools.Outcomes(),
		Changes: t.tools.Changes(), Notes: t.notes, Offers: t.a.offers(t.c, t.at, t.tools.Refused()),
		Usage: Usage{In: t.usage.In, Out: t.usage.Out, CacheRead: t.usage.CacheRead, CacheWrite: t.usage.CacheWrite}}
	if priced {
		out.Usage.CostUSD = &end.CostUSD
	}
	return out, nil
}

// tellChanges adds what was done to the words of an error: a turn that ends badly must not hide that it changed
// something (T11).
func tellChanges(f *fault.Error, changes []tool.Change) *fault.Error {
	if len(changes) == 0 {
		return f
	}
	told := *f
	lines := make([]string, len(changes))
	for i, c := range changes {
		lines[i] = c.Summary
	}
	told.Public += ". Before that: " + strings.Join(lines, "; ")
	return &told
}

func (t *turn) account(ctx context.Context, micro int64) {
	t.a.cfg.Count("assistant_rounds_total", int64(t.rounds))
	t.a.cfg.Count("assistant_tokens_in_total", t.usage.In)
	t.a.cfg.Count("assistant_tokens_out_total", t.usage.Out)
	if t.budget != nil {
		if err := t.budget.Spend(ctx, micro); err != nil {
			t.a.cfg.Log.Error("the cost of a turn was not written down", "err", err)
		}
	}
}

// fault says how a turn that did not end well is told.
func (t *turn) fault(ctx context.Context, cause error) *fault.Error {
	switch {
	case cause == nil:
		return nil
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fault.Wrap(cause, fault.ModelFailed, "the turn took longer than %s and was ended; what was answered is kept", t.limit)
	case ctx.Err() != nil:
		return fault.Wrap(cause, fault.Cancelled, "the turn was cancelled; what was answered is kept")
	}
	return fault.Of(cause)
}
