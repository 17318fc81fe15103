package link

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"

	"atoll/internal/fault"
)

const (
	// chunk is how much of a raw copy must come through in one Idle, in bytes.
	chunk = 64 << 10
	// keep is how much memory of a frame a stream holds on to, in bytes.
	keep = 16 << 10
	// farewell bounds how long a refusal is written, or waited for when writing failed.
	farewell = 3 * time.Second
)

// Stream is one exchange with another node. It belongs to one goroutine.
type Stream struct {
	s      network.Stream
	in     *bufio.Reader
	p      Protocol
	ends   time.Time // of its life
	opened bool      // by this node
	raw    bool      // bytes outside frames were sent
	out    []byte    // the last frame that was sent, for its memory
	stop   func() bool
	look   sync.WaitGroup
	unlook context.CancelFunc
}

func newStream(s network.Stream, p Protocol) *Stream {
	return &Stream{s: s, in: bufio.NewReaderSize(s, 4<<10), p: p, ends: time.Now().Add(p.Total), stop: func() bool { return true }, unlook: func() {}}
}

// deadline is that of the next read or write.
func (s *Stream) deadline() time.Time {
	if next := time.Now().Add(s.p.Idle); next.Before(s.ends) {
		return next
	}
	return s.ends
}

// Send writes one frame. Where the other end has refused meanwhile, the error is its *RemoteError.
func (s *Stream) Send(v any) error {
	if cap(s.out) > keep {
		s.out = nil
	}
	// The body is written behind room for its head, so that a frame is built and sent in one piece.
	buf := bytes.NewBuffer(append(s.out[:0], make([]byte, maxLength+1)...))
	if err := json.MarshalWrite(buf, v); err != nil {
		return fmt.Errorf("link: %w", err)
	}
	s.out = buf.Bytes()
	n := len(s.out) - maxLength // of the kind and the body
	if n > s.p.MaxFrame {
		return fmt.Errorf("link: a frame of %d bytes is too large for %s", n, s.p.Name)
	}
	var head [binary.MaxVarintLen64]byte
	used := binary.PutUvarint(head[:], uint64(n))
	frame := s.out[maxLength-used:]
	copy(frame, head[:used])
	frame[used] = kindData
	if err := s.s.SetWriteDeadline(s.deadline()); err != nil {
		return s.lastWord(broken(err))
	}
	if _, err := s.s.Write(frame); err != nil {
		return s.lastWord(broken(err))
	}
	return nil
}

// lastWord looks for the refusal for which the other end closed the stream while this one was still writing.
func (s *Stream) lastWord(err error) error {
	if !s.opened || s.s.SetReadDeadline(time.Now().Add(farewell)) != nil {
		return err
	}
	for {
		kind, body, ferr := readFrame(s.in, s.p.MaxFrame)
		if ferr != nil {
			return err
		}
		if kind == kindError {
			return readError(body)
		}
	}
}

// Receive reads one frame into v, strictly: unknown and doubled names are refused. A refusal of the other end is a
// *RemoteError, its end of the stream ErrClosed, anything that is no frame for v ErrFrame.
func (s *Stream) Receive(v any) error {
	if err := s.s.SetReadDeadline(s.deadline()); err != nil {
		return broken(err)
	}
	kind, body, err := readFrame(s.in, s.p.MaxFrame)
	if err != nil {
		return err
	}
	switch {
	case kind == kindData:
		return decode(body, v)
	case s.opened:
		return readError(body)
	}
	return fmt.Errorf("%w: a caller has nothing to refuse", ErrFrame)
}

// refuse tells the other end why it is not served.
func (s *Stream) refuse(f *fault.Error) {
	if err := s.s.SetWriteDeadline(time.Now().Add(farewell)); err == nil {
		_, _ = s.s.Write(encodeError(f)) // to one that is gone nothing is told
	}
}

// WriteFrom sends n bytes of r as they are; after it no frame can follow. A node that takes less than 64 KiB in an Idle is
// given up.
func (s *Stream) WriteFrom(r io.Reader, n int64) (done int64, err error) {
	s.raw = true
	buf := make([]byte, min(chunk, max(n, 1)))
	for done < n {
		part := buf[:min(int64(len(buf)), n-done)]
		if _, err := io.ReadFull(r, part); err != nil {
			return done, wrap(err)
		}
		if err := s.s.SetWriteDeadline(s.deadline()); err != nil {
			return done, broken(err)
		}
		wrote, err := s.s.Write(part)
		if done += int64(wrote); err != nil {
			return done, broken(err)
		}
	}
	return done, nil
}

// ReadInto takes n bytes as they come. What came before an error was written to w. A node that sends less than 64 KiB in an
// Idle is given up.
func (s *Stream) ReadInto(w io.Writer, n int64) (done int64, err error) {
	buf := make([]byte, min(chunk, max(n, 1)))
	for done < n {
		if err := s.s.SetReadDeadline(s.deadline()); err != nil {
			return done, broken(err)
		}
		got, rerr := io.ReadFull(s.in, buf[:min(int64(len(buf)), n-done)])
		wrote, err := w.Write(buf[:got])
		if done += int64(wrote); err != nil {
			return done, wrap(err)
		}
		if rerr != nil {
			return done, broken(rerr)
		}
	}
	return done, nil
}

// wrap keeps a user's own fault as it is, and marks what the stream caused.
func wrap(err error) error {
	if _, ok := errors.AsType[*fault.Error](err); ok {
		return err
	}
	return broken(err)
}

// Watch returns a context that ends when the other node gives up: when it breaks the stream off, or sends what nobody
// asked it for. Nothing may be received after it, and it is called once.
func (s *Stream) Watch(ctx context.Context) context.Context {
	ctx, s.unlook = context.WithCancel(ctx)
	_ = s.s.SetReadDeadline(s.ends)
	s.look.Go(func() { // ends with the stream, which Close and Reset wait for
		if _, err := s.in.ReadByte(); !errors.Is(err, io.EOF) {
			s.unlook()
		}
	})
	return ctx
}

// CloseWrite says that nothing more will be sent.
func (s *Stream) CloseWrite() error { return s.s.CloseWrite() }

// Close ends the stream in order.
func (s *Stream) Close() error {
	s.stop()
	err := s.s.Close()
	s.look.Wait()
	s.unlook()
	return err
}

// Reset breaks the stream off.
func (s *Stream) Reset() {
	s.stop()
	_ = s.s.Reset()
	s.look.Wait()
	s.unlook()
}

// Open begins a stream to a node that is connected. The stream breaks off when ctx ends.
func (h *Host) Open(ctx context.Context, key, name string) (*Stream, error) {
	p, ok := h.protocols[name]
	if !ok {
		return nil, fmt.Errorf("link: no protocol %q", name)
	}
	to, err := peer.Decode(key)
	if err != nil {
		return nil, fmt.Errorf("link: no node's key: %w", err)
	}
	how := network.WithNoDial(ctx, agent)
	if !p.Direct {
		how = network.WithAllowLimitedConn(how, agent)
	}
	raw, err := h.host.NewStream(how, to, id(p.Protocol))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrReset, err)
	}
	s := newStream(raw, p.Protocol)
	s.opened = true
	s.stop = context.AfterFunc(ctx, func() { _ = raw.Reset() })
	return s, nil
}
