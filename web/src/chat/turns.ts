// One conversation as far as it is loaded, newest turns first to come.
import { computed, ref, shallowRef } from 'vue'
import { RpcError, call } from '@/lib/rpc'
import type { Block, Turn } from '../../frame/protocol'
import type { BlockView, Conversation, History, TurnView } from './types'

// page is how many turns come at a time.
export const page = 20

export function frameTurn(v: TurnView): Turn {
  const turn: Turn = { number: v.turn, at: v.at, message: v.message, blocks: (v.blocks ?? []).map(block), outcome: v.outcome }
  if (v.outside) turn.outside = true
  if (v.code) turn.code = v.code
  return turn
}

function block(b: BlockView): Block {
  if (b.kind === 'text') return { kind: 'text', text: b.text ?? '' }
  return {
    kind: 'call',
    tool: b.tool ?? '',
    state: b.error ? 'failed' : 'done',
    ...(b.arguments && b.arguments !== '{}' && !b.private ? { arguments: b.arguments } : {}),
    ...(b.result && !b.private ? { result: b.result } : {}),
    ...(b.private ? { private: true } : {}),
    ...(b.source ? { source: b.source } : {}),
  }
}

export function useTurns() {
  const id = ref('')
  const info = shallowRef<Conversation>()
  const entries = shallowRef<TurnView[]>([])
  const earlier = ref(false)
  const loading = ref(false)
  const error = shallowRef<unknown>()
  const last = computed(() => entries.value.at(-1))
  let age = 0

  function reset(conversation: string): void {
    age++
    id.value = conversation
    info.value = undefined
    entries.value = []
    earlier.value = loading.value = false
    error.value = undefined
  }

  async function load(conversation: string): Promise<void> {
    reset(conversation)
    if (!conversation) return
    const mine = age
    loading.value = true
    try {
      const got = await call<History>('assistant.history', { conversation, limit: page })
      if (mine !== age) return
      info.value = got
      entries.value = got.entries ?? []
      earlier.value = got.earlier === true
    } catch (err) {
      if (mine === age) error.value = err
    } finally {
      if (mine === age) loading.value = false
    }
  }

  // more loads turns before the given one and returns them, or undefined where they are not wanted any more.
  async function more(before: number, count: number): Promise<TurnView[] | undefined> {
    const mine = age
    if (!id.value || before !== entries.value[0]?.turn) return undefined
    const got = await call<History>('assistant.history', { conversation: id.value, limit: count, before })
    if (mine !== age) return undefined
    const found = (got.entries ?? []).filter((e) => e.turn < before)
    entries.value = [...found, ...entries.value]
    earlier.value = got.earlier === true && found.length > 0
    return found
  }

  // refresh brings the last turn and the sums up to date.
  async function refresh(): Promise<void> {
    const mine = age
    if (!id.value) return
    try {
      const got = await call<History>('assistant.history', { conversation: id.value, limit: 1 })
      if (mine !== age) return
      info.value = got
      const turn = got.entries?.[0]
      if (!turn) return
      entries.value = [...entries.value.filter((e) => e.turn < turn.turn), turn]
    } catch (err) {
      if (err instanceof RpcError) return // the next load says what is wrong
      throw err
    }
  }

  return { id, info, entries, earlier, loading, error, last, load, more, refresh, reset }
}

export type Turns = ReturnType<typeof useTurns>
