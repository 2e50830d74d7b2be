//! The input of the rules, as the database returns it.

use serde::Deserialize;

use super::rule::Rule;

/// The input of the rules: the last sample and the minutes before it. Ages are in seconds.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Snapshot {
    /// The parts of the sample that succeeded. `None`: all of them.
    #[serde(default)]
    pub measured: Option<Vec<String>>,
    /// Every queue of the sample.
    pub queues: Vec<QueueView>,
    /// Every sweep of the sample.
    pub sweeps: Vec<SweepView>,
    /// Every mirror of the sample.
    pub mirrors: Vec<MirrorView>,
    /// For how long vacuum has been held back.
    pub oldest_xact_age: f64,
    /// The holders, the worst first. Empty: the holder has ended by now.
    #[serde(default)]
    pub vacuum_held_by: Vec<Holder>,
    /// Alarms that are open.
    pub open: Vec<Open>,
}

impl Snapshot {
    /// Returns whether the sample holds every part that the rule needs.
    pub fn knows(&self, rule: Rule) -> bool {
        self.measured.as_ref().is_none_or(|measured| {
            rule.parts().iter().all(|part| measured.iter().any(|m| m == part))
        })
    }
}

/// A session, a prepared transaction, a replication slot or a standby.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Holder {
    /// Without the text of its query, which may hold a secret.
    pub who: String,
    /// The command that ends it.
    pub remedy: String,
    /// Seconds.
    pub age: f64,
}

/// An alarm that is open.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Open {
    pub rule: String,
    pub subject: String,
}

/// One queue of the sample.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct QueueView {
    pub queue: String,
    pub paused: bool,
    /// Jobs that wait or run, without those of the bulk tags.
    pub length: f64,
    pub oldest_ready_age: f64,
    pub dead_expired: f64,
    /// Within the window of the watch.
    pub completed: f64,
    /// Within the last 15 minutes.
    pub died: f64,
    pub lost: f64,
    /// How many of the last five minutes had ready jobs and no worker.
    pub starved_minutes: f64,
    pub watch: Option<Watch>,
}

/// Thresholds that an operator set for a queue.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Watch {
    pub off: bool,
    pub min_completed: f64,
    pub over: f64,
    pub max_length: Option<f64>,
    pub max_age: Option<f64>,
    pub max_dead: f64,
    pub max_lost: f64,
    /// For how long these thresholds have applied while the queue was sampled and not paused.
    pub watched_for: f64,
}

/// One sweep of the sample.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct SweepView {
    pub sweep: String,
    pub stuck: f64,
    pub dead: f64,
}

/// One mirror of the sample.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct MirrorView {
    pub mirror: String,
    pub differences: f64,
    pub oldest_difference_age: f64,
    /// For how long beyond the duration of a check no check has found it equal; 0 if it never was
    /// equal.
    #[serde(default)]
    pub uncompared_age: f64,
}
