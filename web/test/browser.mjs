// One Chromium for a file of tests, and pages in it that note what must never happen.
import { chromium } from 'playwright-core'
import { login } from './node.mjs'

const flags = ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync']

export async function startBrowser() {
  const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', headless: true, args: flags })
  return { browser, stop: () => browser.close() }
}

// openPage is a page in a context of its own; ada's pages share the node's one session, since logins are limited. page.foreign lists requests to other origins, page.faults what the console
// called an error, page.blocked what a policy refused.
export async function openPage(browser, node, { user = 'ada', path = '/chat', theme = 'light', size = { width: 1440, height: 900 }, session } = {}) {
  const context = await browser.newContext({ viewport: size, colorScheme: theme, reducedMotion: 'reduce' })
  context.setDefaultTimeout(10_000)
  const page = await context.newPage()
  page.foreign = []
  page.faults = []
  page.blocked = []
  context.on('request', (r) => {
    if (!r.url().startsWith(node.base) && !r.url().startsWith('blob:') && r.url() !== 'about:blank') page.foreign.push(r.url())
  })
  // What the policy stopped was never sent.
  context.on('requestfailed', (r) => {
    if (r.failure()?.errorText === 'csp') page.foreign = page.foreign.filter((u) => u !== r.url())
  })
  page.on('console', (m) => {
    if (m.type() !== 'error') return
    const text = m.text()
    ;(/Content Security Policy|Permissions policy|sandbox/i.test(text) ? page.blocked : page.faults).push(text)
  })
  page.on('pageerror', (e) => page.faults.push(String(e)))
  if (user) {
    page.session = session ?? (user === 'ada' ? node.owner : await login(node, user))
    await context.addCookies([{ name: 'atoll_session', value: page.session.token, url: node.base, httpOnly: true, sameSite: 'Strict' }])
  }
  if (path) await page.goto(node.base + path)
  page.transcript = page.frameLocator('iframe.frame')
  page.dialog = page.locator('dialog.confirm')
  // press is a click into the frame as a person does it: the pointer is there before, and nobody is typing.
  page.press = async (target) => {
    await target.scrollIntoViewIfNeeded()
    await target.hover()
    await new Promise((done) => setTimeout(done, 700))
    await target.click()
  }
  page.say = async (text) => {
    await page.getByLabel('Message to the assistant').fill(text)
    await page.keyboard.press('Enter')
  }
  return page
}

// reconnect is another page of the same session.
export async function anotherTab(page, node, path = '/chat') {
  const tab = await page.context().newPage()
  await tab.goto(node.base + path)
  tab.dialog = tab.locator('dialog.confirm')
  return tab
}
