//! The input and output types of the service.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use uuid::Uuid;

use crate::code::{BadCode, OwnerToken, ShortCode};

/// A paste to create.
#[derive(Clone, Debug, Default)]
pub struct NewPaste {
    pub content: Bytes,
    /// `None`: the service's default.
    pub expires_in: Option<Duration>,
    pub alias: Option<String>,
    pub language: Option<String>,
    /// Readable once, and only on an explicit request.
    pub burn: bool,
    pub owner: Option<OwnerToken>,
    /// Repeating a request with its key returns the same result and creates no second paste.
    pub idempotency_key: Option<String>,
    pub client: Option<IpAddr>,
}

/// The state of a paste's upload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    InProgress,
    Processed,
    Failed,
}

impl Status {
    pub const ALL: &'static [Self] = &[Self::InProgress, Self::Processed, Self::Failed];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::InProgress => "IN_PROGRESS",
            Self::Processed => "PROCESSED",
            Self::Failed => "FAILED",
        }
    }

    pub(crate) fn of(status: &str) -> Self {
        match status {
            "PROCESSED" => Self::Processed,
            "FAILED" => Self::Failed,
            _ => Self::InProgress,
        }
    }
}

/// The result of a create.
#[derive(Clone, Debug)]
pub struct Created {
    pub code: ShortCode,
    pub delete_token: String,
    pub status: Status,
    pub expires_at: Timestamp,
    /// The request's key was seen before; this is the paste that it created then.
    pub replayed: bool,
}

/// What a reader finds.
#[derive(Clone, Debug)]
pub enum Reading {
    Ready(Arc<Paste>),
    /// The bytes are committed but not yet in the store.
    Uploading {
        paste_id: Uuid,
        retry_after: Duration,
    },
    /// Readable once: the reader must request it with [`crate::Pastes::burn`].
    Burns {
        paste_id: Uuid,
        language: Option<String>,
        size: usize,
        expires_at: Timestamp,
    },
}

/// A paste with its bytes.
#[derive(Clone, Debug)]
pub struct Paste {
    pub code: ShortCode,
    /// The paste's identity: a name can be used again.
    pub paste_id: Uuid,
    pub content: Bytes,
    pub language: Option<String>,
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
    /// The time until it expires, by the database's clock. No copy may be kept for longer.
    pub life: Duration,
    pub content_id: i64,
}

/// One of an owner's pastes.
#[derive(Clone, Debug)]
pub struct Listed {
    pub code: ShortCode,
    pub paste_id: Uuid,
    pub status: Status,
    pub language: Option<String>,
    pub size: usize,
    pub burn: bool,
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
}

/// Where a list continues: after the paste that was created at this time under this code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    pub created_at: Timestamp,
    pub code: ShortCode,
}

impl Cursor {
    /// Returns the cursor after this paste.
    pub fn after(listed: &Listed) -> Self {
        Self { created_at: listed.created_at, code: listed.code.clone() }
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.created_at.as_microsecond(), self.code)
    }
}

impl FromStr for Cursor {
    type Err = BadCode;

    fn from_str(text: &str) -> Result<Self, BadCode> {
        let (at, code) = text.split_once('.').ok_or(BadCode)?;
        let at = at.parse().map_err(|_| BadCode)?;
        let created_at = Timestamp::from_microsecond(at).map_err(|_| BadCode)?;
        Ok(Self { created_at, code: code.parse()? })
    }
}

/// A reader's report.
#[derive(Clone, Debug)]
pub struct Report {
    pub reason: String,
    pub contact: Option<String>,
    /// The paste that the reader saw. `None`: whichever paste has the name now.
    pub paste_id: Option<Uuid>,
}

/// A report as the operator sees it.
#[derive(Clone, Debug)]
pub struct Reported {
    pub id: i64,
    pub code: String,
    pub content_hash: String,
    pub reason: String,
    pub contact: Option<String>,
    pub reported_at: Timestamp,
    /// The reported paste is still there.
    pub alive: bool,
}

/// What an operator takes down.
#[derive(Clone, Debug)]
pub enum Target {
    /// The paste that a report is about.
    Report(i64),
    /// The paste under a code; with a hash only if it has this SHA-256.
    Code { code: ShortCode, content_hash: Option<String> },
}

/// Who acts as the operator, and why.
#[derive(Clone, Debug)]
pub struct Act {
    pub who: String,
    pub why: Option<String>,
}

/// What a takedown did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakenDown {
    pub code: String,
    pub content_hash: String,
    /// How many pastes this ended: the one named, and with a ban every copy of its bytes.
    pub pastes: u64,
    pub banned: bool,
}

/// Bytes that the service refuses to store.
#[derive(Clone, Debug)]
pub struct Ban {
    pub id: i64,
    pub content_hash: String,
    pub reason: String,
    pub banned_at: Timestamp,
}

/// Something that an operator did.
#[derive(Clone, Debug)]
pub struct Moderated {
    pub id: i64,
    /// `takedown`, `ban` or `unban`.
    pub action: String,
    pub code: Option<String>,
    pub content_hash: String,
    pub report: Option<i64>,
    /// How many pastes it ended.
    pub pastes: u64,
    pub banned: bool,
    pub who: String,
    pub why: Option<String>,
    pub acted_at: Timestamp,
}
