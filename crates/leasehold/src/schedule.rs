//! Schedules: jobs that the clock enqueues, once a slot across the whole fleet.
//!
//! # What is true
//! - A slot fires by one conditional statement that moves the schedule on and inserts the job, so
//!   two workers that see the same slot make one job.
//! - The database's clock says when a slot is due; the time zone says when slots are.
//!
//! # What can go wrong
//! - No worker ran for a while: the schedule's policy says what becomes of the missed slots.
//! - A local time happens twice or not at all (daylight saving): croner's rules apply; the tests
//!   show a gap and an overlap.

use croner::Cron;
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use tokio_postgres::types::{Json, Type};

use crate::error::CallError;
use crate::job::{Job, JobId, check_queue_name};
use crate::link::Link;

/// The longest cron text that is read: a hostile one must not cost memory.
const LONGEST_CRON: usize = 200;
/// Missed slots are counted and replayed up to this many.
const MOST_MISSED: usize = 1000;

/// What to do with slots that passed while no worker ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Missed {
    /// Forget them.
    Skip,
    /// Run once for all of them.
    #[default]
    Once,
    /// Run for each, oldest first.
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

/// A schedule as it is declared.
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
    /// Enqueues `job` whenever `cron` says so in the time zone `zone`, such as `Europe/Berlin`.
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
            kwargs: serde_json::to_value(job)
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

    /// Finds out whether the schedule can ever fire, before anything stores it.
    pub fn check(&self) -> Result<(), ScheduleError> {
        check_queue_name(&self.name).map_err(|_| ScheduleError::Name(self.name.clone()))?;
        check_queue_name(&self.queue).map_err(ScheduleError::Queue)?;
        Clockwork::parse(&self.cron, &self.zone)?.next_after(Timestamp::now())?;
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
    #[error("cron {cron:?} cannot be read: {why}; five fields such as \"0 3 * * *\"")]
    Cron { cron: String, why: String },
    #[error("time zone {0:?} is not known; use a name such as Europe/Berlin or UTC")]
    Zone(String),
    #[error("the arguments do not become JSON: {0}")]
    Arguments(String),
}

/// A cron pattern in a time zone.
pub struct Clockwork {
    cron: Cron,
    zone: TimeZone,
}

impl Clockwork {
    pub fn parse(cron: &str, zone: &str) -> Result<Self, ScheduleError> {
        let bad = |why: String| ScheduleError::Cron { cron: cron.chars().take(60).collect(), why };
        if cron.len() > LONGEST_CRON {
            return Err(bad(format!("it is longer than {LONGEST_CRON} characters")));
        }
        let zone = TimeZone::get(zone).map_err(|_| ScheduleError::Zone(zone.to_owned()))?;
        let cron = cron.parse::<Cron>().map_err(|error| bad(error.to_string()))?;
        Ok(Self { cron, zone })
    }

    /// The first slot after a moment.
    pub fn next_after(&self, moment: Timestamp) -> Result<Timestamp, ScheduleError> {
        let local: Zoned = moment.to_zoned(self.zone.clone());
        self.cron.find_next_occurrence(&local, false).map(|slot| slot.timestamp()).map_err(
            |error| ScheduleError::Cron { cron: self.cron.to_string(), why: error.to_string() },
        )
    }

    /// The pattern in words.
    pub fn describe(&self) -> String {
        self.cron.describe()
    }
}

/// What to do about one schedule. Pure: the caller brings the time.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Firing {
    /// The slot that the database must still be at.
    pub(crate) from: Timestamp,
    pub(crate) to: Timestamp,
    pub(crate) passed: i64,
    pub(crate) with_job: bool,
}

/// How a schedule at `next_slot` moves on at `now`; nothing when it is not due.
pub(crate) fn firing(
    clockwork: &Clockwork,
    missed: Missed,
    next_slot: Timestamp,
    now: Timestamp,
) -> Result<Option<Firing>, ScheduleError> {
    if next_slot > now {
        return Ok(None);
    }
    let following = clockwork.next_after(next_slot)?;
    if following > now || missed == Missed::All {
        // On time, or one of many: fire this slot and go on to the next.
        return Ok(Some(Firing { from: next_slot, to: following, passed: 0, with_job: true }));
    }
    let mut latest = following;
    let mut passed = 1;
    loop {
        let next = clockwork.next_after(latest)?;
        if next > now {
            let with_job = missed == Missed::Once;
            // The latest slot that passed counts as the one that fires.
            return Ok(Some(Firing { from: next_slot, to: next, passed, with_job }));
        }
        latest = next;
        passed += 1;
        if passed >= MOST_MISSED as i64 {
            latest = now;
        }
    }
}

/// Stores what the worker declares. A changed cron or zone starts from its next slot; everything
/// else that people set (pause, history) stays.
pub(crate) async fn declare(link: &Link, schedule: &Schedule) -> Result<(), CallError> {
    let next = Clockwork::parse(&schedule.cron, &schedule.zone)
        .and_then(|clockwork| clockwork.next_after(Timestamp::now()));
    let Ok(next) = next else { return Ok(()) };
    link.query(
        include_str!("../queries/declare_schedule.sql"),
        &[
            (&schedule.name, Type::TEXT),
            (&schedule.cron, Type::TEXT),
            (&schedule.zone, Type::TEXT),
            (&schedule.queue, Type::TEXT),
            (&schedule.job_name, Type::TEXT),
            (&Json(&schedule.kwargs), Type::JSONB),
            (&schedule.priority, Type::INT4),
            (&schedule.missed.as_str(), Type::TEXT),
            (&next, Type::TIMESTAMPTZ),
        ],
    )
    .await?;
    Ok(())
}

/// Fires every slot that is due. Answers with what it enqueued.
pub(crate) async fn fire_due(link: &Link) -> Result<Vec<(String, JobId)>, CallError> {
    let due = link.query(include_str!("../queries/due_schedules.sql"), &[]).await?;
    let mut fired = Vec::new();
    for row in due {
        let (name, cron, zone): (String, String, String) = (row.get(0), row.get(1), row.get(2));
        let missed = row.get::<_, &str>(3).parse().unwrap_or_default();
        let (next_slot, now): (Timestamp, Timestamp) = (row.get(4), row.get(5));
        let planned = Clockwork::parse(&cron, &zone)
            .and_then(|clockwork| firing(&clockwork, missed, next_slot, now));
        let firing = match planned {
            Ok(Some(firing)) => firing,
            Ok(None) => continue,
            Err(error) => {
                tracing::warn!(schedule = name, %error, "a schedule cannot fire");
                continue;
            }
        };
        let made = link
            .query(
                "select leasehold.fire_schedule($1, $2, $3, $4, $5)",
                &[
                    (&name, Type::TEXT),
                    (&firing.from, Type::TIMESTAMPTZ),
                    (&firing.to, Type::TIMESTAMPTZ),
                    (&firing.passed, Type::INT8),
                    (&firing.with_job, Type::BOOL),
                ],
            )
            .await?;
        let job: Option<i64> = made.first().and_then(|row| row.get(0));
        if let Some(job) = job.filter(|job| *job > 0) {
            fired.push((name, JobId(job)));
        }
    }
    Ok(fired)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().expect("a timestamp")
    }

    fn hourly() -> Clockwork {
        Clockwork::parse("0 * * * *", "UTC").expect("hourly")
    }

    #[test]
    fn a_slot_on_time_fires_and_moves_on() {
        let plan =
            firing(&hourly(), Missed::Once, at("2026-05-01T10:00:00Z"), at("2026-05-01T10:00:01Z"));
        let plan = plan.expect("a plan").expect("due");
        assert_eq!((plan.to, plan.passed, plan.with_job), (at("2026-05-01T11:00:00Z"), 0, true));
    }

    #[test]
    fn missed_slots_follow_the_policy() {
        let (slot, now) = (at("2026-05-01T10:00:00Z"), at("2026-05-01T13:30:00Z"));
        let plan = |missed| firing(&hourly(), missed, slot, now).expect("a plan").expect("due");
        let next = at("2026-05-01T14:00:00Z");
        assert_eq!(plan(Missed::Skip), Firing { from: slot, to: next, passed: 3, with_job: false });
        assert_eq!(plan(Missed::Once), Firing { from: slot, to: next, passed: 3, with_job: true });
        let one = Firing { from: slot, to: at("2026-05-01T11:00:00Z"), passed: 0, with_job: true };
        assert_eq!(plan(Missed::All), one);
    }

    #[test]
    fn g4_a_time_that_does_not_exist_and_one_that_comes_twice_fire_once() {
        // Berlin: on 2026-03-29 02:00-03:00 is skipped, on 2026-10-25 it comes twice.
        let nightly = Clockwork::parse("30 2 * * *", "Europe/Berlin").expect("nightly");
        let mut slot = at("2026-03-28T12:00:00Z");
        let mut days = Vec::new();
        for _ in 0..2 {
            slot = nightly.next_after(slot).expect("a slot");
            days.push(slot.to_zoned(TimeZone::get("Europe/Berlin").expect("zone")).day());
        }
        assert_eq!(days, [29, 30], "the night with the gap fires once");
        let first = nightly.next_after(at("2026-10-24T12:00:00Z")).expect("a slot");
        let second = nightly.next_after(first).expect("a slot");
        assert_eq!(first.to_zoned(TimeZone::get("Europe/Berlin").expect("zone")).day(), 25);
        assert_eq!(second.to_zoned(TimeZone::get("Europe/Berlin").expect("zone")).day(), 26);
    }

    #[test]
    fn a_hostile_cron_is_refused() {
        for bad in ["", "* *", "0 0 1--100000000 * *", "99 * * * *", &"*/1,".repeat(200)] {
            assert!(Clockwork::parse(bad, "UTC").is_err(), "{bad}");
        }
        assert!(matches!(
            Clockwork::parse("* * * * *", "Mars/Olympus"),
            Err(ScheduleError::Zone(_))
        ));
    }
}
