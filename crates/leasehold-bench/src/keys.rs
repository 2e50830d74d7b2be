//! `leasehold-bench keys`: enqueues with keys for minutes and checks that the table of keys
//! stops growing.
//!
//! A key outlives its job by its own retention; then housekeeping prunes it, with the default settings
//! of a worker. The run fails if the table still grows after that retention.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use leasehold::database::Session;
use leasehold::{Leasehold, State};
use tokio_postgres::types::{Json, Type};
use tokio_util::sync::CancellationToken;

use leasehold_server::bench::ours::{self, Noop};
use leasehold_server::bench::report::{Report, whole};
use leasehold_server::bench::server::BenchServer;
use leasehold_server::progress;

/// Connections that enqueue.
const PRODUCERS: u64 = 4;
/// Each producer sends at this interval, with as many keys as its share of the rate requires.
const TICK: Duration = Duration::from_millis(200);
/// Housekeeping prunes every ten seconds: pruning has begun 20 s after the retention of the first keys.
const SETTLED: f64 = 20.0;
/// A table that gains less than this share of what is enqueued does not grow.
const STEADY: f64 = 0.02;

#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Keyed enqueues per second
    #[arg(long, default_value_t = 5000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    rate: u64,
    /// Duration in seconds
    #[arg(long, default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// Seconds that a key stays reserved
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(0..=86_400))]
    key_ttl: u64,
    /// Slots of the worker
    #[arg(long, default_value_t = 2000)]
    slots: usize,
}

pub async fn run(server: &BenchServer, args: &Args) -> Result<Report> {
    let session = server.session().await?;
    ours::set_up(&session, false).await?;
    let engine = Leasehold::connect(&server.url).await?;
    let ran = Arc::new(AtomicU64::new(0));
    let stop = CancellationToken::new();
    let worker =
        engine.worker_with(Arc::clone(&ran)).name("bench").queue("bench", args.slots).handle(
            async |_: Noop, State(ran): State<Arc<AtomicU64>>| {
                ran.fetch_add(1, Ordering::Relaxed);
            },
        );
    let working = tokio::spawn(worker.run_until(stop.clone().cancelled_owned()));
    let stop = stop.drop_guard();

    let began = Instant::now();
    let end = began + Duration::from_secs(args.seconds);
    let next = Arc::new(AtomicU64::new(0));
    let mut producers = tokio::task::JoinSet::new();
    for _ in 0..PRODUCERS {
        let (session, args, next) = (server.session().await?, args.clone(), Arc::clone(&next));
        producers.spawn(async move { produce(&session, &args, &next, end).await });
    }
    let sizes = watch(&session, args, began, end).await?;
    while let Some(produced) = producers.join_next().await {
        produced??;
    }
    let seconds = began.elapsed().as_secs_f64();
    let enqueued = next.load(Ordering::Relaxed);
    let keys_end = keys(&session).await?;
    ours::drained(&session).await?;
    let emptied = emptied(&session, args).await?;
    drop(stop);
    working.await?.context("the worker failed")?;
    let ran = ran.load(Ordering::Relaxed);
    ensure!(ran == enqueued, "{enqueued} jobs were enqueued and {ran} ran");
    Ok(report(args, &sizes, &Run { seconds, enqueued, keys_end, emptied }))
}

/// Enqueues its share of the rate until the end. Behind schedule, it does not pause.
async fn produce(session: &Session, args: &Args, next: &AtomicU64, end: Instant) -> Result<()> {
    let sql = "select count(*) from leasehold.enqueue_many(names => $1, kwargs => $2, \
               queue => 'bench', keys => $3, key_ttl => make_interval(secs => $4))";
    let statement = session
        .prepare_typed(sql, &[Type::TEXT_ARRAY, Type::JSONB_ARRAY, Type::TEXT_ARRAY, Type::FLOAT8])
        .await?;
    let share = (args.rate as f64 * TICK.as_secs_f64() / PRODUCERS as f64).ceil().max(1.0) as u64;
    let pause = Duration::from_secs_f64(share as f64 * PRODUCERS as f64 / args.rate as f64);
    let mut due = Instant::now();
    while due < end && Instant::now() < end {
        let first = next.fetch_add(share, Ordering::Relaxed);
        let numbers: Vec<u64> = (first..first + share).collect();
        let names = vec!["noop"; numbers.len()];
        let kwargs: Vec<_> = numbers.iter().map(|n| Json(Noop { n: *n })).collect();
        let keys: Vec<String> = numbers.iter().map(|n| format!("request:{n}")).collect();
        session.query(&statement, &[&names, &kwargs, &keys, &(args.key_ttl as f64)]).await?;
        due += pause;
        tokio::time::sleep_until(due.into()).await;
    }
    Ok(())
}

async fn keys(session: &Session) -> Result<u64> {
    let rows =
        session.query_typed("select count(*) from leasehold_internal.idempotency_key", &[]).await?;
    let count: i64 = rows.first().context("the statement returned no row")?.get(0);
    Ok(u64::try_from(count).unwrap_or(0))
}

/// Pairs of seconds since the start and number of keys.
type Sizes = Vec<(f64, u64)>;

async fn watch(session: &Session, args: &Args, began: Instant, end: Instant) -> Result<Sizes> {
    let bar = progress("enqueueing with keys", args.seconds);
    // Counting costs, too: a hundred samples are enough.
    let pause = Duration::from_secs_f64((args.seconds as f64 / 100.0).max(0.5));
    let mut sizes = Vec::new();
    while Instant::now() < end {
        tokio::time::sleep(pause.min(end.saturating_duration_since(Instant::now()))).await;
        sizes.push((began.elapsed().as_secs_f64(), keys(session).await?));
        bar.set_position(began.elapsed().as_secs());
    }
    bar.finish_and_clear();
    Ok(sizes)
}

/// Returns the seconds from the last enqueue until every key was pruned, or `None` after a timeout.
async fn emptied(session: &Session, args: &Args) -> Result<Option<f64>> {
    let since = Instant::now();
    let longest = Duration::from_secs(args.key_ttl + 120);
    while since.elapsed() < longest {
        if keys(session).await? == 0 {
            return Ok(Some(since.elapsed().as_secs_f64()));
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    Ok(None)
}

struct Run {
    seconds: f64,
    enqueued: u64,
    keys_end: u64,
    emptied: Option<f64>,
}

/// Returns the keys gained per second once pruning has begun: the mean of the last third of the samples
/// against that of the first third. Returns `None` if the run was too short.
fn growth(sizes: &Sizes, from: f64) -> Option<f64> {
    let settled: Vec<_> = sizes.iter().filter(|(at, _)| *at >= from).collect();
    let third = settled.len() / 3;
    if third < 3 {
        return None;
    }
    let mean = |part: &[&(f64, u64)]| {
        let count = part.len() as f64;
        let at: f64 = part.iter().map(|(at, _)| at).sum();
        let keys: f64 = part.iter().map(|(_, keys)| *keys as f64).sum();
        (at / count, keys / count)
    };
    let (first, last) = (mean(settled.get(..third)?), mean(settled.get(settled.len() - third..)?));
    Some((last.1 - first.1) / (last.0 - first.0).max(1e-9))
}

fn report(args: &Args, sizes: &Sizes, run: &Run) -> Report {
    let peak = sizes.iter().map(|(_, keys)| *keys).chain([run.keys_end]).max().unwrap_or(0);
    let rate = run.enqueued as f64 / run.seconds;
    let pruned = run.enqueued.saturating_sub(run.keys_end) as f64;
    let key_ttl = args.key_ttl as f64;
    let pruned_per_second = pruned / (run.seconds - key_ttl).max(1.0);
    let growth = growth(sizes, key_ttl + SETTLED);
    let mut report = Report::plain("keys");
    report
        .set("rate", args.rate.into())
        .set("seconds", args.seconds.into())
        .set("key_ttl", args.key_ttl.into())
        .set("enqueued", run.enqueued.into())
        .number("enqueued_per_second", rate)
        .set("keys_peak", peak.into())
        .set("keys_end", run.keys_end.into())
        .number("pruned_per_second", pruned_per_second)
        .set("ran_exactly_once", true.into())
        .line(format!(
            "keys, {} enqueued in {:.0} s, {} per second; a key is taken for {} s",
            whole(run.enqueued as f64),
            run.seconds,
            whole(rate),
            args.key_ttl
        ))
        .line(format!("  keys at most    {}", whole(peak as f64)))
        .line(format!("  keys at the end {}", whole(run.keys_end as f64)))
        .line(format!("  pruned          {} per second", whole(pruned_per_second)));
    if let Some(growth) = growth {
        report
            .number("growth_after_key_time_per_second", growth)
            .line(format!("  growth          {growth:.0} per second after the keys' time"));
        if growth > rate * STEADY {
            report.fail(format!(
                "the table of keys still gains {growth:.0} rows per second after the keys' time"
            ));
        }
    }
    match run.emptied {
        Some(seconds) => report
            .number("emptied_after_seconds", seconds)
            .line(format!("  all pruned      {seconds:.0} s after the last enqueue")),
        None => report.fail("keys were left two minutes after their time".to_owned()),
    };
    report
}

#[cfg(test)]
mod tests {
    use super::growth;

    #[test]
    fn filled_table_that_stays_does_not_grow() {
        let steady: Vec<(f64, u64)> =
            (0..100).map(|at| (at as f64, 100 * at.min(30) + at % 2)).collect();
        assert!(growth(&steady, 40.0).is_some_and(|growth| growth.abs() < 1.0));
        let growing: Vec<(f64, u64)> = (0..100).map(|at| (at as f64, 100 * at)).collect();
        assert!(growth(&growing, 40.0).is_some_and(|growth| (99.0..101.0).contains(&growth)));
        assert_eq!(growth(&growing, 95.0), None, "too short to know");
    }
}
