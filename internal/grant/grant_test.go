package grant

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"atoll/internal/audit"
	"atoll/internal/caller"
	"atoll/internal/clock"
	"atoll/internal/fault"
	"atoll/internal/rpc"

	"github.com/go-json-experiment/json/jsontext"
)

var (
	owner  = caller.Operator(1, "ada", caller.Owner, "s1", "")
	member = caller.Operator(2, "mia", caller.Member, "s2", "")
)

// bench is a room with its clock and its audit in the test's hands.
type bench struct {
	t    *testing.T
	path string

	mu       sync.Mutex // guards the rest
	wall     time.Time
	mono     time.Duration
	full     error // what the audit answers
	records  []audit.Entry
	damaged  []string
	modes    []Mode
	ceilings map[string][]Category
}

func newBench(t *testing.T) *bench {
	t.Helper()
	return &bench{t: t, path: filepath.Join(t.TempDir(), "assistant", "grants.json"), wall: time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)}
}

func (b *bench) room() *Room {
	b.t.Helper()
	b.mono = 0
	locked := func(f func()) { b.mu.Lock(); defer b.mu.Unlock(); f() }
	r, err := New(Config{Path: b.path, Log: slog.New(slog.DiscardHandler),
		Clock:   clock.New(func() (now time.Time) { locked(func() { now = b.wall }); return }, func() (d time.Duration) { locked(func() { d = b.mono }); return }),
		Ceiling: func(key string) []Category { return b.ceilings[key] },
		Record: func(_ context.Context, e audit.Entry) (err error) {
			locked(func() {
				if err = b.full; err == nil {
					b.records = append(b.records, e)
				}
			})
			return err
		},
		OnMode:    func(m Mode) { locked(func() { b.modes = append(b.modes, m) }) },
		OnDamaged: func(aside string, _ error) { b.damaged = append(b.damaged, aside) }})
	if err != nil {
		b.t.Fatal(err)
	}
	return r
}

func (b *bench) pass(d time.Duration) { b.wall, b.mono = b.wall.Add(d), b.mono+d }

func (b *bench) call(r *Room, c caller.Caller, method, params string) fault.Code {
	b.t.Helper()
	g := rpc.NewGate(rpc.Config{Methods: r.Methods(), Log: slog.New(slog.DiscardHandler)})
	_, err := g.Call(b.t.Context(), c, rpc.People, method, jsontext.Value(params), nil)
	if err == nil {
		return ""
	}
	f, ok := errors.AsType[*fault.Error](err)
	if !ok {
		b.t.Fatalf("%s %s: %v is no fault", method, params, err)
	}
	return f.Code
}

func (b *bench) set(r *Room, params string) {
	b.t.Helper()
	if code := b.call(r, owner, "assistant.grants-set", params); code != "" {
		b.t.Fatalf("%s: %s", params, code)
	}
}

func (b *bench) write(text string) {
	b.t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(b.path), 0o700), os.WriteFile(b.path, []byte(text), 0o600)); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) file() string {
	b.t.Helper()
	raw, err := os.ReadFile(b.path)
	if err != nil {
		b.t.Fatal(err)
	}
	return string(raw)
}

// open lists the open categories, for an operator.
func open(r *Room) string {
	var out []string
	for _, cat := range Categories() {
		if r.Open(owner, cat) {
			out = append(out, string(cat))
		}
	}
	return strings.Join(out, " ")
}

func table(t *testing.T, r *Room) string {
	t.Helper()
	raw, err := rpc.Marshal(r.States())
	if err != nil {
		t.Fatal(err)
	}
	return string(raw) + " " + string(r.Mode())
}

// A1: a missing file is closed, for everybody, and the assistant asks before it changes anything.
func TestMissing(t *testing.T) {
	b := newBench(t)
	r := b.room()
	if got := open(r); got != "" || r.Mode() != Confirm || len(b.damaged) != 0 {
		t.Errorf("open: %q, mode %s, damaged %v", got, r.Mode(), b.damaged)
	}
	if _, err := os.Stat(b.path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file was made: %v", err)
	}
	for _, cfg := range []Config{{}, {Path: b.path}, {Path: b.path, Log: slog.Default()}, {Log: slog.Default(), Record: func(context.Context, audit.Entry) error { return nil }}} {
		if _, err := New(cfg); err == nil {
			t.Errorf("made from %+v", cfg)
		}
	}
}

// A1, F-B8, F-D9: a damaged file closes everything, is set aside byte for byte and reported; the mode is read-only, also
// after the next start, until the owner sets it.
func TestDamaged(t *testing.T) {
	whole := `{"mode":"confirm","grants":{"apps":{"for_good":true}}}`
	for name, text := range map[string]string{
		"empty": "", "cut": whole[:len(whole)/2], "NULs": strings.Repeat("\x00", 50), "NUL tail": whole + "\x00\x00", "trailing": whole + whole,
		"garbage": "garbage", "null": "null", "list": "[]", "number": "7", "no mode": `{"grants":{"apps":{"for_good":true}}}`,
		"unknown mode": `{"mode":"yolo","grants":{}}`, "mode in capitals": `{"mode":"CONFIRM","grants":{}}`,
		"unknown category":     `{"mode":"confirm","grants":{"apps":{"for_good":true},"shell":{"for_good":true}}}`,
		"category in capitals": `{"mode":"confirm","grants":{"APPS":{"for_good":true}}}`, "empty category": `{"mode":"confirm","grants":{"":{"for_good":true}}}`,
		"unknown key": `{"mode":"confirm","grants":{},"admin":true}`, "key in capitals": `{"Mode":"confirm","grants":{}}`,
		"mode twice": `{"mode":"confirm","mode":"confirm","grants":{}}`, "category twice": `{"mode":"confirm","grants":{"apps":{"for_good":true},"apps":{"for_good":true}}}`,
		"unknown key of a grant": `{"mode":"confirm","grants":{"apps":{"for_good":true,"x":1}}}`,
		"a grant of nothing":     `{"mode":"confirm","grants":{"apps":{}}}`, "a null grant": `{"mode":"confirm","grants":{"apps":null}}`,
		"not for good":       `{"mode":"confirm","grants":{"apps":{"for_good":false}}}`,
		"begin alone":        `{"mode":"confirm","grants":{"apps":{"from":"2026-05-01T11:00:00Z"}}}`,
		"end alone":          `{"mode":"confirm","grants":{"apps":{"expires_at":"2026-05-01T13:00:00Z"}}}`,
		"backwards":          `{"mode":"confirm","grants":{"apps":{"from":"2026-05-01T13:00:00Z","expires_at":"2026-05-01T11:00:00Z"}}}`,
		"for good and timed": `{"mode":"confirm","grants":{"apps":{"for_good":true,"from":"2026-05-01T11:00:00Z","expires_at":"2026-05-01T13:00:00Z"}}}`,
		"no time":            `{"mode":"confirm","grants":{"apps":{"from":"yesterday","expires_at":"tomorrow"}}}`,
		"a true grant":       `{"mode":"confirm","grants":{"apps":true}}`,
		"deep":               strings.Repeat(`{"grants":`, 20_000),
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.write(text)
			r := b.room()
			if got := open(r); got != "" || r.Mode() != ReadOnly {
				t.Fatalf("open: %q, mode %s", got, r.Mode())
			}
			if len(b.damaged) != 1 || b.damaged[0] == b.path {
				t.Fatalf("reported as %v", b.damaged)
			}
			if raw, err := os.ReadFile(b.damaged[0]); err != nil || string(raw) != text {
				t.Errorf("set aside: %q, %v", raw, err)
			}
			if r = b.room(); open(r) != "" || r.Mode() != ReadOnly || len(b.damaged) != 1 {
				t.Errorf("after the next start: mode %s, damaged %v", r.Mode(), b.damaged)
			}
			if b.set(r, `{"grants":{"apps":{"granted":true}}}`); open(r) != "apps" || r.Mode() != ReadOnly {
				t.Errorf("open %q, mode %s", open(r), r.Mode())
			}
		})
	}
}

// A1: what was set aside once is never overwritten, also within one second.
func TestDamagedTwice(t *testing.T) {
	b := newBench(t)
	for _, text := range []string{"first", "second", "third"} {
		b.write(text)
		b.room()
	}
	if len(b.damaged) != 3 {
		t.Fatalf("%v", b.damaged)
	}
	for i, text := range []string{"first", "second", "third"} {
		if raw, err := os.ReadFile(b.damaged[i]); err != nil || string(raw) != text {
			t.Errorf("%s: %q, %v", b.damaged[i], raw, err)
		}
	}
}

// A1: something else in the file's place is closed too, and the file is private whatever it was.
func TestOddFiles(t *testing.T) {
	b := newBench(t)
	if err := os.MkdirAll(filepath.Join(b.path, "inside"), 0o700); err != nil {
		t.Fatal(err)
	}
	if r := b.room(); open(r) != "" || r.Mode() != ReadOnly || len(b.damaged) != 1 {
		t.Errorf("a directory: open %q, %v", open(r), b.damaged)
	}
	if _, err := os.Stat(filepath.Join(b.damaged[0], "inside")); err != nil {
		t.Error(err)
	}
	b = newBench(t)
	b.write(`{"mode":"confirm","grants":{"apps":{"for_good":true}}}`)
	if err := os.Chmod(b.path, 0o666); err != nil {
		t.Fatal(err)
	}
	r := b.room()
	if st, err := os.Stat(b.path); err != nil || st.Mode().Perm() != 0o600 || open(r) != "apps" {
		t.Errorf("%v, %v, open %q", st.Mode(), err, open(r))
	}
	b.set(r, `{"grants":{"files":{"granted":true}}}`)
	if st, err := os.Stat(b.path); err != nil || st.Mode() != 0o600 {
		t.Errorf("written as %v, %v", st.Mode(), err)
	}
	if entries, err := os.ReadDir(filepath.Dir(b.path)); err != nil || len(entries) != 1 {
		t.Errorf("left beside it: %v, %v", entries, err)
	}
}

// F-B8: the same table before and after a restart, byte for byte, and what is not named stays.
func TestRestart(t *testing.T) {
	b := newBench(t)
	b.wall = b.wall.In(time.FixedZone("", 2*3600)).Add(123456789)
	r := b.room()
	b.set(r, `{"grants":{"apps":{"granted":true},"files":{"granted":true,"expires_at":"2026-05-01T13:30:00.5Z"},"system":{"granted":true},"mesh":{"granted":false}}}`)
	b.set(r, `{"grants":{"system":{"granted":false}}}`)
	if code := b.call(r, owner, "assistant.mode-set", `{"mode":"read-only"}`); code != "" {
		t.Fatal(code)
	}
	before, file := table(t, r), b.file()
	if open(r) != "apps files" {
		t.Errorf("open: %q", open(r))
	}
	r = b.room()
	if after := table(t, r); after != before || b.file() != file {
		t.Errorf("before\n%s\nafter\n%s", before, after)
	}
	b.set(r, `{"grants":{"wallet":{"granted":false}}}`) // changes nothing
	if after := table(t, r); after != before || b.file() != file {
		t.Errorf("before\n%s%s\nafter\n%s%s", before, file, after, b.file())
	}
	if len(b.damaged) != 0 {
		t.Error(b.damaged)
	}
}

// A2, C4: a timed grant ends by either clock or when the clock is set back, and then stays ended, over a restart too.
func TestTimed(t *testing.T) {
	const hour = `{"grants":{"apps":{"granted":true},"files":{"granted":true,"expires_at":"2026-05-01T13:00:00Z"}}}`
	for name, tc := range map[string]struct {
		move  func(*bench)
		ended bool
	}{
		"at once":         {func(*bench) {}, false},
		"just before":     {func(b *bench) { b.pass(time.Hour - 1) }, false},
		"at its end":      {func(b *bench) { b.pass(time.Hour) }, true},
		"wall ahead":      {func(b *bench) { b.wall = b.wall.Add(2 * time.Hour) }, true},
		"monotonic only":  {func(b *bench) { b.mono += time.Hour }, true},
		"set back":        {func(b *bench) { b.wall = b.wall.Add(-time.Minute) }, true},
		"set back midway": {func(b *bench) { b.pass(50 * time.Minute); b.wall = b.wall.Add(-45 * time.Minute) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			r := b.room()
			b.set(r, hour)
			start := b.wall
			tc.move(b)
			want := "apps files"
			if tc.ended {
				want = "apps"
			}
			if got := open(r); got != want {
				t.Fatalf("open: %q", got)
			}
			if s := r.States()[Files]; s.Granted == tc.ended || tc.ended && !s.ExpiresAt.IsZero() {
				t.Errorf("shown as %+v", s)
			}
			if !tc.ended {
				return
			}
			b.wall = start.Add(b.mono) // the clock is set right
			if got := open(r); got != "apps" {
				t.Errorf("open again with the clock set right: %q", got)
			}
			b.wall = start.Add(time.Minute)
			if got := open(b.room()); got != "apps" {
				t.Errorf("open again after a restart: %q", got)
			}
		})
	}
	b := newBench(t)
	b.set(b.room(), hour)
	b.wall = b.wall.Add(-time.Hour)
	if got := open(b.room()); got != "apps" {
		t.Errorf("started with the clock set back: open %q", got)
	}
	b.wall = b.wall.Add(90 * time.Minute)
	if got := open(b.room()); got != "apps" {
		t.Errorf("started again with the clock set right: open %q", got)
	}
}

// C4 where the disk is full: a grant that ended is closed all the same.
func TestEndNotWritten(t *testing.T) {
	b := newBench(t)
	r := b.room()
	b.set(r, `{"grants":{"apps":{"granted":true},"files":{"granted":true,"expires_at":"2026-05-01T13:00:00Z"}}}`)
	if err := os.RemoveAll(filepath.Dir(b.path)); err != nil {
		t.Fatal(err)
	}
	b.wall = b.wall.Add(-time.Hour)
	if got := open(r); got != "apps" {
		t.Errorf("open: %q", got)
	}
	b.wall = b.wall.Add(time.Hour)
	if got := open(r); got != "apps" {
		t.Errorf("open with the clock set right: %q", got)
	}
}

// A5: a peer has the intersection of its ceiling and the operator's live grants; unknown peers, strangers and nobody
// have none.
func TestPeers(t *testing.T) {
	b := newBench(t)
	b.ceilings = map[string][]Category{"friend": {Content, Apps, Wallet}, "empty": {}}
	r := b.room()
	b.set(r, `{"grants":{"apps":{"granted":true,"expires_at":"2026-05-01T13:00:00Z"},"content":{"granted":true},"files":{"granted":true}}}`)
	have := func(r *Room, c caller.Caller) string {
		var out []string
		for _, cat := range append(Categories(), "", "shell") {
			if r.Open(c, cat) {
				out = append(out, string(cat))
			}
		}
		return strings.Join(out, " ")
	}
	for name, tc := range map[string]struct {
		c    caller.Caller
		want string
	}{
		"owner": {owner, "apps content files"}, "member": {member, "apps content files"}, "friend": {caller.Peer("friend", "x"), "apps content"},
		"empty": {caller.Peer("empty", "friend"), ""}, "unknown": {caller.Peer("unknown", "friend"), ""}, "no key": {caller.Peer("", "friend"), ""},
		"stranger": {caller.Stranger("x"), ""}, "nobody": {caller.Caller{}, ""},
	} {
		if got := have(r, tc.c); got != tc.want {
			t.Errorf("%s may use %q", name, got)
		}
	}
	b.pass(time.Hour)
	if got := have(r, caller.Peer("friend", "x")); got != "content" {
		t.Errorf("after the grant's end: %q", got)
	}
	b.ceilings["friend"] = nil
	if got := have(r, caller.Peer("friend", "x")); got != "" {
		t.Errorf("after the ceiling was taken away: %q", got)
	}
	r.cfg.Ceiling = nil
	if got := have(r, caller.Peer("friend", "x")); got != "" {
		t.Errorf("without a mesh: %q", got)
	}
}

// A2: changes and questions at the same time: each answer is of one whole table.
func TestConcurrent(t *testing.T) {
	b := newBench(t)
	r := b.room()
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 20 {
				if w == 0 {
					params := `{"grants":{"apps":{"granted":true},"files":{"granted":true}}}`
					if i%2 == 1 {
						params = `{"grants":{"apps":{"granted":false},"files":{"granted":false}}}`
					}
					if code := b.call(r, owner, "assistant.grants-set", params); code != "" {
						t.Error(code)
					}
				}
				if s := r.States(); s[Apps].Granted != s[Files].Granted {
					t.Error("half a change is seen")
				}
				r.Open(owner, Apps)
				r.Mode()
			}
		})
	}
	wg.Wait()
	if got := table(t, r); got != table(t, b.room()) {
		t.Errorf("memory and file differ: %s", got)
	}
}

// Nothing a stranger puts into the file opens more than it says, and none makes the room fail.
func FuzzLoad(f *testing.F) {
	for _, s := range []string{`{"mode":"confirm","grants":{"apps":{"for_good":true}}}`, `{"mode":"off","grants":null}`, `{"mode":"confirm","grants":{"apps":{}}}`,
		`{"mode":"confirm","grants":{"files":{"from":"2026-05-01T11:00:00Z","expires_at":"2026-05-01T13:00:00Z"}}}`, "", "\x00", `{"mode":"confirm"}`} {
		f.Add([]byte(s))
	}
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, raw []byte) {
		r := &Room{cfg: Config{Clock: clock.New(func() time.Time { return now }, func() time.Duration { return 0 })}, mode: ReadOnly}
		err := r.load(raw)
		text := string(raw)
		if err != nil && (r.mode != ReadOnly || len(r.grants) != 0) {
			t.Errorf("%q is damaged and counts: %s %v", raw, r.mode, r.grants)
		}
		for cat, g := range r.grants {
			if g.open(r.cfg.Clock) && !strings.Contains(text, "true") && !strings.Contains(text, "-") {
				t.Errorf("%q opens %s", raw, cat)
			}
		}
	})
}
