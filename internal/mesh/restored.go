package mesh

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"database/sql"
	"encoding/binary"

	"atoll/internal/audit"
	"atoll/internal/store"
)

// A node that was restored from an old copy has forgotten whom its owner blocked since. Its peers keep what it last
// signed about itself, and hand that back: a start that it does not know, or a generation above its own, is from a time
// that it has lost.

const statementHead = "atoll mesh start and generation\x00"

// runID names one start of a node; each that was ever made is kept.
type runID [16]byte

// statement is what a node signs for its peers: which start it is in, and how often its trust in peers has changed.
type statement struct {
	run        runID
	generation uint64
}

const statementBytes = len(runID{}) + 8

func (s statement) signed(key ed25519.PrivateKey) []byte {
	raw := binary.BigEndian.AppendUint64(s.run[:], s.generation)
	return append(raw, ed25519.Sign(key, append([]byte(statementHead), raw...))...)
}

// readStatement reads one; ok is false where the key did not sign it.
func readStatement(pub ed25519.PublicKey, raw []byte) (s statement, ok bool) {
	if len(raw) != statementBytes+ed25519.SignatureSize || !ed25519.Verify(pub, append([]byte(statementHead), raw[:statementBytes]...), raw[statementBytes:]) {
		return statement{}, false
	}
	copy(s.run[:], raw)
	s.generation = binary.BigEndian.Uint64(raw[len(s.run):])
	return s, true
}

// begin writes down this start, before anything is signed in its name.
func (r *Room) begin(ctx context.Context) error {
	_, _ = rand.Read(r.run[:]) // never fails
	return r.cfg.DB.Write(ctx, store.Durable, func(ctx context.Context, tx *sql.Tx) error { return putRun(ctx, tx, r.run) })
}

func putRun(ctx context.Context, tx *sql.Tx, run runID) error {
	_, err := tx.ExecContext(ctx, "INSERT OR IGNORE INTO mesh_run VALUES (?)", run[:])
	return err
}

func (r *Room) statement() []byte {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return statement{r.run, r.generation}.signed(r.cfg.Key)
}

// checkRestored holds everything where a peer has a statement of this node from a time that this node does not remember.
// Only this node's own signature counts.
func (r *Room) checkRestored(ctx context.Context, yours []byte) {
	s, ok := readStatement(r.cfg.Key.Public().(ed25519.PublicKey), yours)
	if !ok {
		return
	}
	var known int
	if err := r.cfg.DB.Reader().QueryRowContext(ctx, "SELECT count(*) FROM mesh_run WHERE id = ?", s.run[:]).Scan(&known); err != nil {
		r.cfg.Log.Error("whether this node was restored cannot be told", "err", err)
		return
	}
	r.mu.RLock()
	behind := (known == 0 || s.generation > r.generation) && !r.held
	r.mu.RUnlock()
	if !behind {
		return
	}
	if err := r.hold(ctx, s); err != nil {
		r.cfg.Log.Error("that the node was restored could not be written down; everything is held all the same", "err", err)
	}
	r.cfg.Raise(context.WithoutCancel(ctx), Notice{Security: true, Key: "mesh-restored",
		What: "This node has forgotten decisions about its peers: it seems to have been restored from an old copy. Peers get nothing until you have looked.",
		Do:   "Look through the peers: block again whom you had blocked, and set what each may have. Then: atoll mesh resume."})
	for _, p := range r.snapshot() {
		r.cfg.Cancel(p.key)
	}
}

// hold closes all ceilings, and lifts the generation over the one that was lost. The lost start is known from then on, so
// that one loss holds once.
func (r *Room) hold(ctx context.Context, lost statement) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held = true
	r.generation = max(r.generation, lost.generation)
	return r.writeStateLocked(ctx, audit.Entry{Kind: "mesh", Event: "held", Caller: "node", Outcome: "done"},
		func(ctx context.Context, tx *sql.Tx) error { return putRun(ctx, tx, lost.run) })
}

// writeStateLocked keeps generation and hold, and what else is given, with an audit record; mu is held.
func (r *Room) writeStateLocked(ctx context.Context, e audit.Entry, more ...func(context.Context, *sql.Tx) error) error {
	held := int64(0)
	if r.held {
		held = 1
	}
	return r.cfg.DB.Write(ctx, store.Durable, func(ctx context.Context, tx *sql.Tx) error {
		if err := putState(ctx, tx, "generation", int64(r.generation)); err != nil {
			return err
		}
		if err := putState(ctx, tx, "held", held); err != nil {
			return err
		}
		for _, f := range more {
			if err := f(ctx, tx); err != nil {
				return err
			}
		}
		return r.cfg.Record(ctx, tx, e)
	})
}
