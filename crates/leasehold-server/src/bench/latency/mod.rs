//! `leasehold bench latency`: how soon an idle worker picks up a job.

mod limit;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;
use leasehold::{Enqueue, Leasehold, State};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use self::limit::RawPickup;
use super::Common;
use super::ours::{self, Noop};
use super::report::Report;
use super::server::{BenchServer, WalMeter};
use crate::output::progress;

/// More than this takes minutes and adds no information.
const MOST: u64 = 2_000;
/// The mean time between two jobs. It varies, so that it does not synchronise with the worker's polls.
const GAP: Duration = Duration::from_millis(20);

/// A way to store a job.
pub trait Producer {
    /// Stores one job; returns when the call that commits it began.
    fn store(&mut self, n: u64) -> impl Future<Output = Result<Instant>>;
}

impl Producer for Leasehold {
    async fn store(&mut self, n: u64) -> Result<Instant> {
        let called = Instant::now();
        Noop { n }.enqueue(&*self).await?;
        Ok(called)
    }
}

/// Measures jobs that the engine's handle stores.
pub async fn from_engine(server: &BenchServer, common: &Common) -> Result<Report> {
    let engine = Leasehold::connect(&server.url).await?;
    let mut report = run(server, common, &engine, engine.clone()).await?;
    report.set("from", "engine".into());
    Ok(report)
}

/// Measures jobs that `producer` stores and a worker of `engine` picks up.
pub async fn run(
    server: &BenchServer,
    common: &Common,
    engine: &Leasehold,
    mut producer: impl Producer,
) -> Result<Report> {
    let jobs = common.jobs.min(MOST);
    let session = server.session().await?;
    ours::set_up(&session, common.history).await?;

    let (started_tx, mut started) = mpsc::channel::<(u64, Instant)>(64);
    let stop = CancellationToken::new();
    let worker = engine.worker_with(started_tx).queue("bench", 50).handle(
        async |job: Noop, State(started): State<mpsc::Sender<(u64, Instant)>>| {
            let _ = started.send((job.n, Instant::now())).await;
        },
    );
    let running = tokio::spawn(worker.run_until(stop.clone().cancelled_owned()));
    let stop = stop.drop_guard();
    // One job to warm every connection up.
    Noop { n: u64::MAX }.enqueue(engine).await?;
    started.recv().await.context("the worker is gone")?;

    let mut raw = RawPickup::start(server).await?;
    let (mut our_commit, mut our_call) = (histogram()?, histogram()?);
    let (mut raw_commit, mut raw_call) = (histogram()?, histogram()?);
    let bar = progress("picking up", jobs);
    let mut wal = 0.0;
    for n in 0..jobs {
        tokio::time::sleep(gap()).await;
        let meter = WalMeter::start(&session).await?;
        let called = producer.store(n).await?;
        let committed = Instant::now();
        let (ran, at) = started.recv().await.context("the worker is gone")?;
        ensure!(ran == n, "job {ran} ran instead of {n}");
        ours::drained(&session).await?;
        wal += meter.bytes(&session).await?;
        record(&mut our_commit, at.saturating_duration_since(committed))?;
        record(&mut our_call, at.saturating_duration_since(called))?;

        tokio::time::sleep(gap()).await;
        let (called, committed, at) = raw.pick_up(n).await?;
        record(&mut raw_commit, at.saturating_duration_since(committed))?;
        record(&mut raw_call, at.saturating_duration_since(called))?;
        bar.set_position(n + 1);
    }
    bar.finish_and_clear();
    drop(stop);
    running.await?.context("the worker failed")?;

    let ms = |histogram: &Histogram<u64>, quantile: f64| {
        histogram.value_at_quantile(quantile) as f64 / 1e6
    };
    let unit = "ms (p50, commit to handler)";
    let mut report = Report::new("latency", jobs, unit, ms(&our_commit, 0.5), ms(&raw_commit, 0.5));
    report
        .number("p50_ms", ms(&our_commit, 0.5))
        .number("p99_ms", ms(&our_commit, 0.99))
        .number("limit_p50_ms", ms(&raw_commit, 0.5))
        .number("limit_p99_ms", ms(&raw_commit, 0.99))
        // Including the call itself, which waits for the disk.
        .number("call_p50_ms", ms(&our_call, 0.5))
        .number("call_p99_ms", ms(&our_call, 0.99))
        .number("limit_call_p50_ms", ms(&raw_call, 0.5))
        .number("limit_call_p99_ms", ms(&raw_call, 0.99))
        .number("wal_bytes_per_job", wal / jobs as f64)
        .line(format!(
            "  call→handler    p99 {:.2} ms (raw {:.2} ms)",
            ms(&our_call, 0.99),
            ms(&raw_call, 0.99)
        ))
        .line(format!(
            "  commit→handler  p50 {:.2} ms, p99 {:.2} ms (raw p50 {:.2} ms, p99 {:.2} ms)",
            ms(&our_commit, 0.5),
            ms(&our_commit, 0.99),
            ms(&raw_commit, 0.5),
            ms(&raw_commit, 0.99)
        ))
        .line(format!("  every job ran exactly once: {jobs} of {jobs}"));
    Ok(report)
}

fn gap() -> Duration {
    GAP.mul_f64(rand::random_range(0.5..=1.5))
}

fn histogram() -> Result<Histogram<u64>> {
    Ok(Histogram::new_with_bounds(1_000, 60_000_000_000, 3)?)
}

fn record(histogram: &mut Histogram<u64>, time: Duration) -> Result<()> {
    let nanos = u64::try_from(time.as_nanos())?.clamp(1_000, 60_000_000_000);
    Ok(histogram.record(nanos)?)
}
