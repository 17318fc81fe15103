package model_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"atoll/internal/fault"
	"atoll/internal/model"
	"atoll/internal/model/modeltest"
	"atoll/internal/model/script"
)

// server is a model whose every attempt is told to a function, with its number from one.
type server struct {
	times []time.Duration // when each attempt began
	start time.Time
	play  func(ctx context.Context, n int, emit func(string) error) (model.Answer, error)
}

func (s *server) Info() model.Info { return model.Info{Backend: "script"} }

func (s *server) Stream(ctx context.Context, _ model.Request, emit func(string) error) (model.Answer, error) {
	s.times = append(s.times, time.Since(s.start))
	return s.play(ctx, len(s.times), emit)
}

func failing(f model.Failure, until int) *server {
	return &server{start: time.Now(), play: func(_ context.Context, n int, emit func(string) error) (model.Answer, error) {
		if n <= until {
			e := fault.Wrap(&f, fault.ModelFailed, "it failed").After(f.After)
			return model.Answer{Usage: model.Usage{In: 1}}, e
		}
		return model.Answer{Stop: model.StopEnd, Usage: model.Usage{In: 1}}, emit("well")
	}}
}

func run(ctx context.Context, s *server, cfg model.RetryConfig) (model.Answer, []string, error) {
	var got []string
	a, err := model.Retry(s, cfg).Stream(ctx, modeltest.Ask("go"), func(d string) error { got = append(got, d); return nil })
	return a, got, err
}

const always = 1 << 30

// TestRetryPassingFailures: B2; the failed attempts' tokens are counted too (B4).
func TestRetryPassingFailures(t *testing.T) {
	for _, kind := range []model.Kind{model.Overloaded, model.Dropped, model.Unreachable} {
		synctest.Test(t, func(t *testing.T) {
			s := failing(model.Failure{Kind: kind}, 2)
			a, got, err := run(t.Context(), s, model.RetryConfig{})
			if err != nil || len(got) != 1 || len(s.times) != 3 || a.Usage.In != 3 {
				t.Errorf("%s: %d attempts, %q, usage %+v, %v", kind, len(s.times), got, a.Usage, err)
			}
		})
	}
}

// TestRetryNotForGood: what will not pass is told at once (SPEC section 3), and so is silence.
func TestRetryNotForGood(t *testing.T) {
	for _, kind := range []model.Kind{model.Refused, model.Silent, model.Flooded, model.Garbled} {
		synctest.Test(t, func(t *testing.T) {
			s := failing(model.Failure{Kind: kind}, always)
			_, _, err := run(t.Context(), s, model.RetryConfig{})
			if !fault.Is(err, fault.ModelFailed) || len(s.times) != 1 || time.Since(s.start) != 0 {
				t.Errorf("%s: %d attempts in %s, %v", kind, len(s.times), time.Since(s.start), err)
			}
		})
	}
}

// TestRetryEnds: B2: 120 s at most, and no longer without a deadline.
func TestRetryEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := failing(model.Failure{Kind: model.Overloaded, Status: 529}, always)
		_, _, err := run(t.Context(), s, model.RetryConfig{Jitter: func(most time.Duration) time.Duration { return most }})
		if took := time.Since(s.start); !fault.Is(err, fault.ModelFailed) || took > 120*time.Second || took < 90*time.Second {
			t.Errorf("%d attempts in %s, %v", len(s.times), took, err)
		}
	})
}

// TestRetryUnreachable: SPEC section 3: an error within 20 s, even where each attempt to connect takes as long as it may.
func TestRetryUnreachable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := failing(model.Failure{Kind: model.Unreachable}, always)
		inner := s.play
		s.play = func(ctx context.Context, n int, emit func(string) error) (model.Answer, error) {
			<-time.After(10 * time.Second)
			return inner(ctx, n, emit)
		}
		_, _, err := run(t.Context(), s, model.RetryConfig{})
		if took := time.Since(s.start); !fault.Is(err, fault.ModelFailed) || took >= 20*time.Second {
			t.Errorf("%d attempts in %s, %v", len(s.times), took, err)
		}
		fast := failing(model.Failure{Kind: model.Unreachable}, always)
		fast.start = time.Now()
		if _, _, err := run(t.Context(), fast, model.RetryConfig{}); err == nil || len(fast.times) < 3 || time.Since(fast.start) >= 20*time.Second {
			t.Errorf("refused connections: %d attempts in %s, %v", len(fast.times), time.Since(fast.start), err)
		}
	})
}

// TestRetryAfter: the server's wait is kept, and one that is too long is told instead of waited for.
func TestRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := failing(model.Failure{Kind: model.Overloaded, After: 7 * time.Second}, 1)
		if _, _, err := run(t.Context(), s, model.RetryConfig{}); err != nil || s.times[1] < 7*time.Second || s.times[1] > 8*time.Second {
			t.Errorf("second attempt after %v, %v", s.times, err)
		}
		s = failing(model.Failure{Kind: model.Overloaded, After: time.Hour}, always)
		s.start = time.Now()
		_, _, err := run(t.Context(), s, model.RetryConfig{})
		if len(s.times) != 1 || time.Since(s.start) != 0 || fault.Of(err).RetryAfter != time.Hour {
			t.Errorf("%d attempts in %s, %v", len(s.times), time.Since(s.start), err)
		}
	})
}

// TestRetryWithinDeadline: F-E2: our own error comes before the turn's deadline does.
func TestRetryWithinDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		s := failing(model.Failure{Kind: model.Overloaded}, always)
		_, _, err := run(ctx, s, model.RetryConfig{})
		if !fault.Is(err, fault.ModelFailed) || ctx.Err() != nil {
			t.Errorf("got %v, context %v", err, ctx.Err())
		}
	})
}

// TestRetryNotOnceBegun: B2: nothing is said twice, and what was said is kept.
func TestRetryNotOnceBegun(t *testing.T) {
	c, err := script.New(script.Config{Steps: []script.Step{
		{Deltas: []string{"Half"}, Err: script.Fail(model.Dropped, 0, "reset")}, {Deltas: []string{"again"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	a, err := model.Retry(c, model.RetryConfig{}).Stream(t.Context(), modeltest.Ask("go"), func(d string) error { got = append(got, d); return nil })
	if !fault.Is(err, fault.ModelFailed) || a.Text() != "Half" || len(got) != 1 || len(c.Requests()) != 1 {
		t.Errorf("got %q, %q, %d requests, %v", a.Text(), got, len(c.Requests()), err)
	}
}

// TestRetryCancelled: a turn that is stopped does not sit out the wait.
func TestRetryCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		s := failing(model.Failure{Kind: model.Overloaded, After: 30 * time.Second}, always)
		_, _, err := run(ctx, s, model.RetryConfig{})
		if !fault.Is(err, fault.Cancelled) || time.Since(s.start) != time.Second {
			t.Errorf("after %s: %v", time.Since(s.start), err)
		}
	})
}

// TestRetryListener: an error of the listener is no failure of the model.
func TestRetryListener(t *testing.T) {
	own := errors.New("left")
	s := failing(model.Failure{}, 0)
	if _, err := model.Retry(s, model.RetryConfig{}).Stream(t.Context(), modeltest.Ask("go"), func(string) error { return own }); err != own || len(s.times) != 1 {
		t.Errorf("got %v in %d attempts", err, len(s.times))
	}
}

// TestRetryJitter: F-E2: clients that failed together do not come back together.
func TestRetryJitter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := map[time.Duration]bool{}
		for range 3 {
			s := failing(model.Failure{Kind: model.Overloaded, Status: 529}, 4)
			s.start = time.Now()
			if _, _, err := run(t.Context(), s, model.RetryConfig{}); err != nil {
				t.Fatal(err)
			}
			seen[s.times[4]] = true
		}
		if len(seen) != 3 {
			t.Errorf("three clients came back at %v", seen)
		}
	})
}
