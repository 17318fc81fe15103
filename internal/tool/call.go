package tool

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/go-json-experiment/json"

	"atoll/internal/audit"
	"atoll/internal/confirm"
	"atoll/internal/fault"
	"atoll/internal/fence"
	"atoll/internal/model"
	"atoll/internal/rpc"
	"atoll/internal/store"
)

// maxResult is how many characters of a result enter the conversation (H2).
const maxResult = 8000

// fitter is a result that knows what of itself to leave out where it is too long for a conversation.
type fitter interface{ Fit(chars int) any }

// call takes one call through the choke point, in the order of T2, and always answers it.
func (t *Turn) call(ctx context.Context, c *model.Call, index int, truncated bool) (model.Result, Outcome, *attempt) {
	t.notify(Event{Tool: printable(c.Name), State: "started"})
	t.x.cfg.Count("assistant_tool_calls_total")
	a := &attempt{t: t, call: c}
	text, err := a.run(ctx, index, truncated)
	if err == nil {
		t.notify(Event{Tool: c.Name, State: "done"})
		return model.Result{ID: c.ID, Name: c.Name, Text: text}, Outcome{Tool: c.Name, Outcome: "done"}, a
	}
	f := fault.Of(err)
	a.refused(ctx, f)
	out := Outcome{Tool: printable(c.Name), Outcome: "refused", Code: f.Code}
	if a.dispatched {
		out.Outcome = outcomeWord(f, a.unknown)
		if a.unknown {
			out.Code = fault.OutcomeUnknown
		}
	}
	t.notify(Event{Tool: out.Tool, State: "refused", Code: out.Code})
	return model.Result{ID: c.ID, Name: c.Name, Text: a.refusalText(f), IsError: true}, out, a
}

func (t *Turn) notify(e Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cfg.Notify(e)
}

// attempt is one call on its way.
type attempt struct {
	t          *Turn
	call       *model.Call
	tool       *entry
	prepared   *rpc.Prepared
	key        confirm.Key
	keyed      bool
	form       form
	seen       string // what the loop check remembers of it
	preview    rpc.Preview
	ticket     *confirm.Ticket
	dispatched bool
	unknown    bool
}

func (a *attempt) run(ctx context.Context, index int, truncated bool) (fence.Text, error) {
	if ctx.Err() != nil { // the turn was stopped: what is left of its answer is neither read nor asked
		return fence.Text{}, confirm.Refusal(fault.Cancelled, "")
	}
	if err := a.known(index, truncated); err != nil {
		return fence.Text{}, err
	}
	args, err := a.tool.schema.check(a.call.Args)
	if err != nil {
		a.form = malformed
		return fence.Text{}, err
	}
	a.form = wellFormed
	a.note(string(args))
	if a.prepared, err = a.t.x.cfg.Gate.Prepare(ctx, a.t.cfg.Caller, a.tool.door(a.t.cfg.Caller), a.tool.Method, args); err != nil {
		return fence.Text{}, err
	}
	a.key, a.keyed = a.t.x.actionKey(a.tool, a.prepared.Canonical()), true
	if a.tool.Tool.Destructive {
		if err := a.confirmed(ctx); err != nil {
			return fence.Text{}, err
		}
	}
	if err := a.intent(ctx); err != nil {
		return fence.Text{}, err
	}
	return a.dispatch(ctx)
}

// known is the first part of T2: a complete call of a tool that exists, is granted and is offered.
func (a *attempt) known(index int, truncated bool) error {
	x := a.t.x
	switch {
	case truncated:
		return fault.New(fault.Truncated, "the model's answer was cut off; nothing was changed").
			ForModel("NOT executed: your answer was cut off by its length limit. Ask again, shorter.")
	case index >= MaxCalls:
		return fault.New(fault.TooManyCalls, "too many calls at once; the rest was not run").
			ForModel("NOT executed: at most %d calls in one answer.", MaxCalls)
	}
	a.tool = x.named[a.call.Name]
	if a.tool == nil {
		x.cfg.Count("assistant_unknown_tools_total")
		a.form = malformed
		return fault.New(fault.UnknownTool, "the assistant asked for something that does not exist; nothing was changed").
			ForModel("%s", "NOT executed: there is no tool of that name."+x.nearNames(a.call.Name))
	}
	if err := x.offered(a.t.cfg.Caller, a.tool); err != nil {
		a.notGranted(err.Code)
		a.note(string(a.call.Args)) // a refused call repeated is a loop too
		return err
	}
	a.t.touch(a.tool.Category)
	if a.call.Broken != "" {
		a.form = malformed
		return fault.New(fault.InvalidArgs, "the assistant asked wrongly; nothing was changed").
			ForModel("NOT executed: %s. Send the arguments as one JSON object.", printable(a.call.Broken))
	}
	return nil
}

// notGranted counts a refusal for want of a grant and remembers what the host may offer (T8, U4).
func (a *attempt) notGranted(code fault.Code) {
	cat, c := a.tool.Category, a.t.cfg.Caller
	if code != fault.NotGranted || a.t.x.cfg.Grants.Open(c, cat) {
		return
	}
	a.t.mu.Lock()
	untrusted := len(a.t.sources) > 0
	if !untrusted && !slices.Contains(a.t.offers, cat) {
		a.t.offers = append(a.t.offers, cat)
	}
	a.t.mu.Unlock()
	a.t.x.cfg.Refused(c, cat, untrusted)
}

// note remembers the call for the loop check; Run puts reads, which overlap, in the order of the answer.
func (a *attempt) note(args string) {
	if a.seen = a.call.Name + " " + args; a.tool.Tool.Destructive {
		a.t.saw(a.seen)
	}
}

// confirmed asks the person, unless the action was declined already or a standing permission covers it, and then checks
// everything again.
func (a *attempt) confirmed(ctx context.Context) (err error) {
	t := a.t
	if err := t.mayAsk(a.key); err != nil {
		return err
	}
	if a.preview, err = a.prepared.Preview(); err != nil {
		return err
	}
	ask, err := a.question()
	if err != nil {
		return err
	}
	if a.ticket = t.x.cfg.Confirm.Permitted(ask); a.ticket == nil {
		t.mu.Lock()
		t.dialogs++
		t.mu.Unlock()
		ask.Asked = func() { t.notify(Event{Tool: a.tool.Name, State: "waiting"}) }
		a.ticket, err = t.x.cfg.Confirm.Ask(ctx, ask)
		if fault.Is(err, fault.Declined) {
			t.mu.Lock()
			t.declined[a.key], t.declines = true, t.declines+1
			t.mu.Unlock()
		}
		if err != nil {
			return err
		}
	}
	if err := a.again(ctx); err != nil {
		t.x.cfg.Confirm.Drop(context.WithoutCancel(ctx), a.ticket, fault.Of(err).Code)
		return err
	}
	return nil
}

// mayAsk is C5 and the bounds of T10.
func (t *Turn) mayAsk(key confirm.Key) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.declined[key]:
		return fault.New(fault.Declined, "declined before in this turn; nothing was changed").
			ForModel("The person already declined exactly this in this turn. NOT executed and NOT queued. Stop asking.")
	case t.declines >= maxDeclines:
		return fault.New(fault.Declined, "you declined twice, so the assistant may not ask again in this turn").
			ForModel("The person declined twice in this turn. NOT executed and NOT queued. Stop asking and answer with text.")
	case t.dialogs >= maxDialogs:
		return fault.New(fault.TooManyCalls, "the assistant may ask at most %d times in one turn", maxDialogs).
			ForModel("NOT executed: at most %d confirmations in one turn.", maxDialogs)
	}
	return nil
}

// question writes the dialog from the tool's own code and the arguments that will run (C6, C7).
func (a *attempt) question() (confirm.Ask, error) {
	t := a.t
	canonical := a.prepared.Canonical()
	args, err := parseArgs(canonical)
	if err != nil {
		return confirm.Ask{}, err
	}
	untrusted := t.Untrusted()
	warnings := t.warnings(args)
	if a.preview.Warning != "" {
		warnings = slices.Insert(warnings, 0, a.preview.Warning)
	}
	return confirm.Ask{Caller: t.cfg.Caller, Conversation: t.cfg.Conversation, Tool: a.tool.Name, Method: a.tool.Method, Private: a.tool.Category.Private(),
		Summary: a.tool.Sentence(args), Args: canonical, Key: a.key, Preview: a.preview, Untrusted: untrusted,
		Warnings: warnings, MayAllow: a.tool.Allowable && len(untrusted) == 0 && a.preview.Warning == "",
		TurnLeft: t.cfg.Deadline.Sub(t.x.cfg.Clock.Now())}, nil
}

func (t *Turn) warnings(args Args) []string {
	out := []string{}
	for _, name := range slices.Sorted(maps.Keys(args)) {
		raw := args[name]
		var s string
		if raw.Kind() != '"' || json.Unmarshal(raw, &s) != nil {
			continue
		}
		_, notes := fence.Visible(s)
		for _, n := range notes {
			out = append(out, "the argument "+name+": "+n)
		}
		if t.occursOutside(s) {
			out = append(out, "the argument "+name+" also stands in text that somebody else wrote and the assistant has read")
		}
	}
	return out
}

// again repeats the checks after the person's answer: account, role and session alive, mode, grant, tool still offered,
// target unchanged (F-A2, F-A3).
func (a *attempt) again(ctx context.Context) error {
	x := a.t.x
	changed := func(what string) error {
		return fault.New(fault.Changed, "%s, so nothing was run", what).ForModel("NOT executed: %s while the question stood.", what)
	}
	if err := ctx.Err(); err != nil {
		return confirm.Refusal(fault.Cancelled, "")
	}
	now, err := x.cfg.Alive(ctx, a.t.cfg.Caller)
	if err != nil {
		return changed("the session ended")
	}
	if err := x.offered(now, a.tool); err != nil {
		return changed("the permission for it was withdrawn")
	}
	next, err := a.prepared.Again(ctx, now)
	if err != nil {
		return changed("the action is no longer possible")
	}
	preview, err := next.Preview()
	if err != nil || preview != a.preview {
		return changed("the target changed")
	}
	a.prepared = next
	return nil
}

// intent writes the audit before anything runs; for a destructive tool in the transaction that spends the approval.
func (a *attempt) intent(ctx context.Context) error {
	e := a.entry("intent")
	if a.ticket != nil {
		e.Detail = "by " + a.ticket.Via()
		if err := a.t.x.cfg.Confirm.Spend(ctx, a.ticket, e); err != nil {
			return err
		}
		if a.tool.door(a.t.cfg.Caller) == rpc.Asked {
			return a.prepared.Approve(a.ticket) // an error is unreachable: the ticket is for these very bytes
		}
		return nil
	}
	if err := a.t.x.cfg.Audit.Append(ctx, store.Relaxed, e); err != nil {
		return fault.Wrap(err, fault.Unavailable, "the audit record cannot be written, so nothing was run; is the disk full?")
	}
	return nil
}

// dispatch calls the handler, records the outcome and grades the result.
func (a *attempt) dispatch(ctx context.Context) (fence.Text, error) {
	a.dispatched = true
	e := a.entry("outcome")
	result, unknown, err := a.t.x.dispatch(ctx, a.prepared, e)
	a.unknown = unknown
	var raw []byte
	if err == nil {
		if f, ok := result.(fitter); ok {
			result = f.Fit(maxResult)
		}
		raw, err = rpc.Marshal(result)
	}
	if a.tool.door(a.t.cfg.Caller) == rpc.Asked {
		result, raw, err = bare(raw, err)
	}
	e.Outcome = outcomeWord(err, unknown)
	if err != nil {
		e.Code = string(fault.Of(err).Code)
	}
	a.settle(context.WithoutCancel(ctx), unknown, e)
	if a.tool.Tool.Destructive {
		a.changed(e.Outcome, raw)
	}
	if unknown {
		return fence.Text{}, fault.Wrap(err, fault.OutcomeUnknown, "it was started, and its result was not seen; look before you ask again").
			ForModel("Started; the outcome is UNKNOWN. Do not repeat it; look at the state first.")
	}
	if err != nil {
		return fence.Text{}, err
	}
	return a.grade(result, raw), nil
}

func (a *attempt) settle(ctx context.Context, unknown bool, e audit.Entry) {
	var err error
	if a.ticket != nil {
		err = a.t.x.cfg.Confirm.Settle(ctx, a.ticket, unknown, e)
	} else {
		err = a.t.x.cfg.Audit.Append(ctx, store.Relaxed, e)
	}
	if err != nil {
		a.t.x.cfg.Log.Error("an outcome was not written down", "tool", a.tool.Name, "err", err)
	}
}

// changed adds to the host's list and forgets the calls before: a read after a change is not a repetition (T13).
func (a *attempt) changed(outcome string, result []byte) {
	args, _ := parseArgs(a.prepared.Canonical())
	line := a.tool.Sentence(args)
	switch outcome {
	case "done":
		line = a.tool.Done(args) + observed(result)
	case "failed":
		line += ": failed"
	default:
		line += ": started, outcome unknown"
	}
	a.t.mu.Lock()
	defer a.t.mu.Unlock()
	a.t.changes = append(a.t.changes, Change{Tool: a.tool.Name, Summary: line, Outcome: outcome, Private: a.tool.Category.Private()})
	a.t.recent = nil
}

// observed adds the state after the action, where the handler saw it (T9).
func observed(result []byte) string {
	var r struct {
		State    string `json:"state"`
		Health   string `json:"health"`
		Observed *bool  `json:"observed"`
	}
	if json.Unmarshal(result, &r) != nil || r.State == "" {
		return ""
	}
	shown, _ := fence.Visible(r.State)
	switch {
	case r.Health == "unhealthy":
		return ": " + shown + ", unhealthy"
	case r.Health == "starting":
		return ": " + shown + ", its health check has not decided yet"
	case r.Observed != nil && !*r.Observed:
		return ": its state could not be seen"
	}
	return ": " + shown
}

// bareState is all that a peer learns of a change it asked for: a log's end, and what else a row tells people, is not
// its to read.
type bareState struct {
	State    fence.Word `json:"state,omitzero"`
	Health   fence.Word `json:"health,omitzero"`
	Observed *bool      `json:"observed,omitzero"`
}

func bare(raw []byte, failed error) (result any, short []byte, err error) {
	if failed != nil {
		return nil, nil, fault.Wrap(failed, fault.Of(failed).Code, "it was approved and did not work")
	}
	var s bareState
	_ = json.Unmarshal(raw, &s) // what does not fit is left out
	short, err = rpc.Marshal(s)
	return s, short, err
}

// grade caps the result, then fences it unless its row says facts and every value is one (U1, H2).
func (a *attempt) grade(result any, raw []byte) fence.Text {
	body := fence.Cap(string(raw), maxResult)
	var text fence.Text
	if a.prepared.Row().Facts {
		text = fence.Facts(a.tool.Name, result, body)
	} else {
		text = fence.Outside(a.tool.Name, body)
	}
	a.t.readOutside(text)
	return text
}

// refused records a refusal: one audit record for each attempt that was not dispatched.
func (a *attempt) refused(ctx context.Context, f *fault.Error) {
	if f.Cause != nil && f.Code != fault.Cancelled {
		a.t.x.cfg.Log.Warn("a tool call did not succeed", "tool", printable(a.call.Name), "code", f.Code, "cause_type", fmt.Sprintf("%T", f.Cause))
	}
	if a.dispatched {
		return
	}
	a.t.x.cfg.Count("assistant_refusals_total")
	e := a.entry("refused")
	e.Outcome, e.Code = "refused", string(f.Code)
	if err := a.t.x.cfg.Audit.Append(context.WithoutCancel(ctx), store.Relaxed, e); err != nil {
		a.t.x.cfg.Log.Error("a refusal was not written down", "err", err)
	}
}

func (a *attempt) entry(event string) audit.Entry {
	c := a.t.cfg.Caller
	e := audit.Entry{Kind: "tool", Event: event, Caller: c.String(), Session: c.Session(), Subject: printable(a.call.Name),
		Untrusted: len(a.t.Untrusted()) > 0}
	if a.keyed {
		e.ActionKey = a.key.String()
	}
	if a.prepared != nil && !a.tool.Category.Private() {
		e.Args = string(a.prepared.Canonical())
	}
	return e
}

// refusalText is what the model reads. Words around values that are not plain facts are fenced like any outside text.
func (a *attempt) refusalText(f *fault.Error) fence.Text {
	source := "error"
	if a.tool != nil {
		source = a.tool.Name
	}
	words := string(f.Code) + ": " + f.ModelWords()
	if f.Code == fault.Declined {
		return fence.Words(words) // a decline's reason is the person's own
	}
	text := fence.Sentence(source, fence.Cap(words, maxResult), errorValues(f)...)
	a.t.readOutside(text)
	return text
}

// errorValues leaves out the texts that args.go and this file built from constants and printable words of the model.
func errorValues(f *fault.Error) []any {
	switch f.Code {
	case fault.InvalidArgs, fault.UnknownTool, fault.NotGranted, fault.Changed:
		return nil
	}
	return f.Values()
}
