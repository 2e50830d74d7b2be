//! What the rules look at, as the database gives it.

use serde::Deserialize;

/// What the rules look at: the last sample and the minutes before it. Ages are in seconds.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Snapshot {
    pub queues: Vec<QueueView>,
    pub sweeps: Vec<SweepView>,
    pub mirrors: Vec<MirrorView>,
    /// For how long cleaning has been held back.
    pub oldest_xact_age: f64,
    /// By whom, the worst first; empty: whoever it was is gone by now.
    #[serde(default)]
    pub vacuum_held_by: Vec<Holder>,
    /// Alarms that are up.
    pub open: Vec<Open>,
}

/// A session, a prepared transaction, a replication slot or a standby.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Holder {
    /// Without the text of its query: that may hold a secret.
    pub who: String,
    /// What ends it.
    pub remedy: String,
    pub age: f64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Open {
    pub rule: String,
    pub subject: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub struct QueueView {
    pub queue: String,
    pub paused: bool,
    /// Jobs that wait or run, without the bulk tags.
    pub length: f64,
    pub oldest_ready_age: f64,
    pub expired_kept: f64,
    /// Within the watch's time.
    pub completed: f64,
    /// Within a quarter of an hour.
    pub died: f64,
    pub lost: f64,
    /// Of the last five minutes: those in which jobs could run and nobody was there.
    pub starved_minutes: f64,
    pub watch: Option<Watch>,
}

/// What somebody expects of a queue.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Watch {
    pub off: bool,
    pub min_completed: f64,
    pub over: f64,
    pub max_length: Option<f64>,
    pub max_age: Option<f64>,
    pub max_dead: f64,
    pub max_lost: f64,
    /// For how long it has been so, with somebody looking and the queue at work.
    pub watched_for: f64,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub struct SweepView {
    pub sweep: String,
    pub stuck: f64,
    pub dead: f64,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub struct MirrorView {
    pub mirror: String,
    pub differences: f64,
    pub oldest_difference_age: f64,
    /// How much longer than its check takes nobody has seen it equal; 0 for one that never was.
    #[serde(default)]
    pub unproven_age: f64,
}
