//! `leasehold-bench pastes`: compares our paste service with others, in one run, with the same load
//! generator.
//!
//! # Invariants
//! - One service runs at a time, in its own process. The services alternate over the rounds, so that
//!   a machine that is slow for a while is slow for all of them.
//! - Creates start on fresh data, reads on a set of pastes that was made for them.
//! - Our durability is on. What the others guarantee differs and is printed next to their figures.
//!
//! # What can go wrong
//! - A peer is not installed: the benchmark names the command that installs it, and exits with
//!   code 3.

mod child;
mod figures;
mod gone;
mod measure;
mod microbin;
mod ours;
mod rustypaste;
mod service;
mod show;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::ValueEnum;

use crate::load::Measured;
use crate::scratch::Scratch;
use figures::Figures;
use leasehold_server::Failure;
use leasehold_server::bench::report::Report;
use leasehold_server::bench::server::BenchServer;
use leasehold_server::progress;
use measure::Plan;
use service::Service;

#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Services to measure, in the order of the first round
    #[arg(long, value_delimiter = ',', default_value = "leasehold,rustypaste,microbin")]
    services: Vec<Which>,
    /// Where bench/pastes/peers has installed the other services
    /// [default: peers in LEASEHOLD_CACHE, or in ~/.cache/leasehold]
    #[arg(long, value_name = "DIR")]
    peers: Option<PathBuf>,
    /// Number of connections of the load generator
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1000))]
    connections: u16,
    /// Bytes per paste
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(32..=1_000_000))]
    size: u32,
    /// Seconds per measurement
    #[arg(long, default_value_t = 5.0, value_parser = seconds)]
    seconds: f64,
    /// Seconds of load before each measurement, not counted
    #[arg(long, default_value_t = 1.0, value_parser = seconds)]
    warm_up: f64,
    /// Number of rounds per service
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Number of pastes to read, at random
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pastes: u64,
    /// Number of pastes to delete and to take down while a second node is watched
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    gone: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Which {
    Leasehold,
    Rustypaste,
    Microbin,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if (0.0..=3600.0).contains(&value) => Ok(value),
        _ => Err("not a number of seconds between 0 and 3600".to_owned()),
    }
}

impl Args {
    /// True if our service takes part, which needs a database.
    fn ours(&self) -> bool {
        self.services.contains(&Which::Leasehold)
    }

    fn plan(&self) -> Plan {
        Plan {
            connections: usize::from(self.connections),
            size: self.size as usize,
            time: Duration::from_secs_f64(self.seconds.max(0.01)),
            warm_up: Duration::from_secs_f64(self.warm_up),
            pastes: self.pastes,
        }
    }
}

/// One service and its figures.
struct Measurements {
    service: Box<dyn Service>,
    create: Figures,
    raw: Figures,
    page: Figures,
}

pub async fn run(args: &Args, database_url: Option<&str>) -> Result<Report, Failure> {
    // Look for the peers first: a missing one should not cost the time of a whole run.
    let peers = Peers::find(args)?;
    let scratch = Scratch::new(None)?;
    let server = match args.ours() {
        true => Some(BenchServer::start(database_url).await?),
        false => None,
    };
    let report = on_server(args, &peers, &scratch, server.as_ref()).await;
    if let Some(server) = server {
        server.finish().await?;
    }
    Ok(report?)
}

async fn on_server(
    args: &Args,
    peers: &Peers,
    scratch: &Scratch,
    server: Option<&BenchServer>,
) -> anyhow::Result<Report> {
    let plan = args.plan();
    if let Some(server) = server {
        let mut session = server.session().await?;
        ::pastes::SCHEMA.up(&mut session).await?;
    }
    let ours = match server {
        Some(server) => Some(ours::Ours {
            program: std::env::current_exe().context("our own executable is not found")?,
            database_url: server.url.clone(),
            store: scratch.fresh("store")?,
            operator_token: format!("{:032x}", rand::random::<u128>()),
        }),
        None => None,
    };
    let mut all = Vec::new();
    for which in &args.services {
        let service: Box<dyn Service> = match which {
            Which::Leasehold => Box::new(ours.clone().context("no database for our service")?),
            Which::Rustypaste => Box::new(rustypaste::Rustypaste { program: peers.path(*which) }),
            Which::Microbin => Box::new(microbin::Microbin { program: peers.path(*which) }),
        };
        let (create, raw, page) = (Figures::new()?, Figures::new()?, Figures::new()?);
        all.push(Measurements { service, create, raw, page });
    }
    let bar = progress("measuring", u64::from(args.rounds) * all.len() as u64 * 2);
    for round in 0..args.rounds {
        // Each round begins with another service: the one after a busy service finds a warm disk.
        if round > 0 && !all.is_empty() {
            all.rotate_left(1);
        }
        for one in &mut all {
            let name = one.service.name();
            let create: Measured = measure::creates(one.service.as_ref(), &plan, scratch)
                .await
                .with_context(|| format!("creates of {name}"))?;
            one.create.add(&create)?;
            calm(server).await?;
            bar.inc(1);
        }
        for one in &mut all {
            let name = one.service.name();
            let (raw, page) = measure::reads(one.service.as_ref(), &plan, scratch)
                .await
                .with_context(|| format!("reads of {name}"))?;
            one.raw.add(&raw)?;
            one.page.add(&page)?;
            calm(server).await?;
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let gone = match &ours {
        Some(ours) if args.gone > 0 => Some(gone::measure(ours, scratch, args.gone).await?),
        _ => None,
    };
    // In the requested order.
    all.sort_by_key(|one| {
        args.services.iter().position(|which| which.name() == one.service.name())
    });
    show::report(args, &all, gone.as_ref())
}

/// Lets the disk finish the writes of the last service, so that the next one does not pay for them.
async fn calm(server: Option<&BenchServer>) -> anyhow::Result<()> {
    if let Some(server) = server {
        leasehold_server::bench::server::checkpoint(&server.session().await?).await?;
    }
    let syncing = tokio::process::Command::new("sync").kill_on_drop(true).status();
    // Best effort: a machine without `sync`, or with a busy disk, only makes the figures noisier.
    let _ = tokio::time::timeout(Duration::from_secs(60), syncing).await;
    Ok(())
}

impl Which {
    fn name(self) -> &'static str {
        match self {
            Self::Leasehold => "leasehold",
            Self::Rustypaste => "rustypaste",
            Self::Microbin => "microbin",
        }
    }
}

/// The directory of the other services.
struct Peers(PathBuf);

impl Peers {
    fn find(args: &Args) -> Result<Self, Failure> {
        let dir = match &args.peers {
            Some(dir) => dir.clone(),
            None => leasehold_testing::cache_dir().join("peers"),
        };
        let peers = Self(dir);
        for which in args.services.iter().filter(|which| **which != Which::Leasehold) {
            if !peers.path(*which).is_file() {
                let dir = peers.0.display();
                return Err(Failure::not_found(format!(
                    "{} is not installed in {dir}/bin",
                    which.name()
                ))
                .hint(format!(
                    "install it with `bench/pastes/peers {dir}`, or leave it out with --services"
                )));
            }
        }
        Ok(peers)
    }

    fn path(&self, which: Which) -> PathBuf {
        self.0.join("bin").join(which.name())
    }
}
