//! The end of pastes: a sweep makes expired pastes DELETED, and a job those that were ended early.
//! Another job deletes objects without a reference.
//!
//! # Invariants
//! - The database comes first: one statement makes a paste DELETED, drops its reference, dooms content
//!   without a reference and enqueues the deletion of its object.
//! - An object is deleted only after its content was doomed, and no other content has its key.
//!
//! # What can go wrong
//! - The store is down: the deletion job retries for a month.
//! - A put lands after its object was deleted: [`crate::orphans`] finds the dead object a day later.

use std::time::Duration;

use leasehold::sweep::{Gate, States, Sweep};
use leasehold::{Backoff, Ctx, Job, JobError, Policy};
use serde::{Deserialize, Serialize};
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::error::StartError;
use crate::service::Pastes;
use crate::settings::{GateKind, When};
use crate::store::ObjectKey;
use crate::worker::OBJECT_QUEUE;

/// As in `functions/jobs.sql`.
const DELETE_ATTEMPTS: i32 = 1000;
/// As in `functions/jobs.sql`. The next sweep handles what is left after the last attempt.
const END_ATTEMPTS: i32 = 20;

/// Deletes up to 1,000 objects that no paste refers to.
#[derive(Serialize, Deserialize)]
pub struct DeleteObjects {
    pub contents: Vec<i64>,
}

impl Job for DeleteObjects {
    const NAME: &'static str = "pastes.delete_objects";
    const QUEUE: &'static str = OBJECT_QUEUE;

    fn policy() -> Policy {
        policy(DELETE_ATTEMPTS)
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
    const QUEUE: &'static str = OBJECT_QUEUE;

    fn policy() -> Policy {
        policy(END_ATTEMPTS)
    }
}

/// Ends pastes of banned bytes that were created while the ban was being committed.
#[derive(Serialize, Deserialize)]
pub struct EndBanned {
    pub hash: String,
}

impl Job for EndBanned {
    const NAME: &'static str = "pastes.end_banned";
    const QUEUE: &'static str = OBJECT_QUEUE;

    fn policy() -> Policy {
        policy(END_ATTEMPTS)
    }
}

fn policy(attempts: i32) -> Policy {
    let backoff = Backoff::doubling(Duration::from_secs(1), Duration::from_secs(3600));
    Policy::default().max_attempts(attempts).backoff(backoff)
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
            .claim_size(u32::try_from(expiry.claim_size).unwrap_or(1000))
            .loops(expiry.loops)
            .watchdog_after(expiry.watchdog_after)
            .when(when)
            .gate(gate)
            .finishing("select pastes.drop_references(array_agg(content_id)) from finished"))
    }
}

/// Safe to repeat: a DELETED paste stays DELETED.
pub(crate) async fn end_pastes(pastes: Pastes, job: EndPastes) -> Result<(), JobError> {
    let params = [(&job.codes as _, Type::TEXT_ARRAY), (&job.ids as _, Type::UUID_ARRAY)];
    pastes.0.sessions.query("select pastes.end_pastes($1, $2)", &params).await?;
    Ok(())
}

pub(crate) async fn end_banned(pastes: Pastes, job: EndBanned) -> Result<(), JobError> {
    let sql = "select pastes.end_banned($1)";
    pastes.0.sessions.query(sql, &[(&job.hash, Type::TEXT)]).await?;
    Ok(())
}

pub(crate) async fn delete_objects(
    pastes: Pastes,
    job: DeleteObjects,
    ctx: Ctx,
) -> Result<(), JobError> {
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
    let results = pastes.0.store.delete_many(keys).await;
    #[cfg(feature = "chaos")]
    leasehold::chaos::point("objects.after_delete");
    let mut failure = None;
    let gone: Vec<i64> = ids
        .into_iter()
        .zip(results)
        .filter_map(|(id, result)| match result {
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
