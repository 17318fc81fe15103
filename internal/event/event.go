// Package event carries what happens in the node to the streams of the people it concerns. It is a ring with cursors: a
// stream that falls behind is told so and reads the current state again; nobody's slowness holds up a publisher. It
// keeps no state of its own and knows no transport.
package event

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"slices"
	"sync"
	"time"

	"atoll/internal/fault"
)

// Bounds of a Bus.
const (
	Ring       = 1024 // events kept for streams that resume
	MaxStreams = 8    // open streams an account
)

// retryFull is the advised wait when all of an account's streams are taken: by then a dead client's has been noticed.
const retryFull = 30 * time.Second

// ErrResync says that events may have been missed: read the current state again, then go on with Next.
var ErrResync = errors.New("event: events were missed; the current state must be read again")

// ErrEnded says that the stream is over: its session ended, or the bus or the Sub was closed.
var ErrEnded = errors.New("event: the stream has ended")

// Event is one thing that happened.
type Event struct {
	ID      uint64 // given by Publish; larger than every earlier one of the same run
	Name    string // the event's name on the wire
	Account int64  // whose event it is; zero means no account's
	Owners  bool   // every owner gets it too
	// Everyone says that every operator gets it.
	Everyone bool
	// State says that the current state shows this too, and did before Publish was called. Such an event is not sent
	// to a stream whose snapshot is younger (F-C7).
	State bool
	Data  any // must not be changed after Publish
}

// Bus is the node's events. It is safe for concurrent use.
type Bus struct {
	mu     sync.Mutex // guards the rest, and every Sub's fields
	ring   []Event
	head   uint64 // ID of the latest event
	first  uint64 // the ID that head started from; nothing is known before it
	subs   map[*Sub]struct{}
	closed bool
}

// New makes a Bus. Its IDs start at a random epoch, so that one from before a restart is known to be foreign.
func New() *Bus {
	var epoch [4]byte
	_, _ = rand.Read(epoch[:]) // never fails
	start := uint64(binary.BigEndian.Uint32(epoch[:])>>1|1) << 32
	return &Bus{ring: make([]Event, Ring), head: start, first: start, subs: map[*Sub]struct{}{}}
}

// Publish gives the event its ID and hands it to every stream it concerns. It never waits for a reader.
func (b *Bus) Publish(e Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return
	}
	b.head++
	e.ID = b.head
	b.ring[e.ID%Ring] = e
	for s := range b.subs {
		if s.concerns(e) {
			s.signal()
		}
	}
}

// Subscribe opens a stream of the account's events, and of the owners' if owner. session is the public identifier of
// the session it lives in. after is the last ID the reader has seen, zero for none. A reader whose after cannot be
// continued from, or is zero, gets ErrResync from its first Next unless it calls Snapshot. The caller closes the Sub.
func (b *Bus) Subscribe(account int64, owner bool, session string, after uint64) (*Sub, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, fault.New(fault.Unavailable, "the node is stopping")
	}
	open := 0
	for s := range b.subs {
		if s.account == account {
			open++
		}
	}
	if open >= MaxStreams {
		return nil, fault.New(fault.RateLimited, "%d event streams are open for this account already; close one first", open).After(retryFull)
	}
	s := &Sub{bus: b, account: account, owner: owner, session: session, cursor: after, wake: make(chan struct{}, 1)}
	if !b.reaches(after) {
		s.cursor, s.behind = b.head, true
	}
	b.subs[s] = struct{}{}
	return s, nil
}

// reaches reports whether every event after the ID is still in the ring; mu is held.
func (b *Bus) reaches(after uint64) bool {
	oldest := b.first + 1
	if b.head-b.first > Ring {
		oldest = b.head - Ring + 1
	}
	return after <= b.head && after+1 >= oldest
}

// Listening reports whether somebody who may decide for the account has a stream open: one of the account's own, or an
// owner's (C10).
func (b *Bus) Listening(account int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for s := range b.subs {
		if s.owner || s.account == account {
			return true
		}
	}
	return false
}

// EndSessions ends the streams of these sessions at once (G6).
func (b *Bus) EndSessions(sessions []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for s := range b.subs {
		if slices.Contains(sessions, s.session) {
			s.endLocked()
		}
	}
}

// Close ends every stream; later events go nowhere.
func (b *Bus) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	for s := range b.subs {
		s.endLocked()
	}
}

// Sub is one open stream: a cursor in the ring. Only one goroutine may call its methods, except Close.
type Sub struct {
	bus     *Bus
	account int64
	owner   bool
	session string
	wake    chan struct{} // holds at most one signal; read by Next

	// guarded by bus.mu
	cursor  uint64 // the last ID that was looked at
	covered uint64 // State events up to this ID are in the reader's snapshot
	behind  bool
	ended   bool
}

func (s *Sub) concerns(e Event) bool {
	return e.Everyone || e.Account != 0 && e.Account == s.account || e.Owners && s.owner
}

func (s *Sub) signal() {
	select {
	case s.wake <- struct{}{}:
	default: // one signal is enough: Next reads all there is
	}
}

// Snapshot says that the reader is about to read the current state: State events up to here are not sent any more, and
// what was missed needs no ErrResync.
func (s *Sub) Snapshot() {
	s.bus.mu.Lock()
	defer s.bus.mu.Unlock()
	s.covered = s.bus.head
	if s.behind || !s.bus.reaches(s.cursor) {
		s.cursor, s.behind = s.bus.head, false
	}
}

// Cursor is the ID to continue after, should the stream break here.
func (s *Sub) Cursor() uint64 {
	s.bus.mu.Lock()
	defer s.bus.mu.Unlock()
	return s.cursor
}

// Next waits for the next event. Its errors are ErrResync, after which Next goes on from now; ErrEnded; and ctx's.
func (s *Sub) Next(ctx context.Context) (Event, error) {
	for {
		e, found, err := s.look()
		if found || err != nil {
			return e, err
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
			return Event{}, ctx.Err()
		}
	}
}

// look takes the next event that is there already.
func (s *Sub) look() (Event, bool, error) {
	b := s.bus
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case s.ended:
		return Event{}, false, ErrEnded
	case s.behind || !b.reaches(s.cursor):
		s.cursor, s.behind = b.head, false
		return Event{}, false, ErrResync
	}
	for s.cursor < b.head {
		s.cursor++
		e := b.ring[s.cursor%Ring]
		if s.concerns(e) && (!e.State || e.ID > s.covered) {
			return e, true, nil
		}
	}
	return Event{}, false, nil
}

// Close ends the stream and frees its place.
func (s *Sub) Close() {
	s.bus.mu.Lock()
	defer s.bus.mu.Unlock()
	s.endLocked()
}

func (s *Sub) endLocked() {
	s.ended = true
	delete(s.bus.subs, s)
	s.signal()
}
