package notice

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// Gauge is a figure that is read when it is asked for.
type Gauge struct {
	Name string // lower-case letters, digits and "_"; gets the prefix "atoll_"
	Help string
	Read func() float64
}

// CountersConfig describes a node's figures.
type CountersConfig struct {
	// Help explains counters by name. Those named here are shown from the start, at zero.
	Help   map[string]string
	Gauges []Gauge
}

// maxCounters bounds the names: they come from code, so more are a mistake, and are counted together.
const maxCounters = 256

// overflow counts what had no room or no good name.
const overflow = "uncounted_total"

// Counters are one node's figures, injected so that nodes side by side do not share them. They are safe for concurrent
// use.
type Counters struct {
	cfg CountersConfig

	mu     sync.RWMutex // guards the map, not the counts
	counts map[string]*atomic.Int64
}

// NewCounters makes counters at zero.
func NewCounters(cfg CountersConfig) (*Counters, error) {
	c := &Counters{cfg: cfg, counts: map[string]*atomic.Int64{overflow: {}}}
	for name := range cfg.Help {
		if !goodName(name) {
			return nil, fmt.Errorf("notice: %q is no name of a counter", name)
		}
		c.counts[name] = new(atomic.Int64)
	}
	for _, g := range cfg.Gauges {
		if !goodName(g.Name) || g.Read == nil || c.counts[g.Name] != nil {
			return nil, fmt.Errorf("notice: gauge %q has no good name, one that is taken, or nothing to read", g.Name)
		}
	}
	return c, nil
}

func goodName(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < 'a' || c > 'z') && c != '_' && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != "" && len(s) <= 100
}

// Count adds one.
func (c *Counters) Count(name string) { c.Add(name, 1) }

// Add adds n, which is not negative; a counter that is not there yet begins at zero.
func (c *Counters) Add(name string, n int64) {
	if n > 0 {
		c.counter(name).Add(n)
	}
}

// Get is the count of a name; zero for one that was never counted.
func (c *Counters) Get(name string) int64 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if n := c.counts[name]; n != nil {
		return n.Load()
	}
	return 0
}

func (c *Counters) counter(name string) *atomic.Int64 {
	c.mu.RLock()
	n := c.counts[name]
	c.mu.RUnlock()
	if n != nil {
		return n
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if n = c.counts[name]; n != nil {
		return n
	}
	if len(c.counts) >= maxCounters || !goodName(name) {
		return c.counts[overflow]
	}
	n = new(atomic.Int64)
	c.counts[name] = n
	return n
}

// WriteTo writes all figures in the text format of Prometheus, version 0.0.4.
func (c *Counters) WriteTo(w io.Writer) (int64, error) {
	c.mu.RLock()
	counts := maps.Clone(c.counts)
	c.mu.RUnlock()
	var b bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		writeFigure(&b, name, "counter", c.cfg.Help[name], strconv.FormatInt(counts[name].Load(), 10))
	}
	gauges := slices.SortedFunc(slices.Values(c.cfg.Gauges), func(a, b Gauge) int { return cmp.Compare(a.Name, b.Name) })
	for _, g := range gauges {
		writeFigure(&b, g.Name, "gauge", g.Help, strconv.FormatFloat(g.Read(), 'g', -1, 64))
	}
	return b.WriteTo(w)
}

func writeFigure(b *bytes.Buffer, name, kind, help, value string) {
	if help != "" {
		fmt.Fprintf(b, "# HELP atoll_%s %s\n", name, strings.NewReplacer(`\`, `\\`, "\n", `\n`).Replace(help))
	}
	fmt.Fprintf(b, "# TYPE atoll_%s %s\natoll_%s %s\n", name, kind, name, value)
}
