// The main path, and what the chat does with what a node and a network do to it.
import assert from 'node:assert/strict'
import { beforeEach, test } from 'node:test'
import { openPage } from './browser.mjs'
import { audit, login, password, startNode } from './node.mjs'
import { chromium, model, node, pause, world } from './world.mjs'

world()
beforeEach(() => {
  model.script = []
})

const open = (options) => openPage(chromium.browser, node, options)
const hold = () => {
  let release
  const promise = new Promise((done) => (release = done))
  return { promise, release }
}
async function clean(page) {
  assert.deepEqual(page.foreign, [], 'no request to another origin')
  assert.deepEqual(page.faults, [], 'no error in the console')
  assert.deepEqual(page.blocked, [], 'nothing that the policy had to refuse')
  await page.context().close()
}

test('from a new node to a first answer', async () => {
  const fresh = await startNode({ grants: null, model })
  try {
    const page = await openPage(chromium.browser, fresh, { user: '', path: '' })
    await page.goto(fresh.setupAddress())
    await page.getByLabel('Name').fill('ada')
    for (const field of await page.locator('input[type=password]').all()) await field.fill(password)
    await page.locator('button[type=submit]').click()
    await page.waitForURL((u) => u.pathname === '/')
    assert.ok(!page.url().includes('setup='), 'the token is not kept in the address')
    await page.getByRole('link', { name: 'Chat' }).first().click()
    model.script = [{ pieces: ['The disk ', 'is **half** full.'] }]
    await page.say('How full is the disk?')
    await page.transcript.getByText('The disk is half full.').waitFor()
    await page.waitForURL(/\/chat\/.+/)
    assert.equal(await page.transcript.locator('strong').innerText(), 'half')
    await page.getByText('Nothing was changed in the last turn.').waitFor()
    await page.getByText('120 in, 30 out').waitFor()
    page.faults = page.faults.filter((f) => !/401/.test(f)) // the first question: who is there?
    await clean(page)
  } finally {
    await fresh.stop()
  }
})

test('an answer streams, tools are shown as they run, the list of changes is the host’s (T11)', async () => {
  const page = await open()
  const gate = hold()
  model.script = [{ text: 'I look.', calls: [{ name: 'app_list' }] }, { pieces: ['All ', 'was restarted, ', 'I promise.'], hold: gate.promise }]
  await page.say('Which apps run?')
  await page.transcript.getByText('I look.').waitFor()
  const tools = page.getByLabel('Tools in use')
  await tools.getByText('app_list').waitFor()
  await tools.getByText('done').waitFor()
  assert.ok(await page.getByRole('button', { name: 'Stop' }).isVisible())
  gate.release()
  await page.transcript.getByText('All was restarted, I promise.').waitFor()
  await page.getByText('Nothing was changed in the last turn.').waitFor()
  await clean(page)
})

test('Stop ends the turn and keeps what was said', async () => {
  const page = await open()
  const gate = hold()
  model.script = [{ text: 'I begin to ', after: gate.promise }]
  await page.say('Tell me a long story')
  await page.transcript.getByText('I begin to').waitFor()
  await page.getByRole('button', { name: 'Stop' }).click()
  await page.transcript.getByText('Stopped here.').waitFor()
  gate.release()
  await page.reload()
  await page.transcript.getByText('I begin to').waitFor()
  await clean(page)
})

test('a reload in the middle of a turn ends it, and shows what is kept (C9)', async () => {
  const page = await open()
  const gate = hold()
  model.script = [{ text: 'First words.', calls: [{ name: 'app_list' }] }, { text: 'never', hold: gate.promise }]
  await page.say('Look at the apps')
  await page.getByLabel('Tools in use').getByText('done').waitFor()
  await page.reload()
  await page.transcript.getByText('First words.').waitFor()
  await page.transcript.getByText('Stopped here.').waitFor()
  gate.release()
  model.script = [{ text: 'I go on.' }]
  await page.say('Go on')
  await page.transcript.getByText('I go on.').waitFor()
  await clean(page)
})

test('a turn goes on while the person looks at other pages', async () => {
  const page = await open()
  const gate = hold()
  model.script = [{ pieces: ['Before. '], after: gate.promise, calls: [{ name: 'app_list' }] }, { text: 'After.' }]
  await page.say('Look')
  await page.transcript.getByText('Before.').waitFor()
  const at = new URL(page.url()).pathname
  await page.getByRole('link', { name: 'Apps' }).first().click()
  await page.waitForURL('**/apps')
  gate.release()
  await page.goBack()
  await page.transcript.getByText('After.').waitFor()
  assert.equal(await page.transcript.getByText('Before.').count(), 1, 'shown once')
  assert.equal(new URL(page.url()).pathname, at)
  await clean(page)
})

test('the draft stays with its conversation; Shift+Enter is a line; too long is said', async () => {
  const page = await open()
  const field = page.getByLabel('Message to the assistant')
  await page.say('one')
  await page.transcript.getByText('Done.').waitFor()
  await field.fill('not sent')
  await page.keyboard.press('Shift+Enter')
  await page.keyboard.type('second line')
  await page.locator('.side .new').click()
  assert.equal(await field.inputValue(), '')
  await page.goBack()
  await page.waitForURL(/\/chat\/.+/)
  assert.equal(await field.inputValue(), 'not sent\nsecond line')
  await field.fill('ü'.repeat(17 * 1024))
  await page.getByText('34 of 32 KiB').waitFor()
  assert.ok(await page.getByRole('button', { name: 'Send' }).isDisabled())
  await clean(page)
})

test('conversations: rename, search, export both ways, take back the last turn, delete (H7)', async () => {
  const page = await open()
  model.script = [{ text: 'The **xylophone** is in the shed.' }]
  await page.say('Where is the instrument?')
  await page.transcript.getByText('xylophone').waitFor()
  const menu = page.getByRole('button', { name: 'More about this conversation' })
  const pick = async (name) => {
    await menu.click()
    await page.getByRole('menuitem', { name }).click()
  }
  await pick('Rename')
  await page.getByLabel('Title').fill('Instruments')
  await page.getByRole('button', { name: 'Rename' }).click()
  await page.getByRole('heading', { name: 'Instruments' }).waitFor()
  await page.getByLabel('Search your conversations').fill('xylophone')
  await page.locator('.snippet').getByText('xylophone').waitFor()
  await page.getByLabel('Search your conversations').fill('nothing like it')
  await page.getByText('Nothing found.').waitFor()
  await page.getByLabel('Search your conversations').fill('')
  for (const [name, end] of [['Export as Markdown', '.md'], ['Export as JSON', '.json']]) {
    const [file] = await Promise.all([page.waitForEvent('download'), pick(name)])
    assert.ok(file.suggestedFilename().endsWith(end))
    const text = await import('node:fs').then(async (fs) => fs.readFileSync(await file.path(), 'utf8'))
    assert.match(text, /xylophone/)
  }
  await pick('Take back the last turn')
  await page.getByRole('button', { name: 'Take it back' }).click()
  await page.transcript.getByText('xylophone').waitFor({ state: 'detached' })
  assert.equal(await page.getByLabel('Message to the assistant').inputValue(), 'Where is the instrument?')
  await pick('Delete')
  await page.getByRole('button', { name: 'Delete', exact: true }).click()
  await page.waitForURL((u) => u.pathname === '/chat')
  await page.getByText('Instruments').waitFor({ state: 'detached' })
  const [toast, send] = [await page.locator('.toast').first().boundingBox(), await page.getByRole('button', { name: 'Send' }).boundingBox()]
  assert.ok(toast.y + toast.height <= send.y, 'what was done is told above the button that sends')
  await clean(page)
})

test('a closed category is offered in the host’s words, to the owner, and opens only by the owner’s press (T8)', async () => {
  const page = await open()
  model.script = [{ calls: [{ name: 'mesh_status' }] }, { text: 'I may not see that.' }]
  await page.say('Who is in the mesh?')
  await page.getByText('The assistant has no access to the mesh').waitFor()
  assert.equal((await node.owner.call('assistant.grants-get')).grants.mesh.granted, false)
  await page.getByRole('button', { name: 'Open for 1 hour' }).click()
  await page.getByText('The assistant has no access to the mesh').waitFor({ state: 'detached' })
  const { mesh } = (await node.owner.call('assistant.grants-get')).grants
  assert.equal(mesh.granted, true)
  const left = Date.parse(mesh.expires_at) - Date.now()
  assert.ok(left > 3_500_000 && left < 3_700_000, `an hour, not ${left} ms`)
  assert.equal(await page.getByLabel('Message to the assistant').inputValue(), 'Who is in the mesh?')
  await node.owner.call('assistant.grants-set', { grants: { mesh: { granted: false } } })
  await clean(page)
})

test('what is refused before it begins leaves the message in the field: busy, off, too many', async () => {
  const page = await open()
  const field = page.getByLabel('Message to the assistant')
  await page.say('one')
  await page.transcript.getByText('Done.').waitFor()
  const conversation = new URL(page.url()).pathname.split('/')[2]
  const gate = hold()
  model.script = [{ text: 'elsewhere', after: gate.promise }]
  const other = page.session.raw('assistant.chat', { conversation, message: 'from another device' })
  for (let i = 0; i < 500 && model.script.length; i++) await pause(20)
  assert.equal(model.script.length, 0, 'the other turn runs')
  await page.say('me too')
  await page.getByText('A turn is running in this conversation already').waitFor()
  assert.equal(await field.inputValue(), 'me too')
  await page.getByRole('button', { name: 'Stop that turn' }).click()
  await other
  gate.release()
  await node.owner.call('assistant.mode-set', { mode: 'off' })
  await page.say('anyone?')
  await page.getByText('The assistant is switched off').first().waitFor()
  assert.equal(await field.inputValue(), 'anyone?')
  await node.owner.call('assistant.mode-set', { mode: 'confirm' })
  await page.route('**/rpc', (route) =>
    route.request().postDataJSON().method === 'assistant.chat'
      ? route.fulfill({ status: 429, headers: { 'Retry-After': '2' }, contentType: 'application/json', body: '{"jsonrpc":"2.0","id":1,"error":{"code":-32029,"message":"too many calls","data":{"code":"rate_limited","retry_after_s":2}}}' })
      : route.fallback(),
  )
  await page.say('quick')
  await page.getByText('Too many messages in a short time').waitFor()
  assert.ok(await page.getByRole('button', { name: 'Send' }).isDisabled())
  await page.getByText(/You can send again in/).waitFor({ state: 'detached' })
  assert.ok(await page.getByRole('button', { name: 'Send' }).isEnabled())
  assert.equal(await field.inputValue(), 'quick')
  page.faults = page.faults.filter((f) => !/429/.test(f))
  await clean(page)
})

test('code is copied whole by a press on Copy, and the host says what', async () => {
  const page = await open()
  await page.context().grantPermissions(['clipboard-read', 'clipboard-write'], { origin: node.base })
  model.script = [{ text: 'Run this:\n\n```bash\necho "one"\n  echo two # ü\n```' }]
  await page.say('how?')
  await page.press(page.transcript.getByRole('button', { name: 'Copy' }))
  await page.getByText(/^Copied 25 characters/).waitFor()
  await page.getByLabel('Message to the assistant').click()
  await page.keyboard.press('Control+V')
  assert.equal(await page.getByLabel('Message to the assistant').inputValue(), 'echo "one"\n  echo two # ü')
  await clean(page)
})

test('a session that ends mid-chat leads to the login and back to the conversation', async () => {
  const page = await open({ session: await login(node, 'ada') })
  const gate = hold()
  model.script = [{ text: 'Half a ', after: gate.promise }]
  await page.say('Say something')
  await page.transcript.getByText('Half a').waitFor()
  const at = new URL(page.url()).pathname
  await page.getByLabel('Message to the assistant').fill('unsent words')
  await page.session.call('auth.logout')
  await page.waitForURL(/\/login\?/)
  gate.release()
  await page.getByLabel('Name').fill('ada')
  await page.locator('input[type=password]').fill(password)
  await page.locator('button[type=submit]').click()
  await page.waitForURL((u) => u.pathname === at)
  await page.transcript.getByText('Say something').waitFor()
  assert.equal(await page.getByLabel('Message to the assistant').inputValue(), 'unsent words')
  page.faults = page.faults.filter((f) => !/401/.test(f))
  await clean(page)
})

test('a member sees no offers, and another person of the browser nothing of the one before', async () => {
  await node.owner.call('users.add', { username: 'bob', role: 'member', password })
  const page = await open({ user: 'bob' })
  model.script = [{ calls: [{ name: 'wallet_status' }] }, { text: 'No.' }]
  await page.say('How much?')
  await page.transcript.getByText('No.').waitFor()
  await page.getByText('Nothing was changed in the last turn.').waitFor()
  assert.equal(await page.getByText('has no access to').count(), 0)
  await page.getByLabel('Message to the assistant').fill('secret of bob')
  await page.session.call('auth.logout')
  await page.waitForURL(/\/login/)
  const ada = await login(node, 'ada')
  await page.context().addCookies([{ name: 'atoll_session', value: ada.token, url: node.base, httpOnly: true, sameSite: 'Strict' }])
  await page.goto(`${node.base}/chat`)
  assert.equal(await page.getByLabel('Message to the assistant').inputValue(), '')
  assert.equal(await page.getByText('How much?').count(), 0)
  page.faults = page.faults.filter((f) => !/401/.test(f))
  await clean(page)
})

test('nothing was approved by any of this', async () => {
  assert.deepEqual(await audit(node, 'confirm'), [])
})
