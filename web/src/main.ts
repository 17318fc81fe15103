import { createPinia } from 'pinia'
import { createApp } from 'vue'
import App from './App.vue'
import { useSession } from './lib/session'
import { takeSetupToken } from './lib/setup'
import { apply } from './lib/theme'
import { makeRouter } from './router'
import './style.css'

async function start(): Promise<void> {
  takeSetupToken()
  apply()
  // The largest page comes while the node is asked who is there. A failure shows when the router wants it.
  if (/^\/chat(\/|$)/.test(location.pathname)) void import('@/chat/Chat.vue').catch(() => {})
  const pinia = createPinia()
  let failure: unknown
  try {
    await useSession(pinia).load()
  } catch (err) {
    failure = err
  }
  const router = makeRouter()
  router.onError((err: unknown, to) => reloadOnce(err, to.fullPath))
  const app = createApp(App, { failure })
  // The router asks at once who is there, so it comes after that is known.
  app.use(pinia).use(router)
  await router.isReady().catch(() => {})
  app.mount('#app')
}

// A page whose script is not there any more belongs to an older build: the whole address is loaded again, once.
function reloadOnce(err: unknown, to: string): void {
  if (!(err instanceof TypeError) || !/import|module/i.test(err.message) || sessionStorage.getItem('atoll.reloaded') === to) return
  sessionStorage.setItem('atoll.reloaded', to)
  location.assign(to)
}

void start()
