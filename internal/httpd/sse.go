package httpd

import (
	"context"
	"errors"
	"sync"
	"time"

	"atoll/internal/rpc"
)

// stream writes server-sent events. It opens with the first event, so that a refusal before it can be an ordinary
// answer, and shows life from then on. A write that takes longer than Times.Write ends the stream and cancels the
// request: a slow reader holds up nothing.
type stream struct {
	q      *exchange
	cancel context.CancelFunc
	check  func() error // asked at each sign of life; an error ends the stream. May be nil
	stop   chan struct{}
	beats  sync.WaitGroup

	mu   sync.Mutex // guards the rest and the answer's writer
	open bool
	err  error
	buf  []byte
}

func newStream(q *exchange, cancel context.CancelFunc, check func() error) *stream {
	return &stream{q: q, cancel: cancel, check: check, stop: make(chan struct{})}
}

// opened reports whether the answer has become a stream.
func (st *stream) opened() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.open
}

// close ends the signs of life and waits for them. It is called once.
func (st *stream) close() {
	close(st.stop)
	st.beats.Wait()
}

// send writes one event; id may be empty. After an error every later send fails with it.
func (st *stream) send(id, name string, data any) error {
	body, err := rpc.Marshal(data)
	if err != nil {
		return err
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	b := st.buf[:0]
	if id != "" {
		b = append(append(append(b, "id: "...), id...), '\n')
	}
	b = append(append(append(b, "event: "...), name...), "\ndata: "...)
	b = append(append(b, body...), "\n\n"...) // compact JSON has no line break
	st.buf = b
	return st.write(b)
}

// write opens the stream where it is not; mu is held.
func (st *stream) write(b []byte) error {
	if st.err != nil {
		return st.err
	}
	if !st.open {
		st.open = true
		h := st.q.Header()
		h.Set("Content-Type", "text/event-stream")
		h.Set("X-Accel-Buffering", "no") // for proxies that collect answers
		st.beats.Go(st.beat)
	}
	_ = st.q.control.SetWriteDeadline(time.Now().Add(st.q.times.Write))
	_, err := st.q.Write(b)
	if err = errors.Join(err, st.q.control.Flush()); err != nil {
		st.err = err
		st.cancel()
		return err
	}
	_ = st.q.control.SetWriteDeadline(time.Time{})
	return nil
}

// beat shows life on the stream until close.
func (st *stream) beat() {
	tick := time.NewTicker(st.q.times.KeepAlive)
	defer tick.Stop()
	for {
		select {
		case <-st.stop:
			return
		case <-tick.C:
		}
		if st.check != nil && st.check() != nil {
			st.cancel()
			return
		}
		st.mu.Lock()
		err := st.write([]byte(": still here\n\n"))
		st.mu.Unlock()
		if err != nil {
			return
		}
	}
}
