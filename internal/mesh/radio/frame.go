package radio

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
)

// The stream of a Meshtastic device (source: Meshtastic's client API documentation): two start bytes, a length in two
// bytes, big end first, and that many bytes of protobuf.
const (
	start1, start2 = 0x94, 0xC3
	headerLen      = 4
	maxFrame       = 512
	maxNoise       = 64 << 10 // bytes between two frames before it is no radio that speaks
)

var errNoise = errors.New("what answers does not speak as a Meshtastic device does")

// frames reads frames out of a stream that may hold other bytes between them: devices print debug text there. The body
// of a frame is never searched for another one, not even a body that makes no sense, since it holds strangers' words and
// they would choose what is found.
type frames struct {
	r     *bufio.Reader
	body  [maxFrame]byte
	noise int // bytes skipped since the last frame
}

func newFrames(r io.Reader) *frames {
	return &frames{r: bufio.NewReaderSize(r, headerLen+maxFrame)}
}

// next gives the body of the next frame; it stands until the next call.
func (f *frames) next() ([]byte, error) {
	f.noise = 0
	for {
		head, err := f.r.Peek(headerLen)
		if err != nil {
			return nil, err
		}
		n := int(binary.BigEndian.Uint16(head[2:]))
		if head[0] != start1 || head[1] != start2 || n > maxFrame {
			if f.noise++; f.noise > maxNoise {
				return nil, errNoise
			}
			_, _ = f.r.Discard(1) // unreachable error: it was peeked at
			continue
		}
		_, _ = f.r.Discard(headerLen)
		_, err = io.ReadFull(f.r, f.body[:n])
		return f.body[:n], err
	}
}

// frame puts a body, of maxFrame bytes at most, into a frame.
func frame(body []byte) []byte {
	out := make([]byte, headerLen, headerLen+len(body))
	out[0], out[1] = start1, start2
	binary.BigEndian.PutUint16(out[2:], uint16(len(body)))
	return append(out, body...)
}

// wake is what clients send first: it ends a frame that an earlier client left half sent.
func wake() []byte {
	out := make([]byte, 32)
	for i := range out {
		out[i] = start2
	}
	return out
}
