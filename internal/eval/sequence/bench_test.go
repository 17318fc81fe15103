package sequence

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"atoll/internal/account"
	"atoll/internal/assistant"
	"atoll/internal/audit"
	"atoll/internal/caller"
	"atoll/internal/clock"
	"atoll/internal/confirm"
	"atoll/internal/eval/rules"
	"atoll/internal/event"
	"atoll/internal/fence"
	"atoll/internal/grant"
	"atoll/internal/history"
	"atoll/internal/model"
	"atoll/internal/rpc"
	"atoll/internal/secret"
	"atoll/internal/store"
	"atoll/internal/tool"
)

const password = "correct horse battery staple"

func schemas() []store.Schema {
	return []store.Schema{account.Schema(), audit.Schema(), confirm.Schema()}
}

// template is a data directory's node.db with the four people in it; hashing their passwords takes long, so it is made once.
func template(ctx context.Context, dir string) (string, error) {
	path := filepath.Join(dir, "template.db")
	db, err := store.Open(ctx, store.Config{Path: path, PageSize: 1024, Schemas: schemas()})
	if err != nil {
		return "", err
	}
	people, err := account.New(ctx, account.Config{DB: db, Log: slog.New(slog.DiscardHandler), OnEnded: func(account.Ended) {},
		Record: func(context.Context, *sql.Tx, audit.Entry) error { return nil }})
	for name, role := range map[string]caller.Role{"ada": caller.Owner, "mel": caller.Member, "max": caller.Member, "vic": caller.Viewer} {
		if err == nil {
			err = people.Add(ctx, name, role, secret.New(password))
		}
	}
	return path, errors.Join(err, db.Close())
}

// bench is a node without its doors: the rooms of the guard wired as node wires them, on real files, over an outside that
// counts. Its life is one directory's; the node in it can be stopped, killed and started.
type bench struct {
	top   string // holds the directories
	dir   string
	n     int // directories so far
	key   ed25519.PrivateKey
	start time.Time
	db    *store.DB
	out   *outside

	bus       *event.Bus
	accounts  *account.Room
	log       *audit.Log
	grants    *grant.Room
	confirms  *confirm.Room
	history   *history.Room
	tools     *tool.Executor
	assistant *assistant.Assistant
	gate      *rpc.Gate
	left      confirm.Leftover

	mu       sync.Mutex // guards the rest
	drift    time.Duration
	ceilings map[string][]grant.Category
	asking   map[string]bool
	plans    map[string][]rules.Round
	asked    []confirm.Pending
	stops    map[string]map[int]context.CancelFunc // of requests, by session
	requests int
	byHost   bool // summaries are the host's
	kill     killer
	diary    *os.File // of a node that is really killed: what ran, was asked and was answered; else nil
}

// newBench makes a directory from the template and starts a node in it.
func newBench(ctx context.Context, top, template string) (*bench, error) {
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		return nil, err
	}
	if top, err = os.MkdirTemp(top, "bench"); err != nil {
		return nil, err
	}
	b := &bench{top: top, key: key, start: time.Now(), dir: filepath.Join(top, "0"), out: newOutside()}
	if err := errors.Join(os.Mkdir(b.dir, 0o700), copyFile(template, b.path("node.db"))); err != nil {
		return nil, err
	}
	b.forget()
	return b, b.open(ctx)
}

// forget takes out what belongs to one script.
func (b *bench) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.drift, b.byHost, b.asked = 0, false, nil
	b.ceilings, b.asking, b.plans = map[string][]grant.Category{}, map[string]bool{}, map[string][]rules.Round{}
	b.stops, b.kill = map[string]map[int]context.CancelFunc{}, killer{}
}

func (b *bench) path(name string) string { return filepath.Join(b.dir, name) }

func (b *bench) clock() clock.Clock {
	return clock.New(func() time.Time {
		b.point()
		b.mu.Lock()
		defer b.mu.Unlock()
		return time.Now().Add(b.drift)
	}, func() time.Duration { return time.Since(b.start) })
}

// open opens the files and starts the node.
func (b *bench) open(ctx context.Context) (err error) {
	if b.db, err = store.Open(ctx, store.Config{Path: b.path("node.db"), PageSize: 1024, Schemas: schemas()}); err != nil {
		return err
	}
	b.history, err = history.New(history.Config{Dir: b.path("history"), Now: b.clock().Now, Log: slog.New(slog.DiscardHandler), Summarise: b.summarise})
	if err != nil {
		return err
	}
	return b.boot(ctx)
}

// boot builds the rooms on open files, as node.New does.
func (b *bench) boot(ctx context.Context) (err error) {
	c, log := b.clock(), slog.New(slog.DiscardHandler)
	b.bus = event.New()
	if b.log, err = audit.New(audit.Config{DB: b.db, Key: b.key, Now: c.Now}); err != nil {
		return err
	}
	record := func(ctx context.Context, e audit.Entry) error { return b.log.Append(ctx, store.Durable, e) }
	if b.accounts, err = account.New(ctx, account.Config{DB: b.db, Now: c.Now, Log: log, OnEnded: b.sessionsEnded,
		Record: func(ctx context.Context, tx *sql.Tx, e audit.Entry) error { return b.log.AppendTx(ctx, tx, e) },
		Altered: func(ctx context.Context, tx *sql.Tx, account int64) error {
			return confirm.EndPermissions(ctx, tx, b.log, account)
		}}); err != nil {
		return err
	}
	limits := func() time.Time { return b.start.Add(time.Since(b.start)) }
	rooms := rpc.NewGate(rpc.Config{Methods: append(b.out.rows(b.point), b.accounts.Methods()...), Log: log, Now: limits})
	if b.grants, err = grant.New(grant.Config{Path: b.path("grants.json"), Clock: c, Log: log, Ceiling: b.ceiling, Record: record,
		OnMode: func(m grant.Mode) {
			b.confirms.DropAllPermissions(context.Background())
			if m == grant.Off {
				b.assistant.CancelAll()
			}
		}}); err != nil {
		return err
	}
	if b.confirms, b.left, err = confirm.New(ctx, confirm.Config{DB: b.db, Audit: b.log, Clock: c, Log: log, Listening: b.bus.Listening,
		Asking:  func(peer string) bool { b.mu.Lock(); defer b.mu.Unlock(); return b.asking[peer] },
		Publish: b.publish}); err != nil {
		return err
	}
	if b.tools, err = tool.New(tool.Config{Tools: tool.Registry(), Gate: rooms, Grants: b.grants, Confirm: b.confirms, Audit: b.log, Clock: c,
		Log: log, Secret: []byte("a secret of this node"), Alive: b.alive}); err != nil {
		return err
	}
	m := puppet{b}
	if b.assistant, err = assistant.New(assistant.Config{Model: m, Peers: assistant.Peers{Model: m}, Tools: b.tools, Grants: b.grants,
		History: b.history, Clock: c, Log: log}); err != nil {
		return err
	}
	b.gate = rooms.Extend(append(append(b.grants.Methods(), b.confirms.Methods()...), b.assistant.Methods()...)...)
	return nil
}

func (b *bench) publish(name string, _ int64, data any) {
	b.point()
	if p, ok := data.(confirm.Pending); ok && name == "confirm" {
		b.mu.Lock()
		b.asked = append(b.asked, p)
		b.mu.Unlock()
		b.note("asked", action(p), p.Nonce, p.ActionKey)
	}
}

// note writes to the diary, where there is one: what is in it survives kill -9.
func (b *bench) note(words ...string) {
	if b.diary != nil {
		_, _ = b.diary.WriteString(strings.Join(words, "\t") + "\n") // a line that is missing shows as a fault
	}
}

func (b *bench) ceiling(peer string) []grant.Category {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ceilings[peer]
}

func (b *bench) alive(ctx context.Context, c caller.Caller) (caller.Caller, error) {
	if c.IsPeer() {
		return c, nil
	}
	return b.accounts.Alive(ctx, c)
}

// sessionsEnded is node's, with the requests that httpd would cancel.
func (b *bench) sessionsEnded(e account.Ended) {
	b.bus.EndSessions(e.Sessions)
	b.mu.Lock()
	for _, s := range e.Sessions {
		for _, stop := range b.stops[s] {
			stop()
		}
	}
	b.mu.Unlock()
	b.confirms.EndSessions(context.Background(), e.Account, e.Sessions, e.Changed)
}

func (b *bench) summarise(ctx context.Context, _ caller.Caller, earlier fence.Text, turns []history.TurnText) (fence.Text, error) {
	b.mu.Lock()
	byHost := b.byHost
	b.mu.Unlock()
	if byHost {
		return fence.Text{}, errors.New("no model for it")
	}
	return b.assistant.Summarise(ctx, earlier, turns)
}

// close lets go of the files.
func (b *bench) close() error {
	close(b.out.release)
	b.tools.Close()
	b.bus.Close()
	return errors.Join(b.history.Close(), b.db.Close())
}

// fresh makes the node as it was at the start, on the same open files.
func (b *bench) fresh(ctx context.Context) error {
	close(b.out.release)
	b.tools.Close()
	b.bus.Close()
	b.out = newOutside()
	b.forget()
	err := b.db.Write(ctx, store.Relaxed, func(ctx context.Context, tx *sql.Tx) error {
		for _, q := range []string{"DELETE FROM pending", "DELETE FROM permission", "DELETE FROM mute", "DELETE FROM audit", "DELETE FROM session",
			"UPDATE account SET role = CASE name WHEN 'ada' THEN 'owner' WHEN 'vic' THEN 'viewer' ELSE 'member' END"} {
			if _, err := tx.ExecContext(ctx, q); err != nil {
				return err
			}
		}
		for session := range rules.New().Sessions {
			hash := sha256.Sum256([]byte("token " + session))
			now := time.Now().Unix()
			_, err := tx.ExecContext(ctx, "INSERT INTO session (id, token, account, address, created_at, last_seen) SELECT ?, ?, id, '127.0.0.1', ?, ? FROM account WHERE name = ?",
				session, hash[:], now, now, strings.TrimRight(session, "12"))
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		err = b.db.Scrub(ctx)
	}
	if gone := os.Remove(b.path("grants.json")); gone != nil && !errors.Is(gone, fs.ErrNotExist) {
		err = errors.Join(err, gone)
	}
	if err != nil {
		return err
	}
	return b.boot(ctx)
}

// who is the live caller of a session, as httpd finds it.
func (b *bench) who(ctx context.Context, session string) (caller.Caller, error) {
	s, err := b.accounts.Resolve(ctx, secret.New("token "+session), "127.0.0.1")
	return s.Caller, err
}

// call is one request of a session.
func (b *bench) call(ctx context.Context, session, method, params string, emit rpc.Emit) (any, error) {
	c, err := b.who(ctx, session)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	b.mu.Lock()
	b.requests++
	n := b.requests
	if b.stops[session] == nil {
		b.stops[session] = map[int]context.CancelFunc{}
	}
	b.stops[session][n] = cancel
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.stops[session], n)
	}()
	return b.gate.Call(ctx, c, rpc.People, method, []byte(params), emit)
}

// puppet is a model that does what the script says, whatever it is told: the worst there is.
type puppet struct{ b *bench }

func (puppet) Info() model.Info { return model.Info{Backend: "script", Model: "puppet"} }

func (p puppet) Stream(ctx context.Context, req model.Request, emit func(string) error) (model.Answer, error) {
	p.b.point()
	if err := errors.Join(req.Check(), ctx.Err()); err != nil {
		return model.Answer{}, err
	}
	name, round := turnOf(req)
	p.b.mu.Lock()
	plan := p.b.plans[name]
	p.b.mu.Unlock()
	if round >= len(plan) {
		words := "that is all of " + name
		if err := emit(words); err != nil {
			return model.Answer{}, err
		}
		return model.Answer{Blocks: []model.Block{model.TextBlock(fence.Words(words))}, Stop: model.StopEnd}, nil
	}
	a := model.Answer{Stop: model.StopCalls}
	if plan[round].Cut {
		a.Stop = model.StopTruncated
	}
	for _, c := range plan[round].Calls { // one identifier for all: the host mints its own (T10)
		a.Blocks = append(a.Blocks, model.Block{Call: &model.Call{ID: "same", Name: c.Tool, Args: []byte(arguments(c))}})
	}
	return a, nil
}

// turnOf finds the words of the running turn and how many answers came since.
func turnOf(req model.Request) (name string, round int) {
	for i := len(req.Messages) - 1; i >= 0; i-- {
		m := req.Messages[i]
		if m.Role == model.Assistant {
			round++
			continue
		}
		for _, bl := range m.Blocks {
			if bl.Text != nil && strings.HasPrefix(bl.Text.Payload(), "turn ") {
				return bl.Text.Payload(), round
			}
		}
	}
	return "a summary", 0
}

func copyFile(from, to string) error {
	raw, err := os.ReadFile(from)
	if err != nil {
		return fmt.Errorf("copy: %w", err)
	}
	return os.WriteFile(to, raw, 0o600)
}
