package history

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"atoll/internal/fault"
	"atoll/internal/fence"
	"atoll/internal/model"
)

// H7: the list has the last used first, with what was counted, and can be read in pages.
func TestConversations(t *testing.T) {
	cfg := config(t.TempDir())
	now := time.Date(2026, 12, 2, 9, 0, 0, 0, time.UTC)
	cfg.Now = func() time.Time { now = now.Add(time.Second); return now }
	r := newRoom(t, cfg)
	var ids []string
	for i := range 5 {
		ids = append(ids, say(t, r, anna, "", fmt.Sprintf("conversation\n number %d, with a message so long that no title holds all of its many words", i), "yes"))
	}
	turn := begin(t, r, anna, ids[1], "again")
	must(t, turn.End(t.Context(), Ending{Answer: fence.Words("ok"), Outcome: Done, Usage: Usage{1, 2, 3, 4}, CostUSD: 0.5}))
	turn = begin(t, r, anna, ids[1], "once more")
	must(t, turn.End(t.Context(), Ending{Answer: fence.Words("ok"), Outcome: Done, Usage: Usage{1, 2, 3, 4}, CostUSD: 0.25}))
	list, err := r.Conversations(t.Context(), anna, Page{})
	must(t, err)
	var got []string
	for _, c := range list.Conversations {
		got = append(got, c.ID)
	}
	if want := []string{ids[1], ids[4], ids[3], ids[2], ids[0]}; fmt.Sprint(got) != fmt.Sprint(want) || list.More {
		t.Errorf("listed %v, want %v", got, want)
	}
	first := list.Conversations[0]
	if first.Usage != (Usage{2, 4, 6, 8}) || first.CostUSD != 0.75 || first.Turns != 3 || !first.Updated.After(first.Created) {
		t.Errorf("counted: %+v", first)
	}
	if n := len([]rune(first.Title)); n > maxTitle+1 || !strings.HasPrefix(first.Title, "conversation number 1, with") || !strings.HasSuffix(first.Title, "…") {
		t.Errorf("title %q", first.Title)
	}
	page, err := r.Conversations(t.Context(), anna, Page{Limit: 2, Before: ids[4]})
	must(t, err)
	if len(page.Conversations) != 2 || page.Conversations[0].ID != ids[3] || !page.More {
		t.Errorf("page: %+v", page)
	}
	_, err = r.Conversations(t.Context(), anna, Page{Before: "9-0123456789abcdef"})
	wantCode(t, err, fault.InvalidParams)
	none, err := r.Conversations(t.Context(), bert, Page{})
	must(t, err)
	if none.Conversations == nil || len(none.Conversations) != 0 || none.Problems != nil {
		t.Errorf("bert's: %+v", none)
	}
}

// A transcript reads like the conversation, in pages; a turn under way is in it.
func TestHistory(t *testing.T) {
	r := newRoom(t, config(t.TempDir()))
	id := ""
	for i := range 10 {
		id = use(t, r, anna, id, fmt.Sprintf("m%d", i), fence.Outside("app_logs", "line"))
	}
	turn := begin(t, r, anna, id, "running")
	defer turn.Abandon(t.Context())
	must(t, turn.Round(t.Context(), call("z", "app_list", "{}"), []bool{false}, false))
	h, err := r.History(t.Context(), anna, id, Span{Limit: 3})
	must(t, err)
	if len(h.Entries) != 3 || h.Entries[2].Message != "running" || !h.Earlier || h.Turns != 11 || h.ID != id {
		t.Errorf("%+v", h)
	}
	if b := h.Entries[2].Blocks[0]; b.Tool != "app_list" || !strings.Contains(b.Result, "outcome unknown") || h.Entries[2].Outcome != Interrupted {
		t.Errorf("the turn under way: %+v", h.Entries[2])
	}
	if b := h.Entries[1].Blocks; b[0].Tool != "app_logs" || b[0].Arguments != `{"app":"x"}` || b[0].Result != "line" || b[0].Source != "app_logs" || b[1].Text != "answer to m9" {
		t.Errorf("blocks: %+v", b)
	}
	h, err = r.History(t.Context(), anna, id, Span{Before: 4, Limit: 50})
	must(t, err)
	if len(h.Entries) != 3 || h.Earlier || h.Entries[0].Message != "m0" {
		t.Errorf("the first page: %+v", h)
	}
}

// H7: a title can be changed; one that is none is refused and nothing changes.
func TestRename(t *testing.T) {
	r := newRoom(t, config(t.TempDir()))
	id := say(t, r, anna, "", "hello", "hello")
	must(t, r.Rename(t.Context(), anna, id, " My\n disk\x00 "))
	for _, bad := range []string{"", " \n", strings.Repeat("x", maxRename+1)} {
		wantCode(t, r.Rename(t.Context(), anna, id, bad), fault.InvalidParams)
	}
	list, err := r.Conversations(t.Context(), anna, Page{})
	must(t, err)
	if got := list.Conversations[0].Title; got != "My disk\uFFFD" {
		t.Errorf("title %q", got)
	}
}

// H7: the last turn goes out of the conversation, the model's next messages and the disk; what was done and what was
// spent stay said. Going back past what was folded brings the turns back word for word.
func TestUndo(t *testing.T) {
	dir := t.TempDir()
	r := newRoom(t, config(dir))
	id := say(t, r, anna, "", "first words", "first answer")
	turn := begin(t, r, anna, id, "restart the heron")
	changes := []Change{{Tool: "app_restart", Summary: "restarted heron", Outcome: "done"}}
	must(t, turn.End(t.Context(), Ending{Answer: fence.Words("heron runs"), Outcome: Done, Changes: changes, CostUSD: 1}))
	undone, err := r.Undo(t.Context(), anna, id)
	must(t, err)
	if undone.Message != "restart the heron" || fmt.Sprint(undone.Changes) != fmt.Sprint(changes) {
		t.Errorf("undone: %+v", undone)
	}
	text, _ := next(t, r, anna, id)
	if strings.Contains(text, "heron") || strings.Contains(onDisk(t, dir), "heron") || !strings.Contains(text, "first answer") {
		t.Errorf("after undo:\n%s", text)
	}
	list, err := r.Conversations(t.Context(), anna, Page{})
	must(t, err)
	if c := list.Conversations[0]; c.Turns != 1 || c.CostUSD != 1 {
		t.Errorf("listed: %+v", c)
	}
	for i := range 40 {
		id = say(t, r, anna, id, fmt.Sprintf("question %d.", i), fmt.Sprintf("answer %d.", i))
	}
	for i := 39; i >= 0; i-- {
		undone, err := r.Undo(t.Context(), anna, id)
		must(t, err)
		if undone.Message != fmt.Sprintf("question %d.", i) {
			t.Fatalf("undone %q at %d", undone.Message, i)
		}
		turn := begin(t, r, anna, id, "and?")
		wantValid(t, turn)
		if whole := len(turn.earlier); whole < min(i+1, verbatim) || whole+turn.folded != i+1 {
			t.Fatalf("at %d: %d turns word for word, %d folded", i, whole, turn.folded)
		}
		turn.Abandon(t.Context())
		_, err = r.Undo(t.Context(), anna, id)
		must(t, err)
	}
	_, err = r.Undo(t.Context(), anna, id)
	must(t, err)
	_, err = r.Undo(t.Context(), anna, id)
	wantCode(t, err, fault.Rule)
	say(t, r, anna, id, "from the start", "yes")
}

// H7: what is deleted is in no byte of any file, and only that is.
func TestClear(t *testing.T) {
	dir := t.TempDir()
	r := newRoom(t, config(dir))
	var ids []string
	for i := range 6 { // interleaved, so that pages are split and joined
		ids = append(ids, use(t, r, anna, "", fmt.Sprintf("canary-%d-title", i), fence.Outside("app_logs", strings.Repeat(fmt.Sprintf("canary-%d ", i), 100))))
	}
	for n := range 20 {
		for i, id := range ids {
			use(t, r, anna, id, fmt.Sprintf("canary-%d-m%d", i, n), fence.Outside("app_logs", strings.Repeat(fmt.Sprintf("canary-%d ", i), n*7)))
		}
	}
	berts := say(t, r, bert, "", "canary-bert", "yes")
	must(t, r.Clear(t.Context(), anna, ids[2]))
	raw := onDisk(t, dir)
	if strings.Contains(raw, "canary-2") {
		t.Error("a deleted conversation is on the disk")
	}
	for _, kept := range []string{"canary-1-m19", "canary-3-m19", "canary-bert"} {
		if !strings.Contains(raw, kept) {
			t.Errorf("%s is gone too", kept)
		}
	}
	_, err := r.History(t.Context(), anna, ids[2], Span{})
	wantCode(t, err, fault.NotFound)
	finds, err := r.Search(t.Context(), anna, "canary-2")
	must(t, err)
	if len(finds.Finds) != 0 {
		t.Errorf("found: %+v", finds)
	}
	wantCode(t, r.Clear(t.Context(), anna, ids[2]), fault.NotFound)
	must(t, r.Clear(t.Context(), anna, ""))
	if raw := onDisk(t, dir); strings.Contains(strings.ReplaceAll(raw, "canary-bert", ""), "canary") {
		t.Error("something is left of a history deleted whole")
	}
	if _, err := r.History(t.Context(), bert, berts, Span{}); err != nil {
		t.Error(err)
	}
	say(t, r, anna, "", "a new start", "yes")
}

// Deleting everything takes the damaged files along.
func TestClearTakesDamagedFiles(t *testing.T) {
	dir, file, _ := keptHistory(t, 3)
	raw := onDisk(t, dir)
	must(t, writeFile(file, raw[:len(raw)/2]))
	r := newRoom(t, config(dir))
	say(t, r, anna, "", "hello", "hello")
	must(t, r.Clear(t.Context(), anna, ""))
	if left, _ := filepath.Glob(file + ".damaged-*"); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	list, err := r.Conversations(t.Context(), anna, Page{})
	must(t, err)
	if len(list.Problems)+len(list.Conversations) != 0 {
		t.Errorf("listed: %+v", list)
	}
}

// H7: both exports hold the whole conversation; text that looks like markup does not end its block.
func TestExport(t *testing.T) {
	r := newRoom(t, config(t.TempDir()))
	id := ""
	for i := range 250 {
		id = use(t, r, anna, id, fmt.Sprintf("m%d", i), fence.Outside("app_logs", "```\n# not a heading"))
	}
	var raw strings.Builder
	must(t, r.Export(t.Context(), anna, id, "json", &raw))
	var got struct {
		Conversation
		Entries []TurnView `json:"entries"`
	}
	must(t, json.Unmarshal([]byte(raw.String()), &got))
	if len(got.Entries) != 250 || got.ID != id || got.Entries[249].Message != "m249" || got.Entries[7].Number != 8 {
		t.Errorf("%d entries of %s", len(got.Entries), got.ID)
	}
	var md strings.Builder
	must(t, r.Export(t.Context(), anna, id, "markdown", &md))
	for _, want := range []string{"# m0\n", "> m249\n", "- used `app_logs` with ` {\"app\":\"x\"} `", "````\n```\n# not a heading\n````\n", "answer to m100"} {
		if !strings.Contains(md.String(), want) {
			t.Errorf("markdown lacks %q", want)
		}
	}
	wantCode(t, r.Export(t.Context(), anna, id, "pdf", &md), fault.InvalidParams)
	if err := r.Export(t.Context(), anna, id, "json", failing{}); !errors.Is(err, errFailing) {
		t.Errorf("a writer's error: %v", err)
	}
}

var errFailing = errors.New("no room")

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errFailing }

// H7: a search finds words in titles and in what was said, whatever the case, in the caller's own file; the query is
// text and no pattern.
func TestSearch(t *testing.T) {
	r := newRoom(t, config(t.TempDir()))
	id := say(t, r, anna, "", "Is the Ärger 100% over_flowing?", "the ÄRGER is\nover")
	other := use(t, r, anna, "", "plain", fence.Outside("app_logs", "only in a result"))
	say(t, r, bert, "", "bert's ärger", "yes")
	must(t, r.Rename(t.Context(), anna, other, "Über the moon"))
	for query, want := range map[string]int{
		"ärger": 3, "100%": 2, "over_": 2, "%": 2, "_": 2, `\`: 0, "overXflowing": 0, "only in a result": 0, "bert": 0,
		"über": 1, "moon": 1, "ANSWER TO PLAIN": 1, "'; DROP TABLE entry; --": 0,
	} {
		finds, err := r.Search(t.Context(), anna, query)
		must(t, err)
		if len(finds.Finds) != want {
			t.Errorf("%q: %d finds, want %d: %+v", query, len(finds.Finds), want, finds.Finds)
		}
		for _, f := range finds.Finds {
			if f.Conversation != id && f.Conversation != other || f.Snippet == "" || strings.ContainsAny(f.Snippet, "\n") {
				t.Errorf("%q: %+v", query, f)
			}
		}
	}
	for _, bad := range []string{"", "  ", strings.Repeat("x", maxQuery+1)} {
		_, err := r.Search(t.Context(), anna, bad)
		wantCode(t, err, fault.InvalidParams)
	}
	for i := range 60 {
		id = say(t, r, anna, id, fmt.Sprintf("needle %d", i), "hay")
	}
	finds, err := r.Search(t.Context(), anna, "needle")
	must(t, err)
	if len(finds.Finds) != searchLimit || !finds.More || finds.Finds[0].Turn != 61 || finds.Finds[0].Who != "caller" {
		t.Errorf("%d finds, more %v, first %+v", len(finds.Finds), finds.More, finds.Finds[0])
	}
}

// H2: the thousandth conversation costs what the tenth did: the same number of bytes written, the same plan.
func TestCostOfManyConversations(t *testing.T) {
	if testing.Short() {
		t.Skip("a thousand conversations")
	}
	dir := t.TempDir()
	r := newRoom(t, config(dir))
	one := func() {
		turn := begin(t, r, anna, "", "hello there")
		must(t, turn.Round(t.Context(), model.Answer{}, nil, false))
		turn.Abandon(t.Context())
	}
	grown := func(n int) int64 {
		before := writtenBytes(t)
		for range n {
			one()
		}
		return (writtenBytes(t) - before) / int64(n)
	}
	for range 10 {
		one()
	}
	tenth := grown(100)
	for range 890 {
		one()
	}
	if late := grown(100); late > tenth*3/2 {
		t.Errorf("%d bytes a conversation at 1,000, %d at 10", late, tenth)
	}
}
