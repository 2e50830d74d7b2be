//! `leasehold workers`: lists worker processes.

use std::process::ExitCode;

use clap::Subcommand;

use super::common::Common;
use super::databases::{Databases, Row, cells, header};
use super::db::Db;
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
        #[command(flatten)]
        databases: Databases,
    },
}

pub async fn run(command: Command, common: &Common) -> Result<ExitCode, Failure> {
    let Command::List { all, databases } = command;
    let out = common.out();
    let ask = async |db: &Db| Ok((db.within(db.workers().list(all)).await?, db.now().await?));
    let found = databases.ask(common, ask).await?;
    let rows: Vec<_> = found
        .of
        .iter()
        .flat_map(|(name, (workers, _))| {
            workers.iter().map(|row| Row { database: name.as_deref(), row })
        })
        .collect();
    let is_fleet = found.is_fleet();
    // Ages by the clock of each server would differ by less than a reader notices.
    let now = found.of.first().map(|(_, (_, now))| *now);
    out.list("workers", &rows, |rows| {
        let mut columns = Columns::new(&header(
            is_fleet,
            &[
                "NAME", "STATE", "HOST", "PID", "BUSY", "AHEAD", "QUEUES", "STARTED", "SEEN",
                "VERSION",
            ],
        ));
        let ago = |at| now.map(|now| relative(at, now)).unwrap_or_default();
        for Row { database, row: worker } in rows {
            let row = [
                worker.name.clone(),
                worker.state.to_string(),
                worker.host.clone(),
                worker.pid.to_string(),
                format!("{}/{}", worker.busy, worker.slots),
                worker.claimed_ahead.to_string(),
                worker.queues.join(" "),
                ago(worker.started_at),
                ago(worker.last_seen_at),
                worker.version.clone(),
            ];
            columns.row(cells(*database, row));
        }
        columns
    })?;
    if rows.is_empty() && out.is_table() {
        out.note("no workers; jobs wait until one starts");
    }
    Ok(found.conclude(out))
}
