package history

import (
	"context"
	"database/sql"
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
		return r.use(ctx, f, func(db *opened) (err error) {
			out = Finds{Finds: []Find{}}
			if out.Problems, err = problems(ctx, db, f); err != nil {
				return err
			}
			if err = out.titles(ctx, db, query); err != nil {
				return err
			}
			return out.words(ctx, db, query)
		})
	})
	return out, err
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

func (o *Finds) titles(ctx context.Context, db *opened, query string) error {
	cond, args := like("title", query)
	found, err := db.Reader().QueryContext(ctx, "SELECT id, token, title, updated FROM conversation WHERE "+cond+
		" ORDER BY rank DESC LIMIT 51", args...)
	return o.read(found, err, func(f *Find, is *ref, updated *int64) error {
		f.Who = "title"
		err := found.Scan(&is.conv, &is.token, &f.Title, updated)
		f.Snippet = f.Title
		return err
	})
}

func (o *Finds) words(ctx context.Context, db *opened, query string) error {
	cond, args := like("e.body", query)
	found, err := db.Reader().QueryContext(ctx, "SELECT c.id, c.token, c.title, c.updated, e.id, e.kind, e.body FROM entry e "+
		"JOIN conversation c ON c.id = e.id >> 40 WHERE e.kind IN (1, 2) AND "+cond+" ORDER BY e.id DESC LIMIT 51", args...)
	return o.read(found, err, func(f *Find, is *ref, updated *int64) error {
		var id int64
		var of kind
		var body string
		err := found.Scan(&is.conv, &is.token, &f.Title, updated, &id, &of, &body)
		f.Turn, f.Who, f.Snippet = turnOf(id), "assistant", snippet(body, query)
		if of == kindAsked {
			f.Who = "caller"
		}
		return err
	})
}

func (o *Finds) read(found *sql.Rows, err error, scan func(*Find, *ref, *int64) error) error {
	if err != nil {
		return err
	}
	defer found.Close()
	for found.Next() {
		var f Find
		var is ref
		var updated int64
		if err := scan(&f, &is, &updated); err != nil {
			return err
		}
		if len(o.Finds) == searchLimit {
			o.More = true
			break
		}
		f.Conversation, f.Updated = is.String(), fromMillis(updated)
		o.Finds = append(o.Finds, f)
	}
	return found.Err()
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
