//! The limit: the same work in bare SQL on a bare table, one connection, nothing else.
//!
//! One lease row per batch, a claim that touches three columns and no index, completion by one
//! DELETE: the cheapest way we know to do what the engine does. No worker, no handlers, no
//! settings, no history, no lock for other claimers.

use std::time::{Duration, Instant};

use anyhow::Result;
use bytes::Bytes;
use futures_util::SinkExt;
use tokio_postgres::{Client, Statement};

pub const TABLES: &str = "
    drop schema if exists raw cascade;
    create schema raw;
    create table raw.job (
        id bigint generated always as identity (cache 50) primary key,
        enqueued_at timestamptz not null default now(),
        scheduled_at timestamptz not null default now(),
        expires_at timestamptz not null default now() + interval '30 days',
        priority int not null default 0,
        claim_token bigint not null default 0,
        attempts int not null default 0,
        name text not null,
        tag text not null default '',
        kwargs jsonb not null
    ) with (fillfactor = 45);
    create index on raw.job (priority, scheduled_at, id);
    create table raw.lease (
        claim_token bigint primary key, claimed_by text not null,
        lease_expires_at timestamptz not null, job_ids bigint[] not null);
    create sequence raw.token;";

const CLAIM: &str = "
    with picked as materialized (
        select ctid as row_at from raw.job
         where (priority, scheduled_at, id) > (0, $1, $2)
           and scheduled_at <= statement_timestamp() and claim_token = 0
         order by priority, scheduled_at, id limit $3
    ), claimed as (
        update raw.job set claim_token = $4, attempts = attempts + 1
         where ctid = any (array(select row_at from picked)) and claim_token = 0
        returning id, name, kwargs, scheduled_at
    ), leased as (
        insert into raw.lease
        select $4, 'raw', statement_timestamp() + interval '30 seconds', array_agg(id)
          from claimed having count(*) > 0)
    select id, name, kwargs::text, scheduled_at from claimed";

const COMPLETE: &str = "
    with done as (delete from raw.job where id = any ($1) and claim_token = $2 returning id),
         ended as (delete from raw.lease where claim_token = $2)
    select count(*) from done";

/// A claimer that reads the table once, from start to end.
pub struct RawWorker<'a> {
    client: &'a Client,
    claim: Statement,
    complete: Statement,
    after: (jiff::Timestamp, i64),
    token: i64,
}

impl<'a> RawWorker<'a> {
    pub async fn new(client: &'a Client) -> Result<Self> {
        // Force the right plan: one made on an empty table would scan all of it.
        client
            .batch_execute(
                "set enable_seqscan = off; set enable_bitmapscan = off; \
                 set plan_cache_mode = force_generic_plan",
            )
            .await?;
        Ok(Self {
            client,
            claim: client.prepare(CLAIM).await?,
            complete: client.prepare(COMPLETE).await?,
            after: (jiff::Timestamp::UNIX_EPOCH, 0),
            token: 1,
        })
    }

    /// Claims one job.
    pub async fn claim_one(&mut self) -> Result<Option<Vec<i64>>> {
        let ids = self.claim(1).await?;
        Ok((!ids.is_empty()).then_some(ids))
    }

    pub async fn complete(&self, ids: &Vec<i64>) -> Result<()> {
        self.client.query_one(&self.complete, &[ids, &self.token]).await?;
        Ok(())
    }

    /// Claims and completes one batch. Returns its number of jobs.
    pub async fn batch(&mut self, size: i64) -> Result<usize> {
        let ids = self.claim(size).await?;
        if !ids.is_empty() {
            self.complete(&ids).await?;
        }
        Ok(ids.len())
    }

    async fn claim(&mut self, size: i64) -> Result<Vec<i64>> {
        self.token += 1;
        let rows = self
            .client
            .query(&self.claim, &[&self.after.0, &self.after.1, &size, &self.token])
            .await?;
        let mut ids = Vec::with_capacity(rows.len());
        for row in &rows {
            let id: i64 = row.get(0);
            let at: jiff::Timestamp = row.get(3);
            self.after = self.after.max((at, id));
            ids.push(id);
        }
        Ok(ids)
    }
}

/// Drains the table. Returns how long it took.
pub async fn drain(client: &Client, jobs: u64) -> Result<Duration> {
    let mut worker = RawWorker::new(client).await?;
    let started = Instant::now();
    let mut done = 0;
    while done < jobs {
        let batch = worker.batch(1000).await?;
        anyhow::ensure!(batch > 0, "the bare table ran dry after {done} of {jobs} jobs");
        done += batch as u64;
    }
    Ok(started.elapsed())
}

/// Copies jobs in, `chunk` at a time.
pub async fn copy(client: &Client, jobs: u64, chunk: u64, first: u64) -> Result<()> {
    let mut n = first;
    let end = first + jobs;
    while n < end {
        let last = (n + chunk).min(end);
        let sink = client.copy_in("copy raw.job (name, kwargs) from stdin").await?;
        futures_util::pin_mut!(sink);
        let mut text = String::with_capacity(32 * chunk as usize);
        for number in n..last {
            use std::fmt::Write;
            writeln!(text, "noop\t{{\"n\":{number}}}")?;
        }
        sink.send(Bytes::from(text)).await?;
        sink.finish().await?;
        n = last;
    }
    Ok(())
}
