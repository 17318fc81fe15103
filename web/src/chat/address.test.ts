import { expect, it } from 'vitest'
import { address } from './address'
import { decodeHost } from './punycode'

it.each([
  ['xn--pple-43d.com', 'аpple.com'],
  ['xn--bcher-kva.example', 'bücher.example'],
  ['xn--n3h.net', '☃.net'],
  ['xn--wgv71a119e.jp', '日本語.jp'],
  ['a.xn--80ak6aa92e.com', 'a.аррӏе.com'],
  ['plain.example', 'plain.example'],
  ['xn--.example', '.example'],
  ['xn--!!!.example', 'xn--!!!.example'],
  ['xn--99999999999.example', 'xn--99999999999.example'],
])('decodes %s', (host, letters) => {
  expect(decodeHost(host)).toBe(letters)
})

it.each(['javascript:alert(1)', 'JaVaScRiPt:alert(1)', 'data:text/html,x', 'vbscript:x', 'file:///etc/passwd', 'blob:x', 'about:blank', '//x.test', '/apps', '', 'x', 'http://', 'ftp://x.test', 'intent://x'])('never opens %s', (raw) => {
  expect(address(raw)).toBeUndefined()
})

it('shows the site that is really opened', () => {
  const a = address('https://bank.test@evil.test/x')!
  expect(a.host).toBe('evil.test')
  expect(a.warnings.join()).toContain('The site is evil.test')
})

it('shows letters of other alphabets and what cannot be seen', () => {
  const a = address('https://\u0430pple.com/\u202egpj.exe')!
  expect(a.href).toBe('https://xn--pple-43d.com/%E2%80%AEgpj.exe')
  expect(a.letters).toContain('⟨U+0430⟩')
  expect(a.written).toContain('⟨U+202E⟩')
  expect(a.warnings.length).toBeGreaterThan(1)
})

it('says nothing of a plain address', () => {
  expect(address('https://example.org/x?y=2#z')).toEqual({ href: 'https://example.org/x?y=2#z', written: '', host: 'example.org', letters: '', warnings: [] })
})
