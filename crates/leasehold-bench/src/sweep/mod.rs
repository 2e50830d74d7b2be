//! `leasehold-bench sweep`: deletes many expired pastes with their objects while users create
//! new ones.
//!
//! In reading order: [`layout`] maps pastes to contents, [`rows`] and [`objects`] store them,
//! [`under_test`] is the service with its workers, [`creates`] are the users, [`wait`] waits for the
//! end, [`check`] counts what is left; [`limit`] is the same in bare SQL.
//!
//! # Invariants
//! - The time runs from the start of the workers until every expired paste is DELETED, no content is
//!   doomed, and the store holds none of their objects.
//! - At the end the run compares each counter with the pastes, and the store with the living contents.
//!
//! # What can go wrong
//! - The disk: ten million pastes take some 30 GB in files of one block (1 GB with `--object-size 0`)
//!   and 20 GB in the database and its WAL. The run checks the free space first, and removes everything
//!   at the end, also after a signal.

mod check;
mod creates;
mod layout;
mod limit;
mod memory;
mod objects;
mod rows;
mod s3;
mod show;
mod store;
mod under_test;
mod wait;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use leasehold::database::Database;

use crate::load::Measured;
use crate::scratch::Scratch;
use check::Checked;
use creates::Creator;
use layout::Layout;
use leasehold_server::bench::report::Report;
use leasehold_server::bench::server::{BenchServer, checkpoint};
use leasehold_server::progress;
use memory::{Memory, Watch};
use store::{Kind, Target};
use under_test::UnderTest;

pub use s3::{ServerArgs, serve};

#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Number of expired pastes
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(100..=100_000_000))]
    rows: u64,
    /// Store objects here
    #[arg(long, value_enum, default_value_t = Kind::Local)]
    store: Kind,
    /// Number of workers that sweep and delete objects
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    workers: u16,
    /// Rows that a worker claims at a time
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    claim_size: u16,
    /// New pastes per second meanwhile
    #[arg(long, default_value_t = 50.0, value_parser = rate)]
    creates: f64,
    /// Bytes per object, from 24 on; small ones still take a block of the disk each. 0: no
    /// bytes and no block for those that no other paste shares
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    object_size: u32,
    /// Put the files of the run here [default: the system's temporary directory]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Rows for the raw SQL limit, measured first; 0: skip it
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u64).range(0..=100_000_000))]
    limit_rows: u64,
}

fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if (0.1..=100_000.0).contains(&value) => Ok(value),
        _ => Err("not a number of pastes a second between 0.1 and 100000".to_owned()),
    }
}

/// The results of one run.
struct Outcome {
    layout: Layout,
    setup: Duration,
    time: Duration,
    creates: Measured,
    memory: Memory,
    checked: Checked,
    limit: Option<f64>,
}

pub async fn run(server: &BenchServer, args: &Args) -> Result<Report> {
    let layout = Layout::new(args.rows, args.object_size as usize);
    let scratch = Scratch::new(args.dir.as_deref())?;
    objects::ensure_room(scratch.path(), &layout)?;
    let mut session = Database::new(&server.url)?.connect().await?;
    pastes::SCHEMA.up(&mut session).await?;
    let (workers, claim_size) = (usize::from(args.workers), usize::from(args.claim_size));

    let limit = match args.limit_rows.min(args.rows) {
        0 => None,
        rows => {
            let bar = progress("raw limit", rows);
            let limit = limit::measure(server, rows, claim_size as i64, workers, &bar).await?;
            bar.finish_and_clear();
            Some(limit)
        }
    };

    let started = Instant::now();
    let bar = progress("laying", layout.rows + layout.rows / 10 * 7 + layout.contents());
    // Concurrently: one waits for the disk, the other for the processor.
    let files = scratch.fresh("store")?;
    let (mut target, ()) = tokio::try_join!(
        Target::lay(args.store, &files, &layout, &bar),
        rows::lay(&session, "pastes", &layout, &bar)
    )?;
    bar.finish_and_clear();
    checkpoint(&session).await?;
    let setup = started.elapsed();

    let mut running = UnderTest::start(&server.url, &target.store()?, workers, claim_size).await?;
    let creator = Creator::start(running.address, layout, args.creates);
    let watch = Watch::start();
    let bar = progress("sweeping", layout.rows);
    let started = Instant::now();
    running.work()?;
    let ended = wait::swept(&session, &mut running, &layout, &bar).await;
    bar.finish_and_clear();
    let time = ended?.saturating_duration_since(started);
    let memory = watch.stop().await?;
    let creates = creator.stop().await.context("new pastes during the sweep")?;
    wait::uploaded(&session).await?;
    running.stop().await?;
    let checked = check::check(&session, &mut target).await?;
    let outcome = Outcome { layout, setup, time, creates, memory, checked, limit };
    Ok(show::report(args, &outcome))
}
