package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"atoll/internal/caller"
	"atoll/internal/fault"
	"atoll/internal/fence"
	"atoll/internal/rpc"
)

// The bounds of following a log. A program that writes faster than a person reads is shown in part.
const (
	followTime    = time.Hour        // then the call ends, and a client asks again
	followMargin  = 10 * time.Second // of the row's time, so that the answer comes before it is over
	maxFollowing  = 8                // logs that one account follows at once
	maxLineRate   = 500              // lines in a second
	maxBytesRate  = 512 << 10        // of text in a second
	followDefault = 20               // lines from before, where no number is given
)

type followParams struct {
	App   string `json:"app" rpc:"required"`
	Lines *int   `json:"lines,omitempty"` // from before; zero is none
}

// followResult ends a followed log: Lines were given, LeftOut were too many for a second.
type followResult struct {
	App     fence.Word `json:"app"`
	Lines   int        `json:"lines"`
	LeftOut int        `json:"left_out,omitzero"`
}

// followStart is the event start, so that a client knows at once that the log is followed and whose it is.
type followStart struct {
	App fence.Word `json:"app"`
}

func (r *Room) followMethod() rpc.Method {
	return rpc.Spec[followParams, followResult]{
		Row: rpc.Row{Name: "apps.follow", Summary: "Streams an app's log as it is written, until the client goes or an hour is over.",
			Effect: rpc.Read, Doors: rpc.People, Role: caller.Member, Timeout: followTime + followMargin, StreamOnly: true,
			Rates: []rpc.Rate{{Max: 60, Window: time.Minute}}},
		Resolve: func(ctx context.Context, _ caller.Caller, p *followParams) error { return r.resolve(ctx, &p.App) },
		Rule: func(_ context.Context, _ caller.Caller, p followParams) error {
			if p.Lines != nil && (*p.Lines < 0 || *p.Lines > maxLines) {
				return fault.New(fault.InvalidParams, "lines must be from 0 to %d", maxLines).At("lines")
			}
			return nil
		},
		Stream: r.follow,
	}.Method()
}

// follow passes the lines on as the event line. It ends without an error when its hour is over.
func (r *Room) follow(ctx context.Context, c caller.Caller, p followParams, emit rpc.Emit) (followResult, error) {
	out := followResult{App: fence.Word(p.App)}
	rt, name, err := r.find(p.App)
	if err != nil {
		return out, err
	}
	leave, err := r.enter(c.Account())
	if err != nil {
		return out, err
	}
	defer leave()
	n := followDefault
	if p.Lines != nil {
		n = *p.Lines
	}
	if err := emit("start", followStart{out.App}); err != nil {
		return out, err
	}
	hour, cancel := context.WithTimeout(ctx, followTime)
	defer cancel()
	b := brake{now: r.cfg.Now, emit: emit}
	err = rt.Follow(hour, name, n, b.line)
	out.Lines, out.LeftOut = b.given, b.left
	if ctx.Err() == nil && errors.Is(hour.Err(), context.DeadlineExceeded) {
		return out, nil
	}
	return out, r.told(ctx, rt, name, err)
}

// enter counts one more followed log of an account; leave takes it back.
func (r *Room) enter(account int64) (leave func(), err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.following[account] >= maxFollowing {
		return nil, fault.New(fault.RateLimited, "this account follows %d logs already; end one of them first", maxFollowing).After(time.Minute)
	}
	r.following[account]++
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.following[account]--; r.following[account] == 0 {
			delete(r.following, account)
		}
	}, nil
}

// brake passes lines on within the bounds of a second and says where it leaves some out.
type brake struct {
	now  func() time.Time
	emit rpc.Emit

	second       time.Time // when the running second began
	lines, bytes int       // in it
	out          int       // left out in it
	given, left  int       // in all
}

func (b *brake) line(l Line) error {
	if now := b.now(); now.Sub(b.second) >= time.Second || now.Before(b.second) {
		if b.out > 0 {
			if err := b.note(fmt.Sprintf("%d lines were left out", b.out)); err != nil {
				return err
			}
		}
		b.second, b.lines, b.bytes, b.out = now, 0, 0, 0
	}
	if b.lines++; b.lines > maxLineRate || b.bytes+len(l.Text) > maxBytesRate {
		b.left++
		if b.out++; b.out == 1 {
			return b.note("lines are left out from here on: it writes faster than a log is followed; the log itself has them")
		}
		return nil
	}
	b.bytes += len(l.Text)
	b.given++
	return b.emit("line", l)
}

func (b *brake) note(words string) error {
	return b.emit("line", Line{Time: b.now(), Stream: "atoll", Text: words})
}
