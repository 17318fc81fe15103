package assistant

import (
	"testing"

	"atoll/internal/grant"
	"atoll/internal/history"
)

// M2: a peer that never stops asking fills no disk: neither by new conversations nor by one without end, and what it
// asked last is still there.
func TestPeersHistoryIsBounded(t *testing.T) {
	b := newBench(t, sentences(t))
	b.grant(grant.System)
	b.allow(bob, grant.System)
	kept := func() (list history.Listing, turns int) {
		list, err := b.history.Conversations(t.Context(), bob, history.Page{Limit: 1000})
		b.must(err)
		for _, c := range list.Conversations {
			turns += c.Turns
		}
		return list, turns
	}
	seen, last := map[string]int{}, ""
	for i := range maxKeptTurns + 3*maxPeerLength {
		_, a, f := b.ask(bob, last, "how full is the disk?")
		if f != nil {
			t.Fatalf("question %d: %v", i, f)
		}
		last = a.Conversation
		seen[last]++
	}
	list, turns := kept()
	if turns > maxKeptTurns || turns < maxKeptTurns-maxPeerLength || list.Conversations[0].ID != last {
		t.Errorf("%d turns in %d conversations are kept", turns, len(list.Conversations))
	}
	for c, n := range seen {
		if n > maxPeerLength {
			t.Errorf("%s has %d turns", c, n)
		}
	}
	if _, a, f := b.ask(bob, "", "how full is the disk?"); f != nil || a.Conversation == last {
		t.Errorf("%+v, %v", a, f)
	}
}
