import { createPinia, setActivePinia } from 'pinia'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { back } from './back'
import { judge } from './password'
import { useSession } from './session'
import { setupToken, takeSetupToken } from './setup'

const login = { csrf: 'c', username: 'ada', role: 'member', expires_at: '2026-12-09T00:00:00Z' }
const json = (body: unknown, status = 200) => new Response(JSON.stringify(body), { status })

beforeEach(() => {
  vi.stubGlobal('BroadcastChannel', undefined)
  setActivePinia(createPinia())
})
afterEach(() => vi.unstubAllGlobals())

describe('session', () => {
  it('knows who is there, and what they may', async () => {
    vi.stubGlobal('fetch', async () => json(login))
    const s = useSession()
    expect([s.may('viewer'), s.active]).toEqual([false, false])
    expect(await s.load()).toBe(true)
    expect([s.user, s.csrf, s.may('viewer'), s.may('member'), s.may('owner')]).toEqual(['ada', 'c', true, true, false])
  })

  it('is over with a 401, and tells it once', async () => {
    const ended = vi.fn()
    vi.stubGlobal('fetch', async () => json(login))
    const s = useSession()
    s.onEnd(ended)
    await s.load()
    vi.stubGlobal('fetch', async () => json({}, 401))
    expect(await s.load()).toBe(false)
    expect(await s.load()).toBe(false)
    expect([s.user, s.csrf, s.may('viewer')]).toEqual(['', '', false])
    expect(ended).toHaveBeenCalledTimes(1)
  })

  it('is not over because the node cannot be asked', async () => {
    vi.stubGlobal('fetch', async () => json(login))
    const s = useSession()
    await s.load()
    vi.stubGlobal('fetch', async () => {
      throw new TypeError('failed to fetch')
    })
    await expect(s.load()).rejects.toMatchObject({ code: 'offline' })
    expect(s.active).toBe(true)
  })

  it('is forgotten here even where the node cannot be told', async () => {
    vi.stubGlobal('fetch', async () => json(login))
    const s = useSession()
    await s.load()
    vi.stubGlobal('fetch', async () => {
      throw new TypeError('failed to fetch')
    })
    await expect(s.logout()).rejects.toMatchObject({ code: 'offline' })
    expect(s.active).toBe(false)
  })
})

describe('the set-up token', () => {
  it('is taken out of the address', () => {
    location.hash = '#setup=0123456789abcdef0123456789abcdef'
    takeSetupToken()
    expect(setupToken.value).toBe('0123456789abcdef0123456789abcdef')
    expect(location.href).not.toContain('0123456789abcdef')
    expect(location.pathname).toBe('/setup')
  })

  it.each(['#setup=', '#setup=<script>', '#other=0123456789abcdef', ''])('is not %j', (hash) => {
    setupToken.value = ''
    location.hash = hash
    takeSetupToken()
    expect(setupToken.value).toBe('')
  })
})

it('a login leads back, to this interface only', () => {
  expect(['/apps', '/files?tab=files&path=/a', '/chat/c#x'].map(back)).toEqual(['/apps', '/files?tab=files&path=/a', '/chat/c#x'])
  for (const to of ['//evil.example', '/\\evil.example', 'https://evil.example', 'javascript:alert(1)', '/login?next=/login', '/setup', '', undefined, null, ['/a']]) expect(back(to)).toBe('/')
})

describe('a new password', () => {
  it.each([
    ['', false],
    ['short', false],
    ['aaaaaaaaaaaa', false],
    ['administrator', false],
    ['x'.repeat(1) + 'é'.repeat(600), false],
    ['1234567890', true],
    ['correct horse battery', true],
    ['日本語のパスワード長い', true],
  ])('%j', (password, ok) => expect(judge(password, 'Administrator').ok).toBe(ok))

  it('is told apart by strength', () => {
    expect(judge('12345678901234567890', '').tone).toBe('warn')
    expect(judge('abcabcabcabcabcabc', '').tone).toBe('warn')
    expect(judge('correct horse battery', '').tone).toBe('ok')
  })
})
