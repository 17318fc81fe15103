// Short words about what was just done. What needs reading stays on its page instead.
import { defineStore } from 'pinia'
import { ref } from 'vue'

export interface Toast {
  id: number
  tone: 'ok' | 'bad'
  text: string
}

export const useToasts = defineStore('toasts', () => {
  const list = ref<Toast[]>([])
  let next = 0

  function dismiss(id: number): void {
    list.value = list.value.filter((t) => t.id !== id)
  }

  function add(tone: Toast['tone'], text: string): void {
    const id = ++next
    list.value = [...list.value.slice(-2), { id, tone, text }]
    setTimeout(() => dismiss(id), tone === 'ok' ? 5000 : 10_000)
  }

  return { list, dismiss, ok: (text: string) => add('ok', text), bad: (text: string) => add('bad', text) }
})
