package link

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"atoll/internal/fault"
)

// A frame is its length as a varint, its kind and a body of JSON. The length counts the kind and the body.
const (
	kindData  = 'd'
	kindError = 'e'
)

const (
	// maxErrorFrame bounds a refusal's frame, in bytes.
	maxErrorFrame = 4 << 10
	// maxErrorText bounds the words in it, in bytes.
	maxErrorText = 500
	// maxLength is the longest length: five bytes hold more than any limit here.
	maxLength = 5
	// maxDepth is how deep the JSON of a frame may be nested.
	maxDepth = 64
	// firstPart is what is allocated on the word of a length alone, in bytes; more follows as it arrives.
	firstPart = 4 << 10
)

// Errors of a stream that the other end caused.
var (
	ErrClosed = errors.New("link: the other node ended the stream")
	ErrReset  = errors.New("link: the stream broke off")
	ErrFrame  = errors.New("link: not a frame of this protocol")
)

// RemoteError is a refusal in the other node's words: untrusted text.
type RemoteError struct {
	Code       fault.Code // of the catalogue
	Message    string     // at most maxErrorText bytes of valid UTF-8
	RetryAfter time.Duration
}

func (e *RemoteError) Error() string { return "link: refused: " + string(e.Code) }

// Said returns what the other node said about an error, or nil where it said nothing.
func Said(err error) *RemoteError {
	e, _ := errors.AsType[*RemoteError](err)
	return e
}

type wireError struct {
	Code        string `json:"code"`
	Message     string `json:"message"`
	RetryAfterS int64  `json:"retry_after_s,omitzero"`
}

// encode makes the bytes of a frame.
func encode(kind byte, body []byte) []byte {
	frame := binary.AppendUvarint(make([]byte, 0, len(body)+maxLength+1), uint64(len(body)+1))
	return append(append(frame, kind), body...)
}

// readFrame checks the length before it allocates, and then takes about as much memory as has arrived.
func readFrame(in *bufio.Reader, limit int) (kind byte, body []byte, err error) {
	n, err := readLength(in)
	if err != nil {
		return 0, nil, err
	}
	if n == 0 || n > uint64(max(limit, maxErrorFrame)) {
		return 0, nil, fmt.Errorf("%w: its length is out of bounds", ErrFrame)
	}
	if kind, err = in.ReadByte(); err != nil {
		return 0, nil, cutOff(err)
	}
	if kind == kindData && n > uint64(limit) || kind == kindError && n > maxErrorFrame || kind != kindData && kind != kindError {
		return 0, nil, fmt.Errorf("%w: it is too large, or of no known kind", ErrFrame)
	}
	left := int(n - 1)
	body = make([]byte, 0, min(left, firstPart))
	for left > 0 {
		body = slices.Grow(body, min(left, max(len(body), firstPart)))
		part := body[len(body):min(cap(body), len(body)+left)]
		got, err := io.ReadFull(in, part)
		if err != nil {
			return 0, nil, cutOff(err)
		}
		body, left = body[:len(body)+got], left-got
	}
	return kind, body, nil
}

// readLength reads a varint in its only shortest form.
func readLength(in *bufio.Reader) (uint64, error) {
	var n uint64
	for i := range maxLength {
		b, err := in.ReadByte()
		switch {
		case errors.Is(err, io.EOF) && i == 0:
			return 0, ErrClosed
		case err != nil:
			return 0, cutOff(err)
		}
		n |= uint64(b&0x7f) << (7 * i)
		if b < 0x80 {
			if b == 0 && i > 0 {
				break
			}
			return n, nil
		}
	}
	return 0, fmt.Errorf("%w: its length is none", ErrFrame)
}

// cutOff tells a frame that ends too early from a stream that breaks.
func cutOff(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: it is cut off", ErrFrame)
	}
	return broken(err)
}

// decode reads JSON strictly: unknown and doubled names, invalid UTF-8 and deep nesting are refused.
func decode(body []byte, v any) error {
	if tooDeep(body) {
		return fmt.Errorf("%w: it is nested too deep", ErrFrame)
	}
	if err := json.Unmarshal(body, v, json.RejectUnknownMembers(true)); err != nil {
		return fmt.Errorf("%w: %w", ErrFrame, err)
	}
	return nil
}

// tooDeep counts brackets outside strings, before anything is built of them.
func tooDeep(body []byte) bool {
	if bytes.Count(body, []byte{'{'})+bytes.Count(body, []byte{'['}) <= maxDepth { // nearly always, and much faster
		return false
	}
	depth, text := 0, false
	for i := 0; i < len(body); i++ {
		switch c := body[i]; {
		case text && c == '\\':
			i++
		case c == '"':
			text = !text
		case text:
		case c == '{' || c == '[':
			if depth++; depth > maxDepth {
				return true
			}
		case c == '}' || c == ']':
			depth = max(depth-1, 0)
		}
	}
	return false
}

func readError(body []byte) error {
	var w wireError
	if err := decode(body, &w); err != nil {
		return err
	}
	e := &RemoteError{Code: fault.Failed, Message: cut(w.Message, maxErrorText), RetryAfter: time.Duration(min(max(w.RetryAfterS, 0), 86400)) * time.Second}
	if slices.ContainsFunc(fault.Catalogue(), func(c fault.Entry) bool { return string(c.Code) == w.Code }) {
		e.Code = fault.Code(w.Code)
	}
	return e
}

func encodeError(f *fault.Error) []byte {
	w := wireError{Code: string(f.Code), Message: cut(strings.ToValidUTF8(f.Public, "?"), maxErrorText), RetryAfterS: int64((f.RetryAfter + time.Second - 1) / time.Second)}
	body, err := json.Marshal(w)
	if err != nil {
		return nil // unreachable: two valid strings and a number
	}
	return encode(kindError, body)
}

func cut(text string, n int) string {
	if len(text) > n {
		text = strings.ToValidUTF8(text[:n], "")
	}
	return text
}

// broken names how a stream ended.
func broken(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: it is cut off", ErrReset)
	}
	return fmt.Errorf("%w: %w", ErrReset, err)
}
