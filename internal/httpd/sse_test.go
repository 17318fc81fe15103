package httpd

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"atoll/internal/caller"
	"atoll/internal/event"
	"atoll/internal/fault"
)

// sse reads one stream.
type sse struct {
	res    *http.Response
	events chan sseEvent // closed at the end of the stream
	done   chan struct{}
}

type sseEvent struct{ id, name, data string }

// open opens a stream and reads it in the background until it ends or the test does.
func (p *person) open(t *testing.T, r *http.Request) *sse {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if got := res.Header.Get("Content-Type"); res.StatusCode != 200 || got != "text/event-stream" {
		b, _ := io.ReadAll(res.Body)
		t.Fatalf("no stream but %d %s: %s", res.StatusCode, got, b)
	}
	st := &sse{res: res, events: make(chan sseEvent, 4096), done: make(chan struct{})}
	go st.read()
	t.Cleanup(st.close)
	return st
}

func (st *sse) close() {
	st.res.Body.Close()
	<-st.done
}

func (st *sse) read() {
	defer close(st.done)
	defer close(st.events)
	lines := bufio.NewScanner(st.res.Body)
	lines.Buffer(nil, 1<<20)
	var e sseEvent
	for lines.Scan() {
		field, value, _ := strings.Cut(lines.Text(), ": ")
		switch field {
		case "id":
			e.id = value
		case "event":
			e.name = value
		case "data":
			e.data = value
		case "":
			if value != "" { // a comment
				e = sseEvent{name: "comment", data: value}
			}
			if e.name != "" {
				st.events <- e
			}
			e = sseEvent{}
		}
	}
}

// next waits for one event; ok is false at the end of the stream.
func (st *sse) next(t *testing.T) (sseEvent, bool) {
	t.Helper()
	select {
	case e, ok := <-st.events:
		return e, ok
	case <-time.After(10 * time.Second):
		t.Fatal("nothing came for ten seconds")
		return sseEvent{}, false
	}
}

func (st *sse) expect(t *testing.T, name, data string) sseEvent {
	t.Helper()
	e, ok := st.next(t)
	if !ok || e.name != name || e.data != data {
		t.Fatalf("event %q %q (%v), want %q %q", e.name, e.data, ok, name, data)
	}
	return e
}

func (st *sse) expectEnd(t *testing.T) {
	t.Helper()
	if e, ok := st.next(t); ok {
		t.Fatalf("event %+v, want the end", e)
	}
}

func (p *person) events(t *testing.T, after string) *sse {
	t.Helper()
	return p.open(t, p.request(t, http.MethodGet, "/events", nil, func(r *http.Request) {
		if after != "" {
			r.Header.Set("Last-Event-ID", after)
		}
	}))
}

// chat makes the request of a streamed call.
func (p *person) chat(t *testing.T, message string) *http.Request {
	t.Helper()
	body := `{"jsonrpc":"2.0","id":1,"method":"test.chat","params":{"text":"` + message + `"}}`
	return p.request(t, http.MethodPost, "/rpc", strings.NewReader(body), header("Accept", "text/event-stream, application/json;q=0.5"))
}

// Section 3: events as they are emitted, and exactly one answer or error at the end.
func TestStream(t *testing.T) {
	g := newRig(t, nil)
	g.add(t, "ada", caller.Owner)
	p := g.login(t, "ada")
	g.hold = make(chan struct{})
	st := p.open(t, p.chat(t, "hello"))
	st.expect(t, "start", `{"text":"one\ntwo"}`) // it came while the call runs: nothing is held back
	g.hold <- struct{}{}
	st.expect(t, "answer", `{"text":"all of hello"}`)
	st.expectEnd(t)
	st = p.open(t, p.chat(t, "late failure"))
	st.expect(t, "start", `{"text":"one\ntwo"}`)
	g.hold <- struct{}{}
	e, _ := st.next(t)
	if e.name != "error" || !strings.HasPrefix(e.data, `{"code":-32000,"message":"the model is gone","data":{"code":"model_failed"`) {
		t.Fatalf("%+v", e)
	}
	st.expectEnd(t)
}

// A refusal before the first event is an ordinary answer, and so is every answer to who did not ask for a stream.
func TestNoStream(t *testing.T) {
	g := newRig(t, nil)
	g.add(t, "ada", caller.Owner)
	p := g.login(t, "ada")
	want(t, "busy", p.do(t, p.chat(t, "busy")), 200, fault.Busy)
	p.csrf = "wrong"
	want(t, "CSRF", p.do(t, p.chat(t, "hello")), 403, fault.CSRF)
	p = g.login(t, "ada")
	if a := p.call(t, "test.chat", `{"text":"hello"}`); string(a.Result) != `{"text":"all of hello"}` {
		t.Fatal(a.body)
	}
	want(t, "stream only", p.call(t, "test.tail", `{"text":"hello"}`), 400, fault.InvalidParams)
	for accept, stream := range map[string]bool{"*/*": false, "text/*": false, "application/json": false, "text/event-stream;q=0": false,
		"TEXT/EVENT-STREAM": true, "application/json, text/event-stream": true} {
		r, _ := http.NewRequest("POST", "/", nil)
		r.Header.Set("Accept", accept)
		if acceptsStream(r) != stream {
			t.Errorf("%q: %v", accept, !stream)
		}
	}
}

// F-A18: what waits for a person is on the other stream at once, while the chat's own is silent.
func TestEventsComeWhileAChatIsSilent(t *testing.T) {
	g := newRig(t, nil)
	g.add(t, "ada", caller.Owner)
	p := g.login(t, "ada")
	g.hold = make(chan struct{})
	events := p.events(t, "")
	events.expect(t, "synced", `{"events":0}`)
	st := p.open(t, p.chat(t, "hello"))
	st.expect(t, "start", `{"text":"one\ntwo"}`)
	receive(t, "the chat", g.started)
	start := time.Now()
	g.bus.Publish(event.Event{Name: "confirm", Owners: true, State: true, Data: text{"restart?"}})
	events.expect(t, "confirm", `{"text":"restart?"}`)
	if took := time.Since(start); took > time.Second {
		t.Fatal("visible after", took)
	}
	g.hold <- struct{}{}
	st.expect(t, "answer", `{"text":"all of hello"}`)
}

// C9: a stream's client that goes away ends the call.
func TestStreamClientGone(t *testing.T) {
	g := newRig(t, nil)
	g.add(t, "ada", caller.Owner)
	p := g.login(t, "ada")
	g.hold = make(chan struct{})
	st := p.open(t, p.chat(t, "hello"))
	receive(t, "the chat", g.started)
	st.close()
	if err := receive(t, "the handler's end", g.ended); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

// A reader that does not read holds the turn for no longer than one write.
func TestSlowReader(t *testing.T) {
	g := newRig(t, func(c *Config) { c.Times.Write = 200 * time.Millisecond })
	g.add(t, "ada", caller.Owner)
	p := g.login(t, "ada")
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, ReadBufferSize: 4096}}
	res, err := client.Do(p.chat(t, "flood"))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if err := receive(t, "the handler's end", g.ended); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

// A chat's stream shows life, and its session's end ends it at once.
func TestStreamOfAnEndedSession(t *testing.T) {
	g := newRig(t, func(c *Config) { c.Times.KeepAlive = 20 * time.Millisecond })
	g.add(t, "ada", caller.Owner)
	p, other := g.login(t, "ada"), g.login(t, "ada")
	g.hold = make(chan struct{})
	st := p.open(t, p.chat(t, "hello"))
	st.expect(t, "start", `{"text":"one\ntwo"}`)
	st.expect(t, "comment", "still here")
	want(t, "passwd", other.call(t, "auth.passwd", `{"old":"`+password+`","new":"another four words"}`), 200, "")
	for {
		e, ok := st.next(t)
		if !ok {
			t.Fatal("no last event")
		}
		if e.name != "comment" {
			if e.name != "error" || !strings.Contains(e.data, `"cancelled"`) {
				t.Fatalf("%+v", e)
			}
			break
		}
	}
	st.expectEnd(t)
}
