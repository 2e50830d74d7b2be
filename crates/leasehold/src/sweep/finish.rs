//! Finishes a batch: under the fence, once, and together with its `finishing` statement.
//!
//! # What can go wrong
//! - The reply is lost: the retry finds nothing to finish. Done rows that carry this claim were
//!   finished by it; the others are lost.
//! - Postgres refuses because of one row: the batch is halved until that row is alone, and only it
//!   fails.
//! - The `finishing` statement runs into the timeout: the batch is halved, and later batches are
//!   finished in parts of the size that worked, which grow again while they are quick.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;

use super::batch::{Failure, SweptRows};
use super::prepare::{Prepared, SweepError, int};
use crate::Generation;
use crate::backoff::RECONNECT;
use crate::error::{CallError, describe, storable};
use crate::link::Link;

/// How often a finish without a response is tried, over about half a minute; then the watchdog resets
/// its rows.
const TRIES: u32 = 20;
/// How many rows may be refused one by one. Beyond that, the rest fails with the last reason.
const REFUSALS: usize = 20;

/// One loop's session with its statements.
pub(super) struct SweepSession {
    pub(super) link: Link,
    pub(super) prepared: Prepared,
    /// The most rows of one finish: fewer after one that took too long.
    most: AtomicUsize,
}

/// How a whole batch ended.
#[derive(Debug, Default)]
pub(super) struct Ended {
    pub(super) done: u64,
    pub(super) lost: Vec<String>,
    pub(super) refused: Vec<(String, Failure)>,
}

impl SweepSession {
    pub(super) fn new(link: Link, prepared: Prepared) -> Self {
        Self { link, prepared, most: AtomicUsize::new(usize::MAX) }
    }

    /// Finishes rows. Rows that are not found under this claim are lost, and not retried.
    pub(super) async fn finish(
        &self,
        keys: &[String],
        token: Generation,
    ) -> Result<SweptRows, SweepError> {
        let Ended { done, lost, .. } = self.finish_parts(keys, token, false).await?;
        Ok(SweptRows { done, lost })
    }

    /// Finishes rows; if Postgres refuses them, finds the rows that it refuses.
    pub(super) async fn finish_or_part(
        &self,
        keys: &[String],
        token: Generation,
    ) -> Result<Ended, SweepError> {
        self.finish_parts(keys, token, true).await
    }

    async fn finish_parts(
        &self,
        keys: &[String],
        token: Generation,
        part_refused: bool,
    ) -> Result<Ended, SweepError> {
        let mut ended = Ended::default();
        let most = self.most.load(Ordering::Relaxed).max(1);
        let mut parts: Vec<&[String]> = keys.chunks(most).rev().collect();
        while let Some(part) = parts.pop() {
            let began = Instant::now();
            let error = match self.finish_part(part, token).await {
                Ok(swept) => {
                    ended.done += swept.done;
                    ended.lost.extend(swept.lost);
                    if began.elapsed() < self.prepared.sweep.limit / 4 {
                        self.may_take_more(part.len());
                    }
                    continue;
                }
                Err(error) => error,
            };
            let slow = is_slow(&error);
            let refused = match &error {
                CallError::Database(error) => part_refused && error.as_db_error().is_some(),
                _ => false,
            };
            if part.len() > 1 && (slow || refused && ended.refused.len() < REFUSALS) {
                let (left, right) = part.split_at(part.len() / 2);
                parts.extend([right, left]);
                if slow {
                    self.most.store(right.len(), Ordering::Relaxed);
                    let (sweep, rows) = (&self.prepared.sweep.name, part.len());
                    tracing::warn!(
                        sweep, rows, %error,
                        "finishing a batch timed out; retrying with half of its rows"
                    );
                }
            } else if refused {
                let failure = Failure { why: unfinished(&error), is_final: false };
                ended.refused.extend(part.iter().map(|key| (key.clone(), failure.clone())));
            } else {
                return Err(error.into());
            }
        }
        Ok(ended)
    }

    /// Doubles the size of parts after a full-sized part was finished quickly.
    fn may_take_more(&self, rows: usize) {
        let most = self.most.load(Ordering::Relaxed);
        if rows >= most {
            self.most.store(most.saturating_mul(2), Ordering::Relaxed);
        }
    }

    /// Finishes rows with one statement.
    async fn finish_part(
        &self,
        keys: &[String],
        token: Generation,
    ) -> Result<SweptRows, CallError> {
        let sql = &self.prepared.statements.finish;
        let mut backoff = RECONNECT.waits();
        let (mut tries, mut unanswered) = (1, 0);
        let done = loop {
            let params = [
                (&keys as _, Type::TEXT_ARRAY),
                (&token.0 as _, Type::INT8),
                (&self.prepared.sweep.name as _, Type::TEXT),
            ];
            let error = match self.link.query(sql, &params).await {
                Ok(rows) => break rows.first().map_or(0, |row| row.get::<_, i64>(0)),
                Err(error) => error,
            };
            unanswered += u32::from(matches!(error, CallError::TimedOut(_)));
            // One timeout may be the network. After two, the statement may be too large: behind a
            // pooler the server does not know the timeout, so only the client stops waiting.
            let too_large = unanswered > 1 && keys.len() > 1;
            if too_large || tries >= TRIES || !passes(&error) {
                return Err(error);
            }
            tries += 1;
            tokio::time::sleep(backoff.next_wait()).await;
        };
        let done = u64::try_from(done).unwrap_or(0);
        if done == keys.len() as u64 {
            return Ok(SweptRows { done, lost: Vec::new() });
        }
        self.sort_out(keys, token).await
    }

    /// Separates what this claim has finished from what it has lost.
    async fn sort_out(&self, keys: &[String], token: Generation) -> Result<SweptRows, CallError> {
        let sql = &self.prepared.statements.finished_by;
        let params = [(&keys as _, Type::TEXT_ARRAY), (&token.0 as _, Type::INT8)];
        let rows = self.link.query(sql, &params).await?;
        let done: HashSet<&str> = rows.iter().map(|row| row.get(0)).collect();
        let lost = keys.iter().filter(|key| !done.contains(key.as_str())).cloned().collect();
        Ok(SweptRows { done: done.len() as u64, lost })
    }

    /// Restarts the watchdog's time.
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

    /// Records failed rows. Rows that this claim no longer holds are not touched. Returns how many were
    /// recorded, and how many of them are dead.
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
        let reasons: Vec<String> = failures.iter().map(|(_, why)| storable(&why.why)).collect();
        let permanent: Vec<bool> = failures.iter().map(|(_, why)| why.is_final).collect();
        let params = [
            (&keys as _, Type::TEXT_ARRAY),
            (&token.0 as _, Type::INT8),
            (&reasons as _, Type::TEXT_ARRAY),
            (&permanent as _, Type::BOOL_ARRAY),
            (&sweep.name as _, Type::TEXT),
            (&int(sweep.max_attempts) as _, Type::INT4),
            (&sweep.backoff.base.as_secs_f64() as _, Type::FLOAT8),
            (&sweep.backoff.cap.as_secs_f64() as _, Type::FLOAT8),
        ];
        let mut backoff = RECONNECT.waits();
        let mut tries = 1;
        let rows = loop {
            match self.link.query(&self.prepared.statements.fail, &params).await {
                Ok(rows) => break rows,
                Err(error) if tries < TRIES && passes(&error) => {
                    tries += 1;
                    tokio::time::sleep(backoff.next_wait()).await;
                }
                Err(error) => return Err(error.into()),
            }
        };
        let dead = rows.iter().filter(|row| row.get::<_, bool>(2)).count();
        Ok((rows.len() as u64, dead as u64))
    }
}

/// Returns whether the statement ran into the timeout of the server or the client. A smaller one may
/// not.
fn is_slow(error: &CallError) -> bool {
    match error {
        CallError::TimedOut(_) => true,
        CallError::Database(error) => error.code() == Some(&SqlState::QUERY_CANCELED),
        _ => false,
    }
}

fn unfinished(error: &CallError) -> String {
    match error {
        CallError::Database(error) => format!("it could not be finished: {}", describe(error)),
        error => format!("it could not be finished: {error}"),
    }
}

/// Returns whether a retry may succeed: no response, or a refusal that is temporary.
fn passes(error: &CallError) -> bool {
    match error {
        CallError::TimedOut(_) | CallError::Connect(_) => true,
        // It took too long: it needs a smaller statement, not a retry.
        CallError::Database(database) if database.code() == Some(&SqlState::QUERY_CANCELED) => {
            false
        }
        // A migration has changed the table under a cached plan; a new session plans again.
        CallError::Database(database)
            if database.code() == Some(&SqlState::FEATURE_NOT_SUPPORTED) =>
        {
            true
        }
        _ => !error.is_permanent(),
    }
}
