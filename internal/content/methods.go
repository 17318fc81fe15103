package content

import (
	"context"
	"encoding/hex"
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
			Rule:   checkList,
			Handle: func(_ context.Context, _ caller.Caller, p listParams) (Listing, error) { return r.list(p.Prefix) },
		}.Method(),
	}
}

// checkList refuses any peer's catalogue: none has been received. A peer is never asked for it here (A3b).
func checkList(_ context.Context, _ caller.Caller, p listParams) error {
	switch {
	case p.Peer != "":
		return fault.New(fault.NotFound, "there is no such peer; this node knows none").At("peer")
	case len(p.Prefix) > maxPrefix || strings.ContainsRune(p.Prefix, 0) || !utf8.ValidString(p.Prefix):
		return fault.New(fault.InvalidParams, "prefix must be a text of at most %d bytes without a zero byte", maxPrefix).At("prefix")
	}
	return nil
}

func (r *Room) list(prefix string) (Listing, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if r.problem != nil {
		return Listing{}, fault.Wrap(r.problem, fault.Unavailable, "the shared folder cannot be read now; is its disk there, and may the node read it?")
	}
	out := Listing{Items: []Item{}, Truncated: r.full, Indexing: r.indexing(), Skipped: r.skipped}
	start, _ := find(r.items, prefix)
	for _, i := range r.items[start:] {
		if !strings.HasPrefix(i.path, prefix) {
			break
		}
		out.Total++
		out.TotalBytes += i.stamp.Size
		if len(out.Items) == maxListed {
			out.Truncated = true
			continue
		}
		o := Item{Path: i.path, Size: i.stamp.Size, Modified: i.modified()}
		if i.hashed {
			o.SHA256 = hex.EncodeToString(i.hash[:])
		}
		out.Items = append(out.Items, o)
	}
	return out, nil
}
