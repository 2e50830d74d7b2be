//! `leasehold-bench mirror`: how fast an empty search index becomes equal to the table, which
//! planted differences a check finds, and how saves and searches fare while the index is unreachable.
//!
//! In reading order: [`store`] is the index, with a switch that makes it unreachable; [`rows`] inserts
//! annotations into the table; [`replay`] drains the jobs and checks; [`plant`] makes differences that
//! the mirror does not see; [`interactive`] saves and searches meanwhile; [`outage`] makes the index unreachable
//! for them; [`rename`] renames one user.
//!
//! # Invariants
//! - The service, its mirror and its worker are those that `leasehold serve` runs. The time of the
//!   replay runs from the start of the worker until a check of every row finds no difference.
//! - Settings are durable, and the run leaves nothing behind.
//! - A checkpoint precedes each measurement of saves and searches: a server that has run for a while has
//!   WAL files to reuse, while a fresh one would stall every session to create them.

mod interactive;
mod outage;
mod plant;
mod rename;
mod replay;
mod rows;
mod show;
mod store;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use annotations::{Annotations, Index, Limits, Settings, User};
use anyhow::{Context, Result};
use leasehold::Leasehold;
use leasehold::database::Database;
use leasehold::mirror::{CheckReport, Mirror};

use crate::load::Measured;
use crate::scratch::Scratch;
use interactive::Load;
use leasehold_server::bench::report::Report;
use leasehold_server::bench::server::{BenchServer, checkpoint};
use leasehold_server::progress;
use outage::Outages;
use plant::Planted;
use rename::Renamed;
use store::{Kind, Store};

#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Annotations that the index lacks
    #[arg(long, default_value_t = 50_000, value_parser = clap::value_parser!(u64).range(1_000..=10_000_000))]
    docs: u64,
    /// Write documents there
    #[arg(long, value_enum, default_value_t = Kind::Tantivy)]
    target: Kind,
    /// An OpenSearch or Elasticsearch that runs already [default: a private one, from the cache of
    /// scripts/test]
    #[arg(long, value_name = "URL", hide_env_values = true)]
    opensearch_url: Option<String>,
    /// Put the files of tantivy here [default: the system's temporary directory]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Number of saves to time until the index shows them
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    visible: u64,
    /// Seconds that the pass leaves a save to the direct path
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    period: u64,
    /// Annotations of the user who is renamed while others save [default: a tenth of --docs]
    #[arg(long, value_name = "N")]
    rename: Option<u64>,
    /// Saves and searches per second each, with the index and without it
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rate: u32,
    /// Seconds that users save and search at a time, and that the index is down
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    seconds: u64,
    /// Number of outages; the times with and without the index alternate and are merged, so
    /// that a disk that is slow for a while is slow for both
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
}

/// The results of one run.
struct Outcome {
    setup: Duration,
    enqueue: Duration,
    replay: Duration,
    check: CheckReport,
    planted: Planted,
    visible: Measured,
    visible_by_pass: Measured,
    outages: Outages,
    renamed: Renamed,
}

/// The engine, store and service that every measurement uses.
struct Bench {
    engine: Leasehold,
    session: leasehold::database::Session,
    store: Arc<Store>,
    mirror: Mirror,
    service: Annotations,
    author: User,
}

impl Args {
    fn of_one(&self) -> u64 {
        self.rename.unwrap_or(self.docs / 10).min(self.docs)
    }

    fn settings(&self) -> Settings {
        Settings {
            // All requests come from one address, so the rate limits would throttle the benchmark.
            limits: Limits { saves_per_second: 0, reads_per_second: 0, ..Limits::default() },
            verify_after: Duration::from_secs(self.period),
            sign_up: true,
            ..Settings::default()
        }
    }
}

pub async fn run(server: &BenchServer, args: &Args) -> Result<Report> {
    let scratch = Scratch::new(args.dir.as_deref())?;
    let started = Instant::now();
    let mut session = Database::new(&server.url)?.connect().await?;
    annotations::migrate(&mut session).await?;
    session.batch_execute("set statement_timeout = 0").await?;
    let bar = progress("laying", args.docs);
    rows::lay(&session, args.docs, args.of_one(), &bar).await?;
    bar.finish_and_clear();
    let folder = scratch.path().join("index");
    let store = Arc::new(Store::open(args.target, args.opensearch_url.as_deref(), &folder).await?);
    let bench = Bench::start(server, session, store, args.settings()).await?;
    checkpoint(&bench.session).await?;
    let setup = started.elapsed();
    let outcome = bench.measure(args, setup).await;
    bench.store.remove().await;
    Ok(show::report(args, &outcome?))
}

impl Bench {
    async fn start(
        server: &BenchServer,
        session: leasehold::database::Session,
        store: Arc<Store>,
        settings: Settings,
    ) -> Result<Self> {
        let engine = Leasehold::connect(&server.url).await?;
        let mirror = annotations::declare(&settings).targets(store.clone());
        let mut installing = server.session().await?;
        mirror.install(&mut installing).await?;
        let index = Index::new(Arc::clone(&store));
        let service = Annotations::start(engine.clone(), Some(index), settings).await?;
        let (author, _) = service.sign_up("bench", "").await?;
        Ok(Self { engine, session, store, mirror, service, author })
    }

    async fn measure(&self, args: &Args, setup: Duration) -> Result<Outcome> {
        let (enqueue, replay, check) = replay::run(self, args.docs).await.context("the replay")?;
        let planted = plant::run(self).await.context("planted differences")?;
        let working = replay::Working::start(self)?;
        let visible = interactive::visible(self, args.visible).await.context("saves to be seen")?;
        let indirect = self.without_direct_path(args.settings()).await?;
        let visible_by_pass = interactive::visible_by_pass(self, &indirect, args.visible.min(50))
            .await
            .context("saves to be seen by a pass")?;
        let time = Duration::from_secs(args.seconds);
        let outages = outage::run(self, args.rate, time, args.rounds).await?;
        checkpoint(&self.session).await?;
        let renamed = rename::run(self, args.rate, time, outages.normal.clone())
            .await
            .context("the rename")?;
        working.stop().await?;
        Ok(Outcome {
            setup,
            enqueue,
            replay,
            check,
            planted,
            visible,
            visible_by_pass,
            outages,
            renamed,
        })
    }

    /// Starts the same service without the direct path: only passes write its saves.
    async fn without_direct_path(&self, settings: Settings) -> Result<Annotations> {
        let settings = Settings { direct: false, ..settings };
        let index = Index::new(Arc::clone(&self.store));
        Ok(Annotations::start(self.engine.clone(), Some(index), settings).await?)
    }
}
