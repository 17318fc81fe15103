package assistant

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"

	"atoll/internal/clock"
	"atoll/internal/fault"
	"atoll/internal/store"
)

// Schema is the money spent, a row a day: the operators' and, apart from it, the peers'.
func Schema() store.Schema {
	return store.Schema{Room: "assistant", Steps: []string{"CREATE TABLE spent (day TEXT PRIMARY KEY, micro INTEGER NOT NULL) WITHOUT ROWID",
		"CREATE TABLE spent_peers (day TEXT PRIMARY KEY, micro INTEGER NOT NULL) WITHOUT ROWID"}}
}

// purse is the statements of one of the two tables, and what is said when it is empty.
type purse struct{ read, add, empty string }

func operatorsPurse() purse {
	return purse{"SELECT micro FROM spent WHERE day = ?",
		"INSERT INTO spent VALUES (?, ?) ON CONFLICT (day) DO UPDATE SET micro = micro + excluded.micro",
		"today's model budget of $%.2f is used up; it starts anew at midnight, or raise daily_budget_usd"}
}

func peersPurse() purse {
	return purse{"SELECT micro FROM spent_peers WHERE day = ?",
		"INSERT INTO spent_peers VALUES (?, ?) ON CONFLICT (day) DO UPDATE SET micro = micro + excluded.micro",
		"today's budget of $%.2f for other nodes' questions is used up; it starts anew at midnight, or raise mesh.daily_budget_usd"}
}

// Budget is the day's money for the model, in millionths of a dollar; the day is the server's own (B4).
type Budget struct {
	db    *store.DB
	clock clock.Clock
	limit int64
	purse purse

	mu    sync.Mutex // guards the rest
	day   string
	spent int64
}

// NewBudget opens the operators' budget. limit is in millionths of a dollar and positive.
func NewBudget(ctx context.Context, db *store.DB, c clock.Clock, limit int64) (*Budget, error) {
	return newBudget(ctx, db, c, limit, operatorsPurse())
}

// NewPeersBudget opens the budget of all peers' questions together, counted apart from the operators'.
func NewPeersBudget(ctx context.Context, db *store.DB, c clock.Clock, limit int64) (*Budget, error) {
	return newBudget(ctx, db, c, limit, peersPurse())
}

func newBudget(ctx context.Context, db *store.DB, c clock.Clock, limit int64, from purse) (*Budget, error) {
	if limit <= 0 {
		return nil, errors.New("assistant: a daily budget must be positive")
	}
	b := &Budget{db: db, clock: c, limit: limit, purse: from}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b, b.turnDay(ctx)
}

func (b *Budget) today() string { return b.clock.Now().Format("2006-01-02") }

func (b *Budget) turnDay(ctx context.Context) error {
	day := b.today()
	if day == b.day {
		return nil
	}
	var spent int64
	err := b.db.Reader().QueryRowContext(ctx, b.purse.read, day).Scan(&spent)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return fmt.Errorf("assistant: %w", err)
	}
	b.day, b.spent = day, spent
	return nil
}

// Check refuses once the day's money is spent.
func (b *Budget) Check(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.turnDay(ctx); err != nil {
		return fault.Wrap(err, fault.Unavailable, "the day's model budget cannot be read")
	}
	if b.spent >= b.limit {
		return fault.New(fault.Budget, b.purse.empty, float64(b.limit)/1e6)
	}
	return nil
}

// Spend adds a turn's cost.
func (b *Budget) Spend(ctx context.Context, micro int64) error {
	if micro <= 0 {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.turnDay(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	b.spent += micro
	return b.db.Write(ctx, store.Relaxed, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, b.purse.add, b.day, micro)
		return err
	})
}
