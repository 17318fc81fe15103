package history

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"atoll/internal/caller"
	"atoll/internal/fence"
	"atoll/internal/model"
)

var (
	anna = caller.Operator(1, "anna", caller.Owner, "s1", "127.0.0.1")
	bert = caller.Operator(2, "bert", caller.Member, "s2", "127.0.0.1")
	peer = caller.Peer("../../etc/passwd\x00; a peer's key is whatever it is", "a peer")
)

// damagesSeen collects what OnDamaged was told.
type damagesSeen struct {
	mu   sync.Mutex
	said []string
}

func (d *damagesSeen) on(key, aside string, cause error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.said = append(d.said, key+" "+filepath.Base(aside))
}

func (d *damagesSeen) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.said)
}

func config(dir string) Config {
	return Config{Dir: dir, Now: time.Now, Log: slog.New(slog.DiscardHandler)}
}

func newRoom(t testing.TB, cfg Config) *Room {
	t.Helper()
	r, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return r
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func begin(t testing.TB, r *Room, c caller.Caller, conversation, message string) *Turn {
	t.Helper()
	turn, err := r.Begin(t.Context(), c, conversation, message)
	must(t, err)
	return turn
}

// say runs one plain turn and returns its conversation.
func say(t testing.TB, r *Room, c caller.Caller, conversation, message, answer string) string {
	t.Helper()
	turn := begin(t, r, c, conversation, message)
	must(t, turn.End(t.Context(), Ending{Answer: fence.Words(answer), Outcome: Done}))
	return turn.Conversation()
}

func call(id, name, args string) model.Answer {
	return model.Answer{Blocks: []model.Block{{Call: &model.Call{ID: id, Name: name, Args: []byte(args)}}}, Stop: model.StopCalls}
}

func result(id string, text fence.Text) []model.Result {
	return []model.Result{{ID: id, Text: text}}
}

// use runs a turn with one call.
func use(t testing.TB, r *Room, c caller.Caller, conversation, message string, text fence.Text) string {
	t.Helper()
	turn := begin(t, r, c, conversation, message)
	must(t, turn.Round(t.Context(), call("c"+message, "app_logs", `{"app":"x"}`), []bool{false}, true))
	must(t, turn.Results(t.Context(), result("c"+message, text), []bool{false}))
	must(t, turn.End(t.Context(), Ending{Answer: fence.Words("answer to " + message), Outcome: Done}))
	return turn.Conversation()
}

// operator is one of many.
func operator(i int) caller.Caller {
	return caller.Operator(int64(i), "o", caller.Member, "s", "127.0.0.1")
}

var goodName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// valid is what the strictest backend would refuse: roles out of turn, an empty text, a call without its result in the
// next message or a result without its call before, an identifier twice, a name or arguments no API takes.
func valid(messages []model.Message) error {
	if len(messages) == 0 || messages[0].Role != model.User || messages[len(messages)-1].Role != model.User {
		return fmt.Errorf("must begin and end with the user")
	}
	seen := map[string]bool{}
	var waiting []string
	for i, m := range messages {
		if i > 0 && messages[i-1].Role == m.Role {
			return fmt.Errorf("message %d: the role of the one before", i)
		}
		if len(m.Blocks) == 0 {
			return fmt.Errorf("message %d: empty", i)
		}
		var calls []string
		texts := 0
		for _, b := range m.Blocks {
			switch {
			case b.Text != nil:
				texts++
				if strings.TrimSpace(b.Text.Payload()) == "" {
					return fmt.Errorf("message %d: an empty text", i)
				}
			case b.Call != nil:
				c := b.Call
				if m.Role != model.Assistant || seen[c.ID] || !goodName.MatchString(c.ID) || !goodName.MatchString(c.Name) {
					return fmt.Errorf("message %d: call %q of %q", i, c.ID, c.Name)
				}
				if v := jsontext.Value(c.Args); !v.IsValid() || v.Kind() != '{' || c.Broken != "" {
					return fmt.Errorf("message %d: arguments %q", i, c.Args)
				}
				seen[c.ID] = true
				calls = append(calls, c.ID)
			case b.Result != nil:
				if m.Role != model.User || texts > 0 || len(waiting) == 0 || waiting[0] != b.Result.ID {
					return fmt.Errorf("message %d: result %q where %v wait", i, b.Result.ID, waiting)
				}
				if b.Result.Text.IsEmpty() || b.Result.Name == "" {
					return fmt.Errorf("message %d: an empty result", i)
				}
				waiting = waiting[1:]
			}
		}
		if len(waiting) > 0 {
			return fmt.Errorf("message %d: no results for %v", i, waiting)
		}
		waiting = calls
	}
	if len(waiting) > 0 {
		return fmt.Errorf("calls %v end the conversation", waiting)
	}
	return nil
}

func wantValid(t testing.TB, turn *Turn) []model.Message {
	t.Helper()
	messages := turn.Messages()
	if err := valid(messages); err != nil {
		t.Fatalf("%v\n%s", err, script(messages))
	}
	return messages
}

// script writes messages for people who read a failed test.
func script(messages []model.Message) string {
	var b strings.Builder
	for _, m := range messages {
		fmt.Fprintf(&b, "%v:", m.Role)
		for _, block := range m.Blocks {
			switch {
			case block.Text != nil:
				fmt.Fprintf(&b, " text(%.80q)", block.Text.Payload())
			case block.Call != nil:
				fmt.Fprintf(&b, " call(%s %s %s)", block.Call.ID, block.Call.Name, block.Call.Args)
			case block.Result != nil:
				fmt.Fprintf(&b, " result(%s %.80q)", block.Result.ID, block.Result.Text.Payload())
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// onDisk is every byte of every file in the directory.
func onDisk(t testing.TB, dir string) string {
	t.Helper()
	var b strings.Builder
	entries, err := os.ReadDir(dir)
	must(t, err)
	for _, e := range entries {
		raw, err := os.ReadFile(filepath.Join(dir, e.Name()))
		must(t, err)
		b.Write(raw)
	}
	return b.String()
}

// A start opens nothing and writes nothing, and a Config that cannot work is refused.
func TestNew(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "history")
	newRoom(t, config(dir))
	if _, err := os.Lstat(dir); !os.IsNotExist(err) {
		t.Errorf("New touched the disk: %v", err)
	}
	for _, bad := range []Config{{}, {Dir: "x"}, {Dir: "x", Now: time.Now}, {Dir: "x", Now: time.Now, Log: slog.Default(), Open: -1}} {
		if _, err := New(bad); err == nil {
			t.Errorf("New(%+v) is taken", bad)
		}
	}
}

// After Close nothing is written and nothing is opened; closing twice is harmless.
func TestClose(t *testing.T) {
	dir := t.TempDir()
	r := newRoom(t, config(dir))
	turn := begin(t, r, anna, "", "hello")
	must(t, r.Close())
	if err := turn.End(context.Background(), Ending{Outcome: Done}); err == nil {
		t.Error("a closed room takes the end of a turn")
	}
	turn.Abandon(context.Background())
	if _, err := r.Begin(t.Context(), anna, "", "again"); err == nil {
		t.Error("a closed room begins a turn")
	}
	must(t, r.Close())
}
