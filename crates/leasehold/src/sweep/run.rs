//! Runs: when a sweep is due, every worker passes over the table until nothing is due.
//!
//! # What is true
//! - A run ends by one statement that finds nothing due and moves the sweep on from the slot it was due
//!   at. A worker that comes late joins the run; a request that came meanwhile is kept.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::watch;
use tokio_postgres::types::Type;

use super::declare::Sweep;
use super::finish::SweepSession;
use super::pass::{Pass, SweepReport};
use super::prepare::{Prepared, SweepError};
use crate::engine::Leasehold;
use crate::events::{Event, Events};
use crate::link::ReconnectBackoff;

impl Sweep {
    /// Runs one pass now, until nothing is due. It ignores and keeps the sweep's schedule, but respects
    /// a pause.
    pub async fn run_once(&self, engine: &Leasehold) -> Result<SweepReport, SweepError> {
        let prepared = Prepared::new(self, engine).await?;
        let session = Arc::new(SweepSession::new(prepared.link(engine), prepared));
        // Keep the sender alive: without it the stop signal would count as closed.
        let (_stop, stopped) = watch::channel(false);
        let mut pass = Pass::new(session, Events::default(), stopped);
        let passed = pass.run().await;
        pass.count().await?;
        passed.map(|_| pass.report)
    }
}

/// One loop of one sweep in one worker.
pub(crate) struct Sweeper {
    pub(crate) engine: Leasehold,
    pub(crate) sweep: Sweep,
    /// None: the database was down when the worker started.
    pub(crate) prepared: Option<Prepared>,
    pub(crate) events: Events,
    pub(crate) poll: Duration,
    pub(crate) hides_errors: bool,
}

impl Sweeper {
    pub(crate) async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let mut backoff = ReconnectBackoff::default();
        let mut session = None;
        while !*stop.borrow() {
            let pause = match self.turn(&mut session, &stop).await {
                Ok(()) => {
                    backoff.reset();
                    self.poll.mul_f64(rand::random_range(0.8..=1.0))
                }
                Err(error) => {
                    tracing::warn!(sweep = self.sweep.name(), %error, "a sweep was interrupted; trying again");
                    // The table may have changed since its column types were read: prepare again.
                    if error.was_refused() {
                        (self.prepared, session) = (None, None);
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

    /// Joins the run that is due, if there is one.
    async fn turn(
        &mut self,
        session: &mut Option<Arc<SweepSession>>,
        stop: &watch::Receiver<bool>,
    ) -> Result<(), SweepError> {
        let prepared = match &self.prepared {
            Some(prepared) => prepared.clone(),
            None => self.prepared.insert(Prepared::new(&self.sweep, &self.engine).await?).clone(),
        };
        let session = Arc::clone(session.get_or_insert_with(|| {
            Arc::new(SweepSession::new(prepared.link(&self.engine), prepared))
        }));
        let sql = "select due, slot from leasehold.begin_sweep($1)";
        let rows = session.link.query(sql, &[(&self.sweep.name, Type::TEXT)]).await?;
        let Some(row) = rows.first().filter(|row| row.get(0)) else { return Ok(()) };
        let slot: Timestamp = row.get(1);
        let pass = Pass::new(Arc::clone(&session), self.events.clone(), stop.clone());
        let mut pass = pass.hide_error_texts(self.hides_errors);
        let passed = pass.run().await;
        pass.count().await?;
        if passed? && self.close(&session, slot).await? {
            let SweepReport { finished, failed, lost, .. } = pass.report;
            tracing::info!(sweep = self.sweep.name, finished, failed, lost, "a sweep's run ended");
            self.events.send(|| Event::SweepRunEnded { sweep: self.sweep.name.clone() });
        }
        Ok(())
    }

    /// Ends the run. Returns false if something is due after all, or another worker ended it.
    async fn close(&self, session: &SweepSession, slot: Timestamp) -> Result<bool, SweepError> {
        // Read the clock before the last look, so that no slot falls between the two.
        let now = session.link.query("select statement_timestamp()", &[]).await?;
        let following = now.first().and_then(|row| self.sweep.when.next_after(row.get(0)));
        let params = [
            (&self.sweep.name as _, Type::TEXT),
            (&slot as _, Type::TIMESTAMPTZ),
            (&following as _, Type::TIMESTAMPTZ),
            (&self.sweep.when.every() as _, Type::FLOAT8),
        ];
        let rows = session.link.query(&session.prepared.statements.close, &params).await?;
        Ok(rows.first().is_some_and(|row| row.get(0)))
    }
}
