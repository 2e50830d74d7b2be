//! The limit: bare SQL moves the same rows, on two connections, nothing else.
//!
//! No gate, no watchdog, no counters, no jobs, no objects; the same three moves (claim, finish with
//! the decrement, gone), fenced, in batches of the same size, on tables with the same definition.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use indicatif::ProgressBar;

use super::check::count;
use super::layout::Layout;
use super::rows;
use leasehold_server::bench::server::{BenchServer, checkpoint};

const TABLES: &str = "
    drop schema if exists bare cascade;
    create schema bare;
    create table bare.pastes (like pastes.pastes including all);
    create table bare.contents (like pastes.contents including all);
    create sequence bare.claim;";

const CLAIM: &str = "
    with picked as materialized (
        select ctid from bare.pastes
         where deletion_status = 'NOT_EXPIRED' and expires_at < statement_timestamp()
           and expires_at >= $1
         order by expires_at limit $2 for update skip locked)
    update bare.pastes set deletion_status = 'DELETION_IN_PROGRESS',
           deletion_initiated_at = statement_timestamp(), deletion_claim = $3
     where ctid = any (array(select ctid from picked)) and deletion_status = 'NOT_EXPIRED'
    returning short_code, expires_at";

const FINISH: &str = "
    with locked as materialized (
        select short_code from bare.pastes
         where short_code = any ($1) and deletion_status = 'DELETION_IN_PROGRESS'
           and deletion_claim = $2
         order by short_code for update
    ), finished as (
        update bare.pastes set deletion_status = 'DELETED'
         where short_code = any (array(select short_code from locked))
        returning content_id
    ), given as materialized (
        select content_id, count(*)::int as times from finished group by content_id
    ), counted as materialized (
        select c.content_id from bare.contents c
         where c.content_id = any (array(select content_id from given order by content_id))
         order by c.content_id for update
    ), decremented as (
        update bare.contents c set ref_count = ref_count - times, changed_at = statement_timestamp(),
               state = case when ref_count = times then 'DOOMED' else state end
          from given join counted using (content_id) where c.content_id = given.content_id
        returning c.content_id, c.state)
    select content_id from decremented where state = 'DOOMED'";

const GONE: &str = "
    update bare.contents set state = 'GONE', changed_at = statement_timestamp()
     where content_id = any ($1) and case when state = 'DOOMED' then true else false end";

/// Returns the rows per second of bare SQL on separate tables.
pub async fn measure(
    server: &BenchServer,
    rows: u64,
    batch: i64,
    workers: usize,
    bar: &ProgressBar,
) -> Result<f64> {
    let session = server.session().await?;
    let layout = Layout::new(rows, 64);
    session.batch_execute(TABLES).await?;
    rows::lay(&session, "bare", &layout, bar).await?;
    checkpoint(&session).await?;
    let started = Instant::now();
    let mut running = Vec::new();
    for _ in 0..workers {
        let client = server.session().await?;
        running.push(tokio::spawn(async move { one(&client, batch).await }));
    }
    let mut done = 0;
    for worker in running {
        done += worker.await??;
    }
    let time: Duration = started.elapsed();
    ensure!(done == layout.rows, "bare SQL moved {done} of {} rows", layout.rows);
    let left = count(
        &session,
        "select count(*) from bare.contents where state not in ('GONE') and ref_count <> 1",
    )
    .await?;
    ensure!(left == 0, "bare SQL left {left} contents with a wrong counter");
    session.batch_execute("drop schema bare cascade").await?;
    Ok(layout.rows as f64 / time.as_secs_f64())
}

async fn one(client: &tokio_postgres::Client, batch: i64) -> Result<u64> {
    // Force the right plan, as the service does.
    client
        .batch_execute(
            "set enable_seqscan = off; set jit = off; set plan_cache_mode = force_generic_plan",
        )
        .await?;
    let claim = client.prepare(CLAIM).await?;
    let finish = client.prepare(FINISH).await?;
    let gone = client.prepare(GONE).await?;
    let token: i64 =
        client.query_one("select nextval('bare.claim')", &[]).await.context("no token")?.get(0);
    let (mut cursor, mut done) = (jiff::Timestamp::UNIX_EPOCH, 0);
    loop {
        let rows = client.query(&claim, &[&cursor, &batch, &token]).await?;
        if rows.is_empty() {
            return Ok(done);
        }
        let codes: Vec<&str> = rows.iter().map(|row| row.get(0)).collect();
        cursor = rows.iter().map(|row| row.get(1)).max().unwrap_or(cursor);
        let doomed = client.query(&finish, &[&codes, &token]).await?;
        let doomed: Vec<i64> = doomed.iter().map(|row| row.get(0)).collect();
        client.execute(&gone, &[&doomed]).await?;
        done += codes.len() as u64;
    }
}
