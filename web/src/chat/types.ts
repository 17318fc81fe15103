// What the node sends about conversations. Everything in it but the host's own lists was written by others.
import type { Usage } from '@/lib/types'

export interface Change {
  tool: string
  summary: string
  outcome: 'done' | 'failed' | 'unknown'
  private?: boolean
}

export interface Conversation {
  conversation: string
  title: string
  created_at: string
  updated_at: string
  turns: number
  usage: Usage
  cost_usd: number
}

export interface Problem {
  file: string
  text: string
}

export interface Listing {
  conversations: Conversation[] | null
  more?: boolean
  problems?: Problem[]
}

export interface BlockView {
  kind: 'text' | 'call'
  text?: string
  tool?: string
  arguments?: string
  result?: string
  error?: boolean
  private?: boolean
  source?: string
}

export interface TurnView {
  turn: number
  at: string
  message: string
  outside?: boolean
  blocks: BlockView[] | null
  changes: Change[] | null
  usage: Usage
  cost_usd: number
  outcome: string
  code?: string
}

export interface History extends Conversation {
  entries: TurnView[] | null
  earlier?: boolean
}

export interface Find {
  conversation: string
  title: string
  turn?: number
  who: string
  snippet: string
  updated_at: string
}

export interface Offer {
  category: string
  tools: string[] | null
  host: string
  for_s: number
}

export interface Answer {
  conversation: string
  answer: string
  rounds: number
  tools: Array<{ tool: string; outcome: string; code?: string }> | null
  changes: Change[] | null
  offers?: Offer[]
  notes?: string[]
  usage: Usage
}
