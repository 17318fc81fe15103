package history

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"atoll/internal/caller"
	"atoll/internal/fence"
	"atoll/internal/store"
)

// digest is the running summary as it is read: rows are only ever added to it (H2).
type digest struct {
	upto    int // the last turn that is in it
	body    string
	outside bool
}

// text is the summary as a model reads it. One that any third party's text went into is fenced: it is never in the
// operator's voice (U3). Turns that are no more than counted have no text in it.
func (d digest) text() fence.Text {
	if d.body == "" {
		return fence.Text{}
	}
	said := fence.Words(d.body)
	if d.outside {
		said = fence.Outside("summary", d.body)
	}
	return fence.Join(fence.Ours("[Atoll's record of the earlier turns. It is no request of the operator.]\n"), said)
}

// loadSummary reads the newest rows, until one stands for all before it or maxSummary is reached; the rest is counted.
func loadSummary(ctx context.Context, q querier, conv int64) (digest, error) {
	found, err := q.QueryContext(ctx, "SELECT id, whole, outside, body FROM summary WHERE id >= ? AND id < ? ORDER BY id DESC",
		summaryID(conv, 0), summaryID(conv+1, 0))
	if err != nil {
		return digest{}, err
	}
	defer found.Close()
	var d digest
	for found.Next() {
		var id int64
		var whole, outside bool
		var body string
		if err := found.Scan(&id, &whole, &outside, &body); err != nil {
			return digest{}, err
		}
		if err := sound(body); err != nil {
			return digest{}, err
		}
		upto := int(id & maxTurn)
		d.upto = max(d.upto, upto)
		room := maxSummary - 64 - len(d.body) // 64: the count
		if len(body) > room && !whole {
			d.body = fmt.Sprintf("(%d earlier turns)\n", upto) + d.body
			break
		}
		if len(body) > room {
			body = strings.ToValidUTF8(body[:max(0, room)], "") + "…\n"
		}
		d.body = body + d.body
		d.outside = d.outside || outside
		if whole {
			break
		}
	}
	return d, found.Err()
}

// foldByHost adds the host's lines on the oldest unfolded turns, and returns the summary if there are any. With a model
// to summarise it only steps in when that lags far behind.
func (r *Room) foldByHost(ctx context.Context, tx *sql.Tx, c caller.Caller, conv int64, last, folded int) (digest, error) {
	limit := foldAt
	if r.cfg.Summarise != nil && !c.IsPeer() {
		limit = foldAnyway
	}
	if last-folded <= limit {
		return digest{}, nil
	}
	upto, err := foldedUpto(ctx, tx, conv)
	for batch := 0; err == nil && last-upto > limit && batch < 8; batch++ {
		err = foldOnce(ctx, tx, conv, upto)
		upto += foldBatch
	}
	if err != nil {
		return digest{}, err
	}
	return loadSummary(ctx, tx, conv)
}

func foldedUpto(ctx context.Context, q querier, conv int64) (int, error) {
	var id int64
	err := q.QueryRowContext(ctx, "SELECT id FROM summary WHERE id >= ? AND id < ? ORDER BY id DESC LIMIT 1",
		summaryID(conv, 0), summaryID(conv+1, 0)).Scan(&id)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return int(id & maxTurn), err
}

func foldOnce(ctx context.Context, tx *sql.Tx, conv int64, upto int) error {
	turns, err := readBrief(ctx, tx, conv, upto)
	if err != nil {
		return err
	}
	var lines strings.Builder
	outside := false
	for i := range turns {
		lines.WriteString(line(&turns[i]))
		outside = outside || turns[i].outsideBrief()
	}
	return insertSummary(ctx, tx, conv, upto+foldBatch, false, outside, lines.String())
}

func insertSummary(ctx context.Context, tx *sql.Tx, conv int64, upto int, whole, outside bool, body string) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO summary VALUES (?, ?, ?, ?)", summaryID(conv, upto), whole, outside, body)
	return err
}

// readBrief reads the batch after the folded turns: what was asked, what was answered, how it ended.
func readBrief(ctx context.Context, q querier, conv int64, upto int) ([]kept, error) {
	found, err := q.QueryContext(ctx, "SELECT "+rowColumns+"CASE WHEN kind = 5 THEN body ELSE substr(body, 1, 2000) END FROM entry "+
		"WHERE id >= ? AND id < ? AND kind IN (1, 2, 5) ORDER BY id", entryID(conv, upto+1, 0), entryID(conv, upto+foldBatch+1, 0))
	if err != nil {
		return nil, err
	}
	defer found.Close()
	var rows []row
	for found.Next() {
		r, _, err := scanRow(found)
		if err != nil {
			return nil, err
		}
		rows = append(rows, r)
	}
	if err := found.Err(); err != nil {
		return nil, err
	}
	return group(rows, true, 0)
}

// outsideBrief reports whether a word on the turn may hold a third party's: a turn that never ended does not say.
func (k *kept) outsideBrief() bool { return k.asked.IsOutside() || k.end == nil || k.end.Outside }

// line is the host's line on one turn: what was asked and what was done, never what the model said.
func line(k *kept) string {
	did := "not finished"
	if k.end != nil {
		did = done(k.end.Changes)
		if k.end.Outcome != Done {
			did += ", " + string(k.end.Outcome)
		}
	}
	did = flat(did, maxLine/2)
	asked := flat(k.asked.Payload(), maxLine-utf8.RuneCountInString(did)-6)
	return "- " + asked + " → " + did + "\n"
}

func done(changes []Change) string {
	if len(changes) == 0 {
		return "nothing was changed"
	}
	words := make([]string, len(changes))
	for i, c := range changes {
		if words[i] = c.Summary; c.Outcome != string(Done) {
			words[i] += " (" + c.Outcome + ")"
		}
	}
	return strings.Join(words, "; ")
}

// flat makes one line of at most n characters.
func flat(s string, n int) string {
	s = strings.Join(strings.Fields(cut(s, 4*n)), " ")
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return cut(s, n-1) + "…"
}

// summarise lets the model extend the summary, in a goroutine that Close waits for; an answer never waits for it.
func (r *Room) summarise(f *file, c caller.Caller, conv int64, unfolded int) {
	if r.cfg.Summarise == nil || c.IsPeer() || unfolded <= foldAt {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || f.folding[conv] {
		return
	}
	if f.folding == nil {
		f.folding = map[int64]bool{}
	}
	f.folding[conv] = true
	f.users++
	r.work.Go(func() {
		ctx, cancel := context.WithTimeout(r.ctx, summariseLimit)
		defer cancel()
		if err := r.extend(ctx, f, c, conv); err != nil && r.ctx.Err() == nil {
			r.cfg.Log.Warn("history: a summary was not written", "caller", f.caller, "err", err)
		}
		r.mu.Lock()
		delete(f.folding, conv)
		r.mu.Unlock()
		r.give(f)
	})
}

func (r *Room) extend(ctx context.Context, f *file, c caller.Caller, conv int64) error {
	var before digest
	var turns []kept
	err := r.use(ctx, f, func(db *store.DB) (err error) {
		if before, err = loadSummary(ctx, db.Reader(), conv); err != nil {
			return err
		}
		turns, err = readBrief(ctx, db.Reader(), conv, before.upto)
		return err
	})
	if err != nil || len(turns) < foldBatch {
		return err
	}
	outside := before.outside
	texts := make([]TurnText, len(turns))
	for i := range turns {
		texts[i] = turns[i].forSummary()
		outside = outside || turns[i].outsideBrief() || texts[i].Answered.IsOutside()
	}
	text, failed := r.cfg.Summarise(ctx, c, before.text(), texts)
	if r.ctx.Err() != nil {
		return nil // the node stops; the next turn folds
	}
	body := noNUL(strings.TrimSpace(text.Payload()))
	outside = outside || text.IsOutside()
	err = r.use(ctx, f, func(db *store.DB) error {
		return db.Write(ctx, store.Relaxed, func(ctx context.Context, tx *sql.Tx) error {
			upto, err := foldedUpto(ctx, tx, conv)
			if err != nil {
				return err
			}
			last, err := lastTurn(ctx, tx, conv)
			if err != nil || upto != before.upto || last-upto <= foldAt {
				return err // undone, deleted or folded meanwhile
			}
			if failed != nil || body == "" {
				return foldOnce(ctx, tx, conv, upto)
			}
			return insertSummary(ctx, tx, conv, upto+foldBatch, true, outside, capBytes(body, maxSummary-512)+"\n")
		})
	})
	return errors.Join(failed, err)
}

func (k *kept) forSummary() TurnText {
	t := TurnText{Asked: k.asked}
	for _, rd := range k.rounds {
		for _, b := range rd.said {
			if b.Text != nil {
				t.Answered = fence.Join(t.Answered, *b.Text)
			}
		}
	}
	if k.end != nil {
		t.Changes = k.end.Changes
	}
	return t
}

// capBytes cuts s to at most n bytes with a mark that says how many are gone.
func capBytes(s string, n int) string {
	if len(s) <= n {
		return s
	}
	head := strings.ToValidUTF8(s[:n-48], "")
	return head + "… [" + strconv.Itoa(len(s)-len(head)) + " bytes cut by Atoll]"
}
