import { onScopeDispose, ref, type Ref } from 'vue'

// useNow is the time, moving on while its component lives.
export function useNow(everyMs = 15_000): Ref<number> {
  const now = ref(Date.now())
  const timer = setInterval(() => (now.value = Date.now()), everyMs)
  onScopeDispose(() => clearInterval(timer))
  return now
}
