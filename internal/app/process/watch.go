package process

import (
	"context"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	settleFolder = 100 * time.Millisecond // after the last change, so that a file being written is read once
	pollFolder   = 5 * time.Second        // where the kernel has no more watches to give
)

// Watch implements app.Runtime.
func (s *Supervisor) Watch(ctx context.Context, changed func(name string)) error {
	return s.watchers.Watch(ctx, changed)
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
