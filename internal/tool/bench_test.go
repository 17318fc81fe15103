package tool

import (
	"testing"
	"time"

	"atoll/internal/audit"
	"atoll/internal/grant"
	"atoll/internal/rpc"
)

// BenchmarkRead is the choke point for a read without what it writes down: strict decode, offered, grant, schema, rule,
// dispatch, grade.
func BenchmarkRead(b *testing.B) {
	s := newBench(b)
	s.open(grant.Apps)
	turn := s.begin()
	call := call("app_logs", `{"app":"jellyfin","lines":100}`)
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		s.advance(time.Second) // the rate limit is on
		a := &attempt{t: turn, call: call}
		if err := a.known(0, false); err != nil {
			b.Fatal(err)
		}
		args, err := a.tool.schema.check(call.Args)
		if err != nil {
			b.Fatal(err)
		}
		if a.prepared, err = s.x.cfg.Gate.Prepare(ctx, turn.cfg.Caller, rpc.Tools, a.tool.Method, args); err != nil {
			b.Fatal(err)
		}
		result, _, err := s.x.dispatch(ctx, a.prepared, audit.Entry{})
		if err != nil {
			b.Fatal(err)
		}
		raw, err := rpc.Marshal(result)
		if err != nil {
			b.Fatal(err)
		}
		if text := a.grade(result, raw); text.IsEmpty() {
			b.Fatal("no text")
		}
	}
}
