package modeltest_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"atoll/internal/model/modeltest"
)

func post(t *testing.T, url, body string, header map[string]string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range header {
		req.Header.Set(k, v)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// TestClaudeRefuses: the fake answers 400 where the real API would (issue: orphan tool_use, empty text block, changed
// thinking block, unanswered call), so that a client which passes it is a well-behaved one.
func TestClaudeRefuses(t *testing.T) {
	s := modeltest.NewClaude(t, modeltest.Config{Replies: []modeltest.Reply{{Repeat: true, Text: []string{"ok"}}}})
	header := map[string]string{"X-Api-Key": "k", "Anthropic-Version": "2026-10-21", "Content-Type": "application/json"}
	wrap := func(messages string) string {
		return `{"model":"m","max_tokens":10,"stream":true,"messages":[` + messages + `]}`
	}
	user := func(content string) string { return `{"role":"user","content":[` + content + `]}` }
	said := func(content string) string { return `{"role":"assistant","content":[` + content + `]}` }
	const (
		hi     = `{"type":"text","text":"hi"}`
		use    = `{"type":"tool_use","id":"a","name":"x","input":{}}`
		result = `{"type":"tool_result","tool_use_id":"a","content":[{"type":"text","text":"r"}]}`
	)
	tests := []struct{ name, body, want string }{
		{"good", wrap(user(hi)), ""},
		{"good with a call", wrap(user(hi) + "," + said(hi+","+use) + "," + user(result+","+hi)), ""},
		{"unknown field", `{"model":"m","max_tokens":10,"stream":true,"temperature":1,"messages":[` + user(hi) + `]}`, "temperature"},
		{"no model", `{"max_tokens":10,"stream":true,"messages":[` + user(hi) + `]}`, "model"},
		{"no limit", `{"model":"m","stream":true,"messages":[` + user(hi) + `]}`, "max_tokens"},
		{"no messages", wrap(""), "at least one message"},
		{"assistant first", wrap(said(hi) + "," + user(hi)), "first message"},
		{"assistant last", wrap(user(hi) + "," + said(hi)), "prefill"},
		{"empty text", wrap(user(`{"type":"text","text":""}`)), "non-whitespace"},
		{"blank text", wrap(user(`{"type":"text","text":" \n"}`)), "non-whitespace"},
		{"empty message", wrap(user(hi) + "," + said("") + "," + user(hi)), "non-empty content"},
		{"call unanswered", wrap(user(hi) + "," + said(use) + "," + user(hi)), "without `tool_result`"},
		{"orphan result", wrap(user(result)), "unexpected `tool_use_id`"},
		{"late result", wrap(user(hi) + "," + said(use) + "," + user(hi+","+result)), "before other content"},
		{"identifier twice", wrap(user(hi) + "," + said(use+","+use) + "," + user(result)), "unique"},
		{"strange identifier", wrap(user(hi) + "," + said(strings.Replace(use, `"a"`, `"a b"`, 1)) + "," + user(result)), "pattern"},
		{"strange name", wrap(user(hi) + "," + said(strings.Replace(use, `"x"`, `"x.y"`, 1)) + "," + user(result)), "pattern"},
		{"input as a string", wrap(user(hi) + "," + said(strings.Replace(use, `{}`, `"{}"`, 1)) + "," + user(result)), "dictionary"},
		{"changed thinking", wrap(user(hi) + "," + said(`{"type":"thinking","thinking":"x","signature":"y"},`+hi) + "," + user(hi)), "cannot be modified"},
		{"changed redacted", wrap(user(hi) + "," + said(`{"type":"redacted_thinking","data":"y"},`+hi) + "," + user(hi)), "cannot be modified"},
		{"thinking of the user", wrap(user(`{"type":"redacted_thinking","data":"y"}`)), "modified"},
		{"call of the user", wrap(user(use)), "may not stand"},
		{"tool without schema", `{"model":"m","max_tokens":10,"stream":true,"tools":[{"name":"x","input_schema":{}}],"messages":[` + user(hi) + `]}`, "input_schema"},
		{"tool twice", `{"model":"m","max_tokens":10,"stream":true,"tools":[{"name":"x","input_schema":{"type":"object"}},{"name":"x","input_schema":{"type":"object"}}],"messages":[` + user(hi) + `]}`, "unique"},
	}
	for _, tt := range tests {
		check(t, s.URL+"/v1/messages", tt.name, tt.body, tt.want, header)
	}
	for name, drop := range map[string]string{"no key": "X-Api-Key", "no version": "Anthropic-Version", "no type": "Content-Type"} {
		some := map[string]string{}
		for k, v := range header {
			if k != drop {
				some[k] = v
			}
		}
		check(t, s.URL+"/v1/messages", name, wrap(user(hi)), strings.ToLower(drop), some)
	}
	if status, _ := post(t, s.URL+"/v1/other", wrap(user(hi)), header); status != 404 {
		t.Errorf("another path: %d", status)
	}
}

func check(t *testing.T, url, name, body, want string, header map[string]string) {
	t.Helper()
	status, text := post(t, url, body, header)
	if want == "" && status != 200 || want != "" && (status != 400 || !strings.Contains(text, want)) {
		t.Errorf("%s: got %d %s, want %q", name, status, text, want)
	}
}

// TestOpenAIRefuses is the same for the other wire.
func TestOpenAIRefuses(t *testing.T) {
	s := modeltest.NewOpenAI(t, modeltest.Config{Key: "k", Replies: []modeltest.Reply{{Repeat: true, Text: []string{"ok"}}}})
	header := map[string]string{"Authorization": "Bearer k", "Content-Type": "application/json"}
	wrap := func(messages string) string { return `{"model":"m","stream":true,"messages":[` + messages + `]}` }
	const (
		hi   = `{"role":"user","content":"hi"}`
		said = `{"role":"assistant","content":"ho"}`
		use  = `{"role":"assistant","tool_calls":[{"id":"a","type":"function","function":{"name":"x","arguments":"{}"}}]}`
		back = `{"role":"tool","tool_call_id":"a","content":"r"}`
	)
	tests := []struct{ name, body, want string }{
		{"good", wrap(hi), ""},
		{"good with a call", wrap(hi + "," + use + "," + back), ""},
		{"unknown field", `{"model":"m","stream":true,"seed":1,"messages":[` + hi + `]}`, "seed"},
		{"no model", `{"stream":true,"messages":[` + hi + `]}`, "model"},
		{"both limits", `{"model":"m","stream":true,"max_tokens":1,"max_completion_tokens":1,"messages":[` + hi + `]}`, "same time"},
		{"no messages", wrap(""), "empty"},
		{"assistant last", wrap(hi + "," + said), "last message"},
		{"user twice", wrap(hi + "," + hi), "alternate"},
		{"empty text", wrap(`{"role":"user","content":""}`), "non-empty"},
		{"empty answer", wrap(hi + `,{"role":"assistant"},` + hi), "content or tool_calls"},
		{"call unanswered", wrap(hi + "," + use + "," + hi), "must be followed by tool messages"},
		{"orphan result", wrap(hi + "," + back), "preceding message"},
		{"arguments cut", wrap(hi + "," + strings.Replace(use, `"{}"`, `"{"`, 1) + "," + back), "JSON object"},
		{"strange name", wrap(hi + "," + strings.Replace(use, `"x"`, `"x.y"`, 1) + "," + back), "invalid tool call"},
		{"strange role", wrap(`{"role":"root","content":"hi"}`), "role"},
	}
	for _, tt := range tests {
		check(t, s.URL+"/v1/chat/completions", tt.name, tt.body, tt.want, header)
	}
	if status, _ := post(t, s.URL+"/v1/chat/completions", wrap(hi), nil); status != 401 {
		t.Errorf("no key: %d", status)
	}
}

// TestReplies: a script in a file, for whole programs.
func TestReplies(t *testing.T) {
	replies, err := modeltest.ReadReplies(strings.NewReader(`[
		{"when": "disk", "calls": [{"name": "system_disk_status", "args": "{}"}]},
		{"when": "sample", "repeat": true, "text": ["It ", "runs."]},
		{"status": 529, "retry_after": "1"}
	]`))
	if err != nil {
		t.Fatal(err)
	}
	s := modeltest.NewOpenAI(t, modeltest.Config{Replies: replies})
	ask := func(words string) (int, string) {
		return post(t, s.URL+"/v1/chat/completions", `{"model":"m","stream":true,"messages":[{"role":"user","content":"`+words+`"}]}`,
			map[string]string{"Content-Type": "application/json"})
	}
	for _, tt := range []struct {
		words  string
		status int
		want   string
	}{
		{"the sample?", 200, "runs."}, {"how full is the disk", 200, "system_disk_status"}, {"the sample again?", 200, "runs."},
		{"the disk again", 529, "overloaded"}, {"anything else", 400, "no further reply"},
	} {
		if status, text := ask(tt.words); status != tt.status || !strings.Contains(text, tt.want) {
			t.Errorf("%s: got %d %s", tt.words, status, text)
		}
	}
	if n, p := len(s.Seen()), s.Problems(); n != 5 || len(p) != 1 {
		t.Errorf("%d requests seen, problems %q", n, p)
	}
	for _, bad := range []string{"", "{}", `[{"texts":[]}]`, `[{"text":[1]}]`, `[] []`} {
		if _, err := modeltest.ReadReplies(strings.NewReader(bad)); err == nil {
			t.Errorf("accepted %q", bad)
		}
	}
}
