//! `leasehold-bench lanes`: claims from a queue with many names and priorities, compared to one
//! with one of each.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::{Context, Result};
use leasehold::Leasehold;
use leasehold::database::Session;
use tokio_postgres::types::Type;

use super::{Backlog, drain, median};
use leasehold_server::bench::ours;
use leasehold_server::bench::report::{Report, whole};
use leasehold_server::bench::server::{BenchServer, WalMeter};
use leasehold_server::progress;

/// Claims of this many jobs, one after the other.
const CLAIM: i32 = 1000;
const CLAIMS: u64 = 5;
/// Claims of this many jobs, from several sessions at once.
const SHARED_CLAIM: i32 = 100;
/// How many jobs they claim in all. Without cursors each claim reads past those that are claimed already:
/// beyond this number the run would mostly measure that.
const SHARED_JOBS: u64 = 20_000;
const ROUNDS: u64 = 3;

#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Number of names
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    names: u32,
    /// Number of priorities
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    priorities: u32,
    /// Number of sessions that claim at the same time
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    claimers: u32,
    /// Number of waiting jobs
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(10_000..=10_000_000))]
    jobs: u64,
    /// Slots of the worker
    #[arg(long, default_value_t = 2000)]
    slots: usize,
}

pub async fn run(server: &BenchServer, args: &Args) -> Result<Report> {
    let session = server.session().await?;
    ours::set_up(&session, true).await?;
    let engine = Leasehold::connect(&server.url).await?;
    let plain = Backlog { jobs: args.jobs, names: 1, priorities: 1, lost: false };
    let mixed = Backlog { names: args.names, priorities: args.priorities, ..plain };
    let (mut ms, mut wal, mut rates) = ([vec![], vec![]], [vec![], vec![]], [vec![], vec![]]);
    let mut empty_claims = 0;
    let bar = progress("claiming", ROUNDS);
    for round in 0..ROUNDS {
        for (which, backlog) in [plain, mixed].into_iter().enumerate() {
            backlog.store(&session).await?;
            for _ in 0..CLAIMS {
                let meter = WalMeter::start(&session).await?;
                let began = Instant::now();
                let took = claim(&session, &backlog.names(), CLAIM).await?;
                ms[which].push(began.elapsed().as_secs_f64() * 1000.0);
                anyhow::ensure!(took == CLAIM as u64, "a claim took {took} jobs of a full queue");
                wal[which].push(meter.bytes(&session).await?);
            }
            rates[which].push(drain(&session, &engine, backlog, args.slots).await?);
        }
        mixed.store(&session).await?;
        empty_claims += claim_together(server, mixed, args.claimers).await?;
        bar.set_position(round + 1);
    }
    bar.finish_and_clear();
    let [plain_ms, mixed_ms] = ms.map(median);
    let [plain_wal, mixed_wal] = wal.map(median);
    let [plain_rate, mixed_rate] = rates.map(median);
    let mut report = Report::plain("lanes");
    report
        .set("names", args.names.into())
        .set("priorities", args.priorities.into())
        .set("claimers", args.claimers.into())
        .set("jobs", args.jobs.into())
        .number("ms", mixed_ms)
        .number("limit_ms", plain_ms)
        .number("ms_ratio", mixed_ms / plain_ms)
        .number("wal_bytes", mixed_wal)
        .number("limit_wal_bytes", plain_wal)
        .number("wal_ratio", mixed_wal / plain_wal)
        .number("throughput", mixed_rate)
        .number("limit_throughput", plain_rate)
        .number("throughput_ratio", mixed_rate / plain_rate)
        .set("empty_claims", empty_claims.into())
        .line(format!(
            "lanes, {} jobs of {} names and {} priorities beside one of each, durable",
            args.jobs, args.names, args.priorities
        ))
        .line(format!(
            "  claim of {CLAIM}   {mixed_ms:.1} ms, {} B of WAL ({:.2} and {:.2} of the plain queue)",
            whole(mixed_wal),
            mixed_ms / plain_ms,
            mixed_wal / plain_wal
        ))
        .line(format!(
            "  worked off      {} jobs/s ({:.2} of the plain queue)",
            whole(mixed_rate),
            mixed_rate / plain_rate
        ))
        .line(format!(
            "  {} claimers      {empty_claims} empty claims while jobs were due",
            args.claimers
        ));
    Ok(report)
}

/// Claims once, like a worker that knows all names and has no cursors.
async fn claim(session: &Session, names: &[String], up_to: i32) -> Result<u64> {
    let rows = session
        .query_typed(
            "select count(*) from leasehold_internal.claim_next('bench', 'bench', $1, null, null, $2, null, \
             false, -2147483648, true, 2147483647, true, '{}', '{}', '{}', '{}')",
            &[(&up_to, Type::INT4), (&names, Type::TEXT_ARRAY)],
        )
        .await?;
    let count: i64 = rows.first().context("the statement returned no row")?.get(0);
    Ok(u64::try_from(count)?)
}

/// Claims from several sessions at once while enough jobs are due for each of them. Returns the number
/// of claims that came back empty.
async fn claim_together(server: &BenchServer, backlog: Backlog, claimers: u32) -> Result<u64> {
    let enough = SHARED_JOBS.min(backlog.jobs - u64::from(claimers) * SHARED_CLAIM as u64);
    let claimed = Arc::new(AtomicU64::new(0));
    let mut tasks = Vec::new();
    for _ in 0..claimers {
        let session = server.session().await?;
        let (claimed, names) = (Arc::clone(&claimed), backlog.names());
        tasks.push(tokio::spawn(async move {
            let mut empty = 0;
            while claimed.load(Ordering::Relaxed) < enough {
                let took = claim(&session, &names, SHARED_CLAIM).await?;
                claimed.fetch_add(took, Ordering::Relaxed);
                empty += u64::from(took == 0 && claimed.load(Ordering::Relaxed) < enough);
            }
            Ok::<u64, anyhow::Error>(empty)
        }));
    }
    let mut empty = 0;
    for task in tasks {
        empty += task.await??;
    }
    Ok(empty)
}
