package history

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"atoll/internal/caller"
	"atoll/internal/fault"
	"atoll/internal/store"
)

// Bounds of one answer to a person.
const (
	listLimit   = 200  // conversations listed, unless told
	listMost    = 1000 // conversations listed at most
	turnsLimit  = 200  // turns shown, unless told
	turnsMost   = 1000 // turns shown at most
	searchLimit = 50   // finds of one search
	maxQuery    = 200  // characters searched for
	searchStep  = 500  // turns searched at a time
	snippetSide = 60   // characters shown on each side of a find
)

// Conversation is one line of a caller's list.
type Conversation struct {
	ID      string    `json:"conversation"`
	Title   string    `json:"title"`
	Created time.Time `json:"created_at"`
	Updated time.Time `json:"updated_at"`
	Turns   int       `json:"turns"`
	Usage   Usage     `json:"usage"` // of all turns, the undone ones too
	CostUSD float64   `json:"cost_usd"`
}

// Listing is a caller's conversations, the last used first.
type Listing struct {
	Conversations []Conversation `json:"conversations"`
	More          bool           `json:"more,omitzero"`
	// Problems says what of the history could not be read, while the file lies there: a list is never empty in silence (H6).
	Problems []Problem `json:"problems,omitempty"`
}

// Problem is a damaged file that was set aside.
type Problem struct {
	File string `json:"file"`
	Text string `json:"text"`
}

// Page selects part of a list. The zero Page is its newest part.
type Page struct {
	Limit  int    // zero means 200
	Before string // the conversation after which the list goes on
}

const conversationColumns = "id, token, title, created, updated, turns, tokens_in, tokens_out, cache_read, cache_write, cost"

func scanConversation(scan func(...any) error) (Conversation, error) {
	var c Conversation
	var is ref
	var created, updated int64
	err := scan(&is.conv, &is.token, &c.Title, &created, &updated, &c.Turns, &c.Usage.In, &c.Usage.Out, &c.Usage.CacheRead,
		&c.Usage.CacheWrite, &c.CostUSD)
	c.ID, c.Created, c.Updated = is.String(), fromMillis(created), fromMillis(updated)
	return c, err
}

// Conversations lists the caller's own conversations. Its cost grows with what it returns only.
func (r *Room) Conversations(ctx context.Context, c caller.Caller, page Page) (Listing, error) {
	limit := bounded(page.Limit, listLimit, listMost)
	list := Listing{Conversations: []Conversation{}}
	err := r.with(ctx, c, func(f *file) error {
		return r.use(ctx, f, func(db *store.DB) (err error) {
			list.Conversations, list.More = list.Conversations[:0], false
			if list.Problems, err = problems(f); err != nil {
				return err
			}
			before := int64(1) << 62
			if page.Before != "" {
				if before, err = rankOf(ctx, db, page.Before); err != nil {
					return err
				}
			}
			return list.read(ctx, db, before, limit)
		})
	})
	return list, err
}

func (l *Listing) read(ctx context.Context, db *store.DB, before int64, limit int) error {
	found, err := db.Reader().QueryContext(ctx, "SELECT "+conversationColumns+" FROM conversation WHERE rank < ? ORDER BY rank DESC LIMIT ?",
		before, limit+1)
	if err != nil {
		return err
	}
	defer found.Close()
	for found.Next() {
		c, err := scanConversation(found.Scan)
		if err != nil {
			return err
		}
		if len(l.Conversations) == limit {
			l.More = true
			break
		}
		l.Conversations = append(l.Conversations, c)
	}
	return found.Err()
}

func rankOf(ctx context.Context, db *store.DB, conversation string) (int64, error) {
	is, _ := parseRef(conversation)
	var rank int64
	err := db.Reader().QueryRowContext(ctx, "SELECT rank FROM conversation WHERE id = ? AND token = ?", is.conv, is.token).Scan(&rank)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, fault.New(fault.InvalidParams, "there is no such conversation to go on from").At("before").Doing("history")
	}
	return rank, err
}

// TurnView is one turn as people read it.
type TurnView struct {
	Number  int         `json:"turn"`
	At      time.Time   `json:"at"`
	Message string      `json:"message"`
	Outside bool        `json:"outside,omitzero"` // the message is a third party's text
	Blocks  []BlockView `json:"blocks"`
	Changes []Change    `json:"changes"` // the host's own list of what was done (T11)
	Usage   Usage       `json:"usage"`
	CostUSD float64     `json:"cost_usd"`
	Outcome Outcome     `json:"outcome"`
	Code    fault.Code  `json:"code,omitempty"`
}

// BlockView is one piece of a turn: text of the assistant, or a call with its result.
type BlockView struct {
	Kind      string `json:"kind"` // text, call
	Text      string `json:"text,omitempty"`
	Tool      string `json:"tool,omitempty"`
	Arguments string `json:"arguments,omitempty"`
	Result    string `json:"result,omitempty"`
	Error     bool   `json:"error,omitzero"`
	Private   bool   `json:"private,omitzero"` // arguments or result were not kept (H3)
	Source    string `json:"source,omitempty"` // whose text the result is, where it is a third party's
}

// Transcript is one conversation as people read it, oldest turn first.
type Transcript struct {
	Conversation
	Entries []TurnView `json:"entries"`
	Earlier bool       `json:"earlier,omitzero"` // there are turns before these
}

// Span selects turns. The zero Span is the last 200.
type Span struct {
	Limit  int // zero means 200
	Before int // turns before this one; zero means the last
}

// History is one conversation of the caller's own. Errors: NotFound; Unavailable if it may have stood in a damaged file.
func (r *Room) History(ctx context.Context, c caller.Caller, conversation string, span Span) (Transcript, error) {
	var t Transcript
	err := r.find(ctx, c, conversation, func(f *file, is ref) error {
		return r.use(ctx, f, func(db *store.DB) (err error) {
			t, err = readTranscript(ctx, db, is, bounded(span.Limit, turnsLimit, turnsMost), span.Before)
			return err
		})
	})
	return t, err
}

func readTranscript(ctx context.Context, db *store.DB, is ref, limit, before int) (Transcript, error) {
	tx, err := db.Reader().BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return Transcript{}, err
	}
	defer tx.Rollback()
	var t Transcript
	t.Conversation, err = scanConversation(tx.QueryRowContext(ctx, "SELECT "+conversationColumns+
		" FROM conversation WHERE id = ? AND token = ?", is.conv, is.token).Scan)
	if errors.Is(err, sql.ErrNoRows) {
		return t, errMissing
	}
	if err != nil {
		return t, err
	}
	last, err := lastTurn(ctx, tx, is.conv)
	if err != nil {
		return t, err
	}
	t.Turns = last // a turn that runs, or was cut off, is not counted in the row yet
	if before > 0 {
		last = min(last, before-1)
	}
	first := max(1, last-limit+1)
	t.Earlier = first > 1
	t.Entries = []TurnView{}
	if last < 1 {
		return t, nil
	}
	rows, _, err := readRows(ctx, tx, "body", entryID(is.conv, first, 0), entryID(is.conv, last+1, 0), 0)
	if err != nil {
		return t, err
	}
	slices.Reverse(rows)
	turns, err := group(rows, true, 0)
	for i := range turns {
		t.Entries = append(t.Entries, turns[i].view())
	}
	return t, err
}

func (k *kept) view() TurnView {
	v := TurnView{Number: k.number, At: fromMillis(k.at), Message: k.asked.Payload(), Outside: k.asked.IsOutside(),
		Blocks: []BlockView{}, Changes: []Change{}, Outcome: Interrupted}
	for _, rd := range k.rounds {
		calls := 0
		for _, b := range rd.said {
			if b.Text != nil {
				v.Blocks = append(v.Blocks, BlockView{Kind: "text", Text: b.Text.Payload()})
			} else {
				v.Blocks = append(v.Blocks, rd.calls[calls].view(k.end != nil))
				calls++
			}
		}
	}
	if k.end != nil {
		v.Changes = append(v.Changes, k.end.Changes...)
		v.Usage, v.CostUSD, v.Outcome, v.Code = k.end.usage(), k.end.Cost, k.end.Outcome, k.end.Code
	}
	return v
}

func (s *slot) view(ended bool) BlockView {
	res := s.answer("", ended)
	v := BlockView{Kind: "call", Tool: s.call.Name, Arguments: string(s.call.Args), Result: res.Text.Payload(), Error: res.IsError,
		Private: s.private || s.hidden, Source: res.Text.Source()}
	if s.private {
		v.Arguments = notKept
	}
	return v
}

// Rename gives a conversation of the caller's own another title.
func (r *Room) Rename(ctx context.Context, c caller.Caller, conversation, title string) error {
	title = strings.Join(strings.Fields(noNUL(title)), " ")
	if title == "" || utf8.RuneCountInString(title) > maxRename {
		return fault.New(fault.InvalidParams, "a title has 1 to %d characters", maxRename).At("title").Doing("history")
	}
	return r.find(ctx, c, conversation, func(f *file, is ref) error {
		return r.use(ctx, f, func(db *store.DB) error {
			return db.Write(ctx, store.Relaxed, func(ctx context.Context, tx *sql.Tx) error {
				res, err := tx.ExecContext(ctx, "UPDATE conversation SET title = ? WHERE id = ? AND token = ?", title, is.conv, is.token)
				if err != nil {
					return err
				}
				if n, err := res.RowsAffected(); err != nil || n == 0 {
					return errors.Join(err, errMissing)
				}
				return nil
			})
		})
	})
}

// problems lists the damaged files of the caller that still lie beside the history.
func problems(f *file) ([]Problem, error) {
	names, err := f.asides()
	if err != nil {
		return nil, err
	}
	var open []Problem
	for _, n := range names {
		open = append(open, Problem{File: n, Text: "Earlier conversations could not be read: their file was damaged. It was set aside as " +
			n + " in the history directory, unchanged. This is said until the file is moved away or deleted."})
	}
	return open, nil
}

// missing says that a conversation is not there, and if it may have stood in a damaged file, that.
func (r *Room) missing(ctx context.Context, f *file) error {
	open, err := problems(f)
	if err != nil {
		return err
	}
	if len(open) > 0 {
		return fault.New(fault.Unavailable, "this conversation could not be read: the history file was damaged and was set aside as %s; "+
			"begin a new conversation", open[len(open)-1].File).At("conversation").Doing("history")
	}
	return fault.New(fault.NotFound, "there is no such conversation").At("conversation").Doing("history")
}

// with runs op with the caller's file.
func (r *Room) with(ctx context.Context, c caller.Caller, op func(*file) error) error {
	f, err := r.take(c)
	if err != nil {
		return err
	}
	defer r.give(f)
	return op(f)
}

// find runs op for one conversation of the caller's own and gives errMissing its words.
func (r *Room) find(ctx context.Context, c caller.Caller, conversation string, op func(*file, ref) error) error {
	return r.with(ctx, c, func(f *file) error {
		is, ok := parseRef(conversation)
		if !ok {
			return r.missing(ctx, f)
		}
		err := op(f, is)
		if errors.Is(err, errMissing) {
			return r.missing(ctx, f)
		}
		return err
	})
}

func bounded(n, usual, most int) int {
	if n <= 0 {
		return usual
	}
	return min(n, most)
}
