//! `leasehold workers`: lists worker processes.

use std::process::ExitCode;

use clap::Subcommand;

use super::common::Common;
use crate::exit::Failure;
use crate::output::Columns;
use crate::text::relative;

#[derive(Subcommand, Debug)]
pub enum Command {
    /// List worker processes, except those that stopped in order
    List {
        /// Include workers that stopped in order
        #[arg(long)]
        all: bool,
    },
}

pub async fn run(command: Command, common: &Common) -> Result<ExitCode, Failure> {
    let Command::List { all } = command;
    let (out, db) = (common.out(), common.db().await?);
    let workers = db.within(db.workers().list(all)).await?;
    let now = db.now().await?;
    out.list("workers", &workers, |workers| {
        let mut columns = Columns::new(&[
            "NAME", "STATE", "HOST", "PID", "BUSY", "QUEUES", "STARTED", "SEEN", "VERSION",
        ]);
        for worker in workers {
            columns.row([
                worker.name.clone(),
                worker.state.to_string(),
                worker.host.clone(),
                worker.pid.to_string(),
                format!("{}/{}", worker.busy, worker.slots),
                worker.queues.join(" "),
                relative(worker.started_at, now),
                relative(worker.last_seen_at, now),
                worker.version.clone(),
            ]);
        }
        columns
    })?;
    if workers.is_empty() && out.is_table() {
        out.note("no workers; jobs wait until one starts");
    }
    Ok(ExitCode::SUCCESS)
}
