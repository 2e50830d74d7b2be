//! `leasehold bench drain`: drains a full queue.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use leasehold::Leasehold;
use leasehold::admin::diagnosis;

use super::ledger::Ledger;
use super::ours::{self, Noop, OurWorker};
use super::report::Report;
use super::server::{BenchServer, WalMeter, checkpoint};
use super::{Common, raw};
use crate::output::progress;

pub async fn run(server: &BenchServer, common: &Common) -> Result<Report> {
    let jobs = common.jobs;
    let session = server.session().await?;
    ours::set_up(&session, common.history).await?;

    checkpoint(&session).await?;
    raw::copy(&session, jobs, 10_000, 0).await?;
    session.batch_execute("analyze raw.job").await?;
    let raw_wal = WalMeter::start(&session).await?;
    let raw_time = raw::drain(&session, jobs).await?;
    let raw_wal = raw_wal.bytes(&session).await? / jobs as f64;

    let engine = Leasehold::connect(&server.url).await?;
    checkpoint(&session).await?;
    let enqueue_wal = WalMeter::start(&session).await?;
    for start in (0..jobs).step_by(10_000) {
        engine.enqueue_many((start..(start + 10_000).min(jobs)).map(|n| Noop { n })).await?;
    }
    let enqueue_wal = enqueue_wal.bytes(&session).await? / jobs as f64;
    session.batch_execute(diagnosis::BENCH_ANALYZE).await?;

    let ledger = Arc::new(Ledger::new(jobs, &[1]));
    let drain_wal = WalMeter::start(&session).await?;
    let bar = progress("draining", jobs);
    let worker = OurWorker::start(&engine, common.slots, Arc::clone(&ledger));
    let watched = Arc::clone(&ledger);
    let ticking = {
        let bar = bar.clone();
        tokio::spawn(async move {
            while watched.total() < jobs {
                bar.set_position(watched.total());
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        })
    };
    ledger.all_ran().await;
    ours::drained(&session).await?;
    let ended = Instant::now();
    ticking.abort();
    bar.finish_and_clear();
    let drain_wal = drain_wal.bytes(&session).await? / jobs as f64;
    worker.stop().await?;
    ours::verify(&session, &ledger).await?;

    let started = ledger.at(1).context("no job ran")?;
    let ours_rate = jobs as f64 / ended.duration_since(started).as_secs_f64();
    let raw_rate = jobs as f64 / raw_time.as_secs_f64();
    let mut report = Report::new("drain", jobs, "jobs/s", ours_rate, raw_rate);
    report
        .number("wal_bytes_per_job", enqueue_wal + drain_wal)
        .number("enqueue_wal_bytes_per_job", enqueue_wal)
        .number("drain_wal_bytes_per_job", drain_wal)
        .number("limit_drain_wal_bytes_per_job", raw_wal)
        .set("history", common.history.into())
        .set("ran_exactly_once", true.into())
        .line(format!(
            "  WAL             {:.0} B per job ({enqueue_wal:.0} enqueue + {drain_wal:.0} drain; raw drain {raw_wal:.0})",
            enqueue_wal + drain_wal
        ))
        .line(format!("  every job ran exactly once: {jobs} of {jobs}"));
    Ok(report)
}
