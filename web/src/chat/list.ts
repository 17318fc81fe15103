// The person's conversations and what a search in them found.
import { defineStore } from 'pinia'
import { ref, shallowRef } from 'vue'
import { call } from '@/lib/rpc'
import type { Conversation, Find, Listing, Problem } from './types'

export const useConversations = defineStore('conversations', () => {
  const list = shallowRef<Conversation[]>()
  const problems = shallowRef<Problem[]>([])
  const more = ref(false)
  const error = shallowRef<unknown>()
  const query = ref('')
  const finds = shallowRef<Find[]>()
  const moreFinds = ref(false)
  const searchError = shallowRef<unknown>()
  let age = 0
  let searchAge = 0

  async function load(): Promise<void> {
    const mine = ++age
    try {
      const got = await call<Listing>('assistant.conversations', {})
      if (mine !== age) return
      list.value = got.conversations ?? []
      more.value = got.more === true
      problems.value = got.problems ?? []
      error.value = undefined
    } catch (err) {
      if (mine === age) error.value = err
    }
  }

  async function loadMore(): Promise<void> {
    const before = list.value?.at(-1)?.conversation
    if (!before) return
    const mine = age
    try {
      const got = await call<Listing>('assistant.conversations', { before })
      if (mine !== age) return
      list.value = [...(list.value ?? []), ...(got.conversations ?? [])]
      more.value = got.more === true
    } catch (err) {
      if (mine === age) error.value = err
    }
  }

  async function search(): Promise<void> {
    const mine = ++searchAge
    const words = query.value.trim()
    searchError.value = undefined
    if (words === '') {
      finds.value = undefined
      return
    }
    try {
      const got = await call<{ finds: Find[] | null; more?: boolean }>('assistant.search', { query: words })
      if (mine !== searchAge) return
      finds.value = got.finds ?? []
      moreFinds.value = got.more === true
    } catch (err) {
      if (mine === searchAge) searchError.value = err
    }
  }

  function reset(): void {
    age++
    searchAge++
    list.value = finds.value = undefined
    query.value = ''
    error.value = searchError.value = undefined
  }

  return { list, problems, more, error, query, finds, moreFinds, searchError, load, loadMore, search, reset }
})
