// The pages: each in both themes and on a phone, what can be done on them, and what each role sees.
import assert from 'node:assert/strict'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, afterEach, before, test } from 'node:test'
import { anotherTab, openPage, startBrowser } from './browser.mjs'
import { password, startNode } from './node.mjs'

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')
const paths = ['/', '/apps', '/apps/shop', '/files', '/files?tab=content', '/mesh', '/notices', '/access', '/audit', '/settings', '/accounts', '/account']

let node, chromium, files
const pages = []
before(async () => {
  node = await startNode({ grants: [] })
  files = mkdtempSync(join(tmpdir(), 'atoll-files-'))
  mkdirSync(join(files, 'x y'), { recursive: true })
  writeFileSync(join(files, 'a\u202etxt.exe'), 'x')
  writeFileSync(join(files, 'x y', 'ü.txt'), 'x')
  writeFileSync(join(node.dir, 'config.toml'), `[files]\nroots = [${JSON.stringify(files)}]\n`, { mode: 0o600 })
  const as = process.getuid?.() === 0 ? 'user: root\n' : ''
  writeFileSync(join(node.dir, 'apps', 'shop.yaml'), `title: Web shop\ncommand: ["/bin/sleep", "1000"]\n${as}autostart: true\n`, { mode: 0o600 })
  writeFileSync(join(node.dir, 'apps', 'bad.yaml'), `command: ["/bin/sh", "-c", "echo '<b>no</b> luck'; exit 3"]\n${as}`, { mode: 0o600 })
  await node.kill('SIGTERM')
  await node.start()
  chromium = await startBrowser()
})
after(async () => {
  await chromium?.stop()
  await node?.stop()
  if (files) rmSync(files, { recursive: true, force: true })
})

async function open(options) {
  const page = await openPage(chromium.browser, node, options)
  pages.push(page)
  return page
}
// What must hold of every page, whatever was done on it. Refusals that a test asked for are the browser's lines, not ours.
afterEach(async () => {
  for (const page of pages.splice(0)) {
    assert.deepEqual(page.foreign, [], 'no request to another origin')
    assert.deepEqual(page.blocked, [], 'nothing that the policy had to refuse')
    assert.deepEqual(page.faults.filter((f) => !/Failed to load resource/.test(f)), [], 'no error in the console')
    await page.context().close()
  }
})

async function accessible(page, name) {
  await page.evaluate(axe)
  const { violations } = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ['violations'] }))
  assert.deepEqual(violations.map((v) => `${name}: ${v.id} ${v.nodes.map((n) => n.target)}`), [])
}

const dialog = (page) => page.getByRole('dialog')
const row = (page, name) => page.getByRole('row').filter({ hasText: name })

for (const theme of ['light', 'dark']) {
  test(`axe finds nothing on any page, ${theme}`, async () => {
    const page = await open({ path: '', theme })
    for (const path of paths) {
      await page.goto(node.base + path)
      await page.getByRole('heading', { level: 1 }).waitFor()
      await page.waitForLoadState('load')
      await page.waitForTimeout(300)
      await accessible(page, path)
    }
    await page.route('**/rpc', (route) => route.fulfill({ contentType: 'application/json', body: '{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"the disk does not answer","data":{"code":"unavailable"}}}' }))
    for (const path of ['/', '/apps', '/settings', '/audit']) {
      await page.goto(node.base + path)
      await page.getByText('the disk does not answer').first().waitFor()
      await accessible(page, `${path}, failed`)
    }
    const stranger = await open({ user: '', path: '/login?next=/apps&ended=1', theme })
    await stranger.getByText('Your session has ended').waitFor()
    await accessible(stranger, 'login')
    await stranger.goto(`${node.base}/setup`)
    await stranger.getByRole('heading', { level: 1 }).waitFor()
    await accessible(stranger, 'setup')
  })
}

// Whatever can be pressed can be reached by Tab alone, in the order in which it stands, and shows that it was.
test('each control of each page is reached by the keyboard', async () => {
  const page = await open({ path: '' })
  for (const path of [...paths, '/chat']) {
    await page.goto(node.base + path)
    await page.getByRole('heading', { level: 1 }).waitFor()
    await page.waitForTimeout(300)
    await page.evaluate(() => {
      const seen = (e) => e.checkVisibility({ visibilityProperty: true }) && !e.disabled && !e.closest('[inert], [aria-hidden=true]')
      window.wanted = new Set([...document.querySelectorAll('a[href], button, input, select, textarea, summary, iframe')].filter(seen))
      // What looks as if it could be pressed must be one of those, or within one.
      window.dead = [...document.querySelectorAll('body *')].filter((e) => seen(e) && getComputedStyle(e).cursor === 'pointer' && !e.closest('a[href], button, input, select, summary, label')).map((e) => e.outerHTML.slice(0, 120))
      window.dim = []
      document.addEventListener('focusin', (e) => {
        if (!window.wanted.delete(e.target) || e.target.tagName === 'IFRAME') return
        const css = getComputedStyle(e.target)
        if (css.outlineStyle === 'none' || Number.parseFloat(css.outlineWidth) < 2) window.dim.push(e.target.outerHTML.slice(0, 120))
      })
    })
    for (let i = 0; i < 150 && (await page.evaluate(() => window.wanted.size)) > 0; i++) await page.keyboard.press('Tab')
    const left = await page.evaluate(() => ({ wanted: [...window.wanted].filter((e) => e.isConnected).map((e) => e.outerHTML.slice(0, 120)), dead: window.dead, dim: window.dim }))
    assert.deepEqual(left, { wanted: [], dead: [], dim: [] }, path)
  }
})

test('nothing is wider than a phone', async () => {
  const page = await open({ path: '', size: { width: 360, height: 740 } })
  for (const path of paths) {
    await page.goto(node.base + path)
    await page.getByRole('heading', { level: 1 }).waitFor()
    await page.waitForTimeout(300)
    assert.ok((await page.evaluate(() => document.documentElement.scrollWidth - innerWidth)) <= 0, `${path} is too wide`)
  }
  await page.getByRole('button', { name: 'More' }).click()
  await accessible(page, 'more')
  await dialog(page).getByRole('link', { name: 'Audit' }).click()
  await page.waitForURL(/\/audit$/)
})

test('the set-up token leaves the address; a refusal stands at its field', async () => {
  const fresh = await startNode({ grants: null })
  try {
    const page = await openPage(chromium.browser, fresh, { user: '', path: '' })
    const address = fresh.setupAddress()
    await page.goto(address)
    await page.getByLabel('Username').waitFor()
    assert.equal(page.url(), `${fresh.base}/setup`)
    const kept = await page.evaluate(() => JSON.stringify([{ ...localStorage }, { ...sessionStorage }, history.state, location.href]))
    assert.ok(!kept.includes(address.split('=')[1]))
    await accessible(page, 'setup')
    await page.getByLabel('Username').fill('ADA LOVE')
    await page.getByLabel('Password', { exact: true }).fill('short')
    assert.ok(await page.getByRole('button', { name: 'Create the owner' }).isDisabled())
    await page.getByLabel('Password', { exact: true }).fill(password)
    await page.getByRole('button', { name: 'Create the owner' }).click()
    await page.locator('.field [role=alert]').getByText('a username is').waitFor()
    await page.getByLabel('Username').fill('ada')
    await page.getByRole('button', { name: 'Create the owner' }).click()
    await page.waitForURL((u) => u.pathname === '/')
    await page.context().close()
  } finally {
    await fresh.stop()
  }
})

test('an app is restarted by the person, from one named state to another; a failed start shows why', async () => {
  const page = await open({ path: '/apps' })
  await row(page, 'Web shop').getByRole('button', { name: 'Restart' }).click()
  await dialog(page).getByText('running (restarted)').waitFor()
  await accessible(page, 'restart')
  await dialog(page).getByRole('button', { name: 'Restart' }).click()
  await page.getByText('Web shop is running.').waitFor()
  await row(page, 'bad').getByRole('button', { name: 'Start' }).click()
  await dialog(page).getByRole('button', { name: 'Start' }).click()
  await dialog(page).getByText('<b>no</b> luck').waitFor()
  await page.keyboard.press('Escape')
  await dialog(page).waitFor({ state: 'detached' })
  await page.goto(`${node.base}/apps/bad`)
  await page.getByRole('log').getByText('<b>no</b> luck').first().waitFor()
  await page.getByText('live', { exact: true }).waitFor()
})

test('files are listed within their roots, and a turned name is made visible', async () => {
  const page = await open({ path: '/files' })
  await page.getByRole('link', { name: /atoll-files-/ }).click()
  await page.getByText('a⟨U+202E⟩txt.exe').waitFor()
  await page.getByRole('link', { name: 'x y' }).click()
  await page.getByText('ü.txt').waitFor()
  await page.getByRole('navigation', { name: 'Path' }).getByRole('link', { name: /atoll-files-/ }).click()
  await page.getByText('a⟨U+202E⟩txt.exe').waitFor()
})

test('a category is opened for a time, for good, and closed (A2); the mode is one switch (A4)', async () => {
  const page = await open({ path: '/access' })
  const category = (name) => page.getByRole('listitem').filter({ has: page.getByRole('heading', { name: new RegExp(`^${name}`) }) })
  await category('Apps').getByRole('button', { name: /Open for an hour/ }).click()
  await category('Apps').getByText('open, closes').waitFor()
  await category('System').getByRole('button', { name: /Choose/ }).click()
  await accessible(page, 'open a category')
  await dialog(page).getByLabel('For good').check()
  await dialog(page).getByRole('button', { name: 'Open', exact: true }).click()
  await category('System').getByText('open for good').waitFor()
  const { grants } = await node.owner.call('assistant.grants-get')
  assert.ok(grants.system.granted && !grants.system.expires_at && grants.apps.expires_at && !grants.files.granted)
  await category('System').getByRole('button', { name: /Close/ }).click()
  await category('System').getByText('closed').waitFor()
  await page.getByRole('button', { name: /^Read-only/ }).click()
  await page.locator('button[aria-pressed=true]', { hasText: 'Read-only' }).waitFor()
  assert.equal((await node.owner.call('assistant.mode-get')).mode, 'read-only')
})

test('a setting is refused at its field, and what is being typed elsewhere stays', async () => {
  const page = await open({ path: '/settings' })
  const disk = page.getByLabel('Warn when a disk is this full')
  const name = page.getByLabel("The node's name")
  await disk.fill('12')
  await page.getByText('This must be from 50 to 99.').waitFor()
  await name.fill('x'.repeat(500))
  await disk.fill('80')
  const form = (field) => page.locator('form').filter({ has: field })
  await form(disk).getByRole('button', { name: 'Save' }).click()
  await page.getByText('per cent: saved').waitFor()
  assert.equal((await name.inputValue()).length, 500)
  await form(name).getByRole('button', { name: 'Save' }).click()
  await form(name).getByRole('alert').getByText('node.name must be').waitFor()
  assert.equal((await node.owner.call('settings.get', { key: 'disk.warn_percent' })).settings['disk.warn_percent'].value, 80)
})

test('the theme is the node’s, until this browser has its own', async () => {
  const page = await open({ path: '/settings', theme: 'light' })
  const theme = () => page.evaluate(() => document.documentElement.dataset.theme)
  await page.locator('form').filter({ hasText: 'Theme' }).getByRole('combobox').selectOption('dark')
  await page.locator('form').filter({ hasText: 'Theme' }).getByRole('button', { name: 'Save' }).click()
  await page.locator('html[data-theme=dark]').waitFor()
  await page.getByRole('button', { name: /ada/ }).click()
  await page.locator('.menu').getByLabel('Theme').selectOption('light')
  assert.equal(await theme(), 'light')
  await page.reload()
  assert.equal(await theme(), 'light')
})

test('accounts are added and changed; each role sees its own pages; an ended session leads to login and back', async () => {
  const page = await open({ path: '/accounts' })
  for (const [name, role] of [['vera', 'viewer'], ['max', 'member']]) {
    await page.getByRole('button', { name: 'Add an account' }).click()
    await dialog(page).getByLabel('Username').fill('ada')
    await dialog(page).getByLabel('Role').selectOption(role)
    await dialog(page).getByLabel('First password').fill(password)
    await dialog(page).getByRole('button', { name: 'Add' }).click()
    await dialog(page).locator('.field [role=alert]').getByText('already').waitFor()
    await dialog(page).getByLabel('Username').fill(name)
    await dialog(page).getByRole('button', { name: 'Add' }).click()
    await dialog(page).waitFor({ state: 'detached' })
    await row(page, name).waitFor()
  }
  await row(page, 'ada').getByRole('button', { name: /Role/ }).click()
  await dialog(page).getByLabel('Role').selectOption('viewer')
  await dialog(page).getByRole('button', { name: 'Change' }).click()
  await dialog(page).getByText('last owner').waitFor()
  await page.keyboard.press('Escape')

  const seen = { vera: ['Overview', 'Apps', 'Files & content', 'Mesh', 'Settings'], max: ['Overview', 'Chat', 'Apps', 'Files & content', 'Mesh', 'Notices', 'Settings'] }
  for (const user of ['vera', 'max']) {
    const theirs = await open({ user, path: '/apps' })
    await row(theirs, 'Web shop').waitFor()
    assert.deepEqual((await theirs.getByRole('navigation', { name: 'Pages', exact: true }).locator('.place').allInnerTexts()).map((s) => s.trim()), seen[user])
    for (const path of paths) {
      await theirs.goto(node.base + path)
      await theirs.getByRole('heading', { level: 1 }).waitFor()
      await theirs.waitForTimeout(200)
      assert.deepEqual(await theirs.getByRole('alert').allInnerTexts(), [], `${user} on ${path}`)
    }
    await theirs.goto(`${node.base}/access`)
    await theirs.getByText('This page is for owners').waitFor()
    await accessible(theirs, 'denied')
    if (user !== 'max') continue
    await theirs.goto(`${node.base}/notices`)
    await theirs.getByRole('heading', { level: 1 }).waitFor()
    await row(page, 'max').getByRole('button', { name: /Role/ }).click()
    await dialog(page).getByLabel('Role').selectOption('viewer')
    await dialog(page).getByRole('button', { name: 'Change' }).click()
    await theirs.waitForURL(/\/login\?next=\/notices/)
    await theirs.getByText('Your session has ended').waitFor()
    await theirs.getByLabel('Username').fill('max')
    await theirs.getByLabel('Password').fill(password)
    await theirs.getByRole('button', { name: 'Log in' }).click()
    await theirs.waitForURL(/\/notices$/)
    await theirs.getByText('This page is for members').waitFor()
  }
})

test('the record is verified, and exported as it was hashed (N2)', async () => {
  const page = await open({ path: '/audit' })
  await page.locator('.record').first().waitFor()
  await page.getByRole('button', { name: 'Verify' }).click()
  await dialog(page).getByRole('button', { name: 'Verify' }).click()
  await dialog(page).getByText('Whole:').waitFor()
  await accessible(page, 'verify')
  await dialog(page).getByLabel('A head kept elsewhere').fill('0'.repeat(64))
  await dialog(page).getByRole('button', { name: 'Verify' }).click()
  await dialog(page).getByText('Broken').waitFor()
  await page.keyboard.press('Escape')
  const [file] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', { name: 'Export' }).click()])
  const lines = readFileSync(await file.path(), 'utf8').trim().split('\n')
  const { records } = await node.owner.call('audit.list', { limit: 1 })
  assert.equal(lines.length, records[0].seq)
  lines.forEach((l) => JSON.parse(l))
})

test('a lost connection is shown and recovered, and a notice comes live (N1)', async () => {
  const page = await open({ path: '/notices' })
  await page.getByText('No open notice').waitFor()
  await node.kill('SIGTERM')
  writeFileSync(join(node.dir, 'assistant', 'grants.json'), 'garbage')
  await page.getByText('The connection to the node is lost').waitFor()
  await accessible(page, 'lost')
  await node.start()
  await page.getByText('The connection to the node is lost').waitFor({ state: 'detached', timeout: 30_000 })
  await page.locator('.notice').getByText('The grants file was damaged').first().waitFor()
  await page.getByText('1 open notice').first().waitFor({ state: 'attached' })
  await page.getByRole('button', { name: /Acknowledge/ }).click()
  await page.getByText('No open notice').waitFor()
})

test('two tabs agree about who is logged in; a login leads nowhere else', async () => {
  const page = await open({ user: '', path: '/login?next=//evil.example' })
  const enter = async () => {
    await page.getByLabel('Username').fill('ada')
    await page.getByLabel('Password').fill(password)
    await page.getByRole('button', { name: 'Log in' }).click()
  }
  await enter()
  await page.waitForURL((u) => u.href === `${node.base}/`)
  const tab = await anotherTab(page, node, '/apps')
  await row(tab, 'Web shop').waitFor()
  await page.getByRole('button', { name: /ada/ }).click()
  await page.getByRole('button', { name: 'Sign out' }).click()
  await page.waitForURL(/\/login/)
  await tab.waitForURL(/\/login\?next=\/apps/)
  await enter()
  await tab.waitForURL(/\/apps$/)
})
