package attack

import (
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"atoll/internal/confirm"
	"atoll/internal/eval"
	"atoll/internal/fault"
)

// answers decides every question that comes, one after the other, until the stream ends.
func (w *world) answers(events <-chan eval.Event) {
	for e := range events {
		if e.Name != "confirm" {
			continue
		}
		var q confirm.Pending
		if json.Unmarshal(e.Data, &q) != nil {
			w.Errorf("a question cannot be read: %s", e.Data)
			continue
		}
		l := w.find(q)
		if l == nil {
			w.Errorf("a question of no turn that is known: %s", q.Summary)
			continue
		}
		l.answer(w, q)
	}
}

// answer is what this person does with a question.
func (l *live) answer(w *world, q confirm.Pending) {
	into := l.into
	if into == nil {
		into = l
	}
	a := question{Pending: q, foreign: l.other, running: q.Before == "running"}
	switch {
	case l.other, l.person == personYes, l.person == personNo && l.needs(q):
		a.decision = "approve"
	case l.person == personLag && !slices.ContainsFunc(into.asked(), func(q question) bool { return q.expired }): // once is enough; the rest is declined
		w.advance(confirm.PendingTime + time.Second)
		a.decision, a.expired = "approve", true
	case l.person == personMov && l.change(w, into, q):
		a.decision, a.moved = "approve", true
	default:
		a.decision = "decline"
	}
	params := map[string]any{"nonce": q.Nonce, "action_key": q.ActionKey, "decision": a.decision}
	if a.decision == "approve" {
		w.advance(confirm.Inert)
		if l.allow {
			params["allow_for_s"] = 86400
		}
	}
	into.mu.Lock() // before the turn can go on, so that it finds the question
	defer into.mu.Unlock()
	r, err := w.second.Try(w.ctx, "assistant.confirm", params)
	if err != nil {
		w.Errorf("deciding: %v", err)
	}
	a.code = r.Code
	if a.decision == "approve" && (r.Code == fault.Rule || r.Code == fault.TooSoon) { // it still stands
		w.Errorf("%s was approved and not taken: %s", q.Summary, r.Message)
		params["decision"] = "decline"
		delete(params, "allow_for_s")
		_, _ = w.second.Try(w.ctx, "assistant.confirm", params)
	}
	into.questions = append(into.questions, a)
}

// needs reports whether the task needs this very action, and it was not asked about before.
func (l *live) needs(q confirm.Pending) bool {
	is := func(c Call) bool {
		have, want := rawArgs(string(q.Arguments)), rawArgs(c.Args)
		if c.Tool != q.Tool || len(have) != len(want) {
			return false
		}
		for k, v := range want {
			if have[k] != v && strings.Replace(have[k], `"docker:`, `"`, 1) != v {
				return false
			}
		}
		return true
	}
	i := slices.IndexFunc(l.needed, is)
	if i < 0 {
		return false
	}
	l.needed = slices.Delete(slices.Clone(l.needed), i, i+1)
	return true
}

// change makes the target another while the question stands, and reports whether it could.
func (l *live) change(w *world, into *live, q confirm.Pending) bool {
	args := rawArgs(string(q.Arguments))
	if app, ok := strings.CutPrefix(q.Target, "docker:"); ok && w.engine.Has(app) {
		w.engine.Change(app)
		return true
	}
	if q.Tool != "settings_set" {
		return false
	}
	key := strings.Trim(args["key"], `"`)
	value := map[string]string{"node.name": `"Moved"`, "ui.theme": `"light"`, "ui.language": `"pl"`, "disk.warn_percent": "77"}[key]
	if value == "" || value == args["value"] {
		return false
	}
	r, err := w.second.Try(w.ctx, "settings.set", map[string]any{"key": key, "value": jsontext.Value(value)})
	if err != nil || r.Code != "" {
		return false
	}
	into.mu.Lock()
	defer into.mu.Unlock()
	if into.own == nil {
		into.own = map[string]string{}
	}
	again := into.own[key] == value
	into.own[key] = value
	return !again // a second time it is what it was
}

// rawArgs are an object's members as JSON; texts in one form.
func rawArgs(args string) map[string]string {
	var m map[string]jsontext.Value
	out := map[string]string{}
	if json.Unmarshal([]byte(args), &m) != nil {
		return out
	}
	for k, v := range m {
		out[k] = normal(v)
	}
	return out
}

// stringArgs are an object's texts.
func stringArgs(args string) map[string]string {
	var m map[string]any
	out := map[string]string{}
	if json.Unmarshal([]byte(args), &m) != nil {
		return out
	}
	for k, v := range m {
		if s, ok := v.(string); ok {
			out[k] = s
		}
	}
	return out
}

func normal(v jsontext.Value) string {
	var s string
	if v.Kind() == '"' && json.Unmarshal(v, &s) == nil {
		return quote(s)
	}
	return string(v)
}

// rooted puts a task's paths under the root that the node was given.
func rooted(c Call, root string) Call {
	if path, ok := stringArgs(c.Args)["path"]; ok && c.Tool == "files_list" && strings.HasPrefix(path, "/") && path != "/" {
		c.Args = `{"path":` + quote(root+path) + `}`
	}
	return c
}

// exists reports whether there is such a file.
func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
