//! The JSON of reports and of the operator's requests and responses.

use jiff::Timestamp;
use serde::de::{self, Deserializer};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::model::{Ban, Moderated, Reported, TakenDown};

/// A report about a paste.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReportRequest {
    #[schema(min_length = 1, max_length = 2000, pattern = "^[^\\u0000]*$")]
    pub reason: String,
    /// Where the operators can reach you.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 200, pattern = "^[^\\u0000]*$")]
    pub contact: Option<String>,
    /// The `id` of the paste that you read. Without it the report is about the paste that has the code
    /// now.
    #[serde(default)]
    pub paste: Option<Uuid>,
}

/// A paste to take down.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TakedownRequest {
    /// The report: takes down the paste that it is about, and no later paste of the same name.
    #[serde(default, deserialize_with = "id")]
    #[schema(minimum = 1)]
    pub report: Option<i64>,
    /// The code, instead of a report.
    #[serde(default)]
    #[schema(pattern = "^[A-Za-z0-9_-]{1,32}$")]
    pub code: Option<String>,
    /// With a code: the SHA-256 that the paste must have. Without it, a name that was reported for
    /// another paste is refused.
    #[serde(default)]
    #[schema(pattern = "^[0-9a-f]{64}$")]
    pub content_hash: Option<String>,
    #[schema(min_length = 1, max_length = 2000, pattern = "^[^\\u0000]*$")]
    pub reason: String,
    /// Also take down every copy of the same bytes, and refuse them from now on.
    #[serde(default)]
    pub ban: bool,
}

/// 17.0 is a whole number in JSON.
fn id<'de, D: Deserializer<'de>>(input: D) -> Result<Option<i64>, D::Error> {
    /// From here on, a floating-point number cannot represent every whole number.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let Some(number) = Option::<serde_json::Number>::deserialize(input)? else { return Ok(None) };
    let float = number.as_f64().filter(|n| n.fract() == 0.0 && n.abs() < EXACT);
    let id = number.as_i64().or(float.map(|n| n as i64));
    id.map(Some).ok_or_else(|| de::Error::custom("the id of a report is a whole number"))
}

/// What a takedown did.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TakedownDone {
    pub code: String,
    pub content_hash: String,
    /// How many pastes it ended.
    pub pastes: u64,
    pub banned: bool,
}

impl From<TakenDown> for TakedownDone {
    fn from(TakenDown { code, content_hash, pastes, banned }: TakenDown) -> Self {
        Self { code, content_hash, pastes, banned }
    }
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
    /// The reported paste has not ended. Another paste of the same name does not count.
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
    /// Send it as `before` to get the next page; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<i64>,
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
    fn from(Ban { content_hash, reason, banned_at, .. }: Ban) -> Self {
        Self { content_hash, reason, banned_at }
    }
}

#[derive(Serialize, ToSchema)]
pub struct Bans {
    pub bans: Vec<BanEntry>,
    /// Send it as `before` to get the next page; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<i64>,
}

/// An action of an operator.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ActEntry {
    /// `takedown`, `ban` or `unban`.
    pub action: String,
    pub code: Option<String>,
    pub content_hash: String,
    pub report: Option<i64>,
    /// How many pastes it ended.
    pub pastes: u64,
    pub banned: bool,
    pub who: String,
    pub reason: Option<String>,
    #[schema(value_type = String, format = DateTime)]
    pub acted_at: Timestamp,
}

impl From<Moderated> for ActEntry {
    fn from(act: Moderated) -> Self {
        let Moderated {
            action,
            code,
            content_hash,
            report,
            pastes,
            banned,
            who,
            why,
            acted_at,
            ..
        } = act;
        Self { action, code, content_hash, report, pastes, banned, who, reason: why, acted_at }
    }
}

#[derive(Serialize, ToSchema)]
pub struct Moderation {
    pub acts: Vec<ActEntry>,
    /// Send it as `before` to get the next page; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<i64>,
}
