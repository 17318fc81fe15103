import { afterEach, describe, expect, it, vi } from 'vitest'
import { MAX_BURST, MAX_RATE, PORT, READY } from '../../frame/protocol'
import { Broker, Bucket } from './broker'

describe('Bucket', () => {
  it('lets a burst through, then so many a second', () => {
    let now = 0
    const b = new Bucket(() => now)
    const take = () => Array.from({ length: 1000 }, () => b.take()).filter(Boolean).length
    expect(take()).toBe(MAX_BURST)
    now += 1000
    expect(take()).toBe(MAX_RATE)
    now += 3_600_000
    expect(take()).toBe(MAX_BURST)
  })
})

// A frame as far as the broker looks at it.
function setup() {
  const posted: Array<{ data: unknown; ports: MessagePort[] }> = []
  const inner = { postMessage: (data: unknown, _: string, ports: MessagePort[]) => posted.push({ data, ports }) }
  const frame = Object.assign(new EventTarget(), { contentWindow: inner }) as unknown as HTMLIFrameElement
  const cfg = { ready: vi.fn(), request: vi.fn(), broken: vi.fn() }
  const broker = new Broker(frame, cfg)
  const say = (data: unknown, source: unknown = inner, origin = 'null') => {
    const e = new Event('message')
    Object.assign(e, { data, source, origin, ports: [] })
    window.dispatchEvent(e)
  }
  return { posted, frame, cfg, broker, say }
}

describe('Broker', () => {
  let now: ReturnType<typeof setup> | undefined
  afterEach(() => now?.broker.close())

  it('hands the port to its own frame, once', () => {
    now = setup()
    now.say(READY, {})
    now.say(READY, undefined, 'http://evil.test')
    now.say('ready')
    expect(now.cfg.ready).not.toHaveBeenCalled()
    now.say(READY)
    now.say(READY)
    expect(now.cfg.ready).toHaveBeenCalledOnce()
    expect(now.posted.map((p) => p.data)).toEqual([PORT])
    expect(now.broker.dropped).toBe(3)
  })

  it('passes on what is on the list and counts the rest', async () => {
    now = setup()
    now.say(READY)
    const port = now.posted[0]!.ports[0]!
    port.postMessage('{"v":1,"t":"need","before":3,"count":2}')
    port.postMessage('{"v":1,"t":"confirm","decision":"approve"}')
    port.postMessage({ v: 1, t: 'copy', text: 'x' })
    await vi.waitFor(() => expect(now!.broker.dropped).toBe(2))
    expect(now.cfg.request.mock.calls).toEqual([[{ t: 'need', before: 3, count: 2 }]])
    port.close()
  })

  it('ends where the frame sends too much, or leaves its page', () => {
    now = setup()
    for (let i = 0; i <= MAX_BURST; i++) now.say('x')
    expect(now.cfg.broken).toHaveBeenCalledExactlyOnceWith('it sent too much')
    now.broker.close()
    now = setup()
    now.frame.dispatchEvent(new Event('load'))
    expect(now.cfg.broken).not.toHaveBeenCalled()
    now.frame.dispatchEvent(new Event('load'))
    expect(now.cfg.broken).toHaveBeenCalledExactlyOnceWith('it went to another page')
  })
})
