//! Worker processes. No transition of a job reads them: they are for operators.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio_postgres::types::Type;

use super::session::handle;
use crate::error::AdminError;

handle! {
    /// Worker processes: [`Leasehold::workers`](crate::Leasehold::workers).
    Workers
}

/// The state of a worker process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum WorkerState {
    /// It was seen within 30 s.
    Alive,
    /// Claims no more and waits for its handlers.
    Draining,
    /// Has not been seen for 30 s.
    Dead,
    /// Stopped in order.
    Stopped,
}

impl WorkerState {
    /// Returns the word of the state.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Alive => "alive",
            Self::Draining => "draining",
            Self::Dead => "dead",
            Self::Stopped => "stopped",
        }
    }

    fn read(word: &str) -> Self {
        match word {
            "alive" => Self::Alive,
            "draining" => Self::Draining,
            "stopped" => Self::Stopped,
            _ => Self::Dead,
        }
    }
}

impl std::fmt::Display for WorkerState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

/// A worker process.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct WorkerInfo {
    /// The name, and a number of this one process.
    pub id: String,
    /// The name of the process.
    pub name: String,
    /// Whether it runs.
    pub state: WorkerState,
    /// The machine it runs on.
    pub host: String,
    /// Its process id.
    pub pid: i32,
    /// The release of the library.
    pub version: String,
    /// The queues it works.
    pub queues: Vec<String>,
    /// The names of the jobs that it handles.
    pub names: Vec<String>,
    /// How many jobs it can run at once.
    pub slots: i32,
    /// How many jobs it runs.
    pub busy: i32,
    /// How many jobs it has claimed, and no slot for.
    pub claimed_ahead: i32,
    /// When it started.
    pub started_at: Timestamp,
    /// When it was seen last.
    pub last_seen_at: Timestamp,
}

impl Workers<'_> {
    /// Returns workers that run or vanished, up to 1,000; with `stopped` also those that stopped in order.
    pub async fn list(&self, stopped: bool) -> Result<Vec<WorkerInfo>, AdminError> {
        let sql = "select * from leasehold.workers where $1 or state <> 'stopped' \
                   order by state, name, started_at desc limit 1000";
        let rows = self.session.query(sql, &[(&stopped, Type::BOOL)]).await?;
        Ok(rows.iter().map(read).collect())
    }

    /// Returns a worker by its id.
    pub async fn get(&self, id: &str) -> Result<Option<WorkerInfo>, AdminError> {
        let sql = "select * from leasehold.workers where id = $1";
        let rows = self.session.query(sql, &[(&id, Type::TEXT)]).await?;
        Ok(rows.first().map(read))
    }
}

fn read(row: &tokio_postgres::Row) -> WorkerInfo {
    WorkerInfo {
        id: row.get("id"),
        name: row.get("name"),
        state: WorkerState::read(row.get("state")),
        host: row.get("host"),
        pid: row.get("pid"),
        version: row.get("version"),
        queues: row.get("queues"),
        names: row.get("names"),
        slots: row.get("slots"),
        busy: row.get("busy"),
        claimed_ahead: row.get("claimed_ahead"),
        started_at: row.get("started_at"),
        last_seen_at: row.get("last_seen_at"),
    }
}
