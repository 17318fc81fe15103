package app

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"atoll/internal/caller"
	"atoll/internal/fault"
	"atoll/internal/rpc"
)

// heard collects the events of a followed log.
type heard struct {
	mu     sync.Mutex // guards events
	events []string
}

func (h *heard) emit(name string, data any) error {
	raw, err := rpc.Marshal(data)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, name+" "+string(raw))
	return err
}

func (h *heard) all() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(h.events, "\n")
}

// follow runs apps.follow through the gate.
func (h house) follow(ctx context.Context, c caller.Caller, params string, emit rpc.Emit) (string, error) {
	result, err := h.Call(ctx, c, rpc.People, "apps.follow", jsontext.Value(params), emit)
	if err != nil {
		return "", err
	}
	raw, err := rpc.Marshal(result)
	return string(raw), err
}

// The lines come as they are written, after the last ones from before; a viewer, a peer and a tool get none.
func TestFollow(t *testing.T) {
	rt := runtime("docker", App{Name: "immich", Foreign: true, State: Running})
	h := furnish(t, rt)
	var got heard
	ended := make(chan error, 1)
	go func() {
		_, err := h.follow(t.Context(), member, `{"app":"immich","lines":2}`, got.emit)
		ended <- err
	}()
	rt.more <- Line{Stream: "stdout", Service: "db", Text: "new"}
	close(rt.more)
	if err := <-ended; !fault.Is(err, fault.NotFound) {
		t.Errorf("%v", err)
	}
	want := `start {"app":"docker:immich"}
line {"stream":"output","text":"immich 0"}
line {"stream":"output","text":"immich 1"}
line {"stream":"stdout","service":"db","text":"new"}`
	if got.all() != want {
		t.Errorf("%s", got.all())
	}
	if _, err := h.follow(t.Context(), viewer, `{"app":"immich"}`, got.emit); !fault.Is(err, fault.Forbidden) {
		t.Errorf("a viewer: %v", err)
	}
	if _, err := h.Call(t.Context(), member, rpc.Tools, "apps.follow", jsontext.Value(`{"app":"immich"}`), got.emit); !fault.Is(err, fault.Forbidden) {
		t.Errorf("a tool: %v", err)
	}
	for _, lines := range []string{"-1", "501", "1.5", `"1"`} {
		if _, err := h.follow(t.Context(), member, `{"app":"immich","lines":`+lines+`}`, got.emit); !fault.Is(err, fault.InvalidParams) || fault.Of(err).Field != "lines" {
			t.Errorf("lines %s: %v", lines, err)
		}
	}
	gone := errors.New("the client is gone")
	_, err := h.follow(t.Context(), member, `{"app":"immich","lines":1}`, func(name string, _ any) error {
		if name == "line" {
			return gone
		}
		return nil
	})
	if !errors.Is(err, gone) {
		t.Errorf("%v", err)
	}
}

// After an hour it ends as a result; when its caller goes, as cancelled.
func TestFollowEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := furnish(t, runtime("process", App{Name: "one", State: Running}))
		begin := time.Now()
		got, err := h.follow(t.Context(), member, `{"app":"one","lines":3}`, func(string, any) error { return nil })
		if err != nil || got != `{"app":"one","lines":3}` || time.Since(begin) != followTime {
			t.Errorf("%s %v after %s", got, err, time.Since(begin))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := h.follow(ctx, member, `{"app":"one"}`, func(string, any) error { return nil }); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
	})
}

// An account follows eight logs at most; a place that is left is free.
func TestFollowBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := furnish(t, runtime("process", App{Name: "one", State: Running}))
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		quiet := func(string, any) error { return nil }
		for range maxFollowing {
			all.Go(func() { _, _ = h.follow(ctx, member, `{"app":"one"}`, quiet) })
		}
		synctest.Wait()
		if _, err := h.follow(ctx, member, `{"app":"one"}`, quiet); !fault.Is(err, fault.RateLimited) || !strings.Contains(fault.Of(err).Public, "8 logs already") {
			t.Errorf("%v", err)
		}
		other := caller.Operator(7, "otto", caller.Owner, "s7", "127.0.0.1")
		all.Go(func() { _, _ = h.follow(ctx, other, `{"app":"one"}`, quiet) })
		synctest.Wait()
		cancel()
		all.Wait()
		if len(h.following) != 0 {
			t.Errorf("%v", h.following)
		}
	})
}

// What writes too fast is shown in part, by lines and by bytes, with a mark, and fully again afterwards.
func TestBrake(t *testing.T) {
	now := time.Date(2026, 12, 2, 12, 0, 0, 0, time.UTC)
	for name, size := range map[string]int{"lines": 1, "bytes": MaxLine} {
		var got heard
		b := brake{now: func() time.Time { return now }, emit: got.emit}
		for i := range 2000 {
			if err := b.line(Line{Text: fmt.Sprint(i, " ", strings.Repeat("x", size))}); err != nil {
				t.Fatal(err)
			}
		}
		if b.given+b.left != 2000 || b.given > maxLineRate || b.given*size > maxBytesRate || b.given < 20 || len(got.events) != b.given+1 ||
			!strings.Contains(got.events[len(got.events)-1], "lines are left out from here on") {
			t.Errorf("%s: %d given, %d left out, %d events", name, b.given, b.left, len(got.events))
		}
		left := b.left
		now = now.Add(time.Second)
		if err := b.line(Line{Text: "calm"}); err != nil {
			t.Fatal(err)
		}
		tail := strings.Join(got.events[len(got.events)-2:], "\n")
		if !strings.Contains(tail, fmt.Sprintf("%d lines were left out", left)) || !strings.HasSuffix(tail, `"text":"calm"}`) {
			t.Errorf("%s: %s", name, tail)
		}
	}
}
