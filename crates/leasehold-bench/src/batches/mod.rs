//! `leasehold-bench batches`: thousands of batches, worked by processes that are killed and paused, and
//! whose sessions are ended. At the end the database is searched for follow-ups that are missing, came
//! twice, came early, or are the wrong ones.
//!
//! In reading order: this file stores the batches and waits; [`worker`] is the program of each process;
//! [`trouble`] kills and pauses them; [`check`] searches the database.

mod check;
mod trouble;
pub mod worker;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use leasehold::admin::{By, QueueChange, Queues};
use leasehold::database::Session;
use leasehold::{BatchDraft, Draft, Leasehold};
use leasehold_server::bench::report::{Report, whole};
use leasehold_server::bench::server::BenchServer;
use leasehold_server::progress;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use tokio::task::JoinSet;
use tokio_postgres::types::Type;
use tokio_util::sync::CancellationToken;

use worker::{End, Step};

const PRODUCERS: u64 = 4;
/// Short, so that the jobs of a killed or paused worker return while the run lasts.
const LEASE: Duration = Duration::from_secs(3);
/// The run fails if no batch closes for this time.
const STALLED: Duration = Duration::from_secs(180);
const LOOK_AGAIN: Duration = Duration::from_millis(500);

#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Number of batches
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    batches: u64,
    /// Most jobs of a batch; small batches are more frequent than large ones
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    largest: u64,
    /// Worker processes
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=64))]
    processes: u64,
    /// Slots of each process
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=1000))]
    slots: u64,
    /// Kill, pause or disconnect a process once per this many milliseconds; 0: never
    #[arg(long, default_value_t = 700, value_parser = clap::value_parser!(u64).range(0..=3_600_000))]
    trouble_ms: u64,
    /// Repeat the sizes and ends of the run with this number
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

pub async fn run(server: &BenchServer, args: &Args) -> Result<Report> {
    let session = server.session().await?;
    let engine = Leasehold::connect(&server.url).await?;
    set_up(&session).await?;
    let processes = trouble::Processes::start(&server.url, args).await?;
    let began = Instant::now();
    let next = Arc::new(AtomicU64::new(0));
    let mut producers = JoinSet::new();
    for _ in 0..PRODUCERS.min(args.batches) {
        let (engine, args, next) = (engine.clone(), args.clone(), Arc::clone(&next));
        producers.spawn(async move { produce(&engine, &args, &next).await });
    }
    let stop = CancellationToken::new();
    let making =
        tokio::spawn(processes.make_trouble(server.session().await?, args.clone(), stop.clone()));
    let mut jobs = 0;
    while let Some(produced) = producers.join_next().await {
        jobs += produced??;
    }
    let closed = closed(&session, args.batches).await;
    stop.cancel();
    let troubles = making.await??;
    closed?;
    let seconds = began.elapsed().as_secs_f64();
    let found = check::search(&session).await?;
    ensure!(found.batches == args.batches, "{} batches were stored", found.batches);
    Ok(report(args, jobs, seconds, &troubles, &found))
}

async fn set_up(session: &Session) -> Result<()> {
    session.batch_execute(check::TABLES).await?;
    // No job dies but by its own end, so that the right follow-up is known.
    let change = QueueChange::new().lease(LEASE).max_attempts(1000).max_lost(1000);
    Queues::on(session).set("steps", &change, &By::new("bench")).await?;
    Ok(())
}

/// Opens batches, in one transaction or in several, until all of them are stored. Returns the jobs.
async fn produce(engine: &Leasehold, args: &Args, next: &AtomicU64) -> Result<u64> {
    let mut jobs = 0;
    loop {
        let n = next.fetch_add(1, Ordering::Relaxed);
        if n >= args.batches {
            return Ok(jobs);
        }
        jobs += store(engine, args, i64::try_from(n)?).await?;
    }
}

async fn store(engine: &Leasehold, args: &Args, n: i64) -> Result<u64> {
    let mut random = SmallRng::seed_from_u64(args.seed.wrapping_mul(1_000_003) ^ n.unsigned_abs());
    let jobs = size(&mut random, args.largest);
    let clean = random.random_bool(0.5);
    let steps: Vec<Step> =
        (0..jobs).map(|_| Step { n, end: End::random(&mut random, clean) }).collect();
    let parts = if random.random_bool(0.5) { 1 } else { 3 };
    let follow = |name: &str| -> Result<Draft> {
        Ok(Draft::untyped(name, &serde_json::json!({ "n": n }))?.queue("ended"))
    };
    let draft = BatchDraft::new()
        .then(follow("batch.succeeded")?)
        .on_end(follow("batch.ended")?)
        .on_death(follow("batch.died")?);
    let mut client = engine.pool().get().await?;
    let tx = client.transaction().await?;
    let batch = draft.open(&tx).await?;
    let insert = "insert into bench_batch (n, batch_id, jobs) values ($1, $2, $3)";
    let (id, count) = (batch.id().0, i64::try_from(jobs)?);
    tx.query_typed(insert, &[(&n, Type::INT8), (&id, Type::INT8), (&count, Type::INT8)]).await?;
    if parts == 1 {
        batch.add_many(&tx, steps).await?;
        batch.seal(&tx).await?;
        tx.commit().await?;
        return Ok(jobs);
    }
    tx.commit().await?;
    let part = steps.len().div_ceil(parts);
    for some in steps.chunks(part) {
        let tx = client.transaction().await?;
        batch.add_many(&tx, some.iter().cloned()).await?;
        tx.commit().await?;
    }
    batch.seal(engine).await?;
    Ok(jobs)
}

/// Returns a number from 1 to the largest, each order of magnitude as often as the others.
fn size(random: &mut SmallRng, largest: u64) -> u64 {
    let exponent = random.random_range(0.0..=1.0_f64);
    ((largest as f64).powf(exponent).round() as u64).clamp(1, largest)
}

/// Waits until every batch is closed and no job of one is left.
async fn closed(session: &Session, batches: u64) -> Result<()> {
    let bar = progress("closing batches", batches);
    let (mut before, mut since) = (0, Instant::now());
    loop {
        let rows = session.query_typed(check::CLOSED, &[]).await?;
        let closed: i64 = rows.first().context("no row")?.get(0);
        let closed = u64::try_from(closed)?;
        bar.set_position(closed);
        if closed >= batches {
            bar.finish_and_clear();
            return Ok(());
        }
        if closed > before {
            (before, since) = (closed, Instant::now());
        }
        ensure!(
            since.elapsed() < STALLED,
            "{closed} of {batches} batches are closed, and none closed for {} s",
            STALLED.as_secs()
        );
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

fn report(
    args: &Args,
    jobs: u64,
    seconds: f64,
    troubles: &trouble::Troubles,
    found: &check::Found,
) -> Report {
    let mut report = Report::plain("batches");
    report
        .set("batches", args.batches.into())
        .set("jobs", jobs.into())
        .set("added", found.added.into())
        .set("processes", args.processes.into())
        .set("seed", args.seed.into())
        .set("kills", troubles.kills.into())
        .set("pauses", troubles.pauses.into())
        .set("sessions_ended", troubles.sessions.into())
        .number("seconds", seconds)
        .set("follow_ups", found.follow_ups.into())
        .set("missing", found.missing.into())
        .set("twice", found.twice.into())
        .set("early", found.early.into())
        .set("wrong_follow_up", found.wrong.into())
        .set("wrong_counts", found.counts.into())
        .set("rows_left", found.left.into())
        .set("closed_by_a_look", found.by_a_look.into())
        .line(format!(
            "batches, {} of 1 to {} jobs, {} jobs and {} that handlers added, in {seconds:.0} s",
            whole(args.batches as f64),
            args.largest,
            whole(jobs as f64),
            whole(found.added as f64)
        ))
        .line(format!(
            "  {} processes: {} kills, {} pauses, {} sessions ended",
            args.processes, troubles.kills, troubles.pauses, troubles.sessions
        ))
        .line(format!(
            "  follow-ups      {} ({} by a look of housekeeping)",
            whole(found.follow_ups as f64),
            found.by_a_look
        ))
        .line(format!(
            "  missing {}, twice {}, early {}, wrong {}, batches with wrong counts {}, rows left {}",
            found.missing, found.twice, found.early, found.wrong, found.counts, found.left
        ));
    let flaws = found.missing + found.twice + found.early + found.wrong + found.counts + found.left;
    if flaws > 0 {
        report.fail(format!("{flaws} flaws were found in the database; see the figures"));
    }
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_reach_both_ends() {
        let mut random = SmallRng::seed_from_u64(1);
        let sizes: Vec<u64> = (0..10_000).map(|_| size(&mut random, 1000)).collect();
        assert!(sizes.iter().all(|size| (1..=1000).contains(size)));
        assert!(sizes.contains(&1) && sizes.iter().any(|size| *size > 990));
    }
}
