//! The commands, one file each, and what they share.
//!
//! Shared: [`common`] (the database, the output format), [`address`] (which database), [`db`]
//! (one session with a timeout), [`filter`] and [`many`] (which jobs), [`record`] and [`verdicts`]
//! (how to show a job, and the outcome of a command).

pub mod address;
mod alarm_entry;
mod alarms;
mod annotations;
mod common;
mod db;
mod dead;
mod enqueue;
mod failures;
mod filter;
mod jobs;
mod known;
mod many;
mod migrate;
mod mirror_entry;
mod mirrors;
mod moderation;
mod paste;
mod prompt;
mod queue_entry;
mod queues;
mod record;
mod reindex;
mod schedule_entry;
mod schedules;
mod sweep_entry;
mod sweeps;
mod verdicts;
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
    /// Start everything here: a private PostgreSQL, housekeeping, a paste service, an annotation
    /// service, and with --demo jobs to watch
    Dev(dev::Args),
    /// Run the paste service and the annotation service
    Serve(Box<serve::Args>),
    /// Run jobs
    Worker(worker::Args),
    /// Serve the web console and /metrics, and send alarm notifications
    Console(console::Args),
    /// Enqueue a job
    Enqueue(enqueue::Args),
    /// List, show, retry and cancel jobs
    #[command(subcommand)]
    Jobs(jobs::Command),
    /// List and redrive dead jobs
    #[command(subcommand)]
    Dead(dead::Command),
    /// List queues, pause and resume them, change their settings
    #[command(subcommand)]
    Queues(queues::Command),
    /// List and change schedules
    #[command(subcommand)]
    Schedules(schedules::Command),
    /// List sweeps, pause and run them, redrive their dead rows
    #[command(subcommand)]
    Sweeps(sweeps::Command),
    /// List mirrors, compare and rebuild them
    #[command(subcommand)]
    Mirrors(mirrors::Command),
    /// List alarms, and set the thresholds of queues
    #[command(subcommand)]
    Alarms(alarms::Command),
    /// List worker processes
    #[command(subcommand)]
    Workers(workers::Command),
    /// Paste a file or standard input, and print the link
    Paste(paste::Args),
    /// List reports about pastes, take pastes down, ban content
    #[command(subcommand)]
    Pastes(moderation::Command),
    /// Manage the users, the groups and the search index of the annotation service
    #[command(subcommand)]
    Annotations(annotations::Command),
    /// Compare annotations with the search index again
    Reindex(Box<reindex::Args>),
    /// Look for problems, and advise what to do about them
    Doctor(doctor::Args),
    /// Bring the schema to this release, or show it
    Migrate(migrate::Args),
    /// Measure the engine on a database beside bare SQL
    Bench(bench::Args),
    /// Print a completion script for a shell
    #[command(
        after_help = "Example:\n  leasehold completions bash > /etc/bash_completion.d/leasehold"
    )]
    Completions { shell: clap_complete::Shell },
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
            Self::Pastes(command) => moderation::run(command, common).await,
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
