import { createPinia, setActivePinia } from 'pinia'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { useEvents, type Synced } from './events'
import { useSession } from './session'

// A line is one connection: what was asked, and a hand on what comes.
interface Line {
  lastID: string | null
  signal: AbortSignal
  send: (text: string) => void
  cut: () => void
}

let lines: Line[]
let refuse: Response[]

beforeEach(() => {
  vi.useFakeTimers()
  vi.spyOn(Math, 'random').mockReturnValue(0.5)
  vi.stubGlobal('BroadcastChannel', undefined)
  setActivePinia(createPinia())
  lines = []
  refuse = []
  vi.stubGlobal('fetch', async (url: string, init: RequestInit) => {
    expect(url).toBe('/events')
    const no = refuse.shift()
    if (no) return no
    let control!: ReadableStreamDefaultController<Uint8Array>
    const body = new ReadableStream<Uint8Array>({ start: (c) => void (control = c) })
    const signal = init.signal as AbortSignal
    signal.addEventListener('abort', () => {
      try {
        control.error(signal.reason)
      } catch {
        // It was closed already.
      }
    })
    lines.push({ lastID: new Headers(init.headers).get('Last-Event-ID'), signal, send: (t) => control.enqueue(new TextEncoder().encode(t)), cut: () => control.close() })
    return new Response(body, { headers: { 'Content-Type': 'text/event-stream' } })
  })
})
afterEach(() => {
  useEvents().end()
  vi.useRealTimers()
  vi.unstubAllGlobals()
})

const settle = () => vi.advanceTimersByTimeAsync(0)
const line = (n: number) => lines[n] as Line

describe('events', () => {
  it('is live once it is in step, and tells what stands', async () => {
    const events = useEvents()
    const synced: Synced[] = []
    const seen: unknown[] = []
    events.on<Synced>('synced', (s) => synced.push(s))
    events.on('confirm', (d) => seen.push(d))
    events.start()
    await settle()
    expect(line(0).lastID).toBeNull()
    line(0).send('event: confirm\ndata: {"nonce":"a"}\n\nevent: apps\ndata: {}\n\n')
    await settle()
    expect(events.state).toBe('connecting')
    line(0).send('id: 7\nevent: synced\ndata: {"events":2}\n\nid: 8\nevent: confirm\ndata: {"nonce":"b"}\n\n')
    await settle()
    expect(events.state).toBe('live')
    expect(synced).toEqual([{ events: 2, state: [{ name: 'confirm', data: { nonce: 'a' } }, { name: 'apps', data: {} }] }])
    expect(seen).toEqual([{ nonce: 'a' }, { nonce: 'b' }])
  })

  it('resumes after the last event it had, and waits longer each time', async () => {
    const events = useEvents()
    events.start()
    await settle()
    line(0).send('id: 7\nevent: synced\ndata: {"events":0}\n\nid: 9\nevent: apps\ndata: {}\n\n')
    await settle()
    line(0).cut()
    await settle()
    expect(events.state).toBe('down')
    await vi.advanceTimersByTimeAsync(500)
    expect(line(1).lastID).toBe('9')
    line(1).cut()
    await vi.advanceTimersByTimeAsync(999)
    expect(lines).toHaveLength(2)
    await vi.advanceTimersByTimeAsync(1)
    expect(lines).toHaveLength(3)
    line(2).send('id: 10\nevent: synced\ndata: {"events":0}\n\n')
    await settle()
    expect(events.state).toBe('live')
  })

  it('ends a silent line', async () => {
    const events = useEvents()
    events.start()
    await settle()
    line(0).send('id: 1\nevent: synced\ndata: {"events":0}\n\n')
    await vi.advanceTimersByTimeAsync(40_000)
    line(0).send(': still here\n\n')
    await vi.advanceTimersByTimeAsync(40_000)
    expect(events.state).toBe('live')
    await vi.advanceTimersByTimeAsync(6_000)
    expect(line(0).signal.aborted).toBe(true)
    expect(lines.length).toBeGreaterThan(1)
  })

  it('ends with the session', async () => {
    const ended = vi.fn()
    const session = useSession()
    session.user = 'ada'
    session.onEnd(ended)
    refuse = [new Response('{}', { status: 401 })]
    useEvents().start()
    await vi.advanceTimersByTimeAsync(60_000)
    expect(ended).toHaveBeenCalledTimes(1)
    expect(lines).toHaveLength(0)
  })

  it('heeds the wait that it is told, and does not wait when asked', async () => {
    const events = useEvents()
    refuse = [new Response('{}', { status: 429, headers: { 'Retry-After': '30' } }), new Response('{}', { status: 503 })]
    events.start()
    await vi.advanceTimersByTimeAsync(29_000)
    expect(refuse).toHaveLength(1)
    await vi.advanceTimersByTimeAsync(1_000)
    expect(refuse).toHaveLength(0)
    events.retry()
    await settle()
    expect(lines).toHaveLength(1)
  })

  it("one listener's fault is not the others', and what was taken away hears nothing", async () => {
    vi.spyOn(console, 'error').mockImplementation(() => {})
    const events = useEvents()
    const good = vi.fn()
    const gone = vi.fn()
    events.on('apps', () => {
      throw new Error('no')
    })
    events.on('apps', good)
    events.on('apps', gone)()
    events.start()
    await settle()
    line(0).send('id: 1\nevent: apps\ndata: {}\n\n')
    await settle()
    expect(good).toHaveBeenCalledTimes(1)
    expect(gone).not.toHaveBeenCalled()
  })
})
