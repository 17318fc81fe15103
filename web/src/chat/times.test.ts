import { readFileSync } from 'node:fs'
import { resolve } from 'node:path'
import { expect, it } from 'vitest'
import { chatTimeout, frameTimeout } from '@/lib/times'

// C9: one chain of times; the node's part of it is internal/confirm.
it('the chain of times is the node’s', () => {
  const go = readFileSync(resolve(process.cwd(), '../internal/confirm/confirm.go'), 'utf8')
  const seconds = (name: string) => Number(new RegExp(`${name}\\s+= (\\d+) \\* time\\.Second`).exec(go)?.[1])
  expect(chatTimeout).toBe(seconds('ClientTime') * 1000)
  expect(frameTimeout).toBe(seconds('FrameTime') * 1000)
  expect(seconds('PendingTime')).toBeLessThan(seconds('TurnTime'))
  expect(seconds('TurnTime') * 1000).toBeLessThan(chatTimeout)
  expect(chatTimeout).toBeLessThan(frameTimeout)
})
