// Markdown of the model becomes elements that load nothing, run nothing and lead nowhere by themselves: markdown-it without
// HTML, then DOMPurify with a list of what may stay. The result is a fragment; no text is ever put in as HTML elsewhere.

import MarkdownIt from 'markdown-it'
import DOMPurify from 'dompurify'
import { highlight } from './code'

const md = new MarkdownIt({ html: false, linkify: false, typographer: false, breaks: true })

type Tokens = ReturnType<typeof md.parse>

/** Only these are links; anything else stays as it was written. */
md.validateLink = (url) => /^(https?:\/\/|mailto:)/i.test(url.trim())
// The host shows the address as the model wrote it and decodes it itself.
md.normalizeLink = (url) => url
md.normalizeLinkText = (url) => url

const escape = md.utils.escapeHtml
const attr = (t: Tokens[number], name: string) => String(t.attrGet(name) ?? '')

// A link has no href: what it names goes to the host, which asks the person.
md.renderer.rules.link_open = (tokens, i) =>
  `<a data-href="${escape(attr(tokens[i]!, 'href'))}" tabindex="0" role="link">`

// An image is its words and its address.
md.renderer.rules.image = (tokens, i) => {
  const t = tokens[i]!
  return `<span class="img">[image: ${escape(t.content || 'no description')} — ${escape(attr(t, 'src'))}]</span>`
}

md.renderer.rules.fence = (tokens, i) => code(tokens[i]!.content, tokens[i]!.info.trim().split(/\s/)[0] ?? '')
md.renderer.rules.code_block = (tokens, i) => code(tokens[i]!.content, '')

function code(text: string, language: string): string {
  return `<pre tabindex="0" data-lang="${escape(language.slice(0, 24))}"><code>${escape(text.replace(/\n$/, ''))}</code></pre>`
}

// Alignment comes as a style attribute, which the page's policy refuses.
for (const rule of ['th_open', 'td_open'] as const) {
  md.renderer.rules[rule] = (tokens, i) => {
    const align = /text-align:(left|center|right)/.exec(attr(tokens[i]!, 'style'))?.[1]
    return `<${tokens[i]!.tag}${align ? ` class="al-${align}"` : ''}>`
  }
}
md.renderer.rules.table_open = () => '<div class="scroll" tabindex="0"><table>'
md.renderer.rules.table_close = () => '</table></div>'

// Headings stand below those of the transcript.
for (const rule of ['heading_open', 'heading_close'] as const) {
  md.renderer.rules[rule] = (tokens, i) => {
    const level = Math.min(6, Number(tokens[i]!.tag.slice(1)) + 2)
    return rule === 'heading_open' ? `<h${level}>` : `</h${level}>\n`
  }
}

const CLASS = /^(img|scroll|al-(left|center|right)|hljs-[a-z_-]{1,32}|[a-z]{1,16}_)( (hljs-[a-z_-]{1,32}|[a-z]{1,16}_))*$/

const purify = DOMPurify(window)
purify.addHook('uponSanitizeAttribute', (_, data) => {
  if (data.attrName === 'class') data.keepAttr = CLASS.test(data.attrValue)
  if (data.attrName === 'start') data.keepAttr = /^\d{1,9}$/.test(data.attrValue)
  if (data.attrName === 'role') data.keepAttr = data.attrValue === 'link'
  if (data.attrName === 'tabindex') data.keepAttr = data.attrValue === '0'
})

const RULES = {
  ALLOWED_TAGS: ['p', 'br', 'strong', 'em', 's', 'code', 'pre', 'blockquote', 'ul', 'ol', 'li', 'h3', 'h4', 'h5', 'h6', 'hr',
    'table', 'thead', 'tbody', 'tr', 'th', 'td', 'a', 'span', 'div', '#text'],
  ALLOWED_ATTR: ['data-href', 'data-lang', 'class', 'start', 'role', 'tabindex'],
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  RETURN_DOM_FRAGMENT: true as const,
}

function clean(html: string): DocumentFragment {
  return purify.sanitize(html, RULES) as unknown as DocumentFragment
}

/** render gives a text's elements, whole. */
export function render(text: string): DocumentFragment {
  return finish(clean(md.render(text)))
}

/** finish adds to cleaned elements what is ours: the head of each code block, with its button. */
function finish(fragment: DocumentFragment): DocumentFragment {
  for (const pre of fragment.querySelectorAll('pre')) {
    const box = document.createElement('div')
    box.className = 'code'
    const head = document.createElement('div')
    head.className = 'code-head'
    const name = document.createElement('span')
    const language = pre.dataset.lang ?? ''
    name.textContent = language || 'text'
    const copy = document.createElement('button')
    copy.type = 'button'
    copy.dataset.act = 'copy'
    copy.textContent = 'Copy'
    head.append(name, copy)
    pre.setAttribute('role', 'region')
    pre.setAttribute('aria-label', language ? `Code in ${language}` : 'Code')
    pre.replaceWith(box)
    box.append(head, pre)
    highlight(pre.firstElementChild, language, clean)
  }
  for (const table of fragment.querySelectorAll('div.scroll')) {
    table.setAttribute('role', 'region')
    table.setAttribute('aria-label', 'Table')
  }
  return fragment
}

/** redraw keeps the focus on what has it, its like in the new elements: a person may be there while words still come. */
function redraw(where: HTMLElement, change: () => void): void {
  const at = document.activeElement
  if (!at || !where.contains(at) || !document.hasFocus()) return change()
  const alike = at.localName === 'button' ? 'button' : `${at.localName}[tabindex]`
  const index = [...where.querySelectorAll(alike)].indexOf(at)
  change()
  where.querySelectorAll<HTMLElement>(alike)[index]?.focus({ preventScroll: true })
}

/** Growing is a text that is still being written. Only its last block is rendered again. */
export class Growing {
  readonly element = document.createElement('div')
  private readonly tail = document.createElement('div')
  private text = ''
  private from = 0
  private shown = 0

  constructor() {
    this.element.className = 'md'
    this.element.append(this.tail)
  }

  add(delta: string): void {
    this.text += delta.replaceAll('\r', '') // lines are counted by their line feeds
  }

  /** show brings the elements up to the text. */
  show(): void {
    if (this.shown === this.text.length) return
    this.shown = this.text.length
    redraw(this.element, () => this.draw())
  }

  private draw(): void {
    const rest = this.text.slice(this.from)
    const env = {}
    const tokens = md.parse(rest, env)
    const last = lastBlock(tokens)
    if (last > 0) {
      const line = tokens[last]!.map![0]
      this.tail.before(finish(clean(md.renderer.render(tokens.slice(0, last), md.options, env))))
      this.from += offsetOf(rest, line)
    }
    this.tail.replaceChildren(clean(md.renderer.render(tokens.slice(last), md.options, env)))
  }

  /** end renders what is left, with all that a finished block has. */
  end(): void {
    redraw(this.element, () => this.close())
  }

  private close(): void {
    // A definition of a link's address counts for what stands before it too.
    const definitions = /^ {0,3}\[[^\]\n]+\]:/m.test(this.text)
    if (definitions && this.from > 0) {
      this.element.replaceChildren(render(this.text))
      return
    }
    this.tail.replaceWith(render(this.text.slice(this.from)))
  }
}

/** lastBlock is the index of the token that opens the last block, if that can be told by its line. */
function lastBlock(tokens: Tokens): number {
  for (let i = tokens.length - 1; i > 0; i--) {
    const t = tokens[i]!
    if (t.level === 0 && t.nesting >= 0) return t.map ? i : 0
  }
  return 0
}

function offsetOf(text: string, line: number): number {
  let at = 0
  for (; line > 0; line--) {
    const end = text.indexOf('\n', at)
    if (end < 0) return text.length
    at = end + 1
  }
  return at
}
