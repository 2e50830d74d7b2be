//! The check: compares the whole table with the whole store, in both directions, one range at a time.
//!
//! # Invariants
//! - It follows the table's keys from first to last, and the last range is open at its end. So it also
//!   finds documents that only the store has.
//! - It uses no cursor of changes: a row that was committed late, restored, or changed by hand while
//!   the triggers were off is compared like any other.
//! - It repairs only through jobs and writes nothing to the store itself.
//!
//! # What can go wrong
//! - The store is down: the check retries the range, and "equal as of" does not advance.
//! - A worker dies while it checks a range: another worker takes the range after two minutes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio_postgres::types::Type;

use super::differences::{Difference, Piece};
use super::purge::purge;
use crate::events::Event;
use crate::mirror::MirrorError;
use crate::mirror::runtime::MirrorRuntime;
use crate::mirror::sets::{Phase, Sets, Target};
use crate::mirror::sync::Permit;
use crate::service::{Duty, Service, run_every};
use crate::worker::ServiceContext;

/// How often a worker asks whether a range is due.
const ASK_EVERY: Duration = Duration::from_millis(500);
/// The pause between two ranges of a mirror that is checked all the time.
const SHORTEST_PAUSE: Duration = Duration::from_millis(5);
/// How often a worker looks for old deletions.
const PURGE_EVERY: Duration = Duration::from_secs(60);

/// What a whole round of the check found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckReport {
    /// Rows of the table that were compared.
    pub rows: u64,
    /// Ranges that were compared.
    pub ranges: u64,
    /// Ranges whose digests differed.
    pub unequal: u64,
    /// Rows that differed, and still differed when they were compared again.
    pub differences: u64,
    /// Jobs that were enqueued to repair them.
    pub repairs: u64,
    /// Every change that was committed before this time is in the store; `None`: never proven so far.
    pub equal_as_of: Option<Timestamp>,
    /// How long the round took.
    pub took: Duration,
}

impl CheckReport {
    /// Returns true if no row differed.
    pub fn is_equal(&self) -> bool {
        self.differences == 0
    }
}

/// The result of checking one range.
#[derive(Clone, Debug, Default)]
struct Found {
    /// The last key of the range; `None`: the end of the table.
    last: Option<String>,
    rows: u64,
    unequal: bool,
    differences: u64,
    repairs: u64,
}

/// The check of one mirror.
pub(crate) struct Checker {
    runtime: Arc<MirrorRuntime>,
}

impl Checker {
    pub(crate) fn new(runtime: Arc<MirrorRuntime>) -> Self {
        Self { runtime }
    }

    /// Compares every range once, and publishes the result.
    pub(crate) async fn check_all(&self) -> Result<CheckReport, MirrorError> {
        let started = Instant::now();
        let source = &self.runtime.source;
        source.prepared().await?;
        let began = source.now().await?;
        let mut report = CheckReport::default();
        let mut after = None;
        loop {
            let found = self.check_range(after, began).await?;
            report.ranges += 1;
            report.rows += found.rows;
            report.unequal += u64::from(found.unequal);
            report.differences += found.differences;
            report.repairs += found.repairs;
            after = found.last;
            if after.is_none() {
                break;
            }
        }
        let sql = "select leasehold_internal.publish_check($1, $2, $3, $4)";
        let (rows, repairs) = (signed(report.rows), signed(report.repairs));
        let params = [
            (&self.runtime.mirror.name as _, Type::TEXT),
            (&began as _, Type::TIMESTAMPTZ),
            (&rows as _, Type::INT8),
            (&repairs as _, Type::INT8),
        ];
        let rows = source.query(sql, &params).await?;
        report.equal_as_of = rows.first().and_then(|row| row.get(0));
        report.took = started.elapsed();
        Ok(report)
    }

    /// Returns what differs in one set; `None`: the digests are equal.
    async fn compare(
        &self,
        target: &Arc<dyn Target>,
        piece: &mut Piece,
    ) -> Result<Option<Vec<Difference>>, MirrorError> {
        let comparer = &self.runtime.comparer;
        if comparer.is_equal(target, piece).await? {
            return Ok(None);
        }
        comparer.differences(target, piece).await.map(Some)
    }

    /// Compares the next range of rows after a key.
    async fn check_range(
        &self,
        after: Option<String>,
        began: Timestamp,
    ) -> Result<Found, MirrorError> {
        let MirrorRuntime { mirror, source, sets, comparer, .. } = &*self.runtime;
        let written = sets.written().await?;
        let looked = source.now().await?;
        let mut piece = comparer.piece_after(after).await?;
        let mut found = Found::default();
        let mut different: Vec<String> = Vec::new();
        let mut all_compared = true;
        for (target, is_searched) in compared(&written) {
            let comparing = self.compare(target, &mut piece);
            let differences = match is_searched {
                true => comparing.await?,
                false => match sets.of_second(comparing).await {
                    // The second set did not respond; the set that is searched was still compared.
                    Err(MirrorError::Target(_)) => {
                        all_compared = false;
                        continue;
                    }
                    differences => differences?,
                },
            };
            let Some(differences) = differences else { continue };
            found.unequal = true;
            let (counted, repairs) = comparer.note_differences(began, &differences).await?;
            found.differences += counted;
            found.repairs += repairs;
            different.extend(differences.into_iter().map(|difference| difference.key));
        }
        // Recorded differences do not name their set: those of a set that was not compared must stay.
        if all_compared {
            let sql = "select leasehold_internal.mirror_equal($1, $2, $3, $4, $5)";
            let params = [
                (&mirror.name as _, Type::TEXT),
                (&piece.range.after as _, Type::TEXT),
                (&piece.range.to as _, Type::TEXT),
                (&different as _, Type::TEXT_ARRAY),
                (&looked as _, Type::TIMESTAMPTZ),
            ];
            source.query(sql, &params).await?;
        }
        Ok(Found { last: piece.range.to, rows: piece.keys.len() as u64, ..found })
    }

    /// Checks ranges and forgets old deletions until the worker stops. Another worker takes over a range
    /// that was not finished.
    pub(crate) async fn run(self, context: &ServiceContext) {
        let Some(every) = self.runtime.mirror.check_every else { return };
        let (name, stop) = (self.runtime.name().to_owned(), context.stop_token());
        let duty = |what: &str| Duty::new(format!("{what} mirror {name}"), context.events());
        let purging = Purging { runtime: Arc::clone(&self.runtime) };
        let checking = Checking { checker: self, every, context: context.clone() };
        let pause = ASK_EVERY.min(every).max(SHORTEST_PAUSE);
        // Each has its own results: a check that fails does not keep old deletions.
        let both = futures_util::future::join(
            run_every(checking, duty("check"), pause, stop),
            run_every(purging, duty("purge"), PURGE_EVERY, stop),
        );
        let _ = stop.run_until_cancelled(both).await;
    }

    /// Checks one range, if one is due and no other worker is checking it. Returns true if it did.
    async fn check_next(
        &self,
        every: Duration,
        context: &ServiceContext,
    ) -> Result<bool, MirrorError> {
        let MirrorRuntime { mirror, source, .. } = &*self.runtime;
        source.prepared().await?;
        // A store that is down cannot be compared.
        if mirror.shared.throttle.is_cooling_down(Instant::now()) {
            return Ok(false);
        }
        let sql = "select token, after, round_started_at from leasehold_internal.claim_check($1)";
        let taken = source.query(sql, &[(&mirror.name, Type::TEXT)]).await?;
        let Some(taken) = taken.first() else { return Ok(false) };
        let token: i64 = taken.get(0);
        let found = self.check_range(taken.get(1), taken.get(2)).await?;
        let sql =
            "select leasehold_internal.end_check($1, $2, $3, $4, $5, make_interval(secs => $6))";
        let (rows, repairs) = (signed(found.rows), signed(found.repairs));
        let pause = every.as_secs_f64();
        let params = [
            (&mirror.name as _, Type::TEXT),
            (&token as _, Type::INT8),
            (&found.last as _, Type::TEXT),
            (&rows as _, Type::INT8),
            (&repairs as _, Type::INT8),
            (&pause as _, Type::FLOAT8),
        ];
        source.query(sql, &params).await?;
        if found.differences > 0 {
            let (differences, repairs) = (found.differences, found.repairs);
            tracing::warn!(
                mirror = mirror.name,
                differences,
                repairs,
                "the store differs; jobs repair it"
            );
        }
        context.events().send(|| Event::MirrorChecked {
            mirror: mirror.name.clone(),
            rows: found.rows,
            differences: found.differences,
            round_over: found.last.is_none(),
        });
        Ok(true)
    }
}

/// Checks one range per turn.
struct Checking {
    checker: Checker,
    every: Duration,
    context: ServiceContext,
}

impl Service for Checking {
    type Error = MirrorError;

    async fn turn(&mut self) -> Result<(), MirrorError> {
        let calls = &self.checker.runtime.calls;
        let permit = calls.observe();
        match self.checker.check_next(self.every, &self.context).await {
            Ok(true) => calls.succeeded(permit).await,
            Ok(false) => {}
            result => return without_outage(&self.checker.runtime, permit, result.map(drop)),
        }
        Ok(())
    }
}

/// Forgets old deletions.
struct Purging {
    runtime: Arc<MirrorRuntime>,
}

impl Service for Purging {
    type Error = MirrorError;

    async fn turn(&mut self) -> Result<(), MirrorError> {
        let permit = self.runtime.calls.observe();
        let purged = purge(&self.runtime).await.map(drop);
        without_outage(&self.runtime, permit, purged)
    }
}

/// Records the failure of a store in the throttle, which reports it. Every other error counts as a failure of
/// the duty.
fn without_outage(
    runtime: &MirrorRuntime,
    permit: Permit<'_>,
    result: Result<(), MirrorError>,
) -> Result<(), MirrorError> {
    match result {
        Err(MirrorError::Target(error)) => {
            runtime.calls.failed(permit, &error);
            Ok(())
        }
        result => result,
    }
}

/// Returns the sets to compare, and whether each is the one that is searched. A set that is being built
/// is expected to differ.
fn compared(sets: &Sets) -> impl Iterator<Item = (&Arc<dyn Target>, bool)> {
    let whole = sets.state.as_ref().is_none_or(|state| state.phase == Phase::Swapped);
    let second = sets.second.as_ref().filter(move |_| whole);
    std::iter::once((&sets.serving, true)).chain(second.map(|second| (second, false)))
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
