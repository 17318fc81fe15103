// Package limit counts events per key in exact sliding windows (G4). It knows neither sessions nor addresses: a key is
// a string, and what is refused is the caller's to say.
package limit

import (
	"errors"
	"hash/maphash"
	"sync"
	"time"
)

// Config describes a limiter.
type Config struct {
	Max    int           // events allowed in any stretch of Window
	Window time.Duration // at most maxWindow
	Soft   int           // crossing this many is told once a window; zero means never
	// MaxKeys bounds the table. When it is full of live keys, new ones share one count a shard: a flood of keys neither
	// grows memory, nor resets anybody's count, nor locks newcomers out for longer than the shared window.
	MaxKeys int
	Now     func() time.Time // nil means time.Now; only differences of monotonic readings count
}

// maxWindow keeps millisecond ticks of 32 bits apart.
const maxWindow = 7 * 24 * time.Hour

const shards = 64

// Limiter is safe for concurrent use. The zero Limiter refuses everything.
type Limiter struct {
	cfg    Config
	start  time.Time
	window uint32
	seed   maphash.Seed
	shard  []shard
}

type shard struct {
	mu    sync.Mutex // guards the rest
	index map[uint64]uint32
	slots []slot
	free  []uint32
	max   int
	rest  slot // what new keys share once the table is full
	_     [24]byte
}

// slot is one key's events: a ring of ticks, oldest at head.
type slot struct {
	ticks []uint32
	key   uint64
	soft  uint32 // the tick at which the soft mark was last told
	head  uint16
	n     uint16
	told  bool
}

// New checks the Config and makes a Limiter.
func New(cfg Config) (*Limiter, error) {
	switch {
	case cfg.Max <= 0 || cfg.Max > 1<<15:
		return nil, errors.New("limit: Max must be from 1 to 32768")
	case cfg.Window < time.Millisecond || cfg.Window > maxWindow:
		return nil, errors.New("limit: Window must be from a millisecond to seven days")
	case cfg.Soft < 0 || cfg.Soft >= cfg.Max:
		return nil, errors.New("limit: Soft must be below Max")
	case cfg.MaxKeys <= 0:
		return nil, errors.New("limit: MaxKeys must be positive")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	l := &Limiter{cfg: cfg, start: cfg.Now(), window: uint32(cfg.Window / time.Millisecond), seed: maphash.MakeSeed(),
		shard: make([]shard, shards)}
	for i := range l.shard {
		l.shard[i].index = map[uint64]uint32{}
		l.shard[i].max = (cfg.MaxKeys + shards - 1) / shards
	}
	return l, nil
}

// Decision is the answer to one event.
type Decision struct {
	OK         bool
	RetryAfter time.Duration // when refused: how long until one would be allowed
	Soft       bool          // true once a window, at the event that crosses the soft mark
}

// Allow counts one event of the key if it is allowed. Refused events do not count.
func (l *Limiter) Allow(key string) Decision {
	if l.shard == nil {
		return Decision{}
	}
	h := maphash.String(l.seed, key)
	s := &l.shard[h%shards]
	since := l.cfg.Now().Sub(l.start)
	now := uint32(since / time.Millisecond)
	s.mu.Lock()
	defer s.mu.Unlock()
	return l.count(l.slotOf(s, h, now), now, since)
}

func (l *Limiter) slotOf(s *shard, h uint64, now uint32) *slot {
	if i, ok := s.index[h]; ok {
		return &s.slots[i]
	}
	if len(s.index) >= s.max && l.sweepShard(s, now) == 0 {
		return &s.rest
	}
	if n := len(s.free); n > 0 {
		i := s.free[n-1]
		s.free = s.free[:n-1]
		s.index[h] = i
		s.slots[i].key = h
		return &s.slots[i]
	}
	s.index[h] = uint32(len(s.slots))
	s.slots = append(s.slots, slot{key: h})
	return &s.slots[len(s.slots)-1]
}

// count drops what has left the window and decides. Ticks are rounded up when stored and down when compared, so that
// never more than Max fall in any window.
func (l *Limiter) count(k *slot, now uint32, since time.Duration) Decision {
	for k.n > 0 && int32(now-k.ticks[k.head]) >= int32(l.window) {
		k.head = (k.head + 1) % uint16(len(k.ticks))
		k.n--
	}
	if int(k.n) >= l.cfg.Max {
		free := time.Duration(k.ticks[k.head]-now+l.window)*time.Millisecond - since%time.Millisecond
		return Decision{RetryAfter: max(free, time.Millisecond)}
	}
	if int(k.n) == len(k.ticks) {
		k.grow(l.cfg.Max)
	}
	tick := now
	if since%time.Millisecond != 0 {
		tick++
	}
	k.ticks[(int(k.head)+int(k.n))%len(k.ticks)] = tick
	k.n++
	d := Decision{OK: true}
	if l.cfg.Soft > 0 && int(k.n) == l.cfg.Soft && !(k.told && int32(now-k.soft) < int32(l.window)) {
		k.told, k.soft, d.Soft = true, now, true
	}
	return d
}

// grow makes room in steps, so that a key that came once costs little.
func (k *slot) grow(most int) {
	size := 2
	for size <= len(k.ticks) {
		size *= 2
	}
	wider := make([]uint32, min(size, most))
	for i := range int(k.n) {
		wider[i] = k.ticks[(int(k.head)+i)%len(k.ticks)]
	}
	k.ticks, k.head = wider, 0
}

// Sweep forgets keys whose events have all left the window.
func (l *Limiter) Sweep() {
	for i := range l.shard {
		s := &l.shard[i]
		now := uint32(l.cfg.Now().Sub(l.start) / time.Millisecond)
		s.mu.Lock()
		l.sweepShard(s, now)
		s.mu.Unlock()
	}
}

func (l *Limiter) sweepShard(s *shard, now uint32) (freed int) {
	for h, i := range s.index {
		k := &s.slots[i]
		last := k.ticks[(int(k.head)+int(k.n)+len(k.ticks)-1)%len(k.ticks)]
		if k.n > 0 && int32(now-last) < int32(l.window) {
			continue
		}
		delete(s.index, h)
		*k = slot{}
		s.free = append(s.free, i)
		freed++
	}
	return freed
}

// Keys is how many keys are held.
func (l *Limiter) Keys() int {
	n := 0
	for i := range l.shard {
		s := &l.shard[i]
		s.mu.Lock()
		n += len(s.index)
		s.mu.Unlock()
	}
	return n
}
