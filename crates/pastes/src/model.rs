//! What goes into the service and what comes out.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;

use crate::code::{OwnerToken, ShortCode};

/// A paste to be made.
#[derive(Clone, Debug, Default)]
pub struct NewPaste {
    pub content: Bytes,
    /// `None`: the service's default.
    pub expires_in: Option<Duration>,
    pub alias: Option<String>,
    pub language: Option<String>,
    /// Readable once, and only by someone who asks for it.
    pub burn: bool,
    pub owner: Option<OwnerToken>,
    /// Repeating a request with its key gives the same answer and makes no second paste.
    pub idempotency_key: Option<String>,
    pub client: Option<IpAddr>,
}

/// Where the upload of a paste has got to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    InProgress,
    Processed,
    Failed,
}

impl Status {
    pub const ALL: [Self; 3] = [Self::InProgress, Self::Processed, Self::Failed];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::InProgress => "IN_PROGRESS",
            Self::Processed => "PROCESSED",
            Self::Failed => "FAILED",
        }
    }

    pub(crate) fn of(word: &str) -> Self {
        match word {
            "PROCESSED" => Self::Processed,
            "FAILED" => Self::Failed,
            _ => Self::InProgress,
        }
    }
}

/// The answer to a create.
#[derive(Clone, Debug)]
pub struct Created {
    pub code: ShortCode,
    pub delete_token: String,
    pub status: Status,
    pub expires_at: Timestamp,
    /// The request's key had been seen before; this is the paste that it made then.
    pub replayed: bool,
}

/// What a reader finds.
#[derive(Clone, Debug)]
pub enum Reading {
    Ready(Arc<Paste>),
    /// The bytes are safe but not yet where readers are served from.
    Uploading {
        retry_after: Duration,
    },
    /// Readable once: the reader must ask for it with [`crate::Pastes::burn`].
    Burns {
        language: Option<String>,
        size: usize,
        expires_at: Timestamp,
    },
}

/// A paste with its bytes.
#[derive(Clone, Debug)]
pub struct Paste {
    pub code: ShortCode,
    pub content: Bytes,
    pub language: Option<String>,
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
    /// How long it lives on, by the database's clock. No copy may be kept for longer.
    pub life: Duration,
    pub content_id: i64,
}

/// One of a person's own pastes.
#[derive(Clone, Debug)]
pub struct Listed {
    pub code: ShortCode,
    pub status: Status,
    pub language: Option<String>,
    pub size: usize,
    pub burn: bool,
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
}

/// A reader's complaint.
#[derive(Clone, Debug)]
pub struct Report {
    pub reason: String,
    pub contact: Option<String>,
}

/// A complaint as the operator sees it.
#[derive(Clone, Debug)]
pub struct Reported {
    pub id: i64,
    pub code: String,
    pub content_hash: String,
    pub reason: String,
    pub contact: Option<String>,
    pub reported_at: Timestamp,
    /// The paste is still there.
    pub alive: bool,
}

/// What a takedown did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TakenDown {
    /// Pastes that are gone now: the one named, and with a ban every copy of its bytes.
    pub pastes: u64,
    pub banned: bool,
}

/// Bytes that nobody may store here.
#[derive(Clone, Debug)]
pub struct Ban {
    pub content_hash: String,
    pub reason: String,
    pub banned_at: Timestamp,
}
