// Words about apps, the same on every page.
import type { AppPort, AppStatus } from './types'

export type Tone = 'ok' | 'warn' | 'bad' | 'neutral' | 'accent'
export type Verb = 'start' | 'stop' | 'restart'

// stateWords is a state in the words of the pages.
export function stateWords(state: string): string {
  return state === 'backoff' ? 'failing' : state
}

export function toneOf(state: string): Tone {
  switch (state) {
    case 'running':
      return 'ok'
    case 'starting':
    case 'stopping':
      return 'accent'
    case 'partly running':
    case 'paused':
    case 'backoff':
      return 'warn'
    case 'failed':
      return 'bad'
  }
  return 'neutral'
}

// endedBadly is an end of the app's own that was no success.
export function endedBadly(a: AppStatus): boolean {
  return a.state === 'exited' && ((a.exit_code !== undefined && a.exit_code !== 0) || a.signal !== undefined)
}

// ending is how the last run ended, or "".
export function ending(a: AppStatus): string {
  if (a.signal) return `ended by ${a.signal}`
  if (a.exit_code !== undefined) return `exit code ${a.exit_code}`
  if (a.exit_unknown) return 'ended unseen'
  return ''
}

// trouble is why an app needs a person, or "".
export function trouble(a: AppStatus): string {
  if (a.state === 'failed') return a.reason || 'could not be started'
  if (endedBadly(a)) return ending(a)
  if (a.state === 'backoff') return `each try ends soon${ending(a) ? `, the last with ${ending(a)}` : ''}; the next comes by itself`
  if (a.state === 'partly running') {
    const down = (a.services ?? []).filter((s) => s.state !== 'running').length
    return down > 0 ? `${down} of ${a.services?.length} services do not run` : 'some of its services do not run'
  }
  if (a.health === 'unhealthy') return 'its own check says that it is unhealthy'
  return ''
}

const up = ['running', 'starting', 'stopping']
const down = ['stopped', 'exited', 'failed', 'removed']

// verbs are what makes sense in the app's state; the node decides.
export function verbs(a: AppStatus): Verb[] {
  if (down.includes(a.state)) return ['start']
  if (up.includes(a.state)) return ['restart', 'stop']
  return a.state === 'partly running' ? ['start', 'restart', 'stop'] : ['restart', 'stop']
}

export function after(a: AppStatus, verb: Verb): string {
  if (verb === 'stop') return 'stopped'
  return verb === 'restart' && !down.includes(a.state) && a.state !== 'backoff' ? 'running (restarted)' : 'running'
}

// warnings are what stopping it takes down beside itself, each once.
export function warnings(a: AppStatus): string[] {
  return [...new Set([a, ...(a.services ?? [])].map((s) => s.warning ?? '').filter(Boolean))]
}

export function port(p: AppPort): string {
  const host = p.address && p.address !== '0.0.0.0' && p.address !== '::' ? `${p.address.includes(':') ? `[${p.address}]` : p.address}:` : ''
  const inside = p.container_port && p.container_port !== p.port ? ` → ${p.container_port}` : ''
  return `${host}${p.port}${inside}${p.protocol === 'tcp' ? '' : `/${p.protocol}`}`
}

// ports are each once: the same one for both families of addresses is one.
export function ports(a: AppStatus): string[] {
  return [...new Set([...(a.ports ?? []), ...(a.services ?? []).flatMap((s) => s.ports ?? [])].map(port))]
}
