//! `leasehold-bench limits`: what jobs with a limit key cost, beside jobs without one in the same run.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use leasehold::admin::{By, QueueChange, Queues};
use leasehold::database::Session;
use leasehold::{Draft, Leasehold, Limit, Outcome};
use tokio::sync::oneshot;
use tokio_postgres::types::Type;

use super::process::start;
use crate::claim::median;
use leasehold_server::bench::ours;
use leasehold_server::bench::report::{Report, whole};
use leasehold_server::bench::server::{BenchServer, checkpoint};
use leasehold_server::progress;

#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Number of jobs of a drain
    #[arg(long, default_value_t = 50_000, value_parser = clap::value_parser!(u64).range(1_000..=10_000_000))]
    jobs: u64,
    /// Number of keys at their limit beside the fresh one
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(100..=1_000_000))]
    full_keys: u64,
    /// Number of jobs of a blocked key, and of the large tenant
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1_000..=10_000_000))]
    parked: u64,
    /// Number of jobs of the key with limit 1
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u64).range(100..=1_000_000))]
    hot: u64,
    /// Number of processes that work the key with limit 1
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=64))]
    processes: u64,
    /// Slots of the worker
    #[arg(long, default_value_t = 2000)]
    slots: usize,
    /// Measure this often, and report the medians
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=100))]
    rounds: u64,
}

/// A worker in this process.
struct Worker {
    ran: Arc<AtomicU64>,
    stop: oneshot::Sender<()>,
    running: tokio::task::JoinHandle<Result<(), leasehold::WorkerError>>,
}

impl Worker {
    fn start(engine: &Leasehold, slots: usize, takes: Duration) -> Self {
        let ran = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&ran);
        let worker = engine
            .worker()
            .name("bench")
            .queue("bench", slots)
            .without_housekeeping()
            .handle_untyped("limited", move |_| {
                count.fetch_add(1, Ordering::Relaxed);
                async move {
                    if !takes.is_zero() {
                        tokio::time::sleep(takes).await;
                    }
                    Outcome::Complete
                }
            });
        let (stop, stopped) = oneshot::channel::<()>();
        let running = tokio::spawn(worker.run_until(async move { drop(stopped.await) }));
        Self { ran, stop, running }
    }

    fn ran(&self) -> u64 {
        self.ran.load(Ordering::Relaxed)
    }

    async fn until(&self, count: u64) -> Result<()> {
        while self.ran() < count {
            ensure!(!self.running.is_finished(), "the worker ended early");
            tokio::time::sleep(Duration::from_micros(200)).await;
        }
        Ok(())
    }

    async fn stop(self) -> Result<()> {
        drop(self.stop);
        self.running.await?.context("the worker failed")
    }
}

/// Empties the tables of jobs and of limit keys.
async fn empty(session: &Session) -> Result<()> {
    session
        .batch_execute(
            "truncate leasehold.job, leasehold_internal.lease, leasehold_internal.history, \
             leasehold_internal.limit_key, leasehold_internal.limit_signal",
        )
        .await?;
    Ok(())
}

/// Stores jobs: without a key if `keys` is null, else spread over `keys` keys `PREFIX:n`, each with a signal.
async fn store(session: &Session, jobs: u64, prefix: &str, keys: Option<u64>) -> Result<()> {
    let key = keys.map_or("null".to_owned(), |keys| format!("'{prefix}:' || i % {keys}"));
    session
        .batch_execute(&format!(
            "insert into leasehold.job (queue, name, limit_key, scheduled_at) \
             select 'bench', 'limited', {key}, now() - interval '1 hour' + i * interval '1 microsecond' \
               from generate_series(1, {jobs}::bigint) i; \
             insert into leasehold_internal.limit_signal (due_at, queue, key) \
             select now(), 'bench', k.key from (select distinct {key} as key from generate_series(1, {jobs}::bigint) i) k \
              where k.key is not null"
        ))
        .await?;
    Ok(())
}

async fn settle(session: &Session) -> Result<()> {
    session.batch_execute("vacuum analyze leasehold.job").await?;
    session.batch_execute("vacuum analyze leasehold_internal.limit_key").await?;
    session.batch_execute("vacuum analyze leasehold_internal.limit_signal").await?;
    checkpoint(session).await
}

/// Drains jobs. Returns the jobs per second.
async fn drain(
    session: &Session,
    engine: &Leasehold,
    args: &Args,
    keys: Option<u64>,
    limit: i32,
) -> Result<f64> {
    empty(session).await?;
    engine
        .limits()
        .set("bench", &Limit::new("tenant").max_running(limit), &By::new("bench"))
        .await?;
    store(session, args.jobs, "tenant", keys).await?;
    settle(session).await?;
    let began = Instant::now();
    let worker = Worker::start(engine, args.slots, Duration::ZERO);
    worker.until(args.jobs).await?;
    ours::drained(session).await?;
    let rate = args.jobs as f64 / began.elapsed().as_secs_f64();
    worker.stop().await?;
    Ok(rate)
}

/// Returns how long a job of a fresh key waits for its start while other keys are at their limit, in ms.
async fn fresh(session: &Session, engine: &Leasehold, args: &Args) -> Result<Vec<f64>> {
    empty(session).await?;
    engine.limits().set("bench", &Limit::new("tenant").max_running(1), &By::new("bench")).await?;
    store(session, args.full_keys * 3, "tenant", Some(args.full_keys)).await?;
    settle(session).await?;
    // One job of each key runs, by a worker that never ends it.
    loop {
        let sql = "select count(*) from leasehold_internal.claim_limited('busy', 'bench', 10000, '1 hour', null, null)";
        let claimed: i64 =
            session.query_typed(sql, &[]).await?.first().context("no answer")?.get(0);
        if claimed == 0 {
            break;
        }
    }
    let waiting = "select count(*) from leasehold.job where permit";
    let full: i64 = session.query_typed(waiting, &[]).await?.first().context("no answer")?.get(0);
    ensure!(full.unsigned_abs() == args.full_keys, "{full} keys are at their limit");
    settle(session).await?;
    let worker = Worker::start(engine, 10, Duration::ZERO);
    let mut waits = Vec::new();
    for n in 0..50 {
        // The worker is idle: it has looked at everything before.
        tokio::time::sleep(Duration::from_millis(if n == 0 { 2000 } else { 120 })).await;
        let before = worker.ran();
        let draft = Draft::untyped("limited", &serde_json::json!({}))?;
        draft.queue("bench").limit_key(format!("tenant:fresh-{n}")).enqueue(engine).await?;
        let began = Instant::now();
        worker.until(before + 1).await?;
        waits.push(began.elapsed().as_secs_f64() * 1000.0);
    }
    worker.stop().await?;
    Ok(waits)
}

/// Returns the jobs per second of one key with limit 1, worked by several processes.
async fn hot(
    server: &BenchServer,
    session: &Session,
    engine: &Leasehold,
    args: &Args,
) -> Result<f64> {
    empty(session).await?;
    engine.limits().set("bench", &Limit::new("hot").max_running(1), &By::new("bench")).await?;
    let workers =
        (0..args.processes).map(|_| start(&server.url, 10, None)).collect::<Result<Vec<_>>>()?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    store(session, args.hot, "hot", Some(1)).await?;
    let began = Instant::now();
    session.batch_execute("select leasehold_internal.wake('bench')").await?;
    ours::drained(session).await?;
    let rate = args.hot as f64 / began.elapsed().as_secs_f64();
    for mut worker in workers {
        // It stops when its standard input ends.
        drop(worker.stdin.take());
        worker.wait().await?;
    }
    Ok(rate)
}

/// Returns the median time of claims, of jobs without a key and of other keys, beside a blocked key.
async fn parked(session: &Session, engine: &Leasehold, jobs: u64) -> Result<(f64, f64)> {
    empty(session).await?;
    engine.limits().set("bench", &Limit::new("tenant").max_running(1), &By::new("bench")).await?;
    if jobs > 0 {
        store(session, jobs, "tenant", Some(1)).await?;
        claim(session, "claim_limited('w', 'bench', 50, null, null, null)").await?;
    }
    engine.limits().set("bench", &Limit::new("other").max_running(5), &By::new("bench")).await?;
    store(session, 20_000, "", None).await?;
    store(session, 20_000, "other", Some(10_000)).await?;
    settle(session).await?;
    let (mut plain, mut keyed) = (Vec::new(), Vec::new());
    for _ in 0..100 {
        plain.push(
            claim(
                session,
                "claim_next('w', 'bench', 50, null, null, null, null, false, -2147483648, true, 2147483647, \
                 true, '{}', '{}', '{}', '{}')",
            )
            .await?,
        );
        keyed.push(claim(session, "claim_limited('w', 'bench', 50, null, null, null)").await?);
    }
    Ok((median(plain), median(keyed)))
}

async fn claim(session: &Session, call: &str) -> Result<f64> {
    let began = Instant::now();
    let sql = format!("select count(*) from leasehold_internal.{call}");
    let rows = session.query_typed(&sql, &[]).await?;
    let took = began.elapsed().as_secs_f64() * 1000.0;
    ensure!(rows.first().is_some_and(|row| row.get::<_, i64>(0) > 0), "a claim took no job");
    Ok(took)
}

/// Returns the waits of small tenants behind a large one, in ms, in order.
async fn fair(session: &Session, engine: &Leasehold, args: &Args) -> Result<Vec<f64>> {
    empty(session).await?;
    store(session, args.parked, "large", Some(1)).await?;
    settle(session).await?;
    let workers: Vec<_> =
        (0..4).map(|_| Worker::start(engine, 4, Duration::from_millis(1))).collect();
    tokio::time::sleep(Duration::from_secs(2)).await;
    for _ in 0..10 {
        let sql = "select count(e.job_id) from generate_series(1, 100) as t (n) cross join lateral \
                   leasehold.enqueue('limited', jsonb_build_object('n', t.n), 'bench', tag => 'small', \
                                     limit_key => 'small:' || t.n) e";
        session.query_typed(sql, &[]).await?;
    }
    let sql = "select extract(epoch from h.claimed_at - j.enqueued_at)::float8 * 1000 \
                 from leasehold_internal.history h \
                cross join lateral unnest(h.tags, h.enqueued_at) as j (tag, enqueued_at) \
                where j.tag = 'small' order by 1";
    let began = Instant::now();
    loop {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let waits: Vec<f64> =
            session.query_typed(sql, &[]).await?.iter().map(|row| row.get(0)).collect();
        if waits.len() == 1000 {
            let gone = session
                .query_typed(
                    "select count(*) from leasehold.job where limit_key = $1",
                    &[(&"large:0", Type::TEXT)],
                )
                .await?;
            ensure!(
                gone.first().is_some_and(|row| row.get::<_, i64>(0) > 0),
                "the large tenant had too few jobs"
            );
            for worker in workers {
                worker.stop().await?;
            }
            return Ok(waits);
        }
        ensure!(
            began.elapsed() < Duration::from_secs(120),
            "{} of 1000 small jobs ran",
            waits.len()
        );
    }
}

fn percentile(sorted: &[f64], share: f64) -> f64 {
    let at = ((sorted.len() as f64 * share) as usize).min(sorted.len().saturating_sub(1));
    sorted.get(at).copied().unwrap_or(f64::NAN)
}

pub async fn run(server: &BenchServer, args: &Args) -> Result<Report> {
    let session = server.session().await?;
    Queues::on(&session)
        .set("bench", &QueueChange::new().keep_history(true), &By::new("bench"))
        .await?;
    let engine = Leasehold::connect(&server.url).await?;
    let shapes = [
        (None, 50, "without_key"),
        (Some(1), 50, "1_key"),
        (Some(100), 5, "100_keys"),
        (Some(10_000), 5, "10000_keys"),
    ];
    let mut rates: [Vec<f64>; 4] = Default::default();
    let mut fresh_waits = Vec::new();
    let mut hot_rates = Vec::new();
    let (mut blocked, mut clear) = ([vec![], vec![]], [vec![], vec![]]);
    let mut fair_p99 = Vec::new();
    let bar = progress("limits", args.rounds);
    for round in 0..args.rounds {
        for (at, (keys, limit, _)) in shapes.iter().enumerate() {
            rates[at].push(drain(&session, &engine, args, *keys, *limit).await?);
        }
        hot_rates.push(hot(server, &session, &engine, args).await?);
        for (jobs, figures) in [(0, &mut clear), (args.parked, &mut blocked)] {
            let (plain, keyed) = parked(&session, &engine, jobs).await?;
            figures[0].push(plain);
            figures[1].push(keyed);
        }
        fair_p99.push(percentile(&fair(&session, &engine, args).await?, 0.99));
        bar.set_position(round + 1);
    }
    // Once: a hundred thousand leases and permits take a while.
    fresh_waits.extend(fresh(&session, &engine, args).await?);
    fresh_waits.sort_by(f64::total_cmp);
    bar.finish_and_clear();
    let plain_rate = median(rates[0].clone());
    let mut report = Report::plain("limits");
    report.set("jobs", args.jobs.into()).set("rounds", args.rounds.into());
    report.line(format!("limits, {} jobs, {} rounds, durable", args.jobs, args.rounds));
    for ((_, limit, name), rates) in shapes.iter().zip(rates) {
        let rate = median(rates);
        report
            .number(&format!("throughput_{name}"), rate)
            .number(&format!("ratio_{name}"), rate / plain_rate)
            .line(format!(
                "  {name:14}  {} jobs/s, limit {limit}, {:.2} of those without",
                whole(rate),
                rate / plain_rate
            ));
    }
    let (p50, worst) = (percentile(&fresh_waits, 0.5), percentile(&fresh_waits, 1.0));
    let hot_rate = median(hot_rates);
    let [blocked_plain, blocked_keyed] = blocked.map(median);
    let [clear_plain, clear_keyed] = clear.map(median);
    let fairness = median(fair_p99);
    report
        .set("full_keys", args.full_keys.into())
        .number("fresh_key_ms", p50)
        .number("fresh_key_worst_ms", worst)
        .line(format!("  fresh key       starts after {p50:.1} ms, at worst {worst:.1}, beside {} full keys", args.full_keys))
        .set("processes", args.processes.into())
        .number("hot_key_throughput", hot_rate)
        .line(format!("  hot key         {} jobs/s with limit 1, {} processes", whole(hot_rate), args.processes))
        .set("parked", args.parked.into())
        .number("parked_ratio", blocked_plain / clear_plain)
        .number("parked_keyed_ratio", blocked_keyed / clear_keyed)
        .line(format!(
            "  blocked key     claims of others {:.2}, of other keys {:.2} times as long beside {} parked jobs",
            blocked_plain / clear_plain,
            blocked_keyed / clear_keyed,
            args.parked
        ))
        .number("fairness_p99_ms", fairness)
        .line(format!("  fairness        small tenants wait {fairness:.0} ms at the 99th percentile"));
    Ok(report)
}
