package docker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/events"
	"github.com/moby/moby/client"

	"atoll/internal/app/docker/compose"
	"atoll/internal/app/docker/socket"
	"atoll/internal/fault"
)

const (
	retryFirst  = 100 * time.Millisecond // before an engine that went away is tried again, then doubled
	retryMax    = 5 * time.Second
	resyncEvery = 5 * time.Minute       // for what events may have missed
	gather      = 20 * time.Millisecond // events of one container come in bursts
	askAtOnce   = 6                     // questions to the engine in parallel
	answerTime  = 20 * time.Second      // for one answer
)

// Run keeps the link to the engine until ctx ends, and waits for everything that it and the actions began. It must be
// running for the engine to be reached, once at a time.
func (e *Engine) Run(ctx context.Context) {
	e.mu.Lock()
	e.life = ctx
	e.mu.Unlock()
	defer func() {
		e.mu.Lock()
		e.life = nil
		e.mu.Unlock()
		e.work.Wait()
	}()
	wait := retryFirst
	for {
		began := e.cfg.Now()
		e.session(ctx)
		if e.cfg.Now().Sub(began) > retryMax {
			wait = retryFirst
		}
		pause := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			pause.Stop()
			return
		case <-pause.C:
		}
		wait = min(2*wait, retryMax)
	}
}

// session is one link, from finding the engine to losing it.
func (e *Engine) session(ctx context.Context) {
	defer e.tried.Do(func() { close(e.first) })
	found, others := socket.Search(ctx, e.sockets)
	if ctx.Err() != nil {
		if found.Client != nil {
			_ = found.Client.Close()
		}
		return
	}
	if found.Client == nil {
		e.down(ctx, found, others)
		return
	}
	defer found.Client.Close()
	err := e.linked(ctx, found, others)
	lost := socket.Finding{Path: found.Path, Reach: socket.Silent, Why: "the node is closing"}
	if ctx.Err() == nil {
		lost.Why = socket.Reason(err)
	}
	e.down(ctx, lost, nil)
}

// linked follows the engine's events until it goes away.
func (e *Engine) linked(ctx context.Context, found socket.Finding, others []socket.Finding) error {
	ctx, cancel := context.WithCancel(ctx)
	lost := make(chan error, 1)
	var reader sync.WaitGroup
	defer reader.Wait()
	defer cancel()
	since := e.cfg.Now() // the engine sends what happens between this and the list
	reader.Go(func() { lost <- e.readEvents(ctx, found.Client, since) })
	if err := e.resync(ctx, found.Client); err != nil {
		return err
	}
	e.up(found, others, since)
	every := time.NewTicker(resyncEvery)
	defer every.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-lost:
			return err
		case <-e.kick:
			err = e.gathered(ctx, found.Client)
		case <-every.C:
			err = e.resync(ctx, found.Client)
		case <-e.doubt:
			look, done := context.WithTimeout(ctx, socket.AnswerTime)
			_, err = found.Client.Ping(look, client.PingOptions{})
			done()
		}
		if err != nil {
			return err
		}
	}
}

// up makes the engine's containers known.
func (e *Engine) up(found socket.Finding, others []socket.Finding, since time.Time) {
	e.mu.Lock()
	e.link = linkOf(found, others, e.auto, since)
	e.api = found.Client
	link, names := e.link, e.topIDs()
	e.mu.Unlock()
	e.tried.Do(func() { close(e.first) })
	e.watchers.Tell(names...)
	e.cfg.Log.Info("the container engine is linked", "engine", link.Engine, "version", link.Version, "api", link.API,
		"socket", link.Socket, "apps", len(names))
}

// down forgets the containers: what was last seen of them is no longer so.
func (e *Engine) down(ctx context.Context, found socket.Finding, others []socket.Finding) {
	e.mu.Lock()
	old, since := e.link, e.link.Since
	if old.Up {
		since, e.missed = e.cfg.Now(), old.Socket
	}
	if found.Reach == socket.Absent && e.missed != "" {
		found = socket.Finding{Path: e.missed, Reach: socket.Silent, Why: "its socket is gone"}
	}
	e.link = linkOf(found, others, e.auto, since)
	e.api = nil
	names := e.topIDs()
	e.all, e.apps = map[string]*compose.Container{}, nil
	link := e.link
	e.mu.Unlock()
	e.watchers.Tell(names...)
	if ctx.Err() == nil && link.Problem != "" && (old.Up || old.Problem != link.Problem) {
		e.cfg.Log.Warn("the container engine is not reached", "problem", link.Problem)
	}
}

// topIDs are the names of all apps; e.mu is held.
func (e *Engine) topIDs() []string {
	tops := e.indexed().Tops
	names := make([]string, len(tops))
	for i, g := range tops {
		names[i] = g.ID
	}
	return names
}

// readEvents notes what changes until the stream ends.
func (e *Engine) readEvents(ctx context.Context, from api, since time.Time) error {
	ctx, cancel := context.WithCancel(ctx)
	stream := from.Events(ctx, client.EventsListOptions{
		Since:   fmt.Sprintf("%d.%09d", since.Unix(), since.Nanosecond()),
		Filters: client.Filters{}.Add("type", string(events.ContainerEventType)),
	})
	var err error
	for err == nil {
		select {
		case m := <-stream.Messages:
			e.note(m)
		case err = <-stream.Err:
			if err == nil {
				err = errors.New("the stream of events ended")
			}
		}
	}
	cancel()
	for range stream.Err { // closed when its goroutine is over
	}
	return err
}

// note takes one event. Of most it only matters that the container is to be asked about.
func (e *Engine) note(m events.Message) {
	id := m.Actor.ID
	if m.Type != events.ContainerEventType || !compose.ValidID.MatchString(id) {
		return
	}
	at := time.Unix(0, m.TimeNano)
	action, _, _ := strings.Cut(string(m.Action), ":")
	e.mu.Lock()
	switch events.Action(action) {
	case events.ActionExecCreate, events.ActionExecStart, events.ActionExecDie, events.ActionExecDetach, events.ActionTop,
		events.ActionAttach, events.ActionDetach, events.ActionResize, events.ActionCopy, events.ActionArchivePath,
		events.ActionExtractToDir, events.ActionExport, events.ActionCommit, "exec":
		e.mu.Unlock()
		return
	case events.ActionStart:
		e.ends.Begun(id, at)
	case events.ActionStop:
		e.ends.Stopped(id, at)
	case events.ActionKill:
		if b := e.all[id]; b != nil && slices.Contains([]string{"", "2", "3", "9", "15"}, m.Actor.Attributes["signal"]) {
			e.ends.Asked(id, at, b.Stop)
		}
	}
	e.dirty[id] = struct{}{}
	e.mu.Unlock()
	select {
	case e.kick <- struct{}{}:
	default:
	}
}

// gathered asks about the containers of which events came.
func (e *Engine) gathered(ctx context.Context, from api) error {
	pause := time.NewTimer(gather)
	defer pause.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-pause.C:
	}
	e.mu.Lock()
	ids := make([]string, 0, len(e.dirty))
	for id := range e.dirty {
		ids = append(ids, id)
	}
	clear(e.dirty)
	e.mu.Unlock()
	return e.look(ctx, from, ids, nil)
}

// resync asks about everything.
func (e *Engine) resync(ctx context.Context, from api) error {
	at := e.cfg.Now()
	look, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	list, err := from.ContainerList(look, client.ContainerListOptions{All: true})
	if err != nil {
		return err
	}
	there := map[string]*compose.Container{}
	for _, c := range list.Items {
		if compose.ValidID.MatchString(c.ID) {
			there[c.ID] = compose.ReadSummary(c, at)
		}
	}
	e.mu.Lock()
	ids := make([]string, 0, len(there))
	for id := range there {
		ids = append(ids, id)
	}
	var gone []string
	for id, b := range e.all {
		if there[id] == nil && b.Seen.Before(at) {
			gone = append(gone, id)
		}
	}
	e.ends.Keep(func(id string) bool { return there[id] != nil })
	e.mu.Unlock()
	for _, id := range gone {
		e.drop(id)
	}
	return e.look(ctx, from, ids, there)
}

// ask asks the linked engine about containers, by id or name.
func (e *Engine) ask(ctx context.Context, refs []string) error {
	e.mu.Lock()
	from, problem := e.api, e.link.Problem
	e.mu.Unlock()
	if from == nil {
		return fault.New(fault.Unavailable, "%s", problem)
	}
	return e.look(ctx, from, refs, nil)
}

// look asks about containers, a few at a time. Where a description cannot be read, what the list says (instead) stands
// in for it. An error means that the engine does not answer.
func (e *Engine) look(ctx context.Context, from api, refs []string, instead map[string]*compose.Container) error {
	if len(refs) == 1 {
		return e.lookAt(ctx, from, refs[0], instead[refs[0]])
	}
	var (
		wg    sync.WaitGroup
		slots = make(chan struct{}, askAtOnce)
	)
	ctx, fail := context.WithCancelCause(ctx) // one that is not answered ends the others
	defer fail(nil)
	for _, ref := range refs {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if err := e.lookAt(ctx, from, ref, instead[ref]); err != nil {
				fail(err)
			}
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

func (e *Engine) lookAt(ctx context.Context, from api, ref string, instead *compose.Container) error {
	at := e.cfg.Now()
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	r, err := from.ContainerInspect(ctx, ref, client.ContainerInspectOptions{})
	switch {
	case errdefs.IsNotFound(err):
		e.drop(ref)
	case err == nil && compose.ValidID.MatchString(r.Container.ID):
		e.keep(compose.Read(r.Container, at))
	case err != nil && socket.Said(err) == "":
		return err
	default:
		e.cfg.Log.Warn("the engine's description of a container cannot be read", "container", ref, "error", err)
		if instead != nil {
			e.keep(instead)
		}
	}
	return nil
}

// keep takes in what is known of a container, unless something newer is.
func (e *Engine) keep(b *compose.Container) {
	e.mu.Lock()
	old := e.all[b.ID]
	if old != nil && old.Seen.After(b.Seen) {
		e.mu.Unlock()
		return
	}
	watched := e.cfg.Now()
	if e.link.Up {
		watched = e.link.Since
	}
	e.ends.Judge(b, watched)
	tell := e.link.Up && (old == nil || !old.Same(b))
	var names []string
	if tell && old != nil {
		names = append(names, e.indexed().TopOf[b.ID])
	}
	e.all[b.ID], e.apps = b, nil
	if tell {
		names = append(names, e.indexed().TopOf[b.ID])
	}
	e.mu.Unlock()
	e.watchers.Tell(names...)
}

// drop forgets a container that is no longer there.
func (e *Engine) drop(id string) {
	e.mu.Lock()
	if e.all[id] == nil {
		e.mu.Unlock()
		return
	}
	name := e.indexed().TopOf[id]
	delete(e.all, id)
	e.ends.Forget(id)
	e.apps = nil
	e.mu.Unlock()
	if name != "" {
		e.watchers.Tell(name)
	}
}
