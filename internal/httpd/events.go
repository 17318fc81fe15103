package httpd

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"atoll/internal/caller"
	"atoll/internal/event"
	"atoll/internal/rpc"
)

// synced is the event after the current state: the Events before it are all that stands, and what a client shows
// besides them has ended.
type synced struct {
	Events int `json:"events"`
}

// serveEvents is GET /events: the current state, then what happens, until the session or the client ends.
func (s *Server) serveEvents(q *exchange) {
	if !q.sameOrigin() {
		q.refuse(http.StatusForbidden, foreignOrigin())
		return
	}
	sess, err := s.session(q)
	if err != nil {
		q.refuse(rpc.Status(err), err)
		return
	}
	c := sess.Caller
	after, _ := strconv.ParseUint(q.r.Header.Get("Last-Event-ID"), 10, 64) // what is no ID is as good as none
	sub, err := s.cfg.Bus.Subscribe(c.Account(), c.May(caller.Owner), c.Session(), after)
	if err != nil {
		q.fail(nil, err)
		return
	}
	defer sub.Close()
	ctx, cancel := context.WithCancel(q.r.Context())
	defer cancel()
	alive := func() error {
		_, err := s.cfg.Accounts.Alive(ctx, c)
		return err
	}
	if err := alive(); err != nil { // it may have ended before the stream was known
		q.refuse(rpc.Status(err), err)
		return
	}
	out := newStream(q, cancel, alive)
	defer out.close()
	s.follow(ctx, c, sub, out)
}

// follow sends until something ends.
func (s *Server) follow(ctx context.Context, c caller.Caller, sub *event.Sub, out *stream) {
	if s.sync(ctx, c, sub, out) != nil {
		return
	}
	for {
		e, err := sub.Next(ctx)
		switch {
		case errors.Is(err, event.ErrResync):
			err = s.sync(ctx, c, sub, out)
		case err == nil:
			err = out.send(strconv.FormatUint(e.ID, 10), e.Name, e.Data)
		}
		if err != nil {
			return
		}
	}
}

// sync sends the current state, as the caller now is.
func (s *Server) sync(ctx context.Context, c caller.Caller, sub *event.Sub, out *stream) error {
	sub.Snapshot()
	state := s.cfg.CurrentState(ctx, c)
	for _, e := range state {
		if err := out.send("", e.Name, e.Data); err != nil {
			return err
		}
	}
	return out.send(strconv.FormatUint(sub.Cursor(), 10), "synced", synced{len(state)})
}
