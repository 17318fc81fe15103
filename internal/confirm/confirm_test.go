package confirm

import (
	"context"
	"crypto/ed25519"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"atoll/internal/audit"
	"atoll/internal/caller"
	"atoll/internal/clock"
	"atoll/internal/fault"
	"atoll/internal/rpc"
	"atoll/internal/store"
)

var (
	owner  = caller.Operator(1, "ada", caller.Owner, "s1", "")
	member = caller.Operator(2, "mia", caller.Member, "s2", "")
	other  = caller.Operator(3, "eve", caller.Member, "s3", "")
)

// bench is a room on a real file with its clock in the test's hands. open opens it, and again as after a crash.
type bench struct {
	t    *testing.T
	path string
	key  ed25519.PrivateKey

	room *Room
	left Leftover
	db   *store.DB
	log  *audit.Log
	gate *rpc.Gate

	mu        sync.Mutex // guards the rest
	wall      time.Time
	mono      time.Duration
	listening bool
	asking    map[string]bool
	foreign   int
	asked     chan Pending
	ended     chan Ended
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, path: filepath.Join(t.TempDir(), "node.db"), wall: time.Unix(1_800_000_000, 0).UTC(), listening: true, asking: map[string]bool{},
		asked: make(chan Pending, 4096), ended: make(chan Ended, 4096)}
	_, b.key, _ = ed25519.GenerateKey(nil)
	b.open()
	t.Cleanup(func() { _ = b.db.Close() })
	return b
}

func (b *bench) now() time.Time { b.mu.Lock(); defer b.mu.Unlock(); return b.wall }

func (b *bench) elapsed() time.Duration { b.mu.Lock(); defer b.mu.Unlock(); return b.mono }

func (b *bench) pass(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wall, b.mono = b.wall.Add(d), b.mono+d
}

func (b *bench) setWall(d time.Duration) { b.mu.Lock(); defer b.mu.Unlock(); b.wall = b.wall.Add(d) }

// open starts a node on the file: what it left stays as it is, and its clocks begin anew.
func (b *bench) open() {
	b.t.Helper()
	if b.db != nil {
		if err := b.db.Close(); err != nil {
			b.t.Fatal(err)
		}
	}
	b.mu.Lock()
	b.mono = 0
	b.mu.Unlock()
	var err error
	if b.db, err = store.Open(b.t.Context(), store.Config{Path: b.path, Schemas: []store.Schema{Schema(), audit.Schema()}, Readers: 1}); err != nil {
		b.t.Fatal(err)
	}
	if b.log, err = audit.New(audit.Config{DB: b.db, Key: b.key, Now: b.now}); err != nil {
		b.t.Fatal(err)
	}
	b.room, b.left, err = New(b.t.Context(), Config{DB: b.db, Audit: b.log, Log: slog.New(slog.DiscardHandler), Clock: clock.New(b.now, b.elapsed),
		Listening: func(int64) bool { b.mu.Lock(); defer b.mu.Unlock(); return b.listening },
		Asking:    func(peer string) bool { b.mu.Lock(); defer b.mu.Unlock(); return b.asking[peer] },
		Publish: func(_ string, _ int64, data any) {
			switch e := data.(type) {
			case Pending:
				b.asked <- e
			case Ended:
				b.ended <- e
			}
		},
		OnForeign: func(caller.Caller) { b.mu.Lock(); defer b.mu.Unlock(); b.foreign++ }})
	if err != nil {
		b.t.Fatal(err)
	}
	b.gate = rpc.NewGate(rpc.Config{Methods: b.room.Methods(), Log: slog.New(slog.DiscardHandler)})
}

type answer struct {
	ticket *Ticket
	err    error
}

// question is one action, told from others by its name.
func question(c caller.Caller, app string) Ask {
	args := jsontext.Value(`{"app":"` + app + `"}`)
	return Ask{Caller: c, Conversation: "c1", Tool: "app_restart", Method: "apps.restart", Summary: `Restart the app "` + app + `"`, Args: args, Key: ActionKey("app_restart", args, nil),
		Preview: rpc.Preview{Target: app, Before: "running", After: "running", Fingerprint: "v1"}, MayAllow: true, TurnLeft: TurnTime}
}

// ask puts a question and waits until it stands.
func (b *bench) ask(ctx context.Context, a Ask) (Pending, <-chan answer) {
	b.t.Helper()
	out := make(chan answer, 1)
	go func() {
		ticket, err := b.room.Ask(ctx, a)
		out <- answer{ticket, err}
	}()
	select {
	case p := <-b.asked:
		return p, out
	case a := <-out:
		b.t.Fatalf("not asked: %v", a.err)
		return Pending{}, nil
	}
}

func (b *bench) call(c caller.Caller, method, params string) (any, fault.Code) {
	b.t.Helper()
	result, err := b.gate.Call(b.t.Context(), c, rpc.People, method, jsontext.Value(params), nil)
	return result, codeOf(b.t, err)
}

func (b *bench) decide(c caller.Caller, p Pending, decision, more string) fault.Code {
	b.t.Helper()
	_, code := b.call(c, "assistant.confirm", fmt.Sprintf(`{"nonce":%q,"action_key":%q,"decision":%q%s}`, p.Nonce, p.ActionKey, decision, more))
	return code
}

// approved asks and approves, and returns the ticket before it is spent.
func (b *bench) approved(a Ask, more string) (*Ticket, Pending) {
	b.t.Helper()
	p, out := b.ask(b.t.Context(), a)
	b.pass(Inert)
	if code := b.decide(a.Caller, p, "approve", more); code != "" {
		b.t.Fatalf("approve: %s", code)
	}
	got := <-out
	if got.err != nil {
		b.t.Fatal(got.err)
	}
	return got.ticket, p
}

func (b *bench) spend(t *Ticket) fault.Code {
	b.t.Helper()
	return codeOf(b.t, b.room.Spend(b.t.Context(), t, audit.Entry{Kind: "tool", Event: "intent", Subject: t.ask.Tool}))
}

func (b *bench) settle(t *Ticket, unknown bool) {
	b.t.Helper()
	if err := b.room.Settle(b.t.Context(), t, unknown, audit.Entry{Kind: "tool", Event: "outcome"}); err != nil {
		b.t.Fatal(err)
	}
}

func codeOf(t *testing.T, err error) fault.Code {
	t.Helper()
	if err == nil {
		return ""
	}
	f, ok := errors.AsType[*fault.Error](err)
	if !ok {
		t.Fatalf("%v is no fault", err)
	}
	return f.Code
}

// events counts the audit's records by kind and event.
func (b *bench) events() map[string]int {
	b.t.Helper()
	list, err := b.log.List(b.t.Context(), audit.Filter{Limit: 10_000})
	if err != nil {
		b.t.Fatal(err)
	}
	out := map[string]int{}
	for _, r := range list {
		out[r.Kind+" "+r.Event]++
	}
	return out
}

func (b *bench) query(query string) int {
	b.t.Helper()
	var n int
	if err := b.db.Reader().QueryRowContext(b.t.Context(), query).Scan(&n); err != nil {
		b.t.Fatal(err)
	}
	return n
}

func (b *bench) exec(query string) {
	b.t.Helper()
	err := b.db.Write(b.t.Context(), store.Relaxed, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, query)
		return err
	})
	if err != nil {
		b.t.Fatal(err)
	}
}

// C4, C9: each end of a question has its own code and words, and the first end stands.
func TestEnds(t *testing.T) {
	b := newBench(t)
	words := map[string]fault.Code{}
	check := func(name string, err error, want fault.Code) {
		t.Helper()
		f := fault.Of(err)
		if f == nil || f.Code != want {
			t.Errorf("%s: %v, want %s", name, err, want)
			return
		}
		if before, ok := words[f.Public+f.ModelWords()]; ok && before != want {
			t.Errorf("%s has the words of %s", want, before)
		}
		words[f.Public+f.ModelWords()] = want
		if want != fault.Dropped && !strings.Contains(f.ModelWords(), "NOT executed") { // F-B11
			t.Errorf("%s: the model reads %q", name, f.ModelWords())
		}
	}
	a := question(owner, "jellyfin")
	p, out := b.ask(t.Context(), a)
	if code := b.decide(owner, p, "decline", `,"reason":"film night"`); code != "" {
		t.Error(code)
	}
	got := <-out
	check("declined", got.err, fault.Declined)
	if !strings.Contains(fault.Of(got.err).ModelWords(), "film night") || got.ticket != nil {
		t.Error("without its reason, or with a ticket")
	}
	a.TurnLeft = TurnMargin + 20*time.Millisecond // a real timer's end
	_, out = b.ask(t.Context(), a)
	check("expired", (<-out).err, fault.Expired)
	for _, left := range []time.Duration{TurnMargin, 0, -time.Hour} {
		a.TurnLeft = left
		_, err := b.room.Ask(t.Context(), a)
		check("no time left", err, fault.Expired)
	}
	a.TurnLeft = TurnTime
	if p, out = b.ask(t.Context(), a); !p.ExpiresAt.Equal(b.now().Add(PendingTime)) {
		t.Errorf("expires at %s", p.ExpiresAt)
	}
	b.setWall(-time.Minute)
	if code := b.decide(owner, p, "approve", ""); code != fault.Expired {
		t.Errorf("approved with the clock set back: %q", code)
	}
	check("set back", (<-out).err, fault.Expired)
	a.TurnLeft = time.Minute
	if p, out = b.ask(t.Context(), a); !p.ExpiresAt.Equal(b.now().Add(time.Minute - TurnMargin)) {
		t.Errorf("expires at %s", p.ExpiresAt)
	}
	b.room.EndSessions(t.Context(), 1, []string{"s9"}, false)
	b.room.EndSessions(t.Context(), 1, []string{"s9", "s1"}, false)
	check("session ended", (<-out).err, fault.Cancelled)
	ctx, cancel := context.WithCancel(t.Context())
	p, out = b.ask(ctx, a)
	cancel()
	check("client gone", (<-out).err, fault.Cancelled)
	if code := b.decide(owner, p, "decline", ""); code != fault.Cancelled {
		t.Errorf("declined after its end: %q", code)
	}
	b.listening = false
	for _, c := range []caller.Caller{owner, {}, caller.Peer("k", "x"), caller.Stranger("x")} {
		a.Caller = c
		_, err := b.room.Ask(t.Context(), a)
		check("nobody there", err, fault.NobodyToAsk)
	}
	for _, e := range []fault.Code{fault.Dropped, fault.Changed} {
		check("refusal", Refusal(e, ""), e)
	}
	if got := b.events(); got["confirm asked"] != 5 || got["confirm approved"] != 0 || len(b.room.Waiting(owner)) != 0 {
		t.Errorf("%v", got)
	}
}

// C9: the one chain of times.
func TestTimes(t *testing.T) {
	if !(PendingTime == 300*time.Second && PendingTime < TurnTime && TurnTime < ClientTime && ClientTime < FrameTime && TurnMargin < TurnTime-PendingTime) {
		t.Error("somebody gives up before the one who waits for it")
	}
}

// F-A1, F-A9, F-A10: questions are answered one by one, and one answer ends one.
func TestTwoQuestions(t *testing.T) {
	b := newBench(t)
	p, outP := b.ask(t.Context(), question(owner, "jellyfin"))
	q, outQ := b.ask(t.Context(), question(owner, "jellyfin")) // the same action, of another conversation
	if p.Nonce == q.Nonce || p.ActionKey != q.ActionKey {
		t.Fatalf("%+v %+v", p, q)
	}
	b.pass(Inert)
	if code := b.decide(owner, p, "decline", ""); code != "" {
		t.Fatal(code)
	}
	if w := b.room.Waiting(owner); len(w) != 1 || w[0].Nonce != q.Nonce {
		t.Errorf("waiting: %+v", w)
	}
	if e := <-b.ended; e.Nonce != p.Nonce || e.Outcome != fault.Declined {
		t.Errorf("told %+v", e)
	}
	if code := b.decide(owner, q, "approve", ""); code != "" {
		t.Error(code)
	}
	if got := <-outP; !fault.Is(got.err, fault.Declined) {
		t.Error(got.err)
	}
	if got := <-outQ; got.err != nil || b.spend(got.ticket) != "" {
		t.Error(got.err)
	}
}

// The memory of ended questions is bounded, and the newest are the ones kept.
func TestEndedIsBounded(t *testing.T) {
	b := newBench(t)
	var first, last [32]byte
	b.room.mu.Lock()
	for i := range maxEnded + 100 {
		last = hashNonce(fmt.Sprint(i))
		if i == 0 {
			first = last
		}
		b.room.remember(last, endedPending{code: fault.Expired})
	}
	_, hasFirst := b.room.ended[first]
	_, hasLast := b.room.ended[last]
	if len(b.room.ended) != maxEnded || len(b.room.endedOrder) != maxEnded || hasFirst || !hasLast {
		t.Errorf("%d kept, first %v, last %v", len(b.room.ended), hasFirst, hasLast)
	}
	b.room.mu.Unlock()
}
