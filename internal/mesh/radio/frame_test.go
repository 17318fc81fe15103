package radio

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func bodies(t *testing.T, in []byte) (out []string, err error) {
	t.Helper()
	f := newFrames(iotest.OneByteReader(bytes.NewReader(in)))
	for {
		body, err := f.next()
		if err != nil {
			return out, err
		}
		out = append(out, string(body))
	}
}

func TestFrames(t *testing.T) {
	a, b := string(frame([]byte("alpha"))), string(frame([]byte("b")))
	long := strings.Repeat("x", maxFrame)
	inner := string(frame([]byte("noise" + b + "noise")))
	for _, tt := range []struct{ name, in, want string }{
		{"two", a + b, "alpha|b"},
		{"debug text between", "boot\r\n" + a + "DEBUG | ok\n" + b + "x", "alpha|b"},
		{"half a start", "\x94" + a + "\x94\x94" + b + "\xc3", "alpha|b"},
		{"wake", string(wake()) + a, "alpha"},
		{"too long a length", "\x94\xc3\x02\x01" + a, "alpha"},
		{"a start in a length", "\x94\xc3\x94" + a, "alpha"},
		{"empty", string(frame(nil)) + a, "|alpha"},
		{"longest", string(frame([]byte(long))) + a, long + "|alpha"},
		{"a frame in a frame is its words", inner + a, "noise" + b + "noise|alpha"},
		{"cut off", a + b[:4], "alpha"},
	} {
		got, err := bodies(t, []byte(tt.in))
		if strings.Join(got, "|") != tt.want || !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%s: %q, %v", tt.name, got, err)
		}
	}
}

// An endless stream without a frame is given up.
func TestFramesNoise(t *testing.T) {
	if _, err := bodies(t, bytes.Repeat([]byte("HTTP/1.1 400 Bad Request\r\n"), 10_000)); !errors.Is(err, errNoise) {
		t.Errorf("noise ended with %v", err)
	}
}

func FuzzFrame(f *testing.F) {
	f.Add([]byte("DEBUG\x94\x94\xc3\x00\x02hi\x94\xc3\xff\xff\x94\xc3\x00\x00"))
	f.Add(append(wake(), frame([]byte("body"))...))
	f.Add([]byte{0x94, 0xC3, 0x02, 0x00, 1})
	f.Fuzz(func(t *testing.T, in []byte) {
		got, err := bodies(t, in)
		if err == nil {
			t.Fatal("no end")
		}
		total := 0
		for _, b := range got {
			if len(b) > maxFrame {
				t.Fatalf("a body of %d bytes", len(b))
			}
			total += len(b) + headerLen
		}
		if total > len(in) {
			t.Fatalf("%d bytes gave frames of %d", len(in), total)
		}
		// What is read stays the same behind noise, and when it is framed anew.
		var again []byte
		for _, b := range got {
			again = append(append(again, "log\r\n"...), frame([]byte(b))...)
		}
		if second, _ := bodies(t, again); strings.Join(second, "|") != strings.Join(got, "|") {
			t.Fatalf("%q became %q", got, second)
		}
	})
}
