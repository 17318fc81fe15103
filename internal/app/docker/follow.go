package docker

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/moby/moby/client"

	"atoll/internal/app"
	"atoll/internal/app/docker/compose"
	"atoll/internal/app/docker/logread"
	"atoll/internal/fault"
)

const (
	followAgain = 500 * time.Millisecond // before a log that ended while its container runs is opened again
	lastWords   = 2 * time.Second        // for the last lines of an app that is gone
	overlap     = time.Second            // read again of a log: Podman leaves out lines of the very time it is given
	overlapRead = 200                    // lines read before following, to know which bear the last one's time
)

// Follow implements app.Runtime.
func (e *Engine) Follow(ctx context.Context, name string, n int, emit func(app.Line) error) error {
	changes := e.watchers.Join()
	defer changes.Leave()
	g, from, err := e.locate(ctx, name)
	if err != nil {
		return err
	}
	last, _, read, err := e.tails(ctx, from, g, n, overlapRead)
	if err != nil {
		return err
	}
	for _, l := range last {
		if err := emit(l.line); err != nil {
			return err
		}
	}
	inner, cancel := context.WithCancel(ctx)
	f := &follower{e: e, from: from, lines: make(chan app.Line), failed: make(chan error, 1), followed: map[string]bool{}}
	defer f.wg.Wait()
	defer cancel()
	for _, b := range g.Members {
		f.add(inner, g, b, read[b.ID], false)
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-f.failed:
			return err
		case l := <-f.lines:
			if err := emit(l); err != nil {
				return err
			}
		case <-changes.Changed():
			changes.Take()
			g, now, err := e.find(ctx, name)
			switch {
			case fault.Is(err, fault.NotFound):
				return f.drain(emit, err)
			case err != nil:
				return err
			case now != from:
				return fault.New(fault.Unavailable, "the container engine went away while a log was followed; follow it again")
			}
			for _, b := range g.Members {
				f.add(inner, g, b, logread.Place{}, true)
			}
		}
	}
}

// follower follows the containers of one app, each in a goroutine of its own, and hands on their lines.
type follower struct {
	e        *Engine
	from     api
	lines    chan app.Line
	failed   chan error // buffered; the engine is gone
	followed map[string]bool
	wg       sync.WaitGroup
}

// add follows a container from a place on, unless it is followed already. unread means that it came after the others, so
// that nothing of it was read.
func (f *follower) add(ctx context.Context, g *compose.Group, b *compose.Container, at logread.Place, unread bool) {
	if f.followed[b.ID] {
		return
	}
	f.followed[b.ID] = true
	f.wg.Go(func() {
		if err := f.follow(ctx, g, b, at, unread); err != nil && ctx.Err() == nil {
			select {
			case f.failed <- err:
			default:
			}
		}
	})
}

// drain gives the last lines of an app that is gone, and then the reason.
func (f *follower) drain(emit func(app.Line) error, reason error) error {
	over := make(chan struct{})
	go func() { // ends with the followers, for whom Follow waits
		f.wg.Wait()
		close(over)
	}()
	late := time.NewTimer(lastWords)
	defer late.Stop()
	for {
		select {
		case l := <-f.lines:
			if err := emit(l); err != nil {
				return err
			}
		case <-over:
			return reason
		case <-late.C:
			return reason
		}
	}
}

// follow reads one container's log over all its runs until the container is gone. An error means that the engine is.
func (f *follower) follow(ctx context.Context, g *compose.Group, b *compose.Container, at logread.Place, unread bool) error {
	changes := f.e.watchers.Join()
	defer changes.Leave()
	id, run := b.ID, b.Started // the run whose log was last read
	mute := false
	for {
		if b.Up() && !mute || unread || !b.Started.Equal(run) {
			run, unread, mute = b.Started, false, false
			err := f.read(ctx, g, b, &at)
			switch {
			case ctx.Err() != nil:
				return nil
			case fault.Is(err, fault.Unavailable):
				return err
			case err != nil && !fault.Is(err, fault.NotFound):
				mute = true // until its next run, which may be more open
				f.hand(ctx, app.Line{Stream: noteStream, Service: serviceOf(g, b), Text: fault.Of(err).Public})
			}
			look, cancel := context.WithTimeout(ctx, f.e.lookTime)
			asked := f.e.ask(look, []string{id})
			cancel()
			if asked != nil {
				return f.e.unanswered(ctx, asked)
			}
		}
		now := f.e.box(id)
		if now == nil {
			return nil
		}
		b = now
		if !b.Started.Equal(run) {
			continue
		}
		var again <-chan time.Time
		if b.Up() && !mute {
			again = time.After(followAgain)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-again:
		case <-changes.Changed():
			changes.Take()
			if now := f.e.box(id); now != nil {
				b = now
			} else {
				return nil
			}
		}
	}
}

// read hands on a log from a place on until its stream ends.
func (f *follower) read(ctx context.Context, g *compose.Group, b *compose.Container, at *logread.Place) error {
	since := ""
	if !at.Time.IsZero() {
		since = at.Time.Add(-overlap).Format(time.RFC3339Nano)
	}
	stream, err := f.from.ContainerLogs(ctx, b.ID, client.ContainerLogsOptions{
		ShowStdout: true, ShowStderr: true, Timestamps: true, Follow: true, Since: since,
	})
	if err != nil {
		return f.e.unread(ctx, b, err)
	}
	defer stream.Close()
	r := logread.New(stream, b.TTY, app.MaxLine)
	again := at.Again()
	for {
		raw, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return f.e.unread(ctx, b, err)
		}
		l := raw.Line(app.MaxLine)
		if again.New(l) && !f.hand(ctx, entryOf(g, b, l).line) {
			return ctx.Err()
		}
	}
}

func (f *follower) hand(ctx context.Context, l app.Line) bool {
	select {
	case f.lines <- l:
		return true
	case <-ctx.Done():
		return false
	}
}

// box is a container as it is known now, nil where it is gone.
func (e *Engine) box(id string) *compose.Container {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.all[id]
}
