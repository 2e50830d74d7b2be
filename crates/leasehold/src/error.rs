//! Errors, one small enum per operation. Each text names the next step.

use std::time::Duration;

use tokio_postgres::error::SqlState;

pub use crate::error_text::{HIDDEN_TEXT, one_line, storable};
use crate::job::{Generation, JobId};

/// Why the engine could not start on this database.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The URL or `key=value` string cannot be read.
    #[error("the database URL cannot be read: {0}; it looks like postgres://user@host:5432/name")]
    BadUrl(String),
    /// A setting of the builder cannot work.
    #[error("{0}")]
    Settings(String),
    /// The server cannot be reached, or refused the session.
    // Not the source of the error: its text is in this one, and a chain would print it twice.
    #[error("cannot reach the database: {}; {}", describe(.0), remedy(.0))]
    Unreachable(tokio_postgres::Error),
    /// The server did not reply within this time.
    #[error("the database did not reply within {} s; check that it runs and that the URL is right", .0.as_secs())]
    TimedOut(Duration),
    /// The server is older than PostgreSQL 15.
    #[error("the database is PostgreSQL {found}; this release needs {needed} or newer")]
    #[non_exhaustive]
    OldServer {
        /// The version of the server.
        found: String,
        /// The oldest major version that works.
        needed: u32,
    },
    /// The server accepts no writes.
    #[error(
        "the server accepts no writes: it is a standby, or default_transaction_read_only is on; \
         connect to the primary, or name every host: postgres://user@one:5432,two:5432/name"
    )]
    Replica,
    /// The database is not encoded in UTF-8.
    #[error(
        "the database is encoded in {0}; create it with ENCODING 'UTF8': error texts and kwargs \
         hold any character"
    )]
    Encoding(String),
    /// TLS is required and cannot be used.
    #[error("TLS is not set up: {0}")]
    Tls(String),
    /// The schema does not fit this release.
    #[error(transparent)]
    Schema(#[from] SchemaError),
}

/// Why the schema does not fit this release.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SchemaError {
    /// There is no schema `leasehold` in this database.
    #[error("the schema is missing; run: leasehold migrate up")]
    Missing,
    /// The schema is older than this release needs.
    #[error(
        "the schema is at version {found}, this release needs {needed}; run: leasehold migrate up"
    )]
    #[non_exhaustive]
    Old {
        /// The version of the schema.
        found: i32,
        /// The version that this release needs.
        needed: i32,
    },
    /// The schema is newer, and does not admit this release.
    #[error(
        "the schema is at version {found}, newer than the {known} this release knows, and does not \
         admit programs this old; upgrade this program"
    )]
    #[non_exhaustive]
    New {
        /// The version of the schema.
        found: i32,
        /// The newest version that this release knows.
        known: i32,
    },
    /// The tables fit, the functions and views do not.
    #[error(
        "the functions and views in the database are older than this program, or of another build; \
         run: leasehold migrate up"
    )]
    OldFunctions,
    /// The text of a migration differs from the one that ran here.
    #[error(
        "migration {version} was changed after it ran here (checksum differs); restore the original file"
    )]
    #[non_exhaustive]
    Changed {
        /// The number of the migration.
        version: i32,
    },
    /// A migration failed; nothing of it was kept.
    #[error("migration {version} failed: {}", describe(.source))]
    #[non_exhaustive]
    Failed {
        /// The number of the migration.
        version: i32,
        /// Why it failed.
        source: tokio_postgres::Error,
    },
    /// The server refused to show the schema, or did not reply.
    #[error("the schema could not be read: {}", describe(.0))]
    Database(#[source] tokio_postgres::Error),
}

impl SchemaError {
    /// Returns true if `migrate up` is all that is needed.
    pub(crate) fn is_solved_by_up(&self) -> bool {
        matches!(self, Self::Missing | Self::Old { .. } | Self::OldFunctions)
    }
}

/// Why a job was not enqueued. Nothing was stored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EnqueueError {
    /// The job itself is at fault; the text names the remedy.
    #[error("{0}")]
    Refused(String),
    /// The key is taken by a job with another name or other kwargs.
    #[error("{0}")]
    KeyConflict(String),
    /// As many jobs wait for the limit key, or for the queue, as may; try again when some have started.
    #[error("{0}")]
    Full(String),
    /// serde cannot turn the job into JSON.
    #[error("the kwargs do not become JSON: {0}")]
    Arguments(#[from] serde_json::Error),
    /// The functions of the engine are not in this database.
    #[error("the schema is missing or too old here ({0}); run: leasehold migrate up")]
    NoSchema(String),
    /// The server refused: not stored. No reply: unknown; repeat with the same key to be sure of one
    /// job.
    #[error("{}", not_stored(.0))]
    Database(#[source] tokio_postgres::Error),
    /// The pool of the handle had no free connection in time.
    #[error(
        "no free connection for the enqueue: {0}; check that the database responds, or raise max_connections"
    )]
    NoConnection(String),
    /// Unknown whether it was stored: a commit that waits for a standby has no other limit.
    #[error(
        "the job may not have been stored: no reply within {} s; repeat it with an idempotency key",
        .0.as_secs()
    )]
    TimedOut(Duration),
    /// Like [`EnqueueError::Database`], from diesel-async.
    #[cfg(feature = "diesel-async")]
    #[error("{}", not_stored(.0))]
    Diesel(#[source] diesel::result::Error),
    /// Like [`EnqueueError::Database`], from sqlx 0.8.
    #[cfg(feature = "sqlx-0_8")]
    #[error("{}", not_stored(.0))]
    Sqlx08(#[source] sqlx08::Error),
    /// Like [`EnqueueError::Database`], from sqlx 0.9.
    #[cfg(feature = "sqlx-0_9")]
    #[error("{}", not_stored(.0))]
    Sqlx(#[source] sqlx::Error),
}

impl EnqueueError {
    /// Returns true if no reply came or the session could not be used: repeating the enqueue may
    /// succeed.
    pub(crate) fn may_repeat(&self) -> bool {
        match self {
            Self::Database(error) => error.as_db_error().is_none() || ends_session(error),
            Self::NoConnection(_) | Self::TimedOut(_) => true,
            _ => false,
        }
    }

    /// Returns true if the connection that gave this error must not go back to the pool.
    pub(crate) fn ends_session(&self) -> bool {
        match self {
            Self::Database(error) => ends_session(error),
            Self::TimedOut(_) => true,
            _ => false,
        }
    }
}

impl From<tokio_postgres::Error> for EnqueueError {
    fn from(error: tokio_postgres::Error) -> Self {
        explain(error, Self::Database)
    }
}

/// The server's error of a statement that failed.
pub(crate) struct Reply<'a> {
    pub(crate) code: &'a str,
    pub(crate) message: &'a str,
    pub(crate) hint: Option<&'a str>,
}

/// The error of a driver.
pub(crate) trait DriverError: std::error::Error {
    /// Returns `None` without a reply of the server.
    fn reply(&self) -> Option<Reply<'_>>;

    /// Formats the error for a reader: the server's message, or the socket's.
    fn describe(&self) -> String {
        match (self.reply(), self.source()) {
            (Some(Reply { message, hint: Some(hint), .. }), _) => format!("{message} ({hint})"),
            (Some(Reply { message, .. }), _) => message.to_owned(),
            (None, source) => {
                let (text, source) = (self.to_string(), source.map(ToString::to_string));
                match source.filter(|source| !text.contains(source)) {
                    Some(source) => format!("{text}: {source}"),
                    None => text,
                }
            }
        }
    }
}

impl DriverError for tokio_postgres::Error {
    fn reply(&self) -> Option<Reply<'_>> {
        let db = self.as_db_error()?;
        Some(Reply { code: db.code().code(), message: db.message(), hint: db.hint() })
    }
}

/// Returns the error of an enqueue whose remedy is known, or else that of the driver.
pub(crate) fn explain<E: DriverError>(error: E, other: fn(E) -> EnqueueError) -> EnqueueError {
    let refused = error.reply().and_then(|reply| refusal(reply.code, reply.message, reply.hint));
    refused.unwrap_or_else(|| other(error))
}

fn not_stored(error: &impl DriverError) -> String {
    let why = error.describe();
    if error.reply().is_some() {
        format!("the job was not stored: {why}")
    } else {
        format!("the job may not have been stored: {why}; repeat it with an idempotency key")
    }
}

/// Maps an error of the database's own checks to an `EnqueueError`, if the remedy is known.
pub(crate) fn refusal(code: &str, message: &str, hint: Option<&str>) -> Option<EnqueueError> {
    let text = match hint {
        Some(hint) => format!("{message}. {hint}"),
        None => message.to_owned(),
    };
    match code {
        // COPY and plain INSERT hit the table's check, whose error has only its name.
        "23514" if message.contains("job_kwargs_size") => Some(EnqueueError::Refused(
            "the kwargs of a job take at most 64 KiB; store the bulk elsewhere and enqueue a \
             reference to it"
                .to_owned(),
        )),
        "LH003" => Some(EnqueueError::KeyConflict(text)),
        "LH005" => Some(EnqueueError::Full(text)),
        "LH001" | "LH002" | "LH006" => Some(EnqueueError::Refused(text)),
        // Checks of the table, kwargs that jsonb cannot hold, nesting beyond its stack, times out of
        // range.
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
    /// Another worker owns the job now. Drop the result and roll back; the other worker's result
    /// counts.
    #[error(
        "the lease on job {job} (generation {generation}) was lost: another worker may own the job now; roll \
         back and drop the result"
    )]
    #[non_exhaustive]
    LeaseLost {
        /// The job.
        job: JobId,
        /// The generation of the lost claim.
        generation: Generation,
    },
    /// Unknown whether it was recorded. Roll back and fail the attempt; it is safe to run again.
    #[error("could not record the outcome of the job: {}", describe(.0))]
    Database(#[source] tokio_postgres::Error),
    /// Like [`FinishError::Database`], from diesel-async.
    #[cfg(feature = "diesel-async")]
    #[error("could not record the outcome of the job: {}", .0.describe())]
    Diesel(#[source] diesel::result::Error),
    /// Like [`FinishError::Database`], from sqlx 0.8.
    #[cfg(feature = "sqlx-0_8")]
    #[error("could not record the outcome of the job: {}", .0.describe())]
    Sqlx08(#[source] sqlx08::Error),
    /// Like [`FinishError::Database`], from sqlx 0.9.
    #[cfg(feature = "sqlx-0_9")]
    #[error("could not record the outcome of the job: {}", .0.describe())]
    Sqlx(#[source] sqlx::Error),
}

/// Why a worker stopped other than on request.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkerError {
    /// A setting of the worker contradicts another one, or a table does not fit; the text names what to change.
    #[error("the worker cannot start: {0}")]
    Config(String),
    /// The database cannot be used.
    #[error("the worker cannot start: {0}")]
    Connect(#[from] ConnectError),
    /// The thread that renews leases ended. The jobs come back when their leases run out.
    #[error("the thread that renews leases stopped; every handler was cancelled: {0}")]
    KeeperStopped(String),
}

/// Returns what to do about a session that could not be opened.
fn remedy(error: &tokio_postgres::Error) -> &'static str {
    let code = error.code().map(SqlState::code).unwrap_or_default();
    match code {
        "3D000" => "create it, for example by createdb, or correct the name in the URL",
        "28000" => "create the role, for example by createuser, or let it log in by pg_hba.conf",
        "28P01" => "correct the password in the URL or in PGPASSWORD",
        "" if describe(error).contains("server does not support TLS") => {
            "set up TLS on the server, or add ?sslmode=disable to the URL if the network is trusted"
        }
        _ => "check that it runs and that the URL is right",
    }
}

/// Returns which role to grant, for the server's message that a right is missing.
pub fn needed_role(message: &str) -> &'static str {
    /// Functions that only read.
    const READING: [&str; 10] = [
        "queue_names",
        "finished_at",
        "latest",
        "measured",
        "mirror_numbers",
        "tag_subject",
        "vacuum_holders",
        "undeclared_schedules",
        "series",
        "is_worked",
    ];
    /// Tables with kwargs, error texts and notes.
    const CONFIDENTIAL: [&str; 6] =
        ["job", "dead_job", "finished_job", "history", "lease", "sweep_failure"];
    let mut words = message.strip_prefix("permission denied for ").unwrap_or_default().split(' ');
    match (words.next(), words.next()) {
        (Some("schema"), _) => {
            "this login has no role of Leasehold: leasehold_viewer reads, leasehold_operator changes, \
             leasehold_producer enqueues, leasehold_worker runs jobs; grant one of them to it"
        }
        (
            Some("function"),
            Some("declare_alarm_receiver" | "alarm_has_cleared" | "note_alarm_delivery"),
        ) => {
            "delivering alarms needs the role leasehold_worker: grant it to the role of this connection"
        }
        (Some("function"), Some("enqueue" | "enqueue_many" | "reindex_mirror")) => {
            "enqueueing needs the role leasehold_producer: grant it to the role of this connection"
        }
        (Some("function"), Some(name)) if READING.contains(&name) => {
            "reading needs the role leasehold_viewer: grant it to the role of this connection"
        }
        (Some("function"), Some(_)) => {
            "changing needs the role leasehold_operator: grant it to the role of this connection"
        }
        (Some("table"), Some(name)) if CONFIDENTIAL.contains(&name) => {
            "reading kwargs and error texts needs the role leasehold_operator: grant it to the role of \
             this connection"
        }
        // A viewer reads the view, but not every column of it.
        (Some("view"), Some("jobs")) => {
            "kwargs and error texts need the role leasehold_operator, reading jobs needs the role leasehold_viewer: \
             grant one of them to the role of this connection"
        }
        (Some("table" | "view" | "relation"), Some(_)) => {
            "reading needs the role leasehold_viewer: grant it to the role of this connection"
        }
        // A server that speaks another language.
        _ => {
            "reading needs the role leasehold_viewer, changing and reading kwargs and error texts need \
             leasehold_operator: grant one of them to the role of this connection"
        }
    }
}

/// Why a handle of [`crate::admin`] could not read or change anything.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdminError {
    /// The role of this connection lacks the right.
    #[error("{}; {}", .0, needed_role(.0))]
    Forbidden(String),
    /// A value is at fault; the text names the remedy. Nothing was changed.
    #[error("{0}")]
    Refused(String),
    /// The schedule is invalid.
    #[error(transparent)]
    Schedule(#[from] crate::schedule::ScheduleError),
    /// The functions and views of the engine are not in this database.
    #[error("the schema is missing or too old here ({0}); run: leasehold migrate up")]
    NoSchema(String),
    /// The server refused: nothing was changed. No reply: unknown.
    #[error("{}", describe(.0))]
    Database(#[source] tokio_postgres::Error),
    /// The pool had no connection.
    #[error("no free connection: {0}; check that the database responds, or raise max_connections")]
    NoConnection(String),
    /// Unknown whether anything was changed.
    #[error(
        "the database did not reply within {} s; a change may have taken effect: read the state before you \
         repeat it",
        .0.as_secs()
    )]
    TimedOut(Duration),
}

impl AdminError {
    /// Returns true if the connection that gave this error must not go back to the pool.
    pub(crate) fn ends_session(&self) -> bool {
        match self {
            Self::Database(error) => ends_session(error),
            Self::TimedOut(_) => true,
            _ => false,
        }
    }
}

impl From<tokio_postgres::Error> for AdminError {
    fn from(error: tokio_postgres::Error) -> Self {
        let Some(reply) = error.reply() else { return Self::Database(error) };
        match (reply.code, refusal(reply.code, reply.message, reply.hint)) {
            // A reserved name, for example, which has its own hint.
            ("42501", _) if reply.hint.is_some() => Self::Refused(error.describe()),
            ("42501", _) => Self::Forbidden(reply.message.to_owned()),
            (_, Some(EnqueueError::NoSchema(text))) => Self::NoSchema(text),
            (_, Some(EnqueueError::Refused(text))) => Self::Refused(text),
            _ => Self::Database(error),
        }
    }
}

/// A failed database call.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The server refused the statement, or the connection ended.
    #[error("{}", describe(.0))]
    Database(#[from] tokio_postgres::Error),
    /// No reply within this time. Whether the statement took effect is unknown.
    #[error("no reply within {} ms", .0.as_millis())]
    TimedOut(Duration),
    /// No session could be opened; nothing was sent.
    #[error(transparent)]
    Connect(Box<ConnectError>),
}

/// Returns true if the session that gave this error must not be used again, although it is open: the
/// next one may reach another server, or know what this one does not.
pub(crate) fn ends_session(error: &tokio_postgres::Error) -> bool {
    error.code().is_some_and(|code| {
        let code = code.code();
        match code.get(..2) {
            // The connection, or a transaction that the engine did not open; 25006: a standby.
            Some("08" | "25") => true,
            // 57P01 to 57P05: the server, the database or the session is being closed.
            Some("57") => code.starts_with("57P"),
            // The server found its own state, or its disk, broken.
            Some("XX" | "58") => true,
            // 55000: only a primary can do this. 0A000: a migration has changed the result type of a
            // prepared statement. 26000 and 42P05: a pooler lent the session to other clients
            // meanwhile.
            _ => matches!(code, "55000" | "0A000" | "26000" | "42P05"),
        }
    })
}

/// Returns true if a statement prepared on a session is missing, or another one has its name.
pub(crate) fn is_lost_statement(error: &tokio_postgres::Error) -> bool {
    error.code().is_some_and(|code| {
        *code == SqlState::INVALID_SQL_STATEMENT_NAME || *code == SqlState::DUPLICATE_PSTATEMENT
    })
}

/// Returns true if the same statement may succeed later, or on another session. Codes that end the
/// session and are not listed here (55000, 0A000) are tried once more on the next session, as everything
/// is that the server refuses.
fn is_transient(code: &str) -> bool {
    match code.get(..2) {
        // Connections; transactions that the engine did not open (25006: a standby); serialization
        // failures and deadlocks; resources; operators, shutdowns and timeouts; the system below.
        Some("08" | "25" | "40" | "53" | "57" | "58") => true,
        // 55P03: a lock timeout. 55006: another session uses the object. 26000 and 42P05: a pooler lent
        // the session to other clients. XX000: "tuple concurrently updated", for example; the other
        // codes of its class report corrupted data.
        _ => matches!(code, "55P03" | "55006" | "26000" | "42P05" | "XX000"),
    }
}

impl CallError {
    /// See [`ends_session`]. A timeout ends it too: a late reply would be taken for that of a later
    /// call.
    pub(crate) fn ends_session(&self) -> bool {
        match self {
            Self::Database(error) => ends_session(error),
            Self::TimedOut(_) => true,
            Self::Connect(_) => false,
        }
    }

    /// See [`is_lost_statement`].
    pub(crate) fn is_lost_statement(&self) -> bool {
        matches!(self, Self::Database(error) if is_lost_statement(error))
    }

    /// Returns true if the server refused the statement and will refuse it again: because of its
    /// values, a constraint, a trigger, a missing function or a missing privilege. A trigger may raise
    /// any code, so every code that is not known to be transient counts.
    pub fn is_permanent(&self) -> bool {
        match self {
            Self::Database(error) => {
                error.as_db_error().is_some_and(|db| !is_transient(db.code().code()))
            }
            Self::TimedOut(_) | Self::Connect(_) => false,
        }
    }

    /// Returns true if a timeout ended the statement, of the client, of the server, or of the server's
    /// wait for a lock. A statement about fewer rows may succeed.
    pub(crate) fn ran_out_of_time(&self) -> bool {
        match self {
            Self::Database(error) => error.code().is_some_and(|code| {
                *code == SqlState::QUERY_CANCELED || *code == SqlState::LOCK_NOT_AVAILABLE
            }),
            Self::TimedOut(_) => true,
            Self::Connect(_) => false,
        }
    }

    /// Returns true if the server refused the statement itself, so that nothing was written.
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

/// Formats a Postgres error for a reader: the server's message, or the socket's.
pub fn describe(error: &tokio_postgres::Error) -> String {
    DriverError::describe(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_right_names_the_role_that_helps() {
        for (object, role) in [
            ("view alarms", "leasehold_viewer"),
            ("function queue_names", "leasehold_viewer"),
            ("function cancel", "leasehold_operator"),
            ("table dead_job", "leasehold_operator"),
            ("function enqueue", "leasehold_producer"),
        ] {
            let text = AdminError::Forbidden(format!("permission denied for {object}")).to_string();
            let named = ["viewer", "operator", "producer"]
                .map(|role| format!("leasehold_{role}"))
                .into_iter()
                .filter(|role| text.contains(role))
                .collect::<Vec<_>>();
            assert_eq!(named, [role], "{text}");
        }
        let none = needed_role("permission denied for schema leasehold");
        assert!(none.contains("leasehold_viewer") && none.contains("leasehold_worker"), "{none}");
    }

    #[test]
    fn a25_codes_that_are_not_known_to_be_transient_are_permanent() {
        for code in ["08006", "25006", "40001", "40P01", "53100", "53200", "57014", "57P01"] {
            assert!(is_transient(code), "{code}");
        }
        for code in ["58030", "55P03", "55006", "26000", "42P05", "XX000"] {
            assert!(is_transient(code), "{code}");
        }
        for code in ["ZZ001", "27000", "3F000", "HV000", "P0001", "23514", "42501", "XX001", ""] {
            assert!(!is_transient(code), "{code}");
        }
    }
}
