import { visible } from '@/lib/visible'
import type { Peer } from './types'

// called is what people read: the owner's label, else the end of the key. A peer's own name is its own word, and stands
// beside it as such.
export function called(p: Peer): string {
  return p.label || `…${p.key.slice(-8)}`
}

export function ownName(p: Peer): string {
  return p.name ? visible(p.name).shown : ''
}
