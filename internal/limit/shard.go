package limit

import "sync"

// A table is at most 7/8 full and grows by a quarter, so that it is never less than 7/10 full for long.
const (
	fullNum, fullDen = 7, 8
	growNum, growDen = 5, 4
	smallestTable    = 8
)

const (
	firedBit  = 1 << 15 // in slot.count: the soft mark was reported, at the time in the block's first word
	classBits = 5       // in slot.block
	classMask = 1<<classBits - 1
)

// slot is one key: the time of its newest event, and a block with the older ones where there are any. An empty slot has
// a count of zero. It holds no pointer, so the garbage collector never looks into a table.
type slot struct {
	key   hash
	last  int64  // ticks
	block uint32 // number << classBits | class+1; 0 means none
	head  uint16 // place of the oldest event in the ring
	count uint16 // events, the newest included, and firedBit
}

func (e *slot) n() int         { return int(e.count &^ firedBit) }
func (e *slot) class() int     { return int(e.block&classMask) - 1 }
func (e *slot) number() uint32 { return e.block >> classBits }

// shard is an open-addressed table with linear probing.
type shard struct {
	mu    sync.Mutex // guards all below
	slots []slot
	keys  int
	slabs []slab // by class
	now   int64  // the latest tick seen
	retry int64  // while full: no search for room before this tick
	_     [48]byte
}

// find is the place of the key, or of the empty slot where it belongs; -1 without a table.
func (s *shard) find(h hash) (int, bool) {
	if len(s.slots) == 0 {
		return -1, false
	}
	for i := h.home(len(s.slots)); ; {
		e := &s.slots[i]
		if e.count == 0 {
			return i, false
		}
		if e.key == h {
			return i, true
		}
		if i++; i == len(s.slots) {
			i = 0
		}
	}
}

// allow counts a call. A time before one that was already seen is taken for that one: another caller read the clock
// later and came first, or a clock without monotonic reading was set back.
func (s *shard) allow(l *Limiter, h hash, read int64) Decision {
	now := max(read, s.now)
	s.now = now
	i, found := s.find(h)
	if !found {
		return s.admit(l, h, i, read)
	}
	e := &s.slots[i]
	if now-e.last >= l.span {
		s.release(e)
		e.count, e.head = 0, 0
		return s.count(l, e, now)
	}
	oldest := s.expire(l, e, now)
	if e.n() == l.max {
		return Decision{RetryAfter: l.wait(l.span - oldest + now - read)}
	}
	return s.count(l, e, now)
}

// admit counts the first event of a key, in slot i if the table has room.
func (s *shard) admit(l *Limiter, h hash, i int, read int64) Decision {
	now := s.now
	if s.keys >= l.room {
		if now >= s.retry {
			s.rebuild(l, now, 1, false)
		}
		if s.keys >= l.room {
			return Decision{RetryAfter: l.wait(max(1, s.retry-read))}
		}
		i, _ = s.find(h)
	} else if (s.keys+1)*fullDen > len(s.slots)*fullNum {
		s.rebuild(l, now, 1, false)
		i, _ = s.find(h)
	}
	s.keys++
	s.slots[i].key = h
	return s.count(l, &s.slots[i], now)
}

// expire drops the events that are out of the window, given that the newest is not, and returns the age of the oldest.
func (s *shard) expire(l *Limiter, e *slot, now int64) int64 {
	if e.n() == 1 {
		return now - e.last
	}
	b := s.ring(e)
	for e.n() > 1 {
		age := int64(uint32(now) - b[e.head]) // exact: it is below two spans, so below 2^32
		if age < l.span {
			return age
		}
		if e.head++; int(e.head) == len(b) {
			e.head = 0
		}
		e.count--
	}
	return now - e.last
}

// count adds an event at now and says whether the soft mark is reached.
func (s *shard) count(l *Limiter, e *slot, now int64) Decision {
	if older := e.n(); older > 0 {
		if e.block == 0 || older > len(s.ring(e)) {
			s.resize(l, e, older)
		}
		b := s.ring(e)
		at := int(e.head) + older - 1
		if at >= len(b) {
			at -= len(b)
		}
		b[at] = uint32(e.last)
	}
	e.last = now
	e.count++
	if l.soft == 0 {
		return Decision{OK: true}
	}
	return Decision{OK: true, Soft: s.fire(l, e, now)}
}

// fire reports the soft mark if it is reached and was not reported within the window.
func (s *shard) fire(l *Limiter, e *slot, now int64) bool {
	if e.count&firedBit != 0 && int64(uint32(now)-*s.fired(e)) >= l.span {
		e.count &^= firedBit // cleared at the first event after it, so its 32 bits are never ambiguous
	}
	if e.count&firedBit != 0 || e.n() < l.soft {
		return false
	}
	if e.block == 0 {
		s.resize(l, e, 0)
	}
	*s.fired(e) = uint32(now)
	e.count |= firedBit
	return true
}

// rebuild makes the table anew without idle keys and with room for more. compact also moves the older events into fresh
// blocks of the smallest class that holds them.
func (s *shard) rebuild(l *Limiter, now int64, more int, compact bool) {
	live, oldest := 0, now
	for i := range s.slots {
		e := &s.slots[i]
		switch {
		case e.count == 0:
		case now-e.last >= l.span:
			s.release(e)
			e.count = 0
		default:
			live++
			oldest = min(oldest, e.last)
		}
	}
	s.retry = max(oldest+l.span, now+l.gap)
	if more > 0 && live >= l.room && live == s.keys {
		return // full, and nothing to drop
	}
	slots, slabs := s.slots, s.slabs
	s.slots, s.keys = nil, live
	if live+more > 0 {
		s.slots = make([]slot, tableSize(live+more, l.room))
	}
	if compact {
		s.slabs = nil
	}
	for i := range slots {
		e := &slots[i]
		if e.count == 0 {
			continue
		}
		if compact && e.block != 0 {
			old := slabs[e.class()].block(e.number())
			s.put(l, e, old, e.n()-1)
		}
		j, _ := s.find(e.key)
		s.slots[j] = *e
	}
}

func tableSize(keys, room int) int {
	full := func(n int) int { return n*fullDen/fullNum + 1 }
	return max(smallestTable, min(full(keys)*growNum/growDen, full(room)))
}
