//! The watchdog: resets rows whose worker is gone, and failed rows whose retry is due.
//!
//! # Invariants
//! - It does not find out whether a worker is dead. It resets the claim, and a worker that was only
//!   slow finds that its finish matches nothing.
//! - Each piece is one conditional statement that skips locked rows. Two watchdogs at once share the
//!   work; one that dies leaves the rest to the next.
//!
//! # What can go wrong
//! - The database's clock jumps ahead and every claim looks old: a run resets a bounded number of rows
//!   and logs a warning that it stopped at its limit.

use std::time::Duration;

use tokio_postgres::types::Type;

use super::counts;
use super::declare::Sweep;
use super::prepare::{Prepared, SweepError};
use crate::events::Event;
use crate::link::Link;
use crate::service::{Duty, Service};
use crate::worker::ServiceContext;

/// Rows per statement, so that locks are short.
const PIECE: i64 = 1000;
/// Failures of rows that were reset and then neither finished nor failed again: deleted by hand, for
/// example.
const FORGET: &str = "delete from leasehold_internal.sweep_failure f where f.ctid = any (array(\
     select o.ctid from leasehold_internal.sweep_failure o \
      where o.sweep = $1 and o.retry_at is null and o.dead_at is null \
        and o.failed_at < statement_timestamp() - interval '30 days' \
      limit $2 for update skip locked))";
/// How often a worker asks whether the watchdog is due.
pub(super) const ASK_EVERY: Duration = Duration::from_secs(1);

/// What one run of the watchdog did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WatchdogReport {
    /// Rows that were claimed for longer than the limit, and were reset.
    pub reset: u64,
    /// Failed, and waiting again because their retry is due.
    pub retried: u64,
    /// There may be more: the run stopped at its limit.
    pub more: bool,
}

/// The watchdog of one sweep in one worker.
pub(super) struct Watchdog {
    sweep: Sweep,
    /// None: the database was down when the worker started, or the table has changed since.
    prepared: Option<Prepared>,
    link: Option<Link>,
    counting: Duty,
    context: ServiceContext,
}

impl Service for Watchdog {
    type Error = SweepError;

    async fn turn(&mut self) -> Result<(), SweepError> {
        let turned = self.run_if_due().await;
        // As in a run: the table may have changed.
        if turned.as_ref().is_err_and(SweepError::was_refused) {
            (self.prepared, self.link) = (None, None);
        }
        turned
    }
}

impl Watchdog {
    pub(super) fn new(sweep: Sweep, prepared: Option<Prepared>, context: &ServiceContext) -> Self {
        let counting = Duty::new(format!("count sweep {}", sweep.name()), context.events());
        Self { sweep, prepared, link: None, counting, context: context.clone() }
    }

    /// Runs the watchdog, if it is due and no other worker runs it.
    async fn run_if_due(&mut self) -> Result<(), SweepError> {
        let (engine, events) = (self.context.engine(), self.context.events());
        let prepared = match &self.prepared {
            Some(prepared) => prepared,
            None => self.prepared.insert(Prepared::new(&self.sweep, engine).await?),
        };
        let link = self.link.get_or_insert_with(|| prepared.link(engine));
        let sql = "select leasehold_internal.begin_watchdog($1)";
        let rows = link.query(sql, &[(&self.sweep.name, Type::TEXT)]).await?;
        if !rows.first().is_some_and(|row| row.get(0)) {
            return Ok(());
        }
        let report = run_once(prepared, link).await?;
        if report != WatchdogReport::default() {
            let WatchdogReport { reset, retried, .. } = report;
            events.send(|| Event::SweepReset { sweep: self.sweep.name.clone(), reset, retried });
        }
        let counted = counts::note(prepared, engine).await;
        self.counting.note(counted);
        Ok(())
    }
}

pub(super) async fn run_once(
    prepared: &Prepared,
    link: &Link,
) -> Result<WatchdogReport, SweepError> {
    let Prepared { sweep, statements, .. } = prepared;
    link.query(&statements.clamp, &[(&PIECE, Type::INT8)]).await?;
    let most = i64::from(sweep.watchdog_most);
    let mut report = WatchdogReport::default();
    let after = sweep.watchdog_after.as_secs_f64();
    let (mut reset, mut retried) = (0, 0);
    for stuck in [true, false] {
        loop {
            let piece = PIECE.min(most - reset - retried);
            if piece <= 0 {
                report.more = true;
                break;
            }
            let name = (&sweep.name as _, Type::TEXT);
            let rows = if stuck {
                let params = [name, (&after as _, Type::FLOAT8), (&piece as _, Type::INT8)];
                link.query(&statements.reset_stuck, &params).await?
            } else {
                link.query(&statements.reset_failed, &[name, (&piece as _, Type::INT8)]).await?
            };
            let count = rows.first().map_or(0, |row| row.get::<_, i64>(0));
            *if stuck { &mut reset } else { &mut retried } += count;
            if count < piece {
                break;
            }
        }
    }
    link.query(FORGET, &[(&sweep.name, Type::TEXT), (&PIECE, Type::INT8)]).await?;
    (report.reset, report.retried) = (unsigned(reset), unsigned(retried));
    if report.reset > 0 || report.retried > 0 {
        tracing::info!(sweep = sweep.name, reset, retried, "rows were reset and wait again");
    }
    if report.more {
        tracing::warn!(
            sweep = sweep.name,
            reset,
            "the watchdog stopped at its limit and continues at its next turn; did a clock jump?"
        );
    }
    Ok(report)
}

fn unsigned(count: i64) -> u64 {
    u64::try_from(count).unwrap_or(0)
}
