//! One pass: claim a batch, handle it, finish it, until nothing is due.
//!
//! # What is true
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
use tokio::sync::watch;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::batch::{Batch, Failure};
use super::declare::Sweep;
use super::finish::SweepSession;
use super::gate::Entry;
use super::prepare::{Prepared, SweepError};
use crate::error_text::{HIDDEN_TEXT, one_line};
use crate::events::{Event, Events};
use crate::worker::JobError;

/// How often counts are stored, and a pause is noticed, by default.
pub(super) const COUNT_EVERY: Duration = Duration::from_secs(1);
/// The wait after the first batch that failed as a whole, and the cap up to which it doubles.
const BRAKE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(60));

impl Sweep {
    /// Sets how often a loop stores its counts and checks whether the sweep is paused. A shorter time
    /// notices a pause sooner, at the cost of one small statement each time. Default: 1 s.
    pub fn count_every(mut self, pause: Duration) -> Self {
        self.count_every = pause;
        self
    }
}

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
    events: Events,
    stop: watch::Receiver<bool>,
    /// The cursor: the last place of the last claim. None: from the start.
    place: Option<String>,
    pub(super) report: SweepReport,
    counted: SweepReport,
    count_at: Instant,
    /// Consecutive batches that failed as a whole.
    failing: u32,
    hides_errors: bool,
}

impl Pass {
    pub(super) fn new(
        session: Arc<SweepSession>,
        events: Events,
        stop: watch::Receiver<bool>,
    ) -> Self {
        let count_at = Instant::now() + session.prepared.sweep.count_every;
        let (report, counted) = Default::default();
        let (place, failing, hides_errors) = (None, 0, false);
        Self { session, events, stop, place, report, counted, count_at, failing, hides_errors }
    }

    /// Keeps the texts of failures out of the log and the table.
    pub(super) fn hide_error_texts(mut self, hides_errors: bool) -> Self {
        self.hides_errors = hides_errors;
        self
    }

    /// Claims and handles batches. Returns true when a claim from the start finds nothing, false when
    /// it must stop.
    pub(super) async fn run(&mut self) -> Result<bool, SweepError> {
        if !self.goes_on().await? {
            return Ok(false);
        }
        loop {
            if *self.stop.borrow() {
                return Ok(false);
            }
            if Instant::now() >= self.count_at && !self.goes_on().await? {
                return Ok(false);
            }
            match self.claim().await? {
                Some(batch) => self.handle(batch).await?,
                None if self.place.is_some() => self.place = None,
                None => return Ok(true),
            }
        }
    }

    async fn goes_on(&mut self) -> Result<bool, SweepError> {
        let goes_on = self.count().await?;
        self.report.paused = !goes_on;
        Ok(goes_on)
    }

    /// Claims the next rows, through the gate.
    async fn claim(&mut self) -> Result<Option<Batch>, SweepError> {
        let sweep = &self.session.prepared.sweep;
        let mut approach = sweep.gate.approach();
        let rows = loop {
            let entry = approach.enter(&sweep.name).await;
            let is_locking = entry == Entry::Locking;
            let rows = self.fetch(is_locking).await;
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
        self.place = first.get(at + 2);
        self.report.batches += 1;
        self.report.claimed += keys.len() as u64;
        Ok(Some(Batch::new(rows, keys, token, Arc::clone(&self.session))))
    }

    async fn fetch(&self, is_locking: bool) -> Result<Vec<Row>, SweepError> {
        let Prepared { sweep, statements, .. } = &self.session.prepared;
        let most = i64::from(sweep.batch);
        let rows = match (&self.place, is_locking) {
            (None, locking) => {
                let sql = if locking { &statements.claim_gated } else { &statements.claim };
                self.session.link.query(sql, &[(&most, Type::INT8)]).await?
            }
            (Some(place), locking) => {
                let sql = if locking { &statements.claim_on_gated } else { &statements.claim_on };
                let params = [(&most as _, Type::INT8), (place as _, Type::TEXT)];
                self.session.link.query(sql, &params).await?
            }
        };
        Ok(rows)
    }

    async fn handle(&mut self, batch: Batch) -> Result<(), SweepError> {
        let (sweep, token) = (self.session.prepared.sweep.clone(), batch.token());
        let rows = batch.keys().len();
        self.events.send(|| Event::SweepClaimed { sweep: sweep.name.clone(), token, rows });
        let said = match &sweep.handler {
            None => Ok(()),
            Some(handler) => {
                let handling = async { handler(batch.clone()).await };
                AssertUnwindSafe(handling).catch_unwind().await.unwrap_or_else(|panic| {
                    Err(JobError::retry(crate::worker::panic_text(&*panic)))
                })
            }
        };
        let mut failures = batch.failures();
        let mut open = batch.open();
        let failed_whole = said.is_err();
        if let Err(error) = said {
            let failure = Failure { why: error.text, is_final: error.permanent };
            failures.extend(open.drain(..).map(|key| (key, failure.clone())));
        }
        let ended = self.session.finish_or_part(&open, token).await?;
        failures.extend(ended.refused);
        if self.hides_errors {
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
        self.events.send(|| Event::SweepFinished {
            sweep: sweep.name.clone(),
            token,
            finished,
            failed,
            lost,
        });
        self.brake(failed_whole).await;
        Ok(())
    }

    /// Waits after a batch that failed as a whole.
    async fn brake(&mut self, failed: bool) {
        if !failed {
            self.failing = 0;
            return;
        }
        let wait = BRAKE.0.saturating_mul(1 << self.failing.min(16)).min(BRAKE.1);
        self.failing += 1;
        tokio::select! {
            () = tokio::time::sleep(wait.mul_f64(rand::random_range(0.5..=1.0))) => {}
            _ = self.stop.wait_for(|stop| *stop) => {}
        }
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
                "select leasehold.count_sweep($1, $2, $3, $4, $5)",
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
