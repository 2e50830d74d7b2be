//! The commands, one file each, and what they share.
//!
//! Shared: [`common`] (the database, the output format), [`address`] (which database), [`databases`] (several of
//! them), [`db`] (one session with a timeout), [`filter`] and [`many`] (which jobs), [`record`] and [`results`]
//! (how to show a job, and the result of a command).

pub mod address;
mod alarms;
mod annotations;
mod common;
pub mod databases;
mod db;
mod dead;
mod due;
mod enqueue;
mod failures;
mod filter;
mod jobs;
mod known;
mod many;
mod migrate;
mod mirrors;
mod paste;
mod pastes;
mod prompt;
mod queues;
mod record;
mod reindex;
mod results;
mod schedules;
mod sweeps;
mod version;
mod wait;
mod workers;

use std::process::ExitCode;

use clap::Subcommand;

pub use common::Common;
pub use db::Db;

use crate::exit::Failure;
use crate::{bench, console, dev, doctor, serve, worker};

#[derive(Subcommand)]
pub enum Command {
    /// Start everything on this machine: PostgreSQL, housekeeping, the services, the console
    Dev(dev::Args),
    /// Run the paste service and the annotation service
    Serve(Box<serve::Args>),
    /// Run jobs by commands or HTTP requests
    Worker(worker::Args),
    /// Serve the web console and /metrics, and send alarm notifications
    Console(console::Args),
    /// Enqueue a job
    Enqueue(enqueue::Args),
    /// List, show, promote, update, cancel and delete jobs
    #[command(subcommand)]
    Jobs(jobs::Command),
    /// List, group and redrive dead jobs
    #[command(subcommand)]
    Dead(dead::Command),
    /// List, pause, resume and configure queues
    #[command(subcommand)]
    Queues(queues::Command),
    /// List, add, pause and run schedules
    #[command(subcommand)]
    Schedules(schedules::Command),
    /// List, pause and run sweeps, and redrive their dead rows
    #[command(subcommand)]
    Sweeps(sweeps::Command),
    /// List, compare and rebuild mirrors
    #[command(subcommand)]
    Mirrors(mirrors::Command),
    /// List, acknowledge and silence alarms, and set thresholds
    #[command(subcommand)]
    Alarms(alarms::Command),
    /// List worker processes
    #[command(subcommand)]
    Workers(workers::Command),
    /// Paste a file or standard input, and print the link
    Paste(paste::Args),
    /// Moderate pastes: list reports, take pastes down, ban content
    #[command(subcommand)]
    Pastes(pastes::Command),
    /// Manage users, groups and the search index of the annotation service
    #[command(subcommand)]
    Annotations(annotations::Command),
    /// Compare annotations with the search index again
    Reindex(Box<reindex::Args>),
    /// Find problems, and show what to do about them
    Doctor(doctor::Args),
    /// Migrate the schema to this release, or show it
    Migrate(migrate::Args),
    /// Measure the engine on a database, compared with bare SQL
    Bench(bench::Args),
    /// Print a completion script for a shell
    #[command(
        after_help = "Example:\n  leasehold completions bash > /etc/bash_completion.d/leasehold"
    )]
    Completions {
        /// Name of the shell
        shell: clap_complete::Shell,
    },
    /// Print the version
    Version,
}

impl Command {
    /// True for commands that shut down in order on a signal; the others just end.
    pub fn handles_signals(&self) -> bool {
        matches!(
            self,
            Self::Dev(_) | Self::Serve(_) | Self::Console(_) | Self::Worker(_) | Self::Bench(_)
        )
    }

    pub async fn run(self, common: &Common) -> Result<ExitCode, Failure> {
        match self {
            Self::Dev(args) => dev::run(args, common).await,
            Self::Serve(args) => serve::run(*args, common).await,
            Self::Worker(args) => worker::run(args, common).await,
            Self::Console(args) => console::run(args, common).await,
            Self::Enqueue(args) => enqueue::run(args, common).await,
            Self::Jobs(command) => jobs::run(command, common).await,
            Self::Dead(command) => dead::run(command, common).await,
            Self::Queues(command) => queues::run(command, common).await,
            Self::Schedules(command) => schedules::run(command, common).await,
            Self::Sweeps(command) => sweeps::run(command, common).await,
            Self::Mirrors(command) => mirrors::run(command, common).await,
            Self::Alarms(command) => alarms::run(command, common).await,
            Self::Workers(command) => workers::run(command, common).await,
            Self::Paste(args) => paste::run(args, common).await,
            Self::Pastes(command) => pastes::run(command, common).await,
            Self::Annotations(command) => annotations::run(command, common).await,
            Self::Reindex(args) => reindex::run(*args, common).await,
            Self::Doctor(args) => doctor::run(args, common).await,
            Self::Migrate(args) => migrate::run(args, common).await,
            Self::Bench(args) => bench::run(args, common).await,
            Self::Completions { shell } => version::completions(shell),
            Self::Version => version::version(common),
        }
    }
}
