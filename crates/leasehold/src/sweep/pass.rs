//! One pass: claim a batch, handle it, finish it, until nothing is due.
//!
//! # Invariants
//! - A pass reads on from the last row it claimed, and ends only when a claim from the start finds
//!   nothing: rows that were reset or committed late come before that cursor.
//!
//! # What can go wrong
//! - Every batch fails, because an outside system is down: the loop waits longer after each one, so
//!   that not every row of the table becomes a failure.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::batch::{ClaimedRows, Failure};
use super::finish::SweepSession;
use super::gate::Entry;
use super::prepare::{Prepared, SweepError};
use crate::error::{HIDDEN_TEXT, one_line};
use crate::events::Event;
use crate::worker::ServiceContext;
use crate::{Backoff, Jitter, JobError, Waits};

/// How often counts are stored, and a pause is noticed, by default.
pub(super) const COUNT_EVERY: Duration = Duration::from_secs(1);
/// The wait after a batch that failed as a whole: 0.1 s at first, doubling to 45 s, a third longer or shorter.
const BRAKE: Backoff = Backoff::doubling(Duration::from_millis(100), Duration::from_secs(45))
    .jitter(Jitter::Share(1.0 / 3.0));

/// What a pass did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SweepReport {
    /// Batches that were claimed.
    pub batches: u64,
    /// Rows that were claimed.
    pub claimed: u64,
    /// Rows that were finished.
    pub finished: u64,
    /// Failed, and retried later unless dead.
    pub failed: u64,
    /// Of the failed: dead until an operator redrives them.
    pub dead: u64,
    /// Handled, but the claim had been reset: another worker's result counts.
    pub lost: u64,
    /// The pass ended because the sweep is paused.
    pub paused: bool,
}

/// One pass over the table.
pub(super) struct Pass {
    session: Arc<SweepSession>,
    context: ServiceContext,
    /// The last position of the last claim in the order of the sweep. `None`: from the start.
    cursor: Option<String>,
    pub(super) report: SweepReport,
    counted: SweepReport,
    count_at: Instant,
    /// Waits after batches that failed as a whole.
    brake: Waits,
}

impl Pass {
    pub(super) fn new(session: Arc<SweepSession>, context: ServiceContext) -> Self {
        let count_at = Instant::now() + session.prepared.sweep.count_every;
        let (report, counted) = Default::default();
        Self { session, context, cursor: None, report, counted, count_at, brake: BRAKE.waits() }
    }

    /// Claims and handles batches. Returns true when a claim from the start finds nothing, false when
    /// it must stop.
    pub(super) async fn run(&mut self) -> Result<bool, SweepError> {
        if !self.may_continue().await? {
            return Ok(false);
        }
        loop {
            if self.context.is_stopping() {
                return Ok(false);
            }
            if Instant::now() >= self.count_at && !self.may_continue().await? {
                return Ok(false);
            }
            match self.claim().await? {
                Some(batch) => self.handle(batch).await?,
                None if self.cursor.is_some() => self.cursor = None,
                None => return Ok(true),
            }
        }
    }

    /// Stores the counts. Returns false if the sweep is paused.
    async fn may_continue(&mut self) -> Result<bool, SweepError> {
        self.report.paused = !self.count().await?;
        Ok(!self.report.paused)
    }

    /// Claims the next rows, through the gate.
    async fn claim(&mut self) -> Result<Option<ClaimedRows>, SweepError> {
        let sweep = &self.session.prepared.sweep;
        let mut approach = sweep.gate.approach();
        let rows = loop {
            let entry = approach.enter(&sweep.name).await;
            let is_locking = entry == Entry::Locking;
            let rows = self.claim_rows(is_locking).await;
            approach.leave(&sweep.name, entry).await;
            let rows = rows?;
            if !is_locking {
                break rows;
            }
            let won = rows.first().is_some_and(|row| row.get("won"));
            if won {
                approach.locked();
                break rows;
            }
            // If this returns false, the next entry is a free one.
            approach.wait().await;
        };
        let at = sweep.columns.len();
        let keys: Vec<String> =
            rows.iter().filter_map(|row| row.get::<_, Option<String>>(at)).collect();
        let Some(first) = rows.first().filter(|_| !keys.is_empty()) else { return Ok(None) };
        let token = first.get(at + 1);
        self.cursor = first.get(at + 2);
        self.report.batches += 1;
        self.report.claimed += keys.len() as u64;
        Ok(Some(ClaimedRows::new(rows, keys, token, Arc::clone(&self.session))))
    }

    async fn claim_rows(&self, is_locking: bool) -> Result<Vec<Row>, SweepError> {
        let Prepared { sweep, statements, .. } = &self.session.prepared;
        let most = i64::from(sweep.claim_size);
        let rows = match (&self.cursor, is_locking) {
            (None, locking) => {
                let sql = if locking { &statements.claim_gated } else { &statements.claim };
                self.session.link.query(sql, &[(&most, Type::INT8)]).await?
            }
            (Some(cursor), locking) => {
                let sql = if locking { &statements.claim_on_gated } else { &statements.claim_on };
                let params = [(&most as _, Type::INT8), (cursor as _, Type::TEXT)];
                self.session.link.query(sql, &params).await?
            }
        };
        Ok(rows)
    }

    async fn handle(&mut self, batch: ClaimedRows) -> Result<(), SweepError> {
        let (sweep, token) = (self.session.prepared.sweep.clone(), batch.token());
        let rows = batch.keys().len();
        self.context.events().send(|| Event::SweepClaimed {
            sweep: sweep.name.clone(),
            token,
            rows,
        });
        let handled = match &sweep.handler {
            None => Ok(()),
            Some(handler) => {
                let handling = async { handler(batch.clone()).await };
                let caught = AssertUnwindSafe(handling).catch_unwind().await;
                caught.unwrap_or_else(|panic| Err(JobError::from_panic(&*panic)))
            }
        };
        let mut failures = batch.failures();
        let mut open = batch.open();
        let failed_whole = handled.is_err();
        if let Err(error) = handled {
            let failure = Failure { why: error.to_string(), is_final: error.is_permanent() };
            failures.extend(open.drain(..).map(|key| (key, failure.clone())));
        }
        let ended = self.session.finish_or_part(&open, token).await?;
        failures.extend(ended.refused);
        if self.context.hides_error_texts() {
            // The database's texts too: they can hold values of the row.
            failures.iter_mut().for_each(|(_, failure)| HIDDEN_TEXT.clone_into(&mut failure.why));
        }
        let (failed, dead) = self.session.fail(&failures, token).await?;
        let (finished, lost) = {
            let ledger = batch.ledger();
            // A failure that was not recorded: this claim no longer holds the row.
            let unnoted = (failures.len() as u64).saturating_sub(failed);
            (ledger.finished + ended.done, ledger.lost + ended.lost.len() as u64 + unnoted)
        };
        self.report.finished += finished;
        self.report.failed += failed;
        self.report.dead += dead;
        self.report.lost += lost;
        if lost > 0 {
            tracing::warn!(
                sweep = sweep.name,
                token = token.0,
                lost,
                "claims were lost before they were finished; others own the rows"
            );
        }
        if let Some((key, failure)) = failures.first() {
            let (key, why) = (one_line(key), one_line(&failure.why));
            tracing::warn!(sweep = sweep.name, failed, dead, key, why, "rows failed");
        }
        self.context.events().send(|| Event::SweepFinished {
            sweep: sweep.name.clone(),
            token,
            finished,
            failed,
            lost,
        });
        self.slow_down(failed_whole).await;
        Ok(())
    }

    /// Waits after a batch that failed as a whole.
    async fn slow_down(&mut self, failed: bool) {
        if !failed {
            self.brake.reset();
            return;
        }
        self.context.pause(self.brake.next_wait()).await;
    }

    /// Adds what was done since the last call to the counts of the sweep. Returns false if it is
    /// paused.
    pub(super) async fn count(&mut self) -> Result<bool, SweepError> {
        let (now, before) = (self.report, self.counted);
        let more = |now: u64, before: u64| i64::try_from(now - before).unwrap_or(i64::MAX);
        let rows = self
            .session
            .link
            .query(
                "select leasehold_internal.count_sweep($1, $2, $3, $4, $5)",
                &[
                    (&self.session.prepared.sweep.name, Type::TEXT),
                    (&more(now.claimed, before.claimed), Type::INT8),
                    (&more(now.finished, before.finished), Type::INT8),
                    (&more(now.failed, before.failed), Type::INT8),
                    (&more(now.lost, before.lost), Type::INT8),
                ],
            )
            .await?;
        self.counted = now;
        self.count_at = Instant::now() + self.session.prepared.sweep.count_every;
        Ok(rows.first().is_some_and(|row| row.get(0)))
    }
}
