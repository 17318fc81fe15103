// What most files of tests need: a scripted model, a node that asks it, and a Chromium. One process runs one file.
import { after, before } from 'node:test'
import { startBrowser } from './browser.mjs'
import { startModel, startNode } from './node.mjs'

export let model, node, chromium

// world has them before the first test of the file and takes them away after the last.
export function world() {
  before(async () => {
    model = await startModel()
    node = await startNode({ model })
    chromium = await startBrowser()
  })
  after(async () => {
    await chromium?.stop()
    await node?.stop()
    await model?.stop()
  })
}

export const pause = (ms) => new Promise((done) => setTimeout(done, ms))
