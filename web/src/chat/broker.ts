// The host's end of the line to the transcript frame. It takes the few requests of frame/protocol.ts and nothing else: no
// message of the frame can reach the chat, a decision, a grant or a setting, because nothing here leads there.
import { MAX_BURST, MAX_RATE, PORT, READY, encodeParts, readFromFrame, type FromFrame, type ToFrame } from '../../frame/protocol'

export interface Config {
  // The frame's script runs and shows nothing yet.
  ready: () => void
  request: (m: FromFrame) => void
  // The frame broke the rules; it must be taken away at once.
  broken: (why: string) => void
}

// Bucket counts messages: so many a second, so many at once.
export class Bucket {
  private left = MAX_BURST
  private at: number

  constructor(private readonly now: () => number = () => performance.now()) {
    this.at = now()
  }

  take(): boolean {
    const now = this.now()
    this.left = Math.min(MAX_BURST, this.left + ((now - this.at) / 1000) * MAX_RATE)
    this.at = now
    if (this.left < 1) return false
    this.left--
    return true
  }
}

export class Broker {
  // dropped counts what was no message of the list.
  dropped = 0
  private port: MessagePort | null = null
  private loads = 0
  private over = false
  private readonly bucket = new Bucket()
  private readonly onWindow = (e: MessageEvent) => this.hello(e)
  private readonly onLoad = () => {
    // A second document in the frame is not ours.
    if (++this.loads > 1) this.end('it went to another page')
  }

  constructor(
    private readonly frame: HTMLIFrameElement,
    private readonly cfg: Config,
  ) {
    window.addEventListener('message', this.onWindow)
    frame.addEventListener('load', this.onLoad)
  }

  get connected(): boolean {
    return this.port !== null
  }

  // hello takes the one message on the window, from this frame and an opaque origin, and hands over the port, once.
  private hello(e: MessageEvent): void {
    if (e.source === null || e.source !== this.frame.contentWindow || this.over) return
    if (!this.bucket.take()) return this.end('it sent too much')
    if (this.port || e.origin !== 'null' || e.data !== READY) {
      this.dropped++
      return
    }
    const { port1, port2 } = new MessageChannel()
    this.port = port1
    port1.onmessage = (m) => this.take(m)
    port1.onmessageerror = () => this.dropped++
    // The origin is opaque, so it cannot be named; the window was checked above.
    this.frame.contentWindow.postMessage(PORT, '*', [port2])
    this.cfg.ready()
  }

  private take(e: MessageEvent): void {
    if (this.over) return
    if (!this.bucket.take()) return this.end('it sent too much')
    const m = e.ports.length === 0 ? readFromFrame(e.data) : undefined
    if (m) this.cfg.request(m)
    else this.dropped++
  }

  private end(why: string): void {
    if (this.over) return
    this.close()
    this.cfg.broken(why)
  }

  send(m: ToFrame): void {
    for (const text of encodeParts(m)) this.port?.postMessage(text)
  }

  close(): void {
    this.over = true
    window.removeEventListener('message', this.onWindow)
    this.frame.removeEventListener('load', this.onLoad)
    this.port?.close()
    this.port = null
  }
}
