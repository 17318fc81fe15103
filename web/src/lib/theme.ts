// The theme: what this browser chose, else what the node is set to (ui.theme), else what the system says.
import { ref } from 'vue'
import { call } from './rpc'
import type { Setting } from './types'

export type Theme = 'node' | 'auto' | 'light' | 'dark'
const own = 'atoll.theme'
const nodes = 'atoll.theme.node' // read by public/theme.js before the first paint

// A browser may keep no storage; then a choice lasts until the page is left.
function read(key: string): string {
  try {
    return localStorage.getItem(key) ?? ''
  } catch {
    return ''
  }
}

function write(key: string, value: string): void {
  try {
    if (value) localStorage.setItem(key, value)
    else localStorage.removeItem(key)
  } catch {
    return
  }
}

const first = read(own)
export const theme = ref<Theme>(first === 'auto' || first === 'light' || first === 'dark' ? first : 'node')
const nodeTheme = ref(read(nodes))

// shown is what is in force: "light", "dark", or "" for the system's.
export function shown(): string {
  const t = theme.value === 'node' ? nodeTheme.value : theme.value
  return t === 'light' || t === 'dark' ? t : ''
}

export function apply(): void {
  const t = shown()
  if (t) document.documentElement.dataset.theme = t
  else delete document.documentElement.dataset.theme
}

export function choose(t: Theme): void {
  theme.value = t
  write(own, t === 'node' ? '' : t)
  apply()
}

export function setNodeTheme(t: string): void {
  nodeTheme.value = t
  write(nodes, t)
  apply()
}

export async function loadNodeTheme(): Promise<void> {
  try {
    const got = await call<{ settings: Record<string, Setting> }>('settings.get', { key: 'ui.theme' })
    setNodeTheme(String(got.settings['ui.theme']?.value ?? ''))
  } catch {
    // The last known one stays: a colour is not worth an error.
  }
}
