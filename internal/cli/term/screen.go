package term

import (
	"io"
	"strings"
	"sync"
	"unicode"

	"atoll/internal/fence"
)

// What the first column shows. Only the host writes Gutter there; a line of somebody else's begins with a blank.
const (
	Gutter = "│ "
	blank  = "  "
	typed  = "› " // before what the person typed, when it is shown again
)

// minWidth is the narrowest screen that lines are wrapped for.
const minWidth = 20

// Screen writes lines of which each one shows whose words it holds. It is safe for concurrent use.
type Screen struct {
	out   io.Writer
	width func() int

	mu     sync.Mutex // guards the rest
	strip  Stripper
	open   bool // a line of somebody else's is not finished
	col    int
	spaces int // blanks that stand before word
	word   strings.Builder
	wordW  int
	buf    strings.Builder
}

// NewScreen makes a Screen. width gives the columns of a terminal; nil is for what is none: then nothing is wrapped.
func NewScreen(out io.Writer, width func() int) *Screen {
	return &Screen{out: out, width: width}
}

// columns is the room in a line, or 0 for no limit.
func (s *Screen) columns() int {
	if s.width == nil {
		return 0
	}
	return max(s.width(), minWidth)
}

// Host writes the host's own words, one or more lines. What is not the host's in them must have gone through Clean.
func (s *Screen) Host(lines ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endLine()
	for _, text := range lines {
		s.prefixed(Gutter, text)
	}
	s.flush()
}

// Person repeats what the person typed.
func (s *Screen) Person(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endLine()
	s.prefixed(typed, Block(text))
	s.flush()
}

// Other writes a piece of somebody else's text as it arrives: the model's, a log's. Control characters and escape
// sequences are taken out, also where they are split between two pieces, and every line begins with a blank.
func (s *Screen) Other(piece string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range fence.Strip(s.strip.Feed(piece)) {
		s.rune(r)
	}
	s.flush()
}

// EndOther finishes somebody else's text.
func (s *Screen) EndOther() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endLine()
	s.flush()
}

func (s *Screen) prefixed(prefix, text string) {
	room := 0
	if c := s.columns(); c > 0 {
		room = c - textWidth(prefix)
	}
	for _, line := range wrap(text, room) {
		s.buf.WriteString(prefix)
		s.buf.WriteString(line)
		s.buf.WriteByte('\n')
	}
}

// endLine finishes an unfinished line of somebody else's.
func (s *Screen) endLine() {
	s.endWord()
	if s.open {
		s.buf.WriteByte('\n')
	}
	s.open, s.col, s.spaces, s.strip = false, 0, 0, Stripper{}
}

// rune places one character.
func (s *Screen) rune(r rune) {
	switch {
	case r == '\n' || unicode.In(r, unicode.Zl, unicode.Zp):
		s.endWord()
		s.buf.WriteByte('\n')
		s.open, s.col, s.spaces = false, 0, 0
	case r == '\t':
		s.endWord()
		s.spaces += 4
	case unicode.IsSpace(r):
		s.endWord()
		s.spaces++
	case unicode.IsControl(r): // unreachable unless fence.Strip lets one through
	default:
		w := runeWidth(r)
		if c := s.columns(); c > 0 && s.wordW+w > c-len(blank) || s.word.Len() > maxWord {
			s.endWord()
		}
		s.word.WriteRune(r)
		s.wordW += w
	}
}

// maxWord bounds what is held back of a word in bytes: marks have no width, so width alone does not.
const maxWord = 1024

// endWord writes the word held back, on the next line if this one has no room.
func (s *Screen) endWord() {
	if s.word.Len() == 0 {
		return
	}
	c := s.columns()
	if s.open && c > 0 && s.col+s.spaces+s.wordW > c {
		s.buf.WriteByte('\n')
		s.open, s.spaces = false, 0
	}
	if !s.open {
		s.buf.WriteString(blank)
		s.open, s.col = true, len(blank)
	}
	gap := s.spaces
	if c > 0 {
		gap = min(gap, max(0, c-s.col-s.wordW))
	}
	s.buf.WriteString(strings.Repeat(" ", min(gap, maxWord)))
	s.buf.WriteString(s.word.String())
	s.col += gap + s.wordW
	s.word.Reset()
	s.wordW, s.spaces = 0, 0
}

func (s *Screen) flush() {
	if s.buf.Len() > 0 {
		_, _ = io.WriteString(s.out, s.buf.String())
		s.buf.Reset()
	}
}

// wrap breaks the host's text into lines of at most room columns (0: no limit), at blanks where it can. A line keeps its
// indentation when it is broken. Nothing is left out.
func wrap(text string, room int) []string {
	var lines []string
	for line := range strings.SplitSeq(text, "\n") {
		line = strings.Map(func(r rune) rune {
			if unicode.IsControl(r) || unicode.In(r, unicode.Zl, unicode.Zp) {
				return ' '
			}
			return r
		}, line)
		lines = append(lines, wrapLine(line, room)...)
	}
	return lines
}

func wrapLine(line string, room int) []string {
	if room <= 0 || textWidth(line) <= room {
		return []string{line}
	}
	body := strings.TrimLeft(line, " ")
	indent := strings.Repeat(" ", min(len(line)-len(body), room/2))
	var out []string
	for first := true; body != "" || first; first = false {
		var head string
		head, body = splitAt(body, room-len(indent))
		out = append(out, indent+head)
	}
	return out
}

// splitAt cuts s so that head has at most room columns, after a blank where there is one.
func splitAt(s string, room int) (head, rest string) {
	used, space := 0, -1
	for i, r := range s {
		if used += runeWidth(r); used > room && i > 0 {
			if space > 0 {
				return s[:space], s[space+1:]
			}
			return s[:i], s[i:]
		}
		if r == ' ' {
			space = i
		}
	}
	return s, ""
}

// Chunks cuts s into lines of at most room columns without leaving anything out, blanks included.
func Chunks(s string, room int) []string {
	var out []string
	start, used := 0, 0
	for i, r := range s {
		w := runeWidth(r)
		if used+w > max(room, 1) && i > start {
			out = append(out, s[start:i])
			start, used = i, 0
		}
		used += w
	}
	return append(out, s[start:])
}

// Clean makes somebody else's words fit to stand inside a line of the host's: one line, no escape sequences.
func Clean(s string) string {
	return strings.Join(strings.FieldsFunc(Block(s), func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r)
	}), " ")
}

// Line makes one line of somebody else's text fit for output, with its own spacing.
func Line(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.In(r, unicode.Zl, unicode.Zp) {
			return ' '
		}
		return r
	}, Block(s))
}

// Block makes somebody else's text of many lines fit for a terminal: escape sequences are gone, and what else would be
// invisible or turn the text is shown as an escape.
func Block(s string) string {
	var p Stripper
	return fence.Strip(p.Feed(s))
}
