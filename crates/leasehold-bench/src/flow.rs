//! `leasehold-bench flow`: producers and a worker at the same time, with or without an old snapshot.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use leasehold::Leasehold;
use leasehold::database::Session;

use leasehold_server::bench::ledger::Ledger;
use leasehold_server::bench::ours::{self, Noop, OurWorker};
use leasehold_server::bench::report::Report;
use leasehold_server::bench::server::{BenchServer, WalMeter, checkpoint};
use leasehold_server::bench::{Common, raw};
use leasehold_server::progress;

const CHUNK: u64 = 1_000;
/// The producer waits when it is this many jobs ahead of the worker.
const AHEAD: u64 = 5_000;
const SPAN: u64 = 20_000;

/// Rates of the whole run, its start and its end, in jobs per second.
struct Rates {
    all: f64,
    first: f64,
    last: f64,
}

pub async fn run(server: &BenchServer, common: &Common, old_snapshot: bool) -> Result<Report> {
    let jobs = common.jobs.next_multiple_of(CHUNK);
    let span = SPAN.min(jobs / 2);
    let session = server.session().await?;
    ours::set_up(&session, common.history).await?;
    let holder = if old_snapshot { Some(hold_snapshot(server).await?) } else { None };

    let raw_rates = raw_flow(server, jobs, span).await?;
    checkpoint(&session).await?;

    let engine = Leasehold::connect(&server.url).await?;
    let ledger = Arc::new(Ledger::new(jobs, &[1, span, jobs - span, jobs]));
    let wal = WalMeter::start(&session).await?;
    let worker = OurWorker::start(&engine, common.slots, Arc::clone(&ledger));
    let bar = progress("flowing", jobs);
    for start in (0..jobs).step_by(CHUNK as usize) {
        while start.saturating_sub(ledger.total()) > AHEAD {
            tokio::time::sleep(Duration::from_micros(500)).await;
        }
        engine.enqueue_many((start..start + CHUNK).map(|n| Noop { n })).await?;
        bar.set_position(ledger.total());
    }
    ledger.all_ran().await;
    ours::drained(&session).await?;
    bar.finish_and_clear();
    let wal = wal.bytes(&session).await? / jobs as f64;
    worker.stop().await?;
    ours::verify(&session, &ledger).await?;
    if let Some(holder) = holder {
        holder.batch_execute("rollback").await.context("the old snapshot did not last")?;
    }

    let at = |mark| ledger.at(mark).context("a mark was not reached");
    let rates = rates(jobs, span, at(1)?, at(span)?, at(jobs - span)?, at(jobs)?);
    let mut report = Report::new("flow", jobs, "jobs/s", rates.all, raw_rates.all);
    report
        .set("old_snapshot", old_snapshot.into())
        .number("first_20k", rates.first)
        .number("last_20k", rates.last)
        .number("last_over_first", rates.last / rates.first)
        .number("limit_first_20k", raw_rates.first)
        .number("limit_last_20k", raw_rates.last)
        .number("wal_bytes_per_job", wal)
        .set("ran_exactly_once", true.into())
        .line(format!(
            "  first {span}: {:.0} jobs/s, last {span}: {:.0} jobs/s ({:.2} of the first; raw {:.2})",
            rates.first, rates.last, rates.last / rates.first, raw_rates.last / raw_rates.first
        ))
        .line(format!("  WAL             {wal:.0} B a job"))
        .line(format!("  every job ran exactly once: {jobs} of {jobs}"));
    Ok(report)
}

fn rates(
    jobs: u64,
    span: u64,
    start: Instant,
    first: Instant,
    last: Instant,
    end: Instant,
) -> Rates {
    let rate = |count: u64, from: Instant, to: Instant| {
        count as f64 / to.duration_since(from).as_secs_f64().max(1e-9)
    };
    Rates {
        all: rate(jobs, start, end),
        first: rate(span, start, first),
        last: rate(span, last, end),
    }
}

async fn hold_snapshot(server: &BenchServer) -> Result<Session> {
    let holder = server.session().await?;
    holder
        .batch_execute(
            "set idle_in_transaction_session_timeout = 0; \
             begin isolation level repeatable read; select count(*) from leasehold.job",
        )
        .await?;
    Ok(holder)
}

async fn raw_flow(server: &BenchServer, jobs: u64, span: u64) -> Result<Rates> {
    let producer = server.session().await?;
    let consumer = server.session().await?;
    let done = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&done);
    let producing = tokio::spawn(async move {
        for start in (0..jobs).step_by(CHUNK as usize) {
            while start.saturating_sub(seen.load(Ordering::Relaxed)) > AHEAD {
                tokio::time::sleep(Duration::from_micros(500)).await;
            }
            raw::copy(&producer, CHUNK, CHUNK, start).await?;
        }
        Ok::<(), anyhow::Error>(())
    });
    let mut worker = raw::RawWorker::new(&consumer).await?;
    let (mut marks, mut total) = ([None; 4], 0u64);
    while total < jobs {
        let batch = worker.batch(500).await? as u64;
        if batch == 0 {
            if producing.is_finished() && done.load(Ordering::Relaxed) >= jobs {
                break;
            }
            tokio::time::sleep(Duration::from_micros(200)).await;
            continue;
        }
        total += batch;
        done.store(total, Ordering::Relaxed);
        for (mark, at) in [1, span, jobs - span, jobs].into_iter().zip(&mut marks) {
            if total >= mark && at.is_none() {
                *at = Some(Instant::now());
            }
        }
    }
    producing.await??;
    let mark = |at: usize| marks.get(at).copied().flatten().context("a mark was not reached");
    Ok(rates(jobs, span, mark(0)?, mark(1)?, mark(2)?, mark(3)?))
}
