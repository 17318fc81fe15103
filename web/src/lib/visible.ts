// Makes everything in a text that a person could not see, or could take for something else, stand out as a code like
// ⟨U+202E⟩, and says in words what it found and where (C6). It is the same judgement as internal/fence/visible.go, held
// to it by visible.vectors.json; the reasons stand there. A string of this language has no stray bytes, but can have
// halves of characters: those get the code of their number.
import { hex } from './clear'
import { lookalikes } from './lookalikes'

export { clear } from './clear'

const maxNotes = 8
const maxPlaces = 4
const maxMarks = 4
const minRun = 4

type How = 'replaced' | 'beside' | 'plain'

// How each finding is shown, and the words of its warning.
const findings = {
  none: ['plain', ''],
  control: ['replaced', 'a control character'],
  lineBreak: ['replaced', 'a line break'],
  direction: ['replaced', 'a character that turns the reading direction'],
  unseen: ['replaced', 'an invisible character'],
  tag: ['replaced', 'an invisible tag that can carry a hidden text'],
  selector: ['replaced', 'an invisible selector that can carry a hidden text'],
  oddSpace: ['replaced', 'an unusual space'],
  missedSpace: ['replaced', 'a space where it is easily missed'],
  private: ['replaced', 'a character without an agreed shape'],
  unknown: ['replaced', 'no character that this program knows'],
  wide: ['replaced', 'a character as wide as a sentence'],
  bracket: ['replaced', 'a bracket like those around the codes'],
  lost: ['replaced', 'the sign of a character that was lost before'],
  jamo: ['replaced', 'a piece of a syllable'],
  mark: ['replaced', 'a mark that is drawn over others'],
  otherForm: ['beside', 'another form'],
  digit: ['beside', 'a digit of another script'],
  badge: ['beside', "a sign that could be taken for one of the host's"],
  lookAlike: ['beside', 'a character that looks like another'],
  mixed: ['beside', 'a letter of one alphabet among those of another'],
  reordered: ['beside', 'a letter that runs from right to left, among what does not'],
  honestTwin: ['plain', 'a letter that looks like another, in a word wholly of its own script'],
  leftward: ['plain', 'a letter that runs from right to left'],
  amongLetters: ['plain', 'a character that is easily taken for another, among small letters'],
} as const satisfies Record<string, readonly [How, string]>

type Finding = keyof typeof findings

// The scripts that a name may be written in. Those before firstFar have letters that look like Latin ones.
const other = 0
const shared = 1
const latin = 2
const firstFar = 7
const scripts: ReadonlyArray<readonly [number, string, RegExp]> = [
  [shared, '', /[\p{Script=Common}\p{Script=Inherited}]/u],
  [latin, 'Latin', /\p{Script=Latin}/u],
  [3, 'Greek', /\p{Script=Greek}/u],
  [4, 'Cyrillic', /\p{Script=Cyrillic}/u],
  [5, 'Armenian', /\p{Script=Armenian}/u],
  [6, 'Georgian', /\p{Script=Georgian}/u],
  [firstFar, 'East Asian', /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Hangul}\p{Script=Bopomofo}]/u],
  ...(
    ['Hebrew', 'Arabic', 'Devanagari', 'Thai', 'Bengali', 'Tamil', 'Telugu', 'Gujarati', 'Gurmukhi', 'Kannada', 'Malayalam', 'Oriya', 'Sinhala', 'Khmer', 'Lao', 'Myanmar', 'Tibetan', 'Ethiopic'] as const
  ).map((name, i) => [firstFar + 1 + i, name, new RegExp(`\\p{Script=${name}}`, 'u')] as const),
]

const brackets = new Set('⟨⟩\u2329\u232A〈〉‹›❬❭❮❯❰❱⟪⟫《》⦑⦒⧼⧽\uFE3D\uFE3E\uFE3F\uFE40ᐸᐳ')
const wideOnes = new Set('\uFDFA\uFDFB\uFDFC\uFDFD\uA9C5\u2E3A\u2E3B\u{12031}\u{12219}\u{1242B}')
const badges = new Set('✓✔✅☑🗸🗹✗✘❌❎⚠⛔🚫🔒🔓🔐🛡ℹ│┃║▌⏎↵')

const letter = /\p{L}/u
const markOf = /\p{M}/u
const inWords = /[\p{L}\p{M}\p{N}]/u
const decimal = /\p{Nd}/u
const graphic = /[\p{L}\p{M}\p{N}\p{P}\p{S}\p{Zs}]/u
const lineBreaks = /[\n\r\v\f\u0085\u2028\u2029]/u
const blanks = /[\p{Cf}\u2800\uFFFC\u{1D159}\u{13441}\u{13442}\u{16FE4}\u034F\u115F\u1160\u17B4\u17B5\u2065\u3164\uFFA0\uFFF0-\uFFF8\u{E0000}-\u{E0FFF}]/u

interface Glyph {
  text: string
  code: number
  finding: Finding
  script: number
}

function hidden(c: string, code: number): Finding {
  if (c === ' ') return 'none'
  if (lineBreaks.test(c)) return 'lineBreak'
  if (/\p{Cc}/u.test(c)) return 'control'
  if (/\p{Bidi_Control}/u.test(c)) return 'direction'
  if (code >= 0xe0000 && code <= 0xe007f) return 'tag'
  if (/\p{Variation_Selector}/u.test(c)) return 'selector'
  if (blanks.test(c)) return 'unseen'
  if (/\p{Zs}/u.test(c)) return 'oddSpace'
  if (/\p{Co}/u.test(c)) return 'private'
  if (!graphic.test(c)) return 'unknown'
  return 'none'
}

function judge(c: string, code: number): Finding {
  if (code >= 0x20 && code <= 0x7e) return 'none'
  const found = hidden(c, code)
  if (found !== 'none') return found
  if (brackets.has(c)) return 'bracket'
  if (wideOnes.has(c)) return 'wide'
  if (code === 0xfffd) return 'lost'
  if ((code >= 0x1100 && code <= 0x11ff) || (code >= 0xa960 && code <= 0xa97f) || (code >= 0xd7b0 && code <= 0xd7ff)) return 'jamo'
  if (markOf.test(c)) return 'mark'
  if (c.normalize('NFKC') !== c) return 'otherForm'
  if (decimal.test(c)) return 'digit'
  if (badges.has(c)) return 'badge'
  if (looksLike(c) !== '') return 'lookAlike'
  return 'none'
}

// looksLike is what a character can be taken for, or "". One with an accent counts as its letter.
function looksLike(c: string): string {
  const code = c.codePointAt(0) ?? 0
  if (code < 0x80) return ''
  const as = lookalikes.get(code)
  if (as !== undefined) return as
  if (code >= 0xac00 && code <= 0xd7a3) return ''
  const base = [...c.normalize('NFD')][0] ?? c
  return base === c ? '' : looksLike(base)
}

function scriptOf(g: string): number {
  if ((g.codePointAt(0) ?? 0) < 0x80) return latin
  for (const [script, , of] of scripts) if (of.test(g)) return script
  return other
}

function nameOf(script: number): string {
  return scripts.find(([s]) => s === script)?.[1] ?? ''
}

function parse(s: string): Glyph[] {
  return Array.from(s, (text) => {
    const code = text.codePointAt(0) ?? 0
    return { text, code, finding: judge(text, code), script: 0 }
  })
}

function spaces(v: Glyph[]): void {
  v.forEach((g, i) => {
    if (g.text === ' ' && (i === 0 || i === v.length - 1 || v[i - 1]?.text === ' ')) g.finding = 'missedSpace'
  })
}

const joins = new Set<Finding>(['unseen', 'direction', 'selector', 'jamo'])

function words(v: Glyph[]): void {
  for (let i = 0; i < v.length; ) {
    let end = i
    for (let g = v[end]; g && (joins.has(g.finding) || inWords.test(g.text)); g = v[end]) end++
    word(v.slice(i, end))
    i = end + 1
  }
}

function word(v: Glyph[]): void {
  const seen = new Set<number>()
  let own = false
  for (const g of v) {
    if (!letter.test(g.text)) continue
    g.script = scriptOf(g.text)
    if (g.script !== shared) {
      seen.add(g.script)
      own ||= g.finding === 'none'
    }
  }
  const alphabets = [...seen].filter((s) => s < firstFar)
  const honest = own && seen.size === 1 && !seen.has(latin) && !seen.has(other)
  const small = (g: Glyph | undefined) => g !== undefined && g.code >= 0x61 && g.code <= 0x7a
  v.forEach((g, i) => {
    if (g.finding === 'lookAlike' && honest && g.script !== shared) g.finding = 'honestTwin'
    else if (g.finding === 'none' && alphabets.length > 1 && letter.test(g.text) && g.script < firstFar && g.script !== latin && g.script !== shared) g.finding = 'mixed'
    else if (/^[01I]$/.test(g.text) && small(v[i - 1]) && small(v[i + 1])) g.finding = 'amongLetters'
  })
}

function marks(v: Glyph[]): void {
  for (let i = 0; i < v.length; ) {
    let end = i + 1
    while (v[end]?.finding === 'mark') end++
    const base = v[i] as Glyph
    const group = v.slice(i, Math.min(end, i + 1 + maxMarks))
    const text = group.map((g) => g.text).join('')
    if (group.length > 1 && base.script >= firstFar && (base.finding === 'none' || base.finding === 'honestTwin') && text.normalize('NFC') === text) {
      for (const g of group.slice(1)) {
        if (g.text.normalize('NFKC') !== g.text || scriptOf(g.text) !== base.script) break
        g.finding = 'none'
      }
    }
    i = end
  }
}

function runsLeft(r: number): boolean {
  return (r >= 0x0590 && r <= 0x08ff) || (r >= 0xfb1d && r <= 0xfdff) || (r >= 0xfe70 && r <= 0xfefc) || (r >= 0x10800 && r <= 0x10fff) || (r >= 0x1e800 && r <= 0x1efff)
}

function rightToLeft(v: Glyph[]): void {
  let some = false
  let only = true
  for (const g of v) {
    if (runsLeft(g.code)) {
      some = true
      only &&= g.finding === 'none' || g.finding === 'honestTwin'
    } else if (g.finding !== 'none' || !' -_.'.includes(g.text)) {
      only = false
    }
  }
  if (!some) return
  for (const g of v) {
    if (!runsLeft(g.code) || (g.finding !== 'none' && g.finding !== 'honestTwin')) continue
    if (only) {
      if (g.finding === 'none') g.finding = 'leftward'
    } else if (markOf.test(g.text)) {
      g.finding = 'mark'
    } else {
      g.finding = 'reordered'
    }
  }
}

function write(v: Glyph[]): string {
  let out = ''
  for (let i = 0; i < v.length; ) {
    const g = v[i] as Glyph
    const how: How = findings[g.finding][0]
    if (how !== 'replaced') out += g.text
    if (how === 'plain') {
      i++
      continue
    }
    out += `⟨U+${hex(g.code)}⟩`
    let n = 1
    if (how === 'replaced') {
      for (let next = v[i + n]; next && next.text === g.text && findings[next.finding][0] === 'replaced'; next = v[i + n]) n++
    }
    if (n < minRun) n = 1
    else out += `⟨${n} times⟩`
    i += n
  }
  return out
}

// subject is what a warning is about: one character, or a script's letters as a whole.
function subject(g: Glyph): string {
  const of = g.finding === 'honestTwin' ? g.script : g.finding === 'leftward' || g.finding === 'reordered' ? 0 : g.code
  return `${g.finding} ${of}`
}

function quoted(s: string): string {
  return s === '"' ? 'a quotation mark' : `"${s}"`
}

function digitValue(code: number): number {
  let zero = code
  while (code - zero < 9 && decimal.test(String.fromCodePoint(zero - 1))) zero--
  return (code - zero) % 10
}

function wordsOf(g: Glyph): string {
  const what: string = findings[g.finding][1]
  const code = ` (U+${hex(g.code)})`
  switch (g.finding) {
    case 'honestTwin':
      return `${what} (${nameOf(g.script)})`
    case 'leftward':
    case 'reordered':
      return what
    case 'digit':
      return `the digit ${digitValue(g.code)} of another script${code}`
    case 'lookAlike': {
      const name = letter.test(g.text) ? nameOf(scriptOf(g.text)) : ''
      return `${name ? `a ${name} letter that looks like another` : what}, ${quoted(looksLike(g.text))}${code}`
    }
    case 'otherForm': {
      const as = g.text.normalize('NFKC')
      return `${what} of ${/^[ -~]*$/.test(as) ? quoted(as) : 'other characters'}${code}`
    }
  }
  return what + code
}

function places(at: number[], more: number): string {
  if (at.length === 1 && more === 0) return `character ${at[0]} is `
  let out = 'characters '
  at.forEach((n, i) => {
    if (i > 0) out += i === at.length - 1 && more === 0 ? ' and ' : ', '
    out += n
  })
  return `${out}${more > 0 ? ` and ${more} more` : ''} are `
}

function warningsOf(v: Glyph[]): string[] {
  const remarks = new Map<string, { first: Glyph; at: number[]; more: number }>()
  const dropped = new Set<string>()
  v.forEach((g, i) => {
    if (g.finding === 'none') return
    const key = subject(g)
    const known = remarks.get(key)
    if (known && known.at.length === maxPlaces) known.more++
    else if (known) known.at.push(i + 1)
    else if (remarks.size === maxNotes) dropped.add(key)
    else remarks.set(key, { first: g, at: [i + 1], more: 0 })
  })
  const out = [...remarks.values()].map((r) => places(r.at, r.more) + wordsOf(r.first))
  if (dropped.size > 0) out.push(`there are ${dropped.size} more kinds of such characters`)
  return out
}

// obvious is ASCII text that has nothing to judge: most values are.
function obvious(s: string): boolean {
  return /^[!-/2-HJ-~]+(?: [!-/2-HJ-~]+)*$/.test(s)
}

// visible is for what is decided upon: names, arguments, addresses. Different texts are shown differently.
export function visible(s: string): { shown: string; warnings: string[] } {
  if (s === '') return { shown: '⟨empty⟩', warnings: ['there is nothing in it'] }
  if (obvious(s)) return { shown: s, warnings: [] }
  const v = parse(s)
  spaces(v)
  words(v)
  marks(v)
  rightToLeft(v)
  return { shown: write(v), warnings: warningsOf(v) }
}
