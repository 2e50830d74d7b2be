//! Measure: the sample of a minute, taken beside the other duties. A count over a long queue must not
//! keep leases from being expired.

use std::time::Instant;

use tokio::task::JoinHandle;

use super::jittered;
use crate::engine::Leasehold;
use crate::link::Link;
use crate::measure;

#[derive(Default)]
pub(super) struct Measuring {
    ask_at: Option<Instant>,
    task: Option<JoinHandle<()>>,
}

impl Measuring {
    /// Takes the sample when a minute has passed and nobody else has.
    pub(super) async fn tick(&mut self, link: &Link, engine: &Leasehold) {
        let busy = self.task.as_ref().is_some_and(|task| !task.is_finished());
        if busy || self.ask_at.is_some_and(|at| Instant::now() < at) {
            return;
        }
        self.ask_at = Some(Instant::now() + jittered(measure::ASK_EVERY));
        let asked = link.query("select leasehold.sample_due()", &[]).await;
        if !asked.is_ok_and(|rows| rows.first().is_some_and(|row| row.get(0))) {
            return;
        }
        let engine = engine.clone();
        self.task = Some(tokio::spawn(async move {
            match measure::run_once(engine.database()).await {
                Ok(Some(sampled)) => engine.process().sampled(sampled.minute),
                Ok(None) => {}
                Err(error) => {
                    engine.process().failed("measure", &error);
                    tracing::warn!(%error, "the sample of this minute failed; trying again");
                }
            }
        }));
    }
}

impl Drop for Measuring {
    fn drop(&mut self) {
        // The next worker takes the minute.
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}
