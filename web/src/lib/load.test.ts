import { effectScope, type EffectScope } from 'vue'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { useForm } from './form'
import { useLoad } from './load'
import { RpcError } from './rpc'

let scope: EffectScope
beforeEach(() => (scope = effectScope()))
afterEach(() => scope.stop())

const tick = () => new Promise((r) => setTimeout(r))

describe('useLoad', () => {
  it('keeps what was there while it loads and where it fails', async () => {
    const answers: Array<() => Promise<number>> = [async () => 1, async () => Promise.reject(new Error('no')), async () => 2]
    const l = scope.run(() => useLoad(() => (answers.shift() as () => Promise<number>)()))!
    await tick()
    expect([l.data.value, l.error.value]).toEqual([1, undefined])
    await l.load()
    expect(l.data.value).toBe(1)
    expect(String(l.error.value)).toContain('no')
    await l.load()
    expect([l.data.value, l.error.value, l.busy.value]).toEqual([2, undefined, false])
  })

  it('never lets an older answer replace a newer one', async () => {
    const waiting: Array<(n: number) => void> = []
    const l = scope.run(() => useLoad(() => new Promise<number>((r) => waiting.push(r)), { later: true }))!
    const first = l.load()
    const second = l.load()
    waiting[1]?.(2)
    await second
    waiting[0]?.(1)
    await first
    expect(l.data.value).toBe(2)
  })

  it('ends with its component', async () => {
    let signal: AbortSignal | undefined
    scope.run(() => useLoad((s) => ((signal = s), new Promise(() => {}))))
    await tick()
    scope.stop()
    expect(signal?.aborted).toBe(true)
  })
})

describe('useForm', () => {
  it('puts a refusal at its field, or under the form', async () => {
    const f = useForm(['app'])
    expect(await f.submit(async () => Promise.reject(new RpcError('rule', 'words', 200, 'app')))).toBe(false)
    expect([f.errors['app'], f.failure.value]).toEqual(['words', undefined])
    expect(await f.submit(async () => Promise.reject(new RpcError('rule', 'words', 200, 'elsewhere')))).toBe(false)
    expect([f.errors['app'], (f.failure.value as Error).message]).toEqual([undefined, 'words'])
    expect(await f.submit(async () => {})).toBe(true)
    expect([f.failure.value, f.busy.value]).toEqual([undefined, false])
  })
})
