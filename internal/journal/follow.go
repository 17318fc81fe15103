package journal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const (
	followEvery = 200 * time.Millisecond // between two looks at the output, which the program writes itself and tells nobody
	followChunk = 64 << 10               // bytes of output read at once
	maxBehind   = 1 << 20                // bytes that a follower may be behind; what is more is passed over, with a mark
	maxWaiting  = 1000                   // notes kept for a follower that does not take them
)

// follower is one call of Follow.
type follower struct {
	wake  chan struct{} // buffered
	notes []event       // not yet given; guarded by Journal.mu

	// of the goroutine of Follow alone
	pos  int64  // the output that was read, counted over all rotations
	line []byte // of the unfinished line before pos, at most maxLineBytes+1
	more int    // bytes of it that were not kept
	head bool   // its beginning was not read
	skip bool   // it is not shown
}

// Follow gives emit the last n lines and then each new one with the notes between them, in bounded memory, until ctx
// ends or emit fails. A line is given once it is finished, by its end or by a note after it.
func (j *Journal) Follow(ctx context.Context, n int, emit func(Line) error) error {
	f, lines, err := j.join(n)
	if err != nil {
		return err
	}
	defer j.leave(f)
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	for more := false; ; {
		for _, l := range lines {
			if err := emit(l); err != nil {
				return err
			}
		}
		if !more {
			select {
			case <-f.wake:
			case <-tick.C:
			case <-ctx.Done():
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if lines, more, err = j.next(f); err != nil {
			return err
		}
	}
}

// join adds a follower that stands at the end of the log, and returns the last n lines before that.
func (j *Journal) join(n int) (*follower, []Line, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	log, err := j.tail(n + 1)
	if err != nil {
		return nil, nil, err
	}
	part, size, err := readPart(j.part(0), -maxLineBytes, maxLineBytes)
	if err != nil {
		return nil, nil, err
	}
	f := &follower{wake: make(chan struct{}, 1), pos: j.base + size}
	lines := log.Lines
	if last := len(lines) - 1; last >= 0 && !lines[last].Note && len(part) > 0 && part[len(part)-1] != '\n' {
		lines = lines[:last]
		if i := bytes.LastIndexByte(part, '\n') + 1; i > 0 || int64(len(part)) == size {
			f.line = bytes.Clone(part[i:])
		} else {
			f.head = true
		}
	}
	if j.followers == nil {
		j.followers = map[*follower]struct{}{}
	}
	j.followers[f] = struct{}{}
	return f, lines[max(0, len(lines)-n):], nil
}

func (j *Journal) leave(f *follower) {
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.followers, f)
}

// tell hands a note to the followers; j.mu is held.
func (j *Journal) tell(e event) {
	for f := range j.followers {
		if len(f.notes) == maxWaiting {
			f.notes = f.notes[1:]
		}
		f.notes = append(f.notes, e)
		select {
		case f.wake <- struct{}{}:
		default:
		}
	}
}

// next reads a piece of what is new. more means that there is still some.
func (j *Journal) next(f *follower) (lines []Line, more bool, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	end := j.base
	if st, err := os.Lstat(j.part(0)); err == nil {
		end += st.Size()
	}
	switch {
	case f.pos > end: // the file was emptied by hand
		f.pos, f.line, f.more, f.head = j.base, nil, 0, false
	case end-f.pos > maxBehind:
		lines = append(lines, f.pass(end-followChunk, true))
	}
	var chunk []byte
	if f.pos < j.older {
		lines = append(lines, f.pass(j.older, false))
	}
	if f.pos < j.base {
		if chunk, _, err = readPart(j.part(1), f.pos-j.older, followChunk); err == nil && len(chunk) == 0 {
			f.pos = j.base // what rotation lost
		}
	}
	if f.pos >= j.base && err == nil {
		chunk, _, err = readPart(j.part(0), f.pos-j.base, followChunk)
	}
	if err != nil {
		return nil, false, err
	}
	lines = append(lines, f.take(chunk)...)
	if more = f.pos < end && len(chunk) > 0; !more {
		lines = append(lines, f.rest()...)
	}
	return lines, more, nil
}

// pass goes on at an offset further on, which is inside of a line or not, and says so.
func (f *follower) pass(to int64, inside bool) Line {
	lost := to - f.pos
	f.pos, f.line, f.more, f.head, f.skip = to, nil, 0, false, inside
	return Line{Note: true, Text: fmt.Sprintf("[… %d bytes left out by Atoll: the log grew faster than it was read]", lost)}
}

// take splits what was read at pos into lines, with the notes before each.
func (f *follower) take(chunk []byte) (lines []Line) {
	for {
		i := bytes.IndexByte(chunk, '\n')
		if i < 0 {
			f.keep(chunk)
			f.pos += int64(len(chunk))
			return lines
		}
		lines = append(lines, f.upTo(f.pos+int64(i)-1)...)
		f.keep(chunk[:i])
		lines = append(lines, f.finish()...)
		f.pos += int64(i) + 1
		chunk = chunk[i+1:]
	}
}

func (f *follower) keep(b []byte) {
	room := maxLineBytes + 1 - len(f.line)
	kept := b[:min(len(b), room)]
	f.line, f.more = append(f.line, kept...), f.more+len(b)-len(kept)
}

// finish ends the line.
func (f *follower) finish() (lines []Line) {
	if !f.skip {
		text, _ := harmless(outLine{text: f.line, cut: f.head, more: f.more})
		lines = []Line{{Text: text}}
	}
	f.line, f.more, f.head, f.skip = f.line[:0], 0, false, false
	return lines
}

// upTo takes the notes that were made until the output had come to an offset.
func (f *follower) upTo(at int64) (lines []Line) {
	for len(f.notes) > 0 && f.notes[0].At <= at {
		lines = append(lines, Line{Note: true, Time: f.notes[0].Time, Text: f.notes[0].Text})
		f.notes = f.notes[1:]
	}
	return lines
}

// rest takes the notes where all output has been read. One made after the unfinished line ends that.
func (f *follower) rest() []Line {
	lines := f.upTo(f.pos - 1)
	if len(f.notes) > 0 && len(f.line) > 0 {
		lines = append(lines, f.finish()...)
	}
	return append(lines, f.upTo(1<<63-1)...)
}

// readPart reads at most n bytes of a file from an offset on, or of its end where the offset is negative. A file that is
// not there is empty.
func readPart(path string, from int64, n int) (b []byte, size int64, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil || !st.Mode().IsRegular() {
		return nil, 0, errors.Join(err, errors.ErrUnsupported)
	}
	if size = st.Size(); from < 0 {
		from = max(0, size+from)
	}
	b = make([]byte, min(int64(n), max(0, size-from)))
	got, err := f.ReadAt(b, from)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, 0, err
	}
	return b[:got], size, nil
}
