// The one-time token of a new node's address, BASE/#setup=TOKEN. It is taken out of the address before anything else
// runs and lives in memory only.
import { ref } from 'vue'

export const setupToken = ref('')

export function takeSetupToken(): void {
  const found = /^#setup=([0-9a-f]{16,256})$/.exec(location.hash)
  if (!found) return
  setupToken.value = found[1] ?? ''
  history.replaceState(history.state, '', '/setup')
}
