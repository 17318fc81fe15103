// Package limit counts events per key in exact sliding windows (G4). It knows no session, account or address: a key is
// whatever its caller counts by. It keeps nothing across a restart.
package limit

import (
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"math/bits"
	"time"
)

const (
	// maxMax bounds Config.Max: a key's count and its place in the ring are 15 bits each.
	maxMax = 1<<15 - 1
	// maxKeys bounds Config.MaxKeys, far from where the 27 bits of a block's number end.
	maxKeys = 1 << 26
	// maxShards is how many locks a large limiter has; shardKeys is how many keys make another one worth it.
	maxShards = 16
	shardKeys = 4096
)

// Config is what a Limiter is made from.
type Config struct {
	Max     int              // calls that one key may make in any Window, 1 to 32767
	Window  time.Duration    // above zero
	Soft    int              // calls in a Window that are worth a notice, at most Max; 0 means none
	MaxKeys int              // keys that can be counted at once, 1 to 2^26
	Now     func() time.Time // nil means the machine's monotonic clock, which is also the fastest
}

// Decision is the answer to one call. The zero Decision is a refusal.
type Decision struct {
	OK         bool          // the call may go on, and was counted
	RetryAfter time.Duration // for a refused call: when the next can pass; a refused call counts for nothing
	Soft       bool          // the count has reached the soft mark; true at most once in any Window of one key
}

// Limiter is safe for concurrent use. The zero Limiter, and a nil one, refuse every call.
//
// Times are kept in ticks of 1 ns for windows up to two seconds, else of the window's 2^31st part, rounded up to a
// power of two (256 ns for five minutes). Rounding is always towards refusing.
//
// When MaxKeys keys are live, a new key is refused until one has been idle for a whole Window. The least recently used
// key is not evicted for it, since a flood of invented keys could then wipe out the counts of others or of its own
// maker (F-F6). Past 8191 MaxKeys, keys spread over several tables by a random hash, and one of them can be full a
// little before all are.
type Limiter struct {
	seeds  [2]maphash.Seed
	now    func() time.Time
	start  time.Time
	shift  uint   // a tick is 1<<shift nanoseconds
	span   int64  // ticks after which an event no longer counts; below 2^31
	gap    int64  // ticks between two searches for room in a full shard
	max    int    // events a key
	soft   int    // 0 means none
	room   int    // keys a shard
	words  []int  // size of a block of each class, ascending; the last holds max events
	mask   uint64 // number of shards - 1
	shards []shard
}

// New makes a Limiter. Its error names the field that is wrong.
func New(cfg Config) (*Limiter, error) {
	switch {
	case cfg.Max < 1 || cfg.Max > maxMax:
		return nil, fmt.Errorf("limit: Max is %d, it must be 1 to %d", cfg.Max, maxMax)
	case cfg.Window <= 0:
		return nil, errors.New("limit: Window must be above zero")
	case cfg.Soft < 0 || cfg.Soft > cfg.Max:
		return nil, fmt.Errorf("limit: Soft is %d, it must be 0 to Max, which is %d", cfg.Soft, cfg.Max)
	case cfg.MaxKeys < 1 || cfg.MaxKeys > maxKeys:
		return nil, fmt.Errorf("limit: MaxKeys is %d, it must be 1 to %d", cfg.MaxKeys, maxKeys)
	}
	l := &Limiter{seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}, now: cfg.Now, max: cfg.Max, soft: cfg.Soft}
	// A ring entry is 32 bits and can be up to two windows old when it is looked at.
	for l.span = int64(cfg.Window); l.span >= math.MaxInt32; l.span = ceilShift(int64(cfg.Window), l.shift) + 1 {
		l.shift++ // the 1 above: two rounded times can look one tick further apart than they are
	}
	l.gap = l.span/64 + 1
	for w := smallestBlock; w < cfg.Max; w *= 2 {
		l.words = append(l.words, w)
	}
	l.words = append(l.words, cfg.Max)
	n := 1
	for n < maxShards && cfg.MaxKeys/(2*n) >= shardKeys {
		n *= 2
	}
	l.mask, l.room, l.shards = uint64(n-1), cfg.MaxKeys/n, make([]shard, n)
	l.start = time.Now()
	if l.now != nil {
		l.start = l.now()
	}
	return l, nil
}

func ceilShift(v int64, shift uint) int64 { return (v + 1<<shift - 1) >> shift }

// Allow counts a call of key if it may go on.
func (l *Limiter) Allow(key string) Decision {
	if l == nil || len(l.shards) == 0 {
		return Decision{}
	}
	h := hash{maphash.String(l.seeds[0], key), maphash.String(l.seeds[1], key)}
	now := l.ticks()
	s := &l.shards[h.b&l.mask]
	s.mu.Lock()
	d := s.allow(l, h, now)
	s.mu.Unlock()
	return d
}

// Sweep forgets the keys that have been idle for a whole Window and gives their memory back. Its owner calls it every
// five minutes.
func (l *Limiter) Sweep() {
	if l == nil {
		return
	}
	now := l.ticks()
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		s.now = max(s.now, now)
		if s.keys > 0 {
			s.rebuild(l, s.now, 0, true)
		}
		s.mu.Unlock()
	}
}

// Keys is how many keys are held, idle ones that were not swept included.
func (l *Limiter) Keys() int {
	if l == nil {
		return 0
	}
	n := 0
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		n += s.keys
		s.mu.Unlock()
	}
	return n
}

// ticks is the time since New. It never depends on the wall where the clock has a monotonic reading.
func (l *Limiter) ticks() int64 {
	if l.now == nil {
		return int64(time.Since(l.start)) >> l.shift
	}
	return int64(l.now().Sub(l.start)) >> l.shift
}

func (l *Limiter) wait(ticks int64) time.Duration { return time.Duration(ticks << l.shift) }

// hash stands for a key. At 128 random-keyed bits, two keys never share one.
type hash struct{ a, b uint64 }

// home is where a hash would stand in a table of n slots.
func (h hash) home(n int) int {
	hi, _ := bits.Mul64(h.a, uint64(n))
	return int(hi)
}
