package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"atoll/internal/audit"
	"atoll/internal/caller"
	"atoll/internal/confirm"
	"atoll/internal/event"
	"atoll/internal/fault"
	"atoll/internal/fence"
	"atoll/internal/grant"
	"atoll/internal/httpd"
	"atoll/internal/notice"
	"atoll/internal/rpc"
	"atoll/internal/store"
)

// sweepEvery is how often idle limiter keys and old sessions are forgotten (G4).
const sweepEvery = 5 * time.Minute

// Run serves the listeners and keeps the rooms' work going until ctx ends or a part fails for good.
func (n *Node) Run(ctx context.Context, listeners ...net.Listener) error {
	work, stop := context.WithCancel(ctx)
	defer stop()
	var g errgroup.Group
	for _, run := range append(n.runApps(), n.system.Run, n.content.Run, n.accounts.Run, n.mesh.Run, n.runRadio, n.sweep) {
		g.Go(func() error { run(work); return nil })
	}
	err := n.server.Run(ctx, listeners...)
	n.assistant.CancelAll()
	stop()
	return errors.Join(err, g.Wait())
}

func (n *Node) sweep(ctx context.Context) {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			n.gate.Sweep()
		}
	}
}

// Close ends what runs and lets go of the directory. It may be called on a half-built node.
func (n *Node) Close() error {
	var errs []error
	ctx, cancel := context.WithTimeout(context.Background(), stopTime)
	defer cancel()
	if n.mesh != nil {
		errs = append(errs, n.mesh.Close())
	}
	if n.processes != nil {
		n.processes.Close(ctx)
	}
	if n.tools != nil {
		n.tools.Close()
	}
	if n.wallet != nil {
		n.wallet.Close()
	}
	if n.history != nil {
		errs = append(errs, n.history.Close())
	}
	n.bus.Close()
	if n.db != nil {
		errs = append(errs, n.db.Close())
	}
	if n.dir != nil {
		errs = append(errs, n.dir.close())
	}
	return errors.Join(errs...)
}

// Listen opens the configured address and the socket in the data directory.
func (n *Node) Listen(ctx context.Context) ([]net.Listener, error) {
	s := n.cfg.Settings
	if err := httpd.CheckListen(s.Listen, s.TLSCert != "", s.Insecure); err != nil {
		return nil, err
	}
	var lc net.ListenConfig
	tcp, err := lc.Listen(ctx, "tcp", s.Listen)
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %s: %w; is it in use? give another with --listen", s.Listen, err)
	}
	socket, err := httpd.ListenSocket(filepath.Join(n.dir.path, "atoll.sock"))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cannot open the local socket: %w", err), tcp.Close())
	}
	return []net.Listener{tcp, socket}, nil
}

// SetupAddress is the one-time address that creates the owner; ok is false once there is one. The token stands in the
// fragment, so that no server or proxy on the way sees it (G7).
func (n *Node) SetupAddress(ctx context.Context, base string) (address string, ok bool) {
	token, ok := n.accounts.SetupToken(ctx)
	return base + "/#setup=" + token, ok
}

// currentState is what a stream of events begins with, for this caller.
func (n *Node) currentState(ctx context.Context, c caller.Caller) []event.Event {
	var out []event.Event
	if c.May(caller.Member) {
		for _, p := range n.confirms.Waiting(c) {
			out = append(out, event.Event{Name: "confirm", Data: p})
		}
	}
	if c.May(caller.Owner) {
		open, err := n.notices.List(ctx, "", false)
		if err != nil {
			n.cfg.Log.Error("the notices could not be read", "err", err)
		}
		for _, v := range open {
			out = append(out, event.Event{Name: "notice", Data: v})
		}
	}
	apps, err := n.rooms.Call(ctx, c, rpc.People, "apps.list", nil, nil)
	if err == nil {
		out = append(out, event.Event{Name: "apps", Data: apps})
	}
	return out
}

// raise tells the owner. A notice that cannot be kept is at least in the log.
func (n *Node) raise(ctx context.Context, kind notice.Kind, key, what, do string) {
	severity := notice.Warning
	if kind == notice.Configuration {
		severity = notice.Info
	}
	// Raise logs what it could not keep.
	_ = n.notices.Raise(context.WithoutCancel(ctx), notice.Notice{Kind: kind, Severity: severity, Key: key[:min(len(key), 200)], What: what, Do: do})
}

// soft tells the owner that a session chats a lot, before the hard limit refuses it (G4).
func (n *Node) soft(c caller.Caller, row rpc.Row, r rpc.Rate) {
	n.watch.SoftLimit(context.Background(), c.Session(), row.Name, r.Soft, r.Window)
}

// record writes the outcome of a change that a person made by their own click (N2).
func (n *Node) record(ctx context.Context, c caller.Caller, row rpc.Row, err error) {
	e := audit.Entry{Kind: "rpc", Event: "call", Caller: c.String(), Session: c.Session(), Subject: row.Name, Outcome: "done"}
	if err != nil {
		e.Outcome, e.Code = "failed", string(fault.Of(err).Code)
	}
	if err := n.audit.Append(ctx, store.Relaxed, e); err != nil {
		n.cfg.Log.Error("a call was not written down", "method", row.Name, "err", err)
	}
}

// modeChanged ends the standing permissions, and all turns when the assistant was switched off (A4, C11).
func (n *Node) modeChanged(m grant.Mode) {
	n.confirms.DropAllPermissions(context.Background())
	if m == grant.Off {
		n.assistant.CancelAll()
	}
}

// tellLeftover says what a stop or a crash cut off (C2, C3).
func (n *Node) tellLeftover(ctx context.Context, left confirm.Leftover) {
	for _, l := range left.Dropped {
		n.raise(ctx, notice.Operation, "dropped:"+l.ActionKey+l.At.String(), "The node was restarted while a question stood: "+l.Summary+". Nothing ran.", "Ask again if you still want it.")
	}
	for _, l := range left.Unknown {
		n.raise(ctx, notice.Operation, "unknown:"+l.ActionKey+l.At.String(), "The node stopped while this ran, so its outcome is unknown: "+l.Summary+".", "Look at the state before you ask for it again. It is never repeated by itself.")
	}
}

// shown makes a name that somebody else gave fit for a notice.
func shown(s string) string {
	v, _ := fence.Visible(s)
	return v
}

// counterHelp names the counters that are shown from the start.
func counterHelp() map[string]string {
	return map[string]string{
		"assistant_turns_total":         "Turns begun.",
		"assistant_rounds_total":        "Model rounds.",
		"assistant_tool_calls_total":    "Calls of the model that met the choke point.",
		"assistant_refusals_total":      "Calls that were refused.",
		"assistant_unknown_tools_total": "Calls of tools that do not exist.",
		"assistant_loops_total":         "Turns ended because the model repeated itself.",
		"assistant_text_calls_total":    "Answers that held a tool call as text.",
		"assistant_tokens_in_total":     "Tokens sent to the model.",
		"assistant_tokens_out_total":    "Tokens received from it.",
		notice.NotGrantedPlain:          "Refusals for want of a grant, with no outside text in context.",
		notice.NotGrantedUntrusted:      "Refusals for want of a grant, with outside text in context.",
		notice.RoundLimitTurns:          "Turns that ended on the round limit.",
		notice.SoftLimits:               "Callers that crossed a soft limit.",
	}
}
