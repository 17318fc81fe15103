export interface Ceiling {
  categories: string[]
  folders: string[]
  asking: boolean
}

export interface Peer {
  key: string
  key_words?: string
  name: string
  label?: string
  state: 'asking' | 'paired' | 'blocked'
  online: boolean
  relayed?: boolean
  admits: boolean
  radio?: boolean
  last_seen?: string
  version?: string
  status?: string
  shares: { files: number; bytes: number; truncated?: boolean; at?: string }
  ceiling: Ceiling
}

export interface Status {
  enabled: boolean
  name?: string
  key: string
  key_words: string[]
  addresses?: string[]
  peers: Peer[] | null
  invites?: number
  held?: boolean
  radio?: { connected: boolean; airtime_used_ms: number; airtime_limit_ms: number }
  note?: string
}

export interface Invite {
  code: string
  words: string[]
  qr: string[]
  key_words: string[]
  addresses: string[]
  expires_at: string
}
