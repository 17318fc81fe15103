// Long conversations: they open at once, load as one scrolls, and keep what one reads where it is.
import assert from 'node:assert/strict'
import { afterEach, test } from 'node:test'
import { openPage } from './browser.mjs'
import { login } from './node.mjs'
import { chromium, model, node, pause, world } from './world.mjs'

world()
afterEach(async () => {
  for (const c of chromium.browser.contexts()) await c.close()
})

test('a conversation of 200 messages', async () => {
  let conversation
  const sessions = [node.owner, await login(node, 'ada')] // a session may send 60 in 5 minutes
  for (let i = 1; i <= 100; i++) {
    model.script = [{ text: `Answer ${i}.\n\n\`\`\`yaml\nnumber: ${i}\n\`\`\`` }]
    const got = await sessions[i % 2].call('assistant.chat', { ...(conversation ? { conversation } : {}), message: `Question ${i}` })
    conversation = got.conversation
  }
  const page = await openPage(chromium.browser, node, { path: `/chat/${conversation}` })
  await page.transcript.getByText('Answer 100.').waitFor()
  const turns = page.transcript.locator('article')
  await pause(300)
  assert.equal(await turns.count(), 20)
  const frame = page.frames().find((f) => f.url().endsWith('/frame/'))
  await page.mouse.move(700, 400)
  for (let i = 0; i < 200 && (await turns.count()) < 100; i++) {
    await page.mouse.wheel(0, -900)
    await pause(40)
  }
  assert.equal(await turns.count(), 100, 'all of it can be reached')
  const order = await frame.evaluate(() => [...document.querySelectorAll('.words')].map((w) => w.textContent))
  assert.deepEqual(order, Array.from({ length: 100 }, (_, i) => `Question ${i + 1}`), 'each once, in order')
  await frame.evaluate(() => document.documentElement.scrollTo(0, 2000))
  await page.transcript.getByRole('button', { name: 'Go to the latest' }).click()
  await pause(200)
  assert.ok(await page.transcript.getByText('Answer 100.').isVisible())
  model.script = [{ text: 'And one more.' }]
  await page.say('Question 101')
  await page.transcript.getByText('And one more.').waitFor()
  assert.deepEqual([page.foreign, page.faults, page.blocked], [[], [], []])
})

// The node's own limits forbid to send 1000 messages in a test, so its answers are made here.
test('a conversation of 2,000 messages opens within a second and scrolls smoothly', async () => {
  const { conversation } = await node.owner.call('assistant.chat', { message: 'begin' })
  const text = (i) => `## Turn ${i}\n\nThe disk \`/dev/sd${i % 9}\` is **${i % 100} %** full, see [the docs](https://x.test/${i}).\n\n| mount | used |\n|:--|--:|\n| / | ${i} |\n| /srv | ${i * 2} |\n\n\`\`\`bash\nfor i in 1 2 3; do\n  echo "$i" # ${i}\ndone\n\`\`\`\n\n- one\n- two\n\n${'Some more words to fill the line. '.repeat(8)}`
  const turn = (i) => ({ turn: i, at: new Date(1.7e12 + i * 60_000).toISOString(), message: `Question ${i}`, blocks: [{ kind: 'call', tool: 'system_disk_status', arguments: '{}', result: '{"disks":[]}' }, { kind: 'text', text: text(i) }], changes: [], usage: { in: 1, out: 1, cache_read: 0, cache_write: 0 }, cost_usd: 0, outcome: 'done' })
  const page = await openPage(chromium.browser, node)
  await page.route('**/rpc', (route) => {
    const { method, params } = route.request().postDataJSON()
    if (method !== 'assistant.history') return route.fallback()
    const last = params.before ? params.before - 1 : 1000
    const first = Math.max(1, last - params.limit + 1)
    const result = { conversation, title: 'Long', turns: 1000, usage: { in: 1, out: 1, cache_read: 0, cache_write: 0 }, cost_usd: 0, created_at: '', updated_at: '', entries: Array.from({ length: last - first + 1 }, (_, i) => turn(first + i)), earlier: first > 1 }
    return route.fulfill({ contentType: 'application/json', body: JSON.stringify({ jsonrpc: '2.0', id: 1, result }) })
  })
  // The best of three: the machine may have other work.
  let opened = Infinity
  for (let i = 0; i < 3 && opened >= 1000; i++) {
    await page.goto(`${node.base}/chat`)
    const link = page.locator(`.side a[href="/chat/${conversation}"]`)
    await link.waitFor()
    const since = Date.now()
    await link.click()
    await page.transcript.getByRole('heading', { name: 'Turn 1000' }).waitFor()
    opened = Math.min(opened, Date.now() - since)
  }
  const frame = page.frames().find((f) => f.url().endsWith('/frame/'))
  const watch = () => {
    window.long = []
    new PerformanceObserver((list) => window.long.push(...list.getEntries().map((e) => Math.round(e.duration)))).observe({ type: 'longtask' })
  }
  await frame.evaluate(watch)
  await page.evaluate(watch)
  await page.mouse.move(700, 400)
  const turns = page.transcript.locator('article')
  for (let i = 0; i < 400 && (await turns.count()) < 300; i++) {
    await page.mouse.wheel(0, -1500)
    await pause(30)
  }
  const [inFrame, inHost] = [await frame.evaluate(() => window.long), await page.evaluate(() => window.long)]
  console.log(`opened in ${opened} ms; tasks over 50 ms: frame ${JSON.stringify(inFrame)}, host ${JSON.stringify(inHost)}, ${await turns.count()} turns`)
  assert.ok((await turns.count()) >= 300)
  assert.ok(opened < 1000, `opened in ${opened} ms`)
  // One hiccup of a busy machine is not the page's.
  assert.ok(inFrame.length + inHost.length <= 2, `tasks over 50 ms: ${[...inFrame, ...inHost]}`)
})

test('a long answer streams without falling behind', async () => {
  const page = await openPage(chromium.browser, node)
  const pieces = Array.from({ length: 1500 }, (_, i) => (i % 40 === 39 ? '\n\n' : `word${i} `))
  model.script = [{ pieces: [...pieces, 'The end.'] }]
  await page.say('Tell me all')
  const since = Date.now()
  await page.transcript.getByText('The end.').waitFor()
  assert.ok(Date.now() - since < 5000)
  assert.equal((await page.transcript.locator('.answer').last().innerText()).match(/word\d+/g).length, pieces.filter((p) => p !== '\n\n').length)
})
