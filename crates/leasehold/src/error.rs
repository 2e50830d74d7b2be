//! Errors, one small enum an operation. Each says what to do next.

use std::time::Duration;

use tokio_postgres::error::SqlState;

use crate::job::{Generation, JobId};

/// Why the engine could not start on this database.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("the database URL cannot be read: {0}; it looks like postgres://user@host:5432/name")]
    BadUrl(String),
    #[error("cannot reach the database: {}; check that it runs and that the URL is right", describe(.0))]
    Unreachable(#[source] tokio_postgres::Error),
    #[error("the database did not answer within {} s; check that it runs and that the URL is right", .0.as_secs())]
    TimedOut(Duration),
    #[error("the database is PostgreSQL {found}; this release needs {needed} or newer")]
    OldServer { found: String, needed: u32 },
    #[error("the database is a read-only replica; connect to the primary")]
    Replica,
    #[error("TLS is not set up: {0}")]
    Tls(String),
    #[error(transparent)]
    Schema(#[from] SchemaError),
}

/// Why the schema does not fit this release.
#[derive(Debug, thiserror::Error)]
pub enum SchemaError {
    #[error("the schema is missing; run: leasehold migrate up")]
    Missing,
    #[error(
        "the schema is at version {found}, this release needs {needed}; run: leasehold migrate up"
    )]
    Old { found: i32, needed: i32 },
    #[error(
        "the schema is at version {found}, newer than the {known} this release knows; upgrade this program"
    )]
    New { found: i32, known: i32 },
    #[error(
        "migration {version} was changed after it ran here (checksum differs); restore the original file"
    )]
    Changed { version: i32 },
    #[error("migration {version} failed: {}", describe(.source))]
    Failed { version: i32, source: tokio_postgres::Error },
    #[error("the schema could not be read: {}", describe(.0))]
    Database(#[source] tokio_postgres::Error),
}

/// Why a job was not enqueued. Nothing was stored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EnqueueError {
    /// The job itself is at fault; the text says how to mend it.
    #[error("{0}")]
    Refused(String),
    /// The key is taken by a job with another name or other arguments.
    #[error("{0}")]
    KeyConflict(String),
    #[error("the arguments do not become JSON: {0}")]
    Arguments(#[from] serde_json::Error),
    /// The functions of the engine are not in this database.
    #[error("the schema is missing or too old here ({0}); run: leasehold migrate up")]
    NoSchema(String),
    /// The server said no: not stored. No answer: unknown; repeat with the same key to be sure of
    /// one job.
    #[error("{}", not_stored(.0.as_db_error().is_some(), describe(.0)))]
    Database(#[source] tokio_postgres::Error),
    #[error("no connection for the enqueue: {0}")]
    NoConnection(String),
    /// As [`EnqueueError::Database`].
    #[cfg(feature = "sqlx-0_9")]
    #[error("{}", not_stored(.0.as_database_error().is_some(), .0.to_string()))]
    Sqlx(#[source] sqlx::Error),
}

impl EnqueueError {
    /// Nobody answered: the same enqueue may succeed a moment later.
    pub(crate) fn may_repeat(&self) -> bool {
        match self {
            Self::Database(error) => error.as_db_error().is_none(),
            Self::NoConnection(_) => true,
            _ => false,
        }
    }
}

impl From<tokio_postgres::Error> for EnqueueError {
    fn from(error: tokio_postgres::Error) -> Self {
        match error.as_db_error() {
            Some(db) => {
                refusal(db.code().code(), db.message(), db.hint()).unwrap_or(Self::Database(error))
            }
            None => Self::Database(error),
        }
    }
}

fn not_stored(server_said_so: bool, why: String) -> String {
    if server_said_so {
        format!("the job was not stored: {why}")
    } else {
        format!("the job may not have been stored: {why}; repeat it with an idempotency key")
    }
}

/// What the database's own checks said about a job, if it is known what to do.
pub(crate) fn refusal(code: &str, message: &str, hint: Option<&str>) -> Option<EnqueueError> {
    let text = match hint {
        Some(hint) => format!("{message}. {hint}"),
        None => message.to_owned(),
    };
    match code {
        "LH003" => Some(EnqueueError::KeyConflict(text)),
        "LH001" | "LH002" => Some(EnqueueError::Refused(text)),
        // Checks of the table, arguments that jsonb cannot hold, nesting beyond its stack, times
        // beyond the calendar.
        "23514" | "22P05" | "22P02" | "54001" | "22021" | "22008" => {
            Some(EnqueueError::Refused(text))
        }
        // No such schema, function or table.
        "3F000" | "42883" | "42P01" => Some(EnqueueError::NoSchema(text)),
        _ => None,
    }
}

/// Why finishing a job had no effect.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FinishError {
    /// Someone else owns the job now. Drop the result and roll back; theirs will count.
    #[error("lease on job {job} (generation {generation}) was lost")]
    LeaseLost { job: JobId, generation: Generation },
    /// Unknown whether it was written. Roll back and fail the attempt; it is safe to run again.
    #[error("could not record the outcome of the job: {}", describe(.0))]
    Database(#[source] tokio_postgres::Error),
    #[cfg(feature = "sqlx-0_9")]
    #[error("could not record the outcome of the job: {0}")]
    Sqlx(#[source] sqlx::Error),
}

/// Why a worker stopped other than on request.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    #[error("the worker cannot start: {0}")]
    Config(String),
    #[error("the worker cannot start: {0}")]
    Connect(#[from] ConnectError),
    #[error("the thread that renews leases stopped; every handler was cancelled: {0}")]
    KeeperStopped(String),
}

/// A database call that did not answer.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    #[error("{}", describe(.0))]
    Database(#[from] tokio_postgres::Error),
    #[error("no answer within {} ms", .0.as_millis())]
    TimedOut(Duration),
    #[error(transparent)]
    Connect(Box<ConnectError>),
}

impl CallError {
    /// True when a migration has changed what a prepared statement gives: a new session knows.
    pub(crate) fn is_stale_statement(&self) -> bool {
        matches!(self, Self::Database(error)
            if error.code() == Some(&SqlState::FEATURE_NOT_SUPPORTED))
    }

    /// True when the server refused the statement itself, so that nothing was written.
    pub fn was_refused(&self) -> bool {
        match self {
            Self::Database(error) => error.as_db_error().is_some_and(|db| {
                // A session that the server ended, or a shutdown, may have happened after COMMIT.
                !matches!(
                    *db.code(),
                    SqlState::ADMIN_SHUTDOWN
                        | SqlState::CRASH_SHUTDOWN
                        | SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT
                )
            }),
            Self::TimedOut(_) => false,
            Self::Connect(_) => true,
        }
    }
}

/// The text of a Postgres error for people: what the server said, or what the socket said.
pub fn describe(error: &tokio_postgres::Error) -> String {
    use std::error::Error as _;
    match (error.as_db_error(), error.source()) {
        (Some(db), _) => match db.hint() {
            Some(hint) => format!("{} ({})", db.message(), hint),
            None => db.message().to_owned(),
        },
        (None, Some(source)) => format!("{error}: {source}"),
        (None, None) => error.to_string(),
    }
}

/// Makes an error text storable: no NUL, no control characters but line breaks and tabs, at most
/// 4 KiB. Postgres refuses NUL in text, and an error that cannot be stored would hide the failure.
pub(crate) fn storable(text: &str) -> String {
    let mut kept: String = text
        .chars()
        .map(|c| if c.is_control() && c != '\n' && c != '\t' { '\u{fffd}' } else { c })
        .collect();
    if kept.len() > 4096 {
        let mut end = 4093;
        while !kept.is_char_boundary(end) {
            end -= 1;
        }
        kept.truncate(end);
        kept.push('…');
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::storable;

    #[test]
    fn h1_error_texts_lose_nul_and_keep_their_lines() {
        assert_eq!(storable("a\0b\nc\td\u{1b}[31m"), "a\u{fffd}b\nc\td\u{fffd}[31m");
    }

    #[test]
    fn long_error_texts_are_cut_at_a_character() {
        let long = "ü".repeat(4000);
        let kept = storable(&long);
        assert!(kept.len() <= 4096 && kept.ends_with('…'));
    }
}
