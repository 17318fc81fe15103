import { describe, expect, it, vi } from 'vitest'
import { readEvents, type ServerEvent } from './sse'

function body(...chunks: Array<string | Uint8Array>): ReadableStream<Uint8Array> {
  return new ReadableStream({
    start(c) {
      for (const chunk of chunks) c.enqueue(typeof chunk === 'string' ? new TextEncoder().encode(chunk) : chunk)
      c.close()
    },
  })
}

async function all(b: ReadableStream<Uint8Array>, alive?: () => void): Promise<ServerEvent[]> {
  const out: ServerEvent[] = []
  for await (const e of readEvents(b, alive)) out.push(e)
  return out
}

describe('readEvents', () => {
  it.each([
    ['an event', 'id: 3\nevent: a\ndata: {}\n\n', [{ id: '3', event: 'a', data: '{}' }]],
    ['no name', 'data: x\n\n', [{ id: '', event: 'message', data: 'x' }]],
    ['several lines of data', 'data: x\ndata:  y\ndata\n\n', [{ id: '', event: 'message', data: 'x\n y\n' }]],
    ['comments and unknown fields', ': still here\n\nretry: 5\nfoo: bar\ndata: x\n\n', [{ id: '', event: 'message', data: 'x' }]],
    ['no data', 'event: a\n\n', []],
    ['what is not whole', 'data: x\n\ndata: y\n', [{ id: '', event: 'message', data: 'x' }]],
    ['other line breaks', 'event: a\r\ndata: x\r\n\r\ndata: y\r\r', [{ id: '', event: 'a', data: 'x' }]],
    ['an id of its own only', 'id: 1\ndata: x\n\ndata: y\n\n', [{ id: '1', event: 'message', data: 'x' }, { id: '', event: 'message', data: 'y' }]],
  ])('reads %s', async (_name, text, want) => {
    expect(await all(body(text))).toEqual(want)
  })

  it('does not care where the bytes are cut', async () => {
    const text = 'id: 1\r\nevent: ünïcode\r\ndata: {"a":"日本"}\r\n\r\nevent: b\ndata: 2\n\n'
    const bytes = new TextEncoder().encode(text)
    const want = await all(body(text))
    expect(want).toHaveLength(2)
    for (let cut = 1; cut < bytes.length; cut++) expect(await all(body(bytes.slice(0, cut), bytes.slice(cut)))).toEqual(want)
    expect(await all(body(...Array.from(bytes, (b) => Uint8Array.of(b))))).toEqual(want)
  })

  it('tells every sign of life', async () => {
    const alive = vi.fn()
    await all(body(': a\n\n', ': b\n\n'), alive)
    expect(alive).toHaveBeenCalledTimes(2)
  })

  it('bounds an event', async () => {
    const big = 'x'.repeat(1 << 20)
    await expect(all(body('data: ', ...Array.from({ length: 9 }, () => big)))).rejects.toThrow('too large')
  })

  it('cancels the body when it is left', async () => {
    const cancel = vi.fn()
    const b = new ReadableStream<Uint8Array>({ start: (c) => c.enqueue(new TextEncoder().encode('data: x\n\n')), cancel })
    for await (const _e of readEvents(b)) break
    expect(cancel).toHaveBeenCalled()
  })
})
