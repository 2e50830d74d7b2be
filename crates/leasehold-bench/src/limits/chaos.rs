//! `leasehold-bench flow-chaos`: worker processes that are killed, stopped and lose their leases, on keys with
//! limits, rates and an order, and a ledger in the database that is checked afterwards.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use leasehold::admin::{By, QueueChange, Queues};
use leasehold::database::Session;
use tokio_postgres::types::Type;

use super::ledger::{self, Rule};
use super::process::{Dice, signal, start};
use leasehold_server::bench::report::{Report, whole};
use leasehold_server::bench::server::BenchServer;
use leasehold_server::progress;

#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Run this many jobs
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(100..=10_000_000))]
    jobs: u64,
    /// Number of limit keys
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    keys: u64,
    /// Number of worker processes
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=64))]
    processes: u64,
    /// Slots of each process
    #[arg(long, default_value_t = 20)]
    slots: usize,
    /// Number from which all chance follows
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Fail when no job ends for this many seconds
    #[arg(long, default_value_t = 60)]
    stuck: u64,
}

/// A rate of this many starts per second, after this many at once.
const RATE: i32 = 200;
const BURST: i32 = 5;

/// Keys `k3:17` run three jobs, `r2:8` too and have a rate, `o:9` are ordered.
fn key(n: u64) -> String {
    match n % 10 {
        0 | 1 => format!("o:{n}"),
        2 | 3 => format!("r{}:{n}", n % 5 + 1),
        _ => format!("k{}:{n}", n % 5 + 1),
    }
}

fn rule(key: &str) -> Rule {
    let max_running = key.chars().nth(1).and_then(|digit| digit.to_digit(10)).unwrap_or(1) as usize;
    Rule {
        max_running,
        rate: key.starts_with('r').then_some((f64::from(RATE), f64::from(BURST))),
        ordered: key.starts_with('o'),
    }
}

async fn set_up(session: &Session) -> Result<()> {
    let change = QueueChange::new()
        .lease(Duration::from_secs(3))
        .max_attempts(1_000_000)
        .max_lost(30_000)
        .backoff(Duration::from_millis(5), Duration::from_millis(50));
    Queues::on(session).set("bench", &change, &By::new("bench")).await?;
    let mut rules = ledger::triggers(f64::from(BURST) / f64::from(RATE));
    for n in 1..=5 {
        rules.push_str(&format!(
            "; select leasehold.set_limit('bench', 'k{n}', 'bench', {n}); \
             select leasehold.set_limit('bench', 'r{n}', 'bench', {n}, rate => {RATE}, per => '1 second', burst => {BURST})"
        ));
    }
    rules.push_str("; select leasehold.set_limit('bench', 'o', 'bench', ordered => true)");
    session.batch_execute(&rules).await?;
    Ok(())
}

/// Stores the jobs: most by enqueue, some by a plain INSERT, which only the walk finds.
async fn produce(url: String, args: Args) -> Result<()> {
    let database = leasehold::database::Database::new(&url)?;
    let session = database.connect().await?;
    let mut dice = Dice::new(args.seed ^ 0xfeed);
    let mut next: Vec<i32> = vec![0; usize::try_from(args.keys)?];
    let mut left = args.jobs;
    while left > 0 {
        let many = (1 + dice.roll(20)).min(left);
        left -= many;
        let n = dice.roll(args.keys);
        let seq = &mut next[usize::try_from(n)?];
        let key = key(n);
        for _ in 0..many {
            *seq += 1;
        }
        let (first, last) = (*seq - i32::try_from(many)? + 1, *seq);
        // One job per statement where the order counts: the jobs of one statement are due at the same time.
        let sql = if rule(&key).ordered || dice.roll(4) > 0 {
            "select count(e.job_id) from generate_series($2::int, $3) as s (seq) cross join lateral \
             leasehold.enqueue('limited', jsonb_build_object('seq', s.seq), 'bench', limit_key => $1) e"
        } else {
            "insert into leasehold.job (name, queue, kwargs, limit_key) \
             select 'limited', 'bench', jsonb_build_object('seq', s.seq), $1 from generate_series($2::int, $3) as s (seq)"
        };
        session
            .query_typed(sql, &[(&key, Type::TEXT), (&first, Type::INT4), (&last, Type::INT4)])
            .await?;
    }
    Ok(())
}

pub async fn run(server: &BenchServer, args: &Args) -> Result<Report> {
    let session = server.session().await?;
    set_up(&session).await?;
    let began = Instant::now();
    let mut dice = Dice::new(args.seed);
    let mut spawned = 0;
    let mut spawn = || {
        spawned += 1;
        start(&server.url, args.slots, Some(args.seed.wrapping_mul(1000) + spawned))
    };
    let mut workers = (0..args.processes).map(|_| spawn()).collect::<Result<Vec<_>>>()?;
    let producing = tokio::spawn(produce(server.url.clone(), args.clone()));
    let bar = progress("chaos", args.jobs);
    let (mut kills, mut pauses, mut losses) = (0_u64, 0_u64, 0_u64);
    let (mut ended, mut ended_at) = (0, Instant::now());
    loop {
        tokio::time::sleep(Duration::from_millis(100 + dice.roll(300))).await;
        let at = usize::try_from(dice.roll(args.processes))?;
        match dice.roll(6) {
            0 => {
                workers[at].kill().await?;
                workers[at] = spawn()?;
                kills += 1;
            }
            // Long enough that its leases run out.
            1 => {
                signal(&workers[at], "STOP").await?;
                let pause = if dice.roll(3) == 0 { 4000 } else { 300 };
                tokio::time::sleep(Duration::from_millis(pause)).await;
                signal(&workers[at], "CONT").await?;
                pauses += 1;
            }
            2 | 3 => {
                let sql = "update leasehold_internal.lease set lease_expires_at = now() - interval '1 s' \
                            where lease_generation in (select lease_generation from leasehold_internal.lease \
                                where ended_at is null order by random() limit 5 for update skip locked)";
                losses += session.execute_typed(sql, &[]).await?;
            }
            _ => {}
        }
        let gone =
            one(&session, "select count(*) from public.bench_ledger where what = 'gone'").await?;
        if gone != ended {
            (ended, ended_at) = (gone, Instant::now());
        }
        bar.set_position(gone.unsigned_abs());
        let left =
            one(&session, "select count(*) from (select from leasehold.job limit 1) j").await?;
        if producing.is_finished() && left == 0 {
            break;
        }
        if ended_at.elapsed() > Duration::from_secs(args.stuck) {
            bail!("no job has ended for {} s, and some are left: a key is stuck", args.stuck);
        }
    }
    producing.await??;
    bar.finish_and_clear();
    for worker in &mut workers {
        worker.kill().await?;
    }
    let took = began.elapsed().as_secs_f64();
    let broken = ledger::check(&session, rule).await?;
    let gone =
        one(&session, "select count(distinct job_id) from public.bench_ledger where what = 'gone'")
            .await?;
    let mut report = Report::plain("flow-chaos");
    report
        .set("jobs", args.jobs.into())
        .set("keys", args.keys.into())
        .set("processes", args.processes.into())
        .set("seed", args.seed.into())
        .number("seconds", took)
        .set("kills", kills.into())
        .set("pauses", pauses.into())
        .set("lost_leases", losses.into())
        .set("starts", broken.starts.into())
        .set("most_running", broken.most_running.into())
        .set("over_limit", broken.over_limit.into())
        .set("over_rate", broken.over_rate.into())
        .set("out_of_order", broken.out_of_order.into())
        .set("left", (args.jobs - gone.unsigned_abs()).into())
        .line(format!("flow-chaos, {} jobs of {} keys, seed {}", args.jobs, args.keys, args.seed))
        .line(format!(
            "  chaos           {kills} kills, {pauses} pauses, {losses} lost leases in {took:.0} s"
        ))
        .line(format!("  starts          {}", whole(broken.starts as f64)))
        .line(format!("  over a limit    {}", broken.over_limit))
        .line(format!("  over a rate     {}", broken.over_rate))
        .line(format!("  out of order    {}", broken.out_of_order));
    if let Some(first) = broken.first {
        report.fail(first);
    }
    if gone.unsigned_abs() != args.jobs {
        report.fail(format!("{gone} of {} jobs ended", args.jobs));
    }
    Ok(report)
}

async fn one(session: &Session, sql: &str) -> Result<i64> {
    let rows = session.query_typed(sql, &[]).await?;
    Ok(rows.first().map_or(0, |row| row.get(0)))
}
