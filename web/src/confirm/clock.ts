// The node's time as this browser can tell it: the two clocks may differ, and either may be set while a question stands.

let offset: number | undefined // the node's time less performance.now(), in ms
let measured = -Infinity

// measure asks the node for its time; it is good to half a second. It is tried again by the next call where it fails.
export async function measure(): Promise<void> {
  if (performance.now() - measured < 60_000) return
  const before = performance.now()
  try {
    const res = await fetch('/healthz', { cache: 'no-store', credentials: 'omit', redirect: 'error' })
    const at = Date.parse(res.headers.get('Date') ?? '')
    if (Number.isNaN(at)) return
    const now = performance.now()
    offset = at + 500 - (before + now) / 2 // the header is cut to whole seconds
    measured = now
  } catch {
    return // without it this browser's own clock has to do
  }
}

export function nodeNow(): number {
  return offset === undefined ? Date.now() : performance.now() + offset
}

// A sleep of the device can stop the one clock and not the other.
document.addEventListener('visibilitychange', () => {
  if (document.visibilityState !== 'visible') return
  measured = -Infinity
  void measure()
})
