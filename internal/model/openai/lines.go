package openai

import (
	"bufio"
	"bytes"
	"io"
)

// lines passes on the data of an event stream and nothing else, one line each. The library's reader stumbles over the
// rest: it counts comments as errors, loses a last line without an end, and takes an error object apart by its own idea
// of one.
type lines struct {
	body io.ReadCloser
	in   *bufio.Reader
	left []byte // of the line being passed on
	err  error
}

func newLines(body io.ReadCloser) *lines {
	return &lines{body: body, in: bufio.NewReader(body)}
}

func (l *lines) Read(p []byte) (int, error) {
	for len(l.left) == 0 {
		if l.err != nil {
			return 0, l.err
		}
		var line []byte
		line, l.err = l.in.ReadBytes('\n') // bounded by the wire's longest line
		if l.err != nil && l.err != io.EOF {
			return 0, l.err // half a line is no line
		}
		l.left = data(line)
	}
	n := copy(p, l.left)
	l.left = l.left[n:]
	return n, nil
}

// data is the line as a line of data, or empty. A bare object is one too: some servers report errors like that.
func data(line []byte) []byte {
	line = bytes.TrimSpace(bytes.TrimPrefix(line, []byte("\uFEFF")))
	v, ok := bytes.CutPrefix(line, []byte("data:"))
	if !ok && !bytes.HasPrefix(line, []byte("{")) {
		return nil
	}
	v = bytes.TrimSpace(v)
	if len(v) == 0 {
		return nil
	}
	out := append(make([]byte, 0, len(v)+8), "data: "...)
	if v[0] == '{' { // the space keeps the library from recognising an error
		out, v = append(out, '{', ' '), v[1:]
	}
	return append(append(out, v...), '\n')
}

// maxRest bounds what is read after the end of an answer.
const maxRest = 4 << 10

func (l *lines) Close() error {
	_, _ = io.CopyN(io.Discard, l.in, maxRest)
	return l.body.Close()
}
