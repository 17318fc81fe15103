package process

import (
	"context"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	settleFolder = 100 * time.Millisecond // after the last change, so that a file being written is read once
	pollFolder   = 5 * time.Second        // where the kernel has no more watches to give
)

// watchers are those who want to know which apps changed. A slow one misses no app: names are kept until it takes them.
type watchers struct {
	mu  sync.Mutex // guards all
	all map[*watcher]struct{}
}

type watcher struct {
	names map[string]struct{}
	ready chan struct{} // buffered
}

func (w *watchers) tell(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for one := range w.all {
		one.names[name] = struct{}{}
		select {
		case one.ready <- struct{}{}:
		default:
		}
	}
}

func (w *watchers) join() *watcher {
	w.mu.Lock()
	defer w.mu.Unlock()
	one := &watcher{names: map[string]struct{}{}, ready: make(chan struct{}, 1)}
	if w.all == nil {
		w.all = map[*watcher]struct{}{}
	}
	w.all[one] = struct{}{}
	return one
}

func (w *watchers) part(one *watcher) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.all, one)
}

func (w *watchers) take(one *watcher) map[string]struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	names := one.names
	one.names = map[string]struct{}{}
	return names
}

// Watch implements app.Runtime.
func (s *Supervisor) Watch(ctx context.Context, changed func(name string)) error {
	one := s.watchers.join()
	defer s.watchers.part(one)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-one.ready:
			for name := range s.watchers.take(one) {
				changed(name)
			}
		}
	}
}

// watchFolder reads the definitions again after each change of their folder, until the supervisor closes. The folder
// itself may be taken away and come back as another one (ino).
func (s *Supervisor) watchFolder(w *fsnotify.Watcher, ino uint64) {
	var changes <-chan fsnotify.Event
	var errs <-chan error
	if w != nil {
		defer w.Close()
		changes, errs = w.Events, w.Errors
	}
	poll := time.NewTicker(pollFolder)
	defer poll.Stop()
	settled := time.NewTimer(time.Hour)
	settled.Stop()
	defer settled.Stop()
	for {
		select {
		case <-s.quit:
			return
		case _, ok := <-changes:
			if !ok {
				changes, w = nil, nil // from here on the folder is polled
				continue
			}
			settled.Reset(settleFolder)
		case err, ok := <-errs:
			if !ok {
				errs = nil
				continue
			}
			s.cfg.Log.Warn("the folder of app definitions is watched with gaps", "error", err)
			settled.Reset(settleFolder)
		case <-settled.C:
			s.reload()
		case <-poll.C:
			now := lookAt(s.apps).ino
			if w != nil && now != ino && now != 0 && w.Add(s.apps) == nil {
				ino = now
				s.reload()
			}
			if w == nil {
				s.reload()
			}
		}
	}
}

// rotateLogs keeps the logs within their bounds.
func (s *Supervisor) rotateLogs() {
	tick := time.NewTicker(s.cfg.RotateEvery)
	defer tick.Stop()
	for {
		select {
		case <-s.quit:
			return
		case <-tick.C:
			for _, u := range s.all() {
				if err := u.journal.Rotate(); err != nil {
					u.log.Warn("the app's log cannot be rotated", "error", err)
				}
			}
		}
	}
}
