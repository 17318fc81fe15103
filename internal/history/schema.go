package history

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"

	"atoll/internal/fault"
	"atoll/internal/fence"
	"atoll/internal/store"
)

// pageSize is SQLite's smallest: a commit writes whole pages, and a turn is four small commits.
const pageSize = 512

// The tables. An entry's id orders everything: conversation, turn and place in the turn are its bits, so that one
// clustered table serves as index too and a turn's rows stand side by side. Rank orders the list; it changes only when
// another conversation was used in between.
func schema() store.Schema {
	return store.Schema{Room: "history", Steps: []string{`
CREATE TABLE conversation (
	id INTEGER PRIMARY KEY, token TEXT NOT NULL, title TEXT NOT NULL, created INTEGER NOT NULL, updated INTEGER NOT NULL,
	rank INTEGER NOT NULL, turns INTEGER NOT NULL, tokens_in INTEGER NOT NULL, tokens_out INTEGER NOT NULL,
	cache_read INTEGER NOT NULL, cache_write INTEGER NOT NULL, cost REAL NOT NULL);
CREATE INDEX conversation_rank ON conversation (rank);
CREATE TABLE entry (
	id INTEGER PRIMARY KEY, kind INTEGER NOT NULL, flags INTEGER NOT NULL, at INTEGER, name TEXT, ref TEXT, parts TEXT,
	body TEXT NOT NULL);
CREATE TABLE summary (
	id INTEGER PRIMARY KEY, whole INTEGER NOT NULL, outside INTEGER NOT NULL, body TEXT NOT NULL);`, `
CREATE TABLE touched (
	conversation INTEGER NOT NULL, category TEXT NOT NULL, PRIMARY KEY (conversation, category)) WITHOUT ROWID`}}
}

const (
	turnBits = 24
	seqBits  = 16
	maxTurn  = 1<<turnBits - 1
	maxSeq   = 1<<seqBits - 1
	maxConv  = 1<<(63-turnBits-seqBits) - 2
)

func entryID(conv int64, turn, seq int) int64 {
	return conv<<(turnBits+seqBits) | int64(turn)<<seqBits | int64(seq)
}

func summaryID(conv int64, turn int) int64 { return conv<<turnBits | int64(turn) }

func turnOf(entry int64) int { return int(entry >> seqBits & maxTurn) }
func seqOf(entry int64) int  { return int(entry & maxSeq) }

// ref names a conversation: its number in its file and a random token, so that a number from another file finds nothing.
type ref struct {
	conv  int64
	token string
}

func newToken() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the program instead
	return hex.EncodeToString(b[:])
}

func (r ref) String() string { return strconv.FormatInt(r.conv, 10) + "-" + r.token }

func parseRef(s string) (ref, bool) {
	number, token, ok := strings.Cut(s, "-")
	if !ok || len(token) != 16 || len(number) > 10 {
		return ref{}, false
	}
	n, err := strconv.ParseInt(number, 10, 64)
	r := ref{n, token}
	return r, err == nil && n > 0 && n <= maxConv && r.String() == s
}

type kind int64

const (
	kindAsked  kind = 1 + iota // the caller's words
	kindSaid                   // text of the model
	kindCall                   // flags: the private bit; ref: the host's identifier
	kindResult                 // flags: error and private bits, then the place of its call
	kindEnd                    // body: endRecord
)

const (
	flagError   = 1
	flagPrivate = 2
	flagBits    = 2
)

// row is one entry as it stands on the disk.
type row struct {
	turn, seq int
	kind      kind
	flags     int64
	at        int64 // milliseconds since 1970
	name, ref string
	parts     string
	body      string
}

// partRecord is the layout of one part of a text; the words themselves stand in the body, where search finds them.
type partRecord struct {
	Grade string `json:"g"`
	Label string `json:"l,omitempty"`
	Len   int    `json:"n"`
}

// encode splits a text into its layout and its words. One part of a speaker's own words is the usual case and has no
// layout. A NUL is not kept: in a text read back it means a damaged file.
func encode(t fence.Text) (parts, body string) {
	stored := t.Store()
	for i := range stored {
		stored[i].Body = noNUL(stored[i].Body)
	}
	if len(stored) == 1 && stored[0].Grade == "words" {
		return "", stored[0].Body
	}
	records := make([]partRecord, len(stored))
	var b strings.Builder
	for i, s := range stored {
		records[i] = partRecord{s.Grade, s.Label, len(s.Body)}
		b.WriteString(s.Body)
	}
	raw, err := json.Marshal(records)
	if err != nil {
		panic(err) // unreachable unless a label is not UTF-8, and fence makes labels plain
	}
	return string(raw), b.String()
}

func decode(parts, body string) (fence.Text, error) {
	if err := sound(body); err != nil {
		return fence.Text{}, err
	}
	if parts == "" {
		return fence.Words(body), nil
	}
	var records []partRecord
	if err := json.Unmarshal([]byte(parts), &records); err != nil {
		return fence.Text{}, fmt.Errorf("%w: the layout of a text: %w", store.ErrDamaged, err)
	}
	stored := make([]fence.Stored, 0, len(records))
	for _, p := range records {
		if p.Len < 0 {
			return fence.Text{}, fmt.Errorf("%w: the layout of a text", store.ErrDamaged)
		}
		n := min(p.Len, len(body)) // less is left of a text that was read in its shortened form
		if n > 0 || p.Len == 0 {
			stored = append(stored, fence.Stored{Grade: p.Grade, Label: p.Label, Body: body[:n]})
		}
		body = body[n:]
	}
	if body != "" {
		stored = append(stored, fence.Stored{Grade: "outside", Label: "history", Body: body})
	}
	return fence.Restore(stored), nil
}

// sound refuses what no write of ours left: pages that a file system lost read as NULs.
func sound(s string) error {
	if strings.IndexByte(s, 0) >= 0 || !utf8.ValidString(s) {
		return fmt.Errorf("%w: bytes that are no text", store.ErrDamaged)
	}
	return nil
}

func noNUL(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	return strings.ReplaceAll(s, "\x00", "\uFFFD")
}

// endRecord is the end of a turn on disk.
type endRecord struct {
	At      int64      `json:"at"`
	Outcome Outcome    `json:"o"`
	Code    fault.Code `json:"c,omitempty"`
	Changes []Change   `json:"ch,omitempty"`
	In      int64      `json:"i,omitzero"`
	Out     int64      `json:"u,omitzero"`
	Read    int64      `json:"r,omitzero"`
	Write   int64      `json:"w,omitzero"`
	Cost    float64    `json:"d,omitzero"`
	Outside bool       `json:"x,omitzero"` // the turn held third parties' text, so a word on it is fenced
}

func (e endRecord) usage() Usage { return Usage{e.In, e.Out, e.Read, e.Write} }

func decodeEnd(body string) (endRecord, error) {
	var e endRecord
	if err := json.Unmarshal([]byte(body), &e); err != nil {
		return e, fmt.Errorf("%w: the end of a turn: %w", store.ErrDamaged, err)
	}
	return e, nil
}

func fromMillis(ms int64) time.Time { return time.UnixMilli(ms).UTC() }
