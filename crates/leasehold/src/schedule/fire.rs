//! Slots: which are due, and what becomes of those that were missed.

use jiff::Timestamp;
use tokio_postgres::types::{Json, Type};

use super::{Clockwork, Missed, Schedule, ScheduleError};
use crate::error::CallError;
use crate::job::JobId;
use crate::link::Link;

/// Missed slots are counted up to this many; the rest is passed over uncounted. With [`Missed::All`]
/// nothing is counted: each slot fires, one at every look, however many there are.
const MOST_MISSED: usize = 1000;

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
    // From the database's clock, which also decides when the slot is due.
    let rows = link.query("select statement_timestamp()", &[]).await?;
    let Some(now) = rows.first().map(|row| row.get::<_, Timestamp>(0)) else { return Ok(()) };
    let next = Clockwork::parse(&schedule.cron, &schedule.zone)
        .and_then(|clockwork| clockwork.next_after(now));
    let next = match next {
        Ok(next) => next,
        Err(error) => {
            tracing::warn!(schedule = schedule.name, %error, "a schedule is not stored");
            return Ok(());
        }
    };
    link.query(
        include_str!("../../queries/declare_schedule.sql"),
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
    let due = link.query(include_str!("../../queries/due_schedules.sql"), &[]).await?;
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
    use jiff::tz::TimeZone;

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
