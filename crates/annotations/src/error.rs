//! What can be wrong with a request or with the service. HTTP maps these to statuses in one place.

use std::time::Duration;

use leasehold::error::{ConnectError, SchemaError};

/// Why a request was refused. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// The note is unknown, deleted, or not visible to this user; the user does not learn which.
    #[error("there is no such annotation, or not any more")]
    NotFound,
    #[error("there is no such person")]
    NoSuchPerson,
    #[error("there are no notes on this page")]
    NoSuchPage,
    /// Also for other bulk operations. Finished ones are deleted after a week.
    #[error("there is no such re-index, or not any more")]
    NoSuchReindex,
    #[error("there is no such group for you")]
    NoSuchGroup,
    /// Also returned to an operator who adds a member.
    #[error("a person is in up to 1000 groups, and leaves one before they enter another")]
    TooManyGroups,
    #[error(
        "you own this group and others are in it: hand it over to one of them first, or move its notes to another group"
    )]
    OwnerLeaves,
    /// The user has as many open invitations as allowed, from one owner or in all.
    #[error("this person has as many open invitations as they may have; they decide first")]
    TooManyInvitations,
    #[error("you have blocked 1000 people, and no more can be blocked; let one of them go first")]
    TooManyBlocked,
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
    /// The account was deleted while the request was in flight.
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
    /// It would lack the notes that users search for, or have the notes of another database.
    #[error(
        "the search index {place} is not the one that this database is used with: that is {known}, since {since}"
    )]
    OtherIndex { place: String, known: String, since: String },
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

/// The database cannot answer at the moment. Clients are asked to retry; operators see the reason.
#[derive(Debug, thiserror::Error)]
pub enum Unavailable {
    #[error("a statement failed: {}", leasehold::error::describe(.0))]
    Database(#[source] tokio_postgres::Error),
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
    #[error("cannot connect: {0}")]
    NoConnection(String),
}
