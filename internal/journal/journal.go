// Package journal is the log of one program: its own output, which it appends to a file itself and which is rotated under
// it, and beside it notes of what was done with it, each at its place in the output. It starts no program.
package journal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"
)

const (
	maxEventBytes = 256 << 10 // of the file of events; half is kept when it is full
)

// Journal is the log of one app: NAME.log with the app's own bytes, which the app writes itself, two older files, and
// NAME.events with what the supervisor did. An event stands at the offset that the output had reached, counted over all
// rotations, so that the two can be read as one.
type Journal struct {
	dir, name string
	max       int64

	mu        sync.Mutex // guards the files and the rest
	base      int64      // bytes of output that rotation took out of the live file
	older     int64      // where the first older file begins; base where that is not known
	followers map[*follower]struct{}
}

// event is a line of NAME.events: something done, or the base after a rotation.
type event struct {
	Time time.Time `json:"t,omitzero"`
	At   int64     `json:"at,omitzero"`
	Text string    `json:"text,omitempty"`
	Base int64     `json:"base,omitzero"`
}

// Open makes the journal of a name in a folder. max bounds the newest of its three files of output.
func Open(dir, name string, max int64) *Journal {
	j := &Journal{dir: dir, name: name, max: max}
	for _, e := range j.events() {
		if e.Base > 0 {
			j.base, j.older = e.Base, e.Base
		}
	}
	return j
}

// part is a file of output; 0 is the live one.
func (j *Journal) part(n int) string {
	p := filepath.Join(j.dir, j.name+".log")
	if n > 0 {
		p += fmt.Sprintf(".%d", n)
	}
	return p
}

func (j *Journal) eventPath() string { return filepath.Join(j.dir, j.name+".events") }

// appendTo opens a file of the journal's own. A pipe in its place is an error and holds nobody.
func appendTo(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
}

// Output opens the live file for the app to append to.
func (j *Journal) Output() (*os.File, error) {
	return appendTo(j.part(0))
}

// Offset is how much output there has been, over all rotations.
func (j *Journal) Offset() int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	if st, err := os.Lstat(j.part(0)); err == nil {
		return j.base + st.Size()
	}
	return j.base
}

// Note writes down what the supervisor did when the output had come to an offset. A full disk loses the note, never the
// act.
func (j *Journal) Note(now time.Time, at int64, text string) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	e := event{Time: now.UTC(), At: at, Text: text}
	j.tell(e)
	return j.append(e)
}

func (j *Journal) append(e event) error {
	b, err := json.Marshal(e)
	if err != nil {
		return err
	}
	f, err := appendTo(j.eventPath())
	if err != nil {
		return err
	}
	_, err = f.Write(append(b, '\n'))
	st, errStat := f.Stat()
	if err = errors.Join(err, errStat, f.Close()); err != nil {
		return err
	}
	if st.Size() > maxEventBytes {
		return j.trim()
	}
	return nil
}

// trim keeps the newer half of the events, after the base that they count from.
func (j *Journal) trim() error {
	b, err := os.ReadFile(j.eventPath())
	if err != nil {
		return err
	}
	b = b[len(b)/2:]
	b = b[bytes.IndexByte(b, '\n')+1:]
	head, err := json.Marshal(event{Base: j.base})
	if err != nil {
		return err
	}
	return renameio.WriteFile(j.eventPath(), append(append(head, '\n'), b...), 0o600)
}

// events reads what the supervisor noted. Lines that are damaged (a crash, a full disk) are passed over.
func (j *Journal) events() []event {
	f, err := os.OpenFile(j.eventPath(), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, 2*maxEventBytes))
	if err != nil {
		return nil
	}
	return parseEvents(b)
}

func parseEvents(b []byte) []event {
	var out []event
	for line := range bytes.SplitSeq(b, []byte("\n")) {
		var e event
		if len(line) > 0 && json.Unmarshal(line, &e) == nil && e.At >= 0 && e.Base >= 0 {
			out = append(out, e)
		}
	}
	return out
}

// Rotate keeps the live file within its bound: its last part is copied away and the file is emptied, since the app
// holds it open. What the app writes between the two is lost; that is the price of needing no pipe through the node.
func (j *Journal) Rotate() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	st, err := os.Lstat(j.part(0))
	if err != nil || !st.Mode().IsRegular() || st.Size() <= j.max {
		return nil
	}
	f, err := os.OpenFile(j.part(0), os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := os.Rename(j.part(1), j.part(2)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	from, errCopy := j.keep(f)
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if err := f.Truncate(0); err != nil {
		return err
	}
	j.older = j.base + from
	j.base += end
	if errCopy != nil {
		j.older = j.base
	}
	return errors.Join(errCopy, j.append(event{Base: j.base}))
}

// keep copies the end of f, from the beginning of a line, to the first older part, with what is written meanwhile. from is
// where the copy begins.
func (j *Journal) keep(f *os.File) (from int64, err error) {
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return 0, err
	}
	from = max(0, size-j.max)
	if from > 0 {
		head := make([]byte, 4<<10)
		n, err := f.ReadAt(head, from)
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		if i := bytes.IndexByte(head[:n], '\n'); i >= 0 {
			from += int64(i) + 1
		}
	}
	if _, err := f.Seek(from, io.SeekStart); err != nil {
		return 0, err
	}
	out, err := renameio.NewPendingFile(j.part(1), renameio.WithPermissions(0o600))
	if err != nil {
		return 0, err
	}
	defer out.Cleanup() //nolint:errcheck // nothing is left to clean once it is in place
	if _, err := io.Copy(out, io.LimitReader(f, 2*j.max)); err != nil {
		return 0, err
	}
	return from, out.CloseAtomicallyReplace()
}
