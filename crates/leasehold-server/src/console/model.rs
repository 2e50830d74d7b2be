//! The data of the page, and of `/console/api/overview`: they are the same.

use jiff::Timestamp;
use leasehold::admin::{AlarmState, WorkerState};
use serde::Serialize;

use crate::housekeeping::Kept;

/// How far back the charts go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Range {
    #[serde(rename = "30m")]
    HalfHour,
    #[serde(rename = "3h")]
    Hours,
    #[serde(rename = "24h")]
    Day,
    #[serde(rename = "30d")]
    Month,
}

impl Range {
    pub const ALL: [Self; 4] = [Self::HalfHour, Self::Hours, Self::Day, Self::Month];

    pub fn of(text: Option<&str>) -> Self {
        Self::ALL.into_iter().find(|range| Some(range.word()) == text).unwrap_or(Self::HalfHour)
    }

    pub fn word(self) -> &'static str {
        match self {
            Self::HalfHour => "30m",
            Self::Hours => "3h",
            Self::Day => "24h",
            Self::Month => "30d",
        }
    }

    /// Returns the range as the page shows it.
    pub fn label(self) -> &'static str {
        match self {
            Self::HalfHour => "30 minutes",
            Self::Hours => "3 hours",
            Self::Day => "24 hours",
            Self::Month => "30 days",
        }
    }

    pub fn minutes(self) -> u32 {
        match self {
            Self::HalfHour => 30,
            Self::Hours => 180,
            Self::Day => 1440,
            Self::Month => 43_200,
        }
    }

    /// Minutes per point.
    pub fn step(self) -> u32 {
        match self {
            Self::HalfHour => 1,
            Self::Hours => 3,
            Self::Day => 15,
            Self::Month => 360,
        }
    }
}

#[derive(Debug, Serialize)]
pub struct Overview {
    pub v: u8,
    pub now: Timestamp,
    /// The minute of the last sample; `None`: there was no sample in the last 15 minutes.
    pub sampled_at: Option<Timestamp>,
    /// When the last sample was taken; `None`: there was none.
    pub measured_at: Option<Timestamp>,
    /// True if that was within three minutes. Otherwise the state is unknown.
    pub fresh: bool,
    /// Whether this process runs housekeeping, which takes the samples.
    pub housekeeping: Kept,
    pub health: Health,
    pub range: Range,
    pub charts: Vec<Series>,
    pub alarms: Vec<Alarm>,
    pub queues: Vec<Queue>,
    pub workers: Vec<Worker>,
    pub sweeps: Vec<Sweep>,
    pub mirrors: Vec<Mirror>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    Well,
    Alarmed,
    /// There are no recent samples.
    Unknown,
    /// There is no data yet.
    Empty,
}

#[derive(Debug, Serialize)]
pub struct Health {
    pub state: State,
    pub sentence: String,
    pub facts: String,
}

#[derive(Debug, Serialize)]
pub struct Series {
    pub name: &'static str,
    pub title: &'static str,
    pub unit: &'static str,
    /// The oldest first, each the mean of its step; null: there was no sample.
    pub values: Vec<Option<f64>>,
    /// When the step of each value begins.
    pub times: Vec<Timestamp>,
    /// The value of the last sample; `None`: it is older than three minutes.
    pub now: Option<f64>,
    /// The text when there is nothing to draw.
    #[serde(skip)]
    pub empty: &'static str,
}

#[derive(Debug, Serialize)]
pub struct Alarm {
    pub id: String,
    pub rule: String,
    pub subject: String,
    pub state: AlarmState,
    pub summary: String,
    pub raised_at: Timestamp,
    pub acknowledged_by: Option<String>,
    pub acknowledged_why: Option<String>,
    pub silenced_until: Option<Timestamp>,
    pub silenced_by: Option<String>,
    pub silenced_why: Option<String>,
}

#[derive(Debug, Default, Serialize)]
pub struct Queue {
    pub name: String,
    pub ready: f64,
    pub running: f64,
    pub scheduled: f64,
    pub retrying: f64,
    pub dead: f64,
    pub dead_expired: f64,
    pub oldest_ready_age_seconds: f64,
    pub workers: f64,
    pub paused: bool,
    pub completed_last_minute: f64,
    pub watched: bool,
}

#[derive(Debug, Serialize)]
pub struct Worker {
    pub name: String,
    pub host: String,
    pub pid: i32,
    pub version: String,
    pub state: WorkerState,
    pub queues: Vec<String>,
    pub slots: i32,
    pub busy: i32,
    pub claimed_ahead: i32,
    pub started_at: Timestamp,
    pub last_seen_at: Timestamp,
}

#[derive(Debug, Serialize)]
pub struct Sweep {
    pub name: String,
    pub table: String,
    pub state: String,
    pub next_run_at: Timestamp,
    /// `None`, here and below: not counted.
    pub due: Option<f64>,
    pub finished: i64,
    pub failing: Option<f64>,
    pub dead: Option<f64>,
    pub reset: i64,
    pub stuck: Option<f64>,
}

#[derive(Debug, Serialize)]
pub struct Mirror {
    pub name: String,
    pub phase: String,
    pub rows_compared: i64,
    pub repaired: i64,
    pub differences: i64,
    pub oldest_difference_age_seconds: Option<f64>,
    pub equal_as_of: Option<Timestamp>,
}
