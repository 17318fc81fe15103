package app

import (
	"context"
	"time"

	"atoll/internal/caller"
	"atoll/internal/fault"
	"atoll/internal/fence"
	"atoll/internal/rpc"
)

const (
	defaultLines = 100
	maxLines     = 500
	// actionTimeout bounds a start, stop or restart with what is observed afterwards. It is above the stop timeout of
	// ordinary apps; where an app takes longer, the answer says that the outcome was not observed.
	actionTimeout = 150 * time.Second
	// answerMargin is kept of actionTimeout, so that the answer comes before the gate gives up (T14).
	answerMargin = 10 * time.Second
)

// Status is an app's row on the wire. Every field but Title, Reason, Image and Warning is a fact, checked value by value;
// a foreign app's row is none.
type Status struct {
	Foreign           fence.Foreign `json:"-"`
	App               fence.Word    `json:"app"`
	Title             string        `json:"title,omitempty"`
	Runtime           fence.Word    `json:"runtime"`
	State             fence.Word    `json:"state"`
	Since             time.Time     `json:"since,omitzero"`
	PID               int           `json:"pid,omitzero"`
	ExitCode          *int          `json:"exit_code,omitempty"`
	Signal            fence.Word    `json:"signal,omitempty"`
	ExitUnknown       bool          `json:"exit_unknown,omitzero"`
	Reason            string        `json:"reason,omitempty"`
	Restarts          int           `json:"restarts"`
	CPUPercent        *float64      `json:"cpu_percent,omitempty"`
	MemoryBytes       *uint64       `json:"memory_bytes,omitempty"`
	DefinitionChanged bool          `json:"definition_changed,omitzero"`
	Image             string        `json:"image,omitempty"`
	Health            fence.Word    `json:"health,omitempty"`
	Ports             []PortRow     `json:"ports,omitempty"`
	Services          []Status      `json:"services,omitempty"`
	Warning           string        `json:"warning,omitempty"`
}

// PortRow is a Port on the wire.
type PortRow struct {
	Address   fence.Word `json:"address,omitempty"`
	Port      int        `json:"port"`
	Container int        `json:"container_port,omitzero"`
	Protocol  fence.Word `json:"protocol"`
}

type listResult struct {
	Apps     []Status  `json:"apps"`
	Problems []Problem `json:"problems,omitempty"`
	// What had no room in a conversation: details and services that run as they should, and whole apps that do.
	Brief   bool `json:"brief,omitzero"`
	LeftOut int  `json:"left_out,omitzero"`
}

type appParams struct {
	App string `json:"app" rpc:"required"`
}

type logsParams struct {
	App   string `json:"app" rpc:"required"`
	Lines *int   `json:"lines,omitempty"`
}

type logsResult struct {
	App       fence.Word `json:"app"`
	Lines     []Line     `json:"lines"`
	Truncated bool       `json:"truncated"`
}

// actResult is the state observed after an action (T9). Observed false means that the app had not come to rest in time;
// the row is what was last seen. Log is the end of the log of an app that did not come up.
type actResult struct {
	Status
	Observed bool   `json:"observed"`
	Log      []Line `json:"log,omitempty"`
}

// Methods are the room's rows.
func (r *Room) Methods() []rpc.Method {
	const both = rpc.People | rpc.Tools
	return []rpc.Method{
		rpc.Spec[rpc.None, listResult]{
			Row: rpc.Row{Name: "apps.list", Summary: "Lists the apps on this machine with their state and what they use.",
				Effect: rpc.Read, Doors: both, Role: caller.Viewer, Facts: true},
			Handle: func(ctx context.Context, _ caller.Caller, _ rpc.None) (listResult, error) { return r.list(ctx) },
		}.Method(),
		rpc.Spec[logsParams, logsResult]{
			Row: rpc.Row{Name: "apps.logs", Summary: "Reads the last lines of an app's log.",
				Effect: rpc.Read, Doors: both, Role: caller.Member},
			Resolve: func(ctx context.Context, _ caller.Caller, p *logsParams) error { return r.resolve(ctx, &p.App) },
			Rule:    checkLines,
			Handle:  r.logs,
		}.Method(),
		r.followMethod(),
		r.action("apps.start", "Starts an app that is not running.", start),
		r.action("apps.stop", "Stops a running app and all its processes.", stop),
		r.action("apps.restart", "Stops an app if it is running and starts it again.", restart),
	}
}

func (r *Room) action(name, summary string, v verb) rpc.Method {
	return rpc.Spec[appParams, actResult]{
		Row: rpc.Row{Name: name, Summary: summary, Effect: rpc.Destroy, Doors: rpc.People | rpc.Tools | rpc.Asked,
			Role: caller.Member, Facts: true, Timeout: actionTimeout},
		Resolve: func(ctx context.Context, _ caller.Caller, p *appParams) error { return r.resolve(ctx, &p.App) },
		Rule:    func(ctx context.Context, _ caller.Caller, p appParams) error { return r.admit(ctx, p.App, v) },
		Preview: func(ctx context.Context, _ caller.Caller, p appParams) (rpc.Preview, error) {
			return r.preview(ctx, p.App, v)
		},
		Handle: func(ctx context.Context, _ caller.Caller, p appParams) (actResult, error) {
			return r.act(ctx, p.App, v)
		},
	}.Method()
}

func checkLines(_ context.Context, _ caller.Caller, p logsParams) error {
	if p.Lines != nil && (*p.Lines < 1 || *p.Lines > maxLines) {
		return fault.New(fault.InvalidParams, "lines must be from 1 to %d", maxLines).At("lines")
	}
	return nil
}

func (r *Room) logs(ctx context.Context, _ caller.Caller, p logsParams) (logsResult, error) {
	rt, name, err := r.find(p.App)
	if err != nil {
		return logsResult{}, err
	}
	n := defaultLines
	if p.Lines != nil {
		n = *p.Lines
	}
	log, err := rt.Logs(ctx, name, n)
	if err != nil {
		return logsResult{}, r.told(ctx, rt, name, err)
	}
	return logsResult{App: fence.Word(p.App), Lines: log.Lines, Truncated: log.Truncated}, nil
}

func statusOf(rt Runtime, a App) Status {
	st := Status{
		Foreign: fence.Foreign(a.Foreign), App: fence.Word(idOf(rt, a.Name)), Title: a.Title, Runtime: fence.Word(rt.Name()),
		State: fence.Word(a.State), Since: a.Since, PID: a.PID, ExitCode: a.ExitCode, Signal: fence.Word(a.Signal), ExitUnknown: a.ExitUnknown,
		Reason: a.Reason, Restarts: a.Restarts, CPUPercent: a.CPUPercent, MemoryBytes: a.MemoryBytes,
		DefinitionChanged: a.DefinitionChanged, Image: a.Image, Health: fence.Word(a.Health), Warning: a.Warning,
	}
	for _, p := range a.Ports {
		st.Ports = append(st.Ports, PortRow{fence.Word(p.Address), p.Port, p.Container, fence.Word(p.Protocol)})
	}
	for _, s := range a.Services {
		st.Services = append(st.Services, statusOf(rt, s))
	}
	return st
}
