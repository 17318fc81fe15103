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
	must(b, turn.Round(ctx, call(id, "app_logs", `{"app":"sample","lines":50}`), []bool{false}, true))
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

// BenchmarkTurn is one turn with one tool call in a conversation of about 10 and of about 5,000 turns (H2): at 10, a new
// conversation is grown outside the clock after each four.
func BenchmarkTurn(b *testing.B) {
	content := float64(len(benchMessage) + len(benchResult) + len(benchAnswer) + len(`app_logs{"app":"sample","lines":50}`))
	for _, turns := range []int{10, 5000} {
		b.Run(fmt.Sprintf("turns=%d", turns), func(b *testing.B) {
			r := newRoom(b, config(b.TempDir()))
			id := fill(b, r, turns-2)
			n := 0
			var calls, disk int64
			for b.Loop() {
				if turns == 10 && n%4 == 0 {
					b.StopTimer()
					id = fill(b, r, turns-2)
					b.StartTimer()
				}
				calls0, disk0 := written(b)
				benchTurn(b, r, id, n)
				calls1, disk1 := written(b)
				calls, disk, n = calls+calls1-calls0, disk+disk1-disk0, n+1
			}
			b.ReportMetric(float64(calls)/float64(n)/content, "written/content")
			b.ReportMetric(float64(disk)/float64(n)/content, "disk/content")
		})
	}
}

func writtenBytes(t testing.TB) int64 {
	raw, err := os.ReadFile("/proc/self/io")
	if err != nil {
		t.Skip("no /proc/self/io")
	}
	_, rest, _ := strings.Cut(string(raw), "wchar: ")
	line, _, _ := strings.Cut(rest, "\n")
	n, err := strconv.ParseInt(line, 10, 64)
	must(t, err)
	return n
}

func writeFile(path, content string) error { return os.WriteFile(path, []byte(content), 0o600) }
