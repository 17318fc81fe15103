package history

import (
	"context"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"atoll/internal/caller"
	"atoll/internal/fault"
	"atoll/internal/store"
)

// Find is one place where the words searched for stand.
type Find struct {
	Conversation string    `json:"conversation"`
	Title        string    `json:"title"`
	Turn         int       `json:"turn,omitzero"` // zero: in the title
	Who          string    `json:"who"`           // caller, assistant, title
	Snippet      string    `json:"snippet"`
	Updated      time.Time `json:"updated_at"` // of the conversation
}

// Finds is what a search found, the newest conversations first.
type Finds struct {
	Finds []Find `json:"finds"`
	More  bool   `json:"more,omitzero"`
	// Problems says what could not be searched, as in Listing.
	Problems []Problem `json:"problems,omitempty"`
}

// Search looks for words in the titles and in what was said in the caller's own conversations; results of tools are not
// searched. The query is text, no pattern; case does not matter.
func (r *Room) Search(ctx context.Context, c caller.Caller, query string) (Finds, error) {
	query = strings.TrimSpace(noNUL(query))
	if n := utf8.RuneCountInString(query); n == 0 || n > maxQuery {
		return Finds{}, fault.New(fault.InvalidParams, "search for 1 to %d characters", maxQuery).At("query").Doing("history")
	}
	var out Finds
	err := r.with(ctx, c, func(f *file) error {
		return r.use(ctx, f, func(db *store.DB) (err error) {
			out = Finds{Finds: []Find{}}
			if out.Problems, err = problems(f); err != nil {
				return err
			}
			all, err := searched(ctx, db)
			for i := 0; err == nil && i < len(all) && !out.More; i++ {
				err = out.conversation(ctx, db, &all[i], query)
			}
			return err
		})
	})
	return out, err
}

// searched lists all conversations, the last used first.
func searched(ctx context.Context, db *store.DB) ([]Conversation, error) {
	found, err := db.Reader().QueryContext(ctx, "SELECT "+conversationColumns+" FROM conversation ORDER BY rank DESC")
	if err != nil {
		return nil, err
	}
	defer found.Close()
	var all []Conversation
	for found.Next() {
		c, err := scanConversation(found.Scan)
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, found.Err()
}

// conversation searches one conversation, some hundred turns at a time: a turn of the same caller that wants to write
// waits for one step, not for the search.
func (o *Finds) conversation(ctx context.Context, db *store.DB, c *Conversation, query string) error {
	found := Find{Conversation: c.ID, Title: c.Title, Updated: c.Updated}
	if _, size := locate(c.Title, query); size > 0 {
		found.Who, found.Snippet = "title", c.Title
		o.add(found)
	}
	is, _ := parseRef(c.ID)
	last, err := lastTurn(ctx, db.Reader(), is.conv)
	for high := last + 1; err == nil && high > 0 && !o.More; high -= searchStep {
		err = o.turns(ctx, db, found, query, entryID(is.conv, max(0, high-searchStep), 0), entryID(is.conv, high, 0))
	}
	return err
}

func (o *Finds) turns(ctx context.Context, db *store.DB, in Find, query string, low, high int64) error {
	cond, args := like("body", query)
	found, err := db.Reader().QueryContext(ctx, "SELECT id, kind, body FROM entry WHERE id >= ? AND id < ? AND kind IN (1, 2) AND "+cond+
		" ORDER BY id DESC LIMIT 51", append([]any{low, high}, args...)...)
	if err != nil {
		return err
	}
	defer found.Close()
	for found.Next() && !o.More {
		var id int64
		var of kind
		var body string
		if err := found.Scan(&id, &of, &body); err != nil {
			return err
		}
		if err := sound(body); err != nil {
			return err
		}
		in.Turn, in.Who, in.Snippet = turnOf(id), "assistant", snippet(body, query)
		if of == kindAsked {
			in.Who = "caller"
		}
		o.add(in)
	}
	return found.Err()
}

func (o *Finds) add(f Find) {
	if len(o.Finds) == searchLimit {
		o.More = true
		return
	}
	o.Finds = append(o.Finds, f)
}

// like is a condition on column for the query in the cases that SQLite does not know to be one: it folds ASCII only.
func like(column, query string) (string, []any) {
	forms := []string{query, strings.ToLower(query), strings.ToUpper(query)}
	first, size := utf8.DecodeRuneInString(query)
	forms = append(forms, strings.ToUpper(string(first))+strings.ToLower(query[size:]))
	slices.Sort(forms)
	forms = slices.Compact(forms)
	escape := strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`)
	terms := make([]string, len(forms))
	args := make([]any, len(forms))
	for i, f := range forms {
		terms[i], args[i] = column+` LIKE ? ESCAPE '\'`, "%"+escape.Replace(f)+"%"
	}
	return "(" + strings.Join(terms, " OR ") + ")", args
}

// snippet is the text around the first place of the query, in one line.
func snippet(body, query string) string {
	at, size := locate(body, query)
	start, end := at, at+size
	for n := 0; n < snippetSide && start > 0; n++ {
		_, w := utf8.DecodeLastRuneInString(body[:start])
		start -= w
	}
	for n := 0; n < snippetSide && end < len(body); n++ {
		_, w := utf8.DecodeRuneInString(body[end:])
		end += w
	}
	s := strings.Join(strings.Fields(body[start:end]), " ")
	if start > 0 {
		s = "…" + s
	}
	if end < len(body) {
		s += "…"
	}
	return s
}

// locate finds query in body whatever its case; a body that folds to another length is shown from its beginning.
func locate(body, query string) (at, size int) {
	if i := strings.Index(body, query); i >= 0 {
		return i, len(query)
	}
	low := strings.ToLower(body)
	if i := strings.Index(low, strings.ToLower(query)); i >= 0 && len(low) == len(body) && utf8.RuneStart(body[i]) {
		if end := i + len(query); end <= len(body) && (end == len(body) || utf8.RuneStart(body[end])) {
			return i, len(query)
		}
	}
	return 0, 0
}
