package content

import (
	"context"
	"encoding/hex"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"atoll/internal/caller"
	"atoll/internal/fault"
	"atoll/internal/rpc"
)

type listParams struct {
	Peer   string `json:"peer"`
	Prefix string `json:"prefix"`
}

// Listing is the result of content.list: what begins with the prefix, sorted by path. Paths are strangers' text.
type Listing struct {
	Items      []Item `json:"items"`
	Total      int    `json:"total"` // of all that fit, not only of those in Items
	TotalBytes int64  `json:"total_bytes"`
	Truncated  bool   `json:"truncated"`
	// Indexing says that files are being looked at, so that some may be missing or without a hash.
	Indexing bool `json:"indexing,omitzero"`
	// Skipped counts names in the whole folder that cannot be shared: no UTF-8, too deep, not readable.
	Skipped int `json:"skipped,omitzero"`
}

// Item is one shared file. SHA256 is lower-case hex, and absent until it is known or where the file cannot be read.
type Item struct {
	Peer     string    `json:"peer,omitzero"`
	Path     string    `json:"path"`
	Size     int64     `json:"size_bytes"`
	Modified time.Time `json:"modified"`
	SHA256   string    `json:"sha256,omitzero"`
}

// maxListed bounds the items of one answer.
const maxListed = 1000

// maxPrefix is the longest prefix, in bytes: the longest path the system takes.
const maxPrefix = 4096

// Methods are the room's rows.
func (r *Room) Methods() []rpc.Method {
	return []rpc.Method{
		rpc.Spec[listParams, Listing]{
			Row: rpc.Row{Name: "content.list", Summary: "Lists the files of the shared folder, or what a peer shares.", Effect: rpc.Read,
				Doors: rpc.People | rpc.Tools | rpc.Peers, Role: caller.Viewer},
			Rule: r.checkList,
			Handle: func(ctx context.Context, c caller.Caller, p listParams) (Listing, error) {
				if p.Peer != "" {
					return r.catalogue(ctx, p)
				}
				return r.list(r.shared(c), p.Prefix)
			},
		}.Method(),
	}
}

// checkList refuses to tell one peer of another (F-F5). No peer is asked for its catalogue here (A3b).
func (r *Room) checkList(_ context.Context, c caller.Caller, p listParams) error {
	switch {
	case p.Peer != "" && !c.IsOperator():
		return fault.New(fault.Forbidden, "another node is told of this node's own content only").At("peer")
	case p.Peer != "" && r.cfg.Catalogue == nil:
		return fault.New(fault.NotFound, "there is no such peer; this node knows none").At("peer")
	case len(p.Prefix) > maxPrefix || strings.ContainsRune(p.Prefix, 0) || !utf8.ValidString(p.Prefix):
		return fault.New(fault.InvalidParams, "prefix must be a text of at most %d bytes without a zero byte", maxPrefix).At("prefix")
	}
	return nil
}

// catalogue is what a peer last said, with the peer's name on every item.
func (r *Room) catalogue(ctx context.Context, p listParams) (Listing, error) {
	l, err := r.cfg.Catalogue(ctx, p.Peer, p.Prefix)
	if err != nil {
		return Listing{}, err
	}
	out := l
	out.Items = slices.Clone(l.Items[:min(len(l.Items), maxListed)])
	out.Truncated = l.Truncated || len(l.Items) > maxListed
	for i := range out.Items {
		if out.Items[i].Peer == "" {
			out.Items[i].Peer = p.Peer
		}
	}
	if out.Items == nil {
		out.Items = []Item{}
	}
	return out, nil
}

// list is the part of the index that begins with the prefix and that s lets out.
func (r *Room) list(s share, prefix string) (Listing, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if err := r.readable(); err != nil {
		return Listing{}, err
	}
	out := Listing{Items: []Item{}, Truncated: r.full, Indexing: !r.scanned}
	if s.all {
		out.Indexing, out.Skipped = r.indexing(), r.skipped // of the whole folder, so only for who may see it whole
	}
	start, _ := find(r.items, prefix)
	for _, i := range r.items[start:] {
		if !strings.HasPrefix(i.path, prefix) {
			break
		}
		if !s.holds(i.path) {
			continue
		}
		out.Total++
		out.TotalBytes += i.stamp.Size
		out.Indexing = out.Indexing || i.waits()
		if len(out.Items) == maxListed {
			out.Truncated = true
			continue
		}
		out.Items = append(out.Items, i.wire())
	}
	return out, nil
}

func (r *Room) readable() error {
	if r.problem != nil {
		return fault.Wrap(r.problem, fault.Unavailable, "the shared folder cannot be read now; is its disk there, and may the node read it?")
	}
	return nil
}

func (i item) wire() Item {
	o := Item{Path: i.path, Size: i.stamp.Size, Modified: i.modified()}
	if i.hashed {
		o.SHA256 = hex.EncodeToString(i.hash[:])
	}
	return o
}
