//! Measure: takes the sample of a minute in its own task. A count over a long queue must not delay the
//! reclaim of leases.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use tokio::task::JoinHandle;

use crate::alarm::Thresholds;
use crate::backoff::jitter;
use crate::engine::Leasehold;
use crate::events::Events;
use crate::link::Link;
use crate::measure::{self, PARTS, Sampled};
use crate::service::Duty;

/// Successes and failures of each part of this process's samples.
type Parts = Arc<parking_lot::Mutex<HashMap<&'static str, Duty>>>;

pub(super) struct Measuring {
    ask_at: Option<Instant>,
    task: Option<JoinHandle<()>>,
    asking: Duty,
    parts: Parts,
}

impl Measuring {
    pub(super) fn new(events: &Events) -> Self {
        let asking = Duty::new("ask for a sample", events);
        Self { ask_at: None, task: None, asking, parts: Parts::default() }
    }

    /// Takes the sample if a minute has passed and no other process has taken it.
    pub(super) async fn tick(
        &mut self,
        link: &Link,
        engine: &Leasehold,
        events: &Events,
        thresholds: &Thresholds,
    ) {
        let busy = self.task.as_ref().is_some_and(|task| !task.is_finished());
        if busy || self.ask_at.is_some_and(|at| Instant::now() < at) {
            return;
        }
        self.ask_at = Some(Instant::now() + jitter(measure::ASK_EVERY));
        let asked = link.query("select leasehold_internal.sample_due()", &[]).await;
        let asked = super::note(engine, &mut self.asking, asked);
        if !asked.is_some_and(|rows| rows.first().is_some_and(|row| row.get(0))) {
            return;
        }
        let (engine, events, parts) = (engine.clone(), events.clone(), Arc::clone(&self.parts));
        let thresholds = thresholds.clone();
        self.task = Some(tokio::spawn(async move {
            match measure::run_once(engine.database(), &thresholds).await {
                Ok(Some(sampled)) => {
                    engine.process().sampled(sampled.minute);
                    note(&parts, &events, &sampled);
                }
                Ok(None) => {}
                Err(error) => {
                    engine.process().failed("measure", &error);
                    tracing::warn!(%error, "the sample of this minute failed; trying again");
                }
            }
        }));
    }
}

/// Each part has its own result: the other parts of the sample remain valid.
fn note(parts: &Parts, events: &Events, sampled: &Sampled) {
    let mut parts = parts.lock();
    for part in PARTS {
        let duty =
            parts.entry(part).or_insert_with(|| Duty::new(format!("measure {part}"), events));
        match sampled.failed.iter().find(|(failed, _)| *failed == part) {
            Some((_, error)) => duty.note_failure(error),
            None => duty.note_success(),
        }
    }
}

impl Drop for Measuring {
    fn drop(&mut self) {
        // The next worker takes the sample of this minute.
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}
