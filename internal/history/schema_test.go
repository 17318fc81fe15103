package history

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"atoll/internal/fence"
	"atoll/internal/store"
)

// A text comes back from the disk with its words and its grades.
func TestEncode(t *testing.T) {
	for _, text := range []fence.Text{
		{}, fence.Words("plain"), fence.Words(""), fence.Ours("ours"), fence.Outside("app_logs", "log"), fence.Outside("a\"b", ""),
		fence.Join(fence.Ours("a"), fence.Outside("x", "é\n"), fence.Words("c"), fence.Outside("y", "")), fence.Words("a\x00b"),
	} {
		parts, body := encode(text)
		got, err := decode(parts, body)
		must(t, err)
		if got.IsOutside() != text.IsOutside() || got.Payload() != noNUL(text.Payload()) || len(got.Store()) != len(text.Store()) && len(text.Store()) > 0 {
			t.Errorf("%q: %+v, want %+v", body, got.Store(), text.Store())
		}
	}
}

// Nothing that stands in a file makes a text of ours out of a stranger's, or panics: a layout that does not fit its words
// is damage, or falls to outside.
func FuzzDecode(f *testing.F) {
	for _, text := range []fence.Text{fence.Words("plain"), fence.Join(fence.Ours("a"), fence.Outside("x", "é\n"), fence.Words("c"))} {
		parts, body := encode(text)
		f.Add(parts, body)
	}
	f.Add("", "\x00")
	f.Add(`[{"g":"ours","n":-1}]`, "x")
	f.Add(`[{"g":"ours","n":1}]`, "more than one")
	f.Add(`[{"g":"emperor","n":1}]`, "x")
	f.Add(`{`, "x")
	f.Fuzz(func(t *testing.T, parts, body string) {
		text, err := decode(parts, body)
		if err != nil {
			if !errors.Is(err, store.ErrDamaged) {
				t.Errorf("an error of another kind: %v", err)
			}
			return
		}
		if !utf8.ValidString(text.Payload()) || strings.ContainsRune(text.Payload(), 0) {
			t.Errorf("%q", text.Payload())
		}
		_ = shorten(text, 3).Prompt()
	})
}

func FuzzDecodeEnd(f *testing.F) {
	f.Add(`{"at":1,"o":"done","ch":[{"tool":"a","summary":"b","outcome":"done"}],"i":5,"d":0.5,"x":true}`)
	f.Add(`{"at":1,"at":2}`)
	f.Add(`{"i":9223372036854775808}`)
	f.Add("\x00\x00")
	f.Fuzz(func(t *testing.T, body string) {
		if _, err := decodeEnd(body); err != nil && !errors.Is(err, store.ErrDamaged) {
			t.Errorf("an error of another kind: %v", err)
		}
	})
}

// A conversation's name is what a client sends: it is read strictly, and one name means one conversation.
func FuzzParseRef(f *testing.F) {
	for _, s := range []string{"1-0123456789abcdef", "0-0123456789abcdef", "01-0123456789abcdef", "-1-0123456789abcdef", "8388607-0123456789abcdef", "1-"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if is, ok := parseRef(s); ok && (is.String() != s || is.conv < 1 || entryID(is.conv+1, 0, 0) < 0) {
			t.Errorf("%q is read as %+v", s, is)
		}
	})
}

// Cutting for people never splits a character and never fails (F-C6).
func FuzzSnippet(f *testing.F) {
	f.Add("the ÄRGER is over", "ärger")
	f.Add("İstanbul İİİ x", "x")
	f.Add("ſtraße", "S")
	f.Add(strings.Repeat("é", 200), "é")
	f.Fuzz(func(t *testing.T, body, query string) {
		if !utf8.ValidString(body) || !utf8.ValidString(query) || query == "" {
			return
		}
		for _, s := range []string{snippet(body, query), titleOf(body), flat(body, 20), cut(body, 7), capBytes(body, 60)} {
			if !utf8.ValidString(s) {
				t.Errorf("%q", s)
			}
		}
	})
}

// The bits of an entry's id come back, at the ends of their ranges too.
func TestEntryID(t *testing.T) {
	for _, conv := range []int64{1, maxConv} {
		for _, turn := range []int{0, 1, maxTurn} {
			for _, seq := range []int{0, 7, maxSeq} {
				id := entryID(conv, turn, seq)
				if id < 0 || id>>(turnBits+seqBits) != conv || turnOf(id) != turn || seqOf(id) != seq {
					t.Errorf("%d %d %d: %x", conv, turn, seq, id)
				}
			}
		}
	}
}
