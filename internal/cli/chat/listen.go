package chat

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"atoll/internal/cli/client"
	"atoll/internal/fault"
)

// How long the listener waits before it connects again, and how long a turn waits for it to be there.
const (
	reconnectAfter = time.Second
	listenWithin   = 5 * time.Second
)

// listener keeps the stream of events open. Events that come while nobody takes them wait.
type listener struct {
	client *client.Client
	events chan client.Event
	first  chan struct{} // closed after the first attempt, however it went
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu  sync.Mutex // guards err
	err error      // why nobody listens now; nil while the stream is open
}

func startListener(ctx context.Context, c *client.Client) *listener {
	ctx, cancel := context.WithCancel(ctx)
	l := &listener{client: c, events: make(chan client.Event), first: make(chan struct{}), cancel: cancel,
		err: errors.New("not connected yet")}
	l.done.Go(func() { l.run(ctx) }) // waited for in close
	return l
}

func (l *listener) close() {
	l.cancel()
	l.done.Wait()
}

func (l *listener) run(ctx context.Context) {
	var last string
	signal := sync.OnceFunc(func() { close(l.first) })
	defer signal()
	for ctx.Err() == nil {
		stream, err := l.client.Events(ctx, last)
		l.set(err)
		signal()
		if err == nil {
			last = l.pass(ctx, stream, last)
			stream.Close()
			l.set(errors.New("the stream of events broke"))
		} else if !errors.Is(err, client.ErrUnreachable) && !fault.Is(err, fault.RateLimited) {
			return // the node refused; asking again changes nothing
		}
		select {
		case <-ctx.Done():
		case <-time.After(reconnectAfter):
		}
	}
}

// pass hands events on until the stream breaks and returns the last one's identifier.
func (l *listener) pass(ctx context.Context, stream *client.Events, last string) string {
	for {
		ev, err := stream.Next()
		if err != nil {
			return last
		}
		if ev.ID != "" {
			last = ev.ID
		}
		select {
		case l.events <- ev:
		case <-ctx.Done():
			return last
		}
	}
}

func (l *listener) set(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = err
}

// wait waits until the stream is open and returns why it is not.
func (l *listener) wait(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, listenWithin)
	defer cancel()
	select {
	case <-l.first:
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// onIdleEvent takes an event while no turn of this chat runs.
func (c *Chat) onIdleEvent(ev client.Event) {
	switch ev.Name {
	case "confirm-ended":
		if e, ok := decode[client.Ended](ev); ok {
			c.asked[e.Nonce] = true
		}
	case "notice":
		c.onNotice(ev)
	}
}

// onNotice counts a notice; it is told before the next message, so that it never breaks into a line.
func (c *Chat) onNotice(ev client.Event) {
	n, ok := decode[struct {
		ID any `json:"id"`
	}](ev)
	if !ok {
		return
	}
	key, err := json.Marshal(n.ID)
	if _, known := c.notices[string(key)]; err == nil && !known && len(c.notices) < 1000 {
		c.notices[string(key)] = false
	}
}

func (c *Chat) tellNotices() {
	fresh := 0
	for id, told := range c.notices {
		if !told {
			fresh++
			c.notices[id] = true
		}
	}
	if fresh > 0 {
		c.host(plural(fresh, "notice waits", "notices wait") + " for you: /notices shows them.")
	}
}

func decode[T any](ev client.Event) (v T, ok bool) {
	return v, json.Unmarshal(ev.Data, &v) == nil
}
