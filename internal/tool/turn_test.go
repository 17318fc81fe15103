package tool

import (
	"context"
	"fmt"
	"testing"
	"time"

	"atoll/internal/grant"
	"atoll/internal/model"
)

// C9, G6, T14: a turn that was stopped while it asked goes no further in the same answer: nothing is read, nobody is asked.
func TestStoppedTurnGoesNoFurther(t *testing.T) {
	b := newBench(t)
	b.open(grant.Apps)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	turn := b.begin()
	done := make(chan struct{})
	go func() {
		defer close(done)
		turn.Run(ctx, []*model.Call{call("app_stop", `{"app":"jellyfin"}`), call("app_list", "{}"), call("app_restart", `{"app":"photos"}`)}, false)
	}()
	b.pending()
	stop()
	<-done
	if got := codes(turn); got != "refused:cancelled refused:cancelled refused:cancelled" {
		t.Error(got)
	}
	if n := b.rooms.count("apps.list"); n != 0 {
		t.Errorf("read %d times after the stop", n)
	}
	b.notAsked()
}

// T6: reads overlap, and yet invalid calls count in the order in which the model wrote them.
func TestInvalidCallsOverlap(t *testing.T) {
	b := newBench(t)
	b.open(grant.Apps)
	good, bad := `{"app":"jellyfin"}`, `{"app":7}`
	for range 30 {
		for _, tc := range []struct {
			args []string
			ends bool
		}{{[]string{bad, bad, good, bad, bad}, false}, {[]string{good, bad, bad, bad}, true}, {[]string{bad, bad, bad, good}, true}} {
			b.advance(time.Minute)
			var calls []*model.Call
			for i, args := range tc.args {
				c := call("app_logs", args)
				c.ID = fmt.Sprint("c", i)
				calls = append(calls, c)
			}
			turn := b.begin()
			if _, v := turn.Run(t.Context(), calls, false); v.End.IsEmpty() == tc.ends {
				t.Fatalf("%v: ended %v", tc.args, !v.End.IsEmpty())
			}
		}
	}
}

// T13: reads overlap, and yet a loop is told by the order in which the model wrote them.
func TestLoopsOverlap(t *testing.T) {
	b := newBench(t)
	b.open(grant.Apps)
	for range 100 {
		b.advance(time.Minute)
		var calls []*model.Call
		for i := range 4 {
			calls = append(calls, call([...]string{"app_list", "app_logs"}[i%2], [...]string{"{}", `{"app":"jellyfin"}`}[i%2]))
		}
		if _, v := b.begin().Run(t.Context(), calls, false); !v.Loop {
			t.Fatal("two calls in alternation were not told from others")
		}
	}
}
