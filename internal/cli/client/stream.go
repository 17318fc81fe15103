package client

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"atoll/internal/fault"
)

// Frame is one server-sent event.
type Frame struct {
	ID   string
	Name string
	Data []byte
}

// frames reads server-sent events with bounded memory.
type frames struct {
	r  *bufio.Reader
	id string
}

func newFrames(r io.Reader) *frames { return &frames{r: bufio.NewReaderSize(r, 32<<10)} }

var errTooLong = errors.New("a line or an event of the stream is too long")

// next reads one event. Comments are skipped; an event that the stream's end cuts off is dropped, as the format says.
func (f *frames) next() (Frame, error) {
	var fr Frame
	seen := false
	for {
		line, err := f.line()
		if err != nil {
			return Frame{}, err
		}
		if len(line) == 0 {
			if seen {
				fr.ID = f.id
				fr.Data = bytes.TrimSuffix(fr.Data, []byte("\n"))
				return fr, nil
			}
			continue
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) {
		case "event":
			fr.Name, seen = string(value), true
		case "data":
			if len(fr.Data)+len(value) > maxEvent {
				return Frame{}, errTooLong
			}
			fr.Data, seen = append(append(fr.Data, value...), '\n'), true
		case "id":
			if len(value) <= 128 {
				f.id = string(value)
			}
		}
	}
}

// line reads one line without its end.
func (f *frames) line() ([]byte, error) {
	var long []byte
	for {
		part, err := f.r.ReadSlice('\n')
		switch {
		case err == nil && long == nil:
			return bytes.TrimRight(part, "\r\n"), nil
		case err == nil:
			return bytes.TrimRight(append(long, part...), "\r\n"), nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		case len(long)+len(part) > maxLine:
			return nil, errTooLong
		}
		long = append(long, part...)
	}
}

// ChatRequest is the parameter of assistant.chat. An empty Conversation begins a new one.
type ChatRequest struct {
	Conversation string `json:"conversation,omitempty"`
	Message      string `json:"message"`
}

// ChatEvent is what happens while a turn runs. Name is start, text or tool.
type ChatEvent struct {
	Name         string     `json:"-"`
	Conversation string     `json:"conversation"`
	Delta        string     `json:"delta"`
	Tool         string     `json:"tool"`
	State        string     `json:"state"`
	Code         fault.Code `json:"code"`
}

// Chat sends one message and passes on what streams, in order and on the caller's goroutine. It returns the answer or
// how the turn ended. When ctx ends, the node ends the turn and its questions (C9).
func (c *Client) Chat(ctx context.Context, req ChatRequest, emit func(ChatEvent)) (Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.ChatTimeout)
	defer cancel()
	var answer Answer
	err := c.stream(ctx, "assistant.chat", req, &answer, nil, func(fr Frame) {
		ev := ChatEvent{Name: fr.Name}
		if err := json.Unmarshal(fr.Data, &ev); err == nil { // else an event of a newer node
			emit(ev)
		}
	})
	return answer, err
}

// Stream calls a method that streams and passes its events on, in order and on the caller's goroutine, until the node
// answers or ctx ends. It has no time of its own, but ends when the node shows no sign of life.
func (c *Client) Stream(ctx context.Context, method string, params, result any, emit func(Frame)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(context.Canceled)
	alive := time.AfterFunc(silentStream, func() { cancel(context.DeadlineExceeded) })
	defer alive.Stop()
	return c.stream(ctx, method, params, result, alive, emit)
}

// stream postpones alive, where there is one, with every byte.
func (c *Client) stream(ctx context.Context, method string, params, result any, alive *time.Timer, emit func(Frame)) error {
	resp, err := c.post(ctx, method, params, "text/event-stream")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if !isStream(resp) {
		return c.readResult(resp, result)
	}
	var body io.Reader = resp.Body
	if alive != nil {
		body = lively{body, alive}
	}
	stream := newFrames(body)
	for {
		fr, err := stream.next()
		if err != nil {
			return c.broken(ctx, err)
		}
		switch fr.Name {
		case "answer":
			if err := json.Unmarshal(fr.Data, result); err != nil {
				return fault.Wrap(err, fault.Failed, "the node's answer is not what this version of atoll reads — are both of one version?")
			}
			return nil
		case "error":
			return streamError(fr.Data)
		}
		emit(fr)
	}
}

// streamError reads an error event, bare or under the name error.
func streamError(data []byte) error {
	var e struct {
		wireError `json:",inline"`
		Error     *wireError `json:"error"`
	}
	if err := json.Unmarshal(data, &e); err != nil {
		return fault.Wrap(err, fault.Failed, "the turn ended with an error that cannot be read")
	}
	if e.Error != nil {
		return e.Error.fault()
	}
	return e.fault()
}

func isStream(resp *http.Response) bool {
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	return resp.StatusCode == http.StatusOK && kind == "text/event-stream"
}

// Event is one event for trusted chrome.
type Event struct {
	ID   string
	Name string // confirm, confirm-ended, notice, apps
	Data jsontext.Value
}

// Events is an open stream of events: while it is open, somebody listens (C10).
type Events struct {
	client *Client
	ctx    context.Context
	cancel context.CancelFunc
	body   io.ReadCloser
	frames *frames
	alive  *time.Timer
}

// Events opens the stream, after the event lastID if that is not empty. A node that stays silent is given up.
func (c *Client) Events(ctx context.Context, lastID string) (*Events, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	e := &Events{client: c, ctx: ctx, cancel: func() { cancel(context.Canceled) }}
	e.alive = time.AfterFunc(silentStream, func() { cancel(context.DeadlineExceeded) })
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+"/events", nil)
	if err != nil {
		e.Close()
		return nil, fault.Wrap(err, fault.Failed, "the request cannot be made")
	}
	req.Header.Set("Accept", "text/event-stream")
	if lastID != "" {
		req.Header.Set("Last-Event-ID", lastID)
	}
	resp, err := c.send(req)
	if err != nil {
		e.Close()
		return nil, err
	}
	e.body = resp.Body
	if !isStream(resp) {
		err := c.refusedStream(resp)
		e.Close()
		return nil, err
	}
	e.frames = newFrames(lively{resp.Body, e.alive})
	return e, nil
}

func (c *Client) refusedStream(resp *http.Response) error {
	if err := c.readResult(resp, nil); err != nil && !errors.Is(err, ErrUnreachable) {
		return err
	}
	switch resp.StatusCode {
	case http.StatusUnauthorized:
		return fault.New(fault.Unauthenticated, "not logged in — run `atoll login`")
	case http.StatusForbidden:
		return fault.New(fault.Forbidden, "this account may not listen for questions")
	case http.StatusTooManyRequests:
		return fault.New(fault.RateLimited, "too many clients of this account listen — close one")
	}
	return c.notANode(resp)
}

// Next waits for the next event.
func (e *Events) Next() (Event, error) {
	fr, err := e.frames.next()
	if err != nil {
		return Event{}, e.client.broken(e.ctx, err)
	}
	return Event{ID: fr.ID, Name: strings.TrimSpace(fr.Name), Data: jsontext.Value(fr.Data)}, nil
}

// Close ends the stream; a waiting Next returns.
func (e *Events) Close() {
	e.alive.Stop()
	e.cancel()
	if e.body != nil {
		_ = e.body.Close()
	}
}

// lively postpones the timer with every byte.
type lively struct {
	io.Reader
	alive *time.Timer
}

func (l lively) Read(p []byte) (int, error) {
	n, err := l.Reader.Read(p)
	if n > 0 {
		l.alive.Reset(silentStream)
	}
	return n, err
}
