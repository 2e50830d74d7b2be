//! What travels as JSON between readers who complain, operators, and us.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::model::{Ban, Reported};

/// What is wrong with a paste.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReportRequest {
    #[schema(min_length = 1, max_length = 2000, pattern = "^[^\\u0000]*$")]
    pub reason: String,
    /// Where you can be reached.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 200, pattern = "^[^\\u0000]*$")]
    pub contact: Option<String>,
}

/// A paste that must go.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TakedownRequest {
    #[schema(pattern = "^[A-Za-z0-9_-]{1,32}$")]
    pub code: String,
    #[schema(min_length = 1, max_length = 2000, pattern = "^[^\\u0000]*$")]
    pub reason: String,
    /// Also takes down every copy of the same bytes, and refuses them from now on.
    #[serde(default)]
    pub ban: bool,
}

/// What a takedown did.
#[derive(Serialize, ToSchema)]
pub struct TakedownDone {
    pub pastes: u64,
    pub banned: bool,
}

/// Why content is banned.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BanRequest {
    #[schema(min_length = 1, max_length = 2000, pattern = "^[^\\u0000]*$")]
    pub reason: String,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReportEntry {
    pub id: i64,
    pub code: String,
    pub content_hash: String,
    pub reason: String,
    pub contact: Option<String>,
    #[schema(value_type = String, format = DateTime)]
    pub reported_at: Timestamp,
    /// The paste is still there.
    pub alive: bool,
}

impl From<Reported> for ReportEntry {
    fn from(reported: Reported) -> Self {
        let Reported { id, code, content_hash, reason, contact, reported_at, alive } = reported;
        Self { id, code, content_hash, reason, contact, reported_at, alive }
    }
}

#[derive(Serialize, ToSchema)]
pub struct Reports {
    pub reports: Vec<ReportEntry>,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BanEntry {
    pub content_hash: String,
    pub reason: String,
    #[schema(value_type = String, format = DateTime)]
    pub banned_at: Timestamp,
}

impl From<Ban> for BanEntry {
    fn from(Ban { content_hash, reason, banned_at }: Ban) -> Self {
        Self { content_hash, reason, banned_at }
    }
}

#[derive(Serialize, ToSchema)]
pub struct Bans {
    pub bans: Vec<BanEntry>,
}
