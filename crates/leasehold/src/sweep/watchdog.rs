//! The watchdog: resets rows whose worker is gone, and failed rows whose retry is due.
//!
//! # What is true
//! - It does not find out whether a worker is dead. It resets the claim, and a worker that was only
//!   slow finds that its finish matches nothing.
//! - Each piece is one conditional statement that skips locked rows. Two watchdogs at once share the
//!   work; one that dies leaves the rest to the next.
//!
//! # What can go wrong
//! - The database's clock jumps ahead and every claim looks old: a run resets a bounded number of rows
//!   and logs a warning that it stopped at its limit.

use std::time::Duration;

use tokio::sync::watch;
use tokio_postgres::types::Type;

use super::counts;
use super::declare::Sweep;
use super::prepare::{Prepared, SweepError};
use crate::engine::Leasehold;
use crate::events::{Event, Events};
use crate::housekeeping::Duty;
use crate::link::{Link, ReconnectBackoff};

/// Rows per statement, so that locks are short.
const PIECE: i64 = 1000;
/// Failures of rows that were reset and then neither finished nor failed again: deleted by hand, for
/// example.
const FORGET: &str = "delete from leasehold.sweep_failure f where f.ctid = any (array(\
     select o.ctid from leasehold.sweep_failure o \
      where o.sweep = $1 and o.retry_at is null and o.dead_at is null \
        and o.failed_at < statement_timestamp() - interval '30 days' \
      limit $2 for update skip locked))";
/// How often a worker asks whether the watchdog is due.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// What one run of the watchdog did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WatchReport {
    /// Claimed for too long, and waiting again.
    pub reset: u64,
    /// Failed, and waiting again because their retry is due.
    pub retried: u64,
    /// There may be more: the run stopped at its limit.
    pub more: bool,
}

impl Sweep {
    /// Runs the watchdog once, now, whether or not it is due.
    pub async fn watch_once(&self, engine: &Leasehold) -> Result<WatchReport, SweepError> {
        let prepared = Prepared::new(self, engine).await?;
        let report = watch(&prepared, &prepared.link(engine)).await?;
        if let Err(error) = counts::note(&prepared, engine).await {
            let sweep = prepared.sweep.name();
            tracing::debug!(sweep, %error, "rows were not counted; the next turn tries again");
        }
        Ok(report)
    }
}

/// The watchdog of one sweep in one worker.
pub(crate) struct Watchdog {
    pub(crate) engine: Leasehold,
    pub(crate) sweep: Sweep,
    pub(crate) prepared: Option<Prepared>,
    pub(crate) events: Events,
}

impl Watchdog {
    pub(crate) async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let mut backoff = ReconnectBackoff::default();
        let ask_every = ASK_EVERY.min(self.sweep.watchdog_every);
        let mut link = None;
        let name = self.sweep.name().to_owned();
        let mut watching = Duty::new(format!("watch sweep {name}"));
        let mut counting = Duty::new(format!("count sweep {name}"));
        loop {
            let pause = match self.turn(&mut link, &mut counting).await {
                Ok(()) => {
                    watching.note_success();
                    backoff.reset();
                    ask_every.mul_f64(rand::random_range(0.8..=1.0))
                }
                Err(error) => {
                    watching.note_failure(&self.events, &error.to_string());
                    // As in a run: the table may have changed.
                    if error.was_refused() {
                        (self.prepared, link) = (None, None);
                    }
                    backoff.next_wait()
                }
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                _ = stop.wait_for(|stop| *stop) => return,
            }
        }
    }

    async fn turn(
        &mut self,
        link: &mut Option<Link>,
        counting: &mut Duty,
    ) -> Result<(), SweepError> {
        let prepared = match &self.prepared {
            Some(prepared) => prepared,
            None => self.prepared.insert(Prepared::new(&self.sweep, &self.engine).await?),
        };
        let link = link.get_or_insert_with(|| prepared.link(&self.engine));
        let sql = "select leasehold.take_watch($1)";
        let rows = link.query(sql, &[(&self.sweep.name, Type::TEXT)]).await?;
        if !rows.first().is_some_and(|row| row.get(0)) {
            return Ok(());
        }
        let report = watch(prepared, link).await?;
        if report != WatchReport::default() {
            let WatchReport { reset, retried, .. } = report;
            self.events.send(|| Event::SweepWatched {
                sweep: self.sweep.name.clone(),
                reset,
                retried,
            });
        }
        match counts::note(prepared, &self.engine).await {
            Ok(()) => counting.note_success(),
            Err(error) => counting.note_failure(&self.events, &error.to_string()),
        }
        Ok(())
    }
}

pub(super) async fn watch(prepared: &Prepared, link: &Link) -> Result<WatchReport, SweepError> {
    let Prepared { sweep, statements, .. } = prepared;
    link.query(&statements.clamp, &[(&PIECE, Type::INT8)]).await?;
    let most = i64::from(sweep.watchdog_most);
    let mut report = WatchReport::default();
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
        tracing::info!(sweep = sweep.name, reset, retried, "rows went back and wait again");
    }
    if report.more {
        tracing::warn!(
            sweep = sweep.name,
            reset,
            "the watchdog stopped at its limit and goes on at its next turn; did a clock jump?"
        );
    }
    Ok(report)
}

fn unsigned(count: i64) -> u64 {
    u64::try_from(count).unwrap_or(0)
}
