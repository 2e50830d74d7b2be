//! What can be wrong with a request or with the service. HTTP maps these to statuses in one place.

use std::time::Duration;

use leasehold::error::{AdminError, ConnectError, SchemaError};

/// Why a request was refused. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// The note is unknown, deleted, or not visible to this user; the user does not learn which.
    #[error("there is no such note, or it was deleted")]
    NotFound,
    #[error("there is no such user")]
    NoSuchPerson,
    #[error("there is no note about this page")]
    NoSuchPage,
    /// Also for other bulk operations. Finished ones are deleted after a week.
    #[error("there is no such re-index; finished ones are deleted after a week")]
    NoSuchReindex,
    #[error("there is no such group, or you may not use it")]
    NoSuchGroup,
    /// Also returned to an operator who adds a member.
    #[error("a user can be in 1000 groups at most; leave one before joining another")]
    TooManyGroups,
    #[error(
        "you own this group and it has other members; hand it over to one of them, or move its notes to another group, before you leave"
    )]
    OwnerLeaves,
    /// The user has as many open invitations as allowed, from one owner or in all.
    #[error(
        "this user has too many open invitations; invite them again after they have answered some"
    )]
    TooManyInvitations,
    #[error("you have blocked 1000 users, which is the limit; unblock one first")]
    TooManyBlocked,
    #[error("this belongs to another user")]
    NotYours,
    #[error("other users have replied, so the conversation cannot move to another group")]
    HasReplies,
    #[error(
        "a reply is in the group of the note that it answers; leave out the group, or create a new note in the other group"
    )]
    ReplyElsewhere,
    #[error("the note was changed meanwhile; read it again before you change it")]
    ChangedMeanwhile,
    /// The account was deleted while the request was in flight.
    #[error("this account was deleted")]
    AccountGone,
    #[error("this name is taken")]
    NameTaken,
    #[error("this Idempotency-Key was used for another request; use a new key")]
    KeyReused,
    /// The text names what is wrong.
    #[error("{0}")]
    Malformed(String),
    #[error("the database does not respond; try again")]
    Unavailable(#[source] Unavailable),
}

impl Refused {
    pub(crate) fn malformed(text: impl Into<String>) -> Self {
        Self::Malformed(text.into())
    }
}

impl From<AdminError> for Refused {
    fn from(error: AdminError) -> Self {
        match error {
            AdminError::Database(error) => Self::Unavailable(Unavailable::Database(error)),
            AdminError::TimedOut(limit) => Self::Unavailable(Unavailable::TimedOut(limit)),
            AdminError::NoConnection(why) => Self::Unavailable(Unavailable::NoConnection(why)),
            // A right that is missing, with the role to grant.
            error => Self::Malformed(error.to_string()),
        }
    }
}

/// Why the service did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("{0}")]
    Settings(String),
    #[error("the tables of the annotation service are missing, or of another release")]
    NotMigrated,
    #[error("the search index cannot be opened: {0}")]
    Index(String),
    /// It would lack the notes that users search for, or have the notes of another database.
    #[error(
        "the search index {place} does not belong to this database, which uses {known} since {since}"
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

/// The database does not respond at the moment. Clients are asked to retry; operators see the reason.
#[derive(Debug, thiserror::Error)]
pub enum Unavailable {
    #[error("a statement failed: {}", leasehold::error::describe(.0))]
    Database(#[source] tokio_postgres::Error),
    #[error("no response within {0:?}")]
    TimedOut(Duration),
    #[error("cannot connect: {0}")]
    NoConnection(String),
}
