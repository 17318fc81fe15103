package history

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"

	"atoll/internal/caller"
	"atoll/internal/fault"
	"atoll/internal/fence"
	"atoll/internal/model"
	"atoll/internal/store"
)

// notKept stands on the disk for what must not be there (H3).
const notKept = "[not kept on disk]"

// errMissing says that the conversation is not in the file.
var errMissing = errors.New("no such conversation")

// Turn is one turn being kept. Its methods are called from one goroutine; it ends with End or Abandon, and until then
// its conversation takes no other turn. What it writes is not cancelled with a context (F-D2).
type Turn struct {
	r       *Room
	f       *file
	caller  caller.Caller
	ref     ref
	title   string
	fresh   bool
	folded  int // turns in the summary when the turn began
	summary fence.Text
	earlier []kept
	current kept

	rows    []row            // what is on the disk of this turn
	waiting []row            // what goes to the disk with the next write
	seq     int              // of the next row
	slots   map[string]*slot // the calls that wait for a result
	outside bool             // this turn itself holds third parties' text
	touched []string         // what Touch named, in this turn and in the ones before
	ended   bool
}

// Begin starts a turn: it writes the caller's words down before a model sees them and reads what the model is sent. An
// empty conversation begins a new one. Errors: NotFound, Busy, InvalidParams, Unavailable.
func (r *Room) Begin(ctx context.Context, c caller.Caller, conversation, message string) (*Turn, error) {
	if strings.TrimSpace(message) == "" {
		return nil, fault.New(fault.InvalidParams, "the message is empty").At("message").Doing("history")
	}
	if err := ctx.Err(); err != nil {
		return nil, explain(err)
	}
	f, err := r.take(c)
	if err != nil {
		return nil, err
	}
	t := &Turn{r: r, f: f, caller: c, fresh: conversation == "", slots: map[string]*slot{}}
	asked := fence.Words(message)
	if c.IsPeer() {
		asked, t.outside = fence.Outside("peer", message), true // a peer's words are never ours to trust (M4)
	}
	if err := t.start(ctx, conversation, asked); err != nil {
		defer r.give(f)
		if errors.Is(err, errMissing) {
			return nil, r.missing(ctx, f)
		}
		return nil, err
	}
	return t, nil
}

func (t *Turn) start(ctx context.Context, conversation string, asked fence.Text) (err error) {
	r, f := t.r, t.f
	var claimed int64
	if t.fresh {
		claimed, err = r.claimNew(f)
	} else {
		known, ok := parseRef(conversation)
		if !ok {
			return errMissing
		}
		t.ref, claimed = known, known.conv
		err = r.claim(f, claimed)
	}
	if err != nil {
		return err
	}
	err = r.use(ctx, f, func(db *store.DB) error {
		return db.Write(ctx, store.Relaxed, func(ctx context.Context, tx *sql.Tx) error { return t.begin(ctx, tx, asked) })
	})
	if err == nil && t.fresh {
		err = r.claim(f, t.ref.conv) // free: nobody else knows the conversation
	}
	if err != nil || t.fresh {
		r.unclaim(f, claimed)
	}
	return err
}

func (t *Turn) begin(ctx context.Context, tx *sql.Tx, asked fence.Text) error {
	now := t.r.cfg.Now().UnixMilli()
	t.current = kept{number: 1, at: now, asked: asked}
	t.rows, t.seq = nil, 0
	if t.fresh {
		t.title, t.ref = titleOf(asked.Payload()), ref{token: newToken()}
		if err := insertConversation(ctx, tx, &t.ref, t.title, now); err != nil {
			return err
		}
	} else if err := t.read(ctx, tx); err != nil {
		return err
	}
	parts, body := encode(asked)
	rows := t.place(row{kind: kindAsked, at: now, parts: parts, body: body})
	if err := t.insert(ctx, tx, rows); err != nil {
		return err
	}
	t.rows, t.seq = rows, len(rows)
	return nil
}

const stateQuery = `SELECT title,
	coalesce((SELECT id FROM entry WHERE id >= ?2 << 40 AND id < (?2 + 1) << 40 ORDER BY id DESC LIMIT 1), 0),
	coalesce((SELECT id FROM summary WHERE id >= ?2 << 24 AND id < (?2 + 1) << 24 ORDER BY id DESC LIMIT 1), 0)
	FROM conversation WHERE id = ?2 AND token = ?1`

// read loads what the model is sent of an earlier conversation. Its cost does not grow with the conversation (H2).
func (t *Turn) read(ctx context.Context, tx *sql.Tx) error {
	var entry, summary int64
	err := tx.QueryRowContext(ctx, stateQuery, t.ref.token, t.ref.conv).Scan(&t.title, &entry, &summary)
	if errors.Is(err, sql.ErrNoRows) {
		return errMissing
	}
	if err != nil {
		return err
	}
	last := turnOf(entry)
	if last >= maxTurn {
		return fault.New(fault.TooLarge, "this conversation is full; begin a new one").Doing("history")
	}
	t.current.number, t.folded = last+1, int(summary&maxTurn)
	if t.touched, err = touched(ctx, tx, t.ref.conv); err != nil {
		return err
	}
	if w := t.r.warm(t.f, t.ref, last, t.folded); w != nil {
		t.summary, t.earlier = w.summary, w.turns
		return nil
	}
	s, err := loadSummary(ctx, tx, t.ref.conv)
	if err != nil {
		return err
	}
	t.summary = s.text()
	t.earlier, err = load(ctx, tx, t.ref.conv, max(t.folded+1, last-maxLoaded+1), last)
	return err
}

// Conversation names the conversation; it is what a client sends with the next message.
func (t *Turn) Conversation() string { return t.ref.String() }

// Title is the conversation's title.
func (t *Turn) Title() string { return t.title }

// Messages is what the model is sent next: the running summary, the last turns, and this turn as far as it came, with
// the private results that the disk never sees (H3).
func (t *Turn) Messages() []model.Message {
	a := assembler{ids: map[string]bool{}}
	if !t.summary.IsEmpty() {
		a.add(model.User, model.TextBlock(t.summary))
	}
	for i := range t.earlier {
		a.turn(&t.earlier[i], false)
	}
	a.turn(&t.current, true)
	return a.messages
}

// Outside lists the third parties' texts among the Messages (U3).
func (t *Turn) Outside() []fence.Text {
	var texts []fence.Text
	for _, m := range t.Messages() {
		for _, b := range m.Blocks {
			if b.Text != nil && b.Text.IsOutside() {
				texts = append(texts, *b.Text)
			}
			if b.Result != nil && b.Result.Text.IsOutside() {
				texts = append(texts, b.Result.Text)
			}
		}
	}
	return texts
}

// Untrusted reports whether any of the Messages holds a third party's text (U3).
func (t *Turn) Untrusted() bool { return len(t.Outside()) > 0 }

// Round writes an answer of the model down before its calls run; with reads, which says that they change nothing,
// together with what comes next. private says of each call, in the answer's order, whether its arguments must not reach
// the disk; a list of another length makes all of them private.
func (t *Turn) Round(ctx context.Context, answer model.Answer, private []bool, reads bool) error {
	if t.ended {
		return fault.New(fault.Failed, "the turn has ended").Doing("history")
	}
	hide := func(int) bool { return true }
	if len(private) == len(answer.Calls()) {
		hide = func(i int) bool { return private[i] }
	}
	var rows []row
	rd := round{answered: true}
	seq := t.seq
	for _, b := range answer.Blocks {
		switch {
		case b.Text != nil && !blank(*b.Text):
			parts, body := encode(*b.Text)
			rows = append(rows, row{kind: kindSaid, parts: parts, body: body})
		case b.Call != nil:
			s := &slot{seq: seq + len(rows), call: b.Call, private: hide(len(rd.calls))}
			rd.calls = append(rd.calls, s)
			rows = append(rows, s.row())
		case b.Opaque == nil:
			continue
		}
		rd.said = append(rd.said, b)
	}
	if rows = t.place(rows...); reads && t.seq+len(rows) <= maxSeq {
		t.waiting, t.seq = append(t.waiting, rows...), t.seq+len(rows)
	} else if err := t.write(ctx, store.Relaxed, rows, nil); err != nil {
		return err
	}
	t.current.rounds = append(t.current.rounds, rd)
	for _, s := range rd.calls {
		t.slots[s.call.ID] = s
	}
	return nil
}

func (s *slot) row() row {
	r := row{kind: kindCall, name: plainName(s.call.Name), ref: noNUL(s.call.ID), body: string(object(s.call.Args, s.call.Broken))}
	if s.private {
		r.flags, r.body = flagPrivate, "{}"
	}
	return r
}

// Results writes the results of the last round's calls down. A result is private if private says so at its place, if
// private has another length, or if its call was.
func (t *Turn) Results(ctx context.Context, results []model.Result, private []bool) error {
	if t.ended {
		return fault.New(fault.Failed, "the turn has ended").Doing("history")
	}
	var rows []row
	took := map[*slot]slot{}
	for i := range results {
		res := results[i]
		s := t.slots[res.ID]
		if _, twice := took[s]; s == nil || s.result != nil || twice {
			return fault.New(fault.Failed, "a tool's result came twice or without its call").Doing("history")
		}
		if n := utf8.RuneCountInString(res.Text.Payload()); n > maxResult+100 { // 100: the mark of whoever cut it
			res.Text = shorten(res.Text, maxResult)
		}
		hidden := s.private || len(private) != len(results) || private[i]
		took[s] = slot{result: &res, hidden: hidden}
		r := row{kind: kindResult, flags: int64(s.seq) << flagBits}
		if res.IsError {
			r.flags |= flagError
		}
		text := res.Text
		if hidden {
			r.flags |= flagPrivate
			text = fence.Ours(notKept)
		}
		r.parts, r.body = encode(text)
		rows = append(rows, r)
	}
	if err := t.write(ctx, store.Relaxed, t.place(rows...), nil); err != nil {
		return err
	}
	for s, got := range took {
		s.result, s.hidden = got.result, got.hidden
		t.outside = t.outside || got.result.Text.IsOutside()
	}
	return nil
}

// End writes the end of the turn down, so that it survives the loss of power when End returns: one fsync, the turn's
// only one. After an error the turn has not ended, and Abandon lets go of it.
func (t *Turn) End(ctx context.Context, e Ending) error {
	if t.ended {
		return fault.New(fault.Failed, "the turn has ended already").Doing("history")
	}
	if err := t.end(ctx, store.Durable, e); err != nil {
		return err
	}
	t.release()
	return nil
}

// Abandon ends a turn that End did not; after End it does nothing. What was kept stays, marked as interrupted. It is
// made for defer.
func (t *Turn) Abandon(ctx context.Context) {
	if t.ended {
		return
	}
	if err := t.end(ctx, store.Relaxed, Ending{Outcome: Interrupted}); err != nil {
		t.r.cfg.Log.Warn("history: a turn's end was not kept", "caller", t.f.caller, "conversation", t.ref.String(), "err", err)
	}
	t.release()
}

func (t *Turn) release() {
	t.ended = true
	t.r.summarise(t.f, t.caller, t.ref.conv, t.current.number-t.folded)
	t.r.unclaim(t.f, t.ref.conv)
	t.r.give(t.f)
}

func (t *Turn) end(ctx context.Context, how store.Durability, e Ending) error {
	record := endRecord{At: t.r.cfg.Now().UnixMilli(), Outcome: e.Outcome, Code: e.Code, Changes: slices.Clone(e.Changes),
		In: e.Usage.In, Out: e.Usage.Out, Read: e.Usage.CacheRead, Write: e.Usage.CacheWrite, Cost: e.CostUSD}
	if record.Outcome == "" {
		record.Outcome = Failed
	}
	// The host's words on a change may quote what a third party wrote in an earlier turn.
	record.Outside = t.outside || len(e.Changes) > 0 && t.Untrusted()
	for i := range record.Changes {
		c := &record.Changes[i]
		if c.Private {
			c.Summary = notKept
		}
		c.Tool, c.Summary, c.Outcome = noNUL(c.Tool), noNUL(c.Summary), noNUL(c.Outcome)
	}
	body, err := json.Marshal(record)
	if err != nil {
		return fault.Wrap(err, fault.Failed, "the end of the turn could not be written").Doing("history")
	}
	var rows []row
	if !blank(e.Answer) {
		parts, said := encode(e.Answer)
		rows = append(rows, row{kind: kindSaid, parts: parts, body: said})
	}
	rows = append(rows, row{kind: kindEnd, body: string(body)})
	var after digest
	err = t.write(ctx, how, t.place(rows...), func(ctx context.Context, tx *sql.Tx) (err error) {
		if err := t.count(ctx, tx, record); err != nil {
			return err
		}
		after, err = t.r.foldByHost(ctx, tx, t.caller, t.ref.conv, t.current.number, t.folded)
		return err
	})
	if err == nil {
		t.keepWarm(e.Answer, after)
	}
	return err
}

const (
	countQuery = `UPDATE conversation SET updated = ?, turns = ?, tokens_in = tokens_in + ?, tokens_out = tokens_out + ?,
	cache_read = cache_read + ?, cache_write = cache_write + ?, cost = cost + ? WHERE id = ?`
	rankQuery = `UPDATE conversation SET rank = (SELECT max(rank) FROM conversation) + 1
	WHERE id = ? AND rank < (SELECT max(rank) FROM conversation)`
	existsQuery = `SELECT 1 FROM conversation WHERE id = ? AND token = ?`
	insertQuery = `INSERT INTO entry VALUES (?, ?, ?, nullif(?, 0), nullif(?, ''), nullif(?, ''), nullif(?, ''), ?)`
)

// count brings the conversation's own row up to date. Its rank moves only if another conversation came first.
func (t *Turn) count(ctx context.Context, tx *sql.Tx, e endRecord) error {
	_, err := tx.ExecContext(ctx, countQuery, e.At, t.current.number, e.In, e.Out, e.Read, e.Write, e.Cost, t.ref.conv)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, rankQuery, t.ref.conv)
	return err
}

// place gives rows their places in the turn. The turn moves on only when they are written.
func (t *Turn) place(rows ...row) []row {
	for i := range rows {
		rows[i].seq = t.seq + i
	}
	return rows
}

// write adds rows to the turn. Where the file was set aside since the turn began, the turn so far is written to the
// fresh file first, as the first of its conversation: what is known is not lost with the file (H6).
func (t *Turn) write(ctx context.Context, how store.Durability, rows []row, also func(context.Context, *sql.Tx) error) error {
	if t.seq+len(rows) > maxSeq {
		return fault.New(fault.TooLarge, "the turn is too long to be kept").Doing("history")
	}
	ctx = context.WithoutCancel(ctx)
	rows = slices.Concat(t.waiting, rows)
	err := t.r.use(ctx, t.f, func(db *store.DB) error {
		return db.Write(ctx, how, func(ctx context.Context, tx *sql.Tx) error {
			if err := t.rescue(ctx, tx); err != nil {
				return err
			}
			if err := t.insert(ctx, tx, rows); err != nil {
				return err
			}
			if err := t.insertTouched(ctx, tx); err != nil || also == nil {
				return err
			}
			return also(ctx, tx)
		})
	})
	if err != nil {
		return err
	}
	t.rows, t.waiting = append(t.rows, rows...), nil
	t.seq = len(t.rows)
	return nil
}

func (t *Turn) rescue(ctx context.Context, tx *sql.Tx) error {
	var found int
	err := tx.QueryRowContext(ctx, existsQuery, t.ref.conv, t.ref.token).Scan(&found)
	if !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	if err := insertConversation(ctx, tx, &t.ref, t.title, t.current.at); err != nil {
		return err
	}
	t.current.number, t.folded, t.earlier, t.summary = 1, 0, nil, fence.Text{}
	return t.insert(ctx, tx, t.rows)
}

func (t *Turn) insert(ctx context.Context, tx *sql.Tx, rows []row) error {
	for _, r := range rows {
		id := entryID(t.ref.conv, t.current.number, r.seq)
		if _, err := tx.ExecContext(ctx, insertQuery, id, int64(r.kind), r.flags, r.at, r.name, r.ref, r.parts, r.body); err != nil {
			return err
		}
	}
	return nil
}

func insertConversation(ctx context.Context, tx *sql.Tx, as *ref, title string, now int64) error {
	var number any // nil: the next free one
	if as.conv != 0 {
		number = as.conv
	}
	err := tx.QueryRowContext(ctx, "INSERT INTO conversation VALUES (?, ?, ?, ?, ?, (SELECT coalesce(max(rank), 0) + 1 FROM conversation), "+
		"0, 0, 0, 0, 0, 0) RETURNING id", number, as.token, title, now, now).Scan(&as.conv)
	if err == nil && as.conv > maxConv {
		return fault.New(fault.TooLarge, "the history is full; delete conversations").Doing("history")
	}
	return err
}

// titleOf makes a title of a message's first words.
func titleOf(message string) string {
	line := strings.Join(strings.Fields(noNUL(cut(message, 4*maxTitle))), " ")
	if utf8.RuneCountInString(line) <= maxTitle {
		return line
	}
	line = cut(line, maxTitle)
	if i := strings.LastIndexByte(line, ' '); i > maxTitle/2 {
		line = line[:i]
	}
	return line + "…"
}
