import { onScopeDispose } from 'vue'

// usePoll runs work every so often while the page is looked at, and when it is looked at again.
export function usePoll(work: () => unknown, everyMs: number): void {
  const run = () => {
    if (document.visibilityState === 'visible') work()
  }
  const timer = setInterval(run, everyMs)
  document.addEventListener('visibilitychange', run)
  onScopeDispose(() => {
    clearInterval(timer)
    document.removeEventListener('visibilitychange', run)
  })
}
