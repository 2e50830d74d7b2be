//! Exit codes, one per reason, listed in `--help`, and error texts with hints.

use std::fmt;
use std::process::ExitCode;

use crate::output::{Out, Style};
use leasehold::error::{describe, needed_role};

use leasehold::{AdminError, ConnectError, EnqueueError, SchemaError, WorkerError};

/// The exit codes, for `--help`.
pub const TABLE: &str = "\
Exit codes:
  0    ok
  1    failed
  2    usage: the command line cannot be read
  3    not found
  4    refused: needs a confirmation (--yes) or a filter (--all)
  5    conflict: the current state does not allow it (running job, missing migrations)
  6    cannot reach the database
  7    timeout
  130  stopped by Ctrl-C";

/// Why a command ended without success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// The reader of standard output is gone, as with `| head`. Not a failure.
    ReaderGone = 0,
    Failed = 1,
    Usage = 2,
    NotFound = 3,
    Refused = 4,
    Conflict = 5,
    Unreachable = 6,
    Timeout = 7,
    Interrupted = 130,
}

impl From<Code> for ExitCode {
    fn from(code: Code) -> Self {
        Self::from(code as u8)
    }
}

/// What went wrong and what to do about it.
#[derive(Debug)]
pub struct Failure {
    pub code: Code,
    text: String,
    hint: Option<String>,
    /// The server denied the statement.
    denied: bool,
    /// The server ended the statement at a timeout.
    ended: bool,
}

impl Failure {
    pub fn new(code: Code, text: impl fmt::Display) -> Self {
        Self { code, text: text.to_string(), hint: None, denied: false, ended: false }
    }

    pub fn failed(text: impl fmt::Display) -> Self {
        Self::new(Code::Failed, text)
    }

    pub fn usage(text: impl fmt::Display) -> Self {
        Self::new(Code::Usage, text)
    }

    pub fn not_found(text: impl fmt::Display) -> Self {
        Self::new(Code::NotFound, text)
    }

    pub fn refused(text: impl fmt::Display) -> Self {
        Self::new(Code::Refused, text)
    }

    pub fn conflict(text: impl fmt::Display) -> Self {
        Self::new(Code::Conflict, text)
    }

    pub fn timeout(text: impl fmt::Display) -> Self {
        Self::new(Code::Timeout, text)
    }

    pub fn interrupted() -> Self {
        Self::new(Code::Interrupted, "stopped by Ctrl-C")
    }

    /// The reader of standard output has closed it.
    pub fn reader_gone() -> Self {
        Self::new(Code::ReaderGone, "")
    }

    /// Returns what went wrong.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Adds what to do next.
    pub fn hint(mut self, hint: impl fmt::Display) -> Self {
        self.hint = Some(hint.to_string());
        self
    }

    /// Prints the text, then the hint.
    pub fn report(&self, out: Out) {
        let line = |title: String, text: &str| {
            out.painted_note(format!("{title} {}", crate::text::printable(text)));
        };
        line(out.paint_note(Style::Bad, "error:"), &self.text);
        if let Some(hint) = &self.hint {
            line(out.paint_note(Style::Strong, " hint:"), hint);
        }
    }

    /// Replaces the names of SQL parameters by those of options.
    pub fn reworded(mut self, words: &[(&str, &str)]) -> Self {
        for (parameter, option) in words {
            self.text = self.text.replace(parameter, option);
        }
        self
    }

    /// Names the database that could not be reached.
    pub fn at(self, address: &str) -> Self {
        match (self.code, &self.hint) {
            (Code::Unreachable, None) => self.hint(format!("tried {address}")),
            _ => self,
        }
    }

    /// True if this role lacks the rights.
    pub fn is_denied(&self) -> bool {
        self.denied
    }

    /// True if the server ended the statement because it took too long.
    pub fn was_ended(&self) -> bool {
        self.ended
    }

    #[cfg(test)]
    pub fn next_step(&self) -> Option<&str> {
        self.hint.as_deref()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Self {
        if let ConnectError::Schema(error) = error {
            return error.into();
        }
        let code = match &error {
            ConnectError::BadUrl(_) | ConnectError::Settings(_) => Code::Usage,
            ConnectError::Unreachable(_) | ConnectError::TimedOut(_) | ConnectError::Tls(_) => {
                Code::Unreachable
            }
            ConnectError::OldServer { .. } | ConnectError::Replica | ConnectError::Encoding(_) => {
                Code::Conflict
            }
            _ => Code::Failed,
        };
        Self::new(code, error)
    }
}

impl From<SchemaError> for Failure {
    fn from(error: SchemaError) -> Self {
        let hint = match &error {
            SchemaError::Database(source) if is_denied(source) => {
                source.as_db_error().map(|refusal| needed_role(refusal.message()))
            }
            _ => None,
        };
        let failure = Self::new(schema_code(&error), error);
        match hint {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }
}

fn schema_code(error: &SchemaError) -> Code {
    match error {
        SchemaError::Missing
        | SchemaError::Old { .. }
        | SchemaError::New { .. }
        | SchemaError::OldFunctions
        | SchemaError::Changed { .. } => Code::Conflict,
        SchemaError::Failed { source, .. } | SchemaError::Database(source) => database_code(source),
        _ => Code::Failed,
    }
}

impl From<EnqueueError> for Failure {
    fn from(error: EnqueueError) -> Self {
        let code = match &error {
            EnqueueError::Refused(_) | EnqueueError::Arguments(_) => Code::Usage,
            EnqueueError::KeyConflict(_) | EnqueueError::NoSchema(_) => Code::Conflict,
            EnqueueError::Database(source) => database_code(source),
            EnqueueError::NoConnection(_) | EnqueueError::TimedOut(_) => Code::Unreachable,
            _ => Code::Failed,
        };
        let denied = matches!(&error, EnqueueError::Database(source) if is_denied(source));
        let ended = matches!(&error, EnqueueError::Database(source) if was_ended(source));
        // A reserved name is denied to every producer, and the error says what to do.
        let has_hint = matches!(&error, EnqueueError::Database(source)
            if source.as_db_error().is_some_and(|error| error.hint().is_some()));
        let failure = Self { denied, ended, ..Self::new(code, error) };
        if denied && !has_hint {
            return failure
                .hint("enqueueing needs the role leasehold_producer: grant it to this login");
        }
        failure
    }
}

impl From<AdminError> for Failure {
    fn from(error: AdminError) -> Self {
        let code = match &error {
            AdminError::Refused(_) | AdminError::Schedule(_) => Code::Usage,
            AdminError::NoSchema(_) => Code::Conflict,
            AdminError::Database(source) => database_code(source),
            AdminError::NoConnection(_) => Code::Unreachable,
            AdminError::TimedOut(_) => Code::Timeout,
            _ => Code::Failed,
        };
        let denied = matches!(error, AdminError::Forbidden(_));
        let ended = matches!(&error, AdminError::Database(source) if was_ended(source));
        Self { denied, ended, ..Self::new(code, error) }
    }
}

impl From<WorkerError> for Failure {
    fn from(error: WorkerError) -> Self {
        match error {
            WorkerError::Connect(error) => error.into(),
            WorkerError::Config(text) => Self::usage(text),
            error => Self::failed(error),
        }
    }
}

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Self {
        let (denied, ended) = (is_denied(&error), was_ended(&error));
        let failure = Self { denied, ended, ..Self::new(database_code(&error), describe(&error)) };
        match error.as_db_error() {
            Some(refusal) if denied && refusal.hint().is_none() => {
                failure.hint(needed_role(refusal.message()))
            }
            _ => failure,
        }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::failed(format!("{error:#}"))
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::failed(error)
    }
}

fn is_denied(error: &tokio_postgres::Error) -> bool {
    error.code() == Some(&tokio_postgres::error::SqlState::INSUFFICIENT_PRIVILEGE)
}

fn was_ended(error: &tokio_postgres::Error) -> bool {
    error.code() == Some(&tokio_postgres::error::SqlState::QUERY_CANCELED)
}

/// Maps a database error: with a response of the server the statement failed, without one the server is
/// unreachable. PB007 and PB008 are the codes with which the paste service's functions reject an order.
fn database_code(error: &tokio_postgres::Error) -> Code {
    match error.as_db_error() {
        Some(refusal) if refusal.code().code() == "PB007" => Code::NotFound,
        Some(refusal) if refusal.code().code() == "PB008" => Code::Conflict,
        Some(_) => Code::Failed,
        None => Code::Unreachable,
    }
}
