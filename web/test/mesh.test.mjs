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

const dialog = (page) => page.getByRole('dialog')
const button = (scope, name) => scope.getByRole('button', { name, exact: typeof name === 'string' })

test('two owners pair by their pages, one shares, the other fetches and asks', async () => {
  await birch.owner.call('settings.set', { key: 'node.name', value: 'birch' })
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
  assert.ok(await button(dialog(a), 'Let it in').isDisabled())
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
  await button(b, 'Show what it shares').click()
  await b.getByText('films/one.txt').first().waitFor()
  assert.equal(await b.getByText('diary').count(), 0)
  await button(b, /^Fetch/).click()
  const path = await b.locator('.done code').textContent()
  assert.equal(readFileSync(path, 'utf8'), 'the film')

  await b.getByLabel('A question to the assistant of alder').fill('what is shared?')
  await button(b, 'Ask').click()
  await b.locator('.answer').getByText('one.txt').waitFor()
  assert.equal(await b.locator('.answer').getByText('diary').count(), 0)
  await accessible(b, 'peer')
  await shot(b, 'peer')

  // A name is its owner's own word: text, with what turns or hides made visible.
  await birch.owner.call('settings.set', { key: 'node.name', value: 'birch' })
  await button(a, /^Block/).click()
  await button(dialog(a), 'Block').click()
  await a.getByText('blocked', { exact: true }).waitFor()
  await b.getByLabel('A question to the assistant of alder').fill('what is shared?')
  await button(b, 'Ask').click()
  await b.getByText('No answer').waitFor()
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

test('who is no owner sees the state and no more', async () => {
  await alder.owner.call('users.add', { username: 'vi', password: 'correct horse battery', role: 'viewer' })
  const page = await openPage(chromium.browser, alder, { path: '/mesh', user: 'vi' })
  await page.getByRole('heading', { name: 'Peers' }).waitFor()
  assert.equal(await page.getByRole('button', { name: /Invite|Accept|Block|Remove|may have/ }).count(), 0)
  await page.context().close()
})
