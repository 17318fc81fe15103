package term

import (
	"strings"
	"testing"
)

func parse(pieces ...string) []Key {
	var p parser
	var keys []Key
	for _, s := range pieces {
		keys = append(keys, p.feed([]byte(s))...)
	}
	if p.waiting() {
		keys = append(keys, p.timeout()...)
	}
	return keys
}

func TestParserKnowsKeys(t *testing.T) {
	for in, want := range map[string]Kind{
		"a": Rune, "é": Rune, "漢": Rune, "\r": Enter, "\n": Enter, "\x1b": Esc, "\x03": CtrlC, "\x04": CtrlD, "\x7f": Backspace, "\x08": Backspace,
		"\x1b[A": Up, "\x1bOA": Up, "\x1b[B": Down, "\x1b[C": Right, "\x1b[D": Left, "\x1b[H": Home, "\x1b[4~": End, "\x1b[3~": Delete,
		"\x1b[1;5D": WordLeft, "\x1bf": WordRight, "\x17": KillWord, "\x15": KillLeft, "\x0b": KillRight, "\x01": Home, "\x05": End,
		"\x1b[99z": Unknown, "\xff": Unknown, "\u009b": Unknown, "\x00": Unknown,
	} {
		keys := parse(in)
		if len(keys) != 1 || keys[0].Kind != want {
			t.Errorf("%q: got %+v, want one key of kind %d", in, keys, want)
		}
	}
}

func TestParserAcrossPieces(t *testing.T) {
	if keys := parse("\x1b", "[", "A"); len(keys) != 1 || keys[0].Kind != Up {
		t.Errorf("a split arrow: %+v", keys)
	}
	if keys := parse("\xc3", "\xa9"); len(keys) != 1 || keys[0].Rune != 'é' {
		t.Errorf("a split letter: %+v", keys)
	}
}

// A paste is one key, whatever is in it: line ends, control bytes, what looks like its own beginning.
func TestParserPasteIsOneKey(t *testing.T) {
	const paste = "\x1b[200~one\r\ntwo\rthree\x03y\x1b[A\x1b[201~"
	want := "one\ntwo\nthree\x03y\x1b[A"
	for cut := range len(paste) {
		keys := parse(paste[:cut], paste[cut:])
		if cut == 1 {
			continue // a lone escape byte that is followed in time is tried below
		}
		if len(keys) != 1 || keys[0].Kind != Paste || keys[0].Text != want {
			t.Errorf("cut at %d: %+v", cut, keys)
		}
	}
	if keys := parse("\x1b[200~a", "b", "c\x1b[201~d"); len(keys) != 2 || keys[0].Text != "abc" || keys[1].Rune != 'd' {
		t.Errorf("a paste in three pieces: %+v", keys)
	}
}

func TestParserMarksWhatCameTogether(t *testing.T) {
	keys := parse("y\r")
	if len(keys) != 2 || !keys[0].More || keys[1].More {
		t.Errorf("%+v", keys)
	}
}

func TestParserPasteIsBounded(t *testing.T) {
	keys := parse("\x1b[200~" + strings.Repeat("x", maxPaste+1000) + "\x1b[201~")
	if len(keys) != 1 || len(keys[0].Text) != maxPaste {
		t.Errorf("%d keys, %d bytes", len(keys), len(keys[0].Text))
	}
}

func FuzzParser(f *testing.F) {
	for _, s := range []string{"abc", "\x1b[200~x\x1b[201~", "\x1b[200~x", "\x1b[1;5D", "\x1b\x1b[A", "\xc3", "\x1bO", "\x1b[200~\x1b[20"} {
		f.Add(s, 2)
	}
	f.Fuzz(func(t *testing.T, s string, cut int) {
		cut = min(max(cut, 0), len(s))
		var p parser
		keys := append(p.feed([]byte(s[:cut])), p.feed([]byte(s[cut:]))...)
		if len(keys) > len(s) {
			t.Fatalf("%d bytes made %d keys", len(s), len(keys))
		}
		if len(p.rest) > maxSequence+8 || len(p.tail) > len(pasteEnd) {
			t.Fatalf("holds %d and %d bytes", len(p.rest), len(p.tail))
		}
	})
}
