package term

import (
	"slices"
	"strconv"
	"strings"
	"unicode"

	"atoll/internal/fence"
)

// maxHistory bounds the lines that Up can bring back. They are kept in memory only.
const maxHistory = 200

// Event is what a key did to an Editor.
type Event uint8

// The events. Edited means that the line must be drawn again.
const (
	Nothing Event = iota
	Edited
	Submitted
	Interrupted // Ctrl-C
	Closed      // Ctrl-D on an empty line, or the terminal is gone
	Escaped
)

// Editor edits one message in one row of the screen. The zero Editor is ready.
type Editor struct {
	Hidden bool // nothing typed is shown

	line    []rune
	pos     int
	pasted  bool // the line's beginning was pasted, not typed
	history []string
	at      int    // which line of the history is shown; len(history) is the new one
	draft   []rune // the new line while the history is shown
}

// Text is the line as it is.
func (e *Editor) Text() string { return string(e.line) }

// Typed reports whether the line's beginning was typed by hand: only such a line may be a command.
func (e *Editor) Typed() bool { return !e.pasted }

// Take returns the line and begins a new one. A shown line is kept for Up.
func (e *Editor) Take() string {
	s := string(e.line)
	if !e.Hidden && strings.TrimSpace(s) != "" && (len(e.history) == 0 || e.history[len(e.history)-1] != s) {
		e.history = append(e.history, s)
		e.history = e.history[max(0, len(e.history)-maxHistory):]
	}
	e.Clear()
	return s
}

// Clear throws the line away.
func (e *Editor) Clear() {
	e.line, e.pos, e.pasted, e.at, e.draft = nil, 0, false, len(e.history), nil
}

// Key applies one key.
func (e *Editor) Key(k Key) Event {
	switch k.Kind {
	case Rune:
		e.insert([]rune{k.Rune})
	case Paste:
		e.pasted = e.pasted || e.pos == 0 || strings.Contains(k.Text, "\n")
		e.insert([]rune(strings.Map(pasteRune, k.Text)))
	case Enter:
		return Submitted
	case CtrlC:
		return Interrupted
	case HangUp:
		return Closed
	case Esc:
		return Escaped
	case CtrlD:
		if len(e.line) == 0 {
			return Closed
		}
		e.remove(e.pos, e.pos+1)
	case Up, Down:
		e.recall(k.Kind)
	default:
		return e.move(k.Kind)
	}
	return Edited
}

// pasteRune keeps text and drops what only a terminal would mean something by.
func pasteRune(r rune) rune {
	if unicode.IsControl(r) && r != '\n' && r != '\t' {
		return -1
	}
	return r
}

func (e *Editor) move(k Kind) Event {
	switch k {
	case Backspace:
		e.remove(e.pos-1, e.pos)
	case Delete:
		e.remove(e.pos, e.pos+1)
	case Left:
		e.pos = max(0, e.pos-1)
	case Right:
		e.pos = min(len(e.line), e.pos+1)
	case Home:
		e.pos = 0
	case End:
		e.pos = len(e.line)
	case WordLeft:
		e.pos = e.wordStart()
	case WordRight:
		for e.pos < len(e.line) && e.line[e.pos] == ' ' {
			e.pos++
		}
		for e.pos < len(e.line) && e.line[e.pos] != ' ' {
			e.pos++
		}
	case KillWord:
		e.remove(e.wordStart(), e.pos)
	case KillLeft:
		e.remove(0, e.pos)
	case KillRight:
		e.remove(e.pos, len(e.line))
	default:
		return Nothing
	}
	return Edited
}

func (e *Editor) wordStart() int {
	p := e.pos
	for p > 0 && e.line[p-1] == ' ' {
		p--
	}
	for p > 0 && e.line[p-1] != ' ' {
		p--
	}
	return p
}

func (e *Editor) insert(r []rune) {
	e.line = slices.Insert(e.line, e.pos, r...)
	e.pos += len(r)
}

func (e *Editor) remove(from, to int) {
	from, to = max(0, from), min(len(e.line), to)
	if from < to {
		e.line = slices.Delete(e.line, from, to)
		e.pos = from
	}
	if len(e.line) == 0 {
		e.pasted = false
	}
}

func (e *Editor) recall(k Kind) {
	if e.at > len(e.history) {
		e.at = len(e.history)
	}
	next := e.at - 1
	if k == Down {
		next = e.at + 1
	}
	if next < 0 || next > len(e.history) {
		return
	}
	if e.at == len(e.history) {
		e.draft = e.line
	}
	if e.at = next; next == len(e.history) {
		e.line = e.draft
	} else {
		e.line = []rune(e.history[next])
	}
	e.pos, e.pasted = len(e.line), strings.Contains(string(e.line), "\n")
}

// Row draws the line over the row the cursor is in: prompt, the part of the line that fits, the cursor.
func (e *Editor) Row(prompt string, columns int) string {
	var shown []string // one element a character
	for _, r := range e.line {
		shown = append(shown, showRune(r))
	}
	if e.Hidden {
		shown = nil
	}
	pos := min(e.pos, len(shown))
	room := max(columns-textWidth(prompt)-1, 1)
	from, used := pos, 0
	for from > 0 && used+textWidth(shown[from-1]) <= room {
		from--
		used += textWidth(shown[from])
	}
	before, to := used, pos
	for to < len(shown) && used+textWidth(shown[to]) <= room {
		used += textWidth(shown[to])
		to++
	}
	row := "\r" + prompt + strings.Join(shown[from:to], "") + "\x1b[K\r"
	if n := textWidth(prompt) + before; n > 0 {
		row += "\x1b[" + strconv.Itoa(n) + "C"
	}
	return row
}

// showRune is how one character of the line is drawn.
func showRune(r rune) string {
	switch {
	case r == '\n':
		return "⏎"
	case r == '\t':
		return "    "
	case unicode.In(r, unicode.Mn, unicode.Me):
		return string(r)
	}
	return fence.Strip(string(r))
}

// ClearRow empties the row the cursor is in.
const ClearRow = "\r\x1b[K"
