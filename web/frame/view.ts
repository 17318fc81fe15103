// The elements of one turn. Whatever somebody wrote is set as text, or goes through markdown.ts.

import { Growing, render } from './markdown'
import type { CallBlock, ToFrame, ToolState, Turn } from './protocol'

function el<K extends keyof HTMLElementTagNameMap>(name: K, className: string, text?: string): HTMLElementTagNameMap[K] {
  const e = document.createElement(name)
  e.className = className
  if (text !== undefined) e.textContent = text
  return e
}

const states: Record<ToolState, string> = {
  started: 'running …',
  waiting: 'waits for your decision',
  done: 'done',
  refused: 'not run',
  failed: 'failed',
  unknown: 'started, outcome unknown',
}

const time = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'short' })

function frameOf(turn: Turn): { article: HTMLElement; answer: HTMLElement } {
  const article = el('article', 'turn')
  const said = el('section', turn.outside ? 'said outside' : 'said')
  const who = el('h2', 'who', turn.outside ? 'Message of another node' : 'You')
  const at = new Date(turn.at)
  if (!Number.isNaN(at.getTime())) {
    const when = el('time', 'when', time.format(at))
    when.dateTime = turn.at
    who.append(' ', when)
  }
  const words = el('div', 'words', turn.message)
  words.dir = 'auto'
  said.append(who, words)
  const answer = el('section', 'answer')
  answer.append(el('h2', 'who', 'Assistant'))
  article.append(said, answer)
  return { article, answer }
}

/** turnElement shows a turn that is over, or that is kept as far as it came. */
export function turnElement(turn: Turn): HTMLElement {
  const { article, answer } = frameOf(turn)
  for (const b of turn.blocks) {
    if (b.kind === 'call') {
      answer.append(callElement(b))
      continue
    }
    const text = el('div', 'md')
    text.append(render(b.text))
    answer.append(text)
  }
  sayEnd(answer, turn.outcome, turn.code, turn.blocks.length === 0)
  return article
}

function callElement(b: CallBlock): HTMLElement {
  const row = el('div', 'call')
  fillCall(row, b)
  if (b.private) {
    row.append(el('span', 'note', 'Its details are not kept on disk.'))
    return row
  }
  if (!b.arguments && !b.result) return row
  const box = el('details', 'call-box')
  const head = el('summary', 'call')
  head.dataset.state = b.state
  head.append(...row.childNodes)
  box.append(head)
  // The inside of a closed box is made when it is opened.
  box.addEventListener('toggle', () => box.append(...inside(b)), { once: true })
  return box
}

function inside(b: CallBlock): HTMLElement[] {
  const out: HTMLElement[] = []
  const part = (title: string, text: string) => {
    out.push(el('p', 'part', title))
    const pre = el('pre', 'plain', text)
    pre.tabIndex = 0
    pre.setAttribute('role', 'region')
    pre.setAttribute('aria-label', title)
    out.push(pre)
  }
  if (b.arguments) part('Arguments', b.arguments)
  if (b.result) part(b.source ? `Result, text that others can write (${b.source})` : 'Result', b.result)
  return out
}

function fillCall(row: HTMLElement, b: { tool: string; state: ToolState; code?: string }): void {
  row.dataset.state = b.state
  row.replaceChildren(el('span', 'tool', b.tool), el('span', 'state', states[b.state]))
  if (b.code && b.state !== 'done') row.append(el('code', 'why', b.code))
}

const endings: Record<string, string> = {
  cancelled: 'Stopped here.',
  failed: 'This turn did not end well.',
  interrupted: 'This turn was cut off.',
}

function sayEnd(answer: HTMLElement, outcome: string, code: string | undefined, empty: boolean): void {
  const words = endings[outcome] ?? (empty && outcome === 'done' ? 'No answer.' : '')
  if (!words) return
  answer.append(el('p', 'ending', code && outcome === 'failed' ? `${words} (${code})` : words))
}

/** Live is a turn that runs. */
export class Live {
  readonly element: HTMLElement
  private readonly answer: HTMLElement
  private readonly wait = el('p', 'wait', 'Working …')
  private text: Growing | undefined
  private calls: HTMLElement[] = []
  private timer: ReturnType<typeof setTimeout> | undefined
  private cost = 0
  private empty = true

  constructor(turn: Turn) {
    const { article, answer } = frameOf(turn)
    this.element = article
    this.answer = answer
    article.classList.add('live')
    answer.append(this.wait)
  }

  private put(e: HTMLElement): void {
    this.empty = false
    this.wait.before(e)
  }

  add(delta: string): void {
    if (!this.text) {
      delta = delta.replace(/^\n+/, '')
      if (delta === '') return
      this.text = new Growing()
      this.put(this.text.element)
    }
    this.text.add(delta)
    // Rendering takes a fifth of the time at most, however fast words come.
    this.timer ??= setTimeout(() => this.draw(), Math.max(40, 4 * this.cost))
  }

  private draw(): void {
    this.timer = undefined
    const since = performance.now()
    this.text?.show()
    this.cost = performance.now() - since
  }

  private closeText(): void {
    clearTimeout(this.timer)
    this.timer = undefined
    this.text?.end()
    this.text = undefined
  }

  /** tool adds a row, or changes the last open one of that name: calls of one name do not overtake each other. */
  tool(m: ToFrame & { t: 'tool' }): void {
    const open = this.calls.find((c) => c.dataset.tool === m.tool && (c.dataset.state === 'started' || c.dataset.state === 'waiting'))
    if (open && m.state !== 'started') {
      fillCall(open, m)
      return
    }
    this.closeText()
    const row = el('div', 'call')
    row.dataset.tool = m.tool
    fillCall(row, m)
    this.calls.push(row)
    this.put(row)
  }

  end(outcome: string, code?: string): void {
    this.closeText()
    this.wait.remove()
    this.element.classList.remove('live')
    for (const c of this.calls) {
      if (c.dataset.state === 'started' || c.dataset.state === 'waiting') fillCall(c, { tool: c.dataset.tool!, state: 'refused', code: 'cancelled' })
    }
    sayEnd(this.answer, outcome, code, this.empty)
  }
}
