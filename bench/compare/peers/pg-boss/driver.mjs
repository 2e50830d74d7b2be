// pg-boss for Node.js. A name of a job is a queue here.
import pg from 'pg'
import { PgBoss } from 'pg-boss'
import { main } from '../../drivers/driver.mjs'

const EFFECT = 'insert into public.effect (n) values ($1)'

async function setup(options) {
  const boss = new PgBoss({ connectionString: options.database })
  boss.on('error', () => {})
  await boss.start()
  for (let name = 0; name < options.names; name++) await boss.createQueue(`job_${name}`, { notify: true })
  await boss.stop()
}

async function open(options, ledger) {
  const boss = new PgBoss({ connectionString: options.database, max: options.connections, useListenNotify: true })
  boss.on('error', () => {})
  await boss.start()
  const client = new pg.Client({ connectionString: options.database })
  await client.connect()
  const db = { executeSql: (text, values) => client.query(text, values) }
  const spec = (n) => ({
    data: options.data(n),
    priority: options.priority(n),
    ...(options.keys > 0 ? { group: { id: options.key(n) } } : {}),
  })

  async function handle(jobs, tx) {
    for (const { data } of jobs) {
      ledger.started(data.n)
      if (tx) await tx.executeSql(EFFECT, [data.n])
      ledger.ended(data.n)
    }
  }

  return {
    async bulk(from, to) {
      const byName = new Map()
      for (let n = from; n < to; n++) {
        const name = options.name(n)
        if (!byName.has(name)) byName.set(name, [])
        byName.get(name).push(spec(n))
      }
      for (const [name, jobs] of byName) await boss.insert(name, jobs)
    },
    plain: (n) => boss.send(options.name(n), options.data(n)),
    keyed: (n) => boss.send(options.name(n), options.data(n), { singletonKey: `once_${n}`, singletonSeconds: 3600 }),
    async transaction(n, before) {
      await client.query('begin')
      await client.query(EFFECT, [n])
      await boss.send(options.name(n), options.data(n), { db })
      before()
      await client.query('commit')
    },
    async work() {
      const settings = {
        batchSize: 2000,
        localConcurrency: options.names > 1 ? 1 : 2,
        pollingIntervalSeconds: 0.5,
        notifyPollingIntervalSeconds: 0.5,
        burstWhenBatchFull: true,
        ...(options.keys > 0 ? { groupConcurrency: 1 } : {}),
      }
      for (let name = 0; name < options.names; name++) {
        if (options.handler === 'row') {
          await boss.work(`job_${name}`, { ...settings, transactional: true }, (jobs, tx) => handle(jobs, tx))
        } else {
          await boss.work(`job_${name}`, settings, (jobs) => handle(jobs))
        }
      }
      return () => boss.stop({ graceful: true, timeout: 5000 })
    },
    async close() {
      await client.end()
      await boss.stop({ graceful: false }).catch(() => {})
    },
  }
}

await main({ setup, open })
