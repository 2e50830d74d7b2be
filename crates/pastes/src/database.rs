//! Connections to Postgres: a few sessions that reconnect by themselves.

use std::time::Duration;

use leasehold::database::Database;
use leasehold::error::CallError;
use leasehold::link::Links;
use leasehold::migrate::{Migration, Schema};

use crate::error::Unavailable;

/// The tables and functions of the service, migrated beside the engine's.
pub const SCHEMA: Schema = Schema {
    name: "pastes",
    migrations: &[
        Migration {
            version: 1,
            name: "tables",
            sql: include_str!("../migrations/0001_tables.sql"),
        },
        Migration {
            version: 2,
            name: "identity",
            sql: include_str!("../migrations/0002_identity.sql"),
        },
        Migration {
            version: 3,
            name: "copies",
            sql: include_str!("../migrations/0003_copies.sql"),
        },
        Migration { version: 4, name: "hooks", sql: include_str!("../migrations/0004_hooks.sql") },
    ],
    // In this order: each file may use the functions of the files before it.
    functions: &[
        ("moves", include_str!("../functions/moves.sql")),
        ("jobs", include_str!("../functions/jobs.sql")),
        ("create", include_str!("../functions/create.sql")),
        ("upload", include_str!("../functions/upload.sql")),
        ("expire", include_str!("../functions/expire.sql")),
        ("read", include_str!("../functions/read.sql")),
        ("end", include_str!("../functions/end.sql")),
        ("moderate", include_str!("../functions/moderate.sql")),
    ],
};

/// How long one statement may take before the request gets 503.
const CALL_LIMIT: Duration = Duration::from_secs(10);

/// Opens `count` sessions to spread statements over.
pub fn sessions(database: &Database, count: usize) -> Links {
    Links::new(database, count, CALL_LIMIT)
}

impl From<CallError> for Unavailable {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Database(error) => Self::Database(error),
            CallError::TimedOut(limit) => Self::TimedOut(limit),
            error => Self::NoConnection(error.to_string()),
        }
    }
}

/// Returns the SQLSTATE with which our functions refuse a request.
pub fn refusal(error: &CallError) -> Option<&str> {
    match error {
        CallError::Database(error) => error.code().map(|code| code.code()),
        _ => None,
    }
}
