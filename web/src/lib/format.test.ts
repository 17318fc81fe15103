import { describe, expect, it } from 'vitest'
import { absolute, bytes, countdown, duration, money, percent, plural, relative } from './format'

describe('format', () => {
  it.each([
    [0, '0 B'],
    [1023, '1023 B'],
    [1024, '1 KiB'],
    [1536, '1.5 KiB'],
    [1024 * 1024 - 1, '1 MiB'],
    [99.96 * 1024, '100 KiB'],
    [270553174016, '252 GiB'],
    [1024 ** 6, '1024 PiB'],
    [-1, '–'],
    [NaN, '–'],
    [undefined, '–'],
  ])('bytes %s', (n, want) => expect(bytes(n)).toBe(want))

  it.each([
    [0, '0 seconds'],
    [1, '1 second'],
    [59, '59 seconds'],
    [60, '1 minute'],
    [61, '1 minute 1 second'],
    [3600, '1 hour'],
    [3660, '1 hour 1 minute'],
    [3601, '1 hour'],
    [86400 * 3 + 7200, '3 days 2 hours'],
    [86400 + 60, '1 day'],
    [-5, '–'],
  ])('duration %s', (s, want) => expect(duration(s)).toBe(want))

  it('relative', () => {
    const now = Date.parse('2026-12-02T12:00:00Z')
    expect(relative('2026-12-02T11:59:58Z', now)).toBe('now')
    expect(relative('2026-12-02T11:58:01Z', now)).toBe('1 minute ago')
    expect(relative('2026-12-02T14:00:00Z', now)).toBe('in 2 hours')
    expect(relative('0001-01-01T00:00:00Z', now)).toBe('–')
    expect(relative(undefined, now)).toBe('–')
    expect(relative('nonsense', now)).toBe('–')
  })

  it('absolute', () => {
    expect(absolute('2026-12-02T12:00:00Z')).toMatch(/2 Dec 2026, \d\d:00:00/)
    expect(absolute('')).toBe('–')
  })

  it('money keeps what counts', () => {
    expect([0, 0.00001, 0.00123, 0.0999, 0.5, 12.345, null].map(money)).toEqual(['$0', 'under $0.0001', '$0.0012', '$0.1', '$0.50', '$12.35', 'unknown'])
  })

  it('others', () => {
    expect(percent(12.34)).toBe('12 %')
    expect(percent(null)).toBe('–')
    expect(countdown(245)).toBe('4:05')
    expect(countdown(-3)).toBe('0:00')
    expect(plural(1, 'app')).toBe('1 app')
    expect(plural(1200, 'entry', 'entries')).toBe('1,200 entries')
  })
})
