package mesh

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"atoll/internal/fault"
	"atoll/internal/mesh/download"
	"atoll/internal/mesh/link"
	"atoll/internal/store"
)

// Bounds of a catalogue, on both sides.
const (
	pageItems    = 500    // files in one frame
	maxShared    = 20_000 // files kept a peer
	maxItemBytes = 8 << 20
	maxSize      = 1 << 48 // bytes of one file: all of a catalogue together can still be counted
	pageBytes    = 512 << 10
)

type statusAsk struct{}

// serveStatus tells what the ceiling lets this peer see of the system.
func (r *Room) serveStatus(ctx context.Context, from string, s *link.Stream) error {
	if err := s.Receive(&statusAsk{}); err != nil {
		return err
	}
	c := r.caller(from)
	if !r.cfg.Open(c, "system") {
		return notShared("its state")
	}
	f, err := r.cfg.Status(ctx, c)
	if err != nil {
		return err
	}
	return s.Send(f)
}

func notShared(what string) error {
	return fault.New(fault.NotGranted, "this node does not share %s with you", what)
}

type catalogueAsk struct {
	After string `json:"after,omitzero"`
}

type cataloguePage struct {
	Items []Item `json:"items"`
	More  bool   `json:"more,omitzero"`
}

// serveCatalogue gives what is shared with this peer, a page at a time, in the order of the paths.
func (r *Room) serveCatalogue(_ context.Context, from string, s *link.Stream) error {
	for {
		var ask catalogueAsk
		if err := s.Receive(&ask); err != nil {
			if errors.Is(err, link.ErrClosed) {
				return nil
			}
			return err
		}
		c := r.caller(from)
		if !r.cfg.Open(c, contentCategory) {
			return notShared("its content")
		}
		items, more, err := r.cfg.Catalogue(c, ask.After, pageItems)
		if err != nil {
			return err
		}
		n := fitting(items)
		if err := s.Send(cataloguePage{append([]Item{}, items[:n]...), more || n < len(items)}); err != nil {
			return err
		}
	}
}

// fitting is how many of the files go into one frame.
func fitting(items []Item) int {
	const rest = 256 // bytes of an item beside its path
	left := pageBytes
	for n, i := range items {
		path, _ := jsontext.AppendQuote(nil, i.Path) // the size is right also where the path is no UTF-8
		if left -= len(path) + rest; left < 0 && n > 0 {
			return n
		}
	}
	return len(items)
}

// refresh asks a connected peer how it is and what it shares. What it does not share any more is forgotten.
func (r *Room) refresh(ctx context.Context, key string) error {
	var f Figures
	err := r.exchange(ctx, key, "status", statusAsk{}, &f)
	r.mu.Lock()
	if p := r.peers[key]; p != nil {
		next := p.clone()
		next.figures = nil
		if err == nil && f.plausible() {
			next.figures = &f
		}
		r.peers[key] = next
	}
	r.mu.Unlock()
	if err != nil && link.Said(err) == nil {
		return err
	}
	items, truncated, err := r.readCatalogue(ctx, key)
	switch f := link.Said(err); {
	case f != nil && f.Code == fault.NotGranted:
		items = nil
	case err != nil:
		return err
	}
	return r.keepCatalogue(ctx, key, items, truncated)
}

// plausible reports whether a machine can have these figures.
func (f Figures) plausible() bool {
	percent := func(v float64) bool { return v >= 0 && v <= 100 }
	const century, most = 100 * 365 * 24 * 3600, 1 << 20
	return percent(f.DiskPercent) && percent(f.MemoryPercent) && f.UptimeS >= 0 && f.UptimeS < century && f.Load1 >= 0 && f.Load1 < most &&
		f.Processors >= 0 && f.Processors < most && f.DiskFree >= 0
}

// readCatalogue reads at most maxShared files; what a peer sends beyond that, or badly, is left out and said.
func (r *Room) readCatalogue(ctx context.Context, key string) (items []Item, truncated bool, err error) {
	s, err := r.host.Open(ctx, key, "catalogue")
	if err != nil {
		return nil, false, err
	}
	defer s.Close()
	bytes, bad, after := 0, 0, ""
	for {
		if err := s.Send(catalogueAsk{After: after}); err != nil {
			return nil, false, err
		}
		var page cataloguePage
		if err := s.Receive(&page); err != nil {
			return nil, false, err
		}
		for _, i := range page.Items {
			if i.Path <= after {
				return nil, false, fault.New(fault.Failed, "the other node's catalogue is not in order")
			}
			after = i.Path
			if !goodItem(i) {
				bad++
				continue
			}
			bytes += len(i.Path)
			if len(items) == maxShared || bytes > maxItemBytes {
				r.flooded(ctx, key, "it shares more files than this node keeps account of; the rest is left out")
				return items, true, nil
			}
			items = append(items, i)
		}
		if bad > pageItems {
			return nil, false, fault.New(fault.Failed, "the other node's catalogue holds too much that is no file")
		}
		if !page.More || len(page.Items) == 0 {
			return items, bad > 0, nil
		}
	}
}

// goodItem reports whether a file of another node's catalogue could be kept here.
func goodItem(i Item) bool {
	sum, err := hex.DecodeString(i.SHA256)
	year := i.Modified.UTC().Year() // one that no JSON can hold would make the whole listing unreadable
	return err == nil && len(sum) == sha256.Size && i.Size >= 0 && i.Size <= maxSize && year > 0 && year <= 9999 && download.CheckPath(i.Path) == nil
}

// keepCatalogue puts it in the place of what was received before.
func (r *Room) keepCatalogue(ctx context.Context, key string, items []Item, truncated bool) error {
	sum := shared{Files: len(items), Truncated: truncated, At: r.cfg.Clock.Now()}
	err := r.cfg.DB.Write(ctx, store.Relaxed, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "DELETE FROM mesh_item WHERE peer = ?", key); err != nil {
			return err
		}
		put, err := tx.PrepareContext(ctx, "INSERT INTO mesh_item VALUES (?, ?, ?, ?, ?)")
		if err != nil {
			return err
		}
		defer put.Close()
		for _, i := range items {
			hash, _ := hex.DecodeString(i.SHA256) // goodItem has read it
			if _, err := put.ExecContext(ctx, key, i.Path, i.Size, i.Modified.UnixMilli(), hash); err != nil {
				return err
			}
			sum.Bytes += i.Size
		}
		return nil
	})
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.peers[key]
	if p == nil { // forgotten meanwhile
		return r.cfg.DB.Write(ctx, store.Relaxed, deleteItems(key))
	}
	next := p.clone()
	next.shared = sum
	r.peers[key] = next
	r.cfg.Changed()
	return nil
}

// loadShared counts what was kept of the catalogues.
func (r *Room) loadShared(ctx context.Context) error {
	rows, err := r.cfg.DB.Reader().QueryContext(ctx, "SELECT peer, count(*), CAST(total(size) AS INTEGER) FROM mesh_item GROUP BY peer")
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var key string
		var s shared
		if err := rows.Scan(&key, &s.Files, &s.Bytes); err != nil {
			return err
		}
		if p := r.peers[key]; p != nil {
			p.shared = s
		}
	}
	return rows.Err()
}

// Listing is a part of a peer's catalogue as it was last received. Paths are the peer's words.
type Listing struct {
	Peer      string // what people call it
	Items     []Item
	Total     int
	Bytes     int64
	Truncated bool
}

// Received lists what a peer said it shares, from what is kept here: nobody is asked for it (A3b).
func (r *Room) Received(ctx context.Context, word, prefix string, limit int) (Listing, error) {
	p, err := r.find(word)
	if err != nil {
		return Listing{}, err
	}
	out := Listing{Peer: p.called(), Truncated: p.shared.Truncated}
	const where = " FROM mesh_item WHERE peer = ? AND path >= ? AND substr(path, 1, length(?)) = ?"
	args := []any{p.key, prefix, prefix, prefix}
	unread := func(err error) (Listing, error) {
		return Listing{}, fault.Wrap(err, fault.Unavailable, "the peer's catalogue cannot be read")
	}
	if err := r.cfg.DB.Reader().QueryRowContext(ctx, "SELECT count(*), CAST(total(size) AS INTEGER)"+where, args...).Scan(&out.Total, &out.Bytes); err != nil {
		return unread(err)
	}
	rows, err := r.cfg.DB.Reader().QueryContext(ctx, "SELECT path, size, modified, sha256"+where+" ORDER BY path LIMIT ?", append(args, limit)...)
	if err != nil {
		return unread(err)
	}
	defer rows.Close()
	for rows.Next() {
		i, err := scanItem(rows)
		if err != nil {
			return unread(err)
		}
		out.Items = append(out.Items, i)
	}
	out.Truncated = out.Truncated || out.Total > len(out.Items)
	return out, rows.Err()
}

func scanItem(rows interface{ Scan(...any) error }) (Item, error) {
	var i Item
	var modified int64
	var hash []byte
	err := rows.Scan(&i.Path, &i.Size, &modified, &hash)
	i.Modified, i.SHA256 = time.UnixMilli(modified).UTC(), hex.EncodeToString(hash)
	return i, err
}

// item is one file of what a peer said it shares.
func (r *Room) item(ctx context.Context, p *peer, path string) (Item, error) {
	if !utf8.ValidString(path) {
		return Item{}, fault.New(fault.InvalidParams, "the path is not valid UTF-8").At("path")
	}
	i, err := scanItem(r.cfg.DB.Reader().QueryRowContext(ctx, "SELECT path, size, modified, sha256 FROM mesh_item WHERE peer = ? AND path = ?", p.key, path))
	if errors.Is(err, sql.ErrNoRows) {
		return Item{}, fault.New(fault.NotFound, "%s does not share such a file, as far as is known here; atoll mesh refresh asks it again", p.called()).At("path")
	}
	if err != nil {
		return Item{}, fault.Wrap(err, fault.Unavailable, "the peer's catalogue cannot be read")
	}
	return i, nil
}
