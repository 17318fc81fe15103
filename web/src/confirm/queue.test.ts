import { createPinia, setActivePinia } from 'pinia'
import { beforeEach, describe, expect, it, vi } from 'vitest'
import { RpcError, call } from '@/lib/rpc'
import { useQueue } from './queue'
import type { Pending } from './types'

vi.mock('@/lib/rpc', async (actual) => ({ ...(await actual<typeof import('@/lib/rpc')>()), call: vi.fn() }))

const ask = (nonce: string, born = nonce): Pending => ({
  nonce, action_key: 'k', conversation: 'c', caller: 'ada', tool: 't', summary: nonce, target: '', arguments: {}, before: '', after: '', untrusted: null,
  warnings: null, may_allow: false, maybe_ran: false, born_at: born, expires_at: '',
})

describe('the queue', () => {
  beforeEach(() => {
    setActivePinia(createPinia())
    vi.mocked(call).mockReset()
  })

  it('shows the oldest, and keeps it while others come', () => {
    const q = useQueue()
    q.add(ask('b'))
    q.add(ask('a'))
    q.add(ask('b'))
    expect([q.current, q.waiting]).toEqual(['b', 2])
    q.forget('b')
    expect(q.current).toBe('a')
  })

  it('ends by the node’s word only, and never comes back', () => {
    const q = useQueue()
    q.add(ask('a'))
    q.add(ask('b'))
    q.end('b', 'expired')
    expect(q.waiting).toBe(1)
    q.end('a', 'declined')
    expect(q.item?.ended?.outcome).toBe('declined')
    q.end('a', 'approved')
    expect(q.item?.ended?.outcome).toBe('declined')
    q.forget('a')
    q.add(ask('a'))
    expect(q.item).toBeUndefined()
  })

  it('what stands no more is over; what stands is asked (F-C7)', () => {
    const q = useQueue()
    q.add(ask('a'))
    q.settle([ask('b')])
    expect(q.item?.ended?.outcome).toBe('gone')
    q.forget('a')
    expect(q.current).toBe('b')
    q.settle([ask('b')])
    expect(q.item?.ended).toBeUndefined()
  })

  it.each([
    ['too_soon', undefined, undefined],
    ['offline', undefined, undefined],
    ['unavailable', undefined, undefined],
    ['rule', 'allow_for_s', undefined],
    ['invalid_params', 'reason', undefined],
    ['forbidden', undefined, undefined],
    ['expired', undefined, 'expired'],
    ['cancelled', undefined, 'cancelled'],
    ['declined', undefined, 'declined'],
    ['dropped', undefined, 'dropped'],
    ['not_found', 'nonce', 'gone'],
    ['rule', 'decision', 'approved'],
  ])('a refused answer (%s at %s) leaves it standing or says how it ended: %s', async (code, field, outcome) => {
    const q = useQueue()
    q.add(ask('a'))
    vi.mocked(call).mockRejectedValue(new RpcError(code, 'words', 200, field, 1))
    await q.decide('a', 'approve', {})
    expect(q.item?.ended?.outcome).toBe(outcome)
    expect(q.item?.problem === '').toBe(outcome !== undefined)
    expect(q.item?.sending).toBe(false)
  })

  it('sends nonce and action key, once', async () => {
    const q = useQueue()
    q.add(ask('a'))
    let answer: (v: unknown) => void = () => {}
    vi.mocked(call).mockReturnValue(new Promise((done) => (answer = done)))
    const first = q.decide('a', 'decline', { reason: 'no' })
    await q.decide('a', 'approve', {})
    answer({ nonce: 'a', outcome: 'declined' })
    await first
    expect(vi.mocked(call).mock.calls).toEqual([['assistant.confirm', { nonce: 'a', action_key: 'k', decision: 'decline', reason: 'no' }]])
    expect(q.item?.ended?.outcome).toBe('declined')
  })
})
