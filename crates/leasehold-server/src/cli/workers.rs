//! `leasehold workers`: lists worker processes.

use std::process::ExitCode;

use clap::Subcommand;
use jiff::Timestamp;
use serde::Serialize;
use tokio_postgres::types::Type;

use super::common::Common;
use crate::exit::Failure;
use crate::output::Columns;
use crate::text::relative;

#[derive(Subcommand, Debug)]
pub enum Command {
    /// List worker processes that are alive or vanished
    List {
        /// Include workers that stopped in order
        #[arg(long)]
        all: bool,
    },
}

#[derive(Serialize)]
struct Worker {
    id: String,
    name: String,
    state: String,
    host: String,
    pid: i32,
    version: String,
    queues: Vec<String>,
    names: Vec<String>,
    slots: i32,
    busy: i32,
    started_at: Timestamp,
    last_seen_at: Timestamp,
}

pub async fn run(command: Command, common: &Common) -> Result<ExitCode, Failure> {
    let Command::List { all } = command;
    let (out, db) = (common.out(), common.db().await?);
    let sql = "select * from leasehold.worker_state where $1 or state <> 'stopped' \
               order by state, name, started_at desc limit 1000";
    let rows = db.query(sql, &[(&all, Type::BOOL)]).await?;
    let workers: Vec<Worker> = rows
        .iter()
        .map(|row| Worker {
            id: row.get("id"),
            name: row.get("name"),
            state: row.get("state"),
            host: row.get("host"),
            pid: row.get("pid"),
            version: row.get("version"),
            queues: row.get("queues"),
            names: row.get("names"),
            slots: row.get("slots"),
            busy: row.get("busy"),
            started_at: row.get("started_at"),
            last_seen_at: row.get("last_seen_at"),
        })
        .collect();
    let now = db.now().await?;
    out.list("workers", &workers, |workers| {
        let mut columns = Columns::new(&[
            "NAME", "STATE", "HOST", "PID", "BUSY", "QUEUES", "STARTED", "SEEN", "VERSION",
        ]);
        for worker in workers {
            columns.row([
                worker.name.clone(),
                worker.state.clone(),
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
        out.note("no workers; waiting jobs stay where they are until one starts");
    }
    Ok(ExitCode::SUCCESS)
}
