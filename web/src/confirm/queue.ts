// The questions that wait for this person, in the order they were asked. They come from the node, and end by its word only.
import { defineStore } from 'pinia'
import { computed, reactive, ref } from 'vue'
import { useEvents, type Synced } from '@/lib/events'
import { parseExact } from '@/lib/exact'
import { RpcError, call } from '@/lib/rpc'
import { useSession } from '@/lib/session'
import type { Decision, Ended, Pending } from './types'

export interface Item {
  pending: Pending
  sent?: Decision
  sending: boolean
  // What went wrong with the last answer; the question still stands.
  problem: string
  // Not before this, by performance.now(), may an approval be sent.
  notBefore: number
  ended?: { outcome: string; words?: string }
}

// What a refused decision says about the question itself.
const over = new Set(['expired', 'cancelled', 'declined', 'dropped', 'changed', 'rule'])

export const useQueue = defineStore('confirm', () => {
  const events = useEvents()
  const session = useSession()
  const items = reactive(new Map<string, Item>())
  const done = new Set<string>() // nonces of questions that ended
  const current = ref('')
  const waiting = computed(() => [...items.values()].filter((i) => !i.ended).length)
  const item = computed(() => items.get(current.value))

  function next(): void {
    if (items.has(current.value)) return
    const first = [...items.values()].filter((i) => !i.ended).sort((a, b) => a.pending.born_at.localeCompare(b.pending.born_at))[0]
    current.value = first?.pending.nonce ?? ''
  }

  function add(p: Pending): void {
    if (items.has(p.nonce) || done.has(p.nonce)) return
    items.set(p.nonce, { pending: p, sending: false, problem: '', notBefore: 0 })
    next()
  }

  function forget(nonce: string): void {
    items.delete(nonce)
    next()
  }

  // end notes how the node ended a question. One that is not on the screen goes without a word: it never asked.
  function end(nonce: string, outcome: string, words?: string): void {
    done.add(nonce)
    const i = items.get(nonce)
    if (!i || i.ended) return
    if (nonce !== current.value) {
      forget(nonce)
      return
    }
    i.sending = false
    i.ended = { outcome, ...(words ? { words } : {}) }
  }

  // settle compares with all that stands.
  function settle(stands: Pending[]): void {
    const nonces = new Set(stands.map((p) => p.nonce))
    for (const n of [...items.keys()]) if (!nonces.has(n) && !items.get(n)!.ended) end(n, 'gone')
    for (const p of stands) add(p)
  }

  async function load(): Promise<void> {
    try {
      const before = new Set(items.keys())
      const got = await call<{ pending: Pending[] | null }>('assistant.pending', {}, undefined, parseExact)
      // What came while the answer was on its way is not in it.
      const came = [...items.values()].filter((i) => !before.has(i.pending.nonce) && !i.ended).map((i) => i.pending)
      settle([...(got.pending ?? []).filter((p) => !done.has(p.nonce)), ...came])
    } catch (err) {
      if (!(err instanceof RpcError)) throw err // the stream of events says it too, when it is back
    }
  }

  async function decide(nonce: string, decision: Decision, extra: { reason?: string; allow_for_s?: number }): Promise<void> {
    const i = items.get(nonce)
    if (!i || i.sending || i.ended) return
    i.sending = true
    i.sent = decision
    i.problem = ''
    try {
      const got = await call<Ended>('assistant.confirm', { nonce, action_key: i.pending.action_key, decision, ...extra })
      end(nonce, got.outcome)
    } catch (err) {
      refused(i, err)
    } finally {
      i.sending = false
    }
  }

  function refused(i: Item, err: unknown): void {
    if (i.ended) return
    const nonce = i.pending.nonce
    if (!(err instanceof RpcError)) {
      i.problem = String(err)
      return
    }
    if (err.code === 'too_soon') {
      i.notBefore = performance.now() + 1000 * Math.max(1, err.retryAfterS ?? 1)
      i.problem = err.message
    } else if (err.code === 'not_found') end(nonce, 'gone')
    else if (over.has(err.code) && err.field === undefined) end(nonce, err.code, err.message)
    else if (err.code === 'rule' && err.field === 'decision') end(nonce, 'approved', err.message)
    else if (err.code === 'offline' || err.code === 'aborted') {
      i.problem = 'Your answer may not have reached the node. The question stays here until the node says how it ended; you can answer again.'
    } else i.problem = err.message
  }

  function reset(): void {
    items.clear()
    done.clear()
    current.value = ''
  }

  // start listens for the session that is there; the result ends that.
  function start(): () => void {
    reset()
    const offs = [
      events.on<Pending>('confirm', add),
      events.on<Ended>('confirm-ended', (e) => end(e.nonce, e.outcome)),
      events.on<Synced>('synced', ({ state }) => settle(state.filter((e) => e.name === 'confirm').map((e) => e.data as Pending))),
    ]
    void load()
    // Where there is no stream, somebody else's may be the listener: then the list is asked for.
    const timer = setInterval(() => {
      if (events.state === 'down' && session.active) void load()
    }, 5000)
    return () => {
      for (const off of offs) off()
      clearInterval(timer)
      reset()
    }
  }

  return { items, item, current, waiting, decide, forget, start, add, end, settle }
})
