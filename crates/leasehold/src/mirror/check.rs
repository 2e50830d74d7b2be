//! The check: compares the whole table with the whole store, in both directions, one range at a time.
//!
//! # What is true
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
use tokio::sync::watch;
use tokio_postgres::types::Type;

use super::differences::{Difference, Piece};
use super::prepare::MirrorError;
use super::runtime::MirrorRuntime;
use super::sets::{Phase, Sets};
use super::target::Target;
use crate::engine::Leasehold;
use crate::events::{Event, Events};
use crate::housekeeping::Duty;
use crate::link::ReconnectBackoff;

/// How often a worker asks whether a range is due.
const ASK_EVERY: Duration = Duration::from_millis(500);
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

impl super::Mirror {
    /// Compares the whole table now, whether or not a range is due, and publishes the result.
    pub async fn check_once(&self, engine: &Leasehold) -> Result<CheckReport, MirrorError> {
        MirrorRuntime::new(engine, self.clone()).check_all().await
    }
}

impl MirrorRuntime {
    pub(super) async fn check_all(&self) -> Result<CheckReport, MirrorError> {
        let started = Instant::now();
        self.prepared().await?;
        let began = self.now().await?;
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
        let sql = "select leasehold.publish_check($1, $2, $3, $4)";
        let (rows, repairs) = (signed(report.rows), signed(report.repairs));
        let params = [
            (&self.mirror.name as _, Type::TEXT),
            (&began as _, Type::TIMESTAMPTZ),
            (&rows as _, Type::INT8),
            (&repairs as _, Type::INT8),
        ];
        let rows = self.link.query(sql, &params).await?;
        report.equal_as_of = rows.first().and_then(|row| row.get(0));
        report.took = started.elapsed();
        Ok(report)
    }

    /// Returns the database's time. Whatever is read afterwards is as of that time or later.
    pub(super) async fn now(&self) -> Result<Timestamp, MirrorError> {
        let now = self.link.query("select statement_timestamp()", &[]).await?;
        let unknown = || MirrorError::State("the database did not say what time it is".to_owned());
        now.first().map(|row| row.get(0)).ok_or_else(unknown)
    }

    /// Returns what differs in one set; `None`: the digests are equal.
    async fn compare(
        &self,
        target: &Arc<dyn Target>,
        piece: &mut Piece,
    ) -> Result<Option<Vec<Difference>>, MirrorError> {
        let own = self.digest_of(&piece.keys).await?;
        if self.call(target.digest(&piece.range)).await? == own {
            return Ok(None);
        }
        self.differences(target, piece).await.map(Some)
    }

    /// Compares the next range of rows after a key.
    async fn check_range(
        &self,
        after: Option<String>,
        began: Timestamp,
    ) -> Result<Found, MirrorError> {
        let sets = self.sets().await?;
        let looked = self.now().await?;
        let mut piece = self.piece_after(after).await?;
        let mut found = Found::default();
        let mut different: Vec<String> = Vec::new();
        let mut all_compared = true;
        for (target, is_searched) in compared(&sets) {
            let comparing = self.compare(target, &mut piece);
            let differences = match is_searched {
                true => comparing.await?,
                false => match self.of_second(comparing).await {
                    // The second set did not answer; the set that is searched was still compared.
                    Err(MirrorError::Target(_)) => {
                        all_compared = false;
                        continue;
                    }
                    differences => differences?,
                },
            };
            let Some(differences) = differences else { continue };
            found.unequal = true;
            let (counted, repairs) = self.note_differences(began, &differences).await?;
            found.differences += counted;
            found.repairs += repairs;
            different.extend(differences.into_iter().map(|difference| difference.key));
        }
        // Recorded differences do not name their set: those of a set that was not compared must stay.
        if all_compared {
            let sql = "select leasehold.mirror_equal($1, $2, $3, $4, $5)";
            let params = [
                (&self.mirror.name as _, Type::TEXT),
                (&piece.range.after as _, Type::TEXT),
                (&piece.range.to as _, Type::TEXT),
                (&different as _, Type::TEXT_ARRAY),
                (&looked as _, Type::TIMESTAMPTZ),
            ];
            self.link.query(sql, &params).await?;
        }
        Ok(Found { last: piece.range.to, rows: piece.keys.len() as u64, ..found })
    }
}

/// Returns the sets to compare, and whether each is the one that is searched. A set that is being built
/// is expected to differ.
fn compared(sets: &Sets) -> impl Iterator<Item = (&Arc<dyn Target>, bool)> {
    let whole = sets.state.as_ref().is_none_or(|state| state.phase == Phase::Swapped);
    let second = sets.second.as_ref().filter(move |_| whole);
    std::iter::once((&sets.serving, true)).chain(second.map(|second| (second, false)))
}

/// The check of one mirror in one worker.
pub(crate) struct Checker {
    pub(crate) runtime: Arc<MirrorRuntime>,
    pub(crate) events: Events,
}

impl Checker {
    pub(crate) async fn run(self, mut stop: watch::Receiver<bool>) {
        let Some(every) = self.runtime.mirror.check_every else { return };
        let mut backoff = ReconnectBackoff::default();
        let mut purge_at = Instant::now();
        let name = self.runtime.name();
        let mut checking = Duty::new(format!("check mirror {name}"));
        let mut purging = Duty::new(format!("purge mirror {name}"));
        loop {
            // Each has its own result: a check that fails does not keep old deletions.
            let turn = async {
                let asked = Instant::now();
                let mut succeeded = self.note(&mut checking, self.turn(every).await, asked);
                if Instant::now() >= purge_at {
                    let asked = Instant::now();
                    let purged = self.runtime.purge().await.map(drop);
                    if self.note(&mut purging, purged, asked) {
                        purge_at = Instant::now() + PURGE_EVERY;
                    } else {
                        succeeded = false;
                    }
                }
                succeeded
            };
            let succeeded = tokio::select! {
                succeeded = turn => succeeded,
                // Another worker takes over a range that was not finished.
                _ = stop.wait_for(|stop| *stop) => return,
            };
            let pause = if succeeded {
                backoff.reset();
                ASK_EVERY.min(every).mul_f64(rand::random_range(0.8..=1.0))
            } else {
                backoff.next_wait()
            };
            tokio::select! {
                () = tokio::time::sleep(pause.max(Duration::from_millis(5))) => {}
                _ = stop.wait_for(|stop| *stop) => return,
            }
        }
    }

    /// Records a result; returns true if it is a success. `asked`: when the work began. The throttle
    /// reports a store that is down; everything else is a duty that fails.
    fn note(&self, duty: &mut Duty, result: Result<(), MirrorError>, asked: Instant) -> bool {
        match &result {
            Ok(()) => duty.note_success(),
            Err(MirrorError::Target(error)) => {
                self.runtime.failed(error, asked);
            }
            Err(error) => duty.note_failure(&self.events, &error.to_string()),
        }
        result.is_ok()
    }

    /// Checks one range, if one is due and no other worker is checking it.
    async fn turn(&self, every: Duration) -> Result<(), MirrorError> {
        let runtime = &self.runtime;
        runtime.prepared().await?;
        // A store that is down cannot be compared.
        if runtime.throttle().rests(Instant::now()) {
            return Ok(());
        }
        let sql = "select token, after, round_started_at from leasehold.take_check($1)";
        let taken = runtime.link.query(sql, &[(&runtime.mirror.name, Type::TEXT)]).await?;
        let Some(taken) = taken.first() else { return Ok(()) };
        let token: i64 = taken.get(0);
        let found = runtime.check_range(taken.get(1), taken.get(2)).await?;
        runtime.succeeded().await;
        let sql = "select leasehold.end_check($1, $2, $3, $4, $5, make_interval(secs => $6))";
        let (rows, repairs) = (signed(found.rows), signed(found.repairs));
        let pause = every.as_secs_f64();
        let params = [
            (&runtime.mirror.name as _, Type::TEXT),
            (&token as _, Type::INT8),
            (&found.last as _, Type::TEXT),
            (&rows as _, Type::INT8),
            (&repairs as _, Type::INT8),
            (&pause as _, Type::FLOAT8),
        ];
        runtime.link.query(sql, &params).await?;
        if found.differences > 0 {
            let (mirror, differences, repairs) = (runtime.name(), found.differences, found.repairs);
            tracing::warn!(mirror, differences, repairs, "the store differs; it is being mended");
        }
        self.events.send(|| Event::MirrorChecked {
            mirror: runtime.name().to_owned(),
            rows: found.rows,
            differences: found.differences,
            round_over: found.last.is_none(),
        });
        Ok(())
    }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
