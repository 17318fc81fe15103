// Starts the real node on a fresh data directory, with a model server that says what a test tells it to.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { createServer as createSocket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

const binary = process.env.ATOLL_BIN
if (!binary) throw new Error('ATOLL_BIN names the program to be tested: ATOLL_BIN=/path/to/atoll npm run browser')

export const password = 'correct horse battery'

// startModel is an OpenAI-style server. Each request takes the next of model.script: {text, calls, hold, slow}; hold is a
// promise that the answer waits for, slow the time between its pieces in ms. Without a script it says "Done."
export async function startModel() {
  const model = { script: [], requests: [], url: '', stop: undefined }
  const open = new Set()
  const server = createServer(async (req, res) => {
    let body = ''
    for await (const chunk of req) body += chunk
    model.requests.push(JSON.parse(body))
    const step = model.script.shift() ?? { text: 'Done.' }
    res.writeHead(200, { 'Content-Type': 'text/event-stream' })
    open.add(res)
    res.on('close', () => open.delete(res))
    const piece = (delta, finish = null) => {
      const chunk = { id: 'x', object: 'chat.completion.chunk', created: 1, model: 'scripted', choices: [{ index: 0, delta, finish_reason: finish }] }
      res.write(`data: ${JSON.stringify(chunk)}\n\n`)
    }
    piece({ role: 'assistant', content: '' })
    await step.hold
    for (const part of step.pieces ?? (step.text ? [step.text] : [])) {
      piece({ content: part })
      if (step.slow) await new Promise((done) => setTimeout(done, step.slow))
    }
    await step.after
    for (const [i, c] of (step.calls ?? []).entries()) {
      piece({ tool_calls: [{ index: i, id: `c${i}`, type: 'function', function: { name: c.name, arguments: JSON.stringify(c.args ?? {}) } }] })
    }
    piece({}, step.calls ? 'tool_calls' : 'stop')
    const usage = { prompt_tokens: 120, completion_tokens: 30, total_tokens: 150 }
    res.write(`data: ${JSON.stringify({ id: 'x', object: 'chat.completion.chunk', created: 1, model: 'scripted', choices: [], usage })}\n\n`)
    res.end('data: [DONE]\n\n')
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  model.url = `http://127.0.0.1:${server.address().port}/v1`
  model.stop = async () => {
    for (const res of open) res.destroy()
    server.close()
    server.closeAllConnections()
    await once(server, 'close')
  }
  return model
}

async function freePort() {
  const s = createSocket()
  s.listen(0, '127.0.0.1')
  await once(s, 'listening')
  const { port } = s.address()
  s.close()
  await once(s, 'close')
  return port
}

function run(args, input, env) {
  return new Promise((resolve, reject) => {
    const p = spawn(binary, args, { env, stdio: ['pipe', 'pipe', 'pipe'] })
    let out = ''
    p.stdout.on('data', (d) => (out += d))
    p.stderr.on('data', (d) => (out += d))
    p.on('error', reject)
    p.on('close', (code) => (code === 0 ? resolve(out) : reject(new Error(`atoll ${args[0]} ended with ${code}: ${out}`))))
    p.stdin.end(input)
  })
}

// endApps ends the processes that a node left: apps outlive it, and each leads a group of its own.
async function endApps(dir) {
  const run = join(dir, 'run')
  for (const name of readdirSync(run).filter((n) => n.endsWith('.json'))) {
    const { state, pid, start } = JSON.parse(readFileSync(join(run, name), 'utf8'))
    // The time of its start tells a process from a later one of the same number.
    const same = () => {
      try {
        const stat = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ').at(-1).split(' ')
        return stat[0] !== 'Z' && stat[19] === String(start)
      } catch {
        return false
      }
    }
    if (!pid || !same()) continue
    process.kill(-pid, 'SIGKILL')
    for (let i = 0; i < 100 && same(); i++) await new Promise((done) => setTimeout(done, 20))
    if (same()) throw new Error(`${name}: process ${pid} (${state}) does not end`)
  }
}

// startNode has one owner, "ada", and the grants given; with grants null it has nobody yet. With mesh it pairs with others.
export async function startNode({ grants = ['system', 'apps', 'settings'], model, mesh } = {}) {
  const dir = mkdtempSync(join(tmpdir(), 'atoll-web-'))
  const port = await freePort()
  const base = `http://127.0.0.1:${port}`
  const env = {
    PATH: process.env.PATH,
    HOME: dir,
    ATOLL_ASSISTANT_BACKEND: model ? 'openai' : 'local',
    ...(model ? { ATOLL_ASSISTANT_BASE_URL: model.url, ATOLL_ASSISTANT_MODEL: 'scripted' } : {}),
    ATOLL_APPS_DOCKER: 'off',
    ...(mesh ? { ATOLL_MESH_ENABLED: '1', ATOLL_MESH_LISTEN: '/ip4/127.0.0.1/tcp/0', ATOLL_MESH_DISCOVER: '0' } : {}),
  }
  const node = { dir, base, port, log: '', process: undefined }

  node.start = async () => {
    const p = spawn(binary, ['serve', '--data-dir', dir, '--listen', `127.0.0.1:${port}`], { env, stdio: ['ignore', 'pipe', 'pipe'] })
    node.process = p
    p.stdout.on('data', (d) => (node.log += d))
    p.stderr.on('data', (d) => (node.log += d))
    for (let i = 0; i < 100; i++) {
      if (p.exitCode !== null) throw new Error(`the node ended: ${node.log}`)
      if (await fetch(`${base}/healthz`).then((r) => r.ok, () => false)) return
      await new Promise((done) => setTimeout(done, 100))
    }
    throw new Error(`the node does not answer: ${node.log}`)
  }
  node.kill = async (signal = 'SIGKILL') => {
    const p = node.process
    if (!p || p.exitCode !== null || p.signalCode !== null) return
    p.kill(signal)
    await once(p, 'exit')
  }
  node.stop = async () => {
    await node.kill('SIGTERM')
    await endApps(dir)
    rmSync(dir, { recursive: true, force: true, maxRetries: 5 })
  }
  node.setupAddress = () => /http:\S+#setup=\S+/.exec(node.log)?.[0]
  if (grants) await run(['user', 'add', 'ada', '--role', 'owner', '--password-stdin', '--data-dir', dir], `${password}\n`, env)
  // An app that stays as it is: the sample ends by itself, and an action whose target changed is not run.
  if (grants) mkdirSync(join(dir, 'apps'), { recursive: true, mode: 0o700 })
  const as = process.getuid?.() === 0 ? 'user: root\n' : ''
  if (grants) writeFileSync(join(dir, 'apps', 'jelly.yaml'), `command: [sleep, "100000"]\nautostart: true\n${as}`, { mode: 0o600 })
  await node.start()
  if (grants) {
    const owner = await login(node, 'ada')
    const open = Object.fromEntries(grants.map((c) => [c, { granted: true }]))
    if (grants.length) await owner.call('assistant.grants-set', { grants: open })
    node.owner = owner
  }
  return node
}

// login makes a session of its own, beside any browser's.
export async function login(node, username) {
  const session = { cookie: '', csrf: '' }
  session.raw = async (method, params = {}) => {
    const res = await fetch(`${node.base}/rpc`, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json', Cookie: session.cookie, 'X-CSRF-Token': session.csrf },
      body: JSON.stringify({ jsonrpc: '2.0', id: 1, method, params }),
    })
    return { res, body: await res.json() }
  }
  session.call = async (method, params) => {
    const { body } = await session.raw(method, params)
    if (body.error) throw new Error(`${method}: ${body.error.message}`)
    return body.result
  }
  const { res, body } = await session.raw('auth.login', { username, password })
  if (body.error) throw new Error(`login: ${body.error.message}`)
  session.cookie = res.headers.get('set-cookie').split(';')[0]
  session.csrf = body.result.csrf
  session.token = session.cookie.split('=')[1]
  return session
}

// audit gives the records whose kind and event are these, the oldest first.
export async function audit(node, kind, event) {
  const got = await node.owner.call('audit.list', { kind })
  return (got.records ?? []).filter((r) => !event || r.event === event).reverse()
}
