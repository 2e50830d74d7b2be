//! Schedules: jobs that the clock enqueues, once per slot across the whole fleet.
//!
//! # Invariants
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
use crate::job::{Job, UnknownWord, check_queue_name};
use crate::queue::check::{check_json, check_text, kwargs_of};

pub(crate) use declare::Declared;
pub(crate) use fire::fire_due;

/// The longest cron text that is read: a hostile one must not cost memory.
const LONGEST_CRON: usize = 200;

/// What to do with slots that passed while no worker ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
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
    /// Returns `skip`, `once` or `all`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Skip => "skip",
            Self::Once => "once",
            Self::All => "all",
        }
    }
}

impl std::fmt::Display for Missed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

impl std::str::FromStr for Missed {
    type Err = UnknownWord;

    fn from_str(word: &str) -> Result<Self, UnknownWord> {
        let known = [Self::Skip, Self::Once, Self::All];
        let found = known.into_iter().find(|missed| missed.as_str() == word);
        found.ok_or_else(|| UnknownWord::new(word, "policy", known.into_iter().map(Self::as_str)))
    }
}

/// A schedule as declared.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Schedule {
    /// Unique in the database; 1 to 64 of a-z, 0-9, dot, dash and underscore.
    pub name: String,
    /// Five fields: minute, hour, day, month, weekday.
    pub cron: String,
    /// The time zone of the slots, such as `Europe/Berlin` or `UTC`.
    pub zone: String,
    /// The queue of the jobs.
    pub queue: String,
    /// The name of the jobs.
    pub job_name: String,
    /// The kwargs of each job.
    pub kwargs: serde_json::Value,
    /// Lower runs first. Default: 0.
    pub priority: i32,
    /// What happens to slots that passed while no worker ran. Default: [`Missed::Once`].
    pub missed: Missed,
}

impl Schedule {
    /// Enqueues `job` at every slot of `cron` in the time zone `zone`, such as `Europe/Berlin`.
    ///
    /// ```
    /// use leasehold::{Job, Schedule, schedule::Missed};
    ///
    /// #[derive(Job, serde::Serialize, serde::Deserialize)]
    /// #[job(name = "report.build")]
    /// struct BuildReport;
    ///
    /// // Every day at 02:30 in Berlin; slots that passed without a worker are dropped.
    /// let nightly = Schedule::new("report.nightly", "30 2 * * *", "Europe/Berlin", &BuildReport)?
    ///     .missed(Missed::Skip);
    /// assert!(Schedule::new("report.never", "30 2 30 2 *", "UTC", &BuildReport).is_err());
    /// # drop(nightly);
    /// # Ok::<(), leasehold::schedule::ScheduleError>(())
    /// ```
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
            kwargs: kwargs_of(job)
                .and_then(|text| serde_json::from_str(text.get()))
                .map_err(|error| ScheduleError::Arguments(error.to_string()))?,
            priority: J::policy().priority,
            missed: Missed::default(),
        };
        schedule.check()?;
        Ok(schedule)
    }

    /// Enqueues a job that this program has no type for, into the queue `default`.
    pub fn untyped(
        name: impl Into<String>,
        cron: impl Into<String>,
        zone: impl Into<String>,
        job_name: impl Into<String>,
        kwargs: serde_json::Value,
    ) -> Result<Self, ScheduleError> {
        let schedule = Self {
            name: name.into(),
            cron: cron.into(),
            zone: zone.into(),
            queue: "default".to_owned(),
            job_name: job_name.into(),
            kwargs,
            priority: 0,
            missed: Missed::default(),
        };
        schedule.check()?;
        Ok(schedule)
    }

    /// Enqueues into this queue instead of the queue of the job type.
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.queue = queue.into();
        self
    }

    /// Sets the priority of the jobs; lower runs first.
    pub fn priority(mut self, priority: i32) -> Self {
        self.priority = priority;
        self
    }

    /// Sets what happens to slots that passed while no worker ran. Default: [`Missed::Once`].
    pub fn missed(mut self, missed: Missed) -> Self {
        self.missed = missed;
        self
    }

    /// Checks that the schedule can fire, before it is stored: its pattern, and what an enqueue checks
    /// of each of its jobs.
    pub fn check(&self) -> Result<(), ScheduleError> {
        check_queue_name(&self.name).map_err(|_| ScheduleError::Name(self.name.clone()))?;
        check_queue_name(&self.queue).map_err(|error| ScheduleError::Queue(error.to_string()))?;
        let job = |error: EnqueueError| ScheduleError::Job(error.to_string());
        check_text("name", &self.job_name, 1..=200).map_err(job)?;
        check_json(&self.kwargs.to_string()).map_err(job)?;
        CronSchedule::parse(&self.cron, &self.zone)?.next_after(Timestamp::now())?;
        Ok(())
    }
}

/// What is wrong with a schedule.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScheduleError {
    /// The name of the schedule is not allowed.
    #[error(
        "schedule name {0:?} is not allowed: use 1 to 64 of a-z, 0-9, dot, dash and underscore"
    )]
    Name(String),
    /// The name of the queue is not allowed.
    #[error("{0}")]
    Queue(String),
    /// The pattern cannot be read.
    #[error("cron {cron:?} cannot be read: {why}")]
    Cron {
        /// The pattern, at most 60 characters of it.
        cron: String,
        /// What is wrong with it.
        why: String,
    },
    /// No date matches the pattern.
    #[error("cron {0:?} never fires: no date matches it")]
    Never(String),
    /// The time zone is not known.
    #[error("time zone {0:?} is not known; use a name such as Europe/Berlin or UTC")]
    Zone(String),
    /// serde cannot turn the job into JSON.
    #[error("the kwargs do not become JSON: {0}")]
    Arguments(String),
    /// An enqueue would refuse the job.
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
    /// Reads a pattern of at most 200 characters.
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
