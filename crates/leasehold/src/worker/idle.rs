//! Runs a worker until nothing is due: for first steps, scripts and tests.

use std::pin::pin;
use std::time::Duration;

use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio_postgres::types::Type;

use super::WorkerBuilder;
use crate::error::WorkerError;
use crate::events::Event;
use crate::link::{Link, ReconnectBackoff};
use crate::queue::finish::Finished;

const IS_IDLE: &str = include_str!("../../queries/is_idle.sql");
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// How many attempts ended in which way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Completed.
    pub done: usize,
    /// Failed and due again later.
    pub retried: usize,
    /// Snoozed by their handler.
    pub snoozed: usize,
    /// Buried: no attempt left, or the handler returned a permanent error.
    pub dead: usize,
    /// Cancelled by their handler or on request.
    pub cancelled: usize,
    /// Released without a run, because the worker stopped.
    pub released: usize,
    /// Ran, but the lease was lost: the result was dropped.
    pub lost: usize,
}

impl Tally {
    fn count(&mut self, event: &Event) {
        let Event::Finished { outcome, .. } = event else { return };
        *match outcome {
            Finished::Completed => &mut self.done,
            Finished::Retried => &mut self.retried,
            Finished::Snoozed => &mut self.snoozed,
            Finished::Buried => &mut self.dead,
            Finished::Cancelled => &mut self.cancelled,
            Finished::Released => &mut self.released,
            Finished::Lost => &mut self.lost,
        } += 1;
    }
}

impl<S: Send + Sync + 'static> WorkerBuilder<S> {
    /// Runs until nothing is due, then stops, and returns how the attempts ended.
    ///
    /// Jobs that are due later stay, also those that failed and wait for their next attempt. Jobs whose
    /// worker died run when their lease is over; jobs that other workers hold stay with them. A sweep
    /// that is due runs until it finds nothing.
    pub async fn run_until_idle(self) -> Result<Tally, WorkerError> {
        let worker = self.id();
        let queues: Vec<String> = self.queues().into_iter().map(|(queue, _)| queue).collect();
        let names: Vec<String> = self.runners.keys().cloned().collect();
        let tidies = self.housekeeping.is_some();
        let schedules: Vec<String> = match tidies {
            true => self.schedules.iter().map(|schedule| schedule.name.clone()).collect(),
            false => Vec::new(),
        };
        let sweeps: Vec<String> = match self.runs_no_jobs {
            true => Vec::new(),
            false => self.sweeps.iter().map(|sweep| sweep.name().to_owned()).collect(),
        };
        let link = Link::new(self.engine.database().clone(), self.engine.call_timeout());
        let idle = Box::pin(async move {
            let mut backoff = ReconnectBackoff::default();
            let params = [
                (&worker as _, Type::TEXT),
                (&queues as _, Type::TEXT_ARRAY),
                (&names as _, Type::TEXT_ARRAY),
                (&tidies as _, Type::BOOL),
                (&schedules as _, Type::TEXT_ARRAY),
                (&sweeps as _, Type::TEXT_ARRAY),
            ];
            loop {
                let pause = match link.query(IS_IDLE, &params).await {
                    Ok(rows) if rows.first().is_some_and(|row| row.get(0)) => return,
                    Ok(_) => {
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
        let mut tally = Tally::default();
        let mut running = pin!(self.run_until(idle));
        loop {
            tokio::select! {
                event = events.recv() => match event {
                    Ok(event) => tally.count(&event),
                    Err(RecvError::Lagged(missed)) => {
                        tracing::warn!(missed, "the tally is too low: events came too fast");
                    }
                    // The worker is gone; its result follows.
                    Err(RecvError::Closed) => break,
                },
                ended = &mut running => {
                    ended?;
                    // The worker sent all events before it returned.
                    loop {
                        match events.try_recv() {
                            Ok(event) => tally.count(&event),
                            Err(TryRecvError::Lagged(_)) => {}
                            Err(TryRecvError::Empty | TryRecvError::Closed) => return Ok(tally),
                        }
                    }
                }
            }
        }
        running.await.map(|()| tally)
    }
}
