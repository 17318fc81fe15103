// Figures as people read them. The language of the pages is English; times are in the browser's zone.

const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB']

// bytes has at most three figures: "0 B", "1.5 GiB", "128 MiB".
export function bytes(n: number | null | undefined): string {
  if (n == null || !Number.isFinite(n) || n < 0) return '–'
  let i = 0
  while (n >= 1023.5 && i < units.length - 1) {
    n /= 1024
    i++
  }
  return `${i === 0 || n >= 99.95 ? Math.round(n) : Number(n.toFixed(1))} ${units[i]}`
}

export function percent(n: number | null | undefined, digits = 0): string {
  return n == null || !Number.isFinite(n) ? '–' : `${n.toFixed(digits)} %`
}

// decimal is a figure with a fixed number of digits, grouped.
export function decimal(n: number | null | undefined, digits = 0): string {
  return n == null || !Number.isFinite(n) ? '–' : n.toLocaleString('en', { minimumFractionDigits: digits, maximumFractionDigits: digits })
}

// A formatter takes long to make, so each is made once, and not before it is needed.
function later(options: Intl.DateTimeFormatOptions): (d: Date) => string {
  let made: Intl.DateTimeFormat | undefined
  return (d) => (made ??= new Intl.DateTimeFormat('en-GB', options)).format(d)
}

const date = later({ day: 'numeric', month: 'short', year: 'numeric', hour: '2-digit', minute: '2-digit', second: '2-digit' })
const clockTime = later({ hour: '2-digit', minute: '2-digit' })

function parse(t: string | number | Date | null | undefined): Date | null {
  if (t == null || t === '') return null
  const d = new Date(t)
  return Number.isNaN(d.getTime()) || d.getTime() <= 0 ? null : d
}

// absolute is "2 Dec 2026, 08:41:16".
export function absolute(t: string | number | Date | null | undefined): string {
  const d = parse(t)
  return d ? date(d) : '–'
}

export function clock(t: string | number | Date): string {
  const d = parse(t)
  return d ? clockTime(d) : '–'
}

// relative is "3 minutes ago" or "in 2 hours".
export function relative(t: string | number | Date | null | undefined, now: number = Date.now()): string {
  const d = parse(t)
  if (!d) return '–'
  const s = (d.getTime() - now) / 1000
  if (Math.abs(s) < 5) return 'now'
  const words = duration(Math.abs(s), 1)
  return s < 0 ? `${words} ago` : `in ${words}`
}

const spans: ReadonlyArray<readonly [string, number]> = [
  ['day', 86400],
  ['hour', 3600],
  ['minute', 60],
  ['second', 1],
]

// duration has the largest unit that there is, rounded down, and with two parts the next smaller one: "4 hours 20 minutes".
export function duration(s: number, parts: 1 | 2 = 2): string {
  if (!Number.isFinite(s) || s < 0) return '–'
  const whole = Math.round(s)
  const first = spans.findIndex(([, size]) => whole >= size)
  if (first < 0) return '0 seconds'
  let rest = whole
  const out: string[] = []
  for (const [name, size] of spans.slice(first, first + parts)) {
    const n = Math.floor(rest / size)
    rest -= n * size
    if (n > 0) out.push(`${n} ${name}${n === 1 ? '' : 's'}`)
  }
  return out.join(' ')
}

// countdown is "4:05", for what runs out soon.
export function countdown(s: number): string {
  const n = Math.max(0, Math.ceil(s))
  return `${Math.floor(n / 60)}:${String(n % 60).padStart(2, '0')}`
}

// money is an estimate in US dollars; small sums keep two figures that count.
export function money(usd: number | null | undefined): string {
  if (usd == null || !Number.isFinite(usd)) return 'unknown'
  if (usd === 0) return '$0'
  if (usd < 0.0001) return 'under $0.0001'
  return usd < 0.1 ? `$${Number(usd.toPrecision(2))}` : `$${usd.toFixed(2)}`
}

// plural is "1 app" or "3 apps".
export function plural(n: number, one: string, many = `${one}s`): string {
  return `${decimal(n)} ${n === 1 ? one : many}`
}
