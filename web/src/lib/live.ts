// What the stream of events keeps fresh for every page: notices, waiting confirmations, apps.
import { defineStore } from 'pinia'
import { computed, ref, shallowRef } from 'vue'
import { call } from './rpc'
import { useEvents, type Synced } from './events'
import { useSession } from './session'
import type { AppList, AppStatus, Notice } from './types'

export const useLive = defineStore('live', () => {
  const events = useEvents()
  const notices = shallowRef<ReadonlyMap<number, Notice>>(new Map())
  const waiting = ref<ReadonlySet<string>>(new Set())
  const apps = shallowRef<AppList | undefined>()
  const openNotices = computed(() => [...notices.value.values()].filter((n) => !n.acknowledged_at).sort((a, b) => b.last_at.localeCompare(a.last_at)))

  function take(n: Notice): void {
    notices.value = new Map(notices.value).set(n.id, n)
  }

  // An event of apps holds all of them, or the one that changed.
  function takeApps(got: AppList | AppStatus): void {
    if ('apps' in got) {
      apps.value = got
      return
    }
    const all = apps.value?.apps ?? []
    const rest = all.filter((a) => a.app !== got.app)
    const kept = all.find((a) => a.app === got.app)
    if (got.state === 'removed') apps.value = { ...apps.value, apps: rest }
    // Figures of use do not come with a change.
    else if (kept) apps.value = { ...apps.value, apps: all.map((a) => (a.app === got.app ? got : a)) }
    else apps.value = { ...apps.value, apps: [...rest, got].sort((a, b) => a.app.localeCompare(b.app)) }
  }

  events.on<Notice>('notice', take)
  events.on<AppList | AppStatus>('apps', takeApps)
  events.on<{ nonce: string }>('confirm', (p) => (waiting.value = new Set(waiting.value).add(p.nonce)))
  events.on<{ nonce: string }>('confirm-ended', (p) => {
    const left = new Set(waiting.value)
    left.delete(p.nonce)
    waiting.value = left
  })
  events.on<Synced>('synced', ({ state }) => {
    const stands = new Map<number, Notice>()
    const asked = new Set<string>()
    for (const { name, data } of state) {
      if (name === 'notice') stands.set((data as Notice).id, data as Notice)
      if (name === 'confirm') asked.add((data as { nonce: string }).nonce)
    }
    waiting.value = asked
    if (useSession().may('owner')) notices.value = stands
  })

  async function acknowledge(id: number): Promise<void> {
    take((await call<{ notice: Notice }>('notices.ack', { id })).notice)
  }

  function reset(): void {
    notices.value = new Map()
    waiting.value = new Set()
    apps.value = undefined
  }

  return { notices, openNotices, waiting, apps, take, takeApps, acknowledge, reset }
})
