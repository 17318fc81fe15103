package docker

import (
	"context"
	"sync"
)

// watchers are those who want to know which apps changed. A slow one misses no app: names are kept until it takes them.
type watchers struct {
	mu  sync.Mutex // guards all and what hangs on it
	all map[*watcher]struct{}
}

type watcher struct {
	names map[string]struct{}
	ready chan struct{} // buffered
}

func (w *watchers) tell(names ...string) {
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

// Watch implements app.Runtime. It names whole apps: a change of a service is one of its project. All apps are named
// when the engine goes away and when it comes back.
func (e *Engine) Watch(ctx context.Context, changed func(name string)) error {
	one := e.watchers.join()
	defer e.watchers.part(one)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-one.ready:
			for name := range e.watchers.take(one) {
				changed(name)
			}
		}
	}
}
