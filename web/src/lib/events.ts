// One stream of GET /events for the whole page. It begins with the current state and resumes by itself.
import { defineStore } from 'pinia'
import { ref } from 'vue'
import { parseExact } from './exact'
import { useSession } from './session'
import { readEvents } from './sse'

export type EventsState = 'connecting' | 'live' | 'down'

// Synced is the data of `synced`: the events before it are all that stands, and state is those, in order. What a
// listener shows besides them has ended.
export interface Synced {
  events: number
  state: Array<{ name: string; data: unknown }>
}

type Listener = (data: never) => void

const firstWait = 500 // ms
const longestWait = 15_000 // ms
const silence = 45_000 // ms; the node shows life every 15 s

export const useEvents = defineStore('events', () => {
  const state = ref<EventsState>('connecting')
  const listeners = new Map<string, Set<Listener>>()
  let stop: AbortController | null = null
  let wake: (() => void) | null = null
  let last = ''

  // on adds a listener of one kind of event and gives what takes it away.
  function on<T = unknown>(name: string, fn: (data: T) => void): () => void {
    const set = listeners.get(name) ?? new Set<Listener>()
    listeners.set(name, set)
    set.add(fn as Listener)
    return () => set.delete(fn as Listener)
  }

  function emit(name: string, data: unknown): void {
    for (const fn of listeners.get(name) ?? []) {
      try {
        fn(data as never)
      } catch (err) {
        console.error(err) // one listener's fault is not the others'
      }
    }
  }

  // read follows one connection to its end and says how long to wait before the next, or null where there is none.
  async function read(signal: AbortSignal): Promise<number | null> {
    const quiet = new AbortController()
    let timer = setTimeout(() => quiet.abort(), silence)
    const alive = () => {
      clearTimeout(timer)
      timer = setTimeout(() => quiet.abort(), silence)
    }
    try {
      const res = await fetch('/events', {
        credentials: 'same-origin',
        redirect: 'error',
        headers: { Accept: 'text/event-stream', ...(last ? { 'Last-Event-ID': last } : {}) },
        signal: AbortSignal.any([signal, quiet.signal]),
      })
      if (res.status === 401) {
        useSession().clear()
        return null
      }
      if (res.status === 429) return 1000 * Math.max(1, Number(res.headers.get('Retry-After')) || 5)
      if (!res.ok || !res.body) return 0
      let snapshot: Synced['state'] = []
      for await (const e of readEvents(res.body, alive)) {
        const data = e.event === 'confirm' ? parseExact(e.data) : (JSON.parse(e.data) as unknown)
        if (e.id) last = e.id
        if (e.event === 'synced') {
          state.value = 'live'
          emit('synced', { events: snapshot.length, state: snapshot } satisfies Synced)
          snapshot = []
          continue
        }
        if (!e.id) snapshot.push({ name: e.event, data })
        emit(e.event, data)
      }
    } catch {
      // A line that broke is tried again, whatever broke it.
    } finally {
      clearTimeout(timer)
    }
    return 0
  }

  function pause(ms: number, signal: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const done = () => {
        clearTimeout(timer)
        signal.removeEventListener('abort', done)
        wake = null
        resolve()
      }
      const timer = setTimeout(done, ms)
      signal.addEventListener('abort', done)
      wake = done
    })
  }

  async function run(signal: AbortSignal): Promise<void> {
    let wait = firstWait
    while (!signal.aborted) {
      const asked = await read(signal)
      if (signal.aborted || asked === null) return
      if (state.value === 'live') wait = firstWait
      state.value = 'down'
      await pause(asked || wait * (0.75 + Math.random() / 2), signal)
      wait = Math.min(wait * 2, longestWait)
    }
  }

  // start follows the events of the session that is there now; it ends what ran before.
  function start(): void {
    end()
    stop = new AbortController()
    void run(stop.signal)
  }

  function end(): void {
    stop?.abort()
    stop = null
    last = ''
    state.value = 'connecting'
  }

  // retry does not wait for the next try: the network is back, or the person asked.
  function retry(): void {
    wake?.()
  }

  return { state, on, start, end, retry }
})
