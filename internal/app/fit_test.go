package app

import (
	"strings"
	"testing"
	"unicode/utf8"

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
