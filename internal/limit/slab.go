package limit

// smallestBlock is the words of the smallest class. The first word of a block is when the soft mark was reported, the
// others are a ring of the 32 low bits of times, so a block of Max words holds all but a key's newest event.
const smallestBlock = 4

// chunkBlocks is how many blocks are allocated at once. A slab's first chunk starts with one and doubles up to that.
const chunkBlocks = 64

// slab hands out blocks of one size by number.
type slab struct {
	words  int
	chunks [][]uint32
	used   uint32 // blocks ever handed out
	free   uint32 // number+1 of the first free block; its first word is the number+1 of the next
}

func (b *slab) block(n uint32) []uint32 {
	at := int(n%chunkBlocks) * b.words
	return b.chunks[n/chunkBlocks][at : at+b.words : at+b.words]
}

func (b *slab) take() uint32 {
	if b.free != 0 {
		n := b.free - 1
		b.free = b.block(n)[0]
		return n
	}
	n := b.used
	b.used++
	c := int(n / chunkBlocks)
	switch {
	case c == len(b.chunks) && c == 0:
		b.chunks = append(b.chunks, make([]uint32, b.words))
	case c == len(b.chunks):
		b.chunks = append(b.chunks, make([]uint32, chunkBlocks*b.words))
	case int(n%chunkBlocks)*b.words == len(b.chunks[c]):
		bigger := make([]uint32, 2*len(b.chunks[c]))
		copy(bigger, b.chunks[c])
		b.chunks[c] = bigger
	}
	return n
}

func (b *slab) give(n uint32) {
	b.block(n)[0] = b.free
	b.free = n + 1
}

// block is the key's block, which it must have.
func (s *shard) block(e *slot) []uint32 { return s.slabs[e.class()].block(e.number()) }

func (s *shard) ring(e *slot) []uint32 { return s.block(e)[1:] }

func (s *shard) fired(e *slot) *uint32 { return &s.block(e)[0] }

// release gives the key's block back.
func (s *shard) release(e *slot) {
	if e.block != 0 {
		s.slabs[e.class()].give(e.number())
		e.block = 0
	}
}

// resize gives the key a block with room for need older events, and copies what it has.
func (s *shard) resize(l *Limiter, e *slot, need int) {
	if e.block == 0 {
		s.put(l, e, nil, need)
		return
	}
	old, class, number := s.block(e), e.class(), e.number()
	s.put(l, e, old, need)
	s.slabs[class].give(number)
}

// put moves the older events from block old into a new block with room for need.
func (s *shard) put(l *Limiter, e *slot, old []uint32, need int) {
	class := 0
	for l.words[class] < need+1 {
		class++
	}
	if s.slabs == nil {
		s.slabs = make([]slab, len(l.words))
		for i := range s.slabs {
			s.slabs[i].words = l.words[i]
		}
	}
	number := s.slabs[class].take()
	e.block = number<<classBits | uint32(class+1)
	if old == nil {
		return
	}
	to, ring := s.block(e), old[1:]
	to[0] = old[0]
	n := copy(to[1:e.n()], ring[e.head:])
	copy(to[1+n:e.n()], ring)
	e.head = 0
}
