// The messages between the host page and the transcript frame. Both sides read this list; what is not on it is dropped.
// A message is one JSON text, so that nothing but plain data crosses, and its size is known before it is read.

export const VERSION = 1

/** Bounds of one message, in UTF-8 bytes, either way. */
export const MAX_MESSAGE = 256 * 1024
/** What the frame may send: this many a second, and this many at once. */
export const MAX_RATE = 50
export const MAX_BURST = 100
/** The most turns that the frame may ask for at a time. */
export const MAX_TURNS = 50
/** The longest address that the frame may ask to open, in characters. */
export const MAX_HREF = 8192
export type Theme = 'light' | 'dark'

export interface TextBlock { kind: 'text'; text: string }
export interface CallBlock {
  kind: 'call'
  tool: string
  state: ToolState
  code?: string
  arguments?: string
  result?: string
  private?: boolean
  source?: string
}
export type ToolState = 'started' | 'waiting' | 'done' | 'refused' | 'failed' | 'unknown'
export type Block = TextBlock | CallBlock

export interface Turn {
  /** The turn's number in its conversation; 0 while it is not known. */
  number: number
  at: string
  message: string
  /** The message is a third party's text. */
  outside?: boolean
  blocks: Block[]
  /** done, cancelled, failed or interrupted; empty while the turn runs. */
  outcome: string
  code?: string
}

/** From the host to the frame: what to show. */
export type ToFrame =
  | { t: 'reset'; theme: Theme; label: string }
  /** Turns before those that are shown, oldest first; earlier: there are more before them. */
  | { t: 'turns'; turns: Turn[]; earlier: boolean }
  | { t: 'begin'; turn: Turn }
  | { t: 'delta'; text: string }
  | { t: 'tool'; tool: string; state: ToolState; code?: string }
  | { t: 'end'; outcome: string; code?: string }
  | { t: 'theme'; theme: Theme }
  /** A piece of a message that is too long for one. */
  | { t: 'part'; text: string; last: boolean }

/** From the frame to the host: requests that change what is shown, or that ask the person. Never a decision. */
export type FromFrame =
  | { t: 'need'; before: number; count: number }
  | { t: 'link'; href: string }
  | { t: 'copy'; text: string }

/** The one message on the window: the frame's script runs and waits for its port. */
export const READY = JSON.stringify({ v: VERSION, t: 'ready' })
/** What goes with the port. */
export const PORT = JSON.stringify({ v: VERSION, t: 'port' })

export function encode(m: ToFrame | FromFrame): string {
  return JSON.stringify({ v: VERSION, ...m })
}

/** encodeParts is encode in as many messages as the bound asks for. */
export function encodeParts(m: ToFrame): string[] {
  const whole = encode(m)
  const step = MAX_MESSAGE / 8 // a UTF-16 unit is 3 bytes at most, and 6 more once it is escaped again
  if (whole.length <= step) return [whole]
  const parts: string[] = []
  for (let at = 0; at < whole.length; at += step) {
    parts.push(encode({ t: 'part', text: whole.slice(at, at + step), last: at + step >= whole.length }))
  }
  return parts
}

/** tooLong reports whether a message is over the bound; it does not look at more than it must. */
export function tooLong(s: string): boolean {
  if (s.length > MAX_MESSAGE) return true
  if (s.length * 3 <= MAX_MESSAGE) return false
  return new TextEncoder().encode(s).length > MAX_MESSAGE
}

/** readFromFrame takes a message of the frame, or gives undefined for whatever is not exactly one of the list. */
export function readFromFrame(data: unknown): FromFrame | undefined {
  if (typeof data !== 'string' || tooLong(data)) return undefined
  let m: unknown
  try {
    m = JSON.parse(data)
  } catch {
    return undefined
  }
  if (typeof m !== 'object' || m === null || Array.isArray(m)) return undefined
  const o = m as Record<string, unknown>
  if (o.v !== VERSION) return undefined
  const has = (...names: string[]) => Object.keys(o).length === names.length + 2 && names.every((n) => Object.hasOwn(o, n))
  switch (o.t) {
    case 'need':
      return has('before', 'count') && whole(o.before, 1, Number.MAX_SAFE_INTEGER) && whole(o.count, 1, MAX_TURNS)
        ? { t: 'need', before: o.before as number, count: o.count as number }
        : undefined
    case 'link':
      return has('href') && typeof o.href === 'string' && o.href !== '' && o.href.length <= MAX_HREF
        ? { t: 'link', href: o.href }
        : undefined
    case 'copy':
      return has('text') && typeof o.text === 'string' && o.text !== '' ? { t: 'copy', text: o.text } : undefined
  }
  return undefined
}

function whole(v: unknown, least: number, most: number): boolean {
  return typeof v === 'number' && Number.isSafeInteger(v) && v >= least && v <= most
}

/** Parts puts pieces together; push gives the whole message, or undefined while there is more to come. */
export class Parts {
  private text = ''

  push(data: unknown): Exclude<ToFrame, { t: 'part' }> | undefined {
    if (typeof data !== 'string') return undefined
    let m = JSON.parse(data) as ToFrame & { v: number }
    if (m.v !== VERSION) return undefined
    if (m.t === 'part') {
      this.text += m.text
      if (!m.last) return undefined
      m = JSON.parse(this.text) as ToFrame & { v: number }
      this.text = ''
    }
    return m.t === 'part' ? undefined : m
  }
}
