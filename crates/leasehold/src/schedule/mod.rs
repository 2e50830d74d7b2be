//! Schedules: jobs that the clock enqueues, once per slot across the whole fleet.
//!
//! # What is true
//! - One conditional statement advances the schedule and inserts the job, so two workers that see the
//!   same slot enqueue one job.
//! - The database's clock decides when a slot is due; the time zone decides when slots are.
//!
//! # What can go wrong
//! - No worker ran for a while: the schedule's policy decides what becomes of the missed slots.
//! - A local time happens twice or not at all (daylight saving): croner's rules apply; the tests
//!   show a gap and an overlap.

mod declare;
mod fire;
mod unreadable;

use croner::Cron;
use croner::errors::CronError;
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};

use crate::error::EnqueueError;
use crate::job::{Job, check_queue_name};
use crate::queue::check::{arguments, check_json, check_text};

pub(crate) use declare::Declared;
pub(crate) use fire::fire_due;

/// The longest cron text that is read: a hostile one must not cost memory.
const LONGEST_CRON: usize = 200;

/// What to do with slots that passed while no worker ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Missed {
    /// Drop them.
    Skip,
    /// Run once for all of them.
    #[default]
    Once,
    /// Run for each, oldest first, one per tick of housekeeping, without a bound: a schedule of every
    /// minute has 1440 for each day without a worker.
    All,
}

impl Missed {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Skip => "skip",
            Self::Once => "once",
            Self::All => "all",
        }
    }
}

impl std::str::FromStr for Missed {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "skip" => Ok(Self::Skip),
            "once" => Ok(Self::Once),
            "all" => Ok(Self::All),
            _ => Err(format!("{word:?} is not a policy; use skip, once or all")),
        }
    }
}

/// A schedule as declared.
#[derive(Clone, Debug)]
pub struct Schedule {
    pub name: String,
    pub cron: String,
    pub zone: String,
    pub queue: String,
    pub job_name: String,
    pub kwargs: serde_json::Value,
    pub priority: i32,
    pub missed: Missed,
}

impl Schedule {
    /// Enqueues `job` at every slot of `cron` in the time zone `zone`, such as `Europe/Berlin`.
    pub fn new<J: Job>(
        name: impl Into<String>,
        cron: impl Into<String>,
        zone: impl Into<String>,
        job: &J,
    ) -> Result<Self, ScheduleError> {
        let schedule = Self {
            name: name.into(),
            cron: cron.into(),
            zone: zone.into(),
            queue: J::QUEUE.to_owned(),
            job_name: J::NAME.to_owned(),
            kwargs: arguments(job)
                .and_then(|text| serde_json::from_str(text.get()))
                .map_err(|error| ScheduleError::Arguments(error.to_string()))?,
            priority: J::policy().priority,
            missed: Missed::default(),
        };
        schedule.check()?;
        Ok(schedule)
    }

    pub fn missed(mut self, missed: Missed) -> Self {
        self.missed = missed;
        self
    }

    /// Checks that the schedule can fire, before it is stored: its pattern, and what an enqueue checks
    /// of each of its jobs.
    pub fn check(&self) -> Result<(), ScheduleError> {
        check_queue_name(&self.name).map_err(|_| ScheduleError::Name(self.name.clone()))?;
        check_queue_name(&self.queue).map_err(ScheduleError::Queue)?;
        let job = |error: EnqueueError| ScheduleError::Job(error.to_string());
        check_text("name", &self.job_name, 1..=200).map_err(job)?;
        check_json(&self.kwargs.to_string()).map_err(job)?;
        CronSchedule::parse(&self.cron, &self.zone)?.next_after(Timestamp::now())?;
        Ok(())
    }
}

/// What is wrong with a schedule.
#[derive(Debug, thiserror::Error)]
pub enum ScheduleError {
    #[error(
        "schedule name {0:?} is not allowed: use 1 to 64 of a-z, 0-9, dot, dash and underscore"
    )]
    Name(String),
    #[error("{0}")]
    Queue(String),
    #[error("cron {cron:?} cannot be read: {why}")]
    Cron { cron: String, why: String },
    #[error("cron {0:?} never fires: no date matches it")]
    Never(String),
    #[error("time zone {0:?} is not known; use a name such as Europe/Berlin or UTC")]
    Zone(String),
    #[error("the arguments do not become JSON: {0}")]
    Arguments(String),
    #[error("its job could not be enqueued: {0}")]
    Job(String),
}

/// A cron pattern in a time zone.
pub struct CronSchedule {
    /// As written; the parser keeps only its own form of it.
    text: String,
    cron: Cron,
    zone: TimeZone,
}

impl CronSchedule {
    pub fn parse(cron: &str, zone: &str) -> Result<Self, ScheduleError> {
        let bad = |why: String| ScheduleError::Cron { cron: cron.chars().take(60).collect(), why };
        if cron.len() > LONGEST_CRON {
            return Err(bad(format!("it is longer than {LONGEST_CRON} characters")));
        }
        let zone = TimeZone::get(zone).map_err(|_| ScheduleError::Zone(zone.to_owned()))?;
        let parsed = cron.parse::<Cron>().map_err(|_| bad(unreadable::why(cron)))?;
        Ok(Self { text: cron.to_owned(), cron: parsed, zone })
    }

    /// Returns the first slot after a moment.
    pub fn next_after(&self, moment: Timestamp) -> Result<Timestamp, ScheduleError> {
        let local: Zoned = moment.to_zoned(self.zone.clone());
        match self.cron.find_next_occurrence(&local, false) {
            Ok(slot) => Ok(slot.timestamp()),
            Err(CronError::TimeSearchLimitExceeded) => Err(ScheduleError::Never(self.text.clone())),
            Err(error) => {
                let why = format!("no slot after {moment} can be computed: {error}");
                Err(ScheduleError::Cron { cron: self.text.clone(), why })
            }
        }
    }

    /// Returns the pattern in words.
    pub fn describe(&self) -> String {
        self.cron.describe()
    }
}
