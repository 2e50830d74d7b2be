//! Slots: which are due, and how missed ones are handled.

use jiff::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::{CronSchedule, Missed, ScheduleError};
use crate::error::CallError;
use crate::job::JobId;
use crate::link::Link;

/// The most missed slots that are counted; the rest is skipped uncounted. With [`Missed::All`] nothing
/// is counted: each slot fires, one per tick, however many there are.
const MOST_MISSED: usize = 1000;

/// What to do about one schedule. Pure: the caller passes the time.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Firing {
    /// The slot that the database must still be at.
    pub(crate) from: Timestamp,
    pub(crate) to: Timestamp,
    pub(crate) passed: i64,
    pub(crate) enqueues: bool,
}

/// Returns how a schedule at `next_slot` advances at `now`; `None` if it is not due.
pub(crate) fn firing(
    cron_schedule: &CronSchedule,
    missed: Missed,
    next_slot: Timestamp,
    now: Timestamp,
) -> Result<Option<Firing>, ScheduleError> {
    if next_slot > now {
        return Ok(None);
    }
    let following = cron_schedule.next_after(next_slot)?;
    if following > now || missed == Missed::All {
        // On time, or one of many: fire this slot and advance to the next.
        return Ok(Some(Firing { from: next_slot, to: following, passed: 0, enqueues: true }));
    }
    let mut latest = following;
    let mut passed = 1;
    loop {
        let next = cron_schedule.next_after(latest)?;
        if next > now {
            let enqueues = missed == Missed::Once;
            // The latest missed slot counts as the one that fires.
            return Ok(Some(Firing { from: next_slot, to: next, passed, enqueues }));
        }
        latest = next;
        passed += 1;
        if passed >= MOST_MISSED as i64 {
            latest = now;
        }
    }
}

/// The result of one tick.
#[derive(Debug, Default)]
pub(crate) struct FireReport {
    pub(crate) fired: Vec<(String, JobId)>,
    /// Schedules that cannot fire, each with the reason. They do not keep the others from firing.
    pub(crate) failed: Vec<(String, String)>,
}

/// Schedules per statement. The next statement continues after them, so that the others fire however
/// many cannot.
const PAGE: usize = 100;
/// Pages per tick: ten thousand schedules.
const MOST_PAGES: usize = 100;

/// Fires every slot that is due. A fault in one schedule does not affect the others.
pub(crate) async fn fire_due(link: &Link) -> Result<FireReport, CallError> {
    let mut report = FireReport::default();
    let mut after = None::<(Timestamp, String)>;
    for _ in 0..MOST_PAGES {
        let (slot, name) = match &after {
            Some((slot, name)) => (Some(*slot), Some(name.as_str())),
            None => (None, None),
        };
        let sql = include_str!("../../queries/due_schedules.sql");
        let due = link.query(sql, &[(&slot, Type::TIMESTAMPTZ), (&name, Type::TEXT)]).await?;
        for row in &due {
            let name: String = row.get(0);
            match fire(link, row).await {
                Ok(Some(job)) => report.fired.push((name, job)),
                Ok(None) => {}
                Err(NotFired::This(why)) => report.failed.push((name, why)),
                Err(NotFired::All(error)) => return Err(error),
            }
        }
        if due.len() < PAGE {
            break;
        }
        after = due.last().map(|row| (row.get(4), row.get(0)));
    }
    Ok(report)
}

/// Why a schedule did not fire.
enum NotFired {
    /// This schedule cannot fire.
    This(String),
    /// The connection broke, or the database did not reply.
    All(CallError),
}

impl From<CallError> for NotFired {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Database(_) if error.was_refused() => Self::This(error.to_string()),
            error => Self::All(error),
        }
    }
}

/// Fires one schedule. Returns `None` if another worker did, or if its slots are skipped.
async fn fire(link: &Link, row: &Row) -> Result<Option<JobId>, NotFired> {
    let (name, cron, zone): (&str, &str, &str) = (row.get(0), row.get(1), row.get(2));
    let missed = row.get::<_, &str>(3).parse().unwrap_or_default();
    let (next_slot, now): (Timestamp, Timestamp) = (row.get(4), row.get(5));
    let planned = CronSchedule::parse(cron, zone).and_then(|cron_schedule| {
        let planned = firing(&cron_schedule, missed, next_slot, now)?;
        match planned {
            Some(firing) => Ok(firing),
            // Not due, and last advanced at a time in the future: the clock was set back. Slots count
            // from now on again, instead of waiting for the clock to catch up.
            None => {
                tracing::warn!(schedule = name, %next_slot, "the clock of the database was set back");
                let to = cron_schedule.next_after(now)?;
                Ok(Firing { from: next_slot, to, passed: 0, enqueues: false })
            }
        }
    });
    let firing = planned.map_err(|error| NotFired::This(error.to_string()))?;
    let made = link
        .query(
            "select leasehold_internal.fire_schedule($1, $2, $3, $4, $5)",
            &[
                (&name, Type::TEXT),
                (&firing.from, Type::TIMESTAMPTZ),
                (&firing.to, Type::TIMESTAMPTZ),
                (&firing.passed, Type::INT8),
                (&firing.enqueues, Type::BOOL),
            ],
        )
        .await?;
    let job: Option<i64> = made.first().and_then(|row| row.get(0));
    Ok(job.filter(|job| *job > 0).map(JobId))
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::tz::TimeZone;

    fn at(text: &str) -> Timestamp {
        text.parse().expect("a timestamp")
    }

    fn hourly() -> CronSchedule {
        CronSchedule::parse("0 * * * *", "UTC").expect("hourly")
    }

    #[test]
    fn slot_on_time_fires_and_moves_on() {
        let plan =
            firing(&hourly(), Missed::Once, at("2026-05-01T10:00:00Z"), at("2026-05-01T10:00:01Z"));
        let plan = plan.expect("a plan").expect("due");
        assert_eq!((plan.to, plan.passed, plan.enqueues), (at("2026-05-01T11:00:00Z"), 0, true));
    }

    #[test]
    fn missed_slots_follow_the_policy() {
        let (slot, now) = (at("2026-05-01T10:00:00Z"), at("2026-05-01T13:30:00Z"));
        let plan = |missed| firing(&hourly(), missed, slot, now).expect("a plan").expect("due");
        let next = at("2026-05-01T14:00:00Z");
        assert_eq!(plan(Missed::Skip), Firing { from: slot, to: next, passed: 3, enqueues: false });
        assert_eq!(plan(Missed::Once), Firing { from: slot, to: next, passed: 3, enqueues: true });
        let one = Firing { from: slot, to: at("2026-05-01T11:00:00Z"), passed: 0, enqueues: true };
        assert_eq!(plan(Missed::All), one);
    }

    #[test]
    fn g4_time_that_does_not_exist_and_one_that_comes_twice_fire_once() {
        // Berlin: on 2026-03-29 02:00-03:00 is skipped, on 2026-10-25 it comes twice.
        let nightly = CronSchedule::parse("30 2 * * *", "Europe/Berlin").expect("nightly");
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
    fn pattern_that_matches_no_date_never_fires() {
        let never = CronSchedule::parse("0 0 31 2 *", "UTC").expect("five fields");
        let error = never.next_after(at("2026-10-24T12:00:00Z")).expect_err("no such day");
        assert_eq!(error.to_string(), "cron \"0 0 31 2 *\" never fires: no date matches it");
    }

    #[test]
    fn hostile_cron_is_refused() {
        for bad in ["", "* *", "0 0 1--100000000 * *", "99 * * * *", &"*/1,".repeat(200)] {
            assert!(CronSchedule::parse(bad, "UTC").is_err(), "{bad}");
        }
        assert!(matches!(
            CronSchedule::parse("* * * * *", "Mars/Olympus"),
            Err(ScheduleError::Zone(_))
        ));
    }
}
