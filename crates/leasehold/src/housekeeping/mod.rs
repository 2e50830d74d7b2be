//! Housekeeping: what brings lost jobs back, fires schedules and throws old things away.
//!
//! Every worker does it; nothing depends on there being just one. Each duty has the same shape: a
//! `run_once` that does all the work and says what it did, and a tick.

mod expire;
mod measure;
mod prune;
mod rights;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{Notify, watch};

pub(crate) use expire::{ExpireLeases, walk_jobs};
use measure::Measuring;
pub(crate) use prune::Prune;

use crate::engine::Leasehold;
use crate::error::CallError;
use crate::events::{Event, Events};
use crate::link::Link;
use crate::schedule::{self, Schedule};

/// How long a call may take.
const CALL_LIMIT: Duration = Duration::from_secs(30);

/// How often to tidy, and what to keep.
#[derive(Clone, Debug)]
pub struct HousekeepingConfig {
    /// How often expired leases are looked for. Longer: slower recovery after a crash.
    /// Default: 1 s.
    pub expire_every: Duration,
    /// How often to look for old leases, keys and marks. Default: 10 s.
    pub prune_every: Duration,
    /// How long finished jobs stay in history. Default: 7 days.
    pub keep_history: Duration,
    /// How long dead jobs are kept; `None`: until someone redrives or removes them. Default: `None`.
    pub keep_dead: Option<Duration>,
    /// Whether to measure and to raise alarms, once a minute for the whole fleet. Default: yes.
    pub measure: bool,
}

impl Default for HousekeepingConfig {
    fn default() -> Self {
        Self {
            expire_every: Duration::from_secs(1),
            prune_every: Duration::from_secs(10),
            keep_history: Duration::from_secs(7 * 24 * 60 * 60),
            keep_dead: None,
            measure: true,
        }
    }
}

pub(crate) struct Housekeeper {
    engine: Leasehold,
    link: Link,
    config: HousekeepingConfig,
    schedules: Vec<Schedule>,
    events: Events,
    wakes: Arc<HashMap<String, Arc<Notify>>>,
}

impl Housekeeper {
    pub(crate) fn new(
        engine: Leasehold,
        config: HousekeepingConfig,
        schedules: Vec<Schedule>,
        events: Events,
        wakes: Arc<HashMap<String, Arc<Notify>>>,
    ) -> Self {
        let link = Link::new(engine.database().clone(), CALL_LIMIT);
        Self { engine, link, config, schedules, events, wakes }
    }

    pub(crate) async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let mut leases = ExpireLeases::default();
        let mut prune = Prune::new(&self.config);
        let mut prune_at = Instant::now();
        let mut measuring = Measuring::default();
        loop {
            if let Err(error) = self.tick(&mut leases).await {
                self.engine.process().failed("housekeeping", &error);
                tracing::debug!(%error, "housekeeping failed; trying again at the next tick");
            } else if Instant::now() >= prune_at {
                prune_at = Instant::now() + jittered(self.config.prune_every);
                match prune.run_once(&self.link).await {
                    Ok(report) if report.did_something() => tracing::debug!(?report, "pruned"),
                    Ok(_) => {}
                    Err(error) => tracing::debug!(%error, "pruning failed; trying again later"),
                }
            }
            if self.config.measure {
                measuring.tick(&self.link, &self.engine).await;
            }
            tokio::select! {
                () = tokio::time::sleep(jittered(self.config.expire_every)) => {}
                _ = stop.wait_for(|stop| *stop) => return,
            }
        }
    }

    async fn tick(&mut self, leases: &mut ExpireLeases) -> Result<(), CallError> {
        while let Some(declared) = self.schedules.last() {
            schedule::declare(&self.link, declared).await?;
            self.schedules.pop();
        }
        let expired = leases.run_once(&self.link).await?;
        if !expired.is_empty() {
            let returned = expired.iter().map(|gone| gone.returned).sum();
            let buried = expired.iter().map(|gone| gone.buried).sum();
            for gone in &expired {
                self.engine.process().rescued(&gone.queue, gone.returned, gone.buried);
            }
            tracing::info!(returned, buried, "leases expired");
            self.events.send(|| Event::Expired { returned, buried });
            self.wake_all();
        }
        let fired = schedule::fire_due(&self.link).await?;
        if !fired.is_empty() {
            self.wake_all();
        }
        for (schedule, job) in fired {
            tracing::info!(schedule, job.id = job.0, "a schedule fired");
            self.engine.process().fired(&schedule);
            self.events.send(|| Event::ScheduleFired { schedule, job });
        }
        let walked = walk_jobs(&self.link).await?;
        if walked.expired > 0 {
            tracing::warn!(
                jobs = walked.expired,
                "jobs expired before they were started; they are kept"
            );
        }
        if walked.strays > 0 {
            tracing::warn!(jobs = walked.strays, "jobs were held by no lease; they are given back");
            self.wake_all();
        }
        Ok(())
    }

    fn wake_all(&self) {
        self.wakes.values().for_each(|wake| wake.notify_one());
    }
}

/// A fleet that started together must not tick together.
fn jittered(interval: Duration) -> Duration {
    interval.mul_f64(rand::random_range(0.8..=1.0))
}
