// Package logread takes apart what a container engine sends of a log: frames, lines, times. What a line says is a
// stranger's; here it is bounded and made harmless. It opens nothing and knows no engine.
package logread

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"atoll/internal/fence"
)

const (
	bufferBytes = 64 << 10
	headerBytes = 8
	stampBytes  = 64      // kept of a line beside its text; a time takes 36
	saidBytes   = 1 << 10 // of an error that the engine puts in the stream
)

// ErrFormat means that the stream is not what an engine sends.
var ErrFormat = errors.New("logread: this is not a stream of log frames")

// EngineError is what the engine itself said in place of a log; outside text.
type EngineError string

func (e EngineError) Error() string { return "logread: the engine says: " + string(e) }

// Raw is a line as it came, without its line break.
type Raw struct {
	Stderr bool
	Data   []byte // its beginning, with the time in front; valid until the next call
}

// Reader reads lines. Its memory is bounded whatever is sent.
type Reader struct {
	src     *bufio.Reader
	tty     bool
	keep    int
	out     partial
	err     partial
	current *partial
	left    uint32 // of the frame at hand
	why     error  // that no more is read
}

// partial is a line whose end has not come.
type partial struct {
	stderr bool
	data   []byte
	begun  bool
	given  bool // the line was handed out, so that the next byte begins another
}

// New reads lines of which at most max bytes are kept. A container with a terminal sends plain bytes, any other frames.
func New(src io.Reader, tty bool, max int) *Reader {
	return &Reader{src: bufio.NewReaderSize(src, bufferBytes), tty: tty, keep: max + stampBytes, err: partial{stderr: true}}
}

// Next returns the next line. After the last one it returns io.EOF; a stream cut inside a frame ends with
// io.ErrUnexpectedEOF. What had come of a line before that is given first.
func (r *Reader) Next() (Raw, error) {
	for r.why == nil {
		chunk, err := r.chunk()
		if err != nil {
			r.why = err
			break
		}
		n, whole := r.current.take(chunk, r.keep)
		_, _ = r.src.Discard(n) // they are there
		if !r.tty {
			r.left -= uint32(n)
		}
		if whole {
			return r.current.give(), nil
		}
	}
	for _, p := range []*partial{&r.out, &r.err} {
		if p.begun && !p.given {
			return p.give(), nil
		}
	}
	return Raw{}, r.why
}

// chunk shows at least one byte of the current frame, and no byte beyond it.
func (r *Reader) chunk() ([]byte, error) {
	if err := r.frame(); err != nil {
		return nil, err
	}
	if _, err := r.src.Peek(1); err != nil {
		if !r.tty && errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	size := r.src.Buffered()
	if !r.tty {
		size = int(min(uint32(size), r.left)) // a buffer is far below 4 GiB
	}
	return r.src.Peek(size)
}

// frame goes on to the next frame with anything in it, where the last one is used up.
func (r *Reader) frame() error {
	if r.tty {
		r.current = &r.out
		return nil
	}
	for r.left == 0 {
		var head [headerBytes]byte
		if _, err := io.ReadFull(r.src, head[:]); err != nil {
			return err
		}
		r.left = binary.BigEndian.Uint32(head[4:])
		switch head[0] {
		case 0, 1:
			r.current = &r.out
		case 2:
			r.current = &r.err
		case 3:
			said, err := io.ReadAll(io.LimitReader(r.src, int64(min(r.left, saidBytes))))
			if err != nil {
				return err
			}
			return EngineError(said)
		default:
			return ErrFormat
		}
	}
	return nil
}

// take adds the bytes up to and with the next line break.
func (p *partial) take(chunk []byte, keep int) (n int, whole bool) {
	if p.given {
		p.data, p.given, p.begun = p.data[:0], false, false
	}
	p.begun = true
	n = bytes.IndexByte(chunk, '\n') + 1
	line := chunk[:max(n-1, 0)]
	if whole = n > 0; !whole {
		n, line = len(chunk), chunk
	}
	p.data = append(p.data, line[:min(keep-len(p.data), len(line))]...)
	return n, whole
}

func (p *partial) give() Raw {
	p.given = true
	return Raw{Stderr: p.stderr, Data: p.data}
}

// Line is a line that can be shown.
type Line struct {
	Time   time.Time // zero where the engine gave none
	Stderr bool
	Text   string // valid UTF-8 without control characters and line breaks
	Cut    bool
}

const mark = " [… cut by Atoll]"

// Line makes the line fit to be shown, with a text of at most max bytes.
func (r Raw) Line(max int) Line {
	l := Line{Stderr: r.Stderr}
	text := r.Data
	if stamp, rest, ok := bytes.Cut(text, []byte(" ")); ok && len(stamp) < stampBytes {
		if t, err := time.Parse(time.RFC3339Nano, string(stamp)); err == nil {
			l.Time, text = t, rest
		}
	}
	l.Text, l.Cut = harmless(text, max)
	return l
}

func harmless(b []byte, max int) (string, bool) {
	long := len(b) > max
	b = bytes.TrimRight(b[:min(len(b), max)], "\r")
	s := strings.ToValidUTF8(string(b), "\uFFFD")
	s = strings.Map(func(r rune) rune {
		if r == '\r' || r == '\n' || r == '\v' || r == '\f' || r == '\u0085' {
			return ' ' // a progress bar's line, written over and over
		}
		return r
	}, s)
	s = fence.Strip(s)
	if long || len(s) > max {
		return cut(s, max), true
	}
	return s, false
}

// cut shortens a text at a whole character and says so in it.
func cut(s string, max int) string {
	end := min(len(s), max-len(mark))
	for end > 0 && end < len(s) && !utf8.RuneStart(s[end]) {
		end--
	}
	return fmt.Sprint(s[:end], mark)
}
