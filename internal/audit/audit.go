// Package audit keeps the append-only, hash-chained record of what was decided and done (N2). It judges nothing and
// notifies nobody.
package audit

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"

	"atoll/internal/store"
)

// Schema is the record's table. The text of a record is stored as it was hashed.
func Schema() store.Schema {
	return store.Schema{Room: "audit", Steps: []string{`
CREATE TABLE audit (
	seq  INTEGER PRIMARY KEY,
	body TEXT NOT NULL,
	hash BLOB NOT NULL,
	sig  BLOB NOT NULL
)`}}
}

// Entry is what is recorded. Args is canonical JSON, and empty wherever H3 forbids it; the caller of Append sees to
// that.
type Entry struct {
	Kind      string `json:"kind"`                 // "tool", "confirm", "grant", "permission", "account", "session", "rpc", "node"
	Event     string `json:"event"`                // what of that kind: "intent", "outcome", "refused", "approve", "login" …
	Caller    string `json:"caller"`               // who, as caller.Caller prints it
	Session   string `json:"session,omitempty"`    // the session's public identifier
	Subject   string `json:"subject,omitempty"`    // the tool, method, account or category concerned
	ActionKey string `json:"action_key,omitempty"` // lower-case hex
	Args      string `json:"args,omitempty"`
	Code      string `json:"code,omitempty"`    // a fault.Code, for refusals and failures
	Outcome   string `json:"outcome,omitempty"` // "done", "refused", "failed", "unknown"
	Detail    string `json:"detail,omitempty"`  // host-written words
	Untrusted bool   `json:"untrusted,omitzero"`
}

// Record is an entry in the chain.
type Record struct {
	Seq  int64     `json:"seq"`
	At   time.Time `json:"at"`
	Prev string    `json:"prev"` // the hash of the record before, hex; empty for the first
	Entry
	Hash string `json:"hash,omitempty"` // SHA-256 of the record's stored text, hex
}

// Config is what a Log needs.
type Config struct {
	DB  *store.DB
	Key ed25519.PrivateKey // signs every record, so that whichever is the last is a signed head; nil to read only
	Now func() time.Time
}

// Log is the chain. It is safe for concurrent use.
type Log struct{ cfg Config }

// New makes a Log on a file that has Schema.
func New(cfg Config) (*Log, error) {
	if cfg.DB == nil || cfg.Now == nil {
		return nil, errors.New("audit: a database and a clock are needed")
	}
	if len(cfg.Key) != 0 && len(cfg.Key) != ed25519.PrivateKeySize {
		return nil, errors.New("audit: the node's key has the wrong length")
	}
	return &Log{cfg}, nil
}

// Append records one entry in a transaction of its own.
func (l *Log) Append(ctx context.Context, how store.Durability, e Entry) error {
	return l.cfg.DB.Write(ctx, how, func(ctx context.Context, tx *sql.Tx) error { return l.AppendTx(ctx, tx, e) })
}

// AppendTx records one entry in the transaction of what it speaks of, so that both are there or neither.
func (l *Log) AppendTx(ctx context.Context, tx *sql.Tx, e Entry) error {
	if len(l.cfg.Key) == 0 {
		return errors.New("audit: opened to read only; without the node's key nothing is recorded")
	}
	var seq int64
	var prev []byte
	err := tx.QueryRowContext(ctx, "SELECT seq, hash FROM audit ORDER BY seq DESC LIMIT 1").Scan(&seq, &prev)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return fmt.Errorf("audit: %w", err)
	}
	body, err := json.Marshal(Record{Seq: seq + 1, At: l.cfg.Now().UTC(), Prev: hex.EncodeToString(prev), Entry: e})
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	hash := sha256.Sum256(body)
	_, err = tx.ExecContext(ctx, "INSERT INTO audit (seq, body, hash, sig) VALUES (?, ?, ?, ?)",
		seq+1, string(body), hash[:], ed25519.Sign(l.cfg.Key, signed(hash)))
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	return nil
}

// signed is what the signature covers: a name for its use, then the hash.
func signed(hash [32]byte) []byte { return append([]byte("atoll audit record\x00"), hash[:]...) }
