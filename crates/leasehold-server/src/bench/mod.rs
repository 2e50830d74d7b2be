//! `leasehold bench`: figures of the engine on a database next to the raw SQL limit of the same work,
//! in the same run. For users who size their own database.
//!
//! Machines differ and are noisy: compare the ratio, not the number. Durable settings only; each
//! benchmark ends by checking that every job ran exactly once.
//!
//! The executable `leasehold-bench` measures more, with this module: the other benchmarks need servers
//! and loads that the product does not contain.

pub mod drain;
pub mod enqueue;
pub mod latency;
pub mod ledger;
pub mod ours;
pub mod raw;
pub mod report;
pub mod server;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::cli::Common as Global;
use crate::exit::{Code, Failure};
use crate::run::Signals;
use report::Report;
use server::BenchServer;

/// Measure the engine on a database, compared with bare SQL
#[derive(Debug, Parser)]
#[command(
    after_help = "Examples:\n  leasehold bench drain --jobs 100000\n  leasehold bench latency --json\n\n\
    Without DATABASE_URL a private PostgreSQL is started for the run, durable settings on. \
    Otherwise the run creates a database on that server and drops it at the end."
)]
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
    Latency(Common),
}

#[derive(Clone, Debug, clap::Args)]
pub struct Common {
    /// Run this many jobs
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(100..=100_000_000))]
    pub jobs: u64,
    /// Keep finished jobs in history, as queues do by default
    #[arg(long)]
    pub history: bool,
    /// Give the worker this many slots
    #[arg(long, default_value_t = 2000)]
    pub slots: usize,
}

/// Runs a benchmark on the server that the options name, or on a private one.
pub async fn run(args: Args, global: &Global) -> Result<ExitCode, Failure> {
    let url = database_url(global);
    let url = url.as_deref();
    let measuring = async {
        Ok(match args.what {
            What::Enqueue(common) => {
                on_server(url, async |at| enqueue::run(at, &common).await).await?
            }
            What::Drain(common) => on_server(url, async |at| drain::run(at, &common).await).await?,
            What::Latency(common) => {
                on_server(url, async |at| latency::from_engine(at, &common).await).await?
            }
        })
    };
    report_on(measuring, global).await
}

/// Returns the server that the options or the environment name.
pub fn database_url(global: &Global) -> Option<String> {
    global.database_url.clone().or_else(|| std::env::var("DATABASE_URL").ok())
}

/// Runs a benchmark to its end or to a signal, and prints its report.
pub async fn report_on(
    measuring: impl Future<Output = Result<Report, Failure>>,
    global: &Global,
) -> Result<ExitCode, Failure> {
    // A signal drops the run, which still cleans up: some runs would leave millions of files.
    let mut signals = Signals::catch()?;
    let report = tokio::select! {
        report = measuring => report?,
        () = signals.next() => return Err(Failure::new(Code::Interrupted, "stopped by a signal")),
    };
    report.print(!global.out().is_table())?;
    match report.wrong() {
        Some(why) => Err(Failure::failed(why)),
        None => Ok(ExitCode::SUCCESS),
    }
}

/// Runs a benchmark. A server that is not private gets its space back even if the run fails.
pub async fn on_server(
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
