package confirm

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"atoll/internal/audit"
	"atoll/internal/fault"
	"atoll/internal/store"
)

// Via says what let the action pass, for the audit.
func (t *Ticket) Via() string {
	if t.pending == nil {
		return "permission " + t.permission
	}
	return "approval"
}

// Spend uses the ticket up and writes the audit intent, in one durable transaction, before anything runs (C2). A second
// Spend of the same ticket fails, here and after any crash.
func (r *Room) Spend(ctx context.Context, t *Ticket, intent audit.Entry) error {
	if t.ask.Caller.IsPeer() && !r.Asking(t.ask.Caller) {
		r.Drop(ctx, t, fault.Changed)
		return Refusal(fault.Changed, "")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.allowing, t.pending)
	if t.spent || t.pending != nil && (t.pending.spent || t.pending.outcome != approved) {
		return fault.New(fault.Failed, "this approval was used already")
	}
	if t.pending != nil && t.pending.span.Over(r.cfg.Clock) {
		r.dropLocked(ctx, t, fault.Expired)
		return Refusal(fault.Expired, "")
	}
	var uses []time.Time
	err := r.cfg.DB.Write(ctx, store.Durable, func(ctx context.Context, tx *sql.Tx) (err error) {
		if uses, err = r.spendRow(ctx, tx, t); err != nil {
			return err
		}
		return r.cfg.Audit.AppendTx(ctx, tx, intent)
	})
	if err != nil {
		if f, ok := errors.AsType[*fault.Error](err); ok {
			return f
		}
		return fault.Wrap(err, fault.Unavailable, "the action cannot be written down first, so it was not run; is the disk full?")
	}
	if t.pending == nil {
		t.spent, r.permissions[t.permission].uses = true, uses
		return nil
	}
	t.pending.spent = true
	t.pending.redeemable.Store(t.ask.Caller.IsPeer())
	if t.pending.allow > 0 {
		r.allowLocked(ctx, t)
	}
	return nil
}

// spendRow marks the ticket's row; for a standing permission it returns the uses that count from then on.
func (r *Room) spendRow(ctx context.Context, tx *sql.Tx, t *Ticket) ([]time.Time, error) {
	now := r.cfg.Clock.Now().Unix()
	if t.pending == nil {
		uses, err := r.usePermission(ctx, tx, t)
		if err != nil {
			return nil, err
		}
		return uses, r.insert(ctx, tx, t.hash, t.ask, "dispatched")
	}
	res, err := tx.ExecContext(ctx, "UPDATE pending SET state = 'dispatched', at = ? WHERE nonce = ? AND state = 'waiting'", now, t.hash[:])
	if err != nil {
		return nil, err
	}
	if n, err := res.RowsAffected(); err != nil || n != 1 {
		return nil, fault.Wrap(err, fault.Failed, "this approval was used already")
	}
	return nil, nil
}

// Settle records how a spent action came out. unknown says that its result was not seen (T14).
func (r *Room) Settle(ctx context.Context, t *Ticket, unknown bool, outcome audit.Entry) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, open := r.unknown[t.ask.Key]
	state := "done"
	if unknown {
		state = "unknown"
		r.unknown[t.ask.Key] = r.cfg.Clock.Now()
	}
	err := r.cfg.DB.Write(ctx, store.Relaxed, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "UPDATE pending SET state = ?, at = ? WHERE nonce = ?", state, r.cfg.Clock.Now().Unix(), t.hash[:])
		if err == nil && open && !unknown { // now the state is known, after a restart too
			_, err = tx.ExecContext(ctx, "UPDATE pending SET state = 'done' WHERE action_key = ? AND state = 'unknown'", t.ask.Key.String())
		}
		if err != nil {
			return err
		}
		return r.cfg.Audit.AppendTx(ctx, tx, outcome)
	})
	if err == nil && !unknown {
		delete(r.unknown, t.ask.Key)
	}
	return err
}

// Drop ends an approved ticket that was not spent, because a check after the approval failed.
func (r *Room) Drop(ctx context.Context, t *Ticket, code fault.Code) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dropLocked(ctx, t, code)
}

func (r *Room) dropLocked(ctx context.Context, t *Ticket, code fault.Code) {
	delete(r.allowing, t.pending)
	if t.pending == nil {
		t.spent = true
		return
	}
	if t.pending.spent {
		return
	}
	t.pending.spent = true
	if e, ok := r.ended[t.hash]; ok {
		e.code = code
		r.ended[t.hash] = e
	}
	e := t.ask.entry("dropped")
	e.Code = string(code)
	err := r.cfg.DB.Write(ctx, store.Relaxed, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "UPDATE pending SET state = ?, at = ? WHERE nonce = ? AND state = 'waiting'",
			string(code), r.cfg.Clock.Now().Unix(), t.hash[:])
		if err != nil {
			return err
		}
		return r.cfg.Audit.AppendTx(ctx, tx, e)
	})
	if err != nil {
		r.cfg.Log.Error("the end of an approval was not written down; it cannot run all the same", "err", err)
	}
}

// Left is one action that an earlier run left behind.
type Left struct {
	Tool, Summary, Caller, ActionKey string
	At                               time.Time
}

// Leftover is what New found: questions that stood (nothing ran) and actions that were started and not answered.
type Leftover struct {
	Dropped []Left
	Unknown []Left
}

// recover settles the table after a stop or a crash. Nothing in it is ever run.
func (r *Room) recover(ctx context.Context) (Leftover, error) {
	var left Leftover
	err := r.cfg.DB.Write(ctx, store.Durable, func(ctx context.Context, tx *sql.Tx) error {
		old := r.cfg.Clock.Now().Add(-unknownKept).Unix()
		if _, err := tx.ExecContext(ctx, "DELETE FROM pending WHERE state NOT IN ('waiting', 'dispatched') AND at < ?", old); err != nil {
			return err
		}
		rows, err := tx.QueryContext(ctx, "SELECT nonce, action_key, account, caller, tool, summary, state, at FROM pending ORDER BY at")
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			if err := r.recoverRow(rows, &left); err != nil {
				return err
			}
		}
		if err := rows.Err(); err != nil {
			return err
		}
		return r.recordLeftover(ctx, tx, left)
	})
	if err != nil {
		return left, err
	}
	if err := r.loadMutes(ctx); err != nil {
		return left, err
	}
	return left, r.loadPermissions(ctx)
}

func (r *Room) recoverRow(rows *sql.Rows, left *Leftover) error {
	var hash []byte
	var key, who, tool, summary, state string
	var account, at int64
	if err := rows.Scan(&hash, &key, &account, &who, &tool, &summary, &state, &at); err != nil {
		return err
	}
	k, err := parseKey(key)
	if err != nil || len(hash) != len(Key{}) {
		return errors.New("a pending row is not readable")
	}
	l := Left{Tool: tool, Summary: summary, Caller: who, ActionKey: key, At: time.Unix(at, 0)}
	code := fault.Code(state)
	switch state {
	case "waiting":
		left.Dropped, code = append(left.Dropped, l), fault.Dropped
	case "dispatched":
		left.Unknown, code = append(left.Unknown, l), approved
		r.unknown[k] = l.At
	case "unknown":
		r.unknown[k], code = l.At, approved
	case "done":
		code = approved
	}
	r.remember([32]byte(hash), endedPending{code, account, k})
	return nil
}

func (r *Room) recordLeftover(ctx context.Context, tx *sql.Tx, left Leftover) error {
	for _, l := range left.Dropped {
		e := audit.Entry{Kind: "confirm", Event: "dropped", Caller: l.Caller, Subject: l.Tool, ActionKey: l.ActionKey, Code: string(fault.Dropped)}
		if err := r.cfg.Audit.AppendTx(ctx, tx, e); err != nil {
			return err
		}
	}
	for _, l := range left.Unknown {
		e := audit.Entry{Kind: "tool", Event: "outcome", Caller: l.Caller, Subject: l.Tool, ActionKey: l.ActionKey,
			Code: string(fault.OutcomeUnknown), Outcome: "unknown", Detail: "the node stopped before the result was seen"}
		if err := r.cfg.Audit.AppendTx(ctx, tx, e); err != nil {
			return err
		}
	}
	now := r.cfg.Clock.Now().Unix()
	if _, err := tx.ExecContext(ctx, "UPDATE pending SET state = ?, at = ? WHERE state = 'waiting'", string(fault.Dropped), now); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, "UPDATE pending SET state = 'unknown' WHERE state = 'dispatched'")
	return err
}
