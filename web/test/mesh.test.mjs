// Two real nodes that pair, share and ask by their pages. With SHOTS=DIR the pictures are kept to be looked at.
import assert from 'node:assert/strict'
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { openPage, startBrowser } from './browser.mjs'
import { startNode } from './node.mjs'

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')
const hostile = 'b\u202eirch <img src=x>'

let alder, birch, chromium
before(async () => {
  alder = await startNode({ grants: ['content', 'system'], mesh: true })
  birch = await startNode({ grants: [], mesh: true })
  chromium = await startBrowser()
})
after(async () => {
  await chromium?.stop()
  await alder?.stop()
  await birch?.stop()
})

async function accessible(page, name) {
  await page.evaluate(axe)
  const { violations } = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ['violations'] }))
  assert.deepEqual(violations.map((v) => `${name}: ${v.id} ${v.nodes.map((n) => n.target)}`), [])
}

async function shot(page, name) {
  if (process.env.SHOTS) await page.screenshot({ path: join(process.env.SHOTS, `mesh-${name}.png`), fullPage: true })
}

// events is the body of a stream.
const events = (...list) => list.map(([name, data]) => `event: ${name}\ndata: ${JSON.stringify(data)}\n\n`).join('')

const dialog = (page) => page.getByRole('dialog')
const button = (scope, name) => scope.getByRole('button', { name, exact: typeof name === 'string' })

test('two owners pair by their pages, one shares, the other fetches and asks', async () => {
  await birch.owner.call('settings.set', { key: 'node.name', value: '<b>birch</b>' })
  const a = await openPage(chromium.browser, alder, { path: '/mesh' })
  const b = await openPage(chromium.browser, birch, { path: '/mesh' })
  const words = async (node) => (await node.owner.call('mesh.status')).key_words.join(' ')

  await button(a, 'Invite…').click()
  await button(dialog(a), 'Make the invite').click()
  const code = await dialog(a).locator('code').textContent()
  assert.match(code, /^ATOLL1-/)
  assert.ok(await dialog(a).getByText(await words(alder)).isVisible())
  await accessible(a, 'invite')
  await shot(a, 'invite')
  await button(dialog(a), 'Done').click()
  assert.ok(await a.getByText('1 open invite').isVisible())
  assert.equal(await a.getByText(code).count(), 0, 'a closed invite is shown no more')

  await button(b, 'Accept an invite…').click()
  await dialog(b).getByLabel('The invite').fill('ATOLL1-0000-0000')
  await button(dialog(b), 'Show whose it is').click()
  await dialog(b).getByText('check sum').waitFor()
  await dialog(b).getByLabel('The invite').fill(code)
  await button(dialog(b), 'Show whose it is').click()
  await dialog(b).getByText(await words(alder)).waitFor()
  assert.ok(await button(dialog(b), 'Accept').isDisabled(), 'no accepting before the words were compared')
  await accessible(b, 'accept')
  await dialog(b).getByRole('checkbox').check()
  await dialog(b).getByLabel('Your own name for it').fill('alder')
  await button(dialog(b), 'Accept').click()
  await b.getByText('has not let your node in').waitFor()

  // The other owner sees it come, compares, and lets it in; until then it has nothing.
  await button(a, /^Compare words/).click()
  await dialog(a).getByText(await words(birch)).waitFor()
  await dialog(a).getByText('<b>birch</b>').waitFor() // its own word for itself is text
  assert.ok(await button(dialog(a), 'Let it in').isDisabled())
  await accessible(a, 'admit')
  await shot(a, 'admit')
  await dialog(a).getByRole('checkbox').check()
  await dialog(a).getByLabel('Your own name for it').fill('birch')
  await button(dialog(a), 'Let it in').click()
  await a.getByText('May have', { exact: true }).waitFor()
  assert.match(await a.getByText('May have', { exact: true }).locator('..').textContent(), /nothing/)

  mkdirSync(join(alder.dir, 'content', 'films'), { recursive: true })
  writeFileSync(join(alder.dir, 'content', 'films', 'one.txt'), 'the film')
  writeFileSync(join(alder.dir, 'content', 'diary'), 'secret')
  await button(a, /^What it may have/).click()
  await dialog(a).getByRole('switch', { name: 'Content' }).click()
  await dialog(a).getByLabel('Folders of the shared content').fill('../up')
  await button(dialog(a), 'Save').click()
  await dialog(a).getByText('no folder of the shared content').waitFor()
  await dialog(a).getByLabel('Folders of the shared content').fill('films')
  await accessible(a, 'ceiling')
  await shot(a, 'ceiling')
  await button(dialog(a), 'Save').click()
  await a.getByText('folders: films').waitFor()

  await b.getByText('has not let your node in').waitFor({ state: 'hidden' })
  for (let i = 0; i < 60 && !(await b.getByText('1 file').isVisible()); i++) {
    await button(b, /^Refresh/).click()
    await b.waitForTimeout(500) // the index looks at a new file after a while
  }
  await button(b, /^Show what it shares/).click()
  await b.getByText('films/one.txt').first().waitFor()
  assert.equal(await b.getByText('diary').count(), 0)

  // A fetch that broke off says where the next one goes on.
  const broken = (route) => (JSON.parse(route.request().postData()).method === 'mesh.fetch' ? route.fulfill({ contentType: 'text/event-stream', body: events(['progress', { done: 3, total: 8 }]) }) : route.continue())
  await b.route('**/rpc', broken)
  await button(b, /^Fetch/).click()
  await b.getByText('The file did not arrive').waitFor()
  await b.unroute('**/rpc', broken)
  await button(b, /^Go on from 3 B/).click()
  const path = await b.locator('.done code').textContent()
  assert.equal(readFileSync(path, 'utf8'), 'the film')

  await b.getByLabel('A question to the assistant of alder').fill('what is shared?')
  await button(b, /^Ask/).click()
  await b.locator('.answer').getByText('one.txt').waitFor()
  assert.equal(await b.locator('.answer').getByText('diary').count(), 0)
  await accessible(b, 'peer')
  await shot(b, 'peer')

  // The list of shared content can be the peer's.
  await b.goto(`${birch.base}/files?tab=content`)
  await b.getByLabel('Files of').selectOption({ label: 'alder' })
  await b.getByText('films/one.txt').first().waitFor()
  await accessible(b, 'catalogue')
  await b.goto(`${birch.base}/mesh`)

  await button(a, /^Block/).click()
  await button(dialog(a), 'Block').click()
  await a.getByText('blocked', { exact: true }).waitFor()
  await b.getByLabel('A question to the assistant of alder').fill('what is shared?')
  await button(b, /^Ask/).click()
  await b.getByText('No answer').waitFor()
  await button(b, /^Remove/).click()
  await button(dialog(b), 'Remove').click()
  await b.getByText('No peers yet').waitFor()
  for (const page of [a, b]) {
    assert.deepEqual(page.foreign, [])
    assert.deepEqual(page.faults.filter((f) => !/Failed to load resource/.test(f)), [])
    await page.context().close()
  }
})

test('a hostile name is text, in both themes and on a phone', async () => {
  for (const [theme, size] of [['light', { width: 1440, height: 900 }], ['dark', { width: 1440, height: 900 }], ['light', { width: 360, height: 740 }], ['dark', { width: 360, height: 740 }]]) {
    const page = await openPage(chromium.browser, alder, { path: '', theme, size })
    await page.route('**/rpc', async (route) => {
      const { method } = JSON.parse(route.request().postData())
      if (method !== 'mesh.status') return route.continue()
      const res = await route.fetch()
      const body = await res.json()
      for (const p of body.result.peers) Object.assign(p, { name: hostile, state: 'paired', online: true, admits: true, status: hostile, label: '' })
      body.result.held = true
      await route.fulfill({ response: res, body: JSON.stringify(body) })
    })
    await page.goto(alder.base + '/mesh')
    await page.getByText('⟨U+202E⟩').first().waitFor()
    assert.equal(await page.locator('main img').count(), 0)
    assert.equal(await page.evaluate(() => document.documentElement.scrollWidth > document.documentElement.clientWidth), false, 'nothing stands beyond the edge')
    await accessible(page, `${theme} ${size.width}`)
    await shot(page, `${theme}-${size.width}`)
    await page.context().close()
  }
})

test('what a peer says and how its files are called is text', async () => {
  const page = await openPage(chromium.browser, alder, { path: '', size: { width: 360, height: 740 } })
  const markup = '<img src=x onerror="document.title=1"> **b** \u202egnp.exe\n\u200b'
  await page.route('**/rpc', async (route) => {
    const { method } = JSON.parse(route.request().postData())
    const answer = (result) => route.fulfill({ contentType: 'application/json', body: JSON.stringify({ jsonrpc: '2.0', id: 1, result }) })
    if (method === 'content.list') return answer({ items: [{ path: `${'long/'.repeat(40)}${markup}`, size_bytes: 1 }], total: 1, total_bytes: 1, truncated: false })
    if (method === 'mesh.ask') return route.fulfill({ contentType: 'text/event-stream', body: events(['text', { delta: markup }], ['answer', { peer: 'x', conversation: '', text: markup, truncated: true }]) })
    if (method !== 'mesh.status') return route.continue()
    const res = await route.fetch()
    const body = await res.json()
    for (const p of body.result.peers) Object.assign(p, { name: markup, state: 'paired', online: true, admits: true })
    await route.fulfill({ response: res, body: JSON.stringify(body) })
  })
  await page.goto(alder.base + '/mesh')
  await page.getByLabel(/^A question to the assistant of/).fill('x'.repeat(4097))
  assert.ok(await page.getByText('at most 4 KiB').isVisible())
  await page.getByLabel(/^A question to the assistant of/).fill('who are you?')
  await page.keyboard.press('Enter')
  await page.getByText('It said more than is taken here.').waitFor()
  assert.match(await page.locator('.answer').textContent(), /<img src=x onerror.*\*\*b\*\*.*⟨U\+202E⟩gnp\.exe.*⟨U\+200B⟩/)
  await button(page, /^Show what it shares/).click()
  assert.match(await page.locator('.files .path').textContent(), /<img src=x.*⟨U\+202E⟩gnp\.exe/)
  assert.equal(await page.locator('main img, main strong').count(), 0)
  assert.equal(await page.evaluate(() => document.documentElement.scrollWidth > document.documentElement.clientWidth), false, 'nothing stands beyond the edge')
  await accessible(page, 'words')
  await shot(page, 'words-360')
  assert.deepEqual(page.foreign, [])
  await page.context().close()
})

test('an answer is stopped, and what had come of it stays', async () => {
  const page = await openPage(chromium.browser, alder, { path: '' })
  let hold
  await page.route('**/rpc', async (route) => {
    const { method } = JSON.parse(route.request().postData())
    if (method === 'mesh.ask') return (hold = route) // it does not answer
    if (method !== 'mesh.status') return route.continue()
    const res = await route.fetch()
    const body = await res.json()
    for (const p of body.result.peers) Object.assign(p, { state: 'paired', online: true, admits: true, label: 'oak' })
    Object.assign(body.result, { held: true, radio: { connected: false, airtime_used_ms: 90_000, airtime_limit_ms: 360_000 } })
    await route.fulfill({ response: res, body: JSON.stringify(body) })
  })
  await page.goto(alder.base + '/mesh')
  await page.getByText("25 % of the hour's 6 minutes of airtime used").waitFor()
  await page.getByLabel('A question to the assistant of oak').fill('still there?')
  await page.keyboard.press('Enter')
  await button(page, 'Stop the answer of oak').click()
  await page.getByText('Stopped.').waitFor()
  assert.equal(await page.getByText('No answer').count(), 0, 'what one stops oneself is no failure')
  assert.ok(hold)

  await button(page, 'I have looked…').click()
  await button(dialog(page), 'Cancel').click()
  await button(page, 'I have looked…').click()
  await button(dialog(page), 'I have looked through them').click()
  await page.getByText('The ceilings are open again.').waitFor()
  await page.context().close()
})

test('an invite counts down and ends; open ones are withdrawn', async () => {
  const page = await openPage(chromium.browser, alder, { path: '', theme: 'dark', size: { width: 360, height: 740 } })
  let endsAt
  await page.route('**/rpc', async (route) => {
    if (JSON.parse(route.request().postData()).method !== 'mesh.invite' || !endsAt) return route.continue()
    const res = await route.fetch()
    const body = await res.json()
    body.result.expires_at = endsAt()
    await route.fulfill({ response: res, body: JSON.stringify(body) })
  })
  await page.goto(alder.base + '/mesh')
  await button(page, 'Invite…').click()
  await dialog(page).getByLabel('It can be used for').selectOption('3600')
  await dialog(page).getByLabel("With this node's addresses").click()
  await button(dialog(page), 'Make the invite').click()
  assert.match(await dialog(page).locator('.left').textContent(), /^(60:00|59:\d\d)$/)
  await dialog(page).getByText('words, for the telephone').click()
  const spoken = (await dialog(page).locator('.spoken li').allTextContents()).join(' ')
  await accessible(page, 'invite 360')
  await shot(page, 'invite-dark-360')
  const code = await dialog(page).locator('code').textContent()
  await button(dialog(page), 'Copy the code').click()
  await page.getByText('The code is in the clipboard.').waitFor()
  // Its words are the invite as well.
  assert.equal((await birch.owner.call('mesh.read-invite', { code: spoken })).key, (await alder.owner.call('mesh.status')).key)
  await button(dialog(page), 'Done').click()
  await button(page, 'Accept an invite…').click()
  await dialog(page).getByLabel('The invite').focus()
  await page.keyboard.press('Control+V')
  assert.equal(await dialog(page).getByLabel('The invite').inputValue(), code)
  await button(dialog(page), 'Cancel').click()
  await button(page, 'Withdraw').click()
  await page.getByText('open invite').waitFor({ state: 'detached' })
  assert.ok(!(await alder.owner.call('mesh.status')).invites)

  endsAt = () => new Date(Date.now() + 1500).toISOString()
  await button(page, 'Invite…').click()
  await button(dialog(page), 'Make the invite').click()
  await dialog(page).getByText('This invite has ended').waitFor()
  assert.equal(await dialog(page).locator('svg.qr').count(), 0)
  await button(dialog(page), 'Make another').click()
  await button(dialog(page), 'Make the invite').waitFor()
  await page.context().close()
})

test('who is no owner sees the state and no more', async () => {
  await alder.owner.call('users.add', { username: 'vi', password: 'correct horse battery', role: 'viewer' })
  const page = await openPage(chromium.browser, alder, { path: '/mesh', user: 'vi' })
  await page.getByRole('heading', { name: 'Peers' }).waitFor()
  assert.equal(await page.getByRole('button', { name: /Invite|Accept|Block|Remove|may have/ }).count(), 0)
  await page.context().close()
})
