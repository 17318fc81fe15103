package confirm

import (
	"context"
	"testing"

	"atoll/internal/caller"
)

// G6, C9: with a session its questions end at once, those of the account's other sessions and of others stand.
func TestQuestionsEndWithTheirSession(t *testing.T) {
	b := newBench(t)
	ctx, cancel := context.WithCancel(t.Context())
	phone := caller.Operator(2, "mia", caller.Member, "phone", "")
	ended, outEnded := b.ask(ctx, question(member, "jellyfin"))
	kept, outKept := b.ask(ctx, question(phone, "jellyfin"))
	others, outOthers := b.ask(ctx, question(other, "jellyfin"))
	b.room.EndSessions(ctx, 2, []string{member.Session()}, false)
	standing := map[string]bool{}
	for _, p := range b.room.Waiting(owner) {
		standing[p.Nonce] = true
	}
	if standing[ended.Nonce] || !standing[kept.Nonce] || !standing[others.Nonce] || len(standing) != 2 {
		t.Errorf("of the ended session %v, of its account's other one %v, of another account %v", standing[ended.Nonce], standing[kept.Nonce], standing[others.Nonce])
	}
	cancel()
	for _, out := range []<-chan answer{outEnded, outKept, outOthers} {
		if got := <-out; got.ticket != nil || got.err == nil {
			t.Error("a ticket came of it")
		}
	}
}
