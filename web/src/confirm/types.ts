// Pending is one action that waits for a person's decision, as the node tells it. No text of a model is in it, but its
// arguments are what the model asked for, and may look like anything.
export interface Pending {
  nonce: string
  action_key: string
  conversation: string
  caller: string
  tool: string
  summary: string
  target: string
  arguments: unknown
  before: string
  after: string
  untrusted: string[] | null
  warnings: string[] | null
  may_allow: boolean
  maybe_ran: boolean
  born_at: string
  expires_at: string
}

export interface Ended {
  nonce: string
  outcome: string
}

export type Decision = 'approve' | 'decline'
