package client

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
)

func allFrames(s string) (out []Frame, err error) {
	f := newFrames(strings.NewReader(s))
	for {
		fr, err := f.next()
		if err != nil {
			return out, err
		}
		out = append(out, fr)
	}
}

func TestFrames(t *testing.T) {
	got, err := allFrames(": hello\n\nid: 7\nevent: confirm\ndata: {\"a\":\ndata: 1}\n\nevent: x\r\ndata:y\r\n\r\ndata: cut off")
	if !errors.Is(err, io.EOF) || len(got) != 2 {
		t.Fatalf("%d frames, %v", len(got), err)
	}
	if f := got[0]; f.ID != "7" || f.Name != "confirm" || string(f.Data) != "{\"a\":\n1}" {
		t.Errorf("%+v", f)
	}
	if f := got[1]; f.ID != "7" || f.Name != "x" || string(f.Data) != "y" {
		t.Errorf("%+v", f)
	}
}

// A node that never ends a line or an event does not fill the client's memory.
func TestFramesAreBounded(t *testing.T) {
	for name, r := range map[string]io.Reader{
		"line":  io.MultiReader(strings.NewReader("data: "), io.LimitReader(endless("x"), 1<<30)),
		"event": endless("data: " + strings.Repeat("x", 1000) + "\n"),
	} {
		if _, err := newFrames(r).next(); !errors.Is(err, errTooLong) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

type endless string

func (e endless) Read(p []byte) (int, error) {
	n := 0
	for n+len(e) <= len(p) {
		n += copy(p[n:], e)
	}
	if n == 0 {
		n = copy(p, e[:min(len(p), len(e))])
	}
	return n, nil
}

func FuzzFrames(f *testing.F) {
	for _, s := range []string{"data: x\n\n", ":\n\n", "event\ndata\n\n", "id: \x00\ndata:\n\n", "data: a\r\n\r\n", "\n\n\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		fr := newFrames(bytes.NewReader(b))
		total := 0
		for {
			x, err := fr.next()
			if err != nil {
				break
			}
			total += len(x.Data)
		}
		if total > len(b) {
			t.Fatalf("%d bytes made %d of data", len(b), total)
		}
	})
}
