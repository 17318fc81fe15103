// The transcript: all that the model and others wrote, in a document that has no origin, no network and no way to act. It
// shows what its port says and may ask the host for the few things of protocol.ts.

import './frame.css'
import { frameTimeout } from '../src/lib/times'
import { PORT, READY, Parts, encode, tooLong, type FromFrame, type ToFrame } from './protocol'
import { Live, turnElement } from './view'

const root = document.documentElement
const log = document.getElementById('log')!
const latest = document.getElementById('latest')!

/** This close to the end counts as there, in pixels. */
const NEAR_END = 48
/** This close to the start, earlier turns are asked for. */
const NEAR_START = 800
const PAGE = 20
/** A longer piece of work than this is cut in slices, in milliseconds. */
const SLICE = 8

let port: MessagePort | undefined
let live: Live | undefined
let stuck = true // the person follows the end
let top = 0 // where the view was at the last scroll
let first = 0 // the number of the first turn shown; 0 is none
let earlier = false
let asked = false
let age = 0 // counts resets: work for an older one is thrown away
let giveUp: ReturnType<typeof setTimeout> | undefined

function send(m: FromFrame): void {
  const text = encode(m)
  if (!tooLong(text)) port?.postMessage(text)
}

const pause = () => new Promise<void>((done) => setTimeout(done))

function follow(): void {
  if (stuck) root.scrollTop = root.scrollHeight
}

function ask(): void {
  if (!earlier || asked || first <= 1 || root.scrollTop > NEAR_START) return
  asked = true
  send({ t: 'need', before: first, count: PAGE })
}

// Who scrolls up reads; a view or a text that changes its size is no reason to stop following.
addEventListener(
  'scroll',
  () => {
    const near = root.scrollHeight - root.scrollTop - root.clientHeight < NEAR_END
    if (near) stuck = true
    else if (root.scrollTop < top - 1) stuck = false
    top = root.scrollTop
    latest.hidden = stuck
    ask()
  },
  { passive: true },
)
const resized = new ResizeObserver(() => {
  follow()
  ask()
})
resized.observe(log)
resized.observe(root)
addEventListener('resize', follow)
latest.addEventListener('click', () => {
  stuck = true
  follow()
})

// showTurns goes from the newest to the oldest, so that what is looked at first is there first.
async function showTurns(m: ToFrame & { t: 'turns' }): Promise<void> {
  const mine = age
  const wanted = [...m.turns]
  while (wanted.length > 0) {
    const since = performance.now()
    const built = document.createDocumentFragment()
    do built.prepend(turnElement(wanted.pop()!))
    while (wanted.length > 0 && performance.now() - since < SLICE)
    prepend(built)
    await pause()
    if (mine !== age) return
  }
  first = m.turns[0]?.number ?? first
  earlier = m.earlier
  asked = false
  log.toggleAttribute('data-earlier', earlier)
  follow()
  ask()
}

/** prepend keeps what is being read where it is. */
function prepend(built: DocumentFragment): void {
  const anchor = log.firstElementChild
  const before = anchor?.getBoundingClientRect().top ?? 0
  root.style.overflowAnchor = 'none'
  log.prepend(built)
  if (stuck) follow()
  else if (anchor) root.scrollTop += anchor.getBoundingClientRect().top - before
  requestAnimationFrame(() => (root.style.overflowAnchor = ''))
}

async function show(m: Exclude<ToFrame, { t: 'part' }>): Promise<void> {
  switch (m.t) {
    case 'reset':
      age++
      live?.end('interrupted')
      live = undefined
      clearTimeout(giveUp)
      log.replaceChildren()
      log.removeAttribute('data-earlier')
      log.setAttribute('aria-label', m.label)
      root.dataset.theme = m.theme
      stuck = true
      latest.hidden = true
      first = top = 0
      earlier = asked = false
      return
    case 'turns':
      return showTurns(m)
    case 'begin':
      live = new Live(m.turn)
      log.append(live.element)
      stuck = true
      follow()
      clearTimeout(giveUp)
      giveUp = setTimeout(() => end('interrupted', 'no_end'), frameTimeout)
      return
    case 'delta':
      live?.add(m.text)
      return
    case 'tool':
      live?.tool(m)
      return
    case 'end':
      return end(m.outcome, m.code)
    case 'theme':
      root.dataset.theme = m.theme
  }
}

function end(outcome: string, code?: string): void {
  clearTimeout(giveUp)
  live?.end(outcome, code)
  live = undefined
}

document.addEventListener('click', (e) => act(e.target))
document.addEventListener('keydown', (e) => {
  if (e.key === 'Enter' && (e.target as Element).matches('a[data-href]')) act(e.target)
})

function act(target: EventTarget | null): void {
  if (!(target instanceof Element)) return
  const link = target.closest<HTMLElement>('a[data-href]')
  if (link) send({ t: 'link', href: link.dataset.href! })
  const copy = target.closest('button[data-act=copy]')
  const text = copy?.closest('.code')?.querySelector('pre')?.textContent
  if (text) send({ t: 'copy', text })
}

function connect(p: MessagePort): void {
  port = p
  const parts = new Parts()
  let queue = Promise.resolve()
  p.onmessage = (e) => {
    const m = parts.push(e.data)
    if (!m) return
    if (m.t === 'reset') age++ // what is being built is not wanted any more
    queue = queue.then(() => show(m)).catch((err: unknown) => console.error(err))
  }
}

addEventListener('message', (e) => {
  const given = e.ports[0]
  if (!port && e.source === parent && e.data === PORT && given) connect(given)
})
if (parent === window) log.textContent = 'This is a part of the chat and shows nothing by itself.'
else parent.postMessage(READY, '*') // the parent's origin cannot be known here, and the text tells nothing
