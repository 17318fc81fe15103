import { describe, expect, it } from 'vitest'
import { MAX_HREF, MAX_MESSAGE, Parts, encode, encodeParts, readFromFrame, tooLong, type ToFrame } from './protocol'

describe('readFromFrame', () => {
  it.each([
    { t: 'need', before: 5, count: 50 },
    { t: 'link', href: 'https://example.org' },
    { t: 'copy', text: 'x' },
  ] as const)('takes $t', (m) => {
    expect(readFromFrame(encode(m))).toEqual(m)
  })

  const strange: unknown[] = [
    undefined, null, 1, {}, { v: 1, t: 'copy', text: 'x' }, [], '', 'x', 'null', '[]', '{}', '"x"', '{"v":1}', '{"t":"copy","text":"x"}',
    '{"v":"1","t":"copy","text":"x"}', '{"v":2,"t":"copy","text":"x"}', '{"v":1,"t":"copy"}', '{"v":1,"t":"copy","text":""}',
    '{"v":1,"t":"copy","text":["x"]}', '{"v":1,"t":"copy","text":"x","more":1}', '{"v":1,"t":"need","before":0,"count":1}',
    '{"v":1,"t":"need","before":1.5,"count":1}', '{"v":1,"t":"need","before":1,"count":51}', '{"v":1,"t":"need","before":"1","count":1}',
    '{"v":1,"t":"need","before":9007199254740993,"count":1}', '{"v":1,"t":"link","href":""}', '{"v":1,"t":"ready"}', '{"v":1,"t":"port"}',
    '{"v":1,"t":"send","text":"x"}', '{"v":1,"t":"confirm","decision":"approve"}', '{"v":1,"t":"grant"}', '{"v":1,"t":"__proto__"}',
    '{"v":1,"t":"toString"}', '{"v":1,"__proto__":{"t":"copy"},"text":"x"}',
    JSON.stringify({ v: 1, t: 'link', href: 'x'.repeat(MAX_HREF + 1) }), JSON.stringify({ v: 1, t: 'copy', text: 'ü'.repeat(MAX_MESSAGE / 2) }),
    JSON.stringify({ v: 1, t: 'copy', text: 'x'.repeat(MAX_MESSAGE) }),
  ]
  it.each(strange.map((s) => [String(s).slice(0, 60), s]))('drops %s', (_, s) => {
    expect(readFromFrame(s)).toBeUndefined()
  })
})

it('a long message comes in parts within the bound, and whole again', () => {
  const m: ToFrame = { t: 'delta', text: '\u0001"\\ü😀'.repeat(100_000) }
  const parts = encodeParts(m)
  expect(parts.length).toBeGreaterThan(1)
  for (const p of parts) expect(tooLong(p)).toBe(false)
  const whole = new Parts()
  const got = parts.map((p) => whole.push(p))
  expect(got.slice(0, -1).every((g) => g === undefined)).toBe(true)
  expect(got.at(-1)).toMatchObject(m)
})
