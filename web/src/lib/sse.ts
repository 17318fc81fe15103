// Server-sent events from a fetched body: EventSource can neither post nor tell a refusal from a broken line.

export interface ServerEvent {
  id: string // this event's own; empty for the state that a stream begins with
  event: string
  data: string
}

// maxEvent bounds one event in characters; the node's own bounds are far below it.
const maxEvent = 8 << 20

// readEvents gives each event as it comes. alive is told of every sign of life, comments included. Leaving the loop
// cancels the body.
export async function* readEvents(body: ReadableStream<Uint8Array>, alive: () => void = () => {}): AsyncGenerator<ServerEvent> {
  const reader = body.getReader()
  const text = new TextDecoder()
  let rest = ''
  let now = { id: '', event: '', data: [] as string[] }
  try {
    for (;;) {
      const { done, value } = await reader.read()
      if (done) return // what is left has no blank line after it, so it is not whole
      alive()
      rest += text.decode(value, { stream: true })
      if (rest.length > maxEvent) throw new Error('an event is too large')
      // A carriage return at the end may be half of a line break.
      const lines = rest.split(/\r\n|\n|\r(?!$)/)
      rest = lines.pop() ?? ''
      for (const line of lines) {
        if (line === '') {
          if (now.data.length > 0) yield { id: now.id, event: now.event || 'message', data: now.data.join('\n') }
          now = { id: '', event: '', data: [] }
          continue
        }
        const colon = line.indexOf(':')
        if (colon === 0) continue
        const name = colon < 0 ? line : line.slice(0, colon)
        let of = colon < 0 ? '' : line.slice(colon + 1)
        if (of.startsWith(' ')) of = of.slice(1)
        if (name === 'data') now.data.push(of)
        else if (name === 'event') now.event = of
        else if (name === 'id' && !of.includes('\0')) now.id = of
      }
    }
  } finally {
    await reader.cancel().catch(() => {})
  }
}
