import { existsSync, readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { clear, visible } from './visible'
import vectors from './visible.vectors.json'

// C6: internal/web holds the same vectors to the node's own judgement.
describe('visible', () => {
  it.each(vectors)('shows $in as the node does', ({ in: text, shown, warnings }) => {
    expect(visible(text)).toEqual({ shown, warnings })
  })

  it('shows different texts differently', () => {
    const seen = new Map<string, string>()
    for (const { in: text } of vectors) {
      const { shown } = visible(text)
      expect([undefined, text]).toContain(seen.get(shown))
      seen.set(shown, text)
    }
  })

  it('shows half a character by its number', () => {
    expect(visible('a\ud800').shown).toBe('a⟨U+D800⟩')
  })

  it('cuts nothing', () => {
    const long = 'A'.repeat(1 << 18)
    expect(visible(long).shown).toBe(long)
  })
})

describe('clear', () => {
  it('leaves letters and tabs and shows what cannot be seen', () => {
    expect(clear('Zürich\tдом 日本 vаult')).toBe('Zürich\tдом 日本 vаult')
    expect(clear('\x1b[31mred\u202e\u200b\r\n')).toBe('⟨U+001B⟩[31mred⟨U+202E⟩⟨U+200B⟩⟨U+000D⟩⟨U+000A⟩')
    expect(clear('a\nb', '\t\n')).toBe('a\nb')
    expect(clear(undefined)).toBe('')
  })
})

// More of the same, where the list of attacks is at hand.
const attacks = process.env['ATOLL_UNICODE'] ?? ''
it.skipIf(!existsSync(attacks))('attacks stand apart from what they imitate', () => {
  const rows = readFileSync(attacks, 'utf8').trim().split('\n').map((l) => JSON.parse(l) as { id: string; text: string; pair?: string })
  const byID = new Map(rows.map((r) => [r.id, r.text]))
  for (const r of rows) {
    const of = r.pair ? byID.get(r.pair) : undefined
    if (of !== undefined && of !== r.text) expect(visible(r.text).shown).not.toBe(visible(of).shown)
  }
})
