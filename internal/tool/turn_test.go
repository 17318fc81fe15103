package tool

import (
	"fmt"
	"testing"
	"time"

	"atoll/internal/grant"
	"atoll/internal/model"
)

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
