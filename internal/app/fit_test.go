package app

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"atoll/internal/fence"
	"atoll/internal/rpc"
)

// H2: what a model is shown of a long log is its end, whole as JSON.
func TestFit(t *testing.T) {
	for _, text := range []string{"plain", strings.Repeat("x", 300), strings.Repeat("é\t\"\x01", 40)} {
		l := logsResult{App: "a"}
		for range 400 {
			l.Lines = append(l.Lines, Line{Stream: "stdout", Text: text})
		}
		l.Lines[399].Text = "the last word"
		raw, err := rpc.Marshal(l.Fit(8000))
		if err != nil || utf8.RuneCount(raw) > 8000 || !strings.Contains(string(raw), "the last word") || !strings.Contains(string(raw), `"truncated":true`) {
			t.Errorf("%d characters, %v: …%s", utf8.RuneCount(raw), err, raw[max(0, len(raw)-200):])
		}
	}
	small := logsResult{Lines: []Line{{Text: "one"}}}
	if got := small.Fit(8000).(logsResult); len(got.Lines) != 1 || got.Truncated {
		t.Errorf("%+v", got)
	}
}

// H2: of 300 apps with their parts, the list that a model is shown is whole JSON, and what is wrong stays in it longest.
func TestFitList(t *testing.T) {
	one, memory := 1, uint64(1<<30)
	var l listResult
	for i := range 300 {
		a := Status{App: fence.Word(fmt.Sprintf("docker:app-%03d", i)), Foreign: true, Runtime: "docker", State: "running", Image: "registry.example/app:latest",
			MemoryBytes: &memory, Ports: []PortRow{{Port: 80, Protocol: "tcp"}}, Services: []Status{{App: "docker:x/y", State: "running"}}}
		if i%50 == 49 {
			a.State, a.ExitCode = "exited", &one
			a.Services = append(a.Services, Status{App: "docker:x/bad", State: "exited", ExitCode: &one})
		}
		l.Apps = append(l.Apps, a)
	}
	l.Problems = []Problem{{File: "bad.yaml", Problem: "unknown key"}}
	fitted := l.Fit(8000).(listResult)
	raw, err := rpc.Marshal(fitted)
	if err != nil || utf8.RuneCount(raw) > 8000 || len(fitted.Apps)+fitted.LeftOut != 300 || len(fitted.Apps) < 70 {
		t.Errorf("%d characters, %d apps, %d left out, %v", utf8.RuneCount(raw), len(fitted.Apps), fitted.LeftOut, err)
	}
	if n := strings.Count(string(raw), `"docker:x/bad"`); n != 6 || !strings.Contains(string(raw), "bad.yaml") || strings.Contains(string(raw), "registry") {
		t.Errorf("%d of 6 that failed are shown: %s", n, raw)
	}
	if !fence.Facts("app_list", fitted, string(raw)).IsOutside() {
		t.Error("foreign names are facts once the list was cut")
	}
	if len(l.Apps) != 300 || l.Apps[0].Image == "" || len(l.Apps[0].Services) != 1 || l.Apps[49].Services[1].ExitCode == nil {
		t.Error("the list itself was changed")
	}
	small := listResult{Apps: l.Apps[:2]}
	if got := small.Fit(8000).(listResult); got.LeftOut != 0 || got.Apps[0].Image == "" {
		t.Errorf("%+v", got)
	}
	act := actResult{Status: Status{App: "docker:p", State: "running", Services: l.Apps}}
	if got := sizeOf(act.Fit(8000)); got > 8000 {
		t.Errorf("%d characters", got)
	}
}
