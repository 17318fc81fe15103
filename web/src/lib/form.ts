import { reactive, ref, shallowRef, type Ref, type ShallowRef } from 'vue'
import { RpcError, words } from './rpc'

export interface Form {
  errors: Record<string, string>
  failure: ShallowRef<unknown>
  busy: Ref<boolean>
  submit: (work: () => Promise<void>) => Promise<boolean>
}

// useForm runs a submission and puts the node's refusal where it belongs: at the field that it names, where that is one
// of those shown; otherwise under the form.
export function useForm(fields: string[]): Form {
  const errors = reactive<Record<string, string>>({})
  const failure = shallowRef<unknown>()
  const busy = ref(false)

  async function submit(work: () => Promise<void>): Promise<boolean> {
    for (const k of Object.keys(errors)) delete errors[k]
    failure.value = undefined
    busy.value = true
    try {
      await work()
      return true
    } catch (err) {
      if (err instanceof RpcError && err.field && fields.includes(err.field)) errors[err.field] = words(err)
      else failure.value = err
      return false
    } finally {
      busy.value = false
    }
  }

  return { errors, failure, busy, submit }
}
