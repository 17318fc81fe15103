package tool

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/sync/errgroup"

	"atoll/internal/caller"
	"atoll/internal/confirm"
	"atoll/internal/fault"
	"atoll/internal/fence"
	"atoll/internal/grant"
	"atoll/internal/model"
)

type rawJSON = jsontext.Value

// Limits of one turn (T6, T10, T13).
const (
	MaxCalls       = 32 // calls in one answer of the model
	maxDialogs     = 5  // questions to the person in one turn
	maxDeclines    = 2  // after these the turn asks no more
	maxInvalid     = 2  // consecutive invalid calls of one name that are forgiven
	maxSame        = 3  // the same call this often is a loop
	maxAlternating = 4  // A B A B is a loop
	maxOutsideKept = 256 << 10
)

// Event tells a client how one call is doing.
type Event struct {
	Tool  string     `json:"tool"`
	State string     `json:"state"` // started, waiting, done, refused
	Code  fault.Code `json:"code,omitempty"`
}

// TurnConfig describes one turn.
type TurnConfig struct {
	Caller       caller.Caller
	Conversation string
	// Outside is the third parties' text that the history brought into the model's context (U3).
	Outside []fence.Text
	// Deadline is when the turn ends.
	Deadline time.Time
	// Notify is told of each call's progress; it is called from one goroutine at a time.
	Notify func(Event)
}

// Turn is the choke point's memory of one turn. Run is called from one goroutine.
type Turn struct {
	x   *Executor
	cfg TurnConfig

	mu       sync.Mutex // guards the rest: neighbouring reads overlap
	outcomes []Outcome
	changes  []Change
	offers   []grant.Category
	touched  []grant.Category
	sources  []string
	outside  strings.Builder
	declined map[confirm.Key]bool
	declines int
	dialogs  int
	invalid  map[string]int
	recent   []string // signatures of the calls since the last change
}

// Begin starts a turn.
func (x *Executor) Begin(cfg TurnConfig) *Turn {
	if cfg.Notify == nil {
		cfg.Notify = func(Event) {}
	}
	t := &Turn{x: x, cfg: cfg, declined: map[confirm.Key]bool{}, invalid: map[string]int{}}
	for _, text := range cfg.Outside {
		t.readOutside(text)
	}
	return t
}

// form says how a call was written (T6).
type form uint8

const (
	notJudged  form = iota // it was refused before its arguments counted
	wellFormed             // its arguments fit the tool's schema
	malformed              // they did not, or there is no such tool
)

// Verdict says how the turn goes on after a round of calls.
type Verdict struct {
	// End is not empty when the turn must end now: the host's words for the person.
	End fence.Text
	// Loop asks for one last answer without tools.
	Loop bool
}

// Run answers every call of one model answer, in order, one result each (T10). Only neighbouring reads overlap. The
// calls already carry the host's identifiers. truncated says that the model's answer was cut off: then nothing is
// dispatched (T12).
func (t *Turn) Run(ctx context.Context, calls []*model.Call, truncated bool) ([]model.Result, Verdict) {
	results := make([]model.Result, len(calls))
	outcomes := make([]Outcome, len(calls))
	attempts := make([]*attempt, len(calls))
	one := func(i int) {
		results[i], outcomes[i], attempts[i] = t.call(ctx, calls[i], i, truncated)
	}
	for i := 0; i < len(calls); {
		if !t.isRead(calls[i]) {
			one(i)
			i++
			continue
		}
		var group errgroup.Group
		group.SetLimit(4)
		first := i
		for ; i < len(calls) && t.isRead(calls[i]); i++ {
			n := i
			group.Go(func() error { one(n); return nil })
		}
		_ = group.Wait() // calls report their failures in their results
		for _, a := range attempts[first:i] {
			if a.seen != "" {
				t.saw(a.seen)
			}
		}
	}
	t.outcomes = append(t.outcomes, outcomes...)
	return results, t.verdict(calls, attempts)
}

// Private says of each call whether its arguments and result must not reach the disk (H3).
func (t *Turn) Private(calls []*model.Call) []bool {
	private := make([]bool, len(calls))
	for i, c := range calls {
		e := t.x.named[c.Name]
		private[i] = e == nil || e.Category.Private() // a near miss of a private tool's name has its arguments
	}
	return private
}

// Reads reports whether none of the calls can change anything.
func (t *Turn) Reads(calls []*model.Call) bool {
	for _, c := range calls {
		if e := t.x.named[c.Name]; e != nil && e.Tool.Destructive {
			return false
		}
	}
	return true
}

// Stop answers every call with a refusal and runs none: the turn has used up its rounds or runs in a loop.
func (t *Turn) Stop(ctx context.Context, calls []*model.Call) []model.Result {
	results := make([]model.Result, len(calls))
	for i, c := range calls {
		f := fault.New(fault.Loop, "the assistant went on asking and was stopped").
			ForModel("NOT executed: no more calls in this turn.")
		a := &attempt{t: t, call: c, tool: t.x.named[c.Name]}
		a.refused(ctx, f)
		t.outcomes = append(t.outcomes, Outcome{Tool: printable(c.Name), Outcome: "refused", Code: f.Code})
		results[i] = model.Result{ID: c.ID, Name: c.Name, Text: a.refusalText(f), IsError: true}
	}
	return results
}

func (t *Turn) isRead(c *model.Call) bool {
	e := t.x.named[c.Name]
	return e != nil && !e.Tool.Destructive
}

// verdict notices what must end: invalid calls over and over (T6) and loops (T13).
func (t *Turn) verdict(calls []*model.Call, attempts []*attempt) Verdict {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, c := range calls {
		switch attempts[i].form {
		case wellFormed:
			t.invalid[c.Name] = 0
		case malformed:
			t.invalid[c.Name]++
		}
		if t.invalid[c.Name] > maxInvalid {
			t.x.cfg.Count("assistant_turns_ended_invalid_total")
			return Verdict{End: fence.Ours("I am sorry: I could not phrase a valid request to the node, so I stopped.")}
		}
	}
	if looping(t.recent) {
		t.x.cfg.Count("assistant_loops_total")
		return Verdict{Loop: true}
	}
	return Verdict{}
}

// saw adds a call to those that the loop check knows.
func (t *Turn) saw(call string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.recent = append(t.recent, call)
}

func looping(sigs []string) bool {
	n := len(sigs)
	same := n >= maxSame
	for i := 1; same && i < maxSame; i++ {
		same = sigs[n-1] == sigs[n-1-i]
	}
	return same || n >= maxAlternating && sigs[n-1] == sigs[n-3] && sigs[n-2] == sigs[n-4] && sigs[n-1] != sigs[n-2]
}

// Untrusted lists the tools whose outside text is in the model's context, the history's included (U3).
func (t *Turn) Untrusted() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.sources)
}

// Outcomes lists what came of each call, in order.
func (t *Turn) Outcomes() []Outcome { return append([]Outcome{}, t.outcomes...) }

// Changes is the host's own list of what was done (T11).
func (t *Turn) Changes() []Change {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]Change{}, t.changes...)
}

// touch notes the category before the call can learn anything of it.
func (t *Turn) touch(cat grant.Category) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !slices.Contains(t.touched, cat) {
		t.touched = append(t.touched, cat)
	}
}

// Touched lists the categories of the calls that were let in so far: what the turn's words can come from.
func (t *Turn) Touched() []grant.Category {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.touched)
}

// Refused lists the closed categories that calls of this turn met: what the host may offer to open (T8). It is empty
// once outside text is in context, also where that came after the refusal.
func (t *Turn) Refused() []grant.Category {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.sources) > 0 {
		return nil
	}
	return slices.Clone(t.offers)
}

func (t *Turn) readOutside(text fence.Text) {
	if !text.IsOutside() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if src := text.Source(); !slices.Contains(t.sources, src) {
		t.sources = append(t.sources, src)
	}
	if room := maxOutsideKept - t.outside.Len(); room > 0 {
		body := strings.ToLower(text.Payload())
		t.outside.WriteString(body[:min(len(body), room)])
		t.outside.WriteByte('\n')
	}
}

// occursOutside reports whether an argument's text also stands in outside text of the turn (C7). Very short ones would
// stand anywhere.
func (t *Turn) occursOutside(arg string) bool {
	if len(arg) < 3 {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	text := t.outside.String()
	if strings.Contains(text, strings.ToLower(arg)) {
		return true
	}
	quoted, err := jsontext.AppendQuote(nil, arg) // results are JSON, which writes some characters otherwise
	return err == nil && strings.Contains(text, strings.ToLower(string(quoted[1:len(quoted)-1])))
}

// squash folds a name so that near misses meet.
func squash(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'A' && r <= 'Z':
			return r + ('a' - 'A')
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		}
		return -1
	}, s)
}
