package soak

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// sample is the node at one moment, and how healthy calls went since the sample before.
type sample struct {
	Seconds    float64 `json:"seconds"`
	RSS        int64   `json:"rss"`    // bytes
	Held       uint64  `json:"held"`   // bytes, by Go
	Caches     int64   `json:"caches"` // bytes, by nobody's heap: SQLite's page caches
	Heap       uint64  `json:"heap"`   // bytes
	Goroutines int     `json:"goroutines"`
	Files      int     `json:"files"`
	WAL        int64   `json:"wal"`  // bytes
	Disk       int64   `json:"disk"` // bytes
	P50        float64 `json:"read_p50_ms"`
	P99        float64 `json:"read_p99_ms"`
	Chat50     float64 `json:"chat_p50_ms"`
	Chat99     float64 `json:"chat_p99_ms"`
	Turns      int     `json:"turns_done"` // since the start
}

const header = "      s  rss MiB   go MiB   sqlite heap MiB   gor  files  wal KiB disk MiB   read p50   p99 ms   chat p50   p99 ms    turns"

func (s sample) String() string {
	return fmt.Sprintf("%7.0f %8.1f %8.1f %8.1f %8.1f %5d %6d %8d %8.1f %10.1f %8.1f %10.1f %8.1f %8d", s.Seconds, float64(s.RSS)/(1<<20),
		float64(s.Held)/(1<<20), float64(s.Caches)/(1<<20), float64(s.Heap)/(1<<20), s.Goroutines, s.Files, s.WAL>>10, float64(s.Disk)/(1<<20), s.P50, s.P99, s.Chat50, s.Chat99, s.Turns)
}

// latencies are times of calls, in milliseconds.
type latencies struct {
	mu     sync.Mutex // guards both
	all    []float64
	window []float64
}

func (l *latencies) add(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ms := float64(d) / float64(time.Millisecond)
	l.all, l.window = append(l.all, ms), append(l.window, ms)
}

// cut returns the window's median and 99th percentile, and begins a new window.
func (l *latencies) cut() (p50, p99 float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.window
	l.window = nil
	return quantile(w, .5), quantile(w, .99)
}

func (l *latencies) whole() (p50, p99 float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return quantile(l.all, .5), quantile(l.all, .99)
}

func quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return 0
	}
	v := slices.Sorted(slices.Values(values))
	return v[min(len(v)-1, int(q*float64(len(v))))]
}

// growth is how much a figure rose over the last two thirds of the samples, by the median of the slopes between all
// pairs (Theil and Sen): a few outliers do not move it.
func growth(samples []sample, of func(sample) float64) float64 {
	last := samples[len(samples)/3:]
	if len(last) < 2 {
		return 0
	}
	var slopes []float64
	for i, a := range last {
		for _, b := range last[i+1:] {
			slopes = append(slopes, (of(b)-of(a))/(b.Seconds-a.Seconds))
		}
	}
	return quantile(slopes, .5) * (last[len(last)-1].Seconds - last[0].Seconds)
}

// bound is what a figure may grow by over the last two thirds: a share of its median, and no less than a floor.
type bound struct {
	name  string
	of    func(sample) float64
	floor float64
	share float64
}

const mib = 1 << 20

// cacheCeiling bounds SQLite's memory. It is no flat line within half an hour, since the caches fill as histories grow:
// some 0.85 MiB for each open file, of which 32 are kept, and more while turns wait in more. Deleting a conversation
// rebuilds its caller's file in memory, which takes twice the file for a moment and leaves gaps: seen were 33 to 65 MiB.
const cacheCeiling = 80 * mib

// bounds are the limits of "flat". The disk is not among them: what people said is kept.
func bounds() []bound {
	return []bound{
		{"resident memory without SQLite's, bytes", func(s sample) float64 { return float64(s.RSS - s.Caches) }, 8 * mib, .08},
		{"goroutines", func(s sample) float64 { return float64(s.Goroutines) }, 25, .08},
		{"open files", func(s sample) float64 { return float64(s.Files) }, 15, .08},
		{"write-ahead logs, bytes", func(s sample) float64 { return float64(s.WAL) }, 4 * mib, .08},
	}
}

// risen names the figures that are not flat, and tells of all of them.
func risen(samples []sample) (words string, bad []string) {
	var b strings.Builder
	for _, bound := range bounds() {
		var all []float64
		for _, s := range samples[len(samples)/3:] {
			all = append(all, bound.of(s))
		}
		middle := quantile(all, .5)
		grown, allowed := growth(samples, bound.of), max(bound.floor, bound.share*middle)
		line := fmt.Sprintf("%s: median %.0f, grown by %.0f over the last two thirds, at most %.0f", bound.name, middle, grown, allowed)
		b.WriteString("  " + line + "\n")
		if grown > allowed {
			bad = append(bad, line)
		}
	}
	most := slices.MaxFunc(samples, func(a, b sample) int { return cmp.Compare(a.Caches, b.Caches) }).Caches
	line := fmt.Sprintf("SQLite's memory, bytes: %d at most, of %d", most, cacheCeiling)
	b.WriteString("  " + line + "\n")
	if most > cacheCeiling {
		bad = append(bad, line)
	}
	return b.String(), bad
}

// A rise is found under noise and outliers, and noise alone is none.
func TestRisen(t *testing.T) {
	series := func(rise float64) []sample {
		var out []sample
		for i := range 90 {
			noise := float64((i*7919)%13) - 6
			s := sample{Seconds: float64(i * 10), RSS: int64(100*mib + noise*mib + rise*mib*float64(i)/60), Goroutines: 300 + int(noise), Files: 80}
			if i%20 == 0 {
				s.RSS *= 3
			}
			out = append(out, s)
		}
		return out
	}
	if words, bad := risen(series(0)); len(bad) > 0 {
		t.Errorf("noise is taken for a rise: %v\n%s", bad, words)
	}
	if words, bad := risen(series(12)); len(bad) != 1 {
		t.Errorf("a leak of 12 MiB is not seen: %v\n%s", bad, words)
	}
	full := series(0)
	full[3].Caches = cacheCeiling + 1
	if words, bad := risen(full); len(bad) != 1 {
		t.Errorf("caches beyond their ceiling are not seen: %v\n%s", bad, words)
	}
	if q := quantile([]float64{3, 1, 2}, .5); q != 2 {
		t.Errorf("the median is %v", q)
	}
}
