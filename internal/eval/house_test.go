package eval

import (
	"context"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"atoll/internal/app/process"
	"atoll/internal/fence"
	"atoll/internal/model"
	"atoll/internal/model/script"
)

// TestMain lets this binary be the program that process apps are launched by.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case process.LaunchArg:
			os.Exit(process.Launch())
		case serveArg:
			os.Exit(serveForCrash(os.Args[2:]))
		case process.SampleArg:
			os.Exit(process.Sample(os.Args[2:], os.Stdout, os.Stderr))
		}
	}
	os.Exit(m.Run())
}

// play makes a scripted model of a function from the request to what the model says and asks for.
func play(t *testing.T, f func(ctx context.Context, req model.Request) (string, []model.Call)) *script.Client {
	t.Helper()
	c, err := script.New(script.Config{Func: func(ctx context.Context, req model.Request) (model.Answer, error) {
		text, calls := f(ctx, req)
		a := model.Answer{Stop: model.StopEnd, Usage: model.Usage{In: 10, Out: 5}}
		if text != "" {
			a.Blocks = append(a.Blocks, model.TextBlock(fence.Words(text)))
		}
		for i := range calls {
			a.Stop = model.StopCalls
			a.Blocks = append(a.Blocks, model.Block{Call: &calls[i]})
		}
		return a, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func ask(name, args string) model.Call { return model.Call{ID: "same", Name: name, Args: []byte(args)} }

// results lists the results that the model was given in the last message.
func results(req model.Request) []model.Result {
	var out []model.Result
	for _, b := range req.Messages[len(req.Messages)-1].Blocks {
		if b.Result != nil {
			out = append(out, *b.Result)
		}
	}
	return out
}

// steps makes a model that makes the calls of one step after the other, and then says "done".
func steps(t *testing.T, rounds ...[]model.Call) *script.Client {
	n := 0
	return play(t, func(_ context.Context, req model.Request) (string, []model.Call) {
		if n < len(rounds) {
			n++
			return "", rounds[n-1]
		}
		return "done", nil
	})
}

// app waits until the sample app is in a state.
func (p *Person) app(state string) {
	p.h.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(30 * time.Second)
	last := ""
	for {
		var list struct {
			Apps []struct {
				App   string `json:"app"`
				State string `json:"state"`
			} `json:"apps"`
		}
		p.Call("apps.list", nil).Into(p.h.t, &list)
		for _, a := range list.Apps {
			if last = a.State; a.App == "sample" && a.State == state {
				return
			}
		}
		select {
		case <-tick.C:
		case <-deadline:
			p.h.t.Fatalf("sample is %q, not %q", last, state)
		}
	}
}

// The main job, end to end on the built-in backend: a closed category and its offer, a look, a reason, a confirmed
// restart (T8, T9, T11, C1, B1, H5).
func TestMainJob(t *testing.T) {
	h := Open(t, Options{})
	p := h.Owner()
	a := p.Chat("", "how full is the disk?")
	if a.Codes() != "refused:not_granted" || len(a.Offers) != 1 || a.Offers[0].Category != "system" || a.Offers[0].Host != "this machine" {
		t.Errorf("%+v", a)
	}
	conv := a.Conversation
	if a = p.Chat(conv, "how full is the disk?"); len(a.Offers) != 0 {
		t.Error("the same category is offered twice in one conversation (T8)")
	}
	p.Grant("system", "apps")
	if a = p.Chat(conv, "how full is the disk?"); a.Codes() != "done" || !strings.Contains(a.Answer, "%") {
		t.Errorf("%+v", a)
	}
	p.app("exited")
	if a = p.Chat(conv, "is the sample app running?"); a.Codes() != "done" || !strings.Contains(a.Answer, "exit") {
		t.Errorf("%+v", a)
	}
	if a = p.Chat(conv, "why did it stop?"); !strings.Contains(a.Answer, "cache") {
		t.Errorf("%+v", a)
	}
	// Nobody listens: the answer is no (C10).
	if a = p.Chat(conv, "restart it"); a.Codes() != "refused:nobody_to_ask" {
		t.Errorf("%+v", a)
	}
	events := p.Listen()
	answer := make(chan Answer, 1)
	go func() { answer <- p.Chat(conv, "restart it") }()
	q := p.Asked(events)
	if q.Tool != "app_restart" || q.Summary != `Restart the app "sample"` || q.Before != "exited" || len(q.Untrusted) == 0 {
		t.Errorf("%+v", q)
	}
	p.Approve(q)
	a = <-answer
	if a.Codes() != "done" || len(a.Changes) != 1 || a.Changes[0].Summary != "Restarted sample: running" {
		t.Errorf("%+v", a)
	}
	p.app("running")
	if r := p.Call("audit.verify", nil); !strings.Contains(string(r.Result), `"ok":true`) {
		t.Errorf("%s", r.Result)
	}
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }
