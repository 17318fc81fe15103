package term

import (
	"bytes"
	"unicode/utf8"
)

// Kind says what a Key is. The zero Kind is a key that means nothing here.
type Kind uint8

// The keys that are told apart.
const (
	Unknown Kind = iota
	Rune         // Key.Rune was typed
	Paste        // Key.Text was pasted
	Enter
	Esc
	CtrlC
	CtrlD
	Backspace
	Delete
	Left
	Right
	Up
	Down
	Home
	End
	WordLeft
	WordRight
	KillWord  // Ctrl-W
	KillLeft  // Ctrl-U
	KillRight // Ctrl-K
	HangUp    // the terminal is gone
)

// Key is one key press or one paste.
type Key struct {
	Kind  Kind
	Rune  rune
	Text  string
	More  bool // more bytes came with it: typed by no finger
	epoch uint64
}

const (
	maxPaste    = 256 << 10 // bytes kept of one paste: eight times the longest message
	maxSequence = 64        // bytes of a key's escape sequence
)

const pasteEnd = "\x1b[201~"

// parser turns bytes into keys. The zero parser is ready.
type parser struct {
	rest    []byte // the beginning of something
	inPaste bool
	paste   []byte
	tail    []byte // the last bytes of a paste, which may begin its end
}

// waiting reports whether what is held may be a lone escape key.
func (p *parser) waiting() bool { return !p.inPaste && len(p.rest) > 0 && p.rest[0] == 0x1b }

// timeout is called when nothing followed.
func (p *parser) timeout() []Key {
	rest := p.rest
	p.rest = nil
	if len(rest) == 1 {
		return []Key{{Kind: Esc}}
	}
	return []Key{{Kind: Unknown}}
}

func (p *parser) feed(b []byte) []Key {
	var keys []Key
	data := append(p.rest, b...)
	p.rest = nil
	for len(data) > 0 {
		if p.inPaste {
			data = p.feedPaste(data, &keys)
			continue
		}
		k, n := parseKey(data)
		if n == 0 {
			p.rest = bytes.Clone(data)
			break
		}
		data = data[n:]
		if k.Kind == Paste {
			p.inPaste, p.paste, p.tail = true, nil, nil
			continue
		}
		keys = append(keys, k)
	}
	for i := range keys {
		keys[i].More = i < len(keys)-1 || p.inPaste || len(p.rest) > 0
	}
	return keys
}

// feedPaste takes bytes up to the end of the paste and returns what is left. Beyond maxPaste nothing is kept.
func (p *parser) feedPaste(data []byte, keys *[]Key) []byte {
	data = append(p.tail, data...)
	p.tail = nil
	at := bytes.Index(data, []byte(pasteEnd))
	text := data
	if at >= 0 {
		text = data[:at]
	} else if i := bytes.LastIndexByte(data, 0x1b); i >= 0 && len(data)-i < len(pasteEnd) {
		text, p.tail = data[:i], bytes.Clone(data[i:])
	}
	p.paste = append(p.paste, text[:min(len(text), maxPaste-len(p.paste))]...)
	if at < 0 {
		return nil
	}
	*keys = append(*keys, Key{Kind: Paste, Text: pasted(p.paste)})
	p.inPaste, p.paste = false, nil
	return data[at+len(pasteEnd):]
}

// pasted makes a paste fit to be a message: one kind of line end, whole characters.
func pasted(b []byte) string {
	b = bytes.ReplaceAll(b, []byte("\r\n"), []byte("\n"))
	b = bytes.ReplaceAll(b, []byte("\r"), []byte("\n"))
	return string(bytes.ToValidUTF8(b, []byte("\uFFFD")))
}

// parseKey reads one key; n is 0 when more bytes are needed.
func parseKey(b []byte) (k Key, n int) {
	if b[0] == 0x1b {
		return parseEscape(b)
	}
	if b[0] < 0x20 || b[0] == 0x7f {
		return Key{Kind: control(b[0])}, 1
	}
	if !utf8.FullRune(b) {
		return Key{}, 0
	}
	r, n := utf8.DecodeRune(b)
	if r == utf8.RuneError || r >= 0x80 && r < 0xa0 {
		return Key{Kind: Unknown}, n
	}
	return Key{Kind: Rune, Rune: r}, n
}

func control(c byte) Kind {
	switch c {
	case '\r', '\n':
		return Enter
	case 'A' & 0x1f:
		return Home
	case 'B' & 0x1f:
		return Left
	case 'C' & 0x1f:
		return CtrlC
	case 'D' & 0x1f:
		return CtrlD
	case 'E' & 0x1f:
		return End
	case 'F' & 0x1f:
		return Right
	case 'H' & 0x1f, 0x7f:
		return Backspace
	case 'K' & 0x1f:
		return KillRight
	case 'N' & 0x1f:
		return Down
	case 'P' & 0x1f:
		return Up
	case 'U' & 0x1f:
		return KillLeft
	case 'W' & 0x1f:
		return KillWord
	}
	return Unknown
}

func parseEscape(b []byte) (Key, int) {
	if len(b) == 1 {
		return Key{}, 0
	}
	switch b[1] {
	case '[':
		return parseSequence(b)
	case 'O':
		if len(b) == 2 {
			return Key{}, 0
		}
		return Key{Kind: named(string(b[2:3]))}, 3
	case 'b':
		return Key{Kind: WordLeft}, 2
	case 'f':
		return Key{Kind: WordRight}, 2
	case 0x7f:
		return Key{Kind: KillWord}, 2
	case 0x1b:
		return Key{Kind: Esc}, 1
	}
	return Key{Kind: Unknown}, 2
}

// parseSequence reads ESC [ parameters final.
func parseSequence(b []byte) (Key, int) {
	for i := 2; i < len(b); i++ {
		switch c := b[i]; {
		case c >= 0x40 && c <= 0x7e:
			body := string(b[2 : i+1])
			if body == "200~" {
				return Key{Kind: Paste}, i + 1
			}
			return Key{Kind: named(body)}, i + 1
		case c < 0x20 || c > 0x3f || i > maxSequence:
			return Key{Kind: Unknown}, i
		}
	}
	return Key{}, 0
}

func named(body string) Kind {
	switch body {
	case "A":
		return Up
	case "B":
		return Down
	case "C":
		return Right
	case "D":
		return Left
	case "H", "1~", "7~":
		return Home
	case "F", "4~", "8~":
		return End
	case "3~":
		return Delete
	case "1;5D", "1;3D":
		return WordLeft
	case "1;5C", "1;3C":
		return WordRight
	case "M": // keypad Enter
		return Enter
	}
	return Unknown
}
