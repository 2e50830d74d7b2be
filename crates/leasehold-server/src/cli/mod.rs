//! The commands, one file each, and what they share.
//!
//! Shared: [`common`] (the database, the form of the answer), [`address`] (which database), [`db`]
//! (one session with a time limit), [`filter`] and [`many`] (which jobs), [`record`] and [`verdicts`]
//! (what a job looks like and what became of it).

pub mod address;
mod alarm_entry;
mod alarms;
mod annotations;
mod common;
mod db;
mod dead;
mod enqueue;
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
    /// Starts everything here: a private PostgreSQL, housekeeping, a paste service, an annotation
    /// service, and with --demo jobs to watch
    Dev(dev::Args),
    /// Runs the paste service and the annotation service
    Serve(Box<serve::Args>),
    /// Runs jobs
    Worker(worker::Args),
    /// Shows what goes on and what is wrong, and tells whoever wants to know
    Console(console::Args),
    /// Enqueues a job
    Enqueue(enqueue::Args),
    /// Looks at jobs, lets them run now, ends them
    #[command(subcommand)]
    Jobs(jobs::Command),
    /// Looks at dead jobs and brings them back
    #[command(subcommand)]
    Dead(dead::Command),
    /// Looks at queues, pauses them, changes what holds for their jobs
    #[command(subcommand)]
    Queues(queues::Command),
    /// Looks at schedules and changes them
    #[command(subcommand)]
    Schedules(schedules::Command),
    /// Looks at sweeps over tables of yours, pauses them, brings their rows back
    #[command(subcommand)]
    Sweeps(sweeps::Command),
    /// Looks at mirrors of tables of yours, has them compared and rebuilt
    #[command(subcommand)]
    Mirrors(mirrors::Command),
    /// Looks at alarms, and says what is expected of queues
    #[command(subcommand)]
    Alarms(alarms::Command),
    /// Looks at worker processes
    #[command(subcommand)]
    Workers(workers::Command),
    /// Pastes a file or standard input, and prints the link
    Paste(paste::Args),
    /// Looks at reports about pastes, takes pastes down, bans content
    #[command(subcommand)]
    Pastes(moderation::Command),
    /// Makes people and groups of the annotation service, renames and deletes them
    #[command(subcommand)]
    Annotations(annotations::Command),
    /// Compares annotations with the search index again
    Reindex(Box<reindex::Args>),
    /// Looks for what is wrong, and says what to do about it
    Doctor(doctor::Args),
    /// Brings the schema to this release, or shows it
    Migrate(migrate::Args),
    /// Measures
    Bench(bench::Args),
    /// Prints a completion script for a shell
    #[command(
        after_help = "Example:\n  leasehold completions bash > /etc/bash_completion.d/leasehold"
    )]
    Completions { shell: clap_complete::Shell },
    /// Prints the version
    Version,
}

impl Command {
    /// True for commands that stop in order when they are told to; the others just end.
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
