package script_test

import (
	"context"
	"testing"
	"time"

	"atoll/internal/fault"
	"atoll/internal/fence"
	"atoll/internal/model"
	"atoll/internal/model/modeltest"
	"atoll/internal/model/script"
)

// TestContract: the scripted model is of equal rank with the others (house rule 14).
func TestContract(t *testing.T) {
	modeltest.Run(t, func(t *testing.T, _ time.Duration, replies ...modeltest.Reply) model.Client {
		cfg := script.Config{}
		for _, r := range replies {
			n := 1
			if r.Repeat {
				n = 10
			}
			for range n {
				cfg.Steps = append(cfg.Steps, step(r))
			}
		}
		c, err := script.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		return c
	})
}

// step plays a reply as far as a model without a wire can.
func step(r modeltest.Reply) script.Step {
	s := script.Step{Deltas: r.Text, Wait: r.Wait, Usage: model.Usage{In: int64(r.In - r.CacheIn), Out: int64(r.Out), CacheRead: int64(r.CacheIn)}}
	for _, c := range r.Calls {
		s.Calls = append(s.Calls, model.Call{ID: c.ID, Name: c.Name, Args: []byte(c.Args)})
	}
	if r.Stop != "" {
		s.Stop = model.StopTruncated
	}
	fail := map[modeltest.Fault]model.Kind{
		modeltest.Abort: model.Dropped, modeltest.Reset: model.Dropped, modeltest.Cut: model.Dropped, modeltest.Overload: model.Overloaded,
		modeltest.Silence: model.Silent, modeltest.Pings: model.Silent, modeltest.Garbage: model.Garbled, modeltest.HTML: model.Garbled,
		modeltest.Endless: model.Flooded, modeltest.LongLine: model.Flooded, modeltest.Redirect: model.Refused,
	}
	switch {
	case r.Status >= 429 && r.Message != "insufficient_quota":
		e := script.Fail(model.Overloaded, r.Status, r.Message)
		if r.RetryAfter != "" {
			e = e.After(7 * time.Second)
		}
		s.Err = e
	case r.Status != 0:
		s.Err = script.Fail(model.Refused, r.Status, r.Message)
	case r.Fault != "":
		s.Err = script.Fail(fail[r.Fault], 0, string(r.Fault))
	}
	return s
}

func TestNewNeedsOneScript(t *testing.T) {
	fn := func(context.Context, model.Request) (model.Answer, error) { return model.Answer{}, nil }
	for _, cfg := range []script.Config{{}, {Steps: []script.Step{{}}, Func: fn}} {
		if _, err := script.New(cfg); err == nil {
			t.Errorf("accepted %+v", cfg)
		}
	}
}

func TestFuncStreamsInPiecesAndRecords(t *testing.T) {
	c, err := script.New(script.Config{Chunk: 3, Func: func(_ context.Context, req model.Request) (model.Answer, error) {
		return model.Answer{Blocks: []model.Block{
			model.TextBlock(fence.Words("grüße")), {Call: &model.Call{ID: "1", Name: "app_list"}}, model.TextBlock(fence.Words("!")),
		}}, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	a, err := c.Stream(t.Context(), modeltest.Ask("hello"), func(d string) error { got = append(got, d); return nil })
	if err != nil || a.Stop != model.StopCalls || len(a.Blocks) != 3 || a.Blocks[1].Call == nil {
		t.Errorf("got %+v, %v", a, err)
	}
	if len(got) != 3 || got[0] != "grü" || got[1] != "ße" || got[2] != "!" {
		t.Errorf("emitted %q", got)
	}
	if seen := c.Requests(); len(seen) != 1 || seen[0].Messages[0].Blocks[0].Text.Payload() != "hello" {
		t.Errorf("recorded %+v", seen)
	}
}

func TestStepsUsedUp(t *testing.T) {
	c, err := script.New(script.Config{Steps: []script.Step{{}}})
	if err != nil {
		t.Fatal(err)
	}
	emit := func(string) error { return nil }
	if _, err := c.Stream(t.Context(), modeltest.Ask("a"), emit); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Stream(t.Context(), modeltest.Ask("b"), emit); !fault.Is(err, fault.ModelFailed) || model.Passing(err) {
		t.Errorf("got %v", err)
	}
}
