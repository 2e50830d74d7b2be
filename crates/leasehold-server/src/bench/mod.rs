//! `leasehold bench`: figures of the engine next to the raw SQL limit of the same work, in the same run.
//!
//! Machines differ and are noisy: compare the ratio, not the number. Durable settings only; each
//! benchmark ends by checking that every job ran exactly once.

mod claim;
mod drain;
mod enqueue;
mod flow;
mod keys;
mod latency;
mod ledger;
mod load;
mod mirror;
mod ours;
mod pastes;
mod producers;
mod raw;
mod report;
mod scratch;
mod server;
mod sweep;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::cli::Common as Global;
use crate::exit::{Code, Failure};
use crate::run::Signals;
use report::Report;
use server::BenchServer;

/// Measure the engine beside bare SQL on this machine
#[derive(Debug, Parser)]
#[command(after_help = "Examples:\n  leasehold bench drain --jobs 100000\n  \
    leasehold bench flow --jobs 1000000 --old-snapshot --json\n\n\
    Without DATABASE_URL a private PostgreSQL is started for the run, durable settings on.")]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Measure jobs stored per second: one by one, and in bulk compared to bare COPY
    Enqueue(Common),
    /// Measure jobs drained per second from a full queue
    Drain(Common),
    /// Measure the time from the commit of a job to the start of its handler on an idle worker
    Latency(latency::Args),
    /// Measure what the wake-up of workers costs producers, by their number
    Producers(producers::Args),
    /// Enqueue and drain at the same time
    Flow {
        #[command(flatten)]
        common: Common,
        /// Hold an old snapshot open meanwhile, so that vacuum can remove nothing
        #[arg(long)]
        old_snapshot: bool,
    },
    /// Claim from a queue with many names and priorities, compared to one with one of each
    Lanes(claim::lanes::Args),
    /// Drain jobs that lost their worker, compared to as many fresh ones
    Lost(claim::lost::Args),
    /// Measure what an idle worker costs the server while vacuum is held back
    Idle(claim::idle::Args),
    /// Enqueue with idempotency keys for minutes, and check that the table of keys stops growing
    Keys(keys::Args),
    /// Fill an empty search index until it equals the table, repair planted differences, survive an
    /// outage
    Mirror(mirror::Args),
    /// Compare the paste service with other paste services: creates, raw reads, page reads
    Pastes(pastes::Args),
    /// Measure expired pastes deleted per second, with their objects, while new ones are created
    Sweep(sweep::Args),
    /// Serve S3 for `bench sweep --store s3`
    #[command(hide = true)]
    S3Server(sweep::ServerArgs),
}

#[derive(Clone, Debug, clap::Args)]
pub struct Common {
    /// Number of jobs
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(100..=100_000_000))]
    jobs: u64,
    /// Keep finished jobs in history, as queues do by default
    #[arg(long)]
    history: bool,
    /// Slots of the worker
    #[arg(long, default_value_t = 2000)]
    slots: usize,
}

/// Runs a benchmark on the server that the options name, or on a private one.
pub async fn run(args: Args, global: &Global) -> Result<ExitCode, Failure> {
    let url = global.database_url.clone().or_else(|| std::env::var("DATABASE_URL").ok());
    // A signal drops the run, which still cleans up: some runs would leave millions of files.
    let mut signals = Signals::catch()?;
    let report = tokio::select! {
        report = measure(args.what, url.as_deref()) => report?,
        () = signals.next() => return Err(Failure::new(Code::Interrupted, "stopped by a signal")),
    };
    let Some(report) = report else {
        return Ok(ExitCode::SUCCESS);
    };
    report.print(!global.out().is_table())?;
    match report.wrong() {
        Some(why) => Err(Failure::failed(why)),
        None => Ok(ExitCode::SUCCESS),
    }
}

/// Runs one benchmark; the S3 server has nothing to report.
async fn measure(what: What, url: Option<&str>) -> Result<Option<Report>, Failure> {
    let report = match what {
        What::Enqueue(common) => on_server(url, async |at| enqueue::run(at, &common).await).await?,
        What::Drain(common) => on_server(url, async |at| drain::run(at, &common).await).await?,
        What::Latency(args) => on_server(url, async |at| latency::run(at, &args).await).await?,
        What::Producers(args) => on_server(url, async |at| producers::run(at, &args).await).await?,
        What::Flow { common, old_snapshot } => {
            on_server(url, async |at| flow::run(at, &common, old_snapshot).await).await?
        }
        What::Lanes(args) => on_server(url, async |at| claim::lanes::run(at, &args).await).await?,
        What::Lost(args) => on_server(url, async |at| claim::lost::run(at, &args).await).await?,
        What::Idle(args) => on_server(url, async |at| claim::idle::run(at, &args).await).await?,
        What::Keys(args) => on_server(url, async |at| keys::run(at, &args).await).await?,
        What::Mirror(args) => on_server(url, async |at| mirror::run(at, &args).await).await?,
        What::Pastes(args) => pastes::run(&args, url).await?,
        What::Sweep(args) => on_server(url, async |at| sweep::run(at, &args).await).await?,
        What::S3Server(args) => {
            tokio::task::spawn_blocking(move || sweep::serve(&args))
                .await
                .map_err(Failure::failed)??;
            return Ok(None);
        }
    };
    Ok(Some(report))
}

/// Runs a benchmark. A server that is not private gets its space back even if the run fails.
async fn on_server(
    url: Option<&str>,
    bench: impl AsyncFnOnce(&BenchServer) -> anyhow::Result<Report>,
) -> anyhow::Result<Report> {
    let server = BenchServer::start(url).await?;
    let report = bench(&server).await;
    let cleaned = server.finish().await;
    let report = report?;
    cleaned?;
    Ok(report)
}
