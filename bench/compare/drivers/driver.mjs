// What the drivers in Node.js share: the command line, the ledger, and the loops that every peer goes through.
//
// A driver passes an object to `main`:
//   setup(options)            install the schema in an empty database
//   open(options, ledger)     returns { bulk(from, to), plain(n), keyed(n), transaction(n, before), work(), close() }
// `bulk` stores the jobs from..to, `transaction` calls `before()` just before its COMMIT, `work` starts a worker and
// returns a function that stops it. A method that is missing means that the peer lacks it.
import { writeFileSync } from 'node:fs'
import { parseArgs } from 'node:util'
import { performance } from 'node:perf_hooks'

const BULK = 5000
const FEED = 1000
const WAITING = 5000
const WARM = 10

export const now = () => (performance.timeOrigin + performance.now()) / 1000
export const sleep = (ms) => new Promise((done) => setTimeout(done, ms))
const print = (message) => process.stdout.write(JSON.stringify(message) + '\n')

/** Which jobs ran, how often, and when. */
class Ledger {
  constructor({ jobs, keys }) {
    this.jobs = jobs
    this.runs = new Uint8Array(jobs)
    this.ran = 0
    this.first = 0
    this.marks = []
    this.step = Math.max(Math.floor(jobs / 20), 1)
    this.keys = keys
    this.running = new Uint32Array(keys)
    this.together = 0
    this.onStart = null
  }

  started(n) {
    const at = now()
    if (this.ran === 0) this.first = at
    this.ran += 1
    if (this.runs[n] < 255) this.runs[n] += 1
    if (this.ran % this.step === 0) this.marks.push([this.ran, at])
    if (this.keys > 0) this.together = Math.max(this.together, ++this.running[n % this.keys])
    if (this.onStart) this.onStart(n, at)
    if (this.ran === this.jobs) print({ ran: this.ran })
  }

  ended(n) {
    if (this.keys > 0) this.running[n % this.keys] -= 1
  }
}

/** Incompressible text, the same in every driver. */
export function text(bytes) {
  const letters = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789'
  let x = 1n
  let made = ''
  for (let i = 0; i < bytes; i++) {
    x = (x * 1103515245n + 12345n) % 2147483648n
    made += letters[Number(x >> 16n) % 62]
  }
  return made
}

function read() {
  const number = { type: 'string' }
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      database: number, jobs: number, connections: number, names: number, priorities: number, bytes: number,
      keys: number, ledger: number, handler: number, how: number, history: number, feed: number,
    },
  })
  const whole = (name, otherwise) => Number.parseInt(values[name] ?? otherwise, 10)
  const options = {
    command: positionals[0],
    database: values.database,
    jobs: whole('jobs', 1000),
    connections: whole('connections', 20),
    names: whole('names', 1),
    priorities: whole('priorities', 1),
    keys: whole('keys', 0),
    ledger: values.ledger,
    handler: values.handler ?? 'noop',
    how: values.how ?? 'plain',
    history: values.history === '1',
    feed: values.feed === '1',
    filler: text(whole('bytes', 0)),
  }
  options.name = (n) => `job_${n % options.names}`
  options.priority = (n) => Math.floor(n / options.names) % options.priorities
  options.key = (n) => `key_${n % options.keys}`
  options.data = (n) => (options.filler ? { n, filler: options.filler } : { n })
  return options
}

const stdinClosed = () => new Promise((done) => process.stdin.on('end', done).on('error', done).resume())

async function feed(peer, { jobs }, ledger) {
  for (let from = 0; from < jobs; from += FEED) {
    while (from - ledger.ran > WAITING - FEED) await sleep(1)
    await peer.bulk(from, Math.min(from + FEED, jobs))
  }
}

async function work(peer, options, ledger) {
  const closed = stdinClosed()
  let shown = 0
  const ticker = setInterval(() => {
    if (ledger.ran !== shown) print({ ran: (shown = ledger.ran) })
  }, 5)
  const stop = await peer.work()
  if (options.feed) feed(peer, options, ledger).catch((error) => print({ error: String(error) }))
  await closed
  clearInterval(ticker)
  writeFileSync(options.ledger, ledger.runs)
  print({ done: true, ran: ledger.ran, first: ledger.first, marks: ledger.marks, together: ledger.together })
  await stop()
}

async function latency(peer, options, ledger) {
  const before = new Map()
  const waits = []
  ledger.onStart = (n, at) => {
    if (n >= WARM) waits.push((at - before.get(n)) * 1000)
  }
  const stop = await peer.work()
  await sleep(1000)
  for (let n = 0; n < WARM + options.jobs; n++) {
    await peer.transaction(n, () => before.set(n, now()))
    await sleep(20)
  }
  for (let i = 0; i < 500 && waits.length < options.jobs; i++) await sleep(20)
  writeFileSync(options.ledger, ledger.runs)
  print({ done: true, latency_ms: waits })
  await stop()
}

async function run({ setup, open }, options) {
  if (options.command === 'setup') {
    await setup(options)
    return print({ done: true })
  }
  const ledger = new Ledger({ ...options, jobs: options.jobs + (options.command === 'latency' ? WARM : 0) })
  const peer = await open(options, ledger)
  if (options.command === 'enqueue') {
    const start = now()
    for (let from = 0; from < options.jobs; from += BULK) await peer.bulk(from, Math.min(from + BULK, options.jobs))
    print({ done: true, seconds: now() - start })
  } else if (options.command === 'single') {
    const one = { plain: peer.plain, key: peer.keyed, transaction: peer.transaction }[options.how]
    if (!one) return print({ done: true, lacks: `no ${options.how} enqueue` })
    const start = now()
    for (let n = 0; n < options.jobs; n++) await one(n, () => {})
    print({ done: true, seconds: now() - start })
  } else if (options.command === 'work') {
    await work(peer, options, ledger)
  } else if (options.command === 'latency') {
    await latency(peer, options, ledger)
  } else {
    throw new Error(`unknown command: ${options.command}; use setup, enqueue, single, work or latency`)
  }
  await peer.close()
}

export async function main(peer) {
  try {
    await run(peer, read())
    process.exit(0)
  } catch (error) {
    print({ error: `${error?.stack ?? error}`.split('\n').slice(0, 3).join(' ') })
    process.exit(1)
  }
}
