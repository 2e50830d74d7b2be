//! Finishing a batch: under the fence, once, and with the effect that belongs to it.
//!
//! # What can go wrong
//! - The reply is lost: asking again finds nothing to finish; rows that carry our claim and are done
//!   are ours, the others are lost.
//! - Postgres refuses because of one row: the batch is halved until that row is alone, and it fails
//!   by itself.

use std::collections::HashSet;

use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;

use super::batch::{Failure, SweptRows};
use super::prepare::{Prepared, SweepError, int};
use crate::error::{CallError, describe, storable};
use crate::job::Generation;
use crate::link::{Link, Patience};

/// A finish without an answer is tried so often, over about half a minute; then the watchdog has it.
const TRIES: u32 = 20;
/// So many rows may be refused one by one. More of them, and the rest fails with the last reason.
const REFUSALS: usize = 20;

/// One loop's session with what is said over it.
pub(super) struct Desk {
    pub(super) link: Link,
    pub(super) prepared: Prepared,
}

/// How a whole batch ended.
#[derive(Debug, Default)]
pub(super) struct Ended {
    pub(super) done: u64,
    pub(super) lost: Vec<String>,
    pub(super) refused: Vec<(String, Failure)>,
}

impl Desk {
    /// Finishes rows. Those that it did not find under this claim are lost, and not tried again.
    pub(super) async fn finish(
        &self,
        keys: &[String],
        token: Generation,
    ) -> Result<SweptRows, SweepError> {
        if keys.is_empty() {
            return Ok(SweptRows::default());
        }
        let sql = &self.prepared.statements.finish;
        let mut patience = Patience::default();
        let mut tries = 1;
        let done = loop {
            let params = [
                (&keys as _, Type::TEXT_ARRAY),
                (&token.0 as _, Type::INT8),
                (&self.prepared.sweep.name as _, Type::TEXT),
            ];
            match self.link.query(sql, &params).await {
                Ok(rows) => break rows.first().map_or(0, |row| row.get::<_, i64>(0)),
                Err(error) if tries < TRIES && passes(&error) => {
                    tries += 1;
                    tokio::time::sleep(patience.next_wait()).await;
                }
                Err(error) => return Err(error.into()),
            }
        };
        let done = u64::try_from(done).unwrap_or(0);
        if done == keys.len() as u64 {
            return Ok(SweptRows { done, lost: Vec::new() });
        }
        self.sort_out(keys, token).await
    }

    /// Tells what this claim has finished from what it has lost.
    async fn sort_out(&self, keys: &[String], token: Generation) -> Result<SweptRows, SweepError> {
        let sql = &self.prepared.statements.finished_by;
        let params = [(&keys as _, Type::TEXT_ARRAY), (&token.0 as _, Type::INT8)];
        let rows = self.link.query(sql, &params).await?;
        let done: HashSet<&str> = rows.iter().map(|row| row.get(0)).collect();
        let lost = keys.iter().filter(|key| !done.contains(key.as_str())).cloned().collect();
        Ok(SweptRows { done: done.len() as u64, lost })
    }

    /// Finishes rows; when Postgres refuses them, finds the ones that it refuses.
    pub(super) async fn finish_or_part(
        &self,
        keys: &[String],
        token: Generation,
    ) -> Result<Ended, SweepError> {
        let mut ended = Ended::default();
        let mut parts = vec![keys];
        while let Some(part) = parts.pop() {
            match self.finish(part, token).await {
                Ok(swept) => {
                    ended.done += swept.done;
                    ended.lost.extend(swept.lost);
                }
                Err(SweepError::Call(CallError::Database(error)))
                    if error.as_db_error().is_some() =>
                {
                    if part.len() == 1 || ended.refused.len() >= REFUSALS {
                        let why = format!("it could not be finished: {}", describe(&error));
                        let failure = Failure { why, is_final: false };
                        ended.refused.extend(part.iter().map(|key| (key.clone(), failure.clone())));
                    } else {
                        let (left, right) = part.split_at(part.len() / 2);
                        parts.extend([right, left]);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(ended)
    }

    /// Begins the watchdog's time anew.
    pub(super) async fn renew(
        &self,
        keys: &[String],
        token: Generation,
    ) -> Result<SweptRows, SweepError> {
        let sql = &self.prepared.statements.renew;
        let params = [(&keys as _, Type::TEXT_ARRAY), (&token.0 as _, Type::INT8)];
        let rows = self.link.query(sql, &params).await?;
        let held: HashSet<&str> = rows.iter().map(|row| row.get(0)).collect();
        let lost = keys.iter().filter(|key| !held.contains(key.as_str())).cloned().collect();
        Ok(SweptRows { done: held.len() as u64, lost })
    }

    /// Notes that rows failed. Rows that are no longer ours are not touched. Says how many were
    /// noted, and how many of them are dead.
    pub(super) async fn fail(
        &self,
        failures: &[(String, Failure)],
        token: Generation,
    ) -> Result<(u64, u64), SweepError> {
        if failures.is_empty() {
            return Ok((0, 0));
        }
        let sweep = &self.prepared.sweep;
        let keys: Vec<&str> = failures.iter().map(|(key, _)| key.as_str()).collect();
        let whys: Vec<String> = failures.iter().map(|(_, why)| storable(&why.why)).collect();
        let finals: Vec<bool> = failures.iter().map(|(_, why)| why.is_final).collect();
        let params = [
            (&keys as _, Type::TEXT_ARRAY),
            (&token.0 as _, Type::INT8),
            (&whys as _, Type::TEXT_ARRAY),
            (&finals as _, Type::BOOL_ARRAY),
            (&sweep.name as _, Type::TEXT),
            (&int(sweep.max_attempts) as _, Type::INT4),
            (&sweep.backoff.first.as_secs_f64() as _, Type::FLOAT8),
            (&sweep.backoff.cap.as_secs_f64() as _, Type::FLOAT8),
        ];
        let mut patience = Patience::default();
        let mut tries = 1;
        let rows = loop {
            match self.link.query(&self.prepared.statements.fail, &params).await {
                Ok(rows) => break rows,
                Err(error) if tries < TRIES && passes(&error) => {
                    tries += 1;
                    tokio::time::sleep(patience.next_wait()).await;
                }
                Err(error) => return Err(error.into()),
            }
        };
        let dead = rows.iter().filter(|row| row.get::<_, bool>(2)).count();
        Ok((rows.len() as u64, dead as u64))
    }
}

/// Whether it may work the next time: no answer, or a refusal that has to do with the moment.
fn passes(error: &CallError) -> bool {
    match error {
        CallError::TimedOut(_) | CallError::Connect(_) => true,
        CallError::Database(error) => match error.code() {
            None => true,
            Some(code) => {
                // Connections, resources, operators, and collisions with other transactions.
                // Not a statement that took too long: a smaller one may not.
                *code != SqlState::QUERY_CANCELED
                    && (["08", "53", "57", "40"].iter().any(|class| code.code().starts_with(class))
                        || *code == SqlState::LOCK_NOT_AVAILABLE
                        // A plan that a migration has changed; the next session knows.
                        || *code == SqlState::FEATURE_NOT_SUPPORTED)
            }
        },
    }
}
