package docker

import (
	"context"
	"errors"
	"io"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"atoll/internal/app"
	"atoll/internal/app/docker/compose"
	"atoll/internal/app/docker/logread"
	"atoll/internal/app/docker/socket"
	"atoll/internal/fault"
	"atoll/internal/fence"
)

const (
	tailBytes = 1 << 20 // of one look at an app's log
	tailLines = 5000
	logIdle   = 15 * time.Second // for the engine to go on with a log that is not followed
	logsOnce  = 4                // logs of one project read in parallel
)

var errIdle = errors.New("docker: the log fell silent before its end")

// entry is a line and the container it is of.
type entry struct {
	line app.Line
	at   time.Time // of the line, or of the last one before it that had a time
	cut  bool
}

// Logs implements app.Runtime. The logs of several containers are put together by the engine's times.
func (e *Engine) Logs(ctx context.Context, name string, n int) (app.Log, error) {
	g, from, err := e.locate(ctx, name)
	if err != nil {
		return app.Log{}, err
	}
	all, short, _, err := e.tails(ctx, from, g, n, 0)
	if err != nil {
		return app.Log{}, err
	}
	log := app.Log{Lines: make([]app.Line, len(all)), Truncated: short}
	for i, one := range all {
		log.Lines[i] = one.line
		log.Truncated = log.Truncated || one.cut
	}
	return log, nil
}

// tails reads the last n lines of a group. short means that the bound of bytes left room for fewer. Where each
// container's log was read to is for going on from there; then more lines (extra) are read than are given.
func (e *Engine) tails(ctx context.Context, from api, g *compose.Group, n, extra int) (all []entry, short bool, read map[string]logread.Place, err error) {
	n = max(0, min(n, tailLines))
	var (
		wg    sync.WaitGroup
		slots = make(chan struct{}, logsOnce)
		mu    sync.Mutex // guards the results
	)
	read = map[string]logread.Place{}
	for _, b := range g.Members {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			lines, less, at, problem := e.tail(ctx, from, g, b, n, extra)
			mu.Lock()
			defer mu.Unlock()
			read[b.ID] = at
			if problem != nil && (len(g.Members) == 1 || fault.Is(problem, fault.Unavailable) || ctx.Err() != nil) {
				err = errors.Join(err, problem)
				return
			}
			if problem != nil { // one of several must not hide the others
				lines = []entry{{line: app.Line{Stream: noteStream, Service: serviceOf(g, b), Text: fault.Of(problem).Public}}}
			}
			var dropped bool
			all, dropped = latest(append(all, lines...), n)
			short = short || less || dropped
		})
	}
	wg.Wait()
	if err != nil {
		f, _ := errors.AsType[*fault.Error](err)
		return nil, false, nil, f
	}
	return all, short && len(all) < n, read, nil
}

// latest puts lines in the order of their times and keeps what fits of the end.
func latest(all []entry, n int) (kept []entry, short bool) {
	slices.SortStableFunc(all, func(a, b entry) int { return a.at.Compare(b.at) })
	size := 0
	for i, one := range slices.Backward(all) {
		size += len(one.line.Text)
		if short = size > tailBytes && i < len(all)-1; short || len(all)-i > n {
			return slices.Clip(all[i+1:]), short
		}
	}
	return all, false
}

// tail reads the end of one container's log.
func (e *Engine) tail(ctx context.Context, from api, g *compose.Group, b *compose.Container, n, extra int) (lines []entry, short bool, at logread.Place, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	idle := time.AfterFunc(e.logIdle, func() { cancel(errIdle) })
	defer idle.Stop()
	stream, err := from.ContainerLogs(ctx, b.ID, client.ContainerLogsOptions{
		ShowStdout: true, ShowStderr: true, Timestamps: true, Tail: strconv.Itoa(max(n, extra)),
	})
	if err != nil {
		return nil, false, at, e.unread(ctx, b, err)
	}
	defer stream.Close()
	r := logread.New(logread.Awake{Reader: stream, Idle: idle, After: e.logIdle}, b.TTY, app.MaxLine)
	end := logread.NewTail(n, tailBytes)
	for {
		raw, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, false, at, e.unread(ctx, b, err)
		}
		end.Add(raw)
		if extra > 0 {
			at.Move(raw.Line(app.MaxLine))
		}
	}
	read, short := end.Lines(app.MaxLine)
	var last time.Time
	for _, l := range read {
		if l.Time.After(last) {
			last = l.Time
		}
		one := entryOf(g, b, l)
		one.at = last
		lines = append(lines, one)
	}
	return lines, short, at, nil
}

const (
	stdout     = "stdout"
	stderr     = "stderr"
	anyStream  = "output" // of a container with a terminal
	noteStream = "atoll"
)

func entryOf(g *compose.Group, b *compose.Container, l logread.Line) entry {
	one := entry{line: app.Line{Time: l.Time, Stream: fence.Word(stdout), Text: l.Text}, cut: l.Cut}
	switch {
	case b.TTY:
		one.line.Stream = anyStream
	case l.Stderr:
		one.line.Stream = stderr
	}
	one.line.Service = serviceOf(g, b)
	return one
}

// serviceOf names the part of an app that a container is, where the app has several.
func serviceOf(g *compose.Group, b *compose.Container) string {
	if g.Service != "" {
		return ""
	}
	return b.Service
}

// unread says why a log was not read to its end. Unavailable means the engine; anything else is about this log.
func (e *Engine) unread(ctx context.Context, b *compose.Container, err error) error {
	silent := errors.Is(context.Cause(ctx), errIdle)
	switch said := logSaid(err); {
	case ctx.Err() != nil && !silent:
		return fault.Wrap(ctx.Err(), fault.Cancelled, "cancelled before the log was read")
	case errdefs.IsNotFound(err):
		return fault.Wrap(err, fault.NotFound, "%s is gone", named(b)).At("app")
	case said != "" && !silent:
		return fault.Wrap(err, fault.Failed, "the engine gives no log of %s: %s", named(b), quoted(said))
	}
	select {
	case e.doubt <- struct{}{}:
	default:
	}
	return fault.Wrap(err, fault.Unavailable, "the container engine went away or fell silent while the log of %s was read; try again once it answers", named(b))
}

func logSaid(err error) string {
	if said, ok := errors.AsType[logread.EngineError](err); ok {
		return string(said)
	}
	if errors.Is(err, logread.ErrFormat) {
		return "what came is no log"
	}
	return socket.Said(err)
}
