// The letters behind an xn-- name (RFC 3492), for the person to read. Browsers only go the other way.

const base = 36
const [tMin, tMax, skew, damp] = [1, 26, 38, 700]

function adapt(delta: number, points: number, first: boolean): number {
  delta = first ? Math.floor(delta / damp) : delta >> 1
  delta += Math.floor(delta / points)
  let k = 0
  for (; delta > ((base - tMin) * tMax) >> 1; k += base) delta = Math.floor(delta / (base - tMin))
  return k + Math.floor(((base - tMin + 1) * delta) / (delta + skew))
}

// label decodes what stands behind xn--; undefined where it is none.
function label(text: string): string | undefined {
  const dash = text.lastIndexOf('-')
  const out = dash > 0 ? [...text.slice(0, dash)].map((c) => c.codePointAt(0)!) : []
  let [n, bias, i] = [128, 72, 0]
  for (let at = dash > 0 ? dash + 1 : 0; at < text.length; ) {
    const before = i
    for (let w = 1, k = base; ; k += base) {
      const digit = Number.parseInt(text[at++] ?? '', 36)
      if (Number.isNaN(digit)) return undefined
      const value = digit < 10 ? digit + 26 : digit - 10 // letters come first here
      i += value * w
      const t = Math.min(tMax, Math.max(tMin, k - bias))
      if (value < t) break
      w *= base - t
      if (i > 0x7fffffff || w > 0x7fffffff) return undefined
    }
    bias = adapt(i - before, out.length + 1, before === 0)
    n += Math.floor(i / (out.length + 1))
    i %= out.length + 1
    if (n > 0x10ffff) return undefined
    out.splice(i++, 0, n)
  }
  return String.fromCodePoint(...out)
}

// decodeHost gives a host's name in its own letters, as far as it can be decoded.
export function decodeHost(host: string): string {
  return host
    .split('.')
    .map((l) => (l.startsWith('xn--') ? (label(l.slice(4)) ?? l) : l))
    .join('.')
}
