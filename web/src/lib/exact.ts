// JSON whose numbers are kept as they were written: this language rounds those of many digits, and what a person decides on
// must be shown as it will run. A browser that cannot do this gives ordinary numbers.

interface Source {
  source?: string
}
interface Raw {
  rawJSON?: (text: string) => unknown
  isRawJSON?: (v: unknown) => boolean
}
const raw = JSON as unknown as Raw

// parseExact is JSON.parse, but each number that is no small integer as this language writes it comes as a value of its
// own, which JSON.stringify writes as it was.
export function parseExact(text: string): unknown {
  const keep = raw.rawJSON
  if (!keep) return JSON.parse(text)
  return JSON.parse(text, (_key: string, v: unknown, at?: Source) => {
    if (typeof v !== 'number' || at?.source === undefined) return v
    return Number.isSafeInteger(v) && String(v) === at.source ? v : keep(at.source)
  })
}

// exact reports whether JSON.stringify writes a parsed value as it was.
export function exact(v: unknown): boolean {
  if (typeof v === 'number') return Number.isSafeInteger(v)
  if (typeof v !== 'object' || v === null || raw.isRawJSON?.(v)) return true
  return Object.values(v).every(exact)
}
