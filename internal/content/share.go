package content

import (
	"io"
	"path"
	"path/filepath"
	"strings"

	"atoll/internal/caller"
	"atoll/internal/fault"
)

// share is what of the folder a caller may see. The zero share is nothing.
type share struct {
	all     bool
	folders []string // slashes, no leading or trailing one
}

// shared is what the caller may see now: an operator all, a peer what the owner set, anyone else nothing.
func (r *Room) shared(c caller.Caller) share {
	switch {
	case c.IsOperator():
		return share{all: true}
	case !c.IsPeer() || c.PeerKey() == "" || r.cfg.Shared == nil:
		return share{}
	}
	var s share
	for _, f := range r.cfg.Shared(c.PeerKey()) {
		if f == "" || f == "/" {
			return share{all: true}
		}
		f = strings.TrimSuffix(strings.TrimPrefix(f, "/"), "/")
		if f != "" && filepath.IsLocal(f) && path.Clean(f) == f && f != "." { // no folder is named by "..", "." or an empty name
			s.folders = append(s.folders, f)
		}
	}
	return s
}

// holds reports whether a path of the index lies in one of the folders: whole names count, so that films does not hold
// films-private.
func (s share) holds(p string) bool {
	if s.all {
		return true
	}
	for _, f := range s.folders {
		if p == f || strings.HasPrefix(p, f) && p[len(f)] == '/' {
			return true
		}
	}
	return false
}

// Page lists at most n (1 to 1,000) of the files that the caller may see, those whose path comes after the given one, and
// whether there are more. One without SHA256 cannot be opened yet.
func (r *Room) Page(c caller.Caller, after string, n int) (items []Item, more bool, err error) {
	s := r.shared(c)
	n = max(1, min(n, maxListed))
	items = []Item{}
	r.mu.RLock()
	defer r.mu.RUnlock()
	if err := r.readable(); err != nil {
		return nil, false, err
	}
	start, exact := find(r.items, after)
	if exact {
		start++
	}
	for _, i := range r.items[start:] {
		if !s.holds(i.path) {
			continue
		}
		if len(items) == n {
			return items, true, nil
		}
		items = append(items, i.wire())
	}
	return items, false, nil
}

// OpenFile opens a file that the caller may see, in the very version whose hash the index has. The caller closes it.
// Errors: NotFound, also for what is not shared with the caller; Unavailable where the file has no hash yet; Changed where
// it is another one by now.
func (r *Room) OpenFile(c caller.Caller, name string) (io.ReadSeekCloser, Item, error) {
	missing := func() error { return fault.New(fault.NotFound, "there is no such shared file").At("path") }
	if !r.shared(c).holds(name) {
		return nil, Item{}, missing()
	}
	r.mu.RLock()
	n, ok := find(r.items, name)
	var known item
	if ok {
		known = r.items[n]
	}
	r.mu.RUnlock()
	switch {
	case !ok:
		return nil, Item{}, missing()
	case !known.hashed:
		return nil, Item{}, fault.New(fault.Unavailable, "the file is still being looked at; ask again in a while").At("path")
	}
	f, err := r.open()
	if err != nil {
		return nil, Item{}, fault.Wrap(err, fault.Unavailable, "the shared folder cannot be read now")
	}
	defer f.Close()
	file, stamp, err := f.Read(name)
	if err != nil {
		signal(r.look)
		return nil, Item{}, fault.Wrap(err, fault.NotFound, "there is no such shared file").At("path")
	}
	if stamp != known.stamp {
		signal(r.look)
		_ = file.Close() // it was only read
		return nil, Item{}, fault.New(fault.Changed, "the file changed; ask again once it was looked at").At("path")
	}
	return file, known.wire(), nil
}
