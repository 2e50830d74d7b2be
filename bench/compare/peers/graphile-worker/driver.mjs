// graphile-worker for Node.js.
import { Logger, makeWorkerUtils, run, runMigrations } from 'graphile-worker'
import pg from 'pg'
import { main } from '../../drivers/driver.mjs'

const quiet = new Logger(() => () => {})
const ADD = 'select graphile_worker.add_job($1::text, payload => $2::json)'
const EFFECT = 'insert into public.effect (n) values ($1)'

async function setup({ database }) {
  await runMigrations({ connectionString: database, logger: quiet })
}

async function open(options, ledger) {
  const pool = new pg.Pool({ connectionString: options.database, max: options.connections })
  const utils = await makeWorkerUtils({ pgPool: pool, logger: quiet })
  const client = await pool.connect()
  const spec = (n) => ({
    identifier: options.name(n),
    payload: options.data(n),
    priority: options.priority(n),
    ...(options.keys > 0 ? { queueName: options.key(n) } : {}),
  })

  async function handle({ n }, helpers) {
    ledger.started(n)
    if (options.handler === 'row') await helpers.query(EFFECT, [n])
    if (options.keys > 0) await new Promise(setImmediate)
    ledger.ended(n)
  }

  return {
    async bulk(from, to) {
      const specs = []
      for (let n = from; n < to; n++) specs.push(spec(n))
      await utils.addJobs(specs)
    },
    plain: (n) => utils.addJob(options.name(n), options.data(n)),
    keyed: (n) => utils.addJob(options.name(n), options.data(n), { jobKey: `once_${n}` }),
    async transaction(n, before) {
      await client.query('begin')
      await client.query(EFFECT, [n])
      await client.query(ADD, [options.name(n), JSON.stringify(options.data(n))])
      before()
      await client.query('commit')
    },
    async work() {
      const taskList = {}
      for (let name = 0; name < options.names; name++) taskList[`job_${name}`] = handle
      const runner = await run({
        pgPool: pool,
        taskList,
        logger: quiet,
        noHandleSignals: true,
        preset: {
          worker: { concurrentJobs: 200, localQueue: { size: 2000 }, completeJobBatchDelay: 0, failJobBatchDelay: 0 },
        },
      })
      return () => runner.stop()
    },
    async close() {
      client.release()
      await utils.release()
      await pool.end()
    },
  }
}

await main({ setup, open })
