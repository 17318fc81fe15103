package history

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"atoll/internal/fence"
)

// H1, C2: a call that can change something is on the disk before it runs: a copy of the files, taken as a crash would leave
// them, has it, and says that its outcome is unknown.
func TestRoundOfChangesIsWrittenFirst(t *testing.T) {
	dir, copied := t.TempDir(), t.TempDir()
	r := newRoom(t, config(dir))
	turn := begin(t, r, anna, "", "restart it")
	must(t, turn.Round(t.Context(), call("c1", "app_restart", `{"app":"x"}`), []bool{false}, false))
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		raw, err := os.ReadFile(f)
		must(t, err)
		must(t, os.WriteFile(filepath.Join(copied, filepath.Base(f)), raw, 0o600))
	}
	after := newRoom(t, config(copied))
	h, err := after.History(t.Context(), anna, turn.Conversation(), Span{})
	must(t, err)
	if last := h.Entries[len(h.Entries)-1].Blocks; len(last) != 1 || last[0].Tool != "app_restart" || !strings.Contains(last[0].Result, "outcome unknown") {
		t.Errorf("after a crash the conversation has %+v", last)
	}
	must(t, turn.Results(t.Context(), result("c1", fence.Ours("running")), []bool{false}))
	must(t, turn.End(t.Context(), Ending{Outcome: Done}))
}
