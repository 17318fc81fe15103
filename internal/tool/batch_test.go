package tool

import (
	"fmt"
	"strings"
	"testing"

	"atoll/internal/grant"
	"atoll/internal/model"
)

// T10: each result carries its own call's identifier and text, also where reads overlap and end out of order.
func TestEachCallItsResult(t *testing.T) {
	b := newBench(t)
	b.open(grant.Apps, grant.Settings, grant.System)
	var calls []*model.Call
	want := []string{"app_logs", "invalid_arguments", "system_info", "no_such", "app_logs", "wallet", "settings_get"}
	for i, c := range []*model.Call{call("app_logs", `{"app":"jellyfin"}`), call("app_logs", `{"lines":1}`), call("system_info", ""), call("no_such", ""),
		call("app_logs", `{"app":"photos","lines":9}`), call("wallet_status", ""), call("settings_get", "")} {
		c.ID = fmt.Sprintf("call_%d", i)
		calls = append(calls, c)
	}
	b.rooms.logText = "only the log says so"
	turn := b.begin()
	results := <-b.run(turn, calls...)
	if len(results) != len(calls) {
		t.Fatalf("%d results of %d calls", len(results), len(calls))
	}
	for i, r := range results {
		if r.ID != calls[i].ID || r.Name != calls[i].Name {
			t.Errorf("call %d: the result is of %s %s", i, r.ID, r.Name)
		}
		isLog := strings.Contains(r.Text.Payload(), b.rooms.logText)
		if isLog != (want[i] == "app_logs") || r.IsError != (i == 1 || i == 3 || i == 5) {
			t.Errorf("%s: error %v, %s", want[i], r.IsError, r.Text.Prompt())
		}
	}
	if got := codes(turn); got != "done refused:invalid_arguments done refused:unknown_tool done refused:not_granted done" {
		t.Error(got)
	}
}

// T10: the question about a change is put when its turn comes, so that what it shows is true after the change before it.
func TestChangesTakeTurns(t *testing.T) {
	b := newBench(t)
	b.open(grant.Apps)
	out := b.run(b.begin(), call("app_stop", `{"app":"jellyfin"}`), call("app_start", `{"app":"jellyfin"}`), call("app_restart", `{"app":"photos"}`))
	for _, want := range []struct{ tool, before string }{{"app_stop", "running"}, {"app_start", "stopped"}, {"app_restart", "exited"}} {
		p := b.pending()
		b.notAsked() // one at a time
		if w := b.confirms.Waiting(b.owner); p.Tool != want.tool || p.Before != want.before || len(w) != 1 {
			t.Errorf("asked about %s of %s with %d waiting, want %s of %s", p.Tool, p.Before, len(w), want.tool, want.before)
		}
		b.approve(p)
	}
	for _, r := range <-out {
		if r.IsError {
			t.Error(r.Text.Prompt())
		}
	}
}
