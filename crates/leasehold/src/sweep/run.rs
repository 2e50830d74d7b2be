//! Runs: when a sweep is due, every worker passes over the table until nothing is due.
//!
//! # Invariants
//! - A run ends by one statement that finds nothing due and moves the sweep on from the slot it was due
//!   at. A worker that comes late joins the run; a request that came meanwhile is kept.

use std::sync::Arc;

use jiff::Timestamp;
use tokio_postgres::types::Type;

use super::declare::Sweep;
use super::finish::SweepSession;
use super::pass::{Pass, SweepReport};
use super::prepare::{Prepared, SweepError};
use crate::events::Event;
use crate::service::Service;
use crate::worker::ServiceContext;

/// One loop of one sweep in one worker.
pub(super) struct Sweeper {
    sweep: Sweep,
    /// None: the database was down when the worker started, or the table has changed since.
    prepared: Option<Prepared>,
    session: Option<Arc<SweepSession>>,
    context: ServiceContext,
}

impl Service for Sweeper {
    type Error = SweepError;

    async fn turn(&mut self) -> Result<(), SweepError> {
        let turned = self.join_run().await;
        if let Err(error) = &turned {
            let sweep = self.sweep.name();
            tracing::warn!(sweep, %error, "a sweep was interrupted; trying again");
            // The table may have changed since its column types were read: prepare again.
            if error.was_refused() {
                (self.prepared, self.session) = (None, None);
            }
        }
        turned
    }
}

impl Sweeper {
    pub(super) fn new(sweep: Sweep, prepared: Option<Prepared>, context: ServiceContext) -> Self {
        Self { sweep, prepared, session: None, context }
    }

    /// Joins the run that is due, if there is one.
    async fn join_run(&mut self) -> Result<(), SweepError> {
        let engine = self.context.engine();
        let prepared = match &self.prepared {
            Some(prepared) => prepared.clone(),
            None => self.prepared.insert(Prepared::new(&self.sweep, engine).await?).clone(),
        };
        let session = self
            .session
            .get_or_insert_with(|| Arc::new(SweepSession::new(prepared.link(engine), prepared)));
        let session = Arc::clone(session);
        let sql = "select due, slot from leasehold_internal.begin_sweep($1)";
        let rows = session.link.query(sql, &[(&self.sweep.name, Type::TEXT)]).await?;
        let Some(row) = rows.first().filter(|row| row.get(0)) else { return Ok(()) };
        let slot: Timestamp = row.get(1);
        let mut pass = Pass::new(Arc::clone(&session), self.context.clone());
        let passed = pass.run().await;
        pass.count().await?;
        if passed? && self.close(&session, slot).await? {
            let SweepReport { finished, failed, lost, .. } = pass.report;
            tracing::info!(sweep = self.sweep.name, finished, failed, lost, "a sweep's run ended");
            self.context.events().send(|| Event::SweepRunEnded { sweep: self.sweep.name.clone() });
        }
        Ok(())
    }

    /// Ends the run. Returns false if something is due after all, or another worker ended it.
    async fn close(&self, session: &SweepSession, slot: Timestamp) -> Result<bool, SweepError> {
        // Read the clock before the statement that looks for due rows, so that no slot falls between the two.
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
