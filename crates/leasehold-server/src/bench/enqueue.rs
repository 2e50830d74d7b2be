//! `leasehold bench enqueue`: jobs stored per second.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use leasehold::admin::{JobFilter, Jobs};
use leasehold::{Enqueue, Leasehold};

use super::ours::{self, Noop};
use super::report::Report;
use super::server::{BenchServer, WalMeter, checkpoint};
use super::{Common, raw};
use crate::output::progress;

const CHUNK: u64 = 10_000;
/// Single enqueues are far slower: fewer of them give the same precision.
const SINGLES: u64 = 2_000;

pub async fn run(server: &BenchServer, common: &Common) -> Result<Report> {
    let jobs = common.jobs;
    let session = server.session().await?;
    ours::set_up(&session, common.history).await?;
    let engine = Leasehold::connect(&server.url).await?;

    // Raw SQL and the engine take turns, so that a slow moment of the machine hits both.
    let (mut raw_time, mut our_time, mut wal) = (0.0, 0.0, 0.0);
    let bar = progress("enqueueing", jobs);
    for start in (0..jobs).step_by(CHUNK as usize) {
        let end = (start + CHUNK).min(jobs);
        if start % (10 * CHUNK) == 0 {
            checkpoint(&session).await?;
        }
        let began = Instant::now();
        raw::copy(&session, end - start, CHUNK, start).await?;
        raw_time += began.elapsed().as_secs_f64();

        let meter = WalMeter::start(&session).await?;
        let began = Instant::now();
        engine.enqueue_many((start..end).map(|n| Noop { n })).await?;
        our_time += began.elapsed().as_secs_f64();
        wal += meter.bytes(&session).await?;
        bar.set_position(end);
    }
    bar.finish_and_clear();

    let began = Instant::now();
    for n in 0..SINGLES {
        Noop { n }.enqueue(&engine).await?;
    }
    let single_rate = SINGLES as f64 / began.elapsed().as_secs_f64();
    let insert = session.prepare("insert into raw.job (name, kwargs) values ('noop', $1)").await?;
    let began = Instant::now();
    for n in 0..SINGLES {
        session.execute(&insert, &[&serde_json::json!({ "n": n })]).await?;
    }
    let raw_single_rate = SINGLES as f64 / began.elapsed().as_secs_f64();

    let wanted = u32::try_from(jobs + SINGLES + 1).context("too many jobs")?;
    let stored = Jobs::on(&session).count(&JobFilter::any().waiting(), wanted).await?;
    ensure!(stored == jobs + SINGLES, "{stored} jobs are stored, not {}", jobs + SINGLES);

    let (ours_rate, raw_rate) = (jobs as f64 / our_time, jobs as f64 / raw_time);
    let mut report = Report::new("enqueue", jobs, "jobs/s", ours_rate, raw_rate);
    report
        .number("wal_bytes_per_job", wal / jobs as f64)
        .number("single_ours", single_rate)
        .number("single_limit", raw_single_rate)
        .line(format!("  WAL             {:.0} B per job", wal / jobs as f64))
        .line(format!(
            "  one by one      {single_rate:.0} jobs/s (bare INSERT {raw_single_rate:.0} jobs/s)"
        ))
        .line(format!("  every job is stored: {stored} of {}", jobs + SINGLES));
    Ok(report)
}
