//! Orphans: objects in the store whose content is long dead.
//!
//! # Invariants
//! - The check deletes only objects whose row says that they are dead. It concludes nothing from objects
//!   that a listing lacks, nor from objects that it does not know.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::StreamExt;
use leasehold::{Job, JobError, Policy};
use serde::{Deserialize, Serialize};
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::service::Pastes;
use crate::store::ObjectKey;
use crate::worker::HOUSEKEEPING_QUEUE;

/// An object younger than this is never taken for an orphan: its upload may still be running.
const ORPHAN_AGE: Duration = Duration::from_secs(24 * 60 * 60);
/// How many objects are compared with the table at a time.
const PAGE: usize = 1000;

/// Compares the store with the table.
#[derive(Serialize, Deserialize)]
pub struct CheckOrphans {}

impl Job for CheckOrphans {
    const NAME: &'static str = "pastes.check_orphans";
    const QUEUE: &'static str = HOUSEKEEPING_QUEUE;

    fn policy() -> Policy {
        Policy::default().max_attempts(3)
    }
}

/// What an orphan check found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OrphanReport {
    pub seen: u64,
    /// Dead objects that this check deleted.
    pub deleted: u64,
    /// Objects that this database does not know. They are left alone.
    pub unknown: u64,
}

impl Pastes {
    /// Compares the store with the table once, and deletes what the table knows to be dead.
    pub async fn check_orphans(&self) -> Result<OrphanReport, JobError> {
        let mut report = OrphanReport::default();
        let mut pages = self.0.store.list().chunks(PAGE);
        while let Some(page) = pages.next().await {
            let mut keys = Vec::with_capacity(page.len());
            for object in page {
                let object = object?;
                report.seen += 1;
                match object.key.parse::<ObjectKey>() {
                    Ok(key) => keys.push((key, object.changed_at)),
                    Err(()) => report.unknown += 1,
                }
            }
            self.compare(keys, &mut report).await?;
        }
        // Deletions whose job an operator removed.
        let sql = "select pastes.repeat_deletions(make_interval(days => 1), 10000)";
        self.0.sessions.query(sql, &[]).await?;
        if report.deleted + report.unknown > 0 {
            tracing::info!(?report, "the orphan check ended");
        }
        Ok(report)
    }

    async fn compare(
        &self,
        keys: Vec<(ObjectKey, jiff::Timestamp)>,
        report: &mut OrphanReport,
    ) -> Result<(), JobError> {
        let ids: Vec<i64> = keys.iter().map(|(key, _)| key.content_id).collect();
        let rows = self
            .0
            .sessions
            .query(
                include_str!("../queries/intents.sql"),
                &[(&ids, Type::INT8_ARRAY), (&ORPHAN_AGE.as_secs_f64(), Type::FLOAT8)],
            )
            .await?;
        let intents: HashMap<i64, (Uuid, bool, jiff::Timestamp)> =
            rows.iter().map(|row| (row.get(0), (row.get(1), row.get(2), row.get(3)))).collect();
        let mut dead = Vec::new();
        for (key, changed_at) in keys {
            match intents.get(&key.content_id) {
                // From another database, or from before this one was restored: do not touch it.
                None => report.unknown += 1,
                Some((object_id, ..)) if *object_id != key.object_id => report.unknown += 1,
                Some((_, true, young)) if changed_at < *young => dead.push(key),
                Some(_) => {}
            }
        }
        for deleted in self.0.store.delete_many(dead).await {
            deleted?;
            report.deleted += 1;
        }
        Ok(())
    }
}
