package journal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

const (
	maxTailBytes = 1 << 20 // of output that one look at a log reads, over all its files
	maxLineBytes = 4 << 10 // of one line shown
)

// Line is one line of output, or a note.
type Line struct {
	Note bool
	Time time.Time // of a note
	Text string
}

// Log is the end of a journal, oldest line first.
type Log struct {
	Lines     []Line
	Truncated bool // a line was cut, or fewer lines than asked for fitted the bound
}

// outLine is one line of output with the offset at which it ends, its newline left out.
type outLine struct {
	text []byte
	end  int64
	cut  bool // its beginning is out of reach
	more int  // bytes at its end that were not kept
}

// Tail reads the last n lines of output and events in their order, in bounded memory whatever the files hold.
func (j *Journal) Tail(n int) (Log, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.tail(n)
}

func (j *Journal) tail(n int) (Log, error) {
	var lines []outLine // newest file first, each oldest line first
	budget, short := int64(maxTailBytes), false
	top := j.base
	var parts [][]outLine
	for i := range 3 {
		got, size, all, err := lastLines(j.part(i), n-len(lines), budget)
		if err != nil {
			return Log{}, err
		}
		if i > 0 {
			top -= size
		}
		for k := range got {
			got[k].end += top
		}
		parts = append(parts, got)
		lines = append(lines, got...)
		if budget -= min(size, budget); !all {
			short = len(lines) < n
			break
		}
		if len(lines) >= n {
			break
		}
	}
	lines = lines[:0]
	for i := len(parts) - 1; i >= 0; i-- {
		lines = append(lines, parts[i]...)
	}
	return merge(lines, j.events(), n, short), nil
}

// lastLines reads at most n lines from the end of a file, and at most budget bytes. all means that nothing before them
// was left out for want of budget.
func lastLines(path string, n int, budget int64) (lines []outLine, size int64, all bool, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil, 0, true, nil
	}
	if err != nil {
		return nil, 0, false, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil || !st.Mode().IsRegular() {
		return nil, 0, false, errors.Join(err, errors.ErrUnsupported)
	}
	size = st.Size()
	from := max(0, size-budget)
	window := make([]byte, size-from)
	got, err := io.ReadFull(io.NewSectionReader(f, from, size-from), window)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, 0, false, err
	}
	lines = split(window[:got], from, n)
	return lines, size, from == 0, nil
}

// split takes the last n lines of a window that begins at from.
func split(window []byte, from int64, n int) []outLine {
	var back []outLine
	end := len(window)
	if end > 0 && window[end-1] == '\n' {
		end--
	}
	for end >= 0 && len(window) > 0 && len(back) < n {
		begin := bytes.LastIndexByte(window[:end], '\n') + 1
		back = append(back, outLine{text: window[begin:end], end: from + int64(end), cut: begin == 0 && from > 0})
		end = begin - 1
	}
	for i, k := 0, len(back)-1; i < k; i, k = i+1, k-1 {
		back[i], back[k] = back[k], back[i]
	}
	return back
}

// merge puts events between the lines and keeps the last n of both. With short, older output exists that was not read:
// then older events are left out too, since they would stand beside lines that are not theirs.
func merge(lines []outLine, events []event, n int, short bool) Log {
	log := Log{Lines: []Line{}, Truncated: short}
	k := 0
	if short && len(lines) > 0 {
		for k < len(events) && events[k].At < lines[0].end-int64(len(lines[0].text)) {
			k++
		}
	}
	add := func(until int64) {
		for ; k < len(events) && events[k].At <= until; k++ {
			if e := events[k]; e.Text != "" {
				log.Lines = append(log.Lines, Line{Time: e.Time, Note: true, Text: e.Text})
			}
		}
	}
	for _, l := range lines {
		add(l.end - 1)
		text, cut := harmless(l)
		log.Truncated = log.Truncated || cut
		log.Lines = append(log.Lines, Line{Text: text})
	}
	add(1<<63 - 1)
	if extra := len(log.Lines) - n; extra > 0 {
		log.Lines = log.Lines[extra:]
	}
	return log
}

// harmless makes a line of valid, bounded text, with a visible mark where something is missing.
func harmless(l outLine) (text string, cut bool) {
	b := bytes.TrimSuffix(l.text, []byte("\r"))
	switch {
	case l.cut:
		b = b[max(0, len(b)-maxLineBytes):]
		return "[… the beginning of this line is cut by Atoll] " + valid(b), true
	case len(b) > maxLineBytes:
		end := maxLineBytes
		for end > maxLineBytes-utf8.UTFMax && !utf8.RuneStart(b[end]) {
			end--
		}
		return valid(b[:end]) + fmt.Sprintf(" [… %d bytes cut by Atoll]", len(b)-end+l.more), true
	}
	return valid(b), false
}

func valid(b []byte) string { return strings.ToValidUTF8(string(b), "\uFFFD") }
