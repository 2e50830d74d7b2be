//! Housekeeping: reclaims lost jobs, fires schedules and prunes.
//!
//! Every worker does it; nothing depends on there being just one. In reading order: [`round`] is one
//! tick of all quick duties, [`mod@prune`] deletes what is past its retention, [`mod@measure`] takes the sample
//! of a minute, [`rights`] finds out which duties a role may do. [`crate::service`] runs them and handles failures.
//!
//! # Invariants
//! - Each duty has its own result. One that fails, is slow or is not allowed stops no other.

mod measure;
mod prune;
mod reclaim;
mod rights;
mod round;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use prune::Prune;
use rights::Allowed;
use round::Round;

use crate::alarm::Thresholds;
use crate::engine::Leasehold;
use crate::error::CallError;
use crate::events::Events;
use crate::link::Link;
use crate::schedule::Declared;
use crate::service::{Duty, Service, run_every};
use crate::worker::wakes::Notifiers;

/// How long a call may take.
const CALL_LIMIT: Duration = Duration::from_secs(30);

/// How often housekeeping runs, and what it keeps.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HousekeepingConfig {
    /// How often leases that ran out are reclaimed. Longer: slower recovery after a crash. Default: 1 s.
    pub reclaim_every: Duration,
    /// How often to look for old leases, keys and marks. Default: 10 s.
    pub prune_every: Duration,
    /// How long finished jobs stay in history. Default: 7 days.
    pub keep_history: Duration,
    /// How long dead jobs are kept; `None`: until an operator redrives or removes them. Default:
    /// `None`.
    pub keep_dead: Option<Duration>,
    /// Whether to take samples and raise alarms, once per minute for the whole fleet. Default: yes.
    pub measure: bool,
    /// When alarms are raised. Give every process that runs housekeeping the same ones.
    pub thresholds: Thresholds,
}

impl Default for HousekeepingConfig {
    fn default() -> Self {
        Self {
            reclaim_every: Duration::from_secs(1),
            prune_every: Duration::from_secs(10),
            keep_history: Duration::from_secs(7 * 24 * 60 * 60),
            keep_dead: None,
            measure: true,
            thresholds: Thresholds::default(),
        }
    }
}

impl HousekeepingConfig {
    /// Sets [`HousekeepingConfig::reclaim_every`]. Default: 1 s.
    pub fn reclaim_every(mut self, interval: Duration) -> Self {
        self.reclaim_every = interval;
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

    /// Sets [`HousekeepingConfig::thresholds`].
    pub fn thresholds(mut self, thresholds: Thresholds) -> Self {
        self.thresholds = thresholds;
        self
    }
}

/// Takes the result of a call, and counts its failure.
fn note<T>(engine: &Leasehold, duty: &mut Duty, result: Result<T, CallError>) -> Option<T> {
    if let Err(error) = &result {
        engine.process().failed("housekeeping", error);
    }
    duty.note(result)
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
    notifiers: Arc<Notifiers>,
}

impl Housekeeper {
    pub(crate) fn new(
        engine: Leasehold,
        config: HousekeepingConfig,
        schedules: Declared,
        events: Events,
        notifiers: Arc<Notifiers>,
    ) -> Self {
        let link = Link::new(engine.database().clone(), CALL_LIMIT);
        let prune_link = Link::new(engine.database().clone(), CALL_LIMIT);
        Self { engine, link, prune_link, config, schedules, events, notifiers }
    }

    /// Runs until `stop`. A duty that is under way then is abandoned: each is one statement, or is done again by
    /// another worker.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let Self { engine, link, prune_link, config, schedules, events, notifiers } = self;
        let allowed = watch::Sender::new(Allowed::default());
        let (tick, prune) = (Duty::new("housekeeping", &events), Duty::new("prune", &events));
        let pruning = Pruning {
            prune: Prune::new(&config, &engine, &events),
            link: prune_link,
            allowed: allowed.subscribe(),
        };
        let round = Round::new(engine, link, schedules, events, notifiers);
        let thresholds = config.measure.then_some(config.thresholds);
        let ticking = Ticking { round, thresholds, allowed };
        let running = futures_util::future::join(
            run_every(ticking, tick, config.reclaim_every, &stop),
            run_every(pruning, prune, config.prune_every, &stop),
        );
        let _ = stop.run_until_cancelled(running).await;
    }
}

/// The quick duties. Each handles its own result.
struct Ticking {
    round: Round,
    /// `None`: take no samples.
    thresholds: Option<Thresholds>,
    allowed: watch::Sender<Allowed>,
}

impl Service for Ticking {
    type Error = Infallible;

    async fn turn(&mut self) -> Result<(), Infallible> {
        let may = self.round.tick(self.thresholds.as_ref()).await;
        self.allowed.send_if_modified(|known| std::mem::replace(known, may) != may);
        Ok(())
    }
}

/// Pruning, concurrently with the other duties and on its own session.
struct Pruning {
    prune: Prune,
    link: Link,
    allowed: watch::Receiver<Allowed>,
}

impl Service for Pruning {
    type Error = Infallible;

    async fn turn(&mut self) -> Result<(), Infallible> {
        // The sender lives as long as this service.
        let _ = self.allowed.wait_for(|allowed| allowed.prune).await;
        self.prune.run_once(&self.link).await;
        Ok(())
    }
}
