package eval

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"atoll/internal/fault"
	"atoll/internal/model"
)

// add makes an account and logs it in.
func (p *Person) add(name, role string) *Person {
	p.h.t.Helper()
	if r := p.Call("users.add", map[string]any{"username": name, "role": role, "password": password}); r.Code != "" {
		p.h.t.Fatalf("users.add: %s", r.Message)
	}
	return p.h.Login(name)
}

// talk sends a message and gives the answer when it is there.
func (p *Person) talk(conversation, message string) <-chan Reply {
	out := make(chan Reply, 1)
	go func() {
		r, err := p.Try(context.Background(), "assistant.chat", map[string]any{"conversation": conversation, "message": message})
		if err != nil {
			r.Message = err.Error()
		}
		out <- r
	}()
	return out
}

func (r Reply) answer(t *testing.T) Answer {
	t.Helper()
	var a Answer
	if r.Code != "" {
		t.Fatalf("chat: %s %s", r.Code, r.Message)
	}
	r.Into(t, &a)
	return a
}

// A2, section 6: an expiry that is no future time opens nothing; the year 1 is not "for good".
func TestGrantExpiryYearOne(t *testing.T) {
	t.Parallel()
	p := Open(t, Options{Model: steps(t)}).Owner()
	for _, at := range []string{"0001-01-01T00:00:00Z", "1970-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00"} {
		r := p.Call("assistant.grants-set", map[string]any{"grants": map[string]any{"apps": map[string]any{"granted": true, "expires_at": at}}})
		if r.Code != fault.InvalidParams {
			t.Errorf("%s: %q %s", at, r.Code, r.Result)
		}
	}
	if got := string(p.Call("assistant.grants-get", nil).Result); strings.Contains(got, `"granted":true`) {
		t.Error(got)
	}
}

// A1: a damaged grants file is closed, whatever the damage; nothing half-read opens a category for good.
func TestGrantsFileDamaged(t *testing.T) {
	for name, text := range map[string]string{
		"empty": "", "cut": `{"mode":"confirm","grants":{"apps":{`, "null grant": `{"mode":"confirm","grants":{"apps":null}}`,
		"from without end": `{"mode":"confirm","grants":{"apps":{"from":"2020-01-01T00:00:00Z"}}}`,
		"null end":         `{"mode":"confirm","grants":{"apps":{"from":"2020-01-01T00:00:00Z","expires_at":null}}}`,
		"end without from": `{"mode":"confirm","grants":{"apps":{"expires_at":"9999-01-01T00:00:00Z"}}}`,
		"twice":            `{"mode":"confirm","grants":{"apps":{},"apps":{}}}`, "other case": `{"mode":"confirm","grants":{"Apps":{}}}`,
		"null": "null", "tail": `{"mode":"confirm","grants":{"apps":{}}}` + "\x00\x00",
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "assistant", "grants.json")
			h := Open(t, Options{Dir: dir, Model: steps(t)})
			h.Owner()
			h.Close()
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			p := Open(t, Options{Dir: dir, Model: steps(t)}).Login("ada")
			if got := string(p.Call("assistant.grants-get", nil).Result); strings.Contains(got, `"granted":true`) {
				t.Error("open: " + got)
			}
			if aside, _ := filepath.Glob(path + ".damaged-*"); len(aside) != 1 {
				t.Error("not set aside")
			}
			if got := string(p.Call("notices.list", nil).Result); !strings.Contains(got, "grants file was damaged") {
				t.Error("not reported")
			}
		})
	}
}

// C4: a timed grant that closed because the clock was set back stays closed after a restart.
func TestClockBackThenRestart(t *testing.T) {
	dir := t.TempDir()
	h := Open(t, Options{Dir: dir, Model: steps(t)})
	p := h.Owner()
	until := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	if r := p.Call("assistant.grants-set", map[string]any{"grants": map[string]any{"apps": map[string]any{"granted": true, "expires_at": until}}}); r.Code != "" {
		t.Fatal(r.Message)
	}
	h.Advance(40 * time.Minute)
	p.Call("settings.set", map[string]any{"key": "ui.theme", "value": "dark"})
	h.mu.Lock()
	h.wall = h.wall.Add(-20 * time.Minute)
	h.mu.Unlock()
	if got := string(p.Call("assistant.grants-get", nil).Result); strings.Contains(got, `"granted":true`) {
		t.Fatal("open with the clock set back: " + got)
	}
	h.Close()
	h = Open(t, Options{Dir: dir, Model: steps(t)}) // its clock is 20 minutes further back still
	if got := string(h.Login("ada").Call("assistant.grants-get", nil).Result); strings.Contains(got, `"granted":true`) {
		t.Error("the restart opened it again: " + got)
	}
}

// T13: the same call three times is a loop too where each is refused for want of a grant.
func TestLoopOfRefusals(t *testing.T) {
	t.Parallel()
	for _, call := range []model.Call{ask("wallet_status", "{}"), ask("app_stop", `{"app":"nonesuch"}`)} {
		h := Open(t, Options{Model: play(t, func(context.Context, model.Request) (string, []model.Call) { return "", []model.Call{call} })})
		p := h.Owner()
		if call.Name == "app_stop" {
			p.Grant("apps")
		}
		if a := p.Chat("", "go on"); a.Rounds > 4 || a.Answer == "" {
			t.Errorf("%s: %d rounds, %s", call.Name, a.Rounds, a.Codes())
		}
		h.Close()
	}
}

// T6: three invalid calls of one name in a row end the turn, also where a valid one follows in the same answer.
func TestInvalidRunInOneAnswer(t *testing.T) {
	t.Parallel()
	n := 0
	h := Open(t, Options{Model: play(t, func(context.Context, model.Request) (string, []model.Call) {
		n++
		return "", []model.Call{ask("app_stop", `{"nope":1}`), ask("app_stop", `{"app":5}`), ask("app_stop", `[]`), ask("app_stop", fmt.Sprintf(`{"app":"x%d"}`, n))}
	})})
	p := h.Owner()
	p.Grant("apps")
	if a := p.Chat("", "go on"); a.Rounds != 1 || !strings.Contains(a.Answer, "sorry") {
		t.Errorf("%d rounds, %s, %q", a.Rounds, a.Codes(), a.Answer)
	}
}

// H3, F-E8: a near miss of a private tool's name carries its arguments to the disk no more than the tool itself.
func TestNearMissOfPrivateTool(t *testing.T) {
	t.Parallel()
	const canary = "canary-5d20af"
	var calls []model.Call
	for _, name := range []string{"files_list ", "Files_List", "files-list", "files.list", ""} {
		calls = append(calls, ask(name, `{"path":"/`+canary+`"}`))
	}
	h := Open(t, Options{Model: steps(t, calls)})
	p := h.Owner()
	p.Grant("files")
	p.Chat("", "look")
	h.Close()
	h.noTrace(t, canary)
}

// noTrace fails if the text stands in a file of the data directory or in the log.
func (h *House) noTrace(t *testing.T, text string) {
	t.Helper()
	err := filepath.Walk(h.Dir, func(path string, info os.FileInfo, err error) error {
		if err != nil || !info.Mode().IsRegular() {
			return err
		}
		raw, err := os.ReadFile(path)
		if strings.Contains(string(raw), text) {
			t.Errorf("%s stands in %s", text, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(h.Logged(), text) {
		t.Errorf("%s stands in the log", text)
	}
}

// T8: nothing is offered once untrusted text is in context, though the refusal came before it.
func TestNoOfferAfterUntrusted(t *testing.T) {
	t.Parallel()
	for name, rounds := range map[string][][]model.Call{
		"later round": {{ask("wallet_status", "{}")}, {ask("content_list", "{}")}},
		"same answer": {{ask("wallet_status", "{}"), ask("content_list", "{}")}},
	} {
		p := Open(t, Options{Model: steps(t, rounds...)}).Owner()
		p.Grant("content")
		if a := p.Chat("", "look"); len(a.Offers) != 0 || !strings.Contains(a.Codes(), "refused:not_granted") {
			t.Errorf("%s: %+v %s", name, a.Offers, a.Codes())
		}
	}
}

// C7: an argument that stands in untrusted text is pointed out where JSON writes it differently.
func TestOccursInEscapedText(t *testing.T) {
	t.Parallel()
	for _, name := range []string{`say "hi" now`, `back\slash`, "grüße aus <b>"} {
		dir := t.TempDir()
		if err := os.MkdirAll(filepath.Join(dir, "content"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "content", name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		value, _ := json.Marshal(name)
		h := Open(t, Options{Dir: dir, Model: steps(t, []model.Call{ask("content_list", "{}")}, []model.Call{ask("settings_set", `{"key":"node.name","value":`+string(value)+`}`)})})
		p := h.Owner()
		p.Grant("content", "settings")
		wait(t, "the file to be indexed", func() bool { return strings.Contains(string(p.Call("content.list", nil).Result), `"path"`) })
		events := p.Listen()
		reply := p.talk("", "look")
		q := p.Asked(events)
		if !strings.Contains(strings.Join(q.Warnings, "\n"), "also stands in text") {
			t.Errorf("%s: %q", name, q.Warnings)
		}
		p.Decide(q, "decline", nil)
		<-reply
		h.Close()
	}
}

// Section 3: who may call what, for every method of the live table.
func TestRoleTable(t *testing.T) {
	t.Parallel()
	h := Open(t, Options{Model: steps(t)})
	p := h.Owner()
	member, viewer := p.add("mel", "member"), p.add("vic", "viewer")
	viewers := []string{"system.disk-status", "system.info", "system.history", "apps.list", "content.list", "mesh.status", "settings.get",
		"auth.logout", "auth.sessions", "auth.revoke", "auth.passwd"}
	members := []string{"assistant.chat", "assistant.cancel", "assistant.conversations", "assistant.history", "assistant.rename", "assistant.search",
		"assistant.export", "assistant.undo", "assistant.clear-history", "assistant.list-tools", "assistant.pending", "assistant.confirm",
		"apps.follow", "apps.logs", "apps.start", "apps.stop", "apps.restart", "notices.list"}
	open := []string{"auth.login", "auth.setup", "node.version"}
	var doc struct {
		Methods []struct {
			Name string `json:"name"`
		} `json:"methods"`
	}
	p.Call("rpc.discover", nil).Into(t, &doc)
	bad := map[string]any{"no_such_parameter": 1}
	for _, m := range doc.Methods {
		v := slices.Contains(viewers, m.Name) || slices.Contains(open, m.Name)
		if r := viewer.Call(m.Name, bad); (r.Status != 403) != v {
			t.Errorf("viewer %s: %d %s", m.Name, r.Status, r.Code)
		}
		if r := member.Call(m.Name, bad); (r.Status != 403) != (v || slices.Contains(members, m.Name)) {
			t.Errorf("member %s: %d %s", m.Name, r.Status, r.Code)
		}
		if r := p.Call(m.Name, bad); r.Status == 403 {
			t.Errorf("owner %s: %s", m.Name, r.Code)
		}
	}
}
