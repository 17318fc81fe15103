package systemd

import "context"

// Watch implements app.Runtime. Every unit counts as changed when the bus goes away and when it comes back.
func (m *Manager) Watch(ctx context.Context, changed func(name string)) error {
	return m.watchers.Watch(ctx, changed)
}
