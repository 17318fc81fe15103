package term

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// waker lets a wait for input be ended from elsewhere.
type waker struct{ r, w *os.File }

func newWaker() (*waker, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	return &waker{r, w}, nil
}

func (k *waker) wake() { _, _ = k.w.Write([]byte{0}) }

func (k *waker) close() error { return errors.Join(k.r.Close(), k.w.Close()) }

// readiness is what a wait found out.
type readiness struct {
	input  bool // f can be read
	hungUp bool // the other end is gone; what it wrote before may still be there
}

// wait waits until f can be read or its other end is gone. It finds nothing when woken or when d has passed; d below
// zero means for ever.
func (k *waker) wait(f *os.File, d time.Duration) (readiness, error) {
	ms := -1
	if d >= 0 {
		ms = int(d / time.Millisecond)
	}
	for {
		fds := []unix.PollFd{{Fd: int32(f.Fd()), Events: unix.POLLIN}, {Fd: int32(k.r.Fd()), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, ms)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return readiness{}, err
		case n == 0 || fds[1].Revents != 0:
			return readiness{}, nil
		}
		return readiness{
			input:  fds[0].Revents&unix.POLLIN != 0,
			hungUp: fds[0].Revents&(unix.POLLHUP|unix.POLLERR|unix.POLLNVAL) != 0,
		}, nil
	}
}

// Reader reads a file that is no terminal until ctx ends. Its owner must Close it.
type Reader struct {
	file *os.File
	wake *waker
	ctx  context.Context
	stop func() bool
}

// NewReader makes a Reader. It does not own the file.
func NewReader(ctx context.Context, f *os.File) (*Reader, error) {
	wake, err := newWaker()
	if err != nil {
		return nil, err
	}
	return &Reader{file: f, wake: wake, ctx: ctx, stop: context.AfterFunc(ctx, wake.wake)}, nil
}

// Read reads like the file, or returns the context's error.
func (r *Reader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	ready, err := r.wake.wait(r.file, -1)
	if err != nil {
		return 0, err
	}
	if ready == (readiness{}) {
		return 0, r.ctx.Err()
	}
	return r.file.Read(p)
}

// Close frees what the Reader holds.
func (r *Reader) Close() error {
	r.stop()
	return r.wake.close()
}
