// What the pages of apps share: the list, kept fresh, and the person's own action on one of them.
import { ref } from 'vue'
import type { Verb } from '@/lib/apps'
import { useLive } from '@/lib/live'
import { useLoad } from '@/lib/load'
import { usePoll } from '@/lib/poll'
import { call } from '@/lib/rpc'
import { useSession } from '@/lib/session'
import type { AppList, AppStatus } from '@/lib/types'

export function useApps() {
  const live = useLive()
  const acts = useSession().may('member')
  const list = useLoad(async (signal) => {
    const got = await call<AppList>('apps.list', {}, signal)
    live.takeApps(got)
    return got
  })
  usePoll(() => void list.load(), 10_000) // states come by themselves, figures of use do not

  const acting = ref(false)
  const subject = ref<AppStatus>()
  const verb = ref<Verb>('restart')
  function ask(app: AppStatus, v: Verb): void {
    subject.value = app
    verb.value = v
    acting.value = true
  }
  return { live, acts, list, acting, subject, verb, ask }
}
