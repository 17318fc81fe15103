package history

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"atoll/internal/caller"
	"atoll/internal/fault"
	"atoll/internal/fence"
	"atoll/internal/store"
)

func wantTouched(t *testing.T, r *Room, c caller.Caller, id string, want ...string) {
	t.Helper()
	got, err := r.Touched(t.Context(), c, id)
	slices.Sort(got)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("touched %v, %v; want %v", got, err, want)
	}
}

// A5: what a conversation's words come from is on the disk with the results, survives a kill and an undo, adds up over
// turns, and belongs to its conversation and caller alone.
func TestTouched(t *testing.T) {
	dir := t.TempDir()
	r := newRoom(t, config(dir))
	turn := begin(t, r, peer, "", "how full is the disk?")
	id := turn.Conversation()
	must(t, turn.Round(t.Context(), call("a", "system_info", "{}"), []bool{false}, true))
	turn.Touch("system", "system")
	wantTouched(t, r, peer, id) // nothing of it is on the disk yet
	must(t, turn.Results(t.Context(), result("a", fence.Words("{}")), []bool{false}))
	wantTouched(t, r, peer, id, "system")

	killed := newRoom(t, config(copied(t, dir))) // as after kill -9 here
	wantTouched(t, killed, peer, id, "system")
	if again := begin(t, killed, peer, id, "and now?"); !slices.Equal(again.Touched(), []string{"system"}) {
		t.Errorf("the next turn knows of %v", again.Touched())
	} else {
		again.Abandon(t.Context())
	}

	must(t, turn.End(t.Context(), Ending{Answer: fence.Words("80 %"), Outcome: Done}))
	turn = begin(t, r, peer, id, "what do you share?")
	turn.Touch("content")
	must(t, turn.End(t.Context(), Ending{Answer: fence.Words("films"), Outcome: Done}))
	wantTouched(t, r, peer, id, "content", "system")
	_, err := r.Undo(t.Context(), peer, id)
	must(t, err)
	wantTouched(t, r, peer, id, "content", "system")

	other := say(t, r, peer, "", "hello", "hello")
	wantTouched(t, r, peer, other)
	for _, c := range []caller.Caller{anna, caller.Peer("another", "a peer")} {
		_, err := r.Touched(t.Context(), c, id)
		wantCode(t, err, fault.NotFound)
	}
	must(t, r.Clear(t.Context(), peer, other))
	_, err = r.Touched(t.Context(), peer, other)
	wantCode(t, err, fault.NotFound)
	must(t, r.Clear(t.Context(), peer, id))
	wantTouched(t, r, peer, say(t, r, peer, "", "anew", "yes")) // a number that is used again brings nothing along
	must(t, r.Clear(t.Context(), peer, ""))
	wantTouched(t, r, peer, say(t, r, peer, "", "anew", "yes"))
	_, err = r.Touched(t.Context(), peer, "no such")
	wantCode(t, err, fault.NotFound)
}

// H6: a turn whose file is lost under it takes what it touched along to the fresh one.
func TestTouchedOutlivesADamagedFile(t *testing.T) {
	dir := t.TempDir()
	cfg := config(dir)
	r := newRoom(t, cfg)
	turn := begin(t, r, peer, "", "q")
	turn.Touch("system")
	must(t, turn.Round(t.Context(), call("a", "system_info", "{}"), []bool{false}, false))
	met := false
	must(t, r.use(t.Context(), turn.f, func(*store.DB) error {
		if met = !met; met {
			return store.ErrDamaged
		}
		return nil
	}))
	must(t, turn.Results(t.Context(), result("a", fence.Words("{}")), []bool{false}))
	must(t, turn.End(t.Context(), Ending{Answer: fence.Words("ok"), Outcome: Done}))
	wantTouched(t, r, peer, turn.Conversation(), "system")
}

// A file of an earlier version has no table of what was touched and gets one.
func TestTouchedInAnOlderFile(t *testing.T) {
	dir := t.TempDir()
	name, err := fileName(anna)
	must(t, err)
	old := schema()
	old.Steps = old.Steps[:1]
	db, err := store.Open(t.Context(), store.Config{Path: filepath.Join(dir, name), Schemas: []store.Schema{old}, PageSize: pageSize})
	must(t, err)
	must(t, db.Close())
	r := newRoom(t, config(dir))
	wantTouched(t, r, anna, say(t, r, anna, "", "hello", "hello"))
}

// B4, M2: the owner's model is never asked to summarise what a peer said; the host does it.
func TestPeersAreSummarisedByTheHost(t *testing.T) {
	cfg := config(t.TempDir())
	asked := make(chan caller.Caller, 64)
	cfg.Summarise = func(_ context.Context, c caller.Caller, _ fence.Text, _ []TurnText) (fence.Text, error) {
		asked <- c
		return fence.Words("a model's summary"), nil
	}
	r := newRoom(t, cfg)
	id := ""
	for i := range foldAt + 2 {
		id = say(t, r, peer, id, fmt.Sprintf("question %d", i), "answer")
	}
	turn := begin(t, r, peer, id, "last")
	defer turn.Abandon(t.Context())
	if !turn.summary.IsOutside() || turn.folded == 0 {
		t.Errorf("folded %d turns into %q", turn.folded, turn.summary.Payload())
	}
	r.work.Wait()
	if len(asked) != 0 {
		t.Errorf("the model was asked for %s", <-asked)
	}
}

func copied(t *testing.T, dir string) string {
	t.Helper()
	to := t.TempDir()
	must(t, os.CopyFS(filepath.Join(to, "copy"), os.DirFS(dir)))
	return filepath.Join(to, "copy")
}
