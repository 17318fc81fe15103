package app

import (
	"context"
	"strings"
	"testing"
	"unicode/utf8"

	"atoll/internal/fault"
	"atoll/internal/fence"
	"atoll/internal/rpc"
)

// T9, U1: what goes with a start that failed is the end of the log, bounded, and makes the whole answer outside text.
func TestLastWords(t *testing.T) {
	line := func(n int, r string) Line { return Line{Stream: "stdout", Text: strings.Repeat(r, n)} }
	for name, lines := range map[string][]Line{
		"none":       nil,
		"many":       {},
		"one of all": {line(16<<10, "é")},
		"escapes":    {line(9000, "\x01"), line(30, "\"")},
		"two long":   {line(3000, "a"), line(3000, "b")},
	} {
		if name == "many" {
			for range 500 {
				lines = append(lines, line(100, "x"))
			}
		}
		if lines != nil {
			lines[len(lines)-1].Text += "the end"
		}
		rt := runtime("process", App{Name: "one", State: Failed})
		rt.logs = map[string][]Line{"one": lines}
		got := lastWords(t.Context(), rt, App{Name: "one", State: Failed})
		n := 0
		for _, l := range got {
			n += escaped(l.Text)
			if !utf8.ValidString(l.Text) {
				t.Errorf("%s: not UTF-8", name)
			}
		}
		if n > lastChars || len(got) > lastLines || (len(got) == 0) != (lines == nil) {
			t.Errorf("%s: %d lines, %d characters", name, len(got), n)
		}
		if name == "two long" && (len(got) != 2 || !strings.HasSuffix(got[0].Text, "a [… cut by Atoll]") || !strings.HasSuffix(got[1].Text, "bthe end")) {
			t.Errorf("%s: %.80q", name, got)
		}
		result := actResult{Status: Status{App: "one", State: "failed"}, Log: got}
		raw, err := rpc.Marshal(result)
		if err != nil || fence.Facts("app_start", result, string(raw)).IsOutside() != (lines != nil) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Of a project the logs of the services that failed are shown, not of those that run or have done their work.
func TestLastWordsOfProject(t *testing.T) {
	zero, one := 0, 1
	rt := runtime("docker")
	rt.logs = map[string][]Line{}
	p := App{Name: "p", State: Partly, Services: []App{{Name: "p/run", State: Running}, {Name: "p/init", State: Exited, ExitCode: &zero},
		{Name: "p/bad", State: Exited, ExitCode: &one}, {Name: "p/sick", State: Running, Health: Unhealthy}, {Name: "p/off", State: Stopped}}}
	for _, s := range p.Services {
		for range 30 {
			rt.logs[s.Name] = append(rt.logs[s.Name], Line{Stream: "stdout", Text: "of " + s.Name})
		}
	}
	var got []string
	for _, l := range lastWords(t.Context(), rt, p) {
		got = append(got, l.Service+": "+l.Text)
	}
	want := strings.Repeat("bad: of p/bad|", 10) + strings.Repeat("sick: of p/sick|", 10)
	if strings.Join(got, "|")+"|" != want {
		t.Errorf("%q", got)
	}
}

// A log that cannot be read takes nothing from the answer.
func TestLastWordsWithoutLog(t *testing.T) {
	rt := runtime("process", App{Name: "one", State: Stopped})
	rt.act = func(_ context.Context, r *plain, _, name string) error {
		r.set(App{Name: name, State: Failed})
		return nil
	}
	rt.noLogs = fault.New(fault.Unavailable, "no journal")
	got, err := furnish(t, rt).ask(t, member, "apps.start", `{"app":"one"}`)
	if err != nil || !strings.Contains(got, `"state":"failed"`) || strings.Contains(got, `"log"`) {
		t.Errorf("%s %v", got, err)
	}
}
