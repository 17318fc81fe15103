import { afterEach, describe, expect, it, vi } from 'vitest'
import { exact, parseExact } from './exact'

const able = 'rawJSON' in JSON

describe('exact JSON (C6, G5)', () => {
  afterEach(() => vi.unstubAllGlobals())

  const texts = ['{"a":9007199254740993}', '[1.5,1.50,1e3,-0,0.1]', '[1152921504606846977,{"b":-9223372036854775808}]', '"9007199254740993"', '{"__proto__":1,"n":null,"t":true}']
  it.runIf(able).each(texts)('%s comes back as it was', (text) => {
    const v = parseExact(text)
    expect(JSON.stringify(v)).toBe(text)
    expect(exact(v)).toBe(true)
  })

  it('leaves what is exact already as it is', () => {
    expect(parseExact('{"a":[1,"x",null,true,{"b":-7}]}')).toEqual({ a: [1, 'x', null, true, { b: -7 }] })
  })

  it('knows what it could not keep', () => {
    for (const text of ['[9007199254740993]', '1.5']) expect(exact(JSON.parse(text))).toBe(false)
    expect(exact(JSON.parse('{"a":1,"b":["x"]}'))).toBe(true)
  })

  it.each(['', '{', '{"a":01}'])('refuses %j as JSON.parse does', (text) => expect(() => parseExact(text)).toThrow(SyntaxError))
})
