package notice

import (
	"fmt"
	"strings"
	"sync"
	"testing"
)

func text(t *testing.T, c *Counters) string {
	t.Helper()
	var b strings.Builder
	if n, err := c.WriteTo(&b); err != nil || int(n) != b.Len() {
		t.Fatal(n, err)
	}
	return b.String()
}

func TestCountersAsText(t *testing.T) {
	c, err := NewCounters(CountersConfig{Help: map[string]string{"b_total": "Of b.\nAnd \\ more."},
		Gauges: []Gauge{{"memory_bytes", "In use.", func() float64 { return 1.5 }}}})
	if err != nil {
		t.Fatal(err)
	}
	c.Count("a_total")
	c.Add("a_total", 41)
	c.Add("a_total", -5)
	c.Count("bad name\n")
	want := `# TYPE atoll_a_total counter
atoll_a_total 42
# HELP atoll_b_total Of b.\nAnd \\ more.
# TYPE atoll_b_total counter
atoll_b_total 0
# TYPE atoll_uncounted_total counter
atoll_uncounted_total 1
# HELP atoll_memory_bytes In use.
# TYPE atoll_memory_bytes gauge
atoll_memory_bytes 1.5
`
	if got := text(t, c); got != want {
		t.Errorf("got\n%s", got)
	}
}

// N1: counters belong to one node; names from nowhere cannot grow the table; counting together loses nothing.
func TestCountersAreBoundedAndApart(t *testing.T) {
	a, err := NewCounters(CountersConfig{})
	if err != nil {
		t.Fatal(err)
	}
	b, err := NewCounters(CountersConfig{})
	if err != nil {
		t.Fatal(err)
	}
	var g sync.WaitGroup
	for range 4 {
		g.Go(func() {
			for i := range 1000 {
				a.Count("x_total")
				a.Count(fmt.Sprintf("n%d_total", i))
			}
		})
	}
	g.Wait()
	if a.Get("x_total") != 4000 || b.Get("x_total") != 0 || b.Get(overflow) != 0 {
		t.Errorf("%d, %d", a.Get("x_total"), b.Get("x_total"))
	}
	if len(a.counts) != maxCounters || a.Get(overflow) == 0 {
		t.Errorf("%d counters", len(a.counts))
	}
	sum := int64(0)
	for _, n := range a.counts {
		sum += n.Load()
	}
	if sum != 8000 {
		t.Errorf("%d events of 8000 were counted", sum)
	}
	for _, bad := range []CountersConfig{{Help: map[string]string{"A": ""}}, {Gauges: []Gauge{{Name: "x"}}}, {Gauges: []Gauge{{"uncounted_total", "", func() float64 { return 0 }}}},
		{Gauges: []Gauge{{"1x", "", func() float64 { return 0 }}}}} {
		if _, err := NewCounters(bad); err == nil {
			t.Errorf("%+v was accepted", bad)
		}
	}
}
