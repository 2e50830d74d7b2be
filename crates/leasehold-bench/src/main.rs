//! The executable `leasehold-bench`: figures of the engine and the services next to the raw SQL limit, or
//! to other services, in the same run.
//!
//! Machines differ and are noisy: compare the ratio, not the number. Durable settings only; each
//! benchmark ends by checking its work, such as that every job ran exactly once.
//!
//! In reading order: this file has the command line; [`claim`], [`flow`], [`keys`], [`latency`],
//! [`producers`] and [`workers`] measure the engine, [`mod@pastes`] and [`sweep`] the paste service, [`mirror`] the
//! search index; [`load`] generates requests. `leasehold_server::bench` has what the product's own
//! `leasehold bench` shares: the database, the report, the raw SQL limit, `drain` and `enqueue`.

#![forbid(unsafe_code)]

mod claim;
mod flow;
mod keys;
mod latency;
mod load;
mod mirror;
mod pastes;
mod producers;
mod scratch;
mod sweep;
mod workers;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use leasehold_server::bench::report::Report;
use leasehold_server::bench::{self, Common, drain, enqueue, on_server};
use leasehold_server::{Common as Global, Failure, ServeArgs};

/// Measure the engine and the services, compared with bare SQL and other services
#[derive(Parser)]
#[command(name = "leasehold-bench", version, after_help = format!("{HELP}{}", leasehold_server::EXIT_CODES), subcommand_required = true, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    what: What,
    #[command(flatten)]
    global: Global,
}

const HELP: &str = "\
Examples:
  leasehold-bench drain --jobs 100000
  leasehold-bench flow --jobs 1000000 --old-snapshot --json

Without DATABASE_URL a private PostgreSQL is started for the run, durable settings on.

";

#[derive(Subcommand)]
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
    /// Drain a queue with one process, with several, and with many names, compared to a loop without a worker
    Workers(workers::Args),
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
    /// Serve S3 for `leasehold-bench sweep --store s3`
    #[command(hide = true)]
    S3Server(sweep::ServerArgs),
    /// Run one worker of `leasehold-bench workers`
    #[command(hide = true)]
    WorkerProcess(workers::ProcessArgs),
    /// Run `leasehold serve` for `leasehold-bench pastes`, so that it measures the code of this build
    #[command(hide = true)]
    Serve(Box<ServeArgs>),
}

#[tokio::main]
async fn main() -> ExitCode {
    let Cli { what, global } = Cli::parse();
    leasehold_server::conclude(run(what, &global).await, &global)
}

async fn run(what: What, global: &Global) -> Result<ExitCode, Failure> {
    match what {
        What::Serve(args) => leasehold_server::serve(*args, global).await,
        What::WorkerProcess(args) => {
            leasehold_server::init_tracing();
            let url = bench::database_url(global);
            workers::worker_process(&args, url.as_deref()).await?;
            Ok(ExitCode::SUCCESS)
        }
        What::S3Server(args) => {
            tokio::task::spawn_blocking(move || sweep::serve(&args))
                .await
                .map_err(Failure::failed)??;
            Ok(ExitCode::SUCCESS)
        }
        what => {
            leasehold_server::init_tracing();
            let url = bench::database_url(global);
            bench::report_on(measure(what, url.as_deref()), global).await
        }
    }
}

async fn measure(what: What, url: Option<&str>) -> Result<Report, Failure> {
    Ok(match what {
        What::Enqueue(common) => on_server(url, async |at| enqueue::run(at, &common).await).await?,
        What::Drain(common) => on_server(url, async |at| drain::run(at, &common).await).await?,
        What::Latency(args) => on_server(url, async |at| latency::run(at, &args).await).await?,
        What::Producers(args) => on_server(url, async |at| producers::run(at, &args).await).await?,
        What::Flow { common, old_snapshot } => {
            on_server(url, async |at| flow::run(at, &common, old_snapshot).await).await?
        }
        What::Lanes(args) => on_server(url, async |at| claim::lanes::run(at, &args).await).await?,
        What::Workers(args) => on_server(url, async |at| workers::run(at, &args).await).await?,
        What::Lost(args) => on_server(url, async |at| claim::lost::run(at, &args).await).await?,
        What::Idle(args) => on_server(url, async |at| claim::idle::run(at, &args).await).await?,
        What::Keys(args) => on_server(url, async |at| keys::run(at, &args).await).await?,
        What::Mirror(args) => on_server(url, async |at| mirror::run(at, &args).await).await?,
        What::Pastes(args) => pastes::run(&args, url).await?,
        What::Sweep(args) => on_server(url, async |at| sweep::run(at, &args).await).await?,
        What::S3Server(_) | What::Serve(_) | What::WorkerProcess(_) => {
            return Err(Failure::usage("this command is a server and measures nothing"));
        }
    })
}
