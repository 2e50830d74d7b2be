//! The executable `leasehold`: a development server, workers, and the operator's commands.
//!
//! In reading order: [`cli`] has the commands, [`help`] their help, [`exit`] the exit codes, [`output`]
//! the output formats;
//! [`run`] starts and stops the services of a long-running command; [`mod@serve`] has the paste and the
//! annotation service, [`console`] the console; [`dev`] starts everything on one machine; [`doctor`]
//! looks for problems.
//!
//! This is the one crate that reads the environment. It is a library only for `leasehold-bench`, which
//! has the same options and exit codes, measures with [`mod@bench`], and starts the services of the same
//! build. Nothing here is covered by the guarantees.

#![forbid(unsafe_code)]

mod alarms;
pub mod bench;
mod cli;
mod console;
mod dev;
mod doctor;
mod exit;
mod help;
mod housekeeping;
mod output;
mod private_server;
mod run;
mod serve;
mod text;
mod worker;

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::{FromArgMatches, Parser};

pub use cli::Common;
use exit::Code;
pub use exit::{Failure, TABLE as EXIT_CODES};
pub use output::progress;
pub use serve::{Args as ServeArgs, run as serve};

/// Threads free jobs that other threads allocated; this allocator handles that better.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Durable jobs in Postgres
#[derive(Parser)]
#[command(name = "leasehold", version, subcommand_required = true, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: cli::Command,
    #[command(flatten)]
    common: Common,
}

/// Runs the command line of `leasehold`.
pub async fn main() -> ExitCode {
    let matches = help::command_line().get_matches();
    let Cli { command, common } =
        Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    // Workers and services log more, and set up logging themselves.
    if !matches!(
        command,
        cli::Command::Worker(_) | cli::Command::Serve(_) | cli::Command::Console(_)
    ) {
        init_tracing();
    }
    let handles_signals = command.handles_signals();
    let running = command.run(&common);
    let ended = tokio::select! {
        ended = running => ended,
        _ = tokio::signal::ctrl_c(), if !handles_signals => Err(Failure::interrupted()),
    };
    conclude(ended, &common)
}

/// Reports a failure and returns the exit code of a command.
pub fn conclude(ended: Result<ExitCode, Failure>, common: &Common) -> ExitCode {
    match ended {
        Ok(code) => code,
        Err(failure) => {
            if failure.code != Code::ReaderGone {
                failure.report(common.out());
            }
            failure.code.into()
        }
    }
}

/// Warnings, with the fields of the job that they are about: those are a span of the level `info`.
const WARNINGS: &str = "warn,leasehold::worker::run=info";

/// Logs to stderr; `LEASEHOLD_LOG` sets the level.
pub fn init_tracing() {
    let filter = cli::address::environment("LEASEHOLD_LOG").unwrap_or_else(|| WARNINGS.to_owned());
    let filter = tracing_subscriber::EnvFilter::try_new(&filter).unwrap_or_else(|_| "warn".into());
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
}
