// The dialog (C6–C8, C11): each way a question can end, and what must not answer it.
import assert from 'node:assert/strict'
import { existsSync, readFileSync } from 'node:fs'
import { afterEach, beforeEach, test } from 'node:test'
import { anotherTab, openPage } from './browser.mjs'
import { audit, login, password } from './node.mjs'
import { chromium, model, node, pause, world } from './world.mjs'

let seen
world()
const approvals = async () => (await audit(node, 'confirm', 'approved')).length
const runs = async () => (await audit(node, 'tool', 'outcome')).filter((r) => r.subject === 'app_restart').length
beforeEach(async () => {
  model.script = []
  seen = { approvals: await approvals(), runs: await runs() }
})
afterEach(async () => {
  for (const c of chromium.browser.contexts()) await c.close()
})

const restart = { calls: [{ name: 'app_restart', args: { app: 'jelly' } }] }

// asked is a page with the dialog on the screen.
async function asked({ calls = restart.calls, then = 'As you wish.', ...options } = {}) {
  const page = await openPage(chromium.browser, node, options)
  model.script = [{ text: 'I ask.', calls }, { text: then }]
  await page.say('restart the app')
  await page.dialog.waitFor()
  page.approve = page.dialog.getByRole('button', { name: /^Approve/ })
  page.decline = page.dialog.getByRole('button', { name: 'Decline' })
  return page
}

async function nothingRan() {
  assert.equal(await approvals(), seen.approvals, 'no approval')
  assert.equal(await runs(), seen.runs, 'nothing ran')
}

test('approved: the action runs once and the host says so', async () => {
  const page = await asked()
  assert.equal(await page.dialog.getByRole('heading').innerText(), 'Restart the app "jelly"')
  assert.equal(await page.evaluate(() => document.activeElement.tagName), 'H2', 'focus starts on the heading')
  assert.ok(await page.approve.isDisabled(), 'Approve is inert at first')
  assert.ok(await page.decline.isEnabled())
  await page.approve.click()
  await page.dialog.waitFor({ state: 'detached' })
  await page.locator('.outcome').getByText('Restarted jelly').waitFor()
  assert.equal(await approvals(), seen.approvals + 1)
  assert.equal(await runs(), seen.runs + 1)
  assert.equal(await page.locator('#app[inert]').count(), 0)
  assert.deepEqual([page.foreign, page.faults, page.blocked], [[], [], []])
})

test('declined at once, with a reason that the model reads', async () => {
  const page = await asked()
  await page.dialog.getByLabel('Reason, if you decline').fill('not before tonight')
  await page.decline.click()
  await page.dialog.waitFor({ state: 'detached' })
  await page.getByText('Nothing was changed in the last turn.').waitFor()
  assert.match(JSON.stringify(model.requests.at(-1).messages.at(-1)), /not before tonight/)
  await nothingRan()
})

test('Decline counts from the first moment', async () => {
  const page = await asked()
  await page.decline.click()
  await page.dialog.waitFor({ state: 'detached' })
  await nothingRan()
})

test('stopped: the dialog says that the turn ended', async () => {
  const page = await asked()
  const conversation = new URL(page.url()).pathname.split('/')[2]
  await node.owner.call('assistant.cancel', { conversation })
  await page.dialog.getByText('The turn was stopped').waitFor()
  assert.equal(await page.dialog.getByRole('button').count(), 1)
  await page.dialog.getByRole('button', { name: 'Close' }).click()
  await page.dialog.waitFor({ state: 'detached' })
  await nothingRan()
})

test('answered elsewhere: the dialog says what was decided', async () => {
  const page = await asked()
  const [p] = (await node.owner.call('assistant.pending')).pending
  await node.owner.call('assistant.confirm', { nonce: p.nonce, action_key: p.action_key, decision: 'decline' })
  await page.dialog.getByText('Declined elsewhere').waitFor()
  await page.dialog.getByRole('button', { name: 'Close' }).click()
  await page.dialog.waitFor({ state: 'detached' })
  await nothingRan()
})

test('two tabs decide at once: one answer counts, both dialogs end', async () => {
  const page = await asked()
  const tab = await openPage(chromium.browser, node) // a window of its own: a tab behind another does not paint
  await tab.dialog.waitFor()
  const no = tab.dialog.getByRole('button', { name: 'Decline' })
  await page.locator('dialog.confirm .approve:enabled').waitFor()
  // The slower of the two may find its button gone.
  await Promise.all([page.approve.click({ timeout: 2000 }).catch(() => {}), no.click({ timeout: 2000 }).catch(() => {})])
  const over = async (p) => {
    await p.locator('dialog.confirm .decline').waitFor({ state: 'detached' })
    const close = p.dialog.getByRole('button', { name: 'Close' })
    if (await close.isVisible().catch(() => false)) await close.click()
    await p.dialog.waitFor({ state: 'detached' })
  }
  await Promise.all([over(page), over(tab)])
  const ends = (await audit(node, 'confirm')).filter((r) => r.event === 'approved' || r.event === 'declined')
  const last = ends.at(-1)
  assert.equal(await approvals(), seen.approvals + (last.event === 'approved' ? 1 : 0))
  await page.locator('.outcome .usage').waitFor()
  for (let i = 0; i < 50 && last.event === 'approved' && (await runs()) === seen.runs; i++) await pause(100)
  assert.equal(await runs(), seen.runs + (last.event === 'approved' ? 1 : 0))
})

test('a reload with the dialog open in another tab’s turn shows it again', async () => {
  const page = await asked()
  const tab = await anotherTab(page, node, '/apps')
  await tab.dialog.waitFor()
  await tab.reload()
  await tab.dialog.waitFor()
  assert.equal(await tab.dialog.getByRole('heading').innerText(), 'Restart the app "jelly"')
  await tab.dialog.getByRole('button', { name: 'Decline' }).click()
  await page.getByText('Declined elsewhere').waitFor()
  await nothingRan()
})

test('a reload of the page whose turn it is ends the question with the turn (C9)', async () => {
  const page = await asked()
  await page.reload()
  await page.transcript.getByText('Stopped here.').waitFor()
  // It may come back for the moment until the node has noticed; then it says how it ended, and never runs.
  const close = page.dialog.getByRole('button', { name: 'Close' })
  if (await page.dialog.isVisible()) await close.click()
  assert.deepEqual((await node.owner.call('assistant.pending')).pending, [])
  await nothingRan()
})

test('the node is killed and started again: nothing runs, and the dialog says that the question is over (C3)', async () => {
  const page = await asked()
  await node.kill()
  await pause(1500)
  assert.ok(await page.dialog.isVisible(), 'a line that broke ends no question')
  await page.approve.click()
  await page.dialog.getByText('may not have reached the node').waitFor()
  await node.start()
  await page.dialog.getByText('This question is over').waitFor({ timeout: 20_000 })
  await page.dialog.getByRole('button', { name: 'Close' }).click()
  await page.dialog.waitFor({ state: 'detached' })
  await nothingRan()
  assert.ok((await audit(node, 'confirm', 'dropped')).length > 0)
})

test('keys typed as the dialog opens decide nothing (C8)', async () => {
  const page = await openPage(chromium.browser, node)
  let release
  const hold = new Promise((done) => (release = done))
  model.script = [{ hold, ...restart }, { text: 'fine' }]
  await page.say('restart it')
  await page.getByRole('button', { name: 'Stop' }).waitFor()
  await page.getByLabel('Message to the assistant').focus()
  release()
  const keys = ['y', 'Enter', ' ', 'Tab', 'Enter', ' ', 'Enter', 'Tab', ' ', 'Tab', 'Enter', 'Escape']
  const end = Date.now() + 4000
  for (let i = 0; Date.now() < end; i++) {
    await page.keyboard.press(keys[i % keys.length])
    await pause(60)
  }
  assert.ok(await page.dialog.isVisible(), 'it still asks')
  assert.ok(await page.dialog.locator('.approve').isDisabled(), 'each key makes the wait longer')
  await nothingRan()
  await page.keyboard.down('Enter')
  await pause(1500)
  await page.keyboard.up('Enter')
  await nothingRan()
  await page.dialog.locator('.decline').click()
  await page.dialog.waitFor({ state: 'detached' })
})

test('Escape and a click beside the dialog leave it standing', async () => {
  const page = await asked()
  await page.locator('dialog.confirm .approve:enabled').waitFor()
  for (let i = 0; i < 3; i++) await page.keyboard.press('Escape')
  await page.mouse.click(5, 5)
  assert.ok(await page.dialog.isVisible())
  await page.getByText('This stays until it is decided').waitFor()
  await nothingRan()
  await page.decline.click()
})

test('a press that began before it counts does not approve', async () => {
  const page = await asked()
  const box = await page.approve.boundingBox()
  await page.mouse.move(box.x + 20, box.y + 10)
  await page.mouse.down()
  await page.locator('dialog.confirm .approve:enabled').waitFor()
  await page.mouse.up()
  await pause(300)
  assert.ok(await page.dialog.isVisible())
  await nothingRan()
  await page.decline.click()
})

test('by keyboard alone: Tab goes round in the dialog, and Enter on Approve approves', async () => {
  const page = await asked()
  await page.locator('dialog.confirm .approve:enabled').waitFor()
  let found = false
  for (let i = 0; i < 12 && !found; i++) {
    await page.keyboard.press('Tab')
    const where = await page.evaluate(() => ({ inside: !!document.activeElement.closest('dialog.confirm') || document.activeElement === document.body, text: document.activeElement.textContent }))
    assert.ok(where.inside, `focus left the dialog: ${where.text}`)
    found = where.text === 'Approve'
  }
  assert.ok(found)
  await page.keyboard.press('Enter')
  await page.dialog.waitFor({ state: 'detached' })
  await page.locator('.outcome').getByText('Restarted jelly').waitFor()
  assert.equal(await runs(), seen.runs + 1)
})

test('let exactly this action pass for a time (C11)', async () => {
  const page = await asked()
  await page.dialog.getByLabel('Let exactly this action pass without asking').selectOption({ label: 'for 1 hour' })
  await page.dialog.getByRole('button', { name: 'Approve and let it pass' }).click()
  await page.dialog.waitFor({ state: 'detached' })
  await page.locator('.outcome').getByText('Restarted jelly').waitFor()
  model.script = [restart, { text: 'Again.' }]
  await page.say('again')
  await page.transcript.getByText('Again.').waitFor()
  assert.equal(await approvals(), seen.approvals + 1, 'the second time passes')
  assert.equal(await runs(), seen.runs + 2)
  const { permissions } = await node.owner.call('assistant.permissions-list')
  assert.equal(permissions.length, 1)
  await node.owner.call('assistant.permissions-revoke', { id: permissions[0].id })
})

test('a queue: one at a time, with its length; an owner sees whose question it is', async () => {
  await node.owner.call('users.add', { username: 'bob', role: 'member', password })
  const bob = await openPage(chromium.browser, node, { user: 'bob' })
  model.script = [{ calls: [{ name: 'app_stop', args: { app: 'jelly' } }] }, { text: 'ok' }]
  await node.owner.call('apps.restart', { app: 'jelly' })
  await bob.say('stop it')
  await bob.dialog.waitFor()
  const page = await openPage(chromium.browser, node)
  await page.dialog.getByText('Asked in the chat of bob').waitFor()
  model.script.unshift({ calls: [{ name: 'settings_set', args: { key: 'node.name', value: 'reef' } }] })
  const own = node.owner.raw('assistant.chat', { message: 'rename the node' })
  await page.dialog.getByText('1 of 2 waiting').waitFor()
  assert.equal(await page.dialog.count(), 1)
  await page.dialog.getByRole('button', { name: 'Decline' }).click()
  await page.dialog.getByRole('heading', { name: 'Set "node.name" to "reef"' }).waitFor()
  assert.ok(await page.dialog.locator('.approve').isDisabled(), 'the next question begins anew')
  await page.dialog.getByRole('button', { name: 'Decline' }).click()
  await page.dialog.waitFor({ state: 'detached' })
  await bob.dialog.getByText('Declined elsewhere').waitFor()
  await own
  await nothingRan()
})

test('too soon, expired and refused: the dialog says what the node said', async () => {
  const page = await asked()
  let answer = { code: 'too_soon', message: 'too soon: read the question first; it still stands', retry_after_s: 1 }
  await page.route('**/rpc', (route) =>
    route.request().postDataJSON().method === 'assistant.confirm'
      ? route.fulfill({ contentType: 'application/json', body: JSON.stringify({ jsonrpc: '2.0', id: 1, error: { code: -32000, message: answer.message, data: answer } }) })
      : route.fallback(),
  )
  await page.approve.click()
  await page.dialog.getByText('too soon: read the question first').waitFor()
  answer = { code: 'unavailable', message: 'the approval cannot be written down, so nothing was approved' }
  await pause(1100)
  await page.approve.click()
  await page.dialog.getByText('the approval cannot be written down').waitFor()
  answer = { code: 'expired', message: 'nobody answered in time; nothing was changed' }
  await page.approve.click()
  await page.dialog.getByText('Nobody decided in time').waitFor()
  await page.dialog.getByRole('button', { name: 'Close' }).click()
  await nothingRan()
})

// fake feeds the dialog with a question that the node never asked, so that any argument can be in it; written is the text
// of the arguments where it matters how they are written, old a browser that cannot keep numbers as they were.
async function fake(change, { written, old } = {}) {
  const page = await openPage(chromium.browser, node, { path: '' })
  if (old) await page.addInitScript(() => delete JSON.rawJSON)
  const now = Date.now()
  const pending = {
    nonce: 'n'.repeat(32), action_key: 'a'.repeat(64), conversation: 'c', caller: 'ada', tool: 'app_restart', summary: 'Restart the app "x"', target: 'x',
    arguments: { app: 'x' }, before: 'exited', after: 'running', untrusted: [], warnings: [], may_allow: false, maybe_ran: false,
    born_at: new Date(now).toISOString(), expires_at: new Date(now + 300_000).toISOString(), ...change,
  }
  const text = JSON.stringify(written ? { ...pending, arguments: '@' } : pending).replace('"@"', () => written)
  const body = `event: confirm\ndata: ${text}\n\nid: 1\nevent: synced\ndata: {"events":1}\n\n`
  await page.route('**/events', (route) => route.fulfill({ contentType: 'text/event-stream', body }))
  await page.route('**/rpc', (route) =>
    route.request().postDataJSON().method === 'assistant.pending'
      ? route.fulfill({ contentType: 'application/json', body: `{"jsonrpc":"2.0","id":1,"result":{"pending":[${text}]}}` })
      : route.fallback(),
  )
  await page.goto(`${node.base}/apps`)
  await page.dialog.waitFor()
  return page
}

// written gives back what stands behind a shown text, by the rules of internal/fence: ⟨U+XXXX⟩ stands for its character, or
// points at the very same one just before it, but for spaces and marks, which are shown or coded and never both; ⟨n times⟩
// repeats the code before; ⟨empty⟩ is nothing.
function written(shown) {
  if (shown === '⟨empty⟩') return ''
  let out = ''
  let literal = '' // the character just before, where it stands as it is
  let coded = ''
  for (const [part, code, times] of shown.matchAll(/⟨U\+([0-9A-F]{4,6})⟩|⟨(\d+) times⟩|[^]/gu)) {
    if (code) {
      const c = String.fromCodePoint(Number.parseInt(code, 16))
      const beside = c === literal && !/[ \p{M}]/u.test(c)
      if (!beside) out += c
      coded = beside ? '' : c
      literal = ''
    } else if (times) {
      assert.notEqual(coded, '')
      out += coded.repeat(Number(times) - 1)
    } else {
      out += part
      literal = part
      coded = ''
    }
  }
  return out
}

test('every argument is shown whole, byte for byte after the documented escapes (C6, F-C1)', async (t) => {
  const file = process.env.ATOLL_UNICODE ?? new URL('../../../shared/attacks/unicode.jsonl', import.meta.url).pathname
  const own = ['plain', '', ' a ', 'a  b', 'va\u200dult', '\u202egnp.exe', 'vаult', 'Zürich', 'дом', '⟨U+202E⟩', '\u2066x\u2069', 'x\n\ny', '\0\0\0\0\0\0', '日本', '😀', 'e\u0301', '<img src=x onerror=alert(1)>', `${'A'.repeat(20_000)} rm -rf /`]
  let texts = own
  if (existsSync(file)) {
    const rows = readFileSync(file, 'utf8').trim().split('\n').map((l) => JSON.parse(l))
    texts = [...own, ...rows.map((r) => r.text)]
  } else {
    t.diagnostic('the list of hostile strings is not at hand; only the ones in this test are tried')
  }
  // A string of this language that holds half a character could never come from the node.
  texts = texts.filter((s) => typeof s === 'string' && (s.isWellFormed?.() ?? true))
  const args = Object.fromEntries(texts.map((s, i) => [`arg${String(i).padStart(3, '0')}`, s]))
  const page = await fake({ arguments: args, summary: 'Try \u202e everything' })
  const shown = await page.dialog.locator('.argument bdi').allTextContents()
  assert.equal(shown.length, texts.length)
  const different = new Map()
  for (const [i, s] of texts.entries()) {
    assert.equal(shown[i][0] + shown[i].at(-1), '""')
    assert.equal(written(shown[i].slice(1, -1)), s, `argument ${i} is shown as ${JSON.stringify(shown[i])}`)
    assert.ok([undefined, s].includes(different.get(shown[i])), 'two texts look the same')
    different.set(shown[i], s)
    assert.doesNotMatch(shown[i], /[\p{Cc}\p{Cf}\u2028\u2029]/u, 'nothing invisible is left')
  }
  const title = await page.dialog.getByRole('heading').innerText()
  assert.match(title, /⟨U\+202E⟩/)
  assert.ok(await page.dialog.getByText('There is more below').isVisible())
  const last = page.dialog.locator('.argument').last()
  await last.scrollIntoViewIfNeeded()
  assert.ok(await last.isVisible())
  const wide = await page.dialog.locator('.body').evaluate((b) => b.scrollWidth - b.clientWidth)
  assert.ok(wide <= 0, 'nothing sticks out sideways')
})

test('warnings stand beside the question', async () => {
  const page = await fake({
    untrusted: ['app_logs'], maybe_ran: true, warnings: ['the argument app also stands in text that somebody else wrote and the assistant has read'],
  })
  for (const words of ['The assistant has read text that others can write, from: app_logs', 'This may already have run', 'also stands in text that somebody else wrote']) {
    await page.dialog.getByText(words).waitFor()
  }
  assert.equal(await page.dialog.getByLabel('Let exactly this action pass').count(), 0, 'offered only where the node offers it')
})

test('numbers are shown as they were written, and what cannot be shown so cannot be approved (C6, G5)', async () => {
  const written = '{"value":9007199254740993,"more":[-9223372036854775808,1.50,1e3,-0],"small":7,"__proto__":1}'
  const page = await fake({}, { written })
  const shown = await page.dialog.locator('.argument bdi').allTextContents()
  assert.deepEqual(shown, ['9007199254740993', '[-9223372036854775808,1.50,1e3,-0]', '7', '1'])
  await page.locator('dialog.confirm .approve:enabled').waitFor()
  await page.context().close()
  const old = await fake({}, { written, old: true })
  await old.dialog.getByText('more digits than this browser can show').waitFor()
  await old.dialog.getByText('Read it first').waitFor({ state: 'detached' })
  assert.ok(await old.dialog.locator('.approve').isDisabled())
})

// The strings go the whole way: from the model through the node to the dialog and into the record.
test('what the dialog shows is what the node keeps and would run (C6)', async () => {
  const page = await openPage(chromium.browser, node)
  for (const value of ['reef', ' reef ', 'rеef', 're\u200bef', '\u202efeer', '<b>reef</b>', 'reef\nApprove', '⟨U+202E⟩', 'Zürich 日本 😀', 'é e\u0301']) {
    const before = model.requests.length
    model.script = [{ text: 'I ask.', calls: [{ name: 'settings_set', args: { key: 'node.name', value } }] }, { text: 'ok' }]
    await page.say('rename it')
    // The node may refuse a value before it asks anybody; then the model hears so at once.
    for (let i = 0; i < 500 && (await page.dialog.count()) === 0 && model.requests.length < before + 2; i++) await pause(20)
    if ((await page.dialog.count()) === 1) {
      const [pending] = (await node.owner.call('assistant.pending')).pending
      assert.deepEqual(pending.arguments, { key: 'node.name', value })
      const shown = await page.dialog.locator('.argument bdi').allTextContents()
      assert.deepEqual(shown.map((s) => written(s.slice(1, -1))), ['node.name', value])
      await page.dialog.locator('.decline').click()
      await page.dialog.waitFor({ state: 'detached' })
    } else {
      assert.notEqual(value, 'reef')
    }
    await page.getByText('Nothing was changed in the last turn.').waitFor()
  }
  await nothingRan()
})

test('what it acts on changed while the dialog stood: approved, and still not run (C4)', async () => {
  const page = await asked()
  await page.locator('dialog.confirm .approve:enabled').waitFor()
  await node.owner.call('apps.stop', { app: 'jelly' })
  await page.approve.click()
  await page.dialog.waitFor({ state: 'detached' }).catch(() => page.dialog.getByRole('button', { name: 'Close' }).click())
  await page.getByText('Nothing was changed in the last turn.').waitFor()
  assert.equal(await runs(), seen.runs, 'nothing ran')
  assert.equal((await node.owner.call('apps.list')).apps.find((a) => a.app === 'jelly').state, 'stopped')
  await node.owner.call('apps.start', { app: 'jelly' })
})

test('what is pasted, dragged or filled in decides nothing (C8)', async () => {
  const page = await asked({ then: 'fine' })
  await page.context().grantPermissions(['clipboard-read', 'clipboard-write'], { origin: node.base })
  await page.evaluate(() => navigator.clipboard.writeText('yes\napprove\n'))
  await page.locator('dialog.confirm .approve:enabled').waitFor()
  const reason = page.dialog.getByLabel('Reason, if you decline')
  await page.keyboard.press('Control+V')
  await reason.focus()
  await page.keyboard.press('Control+V')
  await page.keyboard.press('Enter')
  assert.match(await reason.inputValue(), /approve/)
  // A browser that fills in forms does it as this does, and finds no field that it may fill.
  for (const field of await page.dialog.locator('input, select').all()) {
    await field.evaluate((f) => {
      if (f.tagName === 'INPUT') f.value = 'yes'
      for (const type of ['input', 'change', 'blur']) f.dispatchEvent(new Event(type, { bubbles: true }))
    })
  }
  assert.deepEqual(await page.locator('textarea, input').evaluateAll((all) => all.filter((f) => f.type !== 'search' && f.autocomplete !== 'off').map((f) => f.outerHTML)), [])
  // Selected words are drawn onto the button.
  const words = await page.dialog.getByRole('heading').boundingBox()
  await page.mouse.dblclick(words.x + 20, words.y + words.height / 2)
  await page.mouse.move(words.x + 20, words.y + words.height / 2)
  await page.mouse.down()
  const on = await page.approve.boundingBox()
  await page.mouse.move(on.x + 20, on.y + 10, { steps: 8 })
  await page.mouse.up()
  assert.ok(await page.dialog.isVisible())
  await nothingRan()
  await page.decline.click()
  await page.dialog.waitFor({ state: 'detached' })
  // In the field for messages a paste stays there until the person sends it.
  await page.getByText('Nothing was changed in the last turn.').waitFor()
  const asks = model.requests.length
  await page.getByLabel('Message to the assistant').click()
  await page.keyboard.press('Control+V')
  assert.equal(await page.getByLabel('Message to the assistant').inputValue(), 'yes\napprove\n')
  assert.equal(model.requests.length, asks, 'nothing was sent')
  await nothingRan()
})

test('a clock that is off does not change the time left', async () => {
  const page = await openPage(chromium.browser, node, { path: '' })
  await page.clock.install({ time: Date.now() + 3_600_000 })
  await page.goto(`${node.base}/chat`)
  model.script = [restart, { text: 'ok' }]
  await page.say('restart')
  await page.dialog.waitFor()
  await page.clock.runFor(2000)
  await page.dialog.getByText(/^[45]:\d\d left$/).waitFor()
  await page.dialog.locator('.decline').click()
})

test('a session that ends takes its question along', async () => {
  const page = await asked({ session: await login(node, 'ada') })
  await page.session.call('auth.logout')
  await page.waitForURL(/\/login/)
  await page.dialog.waitFor({ state: 'detached' })
  await nothingRan()
})
