// Who is logged in. The cookie is the browser's alone; this holds what the node says about it.
import { defineStore } from 'pinia'
import { computed, ref } from 'vue'
import { call, connect, RpcError, errorOf } from './rpc'
import type { Login, Role } from './types'

const ranks: Record<Role, number> = { viewer: 1, member: 2, owner: 3 }

export const useSession = defineStore('session', () => {
  const user = ref('')
  const role = ref<Role | ''>('')
  const csrf = ref('')
  const expiresAt = ref('')
  const active = computed(() => user.value !== '')
  const ended: Array<() => void> = []

  // Other tabs share the cookie, so they are told when it changes.
  const tabs = typeof BroadcastChannel === 'undefined' ? null : new BroadcastChannel('atoll-session')
  if (tabs) tabs.onmessage = () => void load().catch(() => {})

  function take(l: Login): void {
    user.value = l.username
    role.value = l.role
    csrf.value = l.csrf
    expiresAt.value = l.expires_at
  }

  function clear(): void {
    const was = active.value
    user.value = role.value = csrf.value = expiresAt.value = ''
    if (was) for (const fn of ended) fn()
  }

  // load asks the node. False means that nobody is logged in; it throws where the node cannot be asked.
  async function load(): Promise<boolean> {
    let res: Response
    try {
      res = await fetch('/session', { credentials: 'same-origin', redirect: 'error' })
    } catch {
      throw new RpcError('offline', 'The node cannot be reached. Check that it runs and that this device is on its network.')
    }
    const body: unknown = await res.json().catch(() => null)
    if (res.status === 401) {
      clear()
      return false
    }
    if (!res.ok) throw errorOf(body, res.status)
    take(body as Login)
    return true
  }

  async function login(username: string, password: string): Promise<void> {
    take(await call<Login>('auth.login', { username, password }))
    tabs?.postMessage('changed')
  }

  async function setup(token: string, username: string, password: string): Promise<void> {
    take(await call<Login>('auth.setup', { token, username, password }))
    tabs?.postMessage('changed')
  }

  // changePassword renews this session; the others of this account end.
  async function changePassword(old: string, fresh: string): Promise<void> {
    take(await call<Login>('auth.passwd', { old, new: fresh }))
    tabs?.postMessage('changed')
  }

  // logout forgets the session here even where the node cannot be told.
  async function logout(): Promise<void> {
    try {
      await call('auth.logout')
    } finally {
      clear()
      tabs?.postMessage('changed')
    }
  }

  function may(least: Role): boolean {
    return role.value !== '' && ranks[role.value] >= ranks[least]
  }

  // onEnd is told when a session that was there is over.
  function onEnd(fn: () => void): void {
    ended.push(fn)
  }

  connect({
    csrf: () => csrf.value,
    unauthenticated: clear,
    stale: async () => {
      const was = user.value
      return (await load().catch(() => false)) && user.value === was
    },
  })

  return { user, role, csrf, expiresAt, active, load, login, setup, changePassword, logout, may, clear, onEnd }
})
