import { onScopeDispose, ref, shallowRef, type Ref, type ShallowRef } from 'vue'

export interface Loaded<T> {
  data: ShallowRef<T | undefined>
  error: ShallowRef<unknown>
  busy: Ref<boolean>
  load: () => Promise<void>
}

// useLoad fetches what a page shows, at once and again by load. What was there stays while it runs and where it fails; an
// older answer never replaces a newer one.
export function useLoad<T>(fetch: (signal: AbortSignal) => Promise<T>, options: { later?: boolean } = {}): Loaded<T> {
  const data = shallowRef<T>()
  const error = shallowRef<unknown>()
  const busy = ref(false)
  let running: AbortController | null = null

  async function load(): Promise<void> {
    running?.abort()
    const mine = (running = new AbortController())
    busy.value = true
    try {
      const got = await fetch(mine.signal)
      if (running !== mine) return
      data.value = got
      error.value = undefined
    } catch (err) {
      if (running === mine && !mine.signal.aborted) error.value = err
    } finally {
      if (running === mine) busy.value = false
    }
  }

  // The first time is after the page is drawn: what it asks does not hold that up.
  if (!options.later) busy.value = true
  const first = options.later ? undefined : setTimeout(() => void load())
  onScopeDispose(() => {
    clearTimeout(first)
    running?.abort()
  })
  return { data, error, busy, load }
}
