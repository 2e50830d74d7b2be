//! Housekeeping: reclaims lost jobs, fires schedules and prunes.
//!
//! Every worker does it; nothing depends on there being just one. In reading order: [`round`] is one
//! tick of all quick duties, [`mod@prune`] deletes what is past its retention, [`mod@measure`] takes the sample
//! of a minute, [`duty`] handles failures, [`rights`] finds out which duties a role may do.
//!
//! # What is true
//! - Each duty has its own result. One that fails, is slow or is not allowed stops no other.

mod duty;
mod expire;
mod measure;
mod prune;
mod rights;
mod round;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::watch;

pub(crate) use duty::Duty;

use prune::Prune;
use rights::Allowed;
use round::Round;

use crate::engine::Leasehold;
use crate::events::Events;
use crate::link::Link;
use crate::schedule::Declared;
use crate::worker::wakes::Bells;

/// How long a call may take.
const CALL_LIMIT: Duration = Duration::from_secs(30);

/// How often housekeeping runs, and what it keeps.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HousekeepingConfig {
    /// How often expired leases are looked for. Longer: slower recovery after a crash.
    /// Default: 1 s.
    pub expire_every: Duration,
    /// How often to look for old leases, keys and marks. Default: 10 s.
    pub prune_every: Duration,
    /// How long finished jobs stay in history. Default: 7 days.
    pub keep_history: Duration,
    /// How long dead jobs are kept; `None`: until an operator redrives or removes them. Default:
    /// `None`.
    pub keep_dead: Option<Duration>,
    /// Whether to take samples and raise alarms, once per minute for the whole fleet. Default: yes.
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

impl HousekeepingConfig {
    /// Sets [`HousekeepingConfig::expire_every`]. Default: 1 s.
    pub fn expire_every(mut self, interval: Duration) -> Self {
        self.expire_every = interval;
        self
    }

    /// Sets [`HousekeepingConfig::prune_every`]. Default: 10 s.
    pub fn prune_every(mut self, interval: Duration) -> Self {
        self.prune_every = interval;
        self
    }

    /// Sets [`HousekeepingConfig::keep_history`]. Default: 7 days.
    pub fn keep_history(mut self, time: Duration) -> Self {
        self.keep_history = time;
        self
    }

    /// Deletes dead jobs after this time. Default: never.
    pub fn keep_dead(mut self, time: Duration) -> Self {
        self.keep_dead = Some(time);
        self
    }

    /// Sets [`HousekeepingConfig::measure`]. Default: true.
    pub fn measure(mut self, measure: bool) -> Self {
        self.measure = measure;
        self
    }
}

pub(crate) struct Housekeeper {
    engine: Leasehold,
    link: Link,
    /// Pruning may take long, and a session replies in the order of its statements: leases must not
    /// wait.
    prune_link: Link,
    config: HousekeepingConfig,
    schedules: Declared,
    events: Events,
    bells: Arc<Bells>,
}

impl Housekeeper {
    pub(crate) fn new(
        engine: Leasehold,
        config: HousekeepingConfig,
        schedules: Declared,
        events: Events,
        bells: Arc<Bells>,
    ) -> Self {
        let link = Link::new(engine.database().clone(), CALL_LIMIT);
        let prune_link = Link::new(engine.database().clone(), CALL_LIMIT);
        Self { engine, link, prune_link, config, schedules, events, bells }
    }

    pub(crate) async fn run(self, mut stop: watch::Receiver<bool>) {
        let Self { engine, link, prune_link, config, schedules, events, bells } = self;
        let allowed = watch::Sender::new(Allowed::default());
        let pruning = {
            let (engine, events) = (engine.clone(), events.clone());
            let (config, allowed) = (config.clone(), allowed.subscribe());
            async move { prune(&prune_link, &engine, &events, &config, allowed).await }
        };
        let mut round = Round::new(engine, link, schedules, events, bells);
        let ticking = async {
            loop {
                // A panic in one round must not end housekeeping for the life of the process.
                let ticked = AssertUnwindSafe(round.tick(config.measure)).catch_unwind().await;
                let may = match ticked {
                    Ok(may) => may,
                    Err(panic) => {
                        let text = crate::worker::panic_text(&*panic);
                        tracing::error!("a round of housekeeping panicked: {text}");
                        *allowed.borrow()
                    }
                };
                allowed.send_if_modified(|known| std::mem::replace(known, may) != may);
                tokio::time::sleep(jittered(config.expire_every)).await;
            }
        };
        tokio::select! {
            () = ticking => {}
            () = pruning => {}
            _ = stop.wait_for(|stop| *stop) => {}
        }
    }
}

/// Prunes concurrently with the other duties, on its own session.
async fn prune(
    link: &Link,
    engine: &Leasehold,
    events: &Events,
    config: &HousekeepingConfig,
    mut allowed: watch::Receiver<Allowed>,
) {
    let mut prune = Prune::new(config);
    // The sender lives as long as this task.
    while allowed.wait_for(|allowed| allowed.prune).await.is_ok() {
        let pruned = AssertUnwindSafe(prune.run_once(link, engine, events)).catch_unwind().await;
        if let Err(panic) = pruned {
            let text = crate::worker::panic_text(&*panic);
            tracing::error!("pruning panicked: {text}");
        }
        tokio::time::sleep(jittered(config.prune_every)).await;
    }
}

/// Shortens an interval at random: a fleet that started together must not tick together.
fn jittered(interval: Duration) -> Duration {
    interval.mul_f64(rand::random_range(0.8..=1.0))
}
