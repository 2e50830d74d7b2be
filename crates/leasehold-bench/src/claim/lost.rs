//! `leasehold-bench lost`: drains jobs that lost their worker, compared to as many fresh ones,
//! and measures how soon an urgent job starts meanwhile.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use leasehold::{Leasehold, Outcome};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{Backlog, drain, median};
use leasehold_server::bench::ours;
use leasehold_server::bench::report::{Report, whole};
use leasehold_server::bench::server::BenchServer;
use leasehold_server::progress;

const ROUNDS: u64 = 2;
const URGENT: &str = "select leasehold.enqueue('urgent', queue => 'bench', priority => -100)";

#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Number of jobs
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1_000..=10_000_000))]
    jobs: u64,
    /// Slots of the worker
    #[arg(long, default_value_t = 2000)]
    slots: usize,
}

pub async fn run(server: &BenchServer, args: &Args) -> Result<Report> {
    let session = server.session().await?;
    ours::set_up(&session, true).await?;
    let engine = Leasehold::connect(&server.url).await?;
    let fresh = Backlog { jobs: args.jobs, names: 1, priorities: 1, lost: false };
    let lost = Backlog { lost: true, ..fresh };
    let (mut fresh_rates, mut lost_rates, mut urgent) = (vec![], vec![], vec![]);
    let bar = progress("working off", ROUNDS);
    for round in 0..ROUNDS {
        fresh_rates.push(drain(&session, &engine, fresh, args.slots).await?);
        lost_rates.push(drain(&session, &engine, lost, args.slots).await?);
        urgent.push(urgent_start(server, &engine, lost, args.slots).await?);
        bar.set_position(round + 1);
    }
    bar.finish_and_clear();
    let (lost_rate, fresh_rate) = (median(lost_rates), median(fresh_rates));
    let slowest = urgent.into_iter().fold(0.0, f64::max);
    let mut report = Report::plain("lost");
    report
        .set("jobs", args.jobs.into())
        .number("lost_per_s", lost_rate)
        .number("fresh_per_s", fresh_rate)
        .number("ratio", lost_rate / fresh_rate)
        .number("urgent_start_ms", slowest)
        .line(format!(
            "lost, {} jobs that lost their worker beside as many fresh ones, durable",
            args.jobs
        ))
        .line(format!(
            "  lost            {} jobs/s ({:.2} of the {} jobs/s of fresh ones)",
            whole(lost_rate),
            lost_rate / fresh_rate,
            whole(fresh_rate)
        ))
        .line(format!("  an urgent job meanwhile started after {slowest:.0} ms"));
    Ok(report)
}

/// Enqueues an urgent job once half of the lost jobs have run. Returns the milliseconds from its commit
/// to its handler.
async fn urgent_start(
    server: &BenchServer,
    engine: &Leasehold,
    backlog: Backlog,
    slots: usize,
) -> Result<f64> {
    let session = server.session().await?;
    backlog.store(&session).await?;
    let (started, mut starts) = mpsc::channel(1);
    let ran = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let counted = Arc::clone(&ran);
    let worker = engine
        .worker()
        .name("bench")
        .queue("bench", slots)
        .handle_untyped("n0", move |_| {
            counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            async { Outcome::Complete }
        })
        .handle_untyped("urgent", move |_| {
            let started = started.clone();
            async move {
                let _ = started.send(Instant::now()).await;
                Outcome::Complete
            }
        });
    let stop = CancellationToken::new();
    let running = tokio::spawn(worker.run_until(stop.clone().cancelled_owned()));
    let stop = stop.drop_guard();
    while ran.load(std::sync::atomic::Ordering::Relaxed) < backlog.jobs / 2 {
        ensure!(!running.is_finished(), "the worker ended early");
        tokio::time::sleep(std::time::Duration::from_micros(500)).await;
    }
    session.query_typed(URGENT, &[]).await?;
    let committed = Instant::now();
    let at: Instant = starts.recv().await.context("the worker is gone")?;
    ours::drained(&session).await?;
    drop(stop);
    running.await?.context("the worker failed")?;
    Ok(at.saturating_duration_since(committed).as_secs_f64() * 1000.0)
}
