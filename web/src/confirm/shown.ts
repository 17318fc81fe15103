// What the dialog says of an action: every argument whole, what cannot be seen made visible, and every warning once (C6, C7).
import { exact } from '@/lib/exact'
import { clear, visible } from '@/lib/visible'
import type { Pending } from './types'

export interface Argument {
  name: string
  value: string
}

export interface Shown {
  before: string
  after: string
  target: string
  arguments: Argument[]
  warnings: string[]
  // The browser cannot show it as it will run, so it must not be approved here.
  refused: string
}

function value(v: unknown): { shown: string; notes: string[] } {
  const text = typeof v === 'string' ? v : JSON.stringify(v)
  const { shown, warnings } = visible(text)
  return { shown: typeof v === 'string' ? `"${shown}"` : shown, notes: warnings }
}

export function describe(p: Pending): Shown {
  const warnings = new Set((p.warnings ?? []).map((w) => clear(w)))
  if (p.maybe_ran) warnings.add('This may already have run: the last time, its outcome was not seen.')
  if (p.untrusted?.length) {
    const from = p.untrusted.map((t) => clear(t)).join(', ')
    warnings.add(`The assistant has read text that others can write, from: ${from}. It may have been led to ask this.`)
  }
  // A state can hold what an argument says, such as a setting's new value.
  const state = (s: string) => (s === '' ? 'not known' : visible(s).shown)
  const out: Argument[] = []
  let refused = ''
  if (typeof p.arguments !== 'object' || p.arguments === null || Array.isArray(p.arguments)) {
    refused = 'The arguments could not be read. Decline.'
    out.push({ name: 'arguments', value: value(p.arguments ?? '').shown })
  } else {
    for (const [name, v] of Object.entries(p.arguments)) {
      const key = visible(name)
      const { shown, notes } = value(v)
      out.push({ name: key.shown, value: shown })
      for (const n of key.warnings) warnings.add(`the name of the argument ${key.shown}: ${n}`)
      // The node says the same of its own arguments, in the same words.
      for (const n of notes) warnings.add(`the argument ${key.shown}: ${n}`)
    }
    // Numbers of more digits than this language keeps would be shown as others than those that run (G5).
    if (!exact(p.arguments)) refused = 'A number in it has more digits than this browser can show. Decide in a terminal: atoll chat.'
  }
  return { before: state(p.before), after: state(p.after), target: state(p.target), arguments: out, warnings: [...warnings], refused }
}

// endedWords says how a question ended, as the node told it.
export function endedWords(outcome: string, mine: boolean): { title: string; text: string } {
  const elsewhere = mine ? '' : ' elsewhere'
  switch (outcome) {
    case 'approved':
      return { title: `Approved${elsewhere}`, text: 'The node runs it now. The chat tells what came of it.' }
    case 'declined':
      return { title: `Declined${elsewhere}`, text: 'Nothing was changed.' }
    case 'expired':
      return { title: 'Nobody decided in time', text: 'Nothing was changed. It can be asked for again.' }
    case 'cancelled':
      return { title: 'The turn was stopped', text: 'The question ended with it. Nothing was changed.' }
    case 'dropped':
      return { title: 'The node was restarted', text: 'The question ended with it. It was not run.' }
    case 'gone':
      return {
        title: 'This question is over',
        text: 'The node does not have it any more: it was restarted, or the question ended while this page was not connected. It cannot be approved any more. The notices and the audit tell what happened.',
      }
  }
  return { title: 'This question is over', text: `It was not approved here (${clear(outcome)}).` }
}
