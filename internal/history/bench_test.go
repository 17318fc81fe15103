package history

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"atoll/internal/fence"
)

// written is how many bytes this process has passed to write calls, and how many pages of them went towards the disk.
func written(b *testing.B) (calls, disk int64) {
	raw, err := os.ReadFile("/proc/self/io")
	if err != nil {
		b.Skip("no /proc/self/io")
	}
	for line := range strings.Lines(string(raw)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		n, _ := strconv.ParseInt(value, 10, 64)
		switch key {
		case "wchar":
			calls = n
		case "write_bytes":
			disk = n
		}
	}
	return calls, disk
}

var (
	benchResult = strings.Repeat("log line of an app, with a few words in it\n", 20)
	benchAnswer = strings.Repeat("word ", 400)
)

const benchMessage = "why did the sample app stop, and is it back?"

func benchTurn(b *testing.B, r *Room, conversation string, i int) string {
	ctx := b.Context()
	turn, err := r.Begin(ctx, anna, conversation, benchMessage)
	must(b, err)
	_ = turn.Messages()
	id := "call_" + strconv.Itoa(i)
	must(b, turn.Round(ctx, call(id, "app_logs", `{"app":"sample","lines":50}`), []bool{false}))
	must(b, turn.Results(ctx, result(id, fence.Outside("app_logs", benchResult)), []bool{false}))
	must(b, turn.End(ctx, Ending{Answer: fence.Words(benchAnswer), Outcome: Done, Usage: Usage{In: 900, Out: 300}}))
	return turn.Conversation()
}

func fill(b *testing.B, r *Room, turns int) string {
	id := ""
	for i := range turns {
		id = benchTurn(b, r, id, i)
	}
	return id
}

// BenchmarkTurn is one turn with one tool call in conversations of 10, 20 and 5,000 turns (H2). The turn taken is undone
// by hand outside the clock, so that the conversation keeps its length.
func BenchmarkTurn(b *testing.B) {
	content := float64(len(benchMessage) + len(benchResult) + len(benchAnswer) + len(`app_logs{"app":"sample","lines":50}`))
	for _, turns := range []int{10, 20, 5000} {
		b.Run(fmt.Sprintf("turns=%d", turns), func(b *testing.B) {
			r := newRoom(b, config(b.TempDir()))
			fill(b, r, turns)
			conversations := make([]string, 0, 64)
			_ = conversations
			id := ""
			if turns < 5000 {
				id = ""
			}
			l, err := r.Conversations(b.Context(), anna, Page{})
			must(b, err)
			id = l.Conversations[0].ID
			calls, disk := written(b)
			n := 0
			for b.Loop() {
				benchTurn(b, r, id, n)
				n++
				if turns < 5000 {
					b.StopTimer()
					_, err := r.Undo(b.Context(), anna, id)
					must(b, err)
					b.StartTimer()
				}
			}
			calls2, disk2 := written(b)
			if turns == 5000 {
				b.ReportMetric(float64(calls2-calls)/float64(n)/content, "written/content")
				b.ReportMetric(float64(disk2-disk)/float64(n)/content, "disk/content")
			}
		})
	}
}
