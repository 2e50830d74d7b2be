// Claims jobs and prints letters until SIGTERM or Ctrl-C, then releases the jobs that it has not started.
//
// Usage: DATABASE_URL=postgres://... node consume.mjs
//
// Needs `npm ci` in this folder. LEASE sets the length of a lease, such as "10 seconds".
//
// A claim also reclaims jobs of dead consumers. Where no worker of the library runs, let cron call
// "select * from leasehold.housekeep()" every minute: it prunes, and buries jobs that expired.
//
// A claim whose reply is lost keeps its jobs until the lease runs out. To continue at once, pass a new UUID as
// claim_id to leasehold.claim, and after a reconnect read its jobs with leasehold.recover_claim(worker, claim_id).

import os from 'node:os'
import pg from 'pg'

const QUEUE = 'letters'
const WORKER = `node/${os.hostname()}/${process.pid}`
const LEASE = process.env.LEASE ?? '30 seconds'
// The version of the SQL interface that this program was written for.
const CONTRACT = 1

// Another worker owns the job now: roll back and drop the result.
class LeaseLost extends Error {}

// Prints a letter. Its writes commit together with the completion of the job.
async function printLetter(client, kwargs) {
  const { rows } = await client.query('select receiver from letter where number = $1', [kwargs.letter])
  if (rows.length === 0) throw new Error(`there is no letter ${kwargs.letter}`)
  await client.query("insert into printed values ($1, 'node')", [kwargs.letter])
}

const handlers = { 'letter.print': printLetter }

async function connect() {
  const client = new pg.Client({
    connectionString: process.env.DATABASE_URL,
    connectionTimeoutMillis: 10_000,
    query_timeout: 60_000,
    keepAlive: true,
    application_name: 'consume.mjs',
  })
  // Without a listener a broken connection would end the process; the next query fails anyway.
  client.on('error', () => {})
  await client.connect()
  return client
}

async function checkContract(client) {
  const { rows } = await client.query('select leasehold.contract() as found')
  if (rows[0].found !== CONTRACT) {
    console.error(`the SQL interface of Leasehold has version ${rows[0].found}; consume.mjs needs ${CONTRACT}: ` +
      'use the consume.mjs of the release that the database has')
    process.exit(1)
  }
}

// Ends the pause of the loop, so that a stop takes effect at once.
let stopping = false
let wake = () => {}
function stop() {
  stopping = true
  wake()
}
function pause(milliseconds) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds)
    wake = () => {
      clearTimeout(timer)
      resolve()
    }
  })
}

// Renews one lease on a connection of its own while the work runs: on the connection of the work the renewal
// would wait for the work.
function keepRenewing(renewer, generation, leaseSeconds) {
  const lease = { lost: false, end: () => clearInterval(timer) }
  const timer = setInterval(async () => {
    try {
      const { rows } = await renewer.query('select state from leasehold.renew(array[$1::bigint])', [generation])
      // 'renewed', 'busy' and 'ended' are fine.
      if (rows[0].state === 'lost') lease.lost = true
    } catch {
      // Retry in the next round. If the lease runs out meanwhile, the fence refuses the completion.
    }
  }, leaseSeconds * 1000 / 3)
  return lease
}

// Runs one job: the work and its completion are one transaction.
async function work(client, job, lease) {
  // Numbers beyond 2^53 lose digits in JavaScript; pg gives bigint as text, which is right here.
  const fence = [job.id, job.lease_generation]
  try {
    if (lease.lost) throw new LeaseLost()
    await client.query('begin')
    await handlers[job.name](client, job.kwargs)
    const { rows } = await client.query('select leasehold.complete($1::bigint, $2::bigint) as done', fence)
    if (!rows[0].done) throw new LeaseLost()
    await client.query('commit')
    console.log(`done ${job.id}`)
  } catch (error) {
    await client.query('rollback')
    if (error instanceof LeaseLost) {
      console.log(`lost ${job.id}`)
      return
    }
    const { rows } = await client.query(
      'select leasehold.fail($1::bigint, $2::bigint, $3) as outcome', [...fence, String(error)])
    console.log(`${rows[0].outcome} ${job.id}`) // retry, buried, cancelled or lost
  }
}

async function claim(client) {
  const { rows } = await client.query(
    `select id, name, kwargs, lease_generation, extract(epoch from lease)::float8 as lease_seconds
       from leasehold.claim($1, $2, claim_size => 10, lease => $3::interval, names => $4)`,
    [WORKER, QUEUE, LEASE, Object.keys(handlers)])
  return rows
}

process.on('SIGTERM', stop)
process.on('SIGINT', stop)
const client = await connect()
const renewer = await connect()
await checkContract(client)
console.log('ready')
while (!stopping) {
  const claimed = await claim(client)
  if (claimed.length === 0) {
    await pause(500)
    continue
  }
  // The jobs of one claim share one lease.
  const { lease_generation: generation, lease_seconds: leaseSeconds } = claimed[0]
  const lease = keepRenewing(renewer, generation, leaseSeconds)
  while (claimed.length > 0 && !stopping) await work(client, claimed.shift(), lease)
  lease.end()
  if (claimed.length > 0) {
    await client.query('select leasehold.release($1::bigint[], $2::bigint)', [claimed.map((job) => job.id), generation])
  }
}
await client.end()
await renewer.end()
console.log('stopped')
