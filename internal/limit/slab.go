package limit

import (
	"math/bits"
	"slices"
)

// smallestBlock is the words of the smallest class. The first word of a block is when the soft mark was reported, the
// others are a ring of the 32 low bits of times, so a block of Max words holds all but a key's newest event.
const smallestBlock = 4

// chunkBlocks is how many blocks a chunk has, one a bit of chunk.free. A slab's first chunk starts with one and doubles.
const chunkBlocks = 64

// slab hands out blocks of one size by number.
type slab struct {
	words  int
	chunks []chunk
	open   []uint32 // chunks with a free block, the next one to take from last
	bare   []uint32 // chunks without memory
	empty  int      // chunks in open that are all free
}

type chunk struct {
	words []uint32
	free  uint64
}

func (b *slab) block(n uint32) []uint32 {
	at := int(n%chunkBlocks) * b.words
	return b.chunks[n/chunkBlocks].words[at : at+b.words : at+b.words]
}

func (b *slab) take() uint32 {
	if len(b.open) == 0 {
		b.grow()
	}
	n := b.open[len(b.open)-1]
	c := &b.chunks[n]
	if b.allFree(c) {
		b.empty--
	}
	bit := uint32(bits.TrailingZeros64(c.free))
	c.free &= c.free - 1
	if c.free == 0 {
		b.open = b.open[:len(b.open)-1]
	}
	return n*chunkBlocks + bit
}

// give takes a block back, and lets go of the chunk's memory if it is a second one that is all free: one is kept, so
// that a key that comes and goes allocates nothing.
func (b *slab) give(number uint32) {
	n := number / chunkBlocks
	c := &b.chunks[n]
	if c.free == 0 {
		b.open = append(b.open, n)
	}
	c.free |= 1 << (number % chunkBlocks)
	if !b.allFree(c) {
		return
	}
	if b.empty == 0 {
		b.empty++
		return
	}
	*c = chunk{}
	i := slices.Index(b.open, n)
	b.open[i] = b.open[len(b.open)-1]
	b.open = b.open[:len(b.open)-1]
	b.bare = append(b.bare, n)
}

// grow makes a chunk with free blocks, given that none has any.
func (b *slab) grow() {
	n, size := uint32(len(b.chunks)), chunkBlocks
	switch {
	case len(b.bare) > 0:
		n, b.bare = b.bare[len(b.bare)-1], b.bare[:len(b.bare)-1]
	case n == 0:
		size = 1
		b.chunks = append(b.chunks, chunk{})
	case n == 1 && b.blocks(&b.chunks[0]) < chunkBlocks:
		n, size = 0, 2*b.blocks(&b.chunks[0])
	default:
		b.chunks = append(b.chunks, chunk{})
	}
	c := &b.chunks[n]
	had := b.blocks(c)
	words := make([]uint32, size*b.words)
	copy(words, c.words)
	c.words, c.free = words, mask(size)&^mask(had)
	b.open = append(b.open, n)
	if had == 0 {
		b.empty++
	}
}

func (b *slab) blocks(c *chunk) int { return len(c.words) / b.words }

func (b *slab) allFree(c *chunk) bool { return c.free == mask(b.blocks(c)) }

// mask has the n lowest bits set.
func mask(n int) uint64 { return 1<<n - 1 }

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
