// A frame may take the keyboard by script, though no person went there: keys meant for the host would be lost, or read by
// others. Focus that nobody gave away goes back to where it was, and a frame that keeps taking it is taken away.

const typing = 500 // ms after a key in the host within which nobody goes into the frame but by Tab
const moving = 600 // ms after Tab or a press within which focus may go where it likes
const late = 50 // ms that the word of where the pointer is may come after the word that focus went
const most = 5 // times in one span
const mostInert = 1 // times while nobody can go into the frame
const span = 3000 // ms

// keepFocus watches until the result is called.
export function keepFocus(frame: HTMLIFrameElement, broken: (why: string) => void): () => void {
  let last: HTMLElement | null = null
  let key = -Infinity
  let move = -Infinity
  let taken: number[] = []
  let timer: ReturnType<typeof setTimeout> | undefined
  const inert = () => frame.closest('[inert]') !== null

  function onFocus(e: FocusEvent): void {
    if (e.target instanceof HTMLElement && e.target !== frame) last = e.target
  }
  function onKey(e: KeyboardEvent): void {
    if (e.key === 'Tab') move = performance.now()
    else key = performance.now()
  }
  function onPress(): void {
    move = performance.now()
  }
  function onLeave(): void {
    timer ??= setTimeout(judge, inert() ? 0 : late) // more of the same does not put it off
  }
  function judge(): void {
    timer = undefined
    const now = performance.now()
    const at = document.activeElement
    if (!document.hasFocus() || (at !== frame && at !== document.body) || now - move < moving) return
    if (at === frame && !inert() && frame.matches(':hover') && now - key > typing) return
    if (!last?.isConnected || last.matches(':disabled') || last.closest('[inert]') || last.getClientRects().length === 0) {
      if (at === frame) frame.blur()
      return
    }
    last.focus({ preventScroll: true })
    taken = [...taken.filter((t) => now - t < span), now]
    if (taken.length > (inert() ? mostInert : most)) broken('it took the keyboard')
  }

  const listen = (add: boolean) => {
    const change = add ? 'addEventListener' : 'removeEventListener'
    document[change]('focusin', onFocus as EventListener)
    document[change]('focusout', onLeave)
    document[change]('keydown', onKey as EventListener, true)
    document[change]('pointerdown', onPress, true)
    window[change]('blur', onLeave)
    window[change]('focus', onLeave)
  }
  listen(true)
  if (document.activeElement instanceof HTMLElement && document.activeElement !== frame && document.activeElement !== document.body) last = document.activeElement
  return () => {
    clearTimeout(timer)
    listen(false)
  }
}
