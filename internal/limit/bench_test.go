package limit

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"
)

const million = 1_000_000

func names() []string {
	out := make([]string, million)
	for i := range out {
		out[i] = fmt.Sprintf("session-%08x", i)
	}
	return out
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// fill makes a limiter with a million keys of each events, and says its bytes a key.
func fill(b *testing.B, keys []string, each int, window time.Duration) (*Limiter, float64) {
	before := heap()
	l := must(b, Config{Max: 60, Window: window, Soft: 30, MaxKeys: 2 * million})
	for range each {
		for _, k := range keys {
			l.Allow(k)
		}
	}
	return l, float64(heap()-before) / million
}

// BenchmarkLimiter has the lines of the table: a call's time and allocations, and the memory of a key, at a million
// keys. idle: one event a key. full: 60 events, so refused. busy: a short window, so that events expire and are counted
// all the time. In each, a thousand of the keys call, as on a node under a flood, and then all in random order (cold),
// where a call takes what the machine's memory takes to answer.
func BenchmarkLimiter(b *testing.B) {
	keys := names()
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	for _, c := range []struct {
		name   string
		each   int
		window time.Duration
	}{{"idle", 1, time.Hour}, {"full", 60, time.Hour}, {"busy", 1, 100 * time.Millisecond}} {
		l, size := (*Limiter)(nil), 0.0
		for _, use := range []struct {
			name   string
			active int
		}{{"", 1000}, {"-cold", million}} {
			b.Run(c.name+use.name, func(b *testing.B) {
				if l == nil {
					l, size = fill(b, keys, c.each, c.window)
				}
				b.ReportAllocs()
				i := 0
				for b.Loop() {
					l.Allow(keys[i])
					if i++; i == use.active {
						i = 0
					}
				}
				if c.name != "busy" {
					b.ReportMetric(size, "bytes/key")
				}
			})
		}
	}
}

// BenchmarkOneKey is a call of a single key that is always in the cache.
func BenchmarkOneKey(b *testing.B) {
	l := must(b, Config{Max: 60, Window: 10 * time.Millisecond, Soft: 30, MaxKeys: 1000})
	b.ReportAllocs()
	for b.Loop() {
		l.Allow("session")
	}
}

// BenchmarkNewKey is the first call of a key, growth of the tables included.
func BenchmarkNewKey(b *testing.B) {
	keys := names()
	l := (*Limiter)(nil)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		if i == 0 {
			l = must(b, Config{Max: 60, Window: time.Hour, MaxKeys: 2 * million})
		}
		l.Allow(keys[i])
		i = (i + 1) % million
	}
}
