package eval

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/go-json-experiment/json"

	"atoll/internal/confirm"
	"atoll/internal/fault"
	"atoll/internal/fence"
	"atoll/internal/model"
	"atoll/internal/model/script"
	"atoll/internal/node"
)

// raw sends a body as it is, with changes to the request, and gives the status.
func (p *Person) raw(body string, change func(*http.Request)) (int, string) {
	p.h.t.Helper()
	req := p.request(p.h.t.Context(), "node.version", nil)
	r, err := http.NewRequestWithContext(p.h.t.Context(), "POST", p.h.Base+"/rpc", strings.NewReader(body))
	if err != nil {
		p.h.t.Fatal(err)
	}
	r.Header = req.Header
	if change != nil {
		change(r)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		p.h.t.Fatal(err)
	}
	defer res.Body.Close()
	var out bytes.Buffer
	_, _ = out.ReadFrom(res.Body)
	return res.StatusCode, out.String()
}

// Section 6, G5: bad bodies get the right status, change nothing, and the server goes on.
func TestBadBodies(t *testing.T) {
	t.Parallel()
	h := Open(t, Options{Model: steps(t)})
	p := h.Owner()
	set := func(params string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"settings.set","params":` + params + `}`
	}
	for body, want := range map[string]int{
		"": 400, "null": 400, "1": 400, `"x"`: 400, "[]": 400, "{}": 400, "\xff": 400, "\xef\xbb\xbf{}": 400, strings.Repeat("[", 100000): 400,
		set(`{"key":"ui.theme","value":"dark"}`) + "x":                                                                        400,
		set(`{"key":"ui.theme","value":"dark"}`) + "{}":                                                                       400,
		`[` + set(`{"key":"ui.theme","value":"dark"}`) + `]`:                                                                  400,
		`{"jsonrpc":"2.0","method":"settings.set","params":{"key":"ui.theme","value":"dark"}}`:                                400,
		`{"jsonrpc":"2.0","id":null,"method":"settings.set","params":{"key":"ui.theme","value":"dark"}}`:                      400,
		`{"jsonrpc":"1.0","id":1,"method":"settings.set","params":{"key":"ui.theme","value":"dark"}}`:                         400,
		`{"jsonrpc":"2.0","id":1,"method":"node.version","method":"settings.set","params":{"key":"ui.theme","value":"dark"}}`: 400,
		`{"jsonrpc":"2.0","id":1,"method":"settings.set","Method":"node.version","params":{"key":"ui.theme","value":"dark"}}`: 400,
		`{"jsonrpc":"2.0","id":1,"method":"settings.set","params":{"key":"ui.theme","value":"dark"},"caller":"owner"}`:        400,
		`{"jsonrpc":"2.0","id":1,"method":"Settings.Set","params":{"key":"ui.theme","value":"dark"}}`:                         404,
		`{"jsonrpc":"2.0","id":1,"method":"settings.set\u0000","params":{}}`:                                                  404,
		set(`["ui.theme","dark"]`): 400, set(`"x"`): 400, set(`null`): 400, set(`{}`): 400,
		set(`{"key":"ui.theme","value":"dark","value":"light"}`): 400, set(`{"key":"ui.theme","KEY":"node.name","value":"dark"}`): 400,
		set(`{"key":"ui.theme","value":"d\ud800rk"}`): 400, set(`{"key":"disk.warn_percent","value":6e1}`): 400,
		set(`{"key":"disk.warn_percent","value":60.0}`): 400, set(`{"key":"disk.warn_percent","value":-0}`): 400,
		set(`{"key":"disk.warn_percent","value":"60"}`): 400, set(`{"key":"disk.warn_percent","value":` + strings.Repeat("9", 5000) + `}`): 400,
		set(`{"key":"node.name","value":"a\u202eb"}`): 400, set(`{"key":"node.name","value":"` + strings.Repeat("x", 64) + `"}`): 400,
		set(`{"key":"node.name","value":` + strings.Repeat(`{"a":`, 70) + "1" + strings.Repeat("}", 70) + `}`): 400,
		set(`{"key":"node.name","value":"` + strings.Repeat("x", 1<<20) + `"}`):                                413,
		strings.Repeat(" ", 1<<20+1): 413,
	} {
		if got, text := p.raw(body, nil); got != want || !strings.Contains(text, `"error"`) {
			t.Errorf("%.90q: %d, not %d: %.200s", body, got, want, text)
		}
	}
	for name, change := range map[string]func(*http.Request){
		"no session":  func(r *http.Request) { r.Header.Del("Cookie") },
		"two cookies": func(r *http.Request) { r.AddCookie(&http.Cookie{Name: "atoll_session", Value: p.cookie}) },
		"wrong token": func(r *http.Request) { r.Header.Set("X-CSRF-Token", "x"+p.csrf) },
		"no token":    func(r *http.Request) { r.Header.Del("X-CSRF-Token") },
		"origin":      func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") },
		"null origin": func(r *http.Request) { r.Header.Set("Origin", "null") },
		"cross site":  func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-site") },
		"host":        func(r *http.Request) { r.Host = "evil.example" },
		"form":        func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") },
		"get":         func(r *http.Request) { r.Method = "GET" },
	} {
		if got, text := p.raw(set(`{"key":"ui.theme","value":"dark"}`), change); got < 400 {
			t.Errorf("%s: %d %s", name, got, text)
		}
	}
	if r := string(p.Call("settings.get", map[string]any{"key": "ui.theme"}).Result); !strings.Contains(r, `"value":"auto"`) {
		t.Error(r)
	}
}

// Section 3, G3: a chat never does what its caller's role could not, and offers a member nothing.
func TestMemberChat(t *testing.T) {
	t.Parallel()
	h := Open(t, Options{Model: steps(t, []model.Call{ask("settings_set", `{"key":"ui.theme","value":"dark"}`), ask("files_list", `{"path":"/"}`),
		ask("wallet_status", "{}"), ask("system_info", "{}"), ask("settings_get", "{}")})})
	p := h.Owner()
	p.Grant("settings", "files", "wallet")
	mel := p.add("mel", "member")
	mel.Listen()
	a := mel.Chat("", "go")
	if a.Codes() != "refused:not_granted refused:not_granted refused:not_granted refused:not_granted done" || len(a.Offers) != 0 {
		t.Errorf("%s %+v", a.Codes(), a.Offers)
	}
	if r := string(p.Call("settings.get", map[string]any{"key": "ui.theme"}).Result); !strings.Contains(r, `"value":"auto"`) {
		t.Error(r)
	}
}

// G6, N1: a viewer's stream carries no notice and no question, and the ninth stream of an account is refused.
func TestViewerStream(t *testing.T) {
	t.Parallel()
	h := Open(t, Options{Model: steps(t, []model.Call{ask("app_start", `{"app":"sample"}`)})})
	p := h.Owner()
	p.Grant("apps")
	p.app("exited")
	vic := p.add("vic", "viewer")
	foreign, events := vic.Listen(), p.Listen()
	reply := p.talk("", "start it")
	q := p.Asked(events)
	if r := vic.Decide(q, "approve", nil); r.Status != 403 {
		t.Errorf("%+v", r)
	}
	p.Decide(q, "decline", nil)
	<-reply
	for range 7 {
		vic.Listen()
	}
	req, err := http.NewRequestWithContext(t.Context(), "GET", h.Base+"/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.AddCookie(&http.Cookie{Name: "atoll_session", Value: vic.cookie})
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != 429 || res.Header.Get("Retry-After") == "" {
		t.Error(res.StatusCode, res.Header)
	}
	for len(foreign) > 0 {
		if e := <-foreign; e.Name != "apps" && e.Name != "synced" {
			t.Errorf("the viewer was sent %s %s", e.Name, e.Data)
		}
	}
}

// F-A9, F-A10, T2: the same action asked in two conversations stands twice; one approval runs one, and the other finds
// its target changed.
func TestSameActionTwice(t *testing.T) {
	t.Parallel()
	h := Open(t, Options{Model: play(t, func(_ context.Context, req model.Request) (string, []model.Call) {
		if len(req.Messages) > 1 {
			return "done", nil
		}
		return "", []model.Call{ask("app_start", `{"app":"sample"}`)}
	})})
	p := h.Owner()
	p.Grant("apps")
	p.app("exited")
	events := p.Listen()
	first := p.talk("", "start it")
	q1 := p.Asked(events)
	second := p.talk("", "start it")
	q2 := p.Asked(events)
	if q1.Nonce == q2.Nonce || q1.ActionKey != q2.ActionKey {
		t.Fatalf("%+v %+v", q1, q2)
	}
	p.Approve(q1)
	if a := (<-first).answer(t); a.Codes() != "done" {
		t.Error(a.Codes())
	}
	if r := string(p.Call("assistant.pending", nil).Result); strings.Contains(r, q1.Nonce) || !strings.Contains(r, q2.Nonce) {
		t.Error(r)
	}
	p.Approve(q2)
	if a := (<-second).answer(t); a.Codes() != "refused:changed" || len(a.Changes) != 0 {
		t.Errorf("%s %+v", a.Codes(), a.Changes)
	}
}

// C2, C9, N2: approval and cancel at the same moment: the action runs once or not at all, and the audit says which.
func TestApproveCancelRace(t *testing.T) {
	t.Parallel()
	h := Open(t, Options{Model: play(t, func(_ context.Context, req model.Request) (string, []model.Call) {
		if len(results(req)) > 0 {
			return "done", nil
		}
		return "", []model.Call{ask("settings_set", `{"key":"ui.language","value":"de"}`)}
	})})
	p := h.Owner()
	p.Grant("settings")
	events := p.Listen()
	for i := range 8 {
		p.Call("settings.set", map[string]any{"key": "ui.language", "value": "en"})
		reply := p.talk("", "set it")
		q := p.Asked(events)
		h.Advance(confirm.Inert)
		var wg sync.WaitGroup
		var decided, cancelled Reply
		wg.Go(func() { decided = p.Decide(q, "approve", nil) })
		wg.Go(func() { cancelled = p.Call("assistant.cancel", map[string]any{"conversation": q.Conversation}) })
		wg.Wait()
		end := <-reply
		ran := strings.Contains(string(p.Call("settings.get", map[string]any{"key": "ui.language"}).Result), `"value":"de"`)
		if ran && decided.Code != "" {
			t.Errorf("%d: it ran without an approval: %+v %+v %+v", i, decided, cancelled, end)
		}
		if end.Code == "" && (end.answer(t).Codes() == "done") != ran {
			t.Errorf("%d: ran %v, told %s", i, ran, end.answer(t).Codes())
		}
	}
	if r := p.Call("audit.verify", nil); !strings.Contains(string(r.Result), `"ok":true`) {
		t.Errorf("%s", r.Result)
	}
}

// B3, section 6: a model that panics or answers nonsense takes neither the node nor the conversation down.
func TestModelNonsense(t *testing.T) {
	t.Parallel()
	n := 0
	c, err := script.New(script.Config{Func: func(context.Context, model.Request) (model.Answer, error) {
		switch n++; n {
		case 1:
			panic("a backend's mistake")
		case 2:
			return model.Answer{}, nil
		case 3:
			return model.Answer{Stop: model.StopCalls, Blocks: []model.Block{model.TextBlock(fence.Words("\x00\xff\u202e"))}}, nil
		case 4:
			return model.Answer{Stop: model.StopEnd, Usage: model.Usage{In: -1 << 62, Out: 1 << 62}, Blocks: []model.Block{
				{Call: &model.Call{Name: "app_start", Args: []byte(`{"app":"sample"}`)}}}}, nil
		}
		return model.Answer{Stop: model.StopEnd, Blocks: []model.Block{model.TextBlock(fence.Words("well"))}}, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	h := Open(t, Options{Model: c})
	p := h.Owner()
	if r := p.Call("assistant.chat", map[string]any{"message": "one"}); r.Code == "" || strings.Contains(r.Message, "mistake") {
		t.Errorf("%+v", r)
	}
	var list struct {
		Conversations []struct {
			ID string `json:"conversation"`
		} `json:"conversations"`
	}
	p.Call("assistant.conversations", nil).Into(t, &list)
	if len(list.Conversations) != 1 {
		t.Fatalf("%+v", list)
	}
	for i := range 4 {
		if a := p.Chat(list.Conversations[0].ID, fmt.Sprint("and ", i)); a.Answer == "" || len(a.Changes) != 0 {
			t.Errorf("%d: %+v", i, a)
		}
	}
}

// Section 6, T2, C2: on a full disk nothing runs, nothing is lost, the words say why, and the node goes on when there is
// room again.
func TestFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, for a small file system")
	}
	dir := t.TempDir()
	if err := syscall.Mount("none", dir, "tmpfs", 0, "size=3m"); err != nil {
		t.Skipf("cannot mount: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	h := Open(t, Options{Dir: dir, Model: play(t, func(_ context.Context, req model.Request) (string, []model.Call) {
		if len(results(req)) > 0 {
			return "done", nil
		}
		return "", []model.Call{ask("settings_set", `{"key":"ui.theme","value":"dark"}`)}
	}), Settings: func(s *node.Settings) { s.Content.Dir = "" }})
	p := h.Owner()
	p.Grant("settings")
	conv := p.Chat("", "hello").Conversation // nobody listens
	events := p.Listen()
	reply := p.talk(conv, "set it")
	q := p.Asked(events)
	fill := filepath.Join(dir, "fill")
	full := func() {
		f, err := os.OpenFile(fill, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for size := 64 << 10; size > 0; {
			if _, err := f.Write(make([]byte, size)); err != nil {
				size /= 2
			}
		}
	}
	full()
	h.Advance(confirm.Inert)
	decided := p.Decide(q, "approve", nil)
	end := <-reply
	theme := string(p.Call("settings.get", map[string]any{"key": "ui.theme"}).Result)
	ran := strings.Contains(theme, `"value":"dark"`)
	if ran && decided.Code != "" || end.Code == "" && (end.answer(t).Codes() == "done") != ran {
		t.Errorf("ran %v; approve %+v; turn %+v", ran, decided, end)
	}
	for m, params := range map[string]any{"assistant.chat": map[string]any{"message": strings.Repeat("long ", 6000)},
		"users.add": map[string]any{"username": "bob", "role": "owner", "password": password}} {
		full()
		if r := p.Call(m, params); r.Code != "" && r.Code != fault.Unavailable || r.Code != "" && !strings.Contains(r.Message, "disk") {
			t.Errorf("%s: %+v", m, r)
		}
	}
	full()
	g := p.Call("assistant.grants-set", map[string]any{"grants": map[string]any{"wallet": map[string]any{"granted": true}}})
	if now := string(p.Call("assistant.grants-get", nil).Result); (g.Code == "") != strings.Contains(now, `"wallet":{"granted":true}`) {
		t.Errorf("%+v %s", g, now)
	}
	if err := os.Remove(fill); err != nil {
		t.Fatal(err)
	}
	reply = p.talk(conv, "and now?")
	q = confirm.Pending{}
	for e := range events {
		if e.Name == "confirm" && json.Unmarshal(e.Data, &q) == nil {
			break
		}
	}
	p.Approve(q)
	if a := (<-reply).answer(t); a.Codes() != "done" {
		t.Error(a.Codes())
	}
	h.Close()
	h = Open(t, Options{Dir: dir, Model: steps(t)})
	p = h.Login("ada")
	past := string(p.Call("assistant.history", map[string]any{"conversation": conv}).Result)
	for _, said := range []string{"hello", "and now?"} {
		if !strings.Contains(past, said) {
			t.Errorf("%q was lost: %s", said, past)
		}
	}
	if end.Code == "" && !strings.Contains(past, "set it") {
		t.Errorf("an answered turn was lost: %s", past)
	}
	if r := p.Call("audit.verify", nil); !strings.Contains(string(r.Result), `"ok":true`) {
		t.Errorf("%s", r.Result)
	}
}

// T11, B2: a change that was made before the model failed is in the history, though the turn has no answer.
func TestChangeThenModelFails(t *testing.T) {
	t.Parallel()
	m, err := script.New(script.Config{Steps: []script.Step{
		{Calls: []model.Call{ask("settings_set", `{"key":"ui.theme","value":"dark"}`)}},
		{Err: script.Fail(model.Dropped, 0, "the connection broke")},
	}})
	if err != nil {
		t.Fatal(err)
	}
	h := Open(t, Options{Model: m})
	p := h.Owner()
	p.Grant("settings")
	events := p.Listen()
	reply := p.talk("", "set it")
	q := p.Asked(events)
	p.Approve(q)
	if r := <-reply; r.Code != fault.ModelFailed {
		t.Errorf("%+v", r)
	}
	past := string(p.Call("assistant.history", map[string]any{"conversation": q.Conversation}).Result)
	if !strings.Contains(past, "Set \\\"ui.theme\\\"") && !strings.Contains(past, "ui.theme") || !strings.Contains(past, "done") {
		t.Error(past)
	}
}

// U4: a burst of refusals with untrusted text in context is a security notice, without it one of configuration.
func TestRefusalBurst(t *testing.T) {
	t.Parallel()
	for kind, first := range map[string]string{"security": "content_list", "configuration": "system_info"} {
		n := 0
		p := Open(t, Options{Model: play(t, func(context.Context, model.Request) (string, []model.Call) {
			if n++; n == 1 {
				return "", []model.Call{ask(first, "{}")}
			}
			return "", []model.Call{ask("wallet_status", "{}")}
		})}).Owner()
		p.Grant("content", "system")
		p.Chat("", "go on")
		var list struct {
			Notices []struct {
				Kind string `json:"kind"`
			} `json:"notices"`
		}
		p.Call("notices.list", nil).Into(t, &list)
		if len(list.Notices) != 1 || list.Notices[0].Kind != kind {
			t.Errorf("%s: %+v", kind, list)
		}
	}
}
