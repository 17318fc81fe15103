package docker

import "context"

// Watch implements app.Runtime. It names whole apps: a change of a service is one of its project. All apps are named
// when the engine goes away and when it comes back.
func (e *Engine) Watch(ctx context.Context, changed func(name string)) error {
	return e.watchers.Watch(ctx, changed)
}
