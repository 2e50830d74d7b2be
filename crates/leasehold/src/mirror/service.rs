//! Runs a mirror: once, or as a service of a worker, which handles its jobs and orders, and compares everything
//! continuously.

use std::sync::Arc;

use super::check::{CheckReport, Checker, purge};
use super::declare::{Mirror, MirrorError};
use super::runtime::MirrorRuntime;
use super::sets::{ORDER_LIMIT, RebuildReport, Rebuilder, run_order};
use super::sync::{DirectWriter, is_bulk, run_pass};
use crate::worker::{ManyJobs, ServiceContext, UntypedJob, WorkerBuilder, WorkerService};
use crate::{FinishedCounts, Leasehold, WorkerError};

impl Mirror {
    /// Returns the service that runs the mirror in a worker.
    pub fn service(&self, engine: &Leasehold) -> MirrorService {
        MirrorService { runtime: Arc::new(MirrorRuntime::new(engine, self.clone())) }
    }

    /// Starts the direct path of this process. Clones of a mirror share what they know about the store,
    /// so give the worker a clone of the same one.
    pub fn direct_writer(&self, engine: &Leasehold) -> DirectWriter {
        DirectWriter::start(self, engine)
    }

    /// Handles every job that is due now, and returns how they ended. For tests and scripts; a worker
    /// does it all the time.
    pub async fn pass_once(&self, engine: &Leasehold) -> Result<FinishedCounts, MirrorError> {
        let mirror = self.clone().without_check();
        let worker = engine.worker().without_housekeeping().service(mirror.service(engine));
        worker.run_until_idle().await.map_err(|error| match error {
            WorkerError::Config(text) => MirrorError::Declaration(text),
            error => error.into(),
        })
    }

    /// Compares the whole table now, whether or not a range is due, and publishes the result.
    pub async fn check_once(&self, engine: &Leasehold) -> Result<CheckReport, MirrorError> {
        Checker::new(Arc::new(MirrorRuntime::new(engine, self.clone()))).check_all().await
    }

    /// Forgets deletions that are old enough, and returns how many. A worker does it once per minute.
    pub async fn purge_once(&self, engine: &Leasehold) -> Result<u64, MirrorError> {
        purge(&MirrorRuntime::new(engine, self.clone())).await
    }

    /// Fills a second set, proves it equal and swaps it in. Continues an interrupted rebuild.
    pub async fn rebuild(&self, engine: &Leasehold) -> Result<RebuildReport, MirrorError> {
        Rebuilder::new(&MirrorRuntime::new(engine, self.clone())).rebuild().await
    }

    /// Swaps back to the former set, which has received every write since.
    pub async fn rollback(&self, engine: &Leasehold) -> Result<String, MirrorError> {
        Rebuilder::new(&MirrorRuntime::new(engine, self.clone())).roll_back().await
    }

    /// Removes the second set: the former one, or one that is being built.
    pub async fn drop_second(&self, engine: &Leasehold) -> Result<Option<String>, MirrorError> {
        Rebuilder::new(&MirrorRuntime::new(engine, self.clone())).drop_second().await
    }
}

/// Runs a mirror in a worker. [`WorkerBuilder::mirror`] adds it.
pub struct MirrorService {
    runtime: Arc<MirrorRuntime>,
}

impl WorkerService for MirrorService {
    fn name(&self) -> String {
        format!("mirror {:?}", self.runtime.name())
    }

    /// The jobs of changes, many at a time, and the jobs of orders.
    fn register<S: Send + Sync + 'static>(
        self: &Arc<Self>,
        worker: WorkerBuilder<S>,
    ) -> WorkerBuilder<S> {
        let mirror = &self.runtime.mirror;
        let (passes, orders) = (Arc::clone(&self.runtime), Arc::clone(&self.runtime));
        // Two batches: one is claimed while the other is written.
        let slots = mirror.claim_size * 2;
        let changes = UntypedJob::new(mirror.job_name()).queue(mirror.queue_name()).slots(slots);
        // Changes by users do not wait for a large re-index.
        let together =
            ManyJobs::up_to(mirror.claim_size).group_by(|job| i64::from(is_bulk(job.priority())));
        let order = UntypedJob::new(mirror.order_name());
        let order = order.queue(mirror.queue_name()).run_limit(ORDER_LIMIT);
        worker
            .handle_many_untyped(changes, together, move |jobs| run_pass(Arc::clone(&passes), jobs))
            .handle_untyped(order, move |job| run_order(Arc::clone(&orders), job))
    }

    /// A table that does not fit stops the start. An unreachable database does not: passes and checks
    /// prepare the mirror themselves.
    async fn prepare(&self, _: &ServiceContext) -> Result<(), WorkerError> {
        match self.runtime.source.prepared().await {
            Ok(_) => Ok(()),
            Err(error @ (MirrorError::Declaration(_) | MirrorError::Table(_))) => {
                Err(WorkerError::Config(error.to_string()))
            }
            Err(error) => {
                let mirror = self.runtime.name();
                tracing::warn!(mirror, %error, "a mirror could not be checked; trying again");
                Ok(())
            }
        }
    }

    async fn run(self: Arc<Self>, context: ServiceContext) {
        if context.housekeeps() {
            Checker::new(Arc::clone(&self.runtime)).run(&context).await;
        }
    }
}
