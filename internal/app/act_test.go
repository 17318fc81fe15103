package app

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"atoll/internal/fault"
	"atoll/internal/fence"
	"atoll/internal/rpc"
)

// Nobody is asked about a call that could not run (T2), and none of them reaches the runtime.
func TestRules(t *testing.T) {
	a, b := twoRuntimes()
	b.set(App{Name: "looping", State: Backoff})
	b.set(App{Name: "leaving", State: Stopping})
	h := furnish(t, a, b)
	for _, c := range []struct{ method, params, want string }{
		{"apps.start", `{"app":"server"}`, "server is already running"},
		{"apps.start", `{"app":"leaving"}`, "is already stopping"},
		{"apps.stop", `{"app":"sample"}`, "sample is not running (exited)"},
		{"apps.stop", `{"app":"docker:immich/db"}`, "is not running (stopped)"},
	} {
		if _, err := h.ask(t, member, c.method, c.params); !fault.Is(err, fault.Rule) || !strings.Contains(fault.Of(err).Public, c.want) {
			t.Errorf("%s %s: %v", c.method, c.params, err)
		}
	}
	for _, c := range []struct{ method, params, field string }{
		{"apps.logs", `{"app":"sample","lines":0}`, "lines"},
		{"apps.logs", `{"app":"sample","lines":501}`, "lines"},
		{"apps.logs", `{"app":"sample","lines":1.5}`, "lines"},
		{"apps.logs", `{}`, "app"},
		{"apps.start", `{"app":""}`, "app"},
		{"apps.start", `{"app":"sample","force":true}`, "force"},
		{"apps.list", `{"app":"sample"}`, "app"},
	} {
		if _, err := h.ask(t, member, c.method, c.params); !fault.Is(err, fault.InvalidParams) || fault.Of(err).Field != c.field {
			t.Errorf("%s %s: %v", c.method, c.params, err)
		}
	}
	if len(a.did)+len(b.did) > 0 {
		t.Errorf("something ran: %v %v", a.did, b.did)
	}
	for _, c := range []struct{ method, params string }{{"apps.stop", `{"app":"looping"}`}, {"apps.start", `{"app":"sample"}`}} {
		if _, err := h.Prepare(t.Context(), member, rpc.Tools, c.method, jsontext.Value(c.params)); err != nil {
			t.Errorf("%s: %v", c.method, err)
		}
	}
}

func TestPreview(t *testing.T) {
	a, b := twoRuntimes()
	h := furnish(t, a, b)
	for _, c := range []struct{ method, app, before, after string }{
		{"apps.start", "sample", "exited", "running"},
		{"apps.stop", "server", "running", "stopped"},
		{"apps.restart", "server", "running", "running (restarted)"},
		{"apps.restart", "sample", "exited", "running"},
		{"apps.restart", "jellyfin", "running", "running (restarted)"},
	} {
		p, err := h.Prepare(t.Context(), member, rpc.Tools, c.method, jsontext.Value(`{"app":"`+c.app+`"}`))
		if err != nil {
			t.Fatal(err)
		}
		pv, err := p.Preview()
		if err != nil || pv.Before != c.before || pv.After != c.after || pv.Fingerprint != "mark" || !strings.HasSuffix(pv.Target, c.app) {
			t.Errorf("%+v: %+v %v", c, pv, err)
		}
		a.set(App{Name: "server", State: Running, PID: 7})
	}
	p, err := h.Prepare(t.Context(), member, rpc.Tools, "apps.stop", jsontext.Value(`{"app":"server"}`))
	if err != nil {
		t.Fatal(err)
	}
	a.set(App{Name: "server", State: Exited}) // it ended while the question stood
	if _, err := p.Again(t.Context(), member); !fault.Is(err, fault.Rule) {
		t.Errorf("%v", err)
	}
}

// T9: the answer is the state observed after the action, once the app has come to rest.
func TestActObserves(t *testing.T) {
	for _, c := range []struct {
		name, method string
		act          func(context.Context, *plain, string, string) error
		state        State
		took         time.Duration // at least
	}{
		{name: "stays up", method: "apps.start", state: Running, took: defaultSettle},
		{name: "is up after a while", method: "apps.start", state: Running, took: 5*time.Second + defaultSettle,
			act: func(_ context.Context, r *plain, _, name string) error {
				r.set(App{Name: name, State: Starting})
				time.AfterFunc(5*time.Second, func() { r.set(App{Name: name, State: Running}) })
				return nil
			}},
		{name: "ends before it has settled", method: "apps.start", state: Exited, took: 500 * time.Millisecond,
			act: func(_ context.Context, r *plain, _, name string) error {
				r.set(App{Name: name, State: Running})
				time.AfterFunc(500*time.Millisecond, func() { r.set(App{Name: name, State: Exited}) })
				return nil
			}},
		{name: "is another process before it has settled", method: "apps.start", state: Running, took: 500*time.Millisecond + defaultSettle,
			act: func(_ context.Context, r *plain, _, name string) error {
				r.set(App{Name: name, State: Running, PID: 1})
				time.AfterFunc(500*time.Millisecond, func() { r.set(App{Name: name, State: Running, PID: 2}) })
				return nil
			}},
		{name: "loops", method: "apps.restart", state: Backoff,
			act: func(_ context.Context, r *plain, _, name string) error {
				r.set(App{Name: name, State: Backoff})
				return nil
			}},
		{name: "is down after a while", method: "apps.stop", state: Stopped, took: 3 * time.Second,
			act: func(_ context.Context, r *plain, _, name string) error {
				time.AfterFunc(3*time.Second, func() { r.set(App{Name: name, State: Stopped}) })
				return nil
			}},
		{name: "is gone", method: "apps.stop", state: Stopped,
			act: func(_ context.Context, r *plain, _, name string) error {
				r.mu.Lock()
				defer r.mu.Unlock()
				delete(r.apps, name)
				return nil
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt := runtime("process", App{Name: "one", State: Exited})
				if c.method == "apps.stop" {
					rt.set(App{Name: "one", State: Running})
				}
				rt.act = c.act
				begin := time.Now()
				got, err := furnish(t, rt).ask(t, member, c.method, `{"app":"one"}`)
				if err != nil || !strings.Contains(got, `"state":"`+string(c.state)+`"`) || !strings.Contains(got, `"observed":true`) {
					t.Errorf("%s %v", got, err)
				}
				if took := time.Since(begin); took < c.took || took > c.took+time.Second {
					t.Errorf("answered after %s, want %s", took, c.took)
				}
				if len(rt.did) != 1 {
					t.Errorf("ran %v", rt.did)
				}
			})
		})
	}
}

// T9, T14, F-E12: where the end is not seen the answer says so, and comes before the gate gives up; a refusal of the
// runtime is passed on; nothing is tried twice.
func TestActUnobserved(t *testing.T) {
	deaf := func(ctx context.Context, r *plain, _, name string) error {
		r.set(App{Name: name, State: Stopping})
		<-ctx.Done()
		return ctx.Err()
	}
	run := func(t *testing.T, ctx context.Context, act func(context.Context, *plain, string, string) error) (actResult, error, *plain) {
		rt := runtime("process", App{Name: "one", State: Running})
		rt.act = act
		got, err := furnish(t, rt).act(ctx, "one", stop)
		if len(rt.did) != 1 {
			t.Errorf("ran %v", rt.did)
		}
		return got, err, rt
	}
	t.Run("takes too long", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			begin := time.Now()
			got, err, _ := run(t, t.Context(), deaf)
			if err != nil || got.Observed || got.State != fence.Word(Stopping) {
				t.Errorf("%+v %v", got, err)
			}
			if took := time.Since(begin); took >= actionTimeout {
				t.Errorf("too late: %s", took)
			}
		})
	})
	t.Run("caller gives up", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if got, err, _ := run(t, ctx, deaf); !fault.Is(err, fault.OutcomeUnknown) || !strings.Contains(fault.Of(err).Public, "look at its state") {
				t.Errorf("%+v %v", got, err)
			}
		})
	})
	t.Run("runtime goes away", func(t *testing.T) {
		got, err, _ := run(t, t.Context(), func(_ context.Context, r *plain, _, _ string) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.down = fault.New(fault.Unavailable, "gone")
			return nil
		})
		if !fault.Is(err, fault.OutcomeUnknown) {
			t.Errorf("%+v %v", got, err)
		}
	})
	t.Run("runtime refuses", func(t *testing.T) {
		got, err, _ := run(t, t.Context(), func(context.Context, *plain, string, string) error { return NotRunning("one", Exited) })
		if !fault.Is(err, fault.Rule) {
			t.Errorf("%+v %v", got, err)
		}
	})
}

// Of an app that is partly running both a start and a stop make sense; one that is paused is not started.
func TestRulesOfStates(t *testing.T) {
	for _, c := range []struct {
		state                State
		start, stop, restart string // the refusal, or ""
	}{
		{Running, "already running", "", ""},
		{Partly, "", "", ""},
		{Paused, "unpause it first", "", ""},
		{Starting, "already starting", "", ""},
		{Stopping, "already stopping", "", ""},
		{Backoff, "", "", ""},
		{Stopped, "", "not running (stopped)", ""},
		{Exited, "", "not running (exited)", ""},
		{Failed, "", "not running (failed)", ""},
	} {
		h := furnish(t, runtime("docker", App{Name: "a", Foreign: true, State: c.state}))
		for method, want := range map[string]string{"apps.start": c.start, "apps.stop": c.stop, "apps.restart": c.restart} {
			_, err := h.Prepare(t.Context(), member, rpc.Tools, method, jsontext.Value(`{"app":"a"}`))
			if want == "" && err != nil || want != "" && (!fault.Is(err, fault.Rule) || !strings.Contains(fault.Of(err).Public, want)) {
				t.Errorf("%s of what is %s: %v", method, c.state, err)
			}
		}
	}
}

// A stop or restart that takes down more than the app says so, for the app and for any of its services; a start does not.
func TestPreviewWarns(t *testing.T) {
	const own, model = "Atoll itself runs in it; stopping it ends this node.", "It serves the assistant's model."
	b := runtime("docker", App{Name: "p", State: Partly, Warning: own, Services: []App{{Name: "p/a", State: Running, Warning: own},
		{Name: "p/b", State: Exited, Warning: model}}}, App{Name: "lone", State: Running})
	h := furnish(t, b)
	for _, c := range []struct{ method, app, want string }{
		{"apps.stop", "p", own + " " + model}, {"apps.restart", "p", own + " " + model}, {"apps.start", "p", ""},
		{"apps.stop", "p/a", own}, {"apps.stop", "lone", ""},
	} {
		p, err := h.Prepare(t.Context(), member, rpc.Tools, c.method, jsontext.Value(`{"app":"`+c.app+`"}`))
		if err != nil {
			t.Fatal(err)
		}
		if pv, err := p.Preview(); err != nil || pv.Warning != c.want {
			t.Errorf("%s %s: %+v %v", c.method, c.app, pv, err)
		}
	}
}

// T9: after a start the health checks are waited for, those of a project's services too, until they decide or time is over.
func TestActAwaitsHealth(t *testing.T) {
	type step struct {
		after time.Duration
		app   App
	}
	service := func(h Health) App {
		return App{Name: "p", State: Running, Services: []App{{Name: "p/a", State: Running, Health: Healthy}, {Name: "p/b", State: Running, Health: h}}}
	}
	for _, c := range []struct {
		name   string
		steps  []step
		holds  string
		not    string
		took   time.Duration
		unseen bool
	}{
		{"healthy", []step{{0, App{Name: "p", State: Running, Health: HealthStarting}}, {30 * time.Second, App{Name: "p", State: Running, Health: Healthy}}},
			`"health":"healthy"`, `"log"`, 30 * time.Second, false},
		{"unhealthy", []step{{0, App{Name: "p", State: Running, Health: HealthStarting}}, {30 * time.Second, App{Name: "p", State: Running, Health: Unhealthy}}},
			`"text":"the last line"`, "", 30 * time.Second, false},
		{"a service", []step{{0, service(HealthStarting)}, {20 * time.Second, service(Healthy)}}, `"state":"running"`, `"log"`, 20 * time.Second, false},
		{"a service that fails", []step{{0, service(HealthStarting)}, {20 * time.Second, service(Unhealthy)}}, `"service":"b","text":"of b"`, "the last line", 20 * time.Second, false},
		{"ends while it is checked", []step{{0, App{Name: "p", State: Running, Health: HealthStarting}}, {3 * time.Second, App{Name: "p", State: Exited}}},
			`"text":"the last line"`, "", 2 * time.Second, false},
		{"never decides", []step{{0, App{Name: "p", State: Running, Health: HealthStarting}}}, `"health":"starting"`, "", actionTimeout - answerMargin - 2*time.Second, true},
		{"partly", []step{{0, App{Name: "p", State: Partly, Services: []App{{Name: "p/a", State: Running}, {Name: "p/b", State: Backoff}}}}},
			`"text":"of b"`, "the last line", 0, false},
		{"partly at first", []step{{0, App{Name: "p", State: Partly, Services: []App{{Name: "p/a", State: Running, PID: 1}, {Name: "p/b", State: Starting}}}},
			{500 * time.Millisecond, App{Name: "p", State: Running, Services: []App{{Name: "p/a", State: Running, PID: 1}, {Name: "p/b", State: Running, PID: 2}}}}},
			`"state":"running"`, `"log"`, 500 * time.Millisecond, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt := runtime("docker", App{Name: "p", State: Stopped})
				rt.logs = map[string][]Line{"p": {{Stream: "stdout", Text: "the first line"}, {Stream: "stdout", Text: "the last line"}}, "p/b": {{Stream: "stderr", Text: "of b"}}}
				rt.act = func(_ context.Context, r *plain, _, _ string) error {
					for _, s := range c.steps {
						if s.after == 0 {
							r.set(s.app)
							continue
						}
						time.AfterFunc(s.after, func() { r.set(s.app) })
					}
					return nil
				}
				begin := time.Now()
				got, err := furnish(t, rt).ask(t, member, "apps.start", `{"app":"p"}`)
				if err != nil || !strings.Contains(got, c.holds) || c.not != "" && strings.Contains(got, c.not) || strings.Contains(got, `"observed":false`) != c.unseen {
					t.Errorf("%s %v", got, err)
				}
				if took := time.Since(begin); took < c.took || took > c.took+3*time.Second || took >= actionTimeout {
					t.Errorf("answered after %s, want %s", took, c.took)
				}
			})
		})
	}
}

// A stop waits until nothing of the project runs, and never shows a log.
func TestStopOfProject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := runtime("docker", App{Name: "p", State: Partly, Services: []App{{Name: "p/a", State: Running, Health: HealthStarting}}})
		rt.act = func(_ context.Context, r *plain, _, _ string) error {
			time.AfterFunc(3*time.Second, func() { r.set(App{Name: "p", State: Stopped}) })
			return nil
		}
		got, err := furnish(t, rt).ask(t, member, "apps.stop", `{"app":"p"}`)
		if err != nil || !strings.Contains(got, `"state":"stopped"`) || !strings.Contains(got, `"observed":true`) || strings.Contains(got, `"log"`) {
			t.Errorf("%s %v", got, err)
		}
	})
}
