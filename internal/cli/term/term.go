// Package term is a terminal in raw mode as trusted chrome: keys in, and out of it lines of which each one shows who
// wrote it (SPEC section 5). It knows no chat and decides nothing.
package term

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	xterm "golang.org/x/term"
)

// escapeWait is how long a lone escape byte may be the beginning of a key's sequence.
const escapeWait = 50 * time.Millisecond

// Terminal modes that are on while a Terminal is open. Automatic wrapping is off: a line that is wider on the screen
// than it was counted must not run into the first column, where only the host writes.
const (
	modesOn  = "\x1b[?2004h\x1b[?7l" // bracketed paste on, automatic wrapping off
	modesOff = "\x1b[?2004l\x1b[?7h"
)

// File returns the stream as a terminal's file, or nil if it is none.
func File(stream any) *os.File {
	f, ok := stream.(*os.File)
	if !ok || f == nil || !xterm.IsTerminal(int(f.Fd())) {
		return nil
	}
	return f
}

// Terminal is an open terminal in raw mode. Its owner must Close it, also to get the terminal back as it was.
type Terminal struct {
	in, out *os.File
	state   *xterm.State
	wake    *waker
	keys    chan Key
	stop    chan struct{}
	done    sync.WaitGroup // the reader
	epoch   atomic.Uint64  // raised by Flush; keys of an earlier epoch are stale
	reading sync.Mutex     // held while bytes are taken and stamped, and while they are thrown away
}

// Open puts the terminal into raw mode and starts to read keys.
func Open(in, out *os.File) (*Terminal, error) {
	state, err := xterm.GetState(int(in.Fd()))
	if err != nil {
		return nil, fmt.Errorf("terminal: %w", err)
	}
	wake, err := newWaker()
	if err != nil {
		return nil, fmt.Errorf("terminal: %w", err)
	}
	t := &Terminal{in: in, out: out, state: state, wake: wake, keys: make(chan Key), stop: make(chan struct{})}
	if err := setRaw(int(in.Fd())); err != nil {
		return nil, errors.Join(fmt.Errorf("terminal: %w", err), wake.close())
	}
	_, _ = io.WriteString(out, modesOn)
	t.done.Go(t.read) // waited for in Close
	return t, nil
}

// Close ends the reader and restores the terminal.
func (t *Terminal) Close() error {
	close(t.stop)
	t.wake.wake()
	t.done.Wait()
	_, _ = io.WriteString(t.out, modesOff)
	return errors.Join(xterm.Restore(int(t.in.Fd()), t.state), t.wake.close())
}

// Keys delivers keys as they are pressed. The last one is HangUp, once, when the terminal is gone.
func (t *Terminal) Keys() <-chan Key { return t.keys }

// Fresh reports whether a key was pressed after the last Flush. Others must be dropped. HangUp is always fresh.
func (t *Terminal) Fresh(k Key) bool { return k.Kind == HangUp || k.epoch == t.epoch.Load() }

// Flush throws away what was typed ahead: in the kernel and on its way through Keys.
func (t *Terminal) Flush() {
	t.reading.Lock()
	defer t.reading.Unlock()
	_ = unix.IoctlSetInt(int(t.in.Fd()), unix.TCFLSH, unix.TCIFLUSH)
	t.epoch.Add(1)
}

// Write writes to the terminal as it is.
func (t *Terminal) Write(p []byte) (int, error) { return t.out.Write(p) }

// Width is the number of columns.
func (t *Terminal) Width() int { w, _ := t.Size(); return w }

// Size is the number of columns and rows.
func (t *Terminal) Size() (columns, rows int) { return size(t.out) }

// Columns is the width of a terminal's screen.
func Columns(f *os.File) int { w, _ := size(f); return w }

func size(f *os.File) (columns, rows int) {
	const columnsElse, rowsElse = 80, 24
	w, h, err := xterm.GetSize(int(f.Fd()))
	if err != nil || w <= 0 || h <= 0 {
		return columnsElse, rowsElse
	}
	return w, h
}

// setRaw gives every key to the program, also Ctrl-C, and leaves the output's line ends to the terminal. A read never
// blocks: poll waits.
func setRaw(fd int) error {
	s, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return err
	}
	s.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
	s.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	s.Cflag = s.Cflag&^(unix.CSIZE|unix.PARENB) | unix.CS8
	s.Oflag |= unix.OPOST | unix.ONLCR
	s.Cc[unix.VMIN], s.Cc[unix.VTIME] = 0, 0
	return unix.IoctlSetTermios(fd, unix.TCSETS, s)
}

func (t *Terminal) read() {
	var p parser
	buf := make([]byte, 4096)
	var epoch uint64
	for {
		wait := time.Duration(-1)
		if p.waiting() {
			wait = escapeWait
		}
		ready, err := t.wake.wait(t.in, wait)
		if err != nil {
			t.send(Key{Kind: HangUp}, t.epoch.Load())
			return
		}
		if ready == (readiness{}) {
			if !p.waiting() {
				return // woken by Close
			}
			if !t.sendAll(p.timeout(), epoch) {
				return
			}
			continue
		}
		n, now, err := t.take(buf)
		if now != epoch {
			p, epoch = parser{inPaste: p.inPaste}, now // the rest of a flushed key means nothing; a flushed paste goes on being one
		}
		if err != nil || n == 0 && ready.hungUp {
			t.send(Key{Kind: HangUp}, epoch)
			return
		}
		if n > 0 && !t.sendAll(p.feed(buf[:n]), epoch) {
			return
		}
	}
}

// take reads what is there and stamps it, so that no key typed before a Flush counts as typed after it.
func (t *Terminal) take(buf []byte) (n int, epoch uint64, err error) {
	t.reading.Lock()
	defer t.reading.Unlock()
	n, err = unix.Read(int(t.in.Fd()), buf)
	if errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN) {
		n, err = 0, nil
	}
	return max(n, 0), t.epoch.Load(), err
}

func (t *Terminal) sendAll(keys []Key, epoch uint64) bool {
	for _, k := range keys {
		if !t.send(k, epoch) {
			return false
		}
	}
	return true
}

func (t *Terminal) send(k Key, epoch uint64) bool {
	k.epoch = epoch
	select {
	case t.keys <- k:
		return true
	case <-t.stop:
		return false
	}
}
