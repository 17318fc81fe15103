package systemd

import (
	"context"
	"sync"
)

// watchers are those who want to know which units changed. A slow one misses no unit: names are kept until it takes them.
type watchers struct {
	mu  sync.Mutex // guards all
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

// Watch implements app.Runtime. Every unit counts as changed when the bus goes away and when it comes back.
func (m *Manager) Watch(ctx context.Context, changed func(name string)) error {
	one := m.watchers.join()
	defer m.watchers.part(one)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-one.ready:
			for name := range m.watchers.take(one) {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				changed(name)
			}
		}
	}
}
