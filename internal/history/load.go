package history

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"unicode/utf8"

	"atoll/internal/fence"
	"atoll/internal/model"
)

// kept is one turn in memory.
type kept struct {
	number int
	at     int64
	asked  fence.Text
	rounds []round
	end    *endRecord // nil: the turn never ended, or its end was not asked for
	ended  bool
}

// round is one answer of the model and the results of its calls.
type round struct {
	said     []model.Block
	calls    []*slot
	answered bool
}

// slot is a call and the place for its one result.
type slot struct {
	seq     int
	call    *model.Call
	private bool
	result  *model.Result
	hidden  bool // the result was private
}

const rowColumns = "id, kind, flags, at, name, ref, parts, "

// The bodies of rows in their shortened form: arguments are whole or none, the end of a turn is always whole.
const shortBody = "CASE WHEN kind = 5 THEN body WHEN kind = 3 THEN iif(octet_length(body) > 300, '{}', body) ELSE substr(body, 1, 301) END"

// load reads turns newest first, word for word until softLoad bytes and shortened from there on, so that its cost has a
// bound whatever was kept (F-D8). The turns are returned oldest first.
func load(ctx context.Context, tx *sql.Tx, conv int64, from, to int) ([]kept, error) {
	if from > to {
		return nil, nil
	}
	low, high := entryID(conv, from, 0), entryID(conv, to+1, 0)
	rows, rest, err := readRows(ctx, tx, "body", low, high, softLoad)
	if err != nil {
		return nil, err
	}
	if rest > low {
		short, _, err := readRows(ctx, tx, shortBody, low, rest, 0)
		if err != nil {
			return nil, err
		}
		rows = append(rows, short...)
	}
	slices.Reverse(rows)
	turns, err := group(rows, false, rest)
	if err != nil {
		return nil, err
	}
	return trim(turns, hardLoad), nil
}

// querier is a transaction or a reader.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// readRows reads rows from high (excluded) down to low, until more than limit bytes came; zero means no limit. rest is
// the lowest id read.
func readRows(ctx context.Context, q querier, body string, low, high int64, limit int) (rows []row, rest int64, err error) {
	found, err := q.QueryContext(ctx, "SELECT "+rowColumns+body+" FROM entry WHERE id >= ? AND id < ? ORDER BY id DESC", low, high)
	if err != nil {
		return nil, 0, err
	}
	defer found.Close()
	rest = low
	total := 0
	for found.Next() {
		r, id, err := scanRow(found)
		if err != nil {
			return nil, 0, err
		}
		rows = append(rows, r)
		if total += len(r.body); limit > 0 && total > limit {
			rest = id
			break
		}
	}
	return rows, rest, found.Err()
}

func scanRow(found *sql.Rows) (row, int64, error) {
	var r row
	var id int64
	var at sql.NullInt64
	var name, ref, parts sql.NullString
	if err := found.Scan(&id, &r.kind, &r.flags, &at, &name, &ref, &parts, &r.body); err != nil {
		return row{}, 0, err
	}
	r.turn, r.seq = turnOf(id), seqOf(id)
	r.at, r.name, r.ref, r.parts = at.Int64, name.String, ref.String, parts.String
	return r, id, nil
}

// group makes turns of rows in order. Rows below the id short were read in their shortened form.
func group(rows []row, ends bool, short int64) ([]kept, error) {
	var turns []kept
	var slots map[int]*slot
	for _, r := range rows {
		if len(turns) == 0 || turns[len(turns)-1].number != r.turn {
			turns = append(turns, kept{number: r.turn})
			slots = map[int]*slot{}
		}
		k := &turns[len(turns)-1]
		if r.kind == kindCall {
			if err := sound(r.body); err != nil {
				return nil, err
			}
			k.call(r, slots)
			continue
		}
		if r.kind == kindEnd {
			k.ended = true
			if !ends {
				continue
			}
			e, err := decodeEnd(r.body)
			if err != nil {
				return nil, err
			}
			k.end = &e
			continue
		}
		text, err := decode(r.parts, r.body)
		if err != nil {
			return nil, err
		}
		if short > 0 && utf8.RuneCountInString(r.body) > shortened {
			if r.turn < turnOf(short) || r.turn == turnOf(short) && r.seq < seqOf(short) {
				text = shorten(text, shortened)
			}
		}
		k.text(r, text, slots)
	}
	return turns, nil
}

func (k *kept) open() *round {
	if n := len(k.rounds); n == 0 || k.rounds[n-1].answered {
		k.rounds = append(k.rounds, round{})
	}
	return &k.rounds[len(k.rounds)-1]
}

func (k *kept) call(r row, slots map[int]*slot) {
	s := &slot{seq: r.seq, call: &model.Call{ID: r.ref, Name: r.name, Args: []byte(r.body)}, private: r.flags&flagPrivate != 0}
	slots[r.seq] = s
	rd := k.open()
	rd.said = append(rd.said, model.Block{Call: s.call})
	rd.calls = append(rd.calls, s)
}

func (k *kept) text(r row, text fence.Text, slots map[int]*slot) {
	switch r.kind {
	case kindAsked:
		k.asked, k.at = text, r.at
	case kindSaid:
		rd := k.open()
		rd.said = append(rd.said, model.TextBlock(text))
	case kindResult:
		s := slots[int(r.flags>>flagBits)]
		if s == nil || s.result != nil || len(k.rounds) == 0 {
			return // a result without its call says nothing to anybody
		}
		s.result = &model.Result{Name: s.call.Name, Text: text, IsError: r.flags&flagError != 0}
		s.hidden = r.flags&flagPrivate != 0
		k.rounds[len(k.rounds)-1].answered = true
	}
}

// shorten cuts a text to n characters with a visible mark, and leaves every part its grade.
func shorten(t fence.Text, n int) fence.Text {
	parts := t.Store()
	for i := range parts {
		count := utf8.RuneCountInString(parts[i].Body)
		if count <= n {
			n -= count
			continue
		}
		parts[i].Body = cut(parts[i].Body, n) + "\n[… cut here by Atoll]"
		parts = parts[:i+1]
		break
	}
	return fence.Restore(parts)
}

// cut returns the first n characters of s.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for i := range s {
		if n == 0 {
			return s[:i]
		}
		n--
	}
	return s
}

// trim drops the oldest turns, and then the oldest rounds of the only one left, until at most limit bytes remain.
func trim(turns []kept, limit int) []kept {
	total := 0
	for i := range turns {
		total += turns[i].size()
	}
	for len(turns) > 1 && total > limit {
		total -= turns[0].size()
		turns = turns[1:]
	}
	for len(turns) == 1 && total > limit && len(turns[0].rounds) > 1 {
		total -= turns[0].rounds[0].size()
		turns[0].rounds = turns[0].rounds[1:]
	}
	return turns
}

func (k *kept) size() int {
	n := len(k.asked.Payload())
	for i := range k.rounds {
		n += k.rounds[i].size()
	}
	return n
}

func (rd *round) size() int {
	n := 0
	for _, b := range rd.said {
		switch {
		case b.Text != nil:
			n += len(b.Text.Payload())
		case b.Call != nil:
			n += len(b.Call.Args) + len(b.Call.Name)
		}
	}
	for _, s := range rd.calls {
		if s.result != nil {
			n += len(s.result.Text.Payload())
		}
	}
	return n
}

// lastTurn is the number of the conversation's last turn, zero if it has none.
func lastTurn(ctx context.Context, q querier, conv int64) (int, error) {
	var id int64
	err := q.QueryRowContext(ctx, "SELECT id FROM entry WHERE id >= ? AND id < ? ORDER BY id DESC LIMIT 1",
		entryID(conv, 0, 0), entryID(conv+1, 0, 0)).Scan(&id)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return turnOf(id), err
}

func blank(t fence.Text) bool { return strings.TrimSpace(t.Payload()) == "" }
