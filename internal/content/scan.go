package content

import (
	"context"
	"errors"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/fsnotify/fsnotify"

	"atoll/internal/folder"
)

// Bounds of one look through the folder.
const (
	maxDepth   = 32
	maxEntries = 50_000 // in one directory
	maxWatches = 4096   // directories; those beyond are seen at the next rescan
)

// found is what one look through the folder gave.
type found struct {
	items   []item
	dirs    []string // full paths, for the watcher
	skipped int
	full    bool
}

// scanLoop looks through the folder at once, after each change, and from time to time, until ctx ends.
func (r *Room) scanLoop(ctx context.Context, watcher *fsnotify.Watcher) {
	rescan := time.NewTicker(r.cfg.Rescan)
	defer rescan.Stop()
	for {
		begin := time.Now()
		dirs := r.scan(ctx)
		took := time.Since(begin)
		r.watch(watcher, dirs)
		signal(r.work)
		select {
		case <-ctx.Done():
			return
		case <-rescan.C:
			continue
		case <-r.look:
		}
		// A large folder under constant change takes a tenth of one processor at most.
		pause := time.NewTimer(max(r.quiet, 10*took))
		select {
		case <-ctx.Done():
			pause.Stop()
			return
		case <-pause.C:
		}
		select { // what happened in the pause is seen now
		case <-r.look:
		default:
		}
	}
}

// scan replaces the index by what is in the folder, keeping the hashes of files that are unchanged. Where the folder
// cannot be read, or looks empty as one on a disk that is not mounted does, the hashes are kept for when it is back.
func (r *Room) scan(ctx context.Context) (dirs []string) {
	now, err := r.walk(ctx)
	if ctx.Err() != nil {
		return nil
	}
	r.mu.Lock()
	was, before := r.problem, append(r.away, r.items...)
	r.problem, r.scanned = err, true
	if err == nil {
		carry(r.away, now.items)
		carry(r.items, now.items)
		r.items, r.skipped, r.full, r.away = now.items, now.skipped, now.full, nil
		if len(now.items) == 0 {
			r.away = before
		}
	}
	var gone []string
	for _, b := range before {
		if _, still := find(r.items, b.path); !still {
			gone = append(gone, b.path)
		}
	}
	r.mu.Unlock()
	switch {
	case err != nil:
		if was == nil || was.Error() != err.Error() {
			r.cfg.Log.Warn("the shared folder cannot be read", "err", err)
		}
		return nil
	case len(now.items) == 0:
		return now.dirs
	}
	if err := forget(ctx, r.cfg.DB, gone); err != nil {
		r.cfg.Log.Warn("the content index cannot be written", "err", err)
	}
	return now.dirs
}

// carry takes over what is known of files whose stamp is the same.
func carry(from, to []item) {
	for i := range to {
		if j, ok := find(from, to[i].path); ok && from[j].stamp == to[i].stamp {
			to[i].hash, to[i].hashed, to[i].failed = from[j].hash, from[j].hashed, from[j].failed
		}
	}
}

func (r *Room) walk(ctx context.Context) (found, error) {
	f, err := r.open()
	if err != nil {
		return found{}, err
	}
	defer f.Close()
	data, err := os.Stat(r.cfg.DataDir)
	if err != nil {
		return found{}, err
	}
	w := walker{folder: f, data: data}
	todo := []string{"."}
	for len(todo) > 0 && !w.full {
		dir := todo[0]
		todo = todo[1:]
		subs, err := w.visit(ctx, dir)
		if err != nil && (dir == "." || ctx.Err() != nil) {
			return found{}, err
		}
		todo = append(todo, subs...)
		w.dirs = append(w.dirs, filepath.Join(r.cfg.Dir, dir))
	}
	slices.SortFunc(w.items, byPath)
	return w.found, nil
}

type walker struct {
	found
	folder *folder.Folder
	data   os.FileInfo
}

// visit takes in one directory and returns the ones in it. What begins with a dot is not shared, links are not
// followed, and what is neither file nor directory is left out.
func (w *walker) visit(ctx context.Context, dir string) (subs []string, err error) {
	entries, more, err := w.folder.List(ctx, dir, maxEntries)
	if err != nil {
		w.skipped++ // gone, or not ours to read
		return nil, err
	}
	w.full = w.full || more
	for _, e := range entries {
		p := path.Join(dir, e.Name)
		switch {
		case strings.HasPrefix(e.Name, "."):
		case !utf8.ValidString(e.Name):
			w.skipped++
		case e.Kind == folder.File && len(w.items) >= maxItems:
			w.full = true
			return nil, nil
		case e.Kind == folder.File:
			w.items = append(w.items, item{path: p, stamp: e.Stamp})
		case e.Kind != folder.Dir:
		case strings.Count(p, "/") >= maxDepth || w.isData(p, e):
			w.skipped++
		default:
			subs = append(subs, p)
		}
	}
	return subs, nil
}

// isData reports whether a directory is the node's own under another name, by a bind mount.
func (w *walker) isData(p string, e folder.Entry) bool {
	if st, ok := w.data.Sys().(*syscall.Stat_t); ok && st.Ino != e.Stamp.Inode {
		return false
	}
	is, err := w.folder.Passes(p, w.data)
	return is || err != nil
}

// watch has the watcher follow the directories that are there now.
func (r *Room) watch(watcher *fsnotify.Watcher, dirs []string) {
	if watcher == nil {
		return
	}
	dirs = dirs[:min(len(dirs), maxWatches)]
	old := map[string]bool{}
	for _, d := range watcher.WatchList() {
		old[d] = true
	}
	for _, d := range dirs {
		if old[d] {
			delete(old, d)
			continue
		}
		if err := watcher.Add(d); err != nil && !errors.Is(err, os.ErrNotExist) {
			r.cfg.Log.Debug("a directory cannot be watched; it is seen at the next rescan", "err", err)
			break // the system's limit; those beyond would fail as well
		}
		signal(r.look) // what happened between the look and the watch
	}
	for d := range old {
		_ = watcher.Remove(d) // gone already
	}
}

// signal wakes the other side; one that is awake needs no second signal.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
