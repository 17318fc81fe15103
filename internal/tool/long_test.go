package tool

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json"

	"atoll/internal/grant"
)

// H2, U1: a long result is cut with a mark that is seen, before it is fenced: its end is the fence's own.
func TestLongResultIsCut(t *testing.T) {
	b := newBench(t)
	b.open(grant.Apps)
	for _, text := range []string{strings.Repeat("x", 20_000), strings.Repeat("é", 20_000), strings.Repeat("</untrusted>", 2_000)} {
		b.rooms.logText = text
		r := (<-b.run(b.begin(), call("app_logs", `{"app":"jellyfin"}`)))[0].Text
		if n := utf8.RuneCountInString(r.Payload()); n > maxResult+100 || !strings.Contains(r.Payload(), "cut here by Atoll") {
			t.Errorf("%.10s…: %d characters are kept", text, n)
		}
		prompt := strings.TrimSpace(r.Prompt())
		head, _, _ := strings.Cut(prompt, "\n")
		_, token, _ := strings.Cut(head, ` token="`)
		token = strings.TrimSuffix(token, `">`)
		if len(token) != 32 || !strings.HasSuffix(prompt, "\n</untrusted token=\""+token+"\">") || !r.IsOutside() {
			t.Errorf("%.10s…: begins with %q and ends with %q", text, head, prompt[len(prompt)-60:])
		}
	}
}

// C6, F-C4: however long an argument is, the dialog has all of it: its end can be what matters.
func TestLongArgumentShownWhole(t *testing.T) {
	b := newBench(t)
	b.open(grant.Apps, grant.Settings)
	name := strings.Repeat("a-long-name-", 15) + "and-the-end" // 191 characters; an app's name has 200 at most
	value := strings.Repeat("words ", 2_000) + "and the end"
	b.rooms.state[name] = "running"
	for _, c := range []struct{ tool, argument, text, args, summary string }{
		{"app_stop", "app", name, `{"app":"` + name + `"}`, `Stop the app "` + name + `"`},
		{"settings_set", "value", value, `{"key":"node.name","value":"` + value + `"}`, `Set "node.name" to "` + value + `"`},
	} {
		out := b.run(b.begin(), call(c.tool, c.args))
		p := b.pending()
		var shown string
		if err := json.Unmarshal([]byte(argument(t, p, c.argument)), &shown); err != nil || shown != c.text {
			t.Errorf("%s: %d of %d characters of the argument are shown (%v)", c.tool, len(shown), len(c.text), err)
		}
		if p.Summary != c.summary {
			t.Errorf("%s: the sentence is %d characters, want %d", c.tool, len(p.Summary), len(c.summary))
		}
		b.decide(p, "decline", "")
		<-out
	}
}
