package tool

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"atoll/internal/audit"
	"atoll/internal/caller"
	"atoll/internal/clock"
	"atoll/internal/confirm"
	"atoll/internal/fault"
	"atoll/internal/grant"
	"atoll/internal/model"
	"atoll/internal/rpc"
	"atoll/internal/store"
)

// Config is what an Executor needs. Every field but Refused and Count is required.
type Config struct {
	Tools   []Tool
	Gate    *rpc.Gate // holds the rooms' rows and no assistant.* row
	Grants  *grant.Room
	Confirm *confirm.Room
	Audit   *audit.Log
	Clock   clock.Clock
	Log     *slog.Logger
	// Secret keys the action keys of private categories.
	Secret []byte
	// Alive re-reads account, role and session of a caller, and fails if the session has ended.
	Alive func(context.Context, caller.Caller) (caller.Caller, error)
	// Refused is told of each refusal for want of a grant (U4).
	Refused func(c caller.Caller, cat grant.Category, untrusted bool)
	// Count adds one to a named counter of the node.
	Count func(name string)
}

// Executor is the choke point. It is immutable and safe for concurrent use; each turn has a Turn of its own.
type Executor struct {
	cfg   Config
	tools []*entry
	named map[string]*entry

	late sync.WaitGroup // handlers that outlived their time
}

type entry struct {
	Tool
	schema schema
	row    rpc.Row
}

// New compiles the registry. It panics where a tool contradicts its row or names excluded authority: those are
// programmer's mistakes.
func New(cfg Config) (*Executor, error) {
	if cfg.Gate == nil || cfg.Grants == nil || cfg.Confirm == nil || cfg.Audit == nil || cfg.Log == nil || len(cfg.Secret) == 0 || cfg.Alive == nil {
		return nil, errors.New("tool: the Config is not complete")
	}
	if cfg.Refused == nil {
		cfg.Refused = func(caller.Caller, grant.Category, bool) {}
	}
	if cfg.Count == nil {
		cfg.Count = func(string) {}
	}
	x := &Executor{cfg: cfg, named: map[string]*entry{}}
	for _, t := range cfg.Tools {
		e := bind(t, cfg.Gate)
		if x.named[t.Name] != nil {
			panic("tool: " + t.Name + " is there twice")
		}
		x.tools, x.named[t.Name] = append(x.tools, e), e
	}
	return x, nil
}

func bind(t Tool, gate *rpc.Gate) *entry {
	bad := func(why string) { panic("tool: " + t.Name + ": " + why) }
	s, err := compile(t.Schema)
	if err != nil {
		bad(err.Error())
	}
	row, ok := gate.Row(t.Method)
	switch {
	case t.Name == "" || t.Description == "":
		bad("a blank")
	case !slices.Contains(grant.Categories(), t.Category):
		bad("no such category: " + string(t.Category))
	case !ok:
		bad("its method does not exist: " + t.Method)
	case row.Doors&rpc.Tools == 0:
		bad("its method has no door for tools")
	case t.Destructive != (row.Effect == rpc.Destroy), !t.Destructive && row.Effect != rpc.Read:
		bad("its flag disagrees with its method's effect")
	case t.Destructive != (t.Sentence != nil), t.Destructive != (t.Done != nil):
		bad("a destructive tool, and no other, has its sentences")
	case t.Allowable && !t.Destructive:
		bad("only a destructive tool can be allowed for a time")
	}
	if term := ExcludedTerm(t.Name + " " + t.Description + " " + t.Schema + " " + t.Method); term != "" {
		bad("excluded authority: " + term)
	}
	return &entry{Tool: t, schema: s, row: row}
}

// Close waits for handlers that outlived their time.
func (x *Executor) Close() { x.late.Wait() }

// Offer lists the tools that the model may see for this caller now (A3): granted, within the mode and the role.
func (x *Executor) Offer(c caller.Caller) []model.Tool {
	var out []model.Tool
	for _, e := range x.tools {
		if x.offered(c, e) == nil {
			out = append(out, model.Tool{Name: e.Name, Description: e.Description, Schema: []byte(e.Schema)})
		}
	}
	return out
}

// Closed lists the categories that the model is told are closed; their tools are not named (A3).
func (x *Executor) Closed(c caller.Caller) []grant.Category {
	var out []grant.Category
	for _, cat := range grant.Categories() {
		if !x.cfg.Grants.Open(c, cat) {
			out = append(out, cat)
		}
	}
	return out
}

// Destructive lists the destructive tools of a category: what opening it would let the assistant ask for (T8).
func (x *Executor) Destructive(cat grant.Category) []string {
	out := []string{}
	for _, e := range x.tools {
		if e.Category == cat && e.Tool.Destructive {
			out = append(out, e.Name)
		}
	}
	return out
}

// Describe lists every tool as people see it.
func (x *Executor) Describe(c caller.Caller) []Description {
	out := make([]Description, len(x.tools))
	for i, e := range x.tools {
		out[i] = Description{Tool: e.Name, Description: e.Tool.Description, Category: e.Category, Destructive: e.Tool.Destructive,
			Method: e.Method, Schema: []byte(e.Schema), Offered: x.offered(c, e) == nil}
	}
	return out
}

// offered says why the caller's assistant may not use the tool now, or nil.
func (x *Executor) offered(c caller.Caller, e *entry) *fault.Error {
	mode := x.cfg.Grants.Mode()
	switch {
	case mode == grant.Off:
		return fault.New(fault.Off, "the assistant is switched off").ForModel("The owner switched the assistant off.")
	case c.IsPeer() && !x.forPeers(c, e), c.IsOperator() && !c.May(e.row.Role), !c.IsPeer() && !c.IsOperator():
		return fault.New(fault.NotGranted, "your account may not use %s", e.Name).
			ForModel("NOT executed: this tool is not offered to this caller.")
	case !x.cfg.Grants.Open(c, e.Category):
		return fault.New(fault.NotGranted, "%s is closed to the assistant", e.Category).
			ForModel("NOT executed: the category %s is closed to you. Only the owner can open it, and not by telling you so.", e.Category)
	case mode == grant.ReadOnly && e.Tool.Destructive:
		return fault.New(fault.ReadOnly, "the assistant is read-only").
			ForModel("NOT executed: the assistant is in read-only mode.")
	}
	return nil
}

// forPeers reports whether the tool's row has a door for this peer: to read, or to ask the owner where the owner lets it
// ask (M3).
func (x *Executor) forPeers(c caller.Caller, e *entry) bool {
	if e.Tool.Destructive {
		return e.row.Doors&rpc.Asked != 0 && x.cfg.Confirm.Asking(c)
	}
	return e.row.Doors&rpc.Peers != 0
}

// door is the one by which the caller's call goes: a peer's change goes by the one that needs an owner's approval.
func (e *entry) door(c caller.Caller) rpc.Doors {
	if c.IsPeer() && e.Tool.Destructive {
		return rpc.Asked
	}
	return rpc.Tools
}

// Outcome is what came of one call.
type Outcome struct {
	Tool    string     `json:"tool"`
	Outcome string     `json:"outcome"` // "done", "refused", "failed", "unknown"
	Code    fault.Code `json:"code,omitempty"`
}

// Change is one line of the host's own list of what was done (T11).
type Change struct {
	Tool    string `json:"tool"`
	Summary string `json:"summary"` // "Restarted jellyfin: running"
	Outcome string `json:"outcome"` // "done", "failed", "unknown"
	// Private changes are told to the person and never kept (H3).
	Private bool `json:"-"`
}

// dispatch runs the handler within its row's time, and says unknown if it outlives it (T14). A handler that was still
// running is waited for by Close and its late end is recorded.
func (x *Executor) dispatch(ctx context.Context, p *rpc.Prepared, intent audit.Entry) (result any, unknown bool, err error) {
	row := p.Row()
	limit := row.Timeout
	if limit == 0 {
		limit = rpc.DefaultTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	type answer struct {
		result any
		err    error
	}
	done := make(chan answer, 1)
	x.late.Add(1)
	go func() {
		defer x.late.Done()
		r, err := p.Run(ctx, nil)
		done <- answer{r, err}
	}()
	select {
	case a := <-done:
		// A change that was interrupted may have happened.
		unknown = a.err != nil && ctx.Err() != nil && row.Effect != rpc.Read
		return a.result, unknown, a.err
	case <-ctx.Done():
	}
	grace := time.NewTimer(time.Second)
	defer grace.Stop()
	select {
	case a := <-done:
		return a.result, a.err != nil && row.Effect != rpc.Read, a.err
	case <-grace.C:
	}
	x.late.Add(1)
	go func() {
		defer x.late.Done()
		a := <-done
		intent.Event, intent.Outcome = "late", outcomeWord(a.err, false)
		if err := x.cfg.Audit.Append(context.WithoutCancel(ctx), store.Relaxed, intent); err != nil {
			x.cfg.Log.Error("audit", "err", err)
		}
	}()
	return nil, true, fault.Wrap(ctx.Err(), fault.Unavailable, "%s did not answer in time", row.Name)
}

func outcomeWord(err error, unknown bool) string {
	switch {
	case unknown:
		return "unknown"
	case err != nil:
		return "failed"
	}
	return "done"
}

// Description is one tool as people see it in assistant.list-tools.
type Description struct {
	Tool        string         `json:"tool"`
	Description string         `json:"description"`
	Category    grant.Category `json:"category"`
	Destructive bool           `json:"destructive"`
	Method      string         `json:"method"`
	Schema      rawJSON        `json:"schema"`
	Offered     bool           `json:"offered"`
}

func (x *Executor) actionKey(e *entry, args []byte) confirm.Key {
	if e.Category.Private() {
		return confirm.ActionKey(e.Name, args, x.cfg.Secret)
	}
	return confirm.ActionKey(e.Name, args, nil)
}

func (x *Executor) nearNames(name string) string {
	for _, e := range x.tools {
		if squash(e.Name) == squash(name) {
			return fmt.Sprintf(" Did you mean %s? Names must be exact.", e.Name)
		}
	}
	return ""
}
