//! What can be wrong with a request, and with us. HTTP makes statuses of these in one place.

use std::time::Duration;

use leasehold::error::{ConnectError, SchemaError};

/// Why something was not done. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// A note that is unknown, deleted, or not for this person's eyes: nobody learns which.
    #[error("there is no such annotation, or not any more")]
    NotFound,
    #[error("there is no such person")]
    NoSuchPerson,
    #[error("there are no notes on this page")]
    NoSuchPage,
    /// Nor any other work on many notes. What is over is forgotten after a week.
    #[error("there is no such re-index, or not any more")]
    NoSuchReindex,
    #[error("there is no such group for you")]
    NoSuchGroup,
    /// Said to whoever lets somebody in, too.
    #[error("a person is in up to 1000 groups, and leaves one before they enter another")]
    TooManyGroups,
    #[error("somebody else wrote this")]
    NotYours,
    #[error("a conversation stays with the readers for whom others have replied")]
    HasReplies,
    #[error(
        "a reply is in the group of what it answers; leave out the group, or begin a note of its own there"
    )]
    ReplyElsewhere,
    #[error("this was changed meanwhile; look at it as it is now, then change it again")]
    ChangedMeanwhile,
    /// The person left while this was on its way.
    #[error("this account is not there any more")]
    AccountGone,
    #[error("this name is taken")]
    NameTaken,
    #[error("this key came with something else before; use a new key for something new")]
    KeyReused,
    /// The text says what is wrong with it.
    #[error("{0}")]
    Malformed(String),
    #[error("the database does not answer")]
    Unavailable(#[source] Unavailable),
}

impl Refused {
    pub(crate) fn malformed(text: impl Into<String>) -> Self {
        Self::Malformed(text.into())
    }
}

/// Why the service did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("{0}")]
    Settings(String),
    #[error("the tables of the annotation service are not there, or of another release")]
    NotMigrated,
    #[error("the search index cannot be opened: {0}")]
    Index(String),
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
}

impl From<tokio_postgres::Error> for StartError {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Unavailable(Unavailable::Database(error))
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

impl From<Refused> for StartError {
    fn from(error: Refused) -> Self {
        match error {
            Refused::Unavailable(why) => Self::Unavailable(why),
            other => Self::Settings(other.to_string()),
        }
    }
}

/// The database cannot be asked just now. Clients are told to come back; operators see why.
#[derive(Debug, thiserror::Error)]
pub enum Unavailable {
    #[error("a statement failed: {}", leasehold::error::describe(.0))]
    Database(#[source] tokio_postgres::Error),
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
    #[error("cannot connect: {0}")]
    NoConnection(String),
}
