//! Runs a worker until nothing is due: for first steps, scripts and tests.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio_postgres::types::Type;
use tokio_util::sync::CancellationToken;

use super::WorkerBuilder;
use super::service::{AnyService, ServiceContext};
use crate::backoff::RECONNECT;
use crate::error::{CallError, WorkerError};
use crate::events::Event;
use crate::link::Link;
use crate::queue::finish::Finished;

const IS_IDLE: &str = include_str!("../../queries/is_idle.sql");
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// How many attempts ended in which way.
///
/// ```
/// use leasehold::{Finished, FinishedCounts};
///
/// let counts = FinishedCounts::from([(Finished::Completed, 2), (Finished::Retried, 1)]);
/// assert_eq!((counts.completed, counts.retried, counts.dead), (2, 1, 0));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FinishedCounts {
    /// Completed.
    pub completed: usize,
    /// Failed and due again later.
    pub retried: usize,
    /// Snoozed by their handler.
    pub snoozed: usize,
    /// Deferred by their handler: due again later, behind all other jobs.
    pub deferred: usize,
    /// Dead: no attempt is left, or the handler returned a permanent error.
    pub dead: usize,
    /// Cancelled by their handler or on request.
    pub cancelled: usize,
    /// Released without a run, because the worker stopped.
    pub released: usize,
    /// Ran, but the lease was lost: the result was dropped.
    pub lost: usize,
}

impl FinishedCounts {
    fn add(&mut self, finished: Finished, attempts: usize) {
        *match finished {
            Finished::Completed => &mut self.completed,
            Finished::Retried => &mut self.retried,
            Finished::Snoozed => &mut self.snoozed,
            Finished::Deferred => &mut self.deferred,
            Finished::Buried => &mut self.dead,
            Finished::Cancelled => &mut self.cancelled,
            Finished::Released => &mut self.released,
            Finished::Lost => &mut self.lost,
        } += attempts;
    }

    fn count(&mut self, event: &Event) {
        if let Event::Finished { finished: outcome, .. } = event {
            self.add(*outcome, 1);
        }
    }
}

impl<const N: usize> From<[(Finished, usize); N]> for FinishedCounts {
    fn from(ends: [(Finished, usize); N]) -> Self {
        let mut counts = Self::default();
        ends.into_iter().for_each(|(finished, attempts)| counts.add(finished, attempts));
        counts
    }
}

impl<S: Send + Sync + 'static> WorkerBuilder<S> {
    /// Runs until nothing is due, then stops, and returns how the attempts ended.
    ///
    /// Jobs that are due later stay, also those that failed and wait for their next attempt. Jobs whose
    /// worker died run when their lease is over; jobs that other workers hold stay with them. A sweep
    /// that is due runs until it finds nothing: the worker waits until its services are idle too.
    pub async fn run_until_idle(self) -> Result<FinishedCounts, WorkerError> {
        let worker = self.id();
        let queues: Vec<String> = self.queues().into_iter().map(|(queue, _)| queue).collect();
        let names: Vec<String> = self.runners.keys().cloned().collect();
        let runs_housekeeping = self.housekeeping.is_some();
        let schedules: Vec<String> = match runs_housekeeping {
            true => self.schedules.iter().map(|schedule| schedule.name.clone()).collect(),
            false => Vec::new(),
        };
        let context = ServiceContext::of_worker(&self, CancellationToken::new());
        let services = self.services.clone();
        let link = Link::new(self.engine.database().clone(), self.engine.call_timeout());
        let idle = Box::pin(async move {
            let mut backoff = RECONNECT.waits();
            let params = [
                (&worker as _, Type::TEXT),
                (&queues as _, Type::TEXT_ARRAY),
                (&names as _, Type::TEXT_ARRAY),
                (&runs_housekeeping as _, Type::BOOL),
                (&schedules as _, Type::TEXT_ARRAY),
            ];
            // Before and after the jobs: a service may enqueue jobs, and a job may give a service work.
            let is_idle = async || {
                let jobs = async || {
                    let rows = link.query(IS_IDLE, &params).await?;
                    Ok::<bool, CallError>(rows.first().is_some_and(|row| row.get(0)))
                };
                Ok::<bool, CallError>(
                    are_idle(&services, &context).await?
                        && jobs().await?
                        && are_idle(&services, &context).await?,
                )
            };
            loop {
                let pause = match is_idle().await {
                    Ok(true) => return,
                    Ok(false) => {
                        backoff.reset();
                        LOOK_EVERY
                    }
                    // The worker waits for the database too.
                    Err(_) => backoff.next_wait(),
                };
                tokio::time::sleep(pause).await;
            }
        });

        let mut events = self.events().subscribe();
        let mut counts = FinishedCounts::default();
        let mut running = pin!(self.run_until(idle));
        loop {
            tokio::select! {
                event = events.recv() => match event {
                    Ok(event) => counts.count(&event),
                    Err(RecvError::Lagged(missed)) => {
                        tracing::warn!(missed, "events came too fast; the counts are too low");
                    }
                    // The worker is gone; its result follows.
                    Err(RecvError::Closed) => break,
                },
                ended = &mut running => {
                    ended?;
                    // The worker sent all events before it returned.
                    loop {
                        match events.try_recv() {
                            Ok(event) => counts.count(&event),
                            Err(TryRecvError::Lagged(_)) => {}
                            Err(TryRecvError::Empty | TryRecvError::Closed) => return Ok(counts),
                        }
                    }
                }
            }
        }
        running.await.map(|()| counts)
    }
}

async fn are_idle(
    services: &[Arc<dyn AnyService>],
    context: &ServiceContext,
) -> Result<bool, CallError> {
    for service in services {
        if !service.is_idle(context).await? {
            return Ok(false);
        }
    }
    Ok(true)
}
