// What the node sends, as rpc.discover describes it. Lists may come as null where they are empty.
export type Role = 'owner' | 'member' | 'viewer'

export interface Login {
  csrf: string
  username: string
  role: Role
  expires_at: string
}

export interface Usage {
  in: number
  out: number
  cache_read: number
  cache_write: number
  cost_usd?: number | null
}

export interface AppStatus {
  app: string
  title?: string
  runtime: string
  state: string
  since?: string
  pid?: number
  exit_code?: number
  signal?: string
  exit_unknown?: boolean
  reason?: string
  restarts: number
  cpu_percent?: number
  memory_bytes?: number
  definition_changed?: boolean
  image?: string
  health?: string
  ports?: AppPort[]
  services?: AppStatus[]
  warning?: string
}

export interface AppPort {
  address?: string
  port: number
  container_port?: number
  protocol: string
}

export interface AppList {
  apps: AppStatus[] | null
  problems?: Array<{ file?: string; problem: string }>
}

export interface LogLine {
  time?: string
  stream: string
  service?: string
  text: string
}

export interface Notice {
  id: number
  kind: string
  severity: string
  what: string
  do: string
  count: number
  first_at: string
  last_at: string
  acknowledged_at?: string
  acknowledged_by?: string
}

export interface Disk {
  mount: string
  device?: string
  fs: string
  total_bytes: number
  used_bytes: number
  free_bytes: number
  used_percent: number
  inodes_used_percent?: number
  read_only?: boolean
  warn: boolean
  unreachable?: boolean
}

export interface SystemInfo {
  hostname: string
  os: string
  kernel: string
  arch: string
  cpus: number
  load1: number
  load5: number
  load15: number
  cpu_percent?: number | null
  memory_total_bytes: number
  memory_used_bytes: number
  memory_available_bytes: number
  swap_total_bytes: number
  swap_used_bytes: number
  temperatures: Array<{ sensor: string; celsius: number }> | null
  uptime_s: number
  addresses: string[] | null
  time: string
}

export interface Sample {
  time: string
  cpu_percent: number
  load1: number
  memory_used_bytes: number
  memory_total_bytes: number
  disk_percent: number
}

export interface Setting {
  value: unknown
  type: string
  settable: boolean
  choices?: string[] | null
  min?: number
  max?: number
}

export type Mode = 'off' | 'read-only' | 'confirm'

export interface Grant {
  granted: boolean
  expires_at?: string
}

export interface Tool {
  tool: string
  description: string
  category: string
  destructive: boolean
  method: string
  schema: unknown
  offered: boolean
}

export interface Permission {
  id: string
  account: number
  tool: string
  summary: string
  action_key: string
  since: string
  expires_at: string
  used_last_hour: number
}

export interface AuditRecord {
  seq: number
  at: string
  prev: string
  kind: string
  event: string
  caller: string
  session?: string
  subject?: string
  action_key?: string
  args?: string
  code?: string
  outcome?: string
  detail?: string
  untrusted?: boolean
  hash?: string
}

export interface User {
  username: string
  role: Role
  created_at: string
  sessions: number
  last_seen?: string
}

export interface SessionRow {
  id: string
  current: boolean
  address: string
  created_at: string
  last_seen: string
  expires_at: string
}
