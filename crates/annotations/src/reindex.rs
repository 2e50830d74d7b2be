//! Re-indexing on request: of a user, a group, a page, a time range, some notes, or everything.
//!
//! A re-index changes no row. It asks for a comparison of each note with the index, at a lower priority
//! than live saves; `force` also writes notes that are equal.

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio_postgres::types::Type;

use crate::error::Refused;
use crate::id::AnnotationId;
use crate::lane::REINDEX_PRIORITIES;
use crate::save::canonical;
use crate::service::Annotations;

/// The most notes that one request may name.
pub const MOST_IDS: usize = 1000;

/// What to compare.
#[derive(Clone, Debug)]
pub enum What {
    User(String),
    Group(String),
    Document(String),
    /// Changed in this time range; `until` is excluded.
    Time {
        since: Option<Timestamp>,
        until: Option<Timestamp>,
    },
    Ids(Vec<AnnotationId>),
    All,
}

impl What {
    /// Returns the tag of its jobs, for operators and metrics.
    pub fn tag(&self) -> &'static str {
        match self {
            Self::User(_) => "reindex_user",
            Self::Group(_) => "reindex_group",
            Self::Document(_) => "reindex_document",
            Self::Time { .. } => "reindex_time",
            Self::Ids(_) => "reindex_ids",
            Self::All => "reindex_all",
        }
    }

    /// Returns the default priority: a single user, group or page comes first.
    pub fn usual_priority(&self) -> i32 {
        match self {
            Self::User(_) | Self::Group(_) | Self::Document(_) => 100,
            Self::Time { .. } | Self::Ids(_) | Self::All => 1000,
        }
    }
}

/// The progress of a bulk operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    pub id: i64,
    pub tag: String,
    /// Notes that it covers. Unknown before the first step, and from a million on.
    pub total: Option<i64>,
    /// Notes that its steps have handled so far.
    pub rows: i64,
    /// Their jobs that are not completed.
    pub waiting: i64,
    /// All notes were handled.
    pub finished: bool,
    pub cancelled: bool,
}

impl Progress {
    /// Returns whether nothing is left to do.
    pub fn is_over(&self) -> bool {
        self.cancelled || (self.finished && self.waiting == 0)
    }

    /// Returns the number of notes whose jobs are completed, too.
    pub fn done(&self) -> i64 {
        (self.rows - self.waiting).max(0)
    }
}

impl Annotations {
    /// Returns the number of notes that a re-index would cover.
    pub async fn count_reindex(&self, what: &What) -> Result<i64, Refused> {
        let filter = self.filter(what).await?;
        let sql = "select count(*) from annotations.covered_notes($1)";
        let row = self.slow_row(sql, &[(&filter, Type::JSONB)]).await?;
        Ok(row.get(0))
    }

    pub async fn reindex(
        &self,
        what: &What,
        priority: Option<i32>,
        force: bool,
    ) -> Result<i64, Refused> {
        let filter = self.filter(what).await?;
        let priority = priority.unwrap_or(what.usual_priority());
        if !REINDEX_PRIORITIES.contains(&priority) {
            let (least, most) = REINDEX_PRIORITIES.into_inner();
            return Err(Refused::malformed(format!(
                "priority is {priority}; a re-index has a priority from {least} to {most}"
            )));
        }
        let row = self
            .row(
                "select annotations.begin_bulk($1, $2, $3, $4)",
                &[
                    (&what.tag(), Type::TEXT),
                    (&filter, Type::JSONB),
                    (&priority, Type::INT4),
                    (&force, Type::BOOL),
                ],
            )
            .await?;
        Ok(row.get(0))
    }

    pub async fn progress(&self, id: i64) -> Result<Progress, Refused> {
        let sql = "select * from annotations.bulk_progress($1)";
        let rows = self.slow_rows(sql, &[(&id, Type::INT8)]).await?;
        let row = rows.first().ok_or(Refused::NoSuchReindex)?;
        Ok(Progress {
            id,
            tag: row.get(0),
            total: row.get(1),
            rows: row.get(2),
            waiting: row.get(3),
            finished: row.get(4),
            cancelled: row.get(5),
        })
    }

    /// Stops a re-index; one that is over stays as it is. Returns the number of jobs that were removed.
    pub async fn cancel_bulk(&self, id: i64) -> Result<i64, Refused> {
        let row = self.slow_row("select annotations.cancel_bulk($1)", &[(&id, Type::INT8)]).await?;
        match row.get::<_, Option<i64>>(0) {
            None => Err(Refused::NoSuchReindex),
            Some(-1) => Err(Refused::malformed(
                "only a re-index can be stopped; a rename, a deletion of an account and a move of a group run to their end",
            )),
            Some(removed) => Ok(removed),
        }
    }

    /// Returns the filter for the SQL function. It resolves names to ids once, so that a later rename
    /// changes nothing.
    async fn filter(&self, what: &What) -> Result<Value, Refused> {
        Ok(match what {
            What::User(name) => json!({ "user_id": self.user(name).await?.id }),
            What::Group(id) => {
                let sql = "select id from annotations.user_group where id = $1";
                let rows = self.rows(sql, &[(id, Type::TEXT)]).await?;
                let row = rows.first().ok_or(Refused::NoSuchGroup)?;
                json!({ "group_id": row.get::<_, String>(0) })
            }
            What::Document(url) => {
                let url = canonical(url)?;
                let sql = "select id from annotations.document where url = $1";
                let rows = self.rows(sql, &[(&url, Type::TEXT)]).await?;
                let row = rows.first().ok_or(Refused::NoSuchPage)?;
                json!({ "document_id": row.get::<_, i64>(0) })
            }
            What::Time { since, until } => {
                json!({ "since": since.map(|at| at.to_string()), "until": until.map(|at| at.to_string()) })
            }
            What::Ids(ids) if ids.is_empty() || ids.len() > MOST_IDS => {
                return Err(Refused::malformed(format!(
                    "ids names {} notes; it must name 1 to {MOST_IDS}",
                    ids.len()
                )));
            }
            What::Ids(ids) => {
                json!({ "ids": ids.iter().map(AnnotationId::as_str).collect::<Vec<_>>() })
            }
            What::All => json!({}),
        })
    }
}
