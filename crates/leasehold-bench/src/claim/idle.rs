//! `leasehold-bench idle`: what an idle worker costs the server while an old snapshot keeps the index
//! entries of finished jobs alive.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use leasehold::Leasehold;
use leasehold::database::Session;

use super::Counting;
use leasehold_server::bench::ours;
use leasehold_server::bench::report::{Report, whole};
use leasehold_server::bench::server::BenchServer;
use leasehold_server::progress;

const PIECE: u64 = 100_000;

#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Number of finished jobs that vacuum cannot remove
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(0..=100_000_000))]
    dead: u64,
    /// Seconds to measure
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// Priority of the finished jobs
    #[arg(long, default_value_t = 0, allow_hyphen_values = true)]
    priority: i32,
}

pub async fn run(server: &BenchServer, args: &Args) -> Result<Report> {
    let session = server.session().await?;
    ours::set_up(&session, true).await?;
    let holder = server.session().await?;
    holder
        .batch_execute(
            "set idle_in_transaction_session_timeout = 0; \
             begin isolation level repeatable read; select count(*) from leasehold.job",
        )
        .await?;
    let bar = progress("leaving remains", args.dead);
    for start in (0..args.dead).step_by(PIECE as usize) {
        let jobs = PIECE.min(args.dead - start);
        session
            .batch_execute(&format!(
                "insert into leasehold.job (queue, name, priority, scheduled_at) \
                 select 'bench', 'n0', {}, now() - interval '1 minute' from generate_series(1, {jobs}); \
                 delete from leasehold.job",
                args.priority
            ))
            .await?;
        bar.set_position(start + jobs);
    }
    bar.finish_and_clear();
    let scan = Instant::now();
    let from_start = "select count(*) from leasehold_internal.claim_next('bench', 'bench', 1, null, null, null, null, \
                      false, -2147483648, true, 2147483647, true, '{}', '{}', '{}', '{}')";
    session.query_typed(from_start, &[]).await?;
    let scan = scan.elapsed().as_secs_f64() * 1000.0;
    // An idle session reports its work up to 10 s late. That of this session, which wrote the jobs,
    // must not be counted as the worker's.
    session.query_typed("select pg_stat_force_next_flush()", &[]).await?;

    let engine = Leasehold::connect(&server.url).await?;
    let worker = Counting::start(&engine, vec!["n0".to_owned()], 50);
    // Skip the first polls: the worker has no cursors yet.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let (before, began) = (active_ms(&session).await?, Instant::now());
    tokio::time::sleep(Duration::from_secs(args.seconds)).await;
    // A session reports its statistics up to a second late.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let share = (active_ms(&session).await? - before) / began.elapsed().as_secs_f64() / 1000.0;
    worker.stop().await?;
    holder.batch_execute("rollback").await.context("the old snapshot did not last")?;

    let mut report = Report::plain("idle");
    report
        .set("dead", args.dead.into())
        .set("seconds", args.seconds.into())
        .set("priority", args.priority.into())
        .number("scan_ms", scan)
        .number("share", share)
        .line(format!("idle, {} finished jobs behind an old snapshot", whole(args.dead as f64)))
        .line(format!("  a scan from the start takes {scan:.0} ms"))
        .line(format!("  an idle worker keeps {share:.4} of a session busy"));
    Ok(report)
}

/// How long the sessions of this database were active, autovacuum included: an upper bound of the CPU
/// time of the worker's sessions.
async fn active_ms(session: &Session) -> Result<f64> {
    let rows = session
        .query_typed(
            "select active_time from pg_stat_database where datname = current_database()",
            &[],
        )
        .await?;
    Ok(rows.first().context("the statement returned no row")?.get(0))
}
