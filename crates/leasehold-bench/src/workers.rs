//! `leasehold-bench workers`: a full queue drained by one process, by several, and with many names, beside a loop
//! of the same storage without a worker.
//!
//! In each round the four take turns on the same backlog, so that a slow moment of the machine hits all of them.
//! Every duration is the server's: from the first claim to the last recorded end.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use leasehold::Leasehold;
use leasehold::database::{Database, Session};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};

use super::claim::{Backlog, Counting, median};
use leasehold_server::bench::ours;
use leasehold_server::bench::report::{Report, whole};
use leasehold_server::bench::server::BenchServer;
use leasehold_server::progress;

/// Jobs of one claim of the bare loop: as many as a queue claims by default.
const CLAIM: i32 = 1000;
/// Sessions of the bare loop. While one waits for the server, the other keeps it busy.
const SESSIONS: usize = 2;
/// How often the other processes look for the end of the pause.
const POLL: Duration = Duration::from_millis(5);

#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Number of waiting jobs
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1_000..=10_000_000))]
    jobs: u64,
    /// Slots of each worker
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    slots: u64,
    /// Number of worker processes on one queue
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(2..=64))]
    processes: u32,
    /// Number of names in the queue that has many
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    names: u32,
    /// Number of priorities in the queue that has many names
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    priorities: u32,
    /// Measure this often, and report the medians
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
}

/// Options of a worker process.
#[derive(Debug, clap::Args)]
pub struct ProcessArgs {
    /// Slots of the worker
    #[arg(long)]
    slots: u64,
    /// Number of names
    #[arg(long)]
    names: u32,
}

pub async fn run(server: &BenchServer, args: &Args) -> Result<Report> {
    let session = server.session().await?;
    ours::set_up(&session, true).await?;
    let engine = Leasehold::connect(&server.url).await?;
    let plain = Backlog { jobs: args.jobs, names: 1, priorities: 1, lost: false };
    let mixed = Backlog { names: args.names, priorities: args.priorities, ..plain };
    let slots = usize::try_from(args.slots)?;
    let mut rates: [Vec<f64>; 4] = Default::default();
    let bar = progress("draining", u64::from(args.rounds));
    for round in 0..args.rounds {
        plain.store(&session).await?;
        bare(server).await?;
        rates[0].push(rate(&session, args.jobs).await?);

        rates[1].push(one_process(&session, &engine, plain, slots).await?);
        rates[2].push(processes(server, &session, plain, args).await?);
        rates[3].push(one_process(&session, &engine, mixed, slots).await?);
        bar.set_position(u64::from(round) + 1);
    }
    bar.finish_and_clear();
    let [limit, one, many, mixed] = rates.map(median);
    let mut report = Report::new("workers", args.jobs, "jobs/s", one, limit);
    report
        .set("rounds", args.rounds.into())
        .set("slots", args.slots.into())
        .set("processes", args.processes.into())
        .set("names", args.names.into())
        .set("priorities", args.priorities.into())
        .number("processes_throughput", many)
        .number("processes_ratio", many / one)
        .number("names_throughput", mixed)
        .number("names_ratio", mixed / one)
        .set("ran_exactly_once", true.into())
        .line(format!(
            "  the limit is a loop of the same functions on {SESSIONS} sessions, without a worker"
        ))
        .line(format!(
            "  {} processes     {} jobs/s ({:.2} of one)",
            args.processes,
            whole(many),
            many / one
        ))
        .line(format!(
            "  {} names × {} priorities  {} jobs/s ({:.2} of one name)",
            args.names,
            args.priorities,
            whole(mixed),
            mixed / one
        ))
        .line("  every job ran exactly once".to_owned());
    Ok(report)
}

/// Claims and completes on two sessions until nothing is left.
async fn bare(server: &BenchServer) -> Result<()> {
    let mut loops = Vec::new();
    for _ in 0..SESSIONS {
        let session = server.session().await?;
        loops.push(tokio::spawn(async move { bare_loop(&session).await }));
    }
    for one in loops {
        one.await??;
    }
    Ok(())
}

async fn bare_loop(session: &Session) -> Result<()> {
    // Reads on from the cursor of the only priority; without one, from the start.
    let claim = session
        .prepare(
            "select c.* from leasehold_internal.claim_next('bare', 'bench', $1::int, null, null, '{n0}', null, \
             false, -2147483648, true, 2147483647, $2::bool, $3::bool[], $4::int[], $5::timestamptz[], $6::bigint[]) c",
        )
        .await?;
    let complete =
        session.prepare("select array_agg(done) from leasehold.complete_many($1, $2) done").await?;
    let mut after: Option<(jiff::Timestamp, i64)> = None;
    loop {
        let (at, id): (Vec<_>, Vec<_>) = after.into_iter().unzip();
        let (deferred, priorities) = (vec![false; at.len()], vec![0_i32; at.len()]);
        let gaps = after.is_none();
        let rows =
            session.query(&claim, &[&CLAIM, &gaps, &deferred, &priorities, &at, &id]).await?;
        let Some(first) = rows.first() else {
            if gaps {
                return Ok(());
            }
            // The other session may have passed jobs that it did not get.
            after = None;
            continue;
        };
        let generation: i64 = first.get("lease_generation");
        let ids: Vec<i64> = rows.iter().map(|row| row.get("id")).collect();
        after = rows.iter().map(|row| (row.get("scheduled_at"), row.get("id"))).max();
        session.query_one(&complete, &[&ids, &generation]).await?;
    }
}

async fn one_process(
    session: &Session,
    engine: &Leasehold,
    backlog: Backlog,
    slots: usize,
) -> Result<f64> {
    backlog.store(session).await?;
    let worker = Counting::start(engine, backlog.names(), slots);
    worker.until(backlog.jobs).await?;
    ours::drained(session).await?;
    ensure!(worker.ran() == backlog.jobs, "{} jobs ran of {}", worker.ran(), backlog.jobs);
    worker.stop().await?;
    rate(session, backlog.jobs).await
}

/// Drains with several processes, which wait for the end of a pause, so that they begin together.
async fn processes(
    server: &BenchServer,
    session: &Session,
    backlog: Backlog,
    args: &Args,
) -> Result<f64> {
    session.batch_execute("select leasehold.pause('bench', 'bench')").await?;
    backlog.store(session).await?;
    let mut workers = Vec::new();
    for _ in 0..args.processes {
        workers.push(Process::start(&server.url, args.slots, backlog.names).await?);
    }
    session.batch_execute("select leasehold.resume('bench', 'bench')").await?;
    ours::drained(session).await?;
    let rate = rate(session, backlog.jobs).await?;
    let mut ran = 0;
    for worker in workers {
        ran += worker.stop().await?;
    }
    ensure!(ran == backlog.jobs, "{ran} handlers ran for {} jobs", backlog.jobs);
    Ok(rate)
}

/// Returns the jobs per second by the server's clock, after every job was completed at its first attempt.
async fn rate(session: &Session, jobs: u64) -> Result<f64> {
    let rows = session
        .query_typed(
            "select extract(epoch from max(h.finished_at) - min(h.claimed_at))::float8, \
                    sum(cardinality(h.job_ids))::bigint, \
                    (select count(distinct j.id) from leasehold_internal.history f, \
                        unnest(f.job_ids, f.attempts) j (id, attempt) where j.attempt = 1) \
               from leasehold_internal.history h where h.outcome = 'completed'",
            &[],
        )
        .await?;
    let row = rows.first().context("no history")?;
    let (completed, once): (i64, i64) = (row.get(1), row.get(2));
    let expected = i64::try_from(jobs)?;
    ensure!(
        completed == expected && once == expected,
        "{completed} jobs of {jobs} were completed, {once} of them once and at their first attempt"
    );
    Ok(jobs as f64 / row.get::<_, f64>(0))
}

/// A worker in a process of its own, which ends with its standard input.
struct Process {
    child: Child,
    output: BufReader<tokio::process::ChildStdout>,
}

impl Process {
    /// Starts a process and waits until it is connected.
    async fn start(url: &str, slots: u64, names: u32) -> Result<Self> {
        let program = std::env::current_exe().context("our own executable is not found")?;
        let mut child = Command::new(program)
            .args(["worker-process", "--database-url", url])
            .args(["--slots", &slots.to_string(), "--names", &names.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let mut output = BufReader::new(child.stdout.take().context("no output")?);
        let mut line = String::new();
        output.read_line(&mut line).await?;
        ensure!(line == "ready\n", "a worker process did not start: {line:?}");
        Ok(Self { child, output })
    }

    /// Stops it. Returns how many handlers it ran.
    async fn stop(mut self) -> Result<u64> {
        drop(self.child.stdin.take());
        let mut line = String::new();
        self.output.read_line(&mut line).await?;
        ensure!(self.child.wait().await?.success(), "a worker process failed");
        line.trim().parse().context("a worker process printed no count")
    }
}

/// Runs a worker until the standard input ends, then prints how many handlers ran.
pub async fn worker_process(args: &ProcessArgs, url: Option<&str>) -> Result<()> {
    let url = url.context("a worker process needs --database-url")?;
    drop(Database::new(url)?.connect().await?);
    let engine = Leasehold::connect(url).await?;
    let names = (0..args.names).map(|n| format!("n{n}")).collect();
    let worker = Counting::start_polling(&engine, names, usize::try_from(args.slots)?, Some(POLL));
    println!("ready");
    tokio::io::stdin().read_to_end(&mut Vec::new()).await?;
    let ran = Arc::clone(&worker.ran);
    worker.stop().await?;
    println!("{}", ran.load(std::sync::atomic::Ordering::Relaxed));
    Ok(())
}
