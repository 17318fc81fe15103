package httpd

import (
	"context"
	"errors"
	"sync"
	"time"

	"atoll/internal/rpc"
)

// maxUnsent bounds what waits for a slow reader, in bytes; beyond it send waits too.
const maxUnsent = 64 << 10

// stream writes server-sent events. It opens with the first event, so that a refusal before it can be an ordinary
// answer, and shows life from then on. One goroutine writes: events that come while it does go out together. A write
// that takes longer than Times.Write ends the stream and cancels the request: a slow reader holds up nothing.
type stream struct {
	q      *exchange
	cancel context.CancelFunc
	check  func() error // asked at each sign of life; an error ends the stream. May be nil
	wake   chan struct{}
	writer sync.WaitGroup

	mu     sync.Mutex // guards the rest; the answer's writer is the goroutine's once the stream is open
	room   sync.Cond  // told when unsent was taken or the stream failed
	open   bool
	closed bool
	err    error
	unsent []byte
}

func newStream(q *exchange, cancel context.CancelFunc, check func() error) *stream {
	st := &stream{q: q, cancel: cancel, check: check, wake: make(chan struct{}, 1)}
	st.room.L = &st.mu
	return st
}

// opened reports whether the answer has become a stream.
func (st *stream) opened() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.open
}

// close returns when what was sent is written, or cannot be. It is called once.
func (st *stream) close() {
	st.mu.Lock()
	st.closed = true
	st.mu.Unlock()
	st.nudge()
	st.writer.Wait()
}

func (st *stream) nudge() {
	select {
	case st.wake <- struct{}{}:
	default:
	}
}

// send hands one event to the writer; id may be empty. After an error every later send fails with it.
func (st *stream) send(id, name string, data any) error {
	body, err := rpc.Marshal(data)
	if err != nil {
		return err
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	for len(st.unsent) > maxUnsent && st.err == nil {
		st.room.Wait()
	}
	if st.err != nil {
		return st.err
	}
	b := st.unsent
	if id != "" {
		b = append(append(append(b, "id: "...), id...), '\n')
	}
	b = append(append(append(b, "event: "...), name...), "\ndata: "...)
	st.unsent = append(append(b, body...), "\n\n"...) // compact JSON has no line break
	if !st.open {
		st.open = true
		st.writer.Go(st.write)
	}
	st.nudge()
	return nil
}

// write writes until close or an error, and shows life in between.
func (st *stream) write() {
	h := st.q.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // for proxies that collect answers
	tick := time.NewTicker(st.q.times.KeepAlive)
	defer tick.Stop()
	var b []byte
	for {
		alive := true
		select {
		case <-st.wake:
		case <-tick.C:
			alive = st.check == nil || st.check() == nil
			b = append(b[:0], ": still here\n\n"...)
		}
		st.mu.Lock()
		if len(st.unsent) > 0 {
			b, st.unsent = st.unsent, b[:0]
		}
		closed := st.closed
		st.mu.Unlock()
		st.room.Broadcast()
		var err error
		if len(b) > 0 && alive {
			err = st.flush(b)
		}
		if b = b[:0]; err != nil || !alive {
			st.fail(errors.Join(err, context.Canceled))
			return
		}
		if closed {
			return
		}
	}
}

func (st *stream) flush(b []byte) error {
	if err := st.q.control.SetWriteDeadline(time.Now().Add(st.q.times.Write)); err != nil {
		return err
	}
	_, err := st.q.Write(b)
	if err = errors.Join(err, st.q.control.Flush()); err == nil {
		err = st.q.control.SetWriteDeadline(time.Time{})
	}
	return err
}

func (st *stream) fail(err error) {
	st.mu.Lock()
	st.err = err
	st.mu.Unlock()
	st.room.Broadcast()
	st.cancel()
}
