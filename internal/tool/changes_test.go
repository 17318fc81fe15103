package tool

import (
	"testing"

	"atoll/internal/fault"
	"atoll/internal/grant"
)

// T11: a change that was approved and did not work stands in the host's list too, as failed: whatever the model claims of it,
// the person reads that it was tried.
func TestFailedChangeIsListed(t *testing.T) {
	b := newBench(t)
	b.open(grant.Apps)
	b.rooms.fail = fault.New(fault.Unavailable, "the engine is down")
	turn := b.begin()
	out := b.run(turn, call("app_stop", `{"app":"jellyfin"}`))
	b.approve(b.pending())
	if r := <-out; !r[0].IsError {
		t.Error(r[0].Text.Prompt())
	}
	if ch := turn.Changes(); len(ch) != 1 || ch[0].Outcome != "failed" || ch[0].Summary != `Stop the app "jellyfin": failed` {
		t.Errorf("%+v", ch)
	}
	if n := len(b.records("outcome")); codes(turn) != "failed:unavailable" || n != 1 {
		t.Errorf("%s, %d outcomes in the audit", codes(turn), n)
	}
}
