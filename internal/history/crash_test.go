package history

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"atoll/internal/fault"
	"atoll/internal/fence"
	"atoll/internal/model"
	"atoll/internal/store"
)

// image copies a directory as a crash would leave it. cut bytes are taken off the end of each write-ahead log.
func image(t testing.TB, dir string, cut int64) string {
	t.Helper()
	out := t.TempDir()
	entries, err := os.ReadDir(dir)
	must(t, err)
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), "-shm") {
			continue
		}
		raw, err := os.ReadFile(filepath.Join(dir, e.Name()))
		must(t, err)
		if strings.HasSuffix(e.Name(), "-wal") {
			raw = raw[:max(0, int64(len(raw))-cut)]
		}
		must(t, os.WriteFile(filepath.Join(out, e.Name()), raw, 0o600))
	}
	return out
}

// playing is a conversation under way in the property test: what was acknowledged must be there after any crash.
type playing struct {
	t        *rapid.T
	r        *Room
	turn     *Turn
	id       string
	waiting  []string
	answered []string // the answers whose End returned
	n        int
}

func (p *playing) step() {
	ctx := p.t.Context()
	switch {
	case p.turn == nil:
		turn, err := p.r.Begin(ctx, anna, p.id, fmt.Sprintf("question %d", p.n))
		if err != nil {
			p.t.Fatal(err)
		}
		p.turn, p.id = turn, turn.Conversation()
	case len(p.waiting) > 0 && rapid.IntRange(0, 3).Draw(p.t, "results") > 0:
		k := rapid.IntRange(1, len(p.waiting)).Draw(p.t, "how many")
		var results []model.Result
		for _, id := range p.waiting[:k] {
			results = append(results, model.Result{ID: id, Text: fence.Outside("app_logs", rapid.SampledFrom([]string{"", "short", strings.Repeat("long ", 300)}).Draw(p.t, "result"))})
		}
		if err := p.turn.Results(ctx, results, make([]bool, k)); err != nil {
			p.t.Fatal(err)
		}
		p.waiting = p.waiting[k:]
	case rapid.Bool().Draw(p.t, "round"):
		var a model.Answer
		p.waiting = nil // whatever still waits never gets its result
		for i := range rapid.IntRange(1, 3).Draw(p.t, "blocks") {
			p.n++
			if rapid.Bool().Draw(p.t, "call") {
				id := fmt.Sprintf("c%d_%d", p.n, i)
				p.waiting = append(p.waiting, id)
				a.Blocks = append(a.Blocks, model.Block{Call: &model.Call{ID: id, Name: "app_logs", Args: []byte(rapid.SampledFrom([]string{"", "{}", "{", `{"a":1}`}).Draw(p.t, "args"))}})
			} else {
				a.Blocks = append(a.Blocks, model.TextBlock(fence.Words(rapid.SampledFrom([]string{"", "  ", "words"}).Draw(p.t, "text"))))
			}
		}
		if err := p.turn.Round(ctx, a, make([]bool, len(a.Calls())), rapid.Bool().Draw(p.t, "reads")); err != nil {
			p.t.Fatal(err)
		}
	case rapid.IntRange(0, 4).Draw(p.t, "abandon") == 0:
		p.turn.Abandon(ctx)
		p.turn, p.waiting = nil, nil
	default:
		p.n++
		answer := fmt.Sprintf("answer %d.", p.n)
		if err := p.turn.End(ctx, Ending{Answer: fence.Words(answer), Outcome: Done}); err != nil {
			p.t.Fatal(err)
		}
		p.answered = append(p.answered, answer)
		p.turn, p.waiting = nil, nil
	}
}

// F-D1, F-D3, H5: after a crash between any two writes, and with any tail of the log lost, the next request is one that
// every backend takes; what was answered before a kill is all there.
func TestCrashAnywhere(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		dir := t.TempDir()
		r, err := New(config(dir))
		must(t, err)
		p := &playing{t: rt, r: r}
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			p.step()
		}
		lost := rapid.SampledFrom([]int64{0, 0, 1, 536, 1000, 5000, 20000}).Draw(rt, "lost")
		crashed := image(t, dir, lost)
		if p.turn != nil {
			if err := valid(p.turn.Messages()); err != nil && len(p.waiting) > 0 {
				rt.Fatalf("a turn under way: %v", err)
			}
			p.turn.Abandon(rt.Context())
		}
		must(t, r.Close())
		afterCrash(t, rt, crashed, p, lost)
	})
}

func afterCrash(t *testing.T, rt *rapid.T, dir string, p *playing, lost int64) {
	r, err := New(config(dir))
	must(t, err)
	defer r.Close()
	turn, err := r.Begin(rt.Context(), anna, p.id, "go on")
	if fault.Is(err, fault.NotFound) && lost > 0 {
		return // its first write was in the tail
	}
	if err != nil {
		rt.Fatal(err)
	}
	defer turn.Abandon(rt.Context())
	messages := turn.Messages()
	if err := valid(messages); err != nil {
		rt.Fatalf("%v\n%s", err, script(messages))
	}
	h, err := r.History(rt.Context(), anna, p.id, Span{})
	if err != nil {
		rt.Fatal(err)
	}
	all := fmt.Sprintf("%+v", h)
	for _, a := range p.answered {
		if lost == 0 && !strings.Contains(all, a) {
			rt.Fatalf("an acknowledged answer is lost: %s", a)
		}
	}
}

// F-D3: rows cut off after each one, in one conversation with every kind of row.
func TestCutAtEveryRow(t *testing.T) {
	dir := t.TempDir()
	r := newRoom(t, config(dir))
	ctx := t.Context()
	id := ""
	for i := range 3 {
		turn := begin(t, r, anna, id, fmt.Sprintf("question %d", i))
		id = turn.Conversation()
		for j := range 2 {
			a, b := fmt.Sprintf("a%d%d", i, j), fmt.Sprintf("b%d%d", i, j)
			must(t, turn.Round(ctx, model.Answer{Blocks: []model.Block{model.TextBlock(fence.Words("let me look")),
				{Call: &model.Call{ID: a, Name: "app_list"}}, {Call: &model.Call{ID: b, Name: "app_logs"}}}}, []bool{false, false}, true))
			must(t, turn.Results(ctx, result(a, fence.Ours("one")), []bool{false}))
			must(t, turn.Results(ctx, result(b, fence.Outside("app_logs", "two")), []bool{false}))
		}
		must(t, turn.End(ctx, Ending{Answer: fence.Words("so it is"), Outcome: Done}))
	}
	must(t, r.Close())
	cuts := 0
	for rows := 1; ; rows++ {
		cut := newRoom(t, config(image(t, dir, 0)))
		f, err := cut.take(anna)
		must(t, err)
		left := 0
		must(t, cut.use(ctx, f, func(db *store.DB) error {
			if _, err := db.Reader().ExecContext(ctx, "DELETE FROM entry WHERE id IN (SELECT id FROM entry ORDER BY id DESC LIMIT ?)", rows); err != nil {
				return err
			}
			return db.Reader().QueryRowContext(ctx, "SELECT count(*) FROM entry").Scan(&left)
		}))
		cut.give(f)
		turn := begin(t, cut, anna, id, "go on")
		wantValid(t, turn)
		turn.Abandon(ctx)
		must(t, cut.Close())
		cuts++
		if left == 0 {
			break
		}
	}
	if cuts != 39 {
		t.Errorf("%d cuts were tried", cuts)
	}
}

const childDir = "ATOLL_HISTORY_TEST_DIR"

// H1: what was answered is there after kill -9. The child is this test binary.
func TestKill(t *testing.T) {
	if dir := os.Getenv(childDir); dir != "" {
		talkForever(t, dir)
		return
	}
	for round, answers := range []int{1, 7, 23} {
		dir := t.TempDir()
		child := exec.Command(os.Args[0], "-test.run=^TestKill$")
		child.Env = append(os.Environ(), childDir+"="+dir)
		out, err := child.StdoutPipe()
		must(t, err)
		must(t, child.Start())
		lines := bufio.NewScanner(out)
		id, last := "", ""
		for n := 0; n < answers && lines.Scan(); n++ {
			id, last, _ = strings.Cut(lines.Text(), " ")
		}
		must(t, child.Process.Kill())
		rest, _ := io.ReadAll(out)
		_ = child.Wait()
		if whole := strings.Split(string(rest), "\n"); len(whole) > 1 {
			_, last, _ = strings.Cut(whole[len(whole)-2], " ") // acknowledged before the kill
		}
		r := newRoom(t, config(dir))
		h, err := r.History(t.Context(), anna, id, Span{Limit: 1000})
		must(t, err)
		if !strings.Contains(fmt.Sprintf("%+v", h.Entries), last) {
			t.Errorf("round %d: %q was acknowledged and is not there", round, last)
		}
		turn := begin(t, r, anna, id, "go on")
		wantValid(t, turn)
		turn.Abandon(t.Context())
	}
}

func talkForever(t *testing.T, dir string) {
	r, err := New(config(dir))
	must(t, err)
	id := ""
	for n := range 10000 { // ends by itself if nobody kills it
		turn, err := r.Begin(t.Context(), anna, id, fmt.Sprintf("question %d", n))
		must(t, err)
		id = turn.Conversation()
		c := fmt.Sprintf("c%d", n)
		must(t, turn.Round(t.Context(), call(c, "app_logs", "{}"), []bool{false}, false))
		must(t, turn.Results(t.Context(), result(c, fence.Outside("app_logs", strings.Repeat("line ", 100))), []bool{false}))
		answer := fmt.Sprintf("answer-%d.", n)
		must(t, turn.End(t.Context(), Ending{Answer: fence.Words(answer), Outcome: Done}))
		fmt.Println(id, answer)
	}
}
