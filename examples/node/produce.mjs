// Stores letters and enqueues a job for each, in one transaction.
//
// Usage: DATABASE_URL=postgres://... node produce.mjs FIRST COUNT
//
// Needs `npm ci` in this folder and a migrated database (leasehold migrate up).

import pg from 'pg'

const TABLES = `
    create table if not exists letter (number bigint primary key, receiver text not null);
    create table if not exists printed (letter bigint not null, by text not null);`

const [first, count] = process.argv.slice(2).map(Number)
if (!Number.isInteger(first) || !Number.isInteger(count)) {
  console.error('usage: node produce.mjs FIRST COUNT')
  process.exit(2)
}

const client = new pg.Client({ connectionString: process.env.DATABASE_URL, connectionTimeoutMillis: 10_000 })
await client.connect()

async function transaction(work) {
  await client.query('begin')
  try {
    const result = await work()
    await client.query('commit')
    return result
  } catch (error) {
    await client.query('rollback')
    throw error
  }
}

await transaction(async () => {
  // Two producers that start together must not both create the tables.
  await client.query("select pg_advisory_xact_lock(hashtext('letter'))")
  await client.query(TABLES)
})

let fresh = 0
for (let number = first; number < first + count; number++) {
  const inserted = await transaction(async () => {
    await client.query('insert into letter values ($1, $2) on conflict do nothing', [number, `reader ${number}`])
    // The key makes a repeated run harmless: the second call returns the first job.
    const { rows } = await client.query(
      `select job_id, inserted from leasehold.enqueue(
         'letter.print', $1::jsonb, queue => 'letters', key => $2)`,
      [JSON.stringify({ letter: number }), `letter:${number}`])
    return rows[0].inserted
  })
  fresh += inserted ? 1 : 0
}
await client.end()
console.log(`${fresh} new jobs, ${count - fresh} known`)
