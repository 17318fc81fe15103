// The one way to the node: JSON-RPC over POST /rpc with the session's cookie and CSRF token.
import { readEvents } from './sse'

// RpcError is a refusal or failure, with the node's words for the person. Code is one of the node's closed list, or
// 'offline' (the node was not reached) or 'aborted' (this side gave up).
export class RpcError extends Error {
  constructor(
    readonly code: string,
    message: string,
    readonly status = 0,
    readonly field?: string,
    readonly retryAfterS?: number,
  ) {
    super(message)
    this.name = 'RpcError'
  }
}

interface Wire {
  error?: { message?: unknown; data?: { code?: unknown; field?: unknown; retry_after_s?: unknown } }
  result?: unknown
}

interface Hooks {
  csrf: () => string
  // The session is over.
  unauthenticated: () => void
  // The token was another session's: gets the current one. True means that it is the same person, so the call may go again.
  stale: () => Promise<boolean>
}

let hooks: Hooks = { csrf: () => '', unauthenticated: () => {}, stale: async () => false }

// connect is the session's: calls bear its token and tell it when it ended.
export function connect(h: Hooks): void {
  hooks = h
}

let id = 0

export function errorOf(body: unknown, status: number): RpcError {
  const e = (body as Wire | null)?.error
  const text = (v: unknown) => (typeof v === 'string' && v !== '' ? v : undefined)
  const wait = e?.data?.retry_after_s
  return new RpcError(
    text(e?.data?.code) ?? 'failed',
    text(e?.message) ?? `The node answered with status ${status} and no words.`,
    status,
    text(e?.data?.field),
    typeof wait === 'number' ? wait : undefined,
  )
}

function lost(err: unknown, signal?: AbortSignal): RpcError {
  if (err instanceof RpcError) return err
  if (signal?.aborted) {
    const late = (signal.reason as { name?: string } | undefined)?.name === 'TimeoutError'
    return new RpcError('aborted', late ? 'No answer came in time.' : 'Given up.')
  }
  return new RpcError('offline', 'The node cannot be reached. Check that it runs and that this device is on its network.')
}

async function send(method: string, params: object, accept: string, signal?: AbortSignal): Promise<Response> {
  const body = JSON.stringify({ jsonrpc: '2.0', id: ++id, method, params })
  return fetch('/rpc', {
    method: 'POST',
    credentials: 'same-origin',
    redirect: 'error',
    headers: { 'Content-Type': 'application/json', Accept: accept, 'X-CSRF-Token': hooks.csrf() },
    body,
    ...(signal ? { signal } : {}),
  })
}

const open = new Set(['auth.login', 'auth.setup', 'node.version'])

async function whole(res: Response, method: string, read = JSON.parse as (text: string) => unknown): Promise<unknown> {
  const body = await res.text().then(read).catch(() => null)
  if (res.ok && body !== null && typeof body === 'object' && 'result' in body) return (body as Wire).result
  const err = errorOf(body, res.status)
  if (res.status === 401 && !open.has(method)) hooks.unauthenticated()
  throw err
}

// The node refuses a stale token before it looks at the call, so a second try cannot run anything twice.
async function retried<T>(attempt: () => Promise<T>): Promise<T> {
  try {
    return await attempt()
  } catch (err) {
    if (err instanceof RpcError && err.code === 'csrf' && (await hooks.stale())) return attempt()
    throw err
  }
}

// call makes one call and gives its result, read in another way than JSON.parse where one is given.
export async function call<T>(method: string, params: object = {}, signal?: AbortSignal, read?: (text: string) => unknown): Promise<T> {
  return retried(async () => {
    try {
      return (await whole(await send(method, params, 'application/json', signal), method, read)) as T
    } catch (err) {
      throw lost(err, signal)
    }
  })
}

// stream makes a call whose answer comes in events. It resolves with the data of `answer`. An ordinary answer (a refusal
// before the stream opened) is taken as such. A stream that ends without an answer is 'offline'.
export async function stream<T = unknown>(
  method: string,
  params: object,
  on: (event: string, data: unknown) => void,
  signal?: AbortSignal,
): Promise<T> {
  return retried(async () => {
    try {
      const res = await send(method, params, 'text/event-stream, application/json;q=0.5', signal)
      if (!res.headers.get('Content-Type')?.startsWith('text/event-stream')) return (await whole(res, method)) as T
      for await (const e of res.body ? readEvents(res.body) : []) {
        const data: unknown = JSON.parse(e.data)
        if (e.event === 'answer') return data as T
        if (e.event === 'error') throw errorOf({ error: data }, 200)
        on(e.event, data)
      }
      throw new RpcError('offline', 'The connection broke off before the answer was complete.')
    } catch (err) {
      throw lost(err, signal)
    }
  })
}

// words is what to show of any error.
export function words(err: unknown): string {
  return err instanceof Error ? err.message : String(err)
}
