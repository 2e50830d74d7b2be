//! The end of pastes: a sweep makes expired pastes DELETED, and a job those that were ended early.
//! Another job deletes objects without a reference, and two scheduled jobs clean up.
//!
//! # What is true
//! - The database comes first: one statement makes a paste DELETED, gives up its reference, dooms
//!   content without a reference and enqueues the deletion of its object.
//! - An object is deleted only after its content was doomed, and no other content has its key.
//! - The orphan check deletes only objects whose row says that they are dead. It concludes nothing from
//!   objects that a listing lacks, nor from objects that it does not know.
//!
//! # What can go wrong
//! - The store is down: the deletion job retries for a month.
//! - A put lands after its object was deleted: the orphan check finds the dead object a day later.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::StreamExt;
use leasehold::schedule::Schedule;
use leasehold::sweep::{Gate, States, Sweep};
use leasehold::worker::WorkerBuilder;
use leasehold::{Backoff, Ctx, Job, JobError, Policy};
use serde::{Deserialize, Serialize};
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::error::StartError;
use crate::service::Pastes;
use crate::settings::{GateKind, When};
use crate::store::ObjectKey;
use crate::upload;

/// How long dead intents are kept after their object was deleted.
const KEEP_INTENTS: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// An object younger than this is never taken for an orphan: its upload may still be running.
const ORPHAN_AGE: Duration = Duration::from_secs(24 * 60 * 60);
/// The most rows of each kind that one round of purging removes.
const PURGE_BATCH: i32 = 10_000;
/// How many objects are compared with the table at a time.
const PAGE: usize = 1000;

/// Deletes up to 1,000 objects that no paste refers to.
#[derive(Serialize, Deserialize)]
pub struct DeleteObjects {
    pub contents: Vec<i64>,
}

impl Job for DeleteObjects {
    const NAME: &'static str = "pastes.delete_objects";
    const QUEUE: &'static str = "pastes.objects";

    fn policy() -> Policy {
        let backoff = Backoff::doubling(Duration::from_secs(1), Duration::from_secs(3600));
        Policy::default().max_attempts(1000).backoff(backoff)
    }
}

/// Makes pastes DELETED that were ended early, at once instead of at the next sweep.
#[derive(Serialize, Deserialize)]
pub struct EndPastes {
    pub codes: Vec<String>,
    pub ids: Vec<Uuid>,
}

impl Job for EndPastes {
    const NAME: &'static str = "pastes.end";
    const QUEUE: &'static str = "pastes.objects";

    fn policy() -> Policy {
        end_policy()
    }
}

/// Ends pastes of banned bytes that were created while the ban was being committed.
#[derive(Serialize, Deserialize)]
pub struct EndBanned {
    pub hash: String,
}

impl Job for EndBanned {
    const NAME: &'static str = "pastes.end_banned";
    const QUEUE: &'static str = "pastes.objects";

    fn policy() -> Policy {
        end_policy()
    }
}

/// The next sweep handles whatever is left after the last attempt.
fn end_policy() -> Policy {
    let backoff = Backoff::doubling(Duration::from_secs(1), Duration::from_secs(3600));
    Policy::default().max_attempts(20).backoff(backoff)
}

/// Deletes rows that are past their retention.
#[derive(Job, Serialize, Deserialize)]
#[job(name = "pastes.purge", queue = "pastes.tidy", max_attempts = 3)]
pub struct Purge {}

/// Looks for objects whose content is long dead.
#[derive(Job, Serialize, Deserialize)]
#[job(name = "pastes.check_orphans", queue = "pastes.tidy", max_attempts = 3)]
pub struct CheckOrphans {}

/// Registers everything that pastes need with a worker: uploads, the expiry sweep, the deletion of
/// objects, and the schedules.
pub fn worker<S: Send + Sync + 'static>(
    pastes: &Pastes,
    builder: WorkerBuilder<S>,
) -> Result<WorkerBuilder<S>, StartError> {
    let bad = |error: &dyn std::fmt::Display| StartError::Settings(error.to_string());
    let zone = match &pastes.settings().expiry.when {
        When::Nightly { zone, .. } => zone.clone(),
        When::Continuous { .. } => "UTC".to_owned(),
    };
    let purge = Schedule::new("pastes.purge", "17 * * * *", &zone, &Purge {});
    let orphans = Schedule::new("pastes.check_orphans", "23 4 * * *", &zone, &CheckOrphans {});
    let (uploading, deleting, purging, checking) =
        (pastes.clone(), pastes.clone(), pastes.clone(), pastes.clone());
    let (ending, banning) = (pastes.clone(), pastes.clone());
    Ok(builder
        .queue("pastes", 256)
        .queue("pastes.objects", 4)
        .queue("pastes.tidy", 2)
        .handle_many(upload::BATCH, move |items| upload::run(uploading.clone(), items))
        .handle(move |job: DeleteObjects, ctx: Ctx| delete_objects(deleting.clone(), job, ctx))
        .handle(move |job: EndPastes| end_pastes(ending.clone(), job))
        .handle(move |job: EndBanned| end_banned(banning.clone(), job))
        .handle(move |_: Purge| purge_all(purging.clone()))
        .handle(move |_: CheckOrphans| {
            let pastes = checking.clone();
            async move { pastes.check_orphans().await.map(drop) }
        })
        .schedule(purge.map_err(|error| bad(&error))?)
        .schedule(orphans.map_err(|error| bad(&error))?)
        .sweep(pastes.expiry_sweep()?))
}

impl Pastes {
    /// Returns the sweep that deletes expired pastes.
    pub fn expiry_sweep(&self) -> Result<Sweep, StartError> {
        let bad = |error: &dyn std::fmt::Display| StartError::Settings(error.to_string());
        let expiry = &self.settings().expiry;
        let when = match &expiry.when {
            When::Nightly { at, zone } => {
                leasehold::sweep::When::nightly(at, zone).map_err(|error| bad(&error))?
            }
            When::Continuous { every } => leasehold::sweep::When::continuous(*every),
        };
        let gate = match &expiry.gate {
            GateKind::None => Gate::none(),
            GateKind::Advisory => Gate::advisory(),
            #[cfg(feature = "redis")]
            GateKind::Redis(url) => Gate::redis(url).map_err(|error| bad(&error))?,
            #[cfg(not(feature = "redis"))]
            GateKind::Redis(_) => return Err(bad(&"built without the feature redis")),
        };
        Ok(Sweep::new("pastes.expiry", "pastes.pastes")
            .key("short_code")
            .due("expires_at < statement_timestamp()")
            .order_by("expires_at")
            .status(
                "deletion_status",
                States::new("NOT_EXPIRED", "DELETION_IN_PROGRESS", "DELETED"),
            )
            .claimed_at("deletion_initiated_at")
            .claim("deletion_claim")
            .batch(u32::try_from(expiry.batch).unwrap_or(1000))
            .loops(expiry.loops)
            .watchdog_after(expiry.watchdog_after)
            .when(when)
            .gate(gate)
            .finishing("select pastes.give_up(array_agg(content_id)) from finished"))
    }

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
        let sql = "select pastes.remind_of_doomed(make_interval(days => 1), 10000)";
        self.0.sessions.query(sql, &[]).await?;
        if report.deleted + report.unknown > 0 {
            tracing::info!(?report, "orphan check");
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
        for answer in self.0.store.delete_many(dead).await {
            answer?;
            report.deleted += 1;
        }
        Ok(())
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

/// Safe to repeat: a DELETED paste stays DELETED.
async fn end_pastes(pastes: Pastes, job: EndPastes) -> Result<(), JobError> {
    let params = [(&job.codes as _, Type::TEXT_ARRAY), (&job.ids as _, Type::UUID_ARRAY)];
    pastes.0.sessions.query("select pastes.end_pastes($1, $2)", &params).await?;
    Ok(())
}

async fn end_banned(pastes: Pastes, job: EndBanned) -> Result<(), JobError> {
    let sql = "select pastes.end_banned($1)";
    pastes.0.sessions.query(sql, &[(&job.hash, Type::TEXT)]).await?;
    Ok(())
}

async fn delete_objects(pastes: Pastes, job: DeleteObjects, ctx: Ctx) -> Result<(), JobError> {
    let sessions = &pastes.0.sessions;
    let rows = sessions
        .query(include_str!("../queries/doomed.sql"), &[(&job.contents, Type::INT8_ARRAY)])
        .await?;
    let keys: Vec<ObjectKey> = rows
        .iter()
        .map(|row| ObjectKey {
            content_id: row.get(0),
            content_hash: row.get(1),
            object_id: row.get(2),
        })
        .collect();
    let ids: Vec<i64> = keys.iter().map(|key| key.content_id).collect();
    let answers = pastes.0.store.delete_many(keys).await;
    #[cfg(feature = "chaos")]
    leasehold::chaos::point("objects.after_delete");
    let mut failure = None;
    let gone: Vec<i64> = ids
        .into_iter()
        .zip(answers)
        .filter_map(|(id, answer)| match answer {
            Ok(()) => Some(id),
            Err(error) => {
                failure = Some(error);
                None
            }
        })
        .collect();
    match failure {
        None => {
            // Record the deletions and complete the job in one transaction.
            let mut client = ctx.engine().pool().get().await?;
            let transaction = client.transaction().await?;
            transaction
                .query_typed("select pastes.objects_gone($1)", &[(&gone, Type::INT8_ARRAY)])
                .await?;
            ctx.complete_in(&transaction).await?;
            transaction.commit().await?;
            Ok(())
        }
        Some(error) => {
            let sql = "select pastes.objects_gone($1)";
            sessions.query(sql, &[(&gone, Type::INT8_ARRAY)]).await?;
            Err(error.into())
        }
    }
}

/// Purges in rounds until a round deletes fewer than `PURGE_BATCH` rows.
async fn purge_all(pastes: Pastes) -> Result<(), JobError> {
    let tombstones = pastes.settings().tombstones.as_secs_f64();
    loop {
        let rows = pastes
            .0
            .sessions
            .query(
                "select pastes.purge($1, make_interval(secs => $2), make_interval(secs => $3))",
                &[
                    (&PURGE_BATCH, Type::INT4),
                    (&tombstones, Type::FLOAT8),
                    (&KEEP_INTENTS.as_secs_f64(), Type::FLOAT8),
                ],
            )
            .await?;
        let gone: i64 = rows.first().map_or(0, |row| row.get(0));
        if gone < i64::from(PURGE_BATCH) {
            return Ok(());
        }
    }
}
