package logread

// Tail keeps the last lines of a stream within a bound of lines and one of bytes.
type Tail struct {
	lines []Raw // a ring
	first int
	count int
	bytes int
	limit int
	short bool // a line was dropped for want of bytes
}

// NewTail keeps at most n lines and, but for a single longer line, at most limit bytes.
func NewTail(n, limit int) *Tail { return &Tail{lines: make([]Raw, n), limit: limit} }

// Add takes a copy of the line and drops the oldest ones that no longer fit.
func (t *Tail) Add(r Raw) {
	if len(t.lines) == 0 {
		return
	}
	if t.count == len(t.lines) {
		t.drop()
	}
	for t.count > 0 && t.bytes+len(r.Data) > t.limit {
		t.drop()
		t.short = true
	}
	slot := &t.lines[(t.first+t.count)%len(t.lines)]
	old := slot.Data
	if cap(old) < len(r.Data) || cap(old) > 2*len(r.Data)+256 { // one long line must not leave its room behind
		old = nil
	}
	*slot = Raw{Stderr: r.Stderr, Data: append(old[:0], r.Data...)}
	t.bytes += len(r.Data)
	t.count++
}

func (t *Tail) drop() {
	t.bytes -= len(t.lines[t.first].Data)
	t.first = (t.first + 1) % len(t.lines)
	t.count--
}

// Lines returns what was kept, oldest first, and whether fewer lines than asked for fitted the bound of bytes.
func (t *Tail) Lines(max int) (lines []Line, short bool) {
	lines = make([]Line, t.count)
	for i := range lines {
		lines[i] = t.lines[(t.first+i)%len(t.lines)].Line(max)
	}
	return lines, t.short && t.count < len(t.lines)
}
