package model

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"atoll/internal/fault"
)

// Times of a Retry (B2). No attempt begins later than retryTotal after the first one, or than retryReach where the
// server cannot even be reached: "within 20 s" is SPEC section 3, and an attempt to connect may take twice
// connectTimeout.
const (
	retryTotal = 120 * time.Second
	retryReach = 8 * time.Second
	retryBase  = time.Second      // the first wait is anywhere up to this
	retryMost  = 20 * time.Second // and no wait of our own choice is longer than this
)

// RetryConfig is what a Retry needs.
type RetryConfig struct {
	Log *slog.Logger // where each new attempt is told; nil means nowhere
	// Jitter picks a wait from zero to most, both included; nil means at random, so that clients that failed together
	// do not come back together (F-E2).
	Jitter func(most time.Duration) time.Duration
}

// Retry wraps a client: a failure that may pass (overload, 429, 5xx, a dropped or refused connection) is tried again
// with full jitter and the server's Retry-After, within the context's deadline, and only while nothing of the answer
// was emitted. Silence is not tried again: the person has waited a minute already. An attempt that would begin too late
// is not waited for; the last error is returned at once, with RetryAfter set.
func Retry(c Client, cfg RetryConfig) Client {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Jitter == nil {
		cfg.Jitter = func(most time.Duration) time.Duration { return rand.N(most + 1) }
	}
	return &retrying{Client: c, cfg: cfg}
}

type retrying struct {
	Client
	cfg RetryConfig
}

func (r *retrying) Stream(ctx context.Context, req Request, emit func(string) error) (Answer, error) {
	begun := false
	note := func(delta string) error { begun = true; return emit(delta) }
	start := time.Now()
	var used Usage
	for attempt := 1; ; attempt++ {
		answer, err := r.Client.Stream(ctx, req, note)
		answer.Usage = answer.Usage.Add(used) // a failed attempt is billed too
		f, ok := errors.AsType[*Failure](err)
		if !ok || begun || len(answer.Blocks) > 0 || !f.passing() || ctx.Err() != nil {
			return answer, err
		}
		wait := r.wait(f, attempt)
		if !r.inTime(ctx, f, time.Since(start)+wait, wait) {
			return answer, err
		}
		used = answer.Usage
		info := r.Info()
		r.cfg.Log.LogAttrs(ctx, slog.LevelWarn, "model server failed; trying again",
			slog.String("backend", info.Backend), slog.String("kind", f.Kind.String()), slog.Int("status", f.Status),
			slog.Int("attempt", attempt), slog.Duration("wait", wait))
		if err := sleep(ctx, wait); err != nil {
			return answer, Cancelled(err)
		}
	}
}

// wait is full jitter below a doubling limit, on top of what the server asked for.
func (r *retrying) wait(f *Failure, attempt int) time.Duration {
	most := min(retryBase<<min(attempt-1, 10), retryMost)
	if f.After > 0 {
		return f.After + r.cfg.Jitter(retryBase)
	}
	return r.cfg.Jitter(most)
}

func (r *retrying) inTime(ctx context.Context, f *Failure, since, wait time.Duration) bool {
	limit := retryTotal
	if f.Kind == Unreachable {
		limit = retryReach
	}
	if since > limit {
		return false
	}
	deadline, ok := ctx.Deadline()
	return !ok || time.Until(deadline) > wait
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// Passing reports whether an error of a Client may be gone when the same request is sent a little later.
func Passing(err error) bool {
	f, ok := errors.AsType[*Failure](err)
	return ok && fault.Is(err, fault.ModelFailed) && f.passing()
}
