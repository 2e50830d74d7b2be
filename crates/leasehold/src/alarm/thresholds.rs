//! The thresholds of a program, for what no watch of an operator covers.

use std::time::Duration;

/// When alarms are raised: for queues without a watch, and for what has no watch. A watch (`leasehold alarms watch`)
/// takes precedence for its queue.
///
/// The process that takes the sample of a minute evaluates it by its own thresholds: give every process that runs
/// housekeeping the same ones.
///
/// ```
/// use std::time::Duration;
/// use leasehold::{alarm::Thresholds, housekeeping::HousekeepingConfig};
///
/// let thresholds = Thresholds::default().max_age(Duration::from_secs(4 * 3600)).max_dead(100);
/// let config = HousekeepingConfig::default().thresholds(thresholds);
/// # drop(config);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Thresholds {
    /// How long a job of a queue without a watch may be ready. Default: 1 h.
    pub max_age: Duration,
    /// An alarm is raised when this many jobs of a queue without a watch die within 15 minutes; 0: never. Default: 10.
    pub max_dead: u32,
    /// An alarm is raised when this many jobs of a queue without a watch lose their worker within 15 minutes;
    /// 0: never. Default: 10.
    pub max_lost: u32,
    /// How long a queue without a watch may have ready jobs and no worker, in whole minutes, 1 to 5. Default: 5.
    pub max_starved: Duration,
    /// How long a transaction may keep vacuum from removing rows. Default: 15 min.
    pub max_transaction_age: Duration,
    /// How long a mirror may differ from its source. Default: 10 min.
    pub max_difference_age: Duration,
    /// How long a mirror may not be compared, beyond the duration of a check. Default: 1 h.
    pub max_uncompared_age: Duration,
}

impl Default for Thresholds {
    fn default() -> Self {
        let minutes = |minutes: u64| Duration::from_secs(minutes * 60);
        Self {
            max_age: minutes(60),
            max_dead: 10,
            max_lost: 10,
            max_starved: minutes(5),
            max_transaction_age: minutes(15),
            max_difference_age: minutes(10),
            max_uncompared_age: minutes(60),
        }
    }
}

impl Thresholds {
    /// Sets [`Thresholds::max_age`]. Default: 1 h.
    pub fn max_age(mut self, age: Duration) -> Self {
        self.max_age = age;
        self
    }

    /// Sets [`Thresholds::max_dead`]. Default: 10.
    pub fn max_dead(mut self, jobs: u32) -> Self {
        self.max_dead = jobs;
        self
    }

    /// Sets [`Thresholds::max_lost`]. Default: 10.
    pub fn max_lost(mut self, losses: u32) -> Self {
        self.max_lost = losses;
        self
    }

    /// Sets [`Thresholds::max_starved`]. Default: 5 min.
    pub fn max_starved(mut self, time: Duration) -> Self {
        self.max_starved = time;
        self
    }

    /// Sets [`Thresholds::max_transaction_age`]. Default: 15 min.
    pub fn max_transaction_age(mut self, age: Duration) -> Self {
        self.max_transaction_age = age;
        self
    }

    /// Sets [`Thresholds::max_difference_age`]. Default: 10 min.
    pub fn max_difference_age(mut self, age: Duration) -> Self {
        self.max_difference_age = age;
        self
    }

    /// Sets [`Thresholds::max_uncompared_age`]. Default: 1 h.
    pub fn max_uncompared_age(mut self, age: Duration) -> Self {
        self.max_uncompared_age = age;
        self
    }

    /// Returns [`Thresholds::max_starved`] in minutes. A sample looks back over five.
    pub(super) fn starved_minutes(&self) -> f64 {
        (self.max_starved.as_secs_f64() / 60.0).ceil().clamp(1.0, 5.0)
    }
}
