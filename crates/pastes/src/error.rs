//! Errors of requests and of the service. One place maps them to HTTP statuses.

use std::time::Duration;

use leasehold::duration;
use leasehold::error::{ConnectError, SchemaError};

/// Why a paste was not created. Nothing was stored.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    #[error("a paste needs at least one byte")]
    Empty,
    #[error("the paste has {size} bytes; the limit here is {limit}")]
    TooLarge { size: usize, limit: usize },
    #[error(
        "a custom link (alias) has 3 to 32 letters, digits, dashes and underscores, and is none of our own paths"
    )]
    BadAlias,
    #[error("the custom link {0:?} is taken")]
    AliasTaken(String),
    #[error("the lifetime of a paste must be between {} and {} here", duration::verbose(*least), duration::verbose(*most))]
    BadExpiry { least: Duration, most: Duration },
    #[error("the language {0:?} is not known")]
    BadLanguage(String),
    #[error("an idempotency key must have 1 to 200 printable characters")]
    BadKey,
    #[error("this idempotency key was sent with another paste; send a new key with a new paste")]
    KeyReused,
    /// The request's key created a paste, and that paste has ended.
    #[error("the paste of this idempotency key has ended; send a new key with a new paste")]
    Gone,
    #[error("this content was taken down and cannot be stored here")]
    Banned,
    #[error("too many bytes wait for their upload; try again in {}", duration::compact(*retry_after))]
    StagingFull { retry_after: Duration },
    #[error("the service stores at most {quota} bytes, and they are used up")]
    QuotaFull { quota: u64 },
    #[error("the owner token is not known; create a new one with POST /api/v1/owners")]
    UnknownOwner,
    #[error("the database does not respond")]
    Unavailable(#[source] Unavailable),
}

/// Why there is nothing to show.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// Unknown, expired, deleted or failed: the reader does not learn which.
    #[error("there is no such paste, or it has ended")]
    NotFound,
    /// The paste is live, but its bytes are not available right now.
    #[error("the store does not respond; try again in {}", duration::compact(*retry_after))]
    StoreDown { retry_after: Duration },
    #[error("the database does not respond")]
    Unavailable(#[source] Unavailable),
}

/// Why a paste was not deleted.
#[derive(Debug, thiserror::Error)]
pub enum DeleteError {
    #[error("this token does not belong to the paste")]
    NotYours,
    #[error("the database does not respond")]
    Unavailable(#[source] Unavailable),
}

/// Why an operator's request was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum OperateError {
    #[error("there is no such paste, or it has ended")]
    NotFound,
    /// The name now belongs to another paste than the one that the operator means.
    #[error("another paste has this name now; nothing was taken down")]
    AnotherPaste,
    #[error("a content hash must have 64 hexadecimal digits")]
    BadHash,
    #[error("the database does not respond")]
    Unavailable(#[source] Unavailable),
}

/// Why the service does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("{0}")]
    Settings(String),
    #[error("the store cannot be used: {0}")]
    Store(String),
    /// The store does not have the id that this database expects.
    #[error("{}", another_store(location, known.as_deref()))]
    AnotherStore { location: String, known: Option<String> },
    #[error(
        "the tables of the paste service are missing; run: leasehold migrate up --service pastes"
    )]
    NotMigrated,
    #[error("the database does not respond")]
    Unavailable(#[source] Unavailable),
}

fn another_store(location: &str, known: Option<&str>) -> String {
    match known {
        Some(known) => {
            format!("{location} is not the store of this database: its content is in {known}")
        }
        None => format!("{location} is the store of another database"),
    }
}

impl From<ConnectError> for StartError {
    fn from(error: ConnectError) -> Self {
        match error {
            ConnectError::Schema(SchemaError::Database(error)) => error.into(),
            ConnectError::Schema(_) => Self::NotMigrated,
            error => Self::Unavailable(Unavailable::NoConnection(error.to_string())),
        }
    }
}

/// The database is unreachable or returned an error. Readers never see its text.
#[derive(Debug, thiserror::Error)]
pub enum Unavailable {
    #[error("no connection: {0}")]
    NoConnection(String),
    #[error("{0}")]
    Database(#[from] tokio_postgres::Error),
    #[error("no reply within {}", duration::compact(*.0))]
    TimedOut(Duration),
    #[error("unexpected reply of the database: {0}")]
    Reply(&'static str),
}

macro_rules! from_unavailable {
    ($($error:ident),*) => {$(
        impl From<Unavailable> for $error {
            fn from(error: Unavailable) -> Self {
                Self::Unavailable(error)
            }
        }

        impl From<tokio_postgres::Error> for $error {
            fn from(error: tokio_postgres::Error) -> Self {
                Self::Unavailable(Unavailable::Database(error))
            }
        }
    )*};
}
from_unavailable!(CreateError, ReadError, DeleteError, OperateError, StartError);
