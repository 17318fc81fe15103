package app

import (
	"context"
	"sync"
)

// Watchers are those who want to know which apps of a runtime changed. A slow one misses no app: names are kept until it
// takes them. The zero value is ready; it is safe for concurrent use.
type Watchers struct {
	mu  sync.Mutex // guards all, and the names of each
	all map[*Watcher]struct{}
}

// Watcher is one of them, from Join to Leave.
type Watcher struct {
	of    *Watchers
	names map[string]struct{}
	ready chan struct{} // buffered
}

// Tell says that these apps changed.
func (w *Watchers) Tell(names ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for one := range w.all {
		for _, name := range names {
			one.names[name] = struct{}{}
		}
		select {
		case one.ready <- struct{}{}:
		default:
		}
	}
}

// Join adds a watcher, who is told of every change from now on.
func (w *Watchers) Join() *Watcher {
	w.mu.Lock()
	defer w.mu.Unlock()
	one := &Watcher{of: w, names: map[string]struct{}{}, ready: make(chan struct{}, 1)}
	if w.all == nil {
		w.all = map[*Watcher]struct{}{}
	}
	w.all[one] = struct{}{}
	return one
}

// Len is how many there are.
func (w *Watchers) Len() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.all)
}

// Watch gives changed each name, from this goroutine, until ctx ends: Runtime's Watch.
func (w *Watchers) Watch(ctx context.Context, changed func(name string)) error {
	one := w.Join()
	defer one.Leave()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-one.Changed():
			for name := range one.Take() {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				changed(name)
			}
		}
	}
}

// Leave ends it.
func (one *Watcher) Leave() {
	one.of.mu.Lock()
	defer one.of.mu.Unlock()
	delete(one.of.all, one)
}

// Changed is ready when there are names to take.
func (one *Watcher) Changed() <-chan struct{} { return one.ready }

// Take returns the names told since it was last called.
func (one *Watcher) Take() map[string]struct{} {
	one.of.mu.Lock()
	defer one.of.mu.Unlock()
	names := one.names
	one.names = map[string]struct{}{}
	return names
}
