package link

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"atoll/internal/fault"
)

// hostile are frames of strangers, each refused; they are the fuzzer's seeds too.
func hostile() map[string][]byte {
	huge := binary.AppendUvarint(nil, 4<<30)
	deep := strings.Repeat("[", 5000)
	return map[string][]byte{
		"4 GB":           append(huge, 'd', '{'),
		"2^64":           {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 'd'},
		"endless length": bytes.Repeat([]byte{0x80}, 100),
		"long form":      {0x83, 0x00, 'd', '{', '}'},
		"zero":           {0},
		"cut length":     {0x83},
		"no kind":        {3},
		"cut body":       {10, 'd', '{'},
		"other kind":     {3, 'x', '{', '}'},
		"no body":        {1, 'd'},
		"not JSON":       encode('d', []byte("GET / HTTP/1.1")),
		"two values":     encode('d', []byte(`{}{}`)),
		"unknown name":   encode('d', []byte(`{"text":"a","more":1}`)),
		"doubled name":   encode('d', []byte(`{"text":"a","text":"b"}`)),
		"other case":     encode('d', []byte(`{"Text":"a"}`)),
		"wrong type":     encode('d', []byte(`{"text":1}`)),
		"not UTF-8":      encode('d', []byte("{\"text\":\"\xff\"}")),
		"deep":           encode('d', []byte(`{"text":`+deep+`}`)),
		"large error":    encode('e', bytes.Repeat([]byte{' '}, maxErrorFrame)),
		"odd error":      encode('e', []byte(`{"code":"x","message":"y","html":"z"}`)),
	}
}

func read(data []byte, limit int) error {
	kind, body, err := readFrame(bufio.NewReader(bytes.NewReader(data)), limit)
	if err != nil {
		return err
	}
	if kind == kindError {
		return readError(body)
	}
	return decode(body, &word{})
}

func TestReadFrameRefuses(t *testing.T) {
	for name, data := range hostile() {
		if err := read(data, 16<<10); !errors.Is(err, ErrFrame) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := read(nil, 16<<10); !errors.Is(err, ErrClosed) {
		t.Errorf("an end in order: %v", err)
	}
}

func TestReadFrameLimit(t *testing.T) {
	body := []byte(`{"text":"` + strings.Repeat("a", 10_000) + `"}`)
	frame := encode(kindData, body)
	if err := read(frame, len(body)+1); err != nil {
		t.Errorf("a frame of the limit: %v", err)
	}
	if err := read(frame, len(body)); !errors.Is(err, ErrFrame) {
		t.Errorf("a frame above the limit: %v", err)
	}
	// A refusal fits however small the protocol's own frames are.
	if f := Said(read(encodeError(fault.New(fault.Busy, "%s", strings.Repeat("é", 1000)).After(90*time.Second)), 10)); f == nil ||
		f.Code != fault.Busy || len(f.Message) > maxErrorText || f.RetryAfter != 90*time.Second {
		t.Errorf("a refusal: %+v", f)
	}
	// Codes and waits of another node are taken only as far as they make sense here.
	if f := Said(read(encode(kindError, []byte(`{"code":"rm -rf","message":"x","retry_after_s":-9223372036854775808}`)), 10)); f == nil || f.Code != fault.Failed || f.RetryAfter != 0 {
		t.Errorf("an odd refusal: %+v", f)
	}
	if f := Said(read(encode(kindError, []byte(`{"code":"busy","message":"x","retry_after_s":9223372036854775807}`)), 10)); f == nil || f.RetryAfter != 24*time.Hour {
		t.Errorf("an odd wait: %+v", f)
	}
}

// A length alone costs no memory: only what arrives does.
func TestReadFrameMemory(t *testing.T) {
	const limit = 256 << 20
	head := append(binary.AppendUvarint(nil, limit), 'd')
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 100 {
		if err := read(head, limit); !errors.Is(err, ErrFrame) {
			t.Fatal(err)
		}
	}
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > 8<<20 {
		t.Errorf("%d bytes for 100 empty promises", got)
	}
}

func TestTooDeep(t *testing.T) {
	for text, want := range map[string]bool{
		strings.Repeat("[", maxDepth):                             false,
		strings.Repeat("[", maxDepth+1):                           true,
		strings.Repeat("[]", 1000):                                false,
		`"` + strings.Repeat("[", 1000) + `"`:                     false,
		`"\"` + strings.Repeat("{", 1000) + `"`:                   false,
		`"\\"` + strings.Repeat(`{"a":`, maxDepth+1):              true,
		strings.Repeat("]", 10) + strings.Repeat("[", maxDepth+1): true,
	} {
		if got := tooDeep([]byte(text)); got != want {
			t.Errorf("%.20s…: %v", text, got)
		}
	}
}

// Whatever arrives: no panic, no frame above the limit, and a frame that is read is written back as the same bytes.
func FuzzReadFrame(f *testing.F) {
	for _, data := range hostile() {
		f.Add(data, 64)
	}
	f.Add(encode('d', []byte(`{"text":"hello"}`)), 64)
	f.Add(encodeError(fault.New(fault.RateLimited, "wait").After(time.Minute)), 64)
	f.Fuzz(func(t *testing.T, data []byte, limit int) {
		limit = 1 + int(uint(limit)%(64<<10))
		in := bufio.NewReader(bytes.NewReader(data))
		kind, body, err := readFrame(in, limit)
		if err != nil {
			if !errors.Is(err, ErrFrame) && !errors.Is(err, ErrClosed) {
				t.Fatalf("%v: %v", data, err)
			}
			return
		}
		if most := map[byte]int{kindData: limit, kindError: maxErrorFrame}[kind]; len(body)+1 > most {
			t.Fatalf("%d bytes of kind %q past a limit of %d", len(body)+1, kind, most)
		}
		if back := encode(kind, body); !bytes.HasPrefix(data, back) {
			t.Fatalf("%v was read from %v", back, data)
		}
		if kind == kindError {
			if f := Said(readError(body)); f != nil && (len(f.Message) > maxErrorText || f.RetryAfter < 0) {
				t.Fatalf("%+v", f)
			}
			return
		}
		_ = decode(body, &word{})
	})
}
