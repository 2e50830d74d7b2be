//! The executable `leasehold`.

#![forbid(unsafe_code)]

mod bench;
mod cli;
mod exit;
mod worker;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use cli::Common;
use exit::Failure;

#[derive(Parser)]
#[command(name = "leasehold", version, about = "Durable work in Postgres", after_help = exit::TABLE)]
struct Cli {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs jobs
    Worker(worker::Args),
    /// Measures
    Bench(bench::Args),
}

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(cli.command, &cli.common).await {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("error: {failure}");
            if let Some(next) = failure.next_step() {
                eprintln!("hint: {next}");
            }
            failure.code.into()
        }
    }
}

async fn run(command: Command, common: &Common) -> Result<ExitCode, Failure> {
    match command {
        Command::Worker(args) => worker::run(args, common).await,
        Command::Bench(args) => bench::run(args, common).await,
    }
}
