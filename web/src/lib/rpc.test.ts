import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { call, connect, RpcError, stream } from './rpc'

const hooks = { csrf: vi.fn(() => 'token'), unauthenticated: vi.fn(), stale: vi.fn(async () => false) }

function answers(...list: Array<Response | Error>): ReturnType<typeof vi.fn> {
  const mock = vi.fn(async (_url: string, _init: RequestInit) => {
    const next = list.shift()
    if (next instanceof Error || next === undefined) throw next ?? new Error('no more answers')
    return next
  })
  vi.stubGlobal('fetch', mock)
  return mock
}

const json = (body: unknown, status = 200) => new Response(JSON.stringify(body), { status, headers: { 'Content-Type': 'application/json' } })
const refusal = (code: string, status: number, more: object = {}) => json({ jsonrpc: '2.0', id: 1, error: { code: -32000, message: 'words', data: { code, ...more } } }, status)
const events = (text: string) => new Response(text, { headers: { 'Content-Type': 'text/event-stream' } })

beforeEach(() => {
  vi.clearAllMocks()
  hooks.stale.mockResolvedValue(false)
  connect(hooks)
})
afterEach(() => vi.unstubAllGlobals())

describe('call', () => {
  it('sends the token, and the cookie to this origin only', async () => {
    const mock = answers(json({ jsonrpc: '2.0', id: 1, result: { a: 1 } }))
    expect(await call('apps.list', { x: 'y' })).toEqual({ a: 1 })
    const [url, init] = mock.mock.calls[0] as [string, RequestInit]
    expect(url).toBe('/rpc')
    expect(init).toMatchObject({ method: 'POST', credentials: 'same-origin', redirect: 'error' })
    expect(init.headers).toMatchObject({ 'X-CSRF-Token': 'token', 'Content-Type': 'application/json' })
    expect(JSON.parse(String(init.body))).toMatchObject({ jsonrpc: '2.0', method: 'apps.list', params: { x: 'y' } })
  })

  it('carries code, words, field and wait of a refusal', async () => {
    answers(refusal('rate_limited', 429, { field: 'app', retry_after_s: 7 }))
    await expect(call('apps.list')).rejects.toMatchObject({ code: 'rate_limited', message: 'words', status: 429, field: 'app', retryAfterS: 7 })
    expect(hooks.unauthenticated).not.toHaveBeenCalled()
  })

  it('takes an application error of a good status as an error', async () => {
    answers(refusal('rule', 200))
    await expect(call('apps.start')).rejects.toMatchObject({ code: 'rule', status: 200 })
  })

  it('tells the session when it ended, but not for a wrong password', async () => {
    answers(refusal('unauthenticated', 401), refusal('unauthenticated', 401))
    await expect(call('apps.list')).rejects.toBeInstanceOf(RpcError)
    expect(hooks.unauthenticated).toHaveBeenCalledTimes(1)
    await expect(call('auth.login')).rejects.toBeInstanceOf(RpcError)
    expect(hooks.unauthenticated).toHaveBeenCalledTimes(1)
  })

  it('goes again with a fresh token, once, and only for the same person', async () => {
    hooks.stale.mockResolvedValue(true)
    let mock = answers(refusal('csrf', 403), json({ result: 'fine' }))
    expect(await call('apps.stop')).toBe('fine')
    expect(mock).toHaveBeenCalledTimes(2)
    mock = answers(refusal('csrf', 403), refusal('csrf', 403))
    await expect(call('apps.stop')).rejects.toMatchObject({ code: 'csrf' })
    expect(mock).toHaveBeenCalledTimes(2)
    hooks.stale.mockResolvedValue(false)
    mock = answers(refusal('csrf', 403))
    await expect(call('apps.stop')).rejects.toMatchObject({ code: 'csrf' })
    expect(mock).toHaveBeenCalledTimes(1)
  })

  it.each([
    ['a line that broke', new TypeError('failed to fetch'), 'offline'],
    ['no JSON', new Response('<html>', { status: 502 }), 'failed'],
    ['JSON without a result', json({}), 'failed'],
    ['JSON that is no object', json(null), 'failed'],
  ])('has words for %s', async (_name, answer, code) => {
    answers(answer)
    const err = await call('apps.list').catch((e: unknown) => e)
    expect(err).toBeInstanceOf(RpcError)
    expect((err as RpcError).code).toBe(code)
    expect((err as RpcError).message).not.toBe('')
  })

  it('says whether the person or the time ended it', async () => {
    answers(new DOMException('x', 'AbortError'), new DOMException('x', 'AbortError'))
    await expect(call('a', {}, AbortSignal.abort())).rejects.toMatchObject({ code: 'aborted', message: 'Given up.' })
    const late = AbortSignal.abort(new DOMException('x', 'TimeoutError'))
    await expect(call('a', {}, late)).rejects.toMatchObject({ code: 'aborted', message: 'No answer came in time.' })
  })
})

describe('stream', () => {
  it('gives events as they come and resolves with the answer', async () => {
    answers(events('event: start\ndata: {"conversation":"c"}\n\n: still here\n\nevent: text\ndata: {"delta":"hi"}\n\nevent: answer\ndata: {"answer":"hi"}\n\nevent: text\ndata: {"delta":"late"}\n\n'))
    const seen: unknown[] = []
    expect(await stream('assistant.chat', {}, (event, data) => seen.push([event, data]))).toEqual({ answer: 'hi' })
    expect(seen).toEqual([
      ['start', { conversation: 'c' }],
      ['text', { delta: 'hi' }],
    ])
  })

  it('rejects with the error of the stream', async () => {
    answers(events('event: error\ndata: {"message":"gone","data":{"code":"model_failed"}}\n\n'))
    await expect(stream('assistant.chat', {}, () => {})).rejects.toMatchObject({ code: 'model_failed', message: 'gone' })
  })

  it('takes a refusal before the stream opened as what it is', async () => {
    answers(refusal('busy', 200))
    await expect(stream('assistant.chat', {}, () => {})).rejects.toMatchObject({ code: 'busy' })
  })

  it.each(['', 'event: text\ndata: {"delta":"hi"}\n\n', 'event: answer\ndata: {"answer":"cut'])('never takes a broken line for an answer: %j', async (text) => {
    answers(events(text))
    await expect(stream('assistant.chat', {}, () => {})).rejects.toMatchObject({ code: 'offline' })
  })
})
