package content

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	"atoll/internal/folder"
)

// Run keeps the index fresh until ctx ends. The node calls it once and waits for it.
func (r *Room) Run(ctx context.Context) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		r.cfg.Log.Warn("changes in the shared folder cannot be noticed; it is looked through every "+r.cfg.Rescan.String(), "err", err)
		watcher = nil
	}
	var work sync.WaitGroup
	work.Go(func() { r.hashLoop(ctx) })
	if watcher != nil {
		work.Go(func() { r.notice(watcher) })
	}
	r.scanLoop(ctx, watcher)
	if watcher != nil {
		_ = watcher.Close() // ends notice; there is nothing to do about an error
	}
	work.Wait()
}

// notice turns events into looks until the watcher is closed.
func (r *Room) notice(watcher *fsnotify.Watcher) {
	for {
		select {
		case e, ok := <-watcher.Events:
			if !ok {
				return
			}
			if e.Op != fsnotify.Chmod {
				signal(r.look)
			}
		case _, ok := <-watcher.Errors:
			if !ok {
				return
			}
			signal(r.look) // events were lost
		}
	}
}

// batch is how many hashes are written in one transaction.
const batch = 64

// hashLoop hashes one file at a time, oldest path first, until ctx ends.
func (r *Room) hashLoop(ctx context.Context) {
	for {
		retry := r.hashAll(ctx)
		timer := time.NewTimer(retry)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-r.work:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// hashAll hashes what has settled and says when to come back.
func (r *Room) hashAll(ctx context.Context) (retry time.Duration) {
	var done []item
	flush := func() {
		if err := save(ctx, r.cfg.DB, done); err != nil {
			r.cfg.Log.Warn("the content index cannot be written", "err", err)
		}
		done = done[:0]
	}
	defer flush()
	var after string
	for ctx.Err() == nil {
		next, wait, ok := r.next(after)
		if !ok {
			r.caughtUp()
			return wait
		}
		after = next.path
		hashed, err := r.hash(ctx, next)
		if err != nil {
			if ctx.Err() == nil && !errors.Is(err, errChanged) { // a change woke the scanner
				r.cfg.Log.Debug("a shared file cannot be hashed", "err", err)
				next.failed = true
				r.keep(next)
			}
			continue
		}
		if r.keep(hashed) {
			done = append(done, hashed)
		}
		if len(done) >= batch {
			flush()
		}
	}
	return 0
}

// next is the first file after the path that has no hash and has settled; without one, how long until there may be.
func (r *Room) next(after string) (item, time.Duration, bool) {
	now := r.cfg.Now()
	r.mu.RLock()
	defer r.mu.RUnlock()
	wait := r.cfg.Rescan
	start, exact := find(r.items, after)
	if exact {
		start++
	}
	for _, i := range r.items[start:] {
		if !i.waits() {
			continue
		}
		age := now.Sub(i.modified())
		if age >= r.settle || age < 0 { // a time to come says nothing
			return i, 0, true
		}
		wait = min(wait, r.settle-age)
	}
	return item{}, wait, false
}

// caughtUp tells that no file waits for its hash.
func (r *Room) caughtUp() {
	if r.cfg.OnIndexed == nil {
		return
	}
	r.mu.RLock()
	indexing := r.indexing()
	r.mu.RUnlock()
	if !indexing {
		r.cfg.OnIndexed()
	}
}

// indexing reports whether files wait for their hash, or the folder for its first look; r.mu is held.
func (r *Room) indexing() bool { return !r.scanned || slices.ContainsFunc(r.items, item.waits) }

// keep puts what became known of a file into the index, if the file there is still that version.
func (r *Room) keep(known item) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	n, ok := find(r.items, known.path)
	if !ok || r.items[n].stamp != known.stamp {
		return false
	}
	at := &r.items[n]
	at.hash, at.hashed, at.failed = known.hash, known.hashed, known.failed
	return true
}

var errChanged = errors.New("the file changed while it was read")

// hash reads a file and makes sure that it is the same version before and after.
func (r *Room) hash(ctx context.Context, i item) (item, error) {
	f, err := r.open()
	if err != nil {
		return item{}, err
	}
	defer f.Close()
	file, stamp, err := f.Read(i.path)
	if err != nil {
		return item{}, err
	}
	defer file.Close()
	if stamp != i.stamp {
		signal(r.look)
		return item{}, errChanged
	}
	sum := sha256.New()
	if _, err := io.CopyBuffer(sum, readerWith{ctx, file}, make([]byte, 256<<10)); err != nil {
		return item{}, fmt.Errorf("read: %w", err)
	}
	if stamp, err = folder.StampOf(file); err != nil {
		return item{}, err
	}
	if stamp != i.stamp {
		signal(r.look)
		return item{}, errChanged
	}
	i.hashed = true
	sum.Sum(i.hash[:0])
	return i, nil
}

// readerWith ends reading when ctx ends.
type readerWith struct {
	ctx  context.Context
	file io.Reader
}

func (r readerWith) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.file.Read(p)
}
