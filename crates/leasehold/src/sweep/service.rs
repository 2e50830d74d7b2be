//! Runs a sweep: once, or as a service of a worker with its loops and its watchdog.

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio_postgres::types::Type;

use super::counts;
use super::declare::Sweep;
use super::finish::SweepSession;
use super::pass::{Pass, SweepReport};
use super::prepare::{CALL_LIMIT, Prepared, SweepError};
use super::run::Sweeper;
use super::watchdog::{ASK_EVERY, Watchdog, WatchdogReport, run_once};
use crate::error::CallError;
use crate::link::Link;
use crate::service::{Duty, run_every};
use crate::worker::{ServiceContext, WorkerService};
use crate::{Leasehold, WorkerError};

const IS_IDLE: &str = "select not exists (\
     select from (select $1::text as name) declared \
       left join leasehold_internal.sweep s on s.name = declared.name \
      where s.name is null or (s.paused_at is null and s.next_run_at <= statement_timestamp()))";

/// Runs a sweep in a worker. [`crate::worker::WorkerBuilder::sweep`] adds it.
pub struct SweepService {
    sweep: Sweep,
    /// Left by `prepare` for the tasks. `None`: the database was down when the worker started.
    prepared: Mutex<Option<Prepared>>,
    link: OnceLock<Link>,
}

impl Sweep {
    /// Runs one pass now, until nothing is due. It ignores and keeps the sweep's schedule, but respects
    /// a pause.
    pub async fn run_once(&self, engine: &Leasehold) -> Result<SweepReport, SweepError> {
        let prepared = Prepared::new(self, engine).await?;
        let session = Arc::new(SweepSession::new(prepared.link(engine), prepared));
        let mut pass = Pass::new(session, ServiceContext::without_worker(engine));
        let passed = pass.run().await;
        pass.count().await?;
        passed.map(|_| pass.report)
    }

    /// Runs the watchdog once, now, whether or not it is due.
    pub async fn run_watchdog_once(
        &self,
        engine: &Leasehold,
    ) -> Result<WatchdogReport, SweepError> {
        let prepared = Prepared::new(self, engine).await?;
        let report = run_once(&prepared, &prepared.link(engine)).await?;
        if let Err(error) = counts::note(&prepared, engine).await {
            let sweep = prepared.sweep.name();
            tracing::debug!(sweep, %error, "rows were not counted; the next turn tries again");
        }
        Ok(report)
    }

    /// Returns the service that runs the sweep in a worker.
    pub fn service(&self) -> SweepService {
        SweepService { sweep: self.clone(), prepared: Mutex::default(), link: OnceLock::new() }
    }
}

impl WorkerService for SweepService {
    fn name(&self) -> String {
        format!("sweep {:?}", self.sweep.name())
    }

    /// A table that does not fit stops the start. An unreachable database does not: the tasks retry.
    async fn prepare(&self, context: &ServiceContext) -> Result<(), WorkerError> {
        match Prepared::new(&self.sweep, context.engine()).await {
            Ok(prepared) => {
                *self.prepared.lock() = Some(prepared);
                Ok(())
            }
            Err(error @ (SweepError::Declaration(_) | SweepError::Table(_))) => {
                Err(WorkerError::Config(error.to_string()))
            }
            Err(error) => {
                let sweep = self.sweep.name();
                tracing::warn!(sweep, %error, "a sweep could not be checked; trying again");
                Ok(())
            }
        }
    }

    /// A batch that is claimed when the worker stops may end within the grace. After it the watchdog
    /// resets the rows.
    async fn run(self: Arc<Self>, context: ServiceContext) {
        let (name, events) = (self.sweep.name(), context.events());
        let (sweep, prepared) = (|| self.sweep.clone(), || self.prepared.lock().clone());
        let loops = if context.runs_jobs() { self.sweep.loops } else { 0 };
        let mut tasks = JoinSet::new();
        for _ in 0..loops {
            let sweeper = Sweeper::new(sweep(), prepared(), context.clone());
            let duty = Duty::new(format!("run sweep {name}"), events);
            let stop = context.stop_token().clone();
            let interval = context.poll_every();
            tasks.spawn(async move { run_every(sweeper, duty, interval, &stop).await });
        }
        if context.housekeeps() {
            let watchdog = Watchdog::new(sweep(), prepared(), &context);
            let duty = Duty::new(format!("run watchdog of sweep {name}"), events);
            let stop = context.stop_token().clone();
            let interval = ASK_EVERY.min(self.sweep.watchdog_every);
            tasks.spawn(async move { run_every(watchdog, duty, interval, &stop).await });
        }
        // Dropping the set aborts the tasks, if the grace is over.
        while tasks.join_next().await.is_some() {}
    }

    /// Idle: the sweep is declared, and paused or not due.
    async fn is_idle(&self, context: &ServiceContext) -> Result<bool, CallError> {
        if !context.runs_jobs() {
            return Ok(true);
        }
        let database = context.engine().database();
        let link = self.link.get_or_init(|| Link::new(database.clone(), CALL_LIMIT));
        let rows = link.query(IS_IDLE, &[(&self.sweep.name, Type::TEXT)]).await?;
        Ok(rows.first().is_some_and(|row| row.get(0)))
    }
}
