package mesh

import (
	"testing"
	"time"

	"atoll/internal/fault"
)

// M1, C4: an invite that has ended is none, though another one is open and so a stranger gets as far as to bring it.
func TestEndedInviteBesideAnOpenOne(t *testing.T) {
	a, b := newHouse(t, "alder"), newHouse(t, "birch")
	short := a.invited()
	var long Invite
	a.must("mesh.invite", map[string]any{"for_s": 24 * 3600}, &long)
	a.mu.Lock()
	a.skew += time.Hour
	a.mu.Unlock()
	if err := b.accept(short); !refused(err, fault.Forbidden) {
		t.Errorf("an ended invite was taken: %v", err)
	}
	if len(a.snapshot()) != 0 {
		t.Errorf("%+v", a.shownPeers())
	}
	if err := b.accept(long); err != nil {
		t.Errorf("the open one was refused: %v", err)
	}
}
