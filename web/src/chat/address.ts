// What a link leads to, in words for the person.
import { clear, visible } from '@/lib/visible'
import { decodeHost } from './punycode'

export interface Address {
  // What is opened, and what is shown: whole, as the browser will send it.
  href: string
  // As it was written, with what cannot be seen made visible; empty where that is the same.
  written: string
  host: string
  // The host in its own letters, where those are others.
  letters: string
  warnings: string[]
}

const schemes = new Set(['http:', 'https:', 'mailto:'])

// address is undefined for what is never opened.
export function address(raw: string): Address | undefined {
  let url: URL
  try {
    url = new URL(raw.trim())
  } catch {
    return undefined
  }
  if (!schemes.has(url.protocol)) return undefined
  const warnings: string[] = []
  if (url.username || url.password) warnings.push(`What stands before the @ is no part of the site's name. The site is ${url.hostname}.`)
  if (url.protocol === 'http:') warnings.push('The way there is not encrypted.')
  const letters = decodeHost(url.hostname)
  let shown = ''
  if (letters !== url.hostname) {
    const judged = visible(letters)
    shown = judged.shown
    warnings.push("The site's name is written with letters of other alphabets.", ...judged.warnings.map((w) => `In the name: ${w}.`))
  }
  const judged = visible(raw)
  if (raw !== url.href) warnings.push(...judged.warnings.map((w) => `In the address as written: ${w}.`))
  const same = raw === url.href || `${raw}/` === url.href
  return { href: clear(url.href), written: same ? '' : judged.shown, host: url.host, letters: shown, warnings }
}
