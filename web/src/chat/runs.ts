// The turns that run, or ran last, in each conversation, and what the person has typed but not sent. A turn goes on while
// the person looks at other pages; it ends with the session, and with the page (C9).
import { defineStore } from 'pinia'
import { reactive, ref } from 'vue'
import { RpcError, call, stream } from '@/lib/rpc'
import { useSession } from '@/lib/session'
import { chatTimeout } from '@/lib/times'
import type { Block, ToFrame, ToolState } from '../../frame/protocol'
import type { Answer } from './types'

export type LiveEvent = ToFrame & { t: 'delta' | 'tool' | 'end' }

export interface ToolRow {
  tool: string
  state: ToolState
  code?: string
}

// Run is one turn. What it has said so far is kept beside it, for a frame that begins to show it later.
export interface Run {
  key: number
  conversation: string // '' until the node gave it one
  message: string
  at: string
  state: 'running' | 'stopping' | 'ended'
  tools: ToolRow[]
  answer?: Answer
  error?: RpcError
  // The node took the message: from here on it is kept in the conversation.
  taken: boolean
}

interface Hidden {
  blocks: Block[]
  abort: AbortController
  listeners: Set<(e: LiveEvent) => void>
}

export const useRuns = defineStore('runs', () => {
  const session = useSession()
  const runs = reactive(new Map<string, Run>())
  const hidden = new Map<number, Hidden>()
  const drafts = reactive(new Map<string, string>())
  const owner = ref('')
  let key = 0

  function of(conversation: string): Run | undefined {
    return runs.get(conversation)
  }

  function blocks(run: Run): Block[] {
    return hidden.get(run.key)?.blocks ?? []
  }

  // listen tells of what comes from now on.
  function listen(run: Run, fn: (e: LiveEvent) => void): () => void {
    const set = hidden.get(run.key)?.listeners
    set?.add(fn)
    return () => set?.delete(fn)
  }

  function tell(h: Hidden, e: LiveEvent): void {
    for (const fn of h.listeners) fn(e)
  }

  function onText(h: Hidden, delta: string): void {
    const last = h.blocks.at(-1)
    if (last?.kind === 'text') last.text += delta
    else h.blocks.push({ kind: 'text', text: delta })
    tell(h, { t: 'delta', text: delta })
  }

  function onTool(run: Run, h: Hidden, e: ToolRow): void {
    const open = (r: { state: ToolState }) => r.state === 'started' || r.state === 'waiting'
    const row = e.state === 'started' ? undefined : run.tools.find((r) => r.tool === e.tool && open(r))
    if (row) Object.assign(row, e)
    else run.tools.push({ ...e })
    const block = e.state === 'started' ? undefined : h.blocks.find((b) => b.kind === 'call' && b.tool === e.tool && open(b))
    if (block) Object.assign(block, e)
    else h.blocks.push({ kind: 'call', ...e })
    tell(h, { t: 'tool', ...e })
  }

  // send runs one turn to its end; it never throws. started is told the conversation as soon as the node named it.
  async function send(conversation: string, message: string, started: (conversation: string) => void): Promise<Run> {
    const h: Hidden = { blocks: [], abort: new AbortController(), listeners: new Set() }
    runs.set(conversation, { key: ++key, conversation, message, at: new Date().toISOString(), state: 'running', tools: [], taken: false })
    const run = runs.get(conversation)!
    hidden.set(run.key, h)
    const signal = AbortSignal.any([h.abort.signal, AbortSignal.timeout(chatTimeout)])
    try {
      run.answer = await stream<Answer>(
        'assistant.chat',
        conversation ? { conversation, message } : { message },
        (event, data) => {
          if (event === 'start') {
            run.taken = true
            const id = (data as { conversation: string }).conversation
            if (run.conversation !== id) {
              if (runs.get(run.conversation) === run) runs.delete(run.conversation)
              run.conversation = id
              runs.set(id, run)
            }
            started(id)
          } else if (event === 'text') onText(h, (data as { delta: string }).delta)
          else if (event === 'tool') onTool(run, h, data as ToolRow)
        },
        signal,
      )
      tell(h, { t: 'end', outcome: 'done' })
    } catch (err) {
      run.error = err instanceof RpcError ? err : new RpcError('failed', String(err))
      tell(h, { t: 'end', outcome: run.error.code === 'cancelled' ? 'cancelled' : 'failed', code: run.error.code })
    } finally {
      run.state = 'ended'
      h.listeners.clear()
    }
    return run
  }

  // stop asks the node; the turn's own answer says how it ended.
  async function stop(run: Run): Promise<void> {
    if (run.state !== 'running') return
    run.state = 'stopping'
    if (!run.conversation) {
      hidden.get(run.key)?.abort.abort()
      return
    }
    try {
      await call('assistant.cancel', { conversation: run.conversation })
    } catch (err) {
      // Nothing runs there any more: the answer is on its way.
      if (!(err instanceof RpcError && err.code === 'not_found')) hidden.get(run.key)?.abort.abort()
    }
  }

  // forget drops what is shown of a turn that ended.
  function forget(conversation: string): void {
    const run = runs.get(conversation)
    if (run?.state !== 'ended') return
    hidden.delete(run.key)
    runs.delete(conversation)
  }

  function clear(): void {
    for (const h of hidden.values()) h.abort.abort()
    hidden.clear()
    runs.clear()
  }

  // Another person finds nothing of the one before; the same person finds the drafts.
  function begin(): void {
    if (owner.value === session.user) return
    clear()
    drafts.clear()
    owner.value = session.user
  }
  session.onEnd(clear)

  return { runs, drafts, of, blocks, listen, send, stop, forget, begin }
})
