// axe-core on the chat and the dialog, in both themes and on a phone. With SHOTS=DIR the pictures are kept to be looked at.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { test } from 'node:test'
import { openPage } from './browser.mjs'
import { chromium, model, node, world } from './world.mjs'

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')
world()

// check runs axe in every document of the page: evaluated code is not held to the page's policy.
async function check(page, what) {
  for (const frame of page.frames()) {
    if (frame !== page.mainFrame() && (await page.locator('[inert] iframe').count())) continue // nobody can get there now
    await frame.evaluate(axe)
    const got = await frame.evaluate(() => window.axe.run(document, { resultTypes: ['violations'], iframes: false, preload: false }))
    const words = got.violations.flatMap((v) => v.nodes.map((n) => `${v.id}: ${n.target} ${n.failureSummary.replace(/\s+/g, ' ')}`))
    assert.deepEqual(words, [], `${what}, ${frame.url()}`)
  }
}

async function shot(page, name) {
  if (process.env.SHOTS) await page.screenshot({ path: join(process.env.SHOTS, `${name}.png`) })
}

const answer = 'The disk is **71 %** full.\n\n| mount | used | free |\n|:--|--:|--:|\n| / | 71 % | 12 GiB |\n| /srv | 40 % | 1.2 TiB |\n\n```bash\ndf -h / # look\nfor m in / /srv; do echo "$m"; done\n```\n\n- See [the manual](https://example.org/disk)\n- ![a chart](https://example.org/chart.png)\n\n> Not urgent.\n\n1. first\n2. second'

for (const theme of ['light', 'dark']) {
  for (const [size, view] of Object.entries({ wide: { width: 1440, height: 900 }, phone: { width: 360, height: 740 } })) {
    test(`${theme}, ${size}`, async () => {
      const name = (what) => `${what}-${theme}-${size}`
      const page = await openPage(chromium.browser, node, { theme, size: view })
      await page.getByText('Ask about this server').waitFor()
      await check(page, 'welcome')
      await shot(page, name('welcome'))
      model.script = [{ text: 'I look.', calls: [{ name: 'system_disk_status' }] }, { pieces: [answer] }]
      await page.say('How full are the disks?')
      await page.getByText('Nothing was changed in the last turn.').waitFor()
      await page.mouse.move(view.width / 2, 300)
      await check(page, 'answer')
      await shot(page, name('answer'))
      let release
      model.script = [{ text: 'I restart it.', calls: [{ name: 'app_restart', args: { app: 'jelly' } }, { name: 'mesh_status' }] }, { text: 'It runs.' }]
      await page.say('restart the app')
      await page.dialog.waitFor()
      await check(page, 'dialog, inert')
      await page.locator('dialog.confirm .approve:enabled').waitFor()
      await check(page, 'dialog')
      await shot(page, name('dialog'))
      await page.dialog.locator('.approve').click()
      await page.getByText('The assistant has no access to the mesh').waitFor()
      await page.getByText('Restarted jelly').first().waitFor({ state: 'attached' })
      await check(page, 'offer')
      await shot(page, name('offer'))
      model.script = [{ text: 'Changing.', calls: [{ name: 'settings_set', args: { key: 'node.name', value: 'pаypal box' } }] }, { hold: new Promise((done) => (release = done)), text: 'late' }]
      await page.say('rename')
      await page.dialog.waitFor()
      await page.locator('dialog.confirm .approve:enabled').waitFor()
      await check(page, 'dialog with warnings')
      await shot(page, name('warnings'))
      await node.owner.call('assistant.cancel', { conversation: new URL(page.url()).pathname.split('/')[2] })
      await page.dialog.getByText('The turn was stopped').waitFor()
      await check(page, 'dialog that ended')
      await shot(page, name('ended'))
      await page.dialog.getByRole('button', { name: 'Close' }).click()
      release()
      await check(page, 'stopped turn')
      await shot(page, name('stopped'))
      await page.getByRole('button', { name: 'More about this conversation' }).click()
      await page.getByRole('menuitem', { name: 'Rename' }).waitFor()
      await check(page, 'menu')
      await page.getByRole('menuitem', { name: 'Rename' }).click()
      await page.getByLabel('Title').waitFor()
      await check(page, 'rename')
      await page.keyboard.press('Escape')
      await page.press(page.transcript.getByText('the manual').first())
      await page.getByText('Open this address?').waitFor()
      await check(page, 'link')
      await shot(page, name('link'))
      await page.getByRole('button', { name: 'Stay here' }).click()
      if (size === 'phone') {
        await page.getByRole('button', { name: 'Conversations' }).click()
        await page.getByRole('dialog').getByText('New conversation').waitFor()
        await check(page, 'list')
        await shot(page, name('list'))
      }
      const sideways = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth)
      assert.ok(sideways <= 0, 'the page does not scroll sideways')
      assert.deepEqual([page.foreign, page.faults, page.blocked], [[], [], []])
      await page.context().close()
    })
  }
}

test('everything by keyboard alone', async () => {
  const page = await openPage(chromium.browser, node)
  await page.getByText('Ask about this server').waitFor()
  const tabTo = async (test, most = 60) => {
    for (let i = 0; i < most; i++) {
      await page.keyboard.press('Tab')
      if (await page.evaluate(test)) return
    }
    assert.fail(`Tab never came to ${test}`)
  }
  await tabTo(() => document.activeElement.id === 'message')
  let release
  model.script = [{ text: 'With [a link](https://example.org/x), [another](https://example.org/y) and `code`', after: new Promise((done) => (release = done)) }]
  await page.keyboard.type('hello')
  await page.keyboard.press('Enter')
  await page.transcript.getByText('a link').waitFor()
  await tabTo(() => document.activeElement.tagName === 'IFRAME')
  const frame = page.frames().find((f) => f.url().endsWith('/frame/'))
  // The page learns of focus in the frame's process late, so that the last Tab may have gone on inside: back to the link.
  await frame.waitForFunction(() => document.hasFocus() && document.activeElement !== document.body)
  const onLink = () => document.activeElement.matches('a[data-href$=x]')
  for (let i = 0; i < 3 && !(await frame.evaluate(onLink)); i++) await page.keyboard.press('Shift+Tab')
  assert.ok(await frame.evaluate(onLink), 'the link has the focus')
  release()
  await page.transcript.locator('.turn.live').waitFor({ state: 'detached' })
  assert.ok(await frame.evaluate(onLink), 'and keeps it where the end of the turn draws it anew')
  await page.keyboard.press('Enter')
  await page.getByText('Open this address?').waitFor()
  await page.keyboard.press('Escape')
  await page.getByText('Open this address?').waitFor({ state: 'detached' })
  await tabTo(() => document.activeElement.getAttribute('aria-label') === 'More about this conversation')
  await page.keyboard.press('Enter')
  await page.getByRole('menuitem', { name: 'Rename' }).waitFor()
  await page.keyboard.press('Enter')
  await page.getByLabel('Title').waitFor()
  await page.context().close()
})
