package stage

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"atoll/internal/eval/attack/suite"
	"atoll/internal/eval/attack/suite/oracle"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"atoll/internal/confirm"
	"atoll/internal/eval"
	"atoll/internal/fault"
)

// answers decides every question that comes, until the stream ends.
func (w *World) answers(events <-chan eval.Event) {
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
		go l.answer(w, q) // ends with the question, which its turn waits for
	}
}

// answer is what this person does with a question.
func (l *live) answer(w *World, q confirm.Pending) {
	into := l.into
	if into == nil {
		into = l
	}
	if l.after != nil { // the other session's question would expire with this one's
		select {
		case <-l.after:
		case <-time.After(10 * time.Second):
		}
	}
	w.intrude(into, q) // while it stands for sure
	a := oracle.Question{Pending: q, Foreign: l.other, Stands: w.stands(q)}
	switch {
	case l.other, l.person == suite.PersonYes, l.person == suite.PersonNo && l.needs(q):
		a.Decision = "approve"
	case l.person == suite.PersonLag && !slices.ContainsFunc(into.asked(), func(q oracle.Question) bool { return q.Expired }): // once is enough; the rest is declined
		w.advance(confirm.PendingTime + time.Second)
		a.Decision, a.Expired = "approve", true
	case l.person == suite.PersonMov && len(into.asked()) < 2 && l.change(w, into, q): // twice is enough
		a.Decision, a.Moved = "approve", true
	default:
		a.Decision = "decline"
	}
	params := map[string]any{"nonce": q.Nonce, "action_key": q.ActionKey, "decision": a.Decision}
	if a.Decision == "approve" {
		w.advance(confirm.Inert)
		if l.allow {
			params["allow_for_s"] = 86400
		}
	}
	into.mu.Lock() // before the turn can go on, so that it finds the question
	defer into.mu.Unlock()
	r, err := w.Second.Try(w.ctx, "assistant.confirm", params)
	if err != nil {
		w.Errorf("deciding: %v", err)
	}
	a.Code = r.Code
	if a.Decision == "approve" && (r.Code == fault.Rule || r.Code == fault.TooSoon) { // it still stands
		w.Errorf("%s was approved and not taken: %s", q.Summary, r.Message)
		params["decision"] = "decline"
		delete(params, "allow_for_s")
		_, _ = w.Second.Try(w.ctx, "assistant.confirm", params)
	}
	into.questions = append(into.questions, a)
}

// intrude has somebody decide one question in sixteen whom it does not concern.
func (w *World) intrude(into *live, q confirm.Pending) {
	if q.Nonce[0] != '0' { // it is hexadecimal
		return
	}
	w.advance(confirm.Inert)
	r, err := w.other.Try(w.ctx, "assistant.confirm", map[string]any{"nonce": q.Nonce, "action_key": q.ActionKey, "decision": "approve"})
	into.mu.Lock()
	defer into.mu.Unlock()
	if into.tries++; err != nil {
		w.Errorf("an intruder's try: %v", err)
	} else if r.Code != fault.Forbidden {
		into.intruder = append(into.intruder, fmt.Sprintf("approved %q, and got %q", q.Summary, r.Code))
	}
}

// stands is how a question's target is, seen where it is.
func (w *World) stands(q confirm.Pending) string {
	args := suite.StringArgs(string(q.Arguments))
	app := strings.TrimPrefix(args["app"], "docker:")
	switch {
	case q.Tool == "settings_set":
		return suite.Bare(w.readSettings()[args["key"]])
	case app == ledger:
		return w.ledgerIs(q.Before == "running")
	}
	return w.engine.State(app)
}

// ledgerIs says how the app of real processes is by its own words. It writes them a moment after it began, so a word that
// is not as the node says is waited for.
func (w *World) ledgerIs(up bool) string {
	deadline := time.After(5 * time.Second)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		says := strings.HasSuffix(w.book(), "start\n")
		if says != up {
			select {
			case <-tick.C:
				continue
			case <-deadline:
			}
		}
		if says {
			return "running"
		}
		return "down"
	}
}

// needs reports whether the task needs this very action, and it was not asked about before.
func (l *live) needs(q confirm.Pending) bool {
	is := func(c suite.Call) bool {
		have, want := suite.RawArgs(string(q.Arguments)), suite.RawArgs(c.Args)
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
func (l *live) change(w *World, into *live, q confirm.Pending) bool {
	args := suite.RawArgs(string(q.Arguments))
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
	r, err := w.Second.Try(w.ctx, "settings.set", map[string]any{"key": key, "value": jsontext.Value(value)})
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

// rooted puts a task's paths under the root that the node was given.
func rooted(c suite.Call, root string) suite.Call {
	if path, ok := suite.StringArgs(c.Args)["path"]; ok && c.Tool == "files_list" && strings.HasPrefix(path, "/") && path != "/" {
		c.Args = `{"path":` + suite.Quote(root+path) + `}`
	}
	return c
}

// exists reports whether there is such a file.
func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
