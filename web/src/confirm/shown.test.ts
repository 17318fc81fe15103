import { expect, it } from 'vitest'
import vectors from '@/lib/visible.vectors.json'
import { describe as shown, endedWords } from './shown'
import type { Pending } from './types'

const pending: Pending = {
  nonce: 'n', action_key: 'k', conversation: 'c', caller: 'ada', tool: 'settings_set', summary: 's', target: 't', arguments: {}, before: 'a', after: 'b',
  untrusted: [], warnings: [], may_allow: false, maybe_ran: false, born_at: '', expires_at: '',
}

// C6: what the node's own judgement shows of a string is what stands in the dialog.
it('shows every string as the node does, and its warnings once', () => {
  for (const v of vectors) {
    const warnings = v.warnings.map((w) => `the argument value: ${w}`)
    const got = shown({ ...pending, arguments: { value: v.in }, after: v.in, warnings })
    expect(got.arguments).toEqual([{ name: 'value', value: `"${v.shown}"` }])
    expect(got.warnings).toEqual(warnings)
    if (v.in) expect(got.after).toBe(v.shown)
  }
})

it('keeps the order and every kind of value', () => {
  const got = shown({ ...pending, arguments: { b: 90, a: true, c: null, d: ['x', { y: 'z\u200b' }], 'e\u202e': '' } })
  expect(got.arguments).toEqual([
    { name: 'b', value: '90' },
    { name: 'a', value: 'true' },
    { name: 'c', value: 'null' },
    { name: 'd', value: '["x",{"y":"z⟨U+200B⟩"}]' },
    { name: 'e⟨U+202E⟩', value: '"⟨empty⟩"' },
  ])
  expect(got.refused).toBe('')
})

it.each([[{ value: 2 ** 53 }], [{ value: [1.5] }], [[1]], ['x'], [null], [undefined]])('does not let %s be approved', (args) => {
  expect(shown({ ...pending, arguments: args }).refused).not.toBe('')
})

it('has words of its own for every end', () => {
  const ends = ['approved', 'declined', 'expired', 'cancelled', 'dropped', 'gone', 'changed']
  expect(new Set(ends.map((e) => endedWords(e, false).title)).size).toBe(6)
  expect(new Set(ends.map((e) => endedWords(e, false).text)).size).toBe(ends.length)
  expect(endedWords('approved', false).title).not.toBe(endedWords('approved', true).title)
})
