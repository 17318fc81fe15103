package audit

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
)

// Report is the result of Verify.
type Report struct {
	OK      bool      `json:"ok"`
	Records int64     `json:"records"`
	Head    string    `json:"head"` // the last good record's hash
	HeadAt  time.Time `json:"head_at,omitzero"`
	Broken  int64     `json:"broken,omitzero"` // the sequence number of the first broken or missing record
	Problem string    `json:"problem,omitempty"`
}

// Verify walks the chain from its start and stops at the first broken or missing record. A head kept elsewhere (hex)
// shows whether the end was cut off: it must be one of the records. pub is the node's key.
func (l *Log) Verify(ctx context.Context, pub ed25519.PublicKey, head string) (Report, error) {
	if len(pub) != ed25519.PublicKeySize {
		return Report{}, errors.New("audit: the node's public key has the wrong length")
	}
	head = strings.ToLower(strings.TrimSpace(head))
	rows, err := l.cfg.DB.Reader().QueryContext(ctx, "SELECT seq, body, hash, sig FROM audit ORDER BY seq")
	if err != nil {
		return Report{}, fmt.Errorf("audit: %w", err)
	}
	defer rows.Close()
	rep := Report{OK: true}
	seenHead := head == ""
	for rows.Next() {
		var seq int64
		var body string
		var hash, sig []byte
		if err := rows.Scan(&seq, &body, &hash, &sig); err != nil {
			return rep, fmt.Errorf("audit: %w", err)
		}
		rec, problem := check(rep, seq, body, hash, sig, pub)
		if problem != "" {
			rep.OK, rep.Broken, rep.Problem = false, rep.Records+1, problem
			return rep, nil
		}
		rep.Records, rep.Head, rep.HeadAt = seq, hex.EncodeToString(hash), rec.At
		seenHead = seenHead || rep.Head == head
	}
	if err := rows.Err(); err != nil {
		return rep, fmt.Errorf("audit: %w", err)
	}
	if !seenHead {
		rep.OK, rep.Broken, rep.Problem = false, rep.Records+1, "the head given is not in the record: its end is missing or was replaced"
	}
	return rep, nil
}

func check(rep Report, seq int64, body string, hash, sig []byte, pub ed25519.PublicKey) (Record, string) {
	var rec Record
	sum := sha256.Sum256([]byte(body))
	switch err := json.Unmarshal([]byte(body), &rec); {
	case seq != rep.Records+1:
		return rec, fmt.Sprintf("record %d is missing", rep.Records+1)
	case !bytes.Equal(sum[:], hash):
		return rec, "the record's text was changed"
	case err != nil || rec.Seq != seq:
		return rec, "the record is not readable"
	case rec.Prev != rep.Head:
		return rec, "the record does not follow the one before"
	case !ed25519.Verify(pub, signed(sum), sig):
		return rec, "the record is not signed by this node's key"
	}
	return rec, ""
}

// Filter selects records for List. Zero values select everything.
type Filter struct {
	Kind   string
	Before int64 // only records with a smaller sequence number
	Limit  int   // at most this many; zero means 100
}

// List returns records, newest first.
func (l *Log) List(ctx context.Context, f Filter) ([]Record, error) {
	if f.Limit <= 0 {
		f.Limit = 100
	}
	rows, err := l.cfg.DB.Reader().QueryContext(ctx, `SELECT body, hash FROM audit
		WHERE (?1 = 0 OR seq < ?1) AND (?2 = '' OR json_extract(body, '$.kind') = ?2) ORDER BY seq DESC LIMIT ?3`,
		f.Before, f.Kind, f.Limit)
	if err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	defer rows.Close()
	out := []Record{}
	for rows.Next() {
		rec, err := scan(rows)
		if err != nil {
			return nil, err
		}
		out = append(out, rec)
	}
	return out, rows.Err()
}

// Export writes every record as a JSON line, oldest first, each exactly as it was hashed.
func (l *Log) Export(ctx context.Context, w io.Writer) error {
	rows, err := l.cfg.DB.Reader().QueryContext(ctx, "SELECT body FROM audit ORDER BY seq")
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var body string
		if err := rows.Scan(&body); err != nil {
			return fmt.Errorf("audit: %w", err)
		}
		if _, err := io.WriteString(w, body+"\n"); err != nil {
			return err
		}
	}
	return rows.Err()
}

func scan(rows interface{ Scan(...any) error }) (Record, error) {
	var body string
	var hash []byte
	if err := rows.Scan(&body, &hash); err != nil {
		return Record{}, fmt.Errorf("audit: %w", err)
	}
	var rec Record
	if err := json.Unmarshal([]byte(body), &rec); err != nil {
		return Record{}, fmt.Errorf("audit: %w", err)
	}
	rec.Hash = hex.EncodeToString(hash)
	return rec, nil
}

// Page returns up to limit records after a sequence number, each exactly as it was hashed, and the number to go on from;
// zero when there are no more. Zero limit means 500.
func (l *Log) Page(ctx context.Context, after int64, limit int) (lines []string, next int64, err error) {
	if limit <= 0 {
		limit = 500
	}
	rows, err := l.cfg.DB.Reader().QueryContext(ctx, "SELECT seq, body FROM audit WHERE seq > ? ORDER BY seq LIMIT ?", after, limit+1)
	if err != nil {
		return nil, 0, fmt.Errorf("audit: %w", err)
	}
	defer rows.Close()
	lines = []string{}
	for last := after; rows.Next(); {
		var seq int64
		var body string
		if err := rows.Scan(&seq, &body); err != nil {
			return nil, 0, fmt.Errorf("audit: %w", err)
		}
		if len(lines) == limit {
			next = last
			break
		}
		lines, last = append(lines, body), seq
	}
	return lines, next, rows.Err()
}
