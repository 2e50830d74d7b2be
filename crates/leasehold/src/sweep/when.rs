//! When a sweep runs: at night, by a cron pattern, or all the time.

use std::time::Duration;

use jiff::Timestamp;

use crate::schedule::{CronSchedule, ScheduleError};

/// When a sweep is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct When(pub(super) Clock);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Clock {
    Cron { cron: String, zone: String },
    Every(Duration),
}

impl Default for When {
    /// Every night at midnight, UTC.
    fn default() -> Self {
        Self(Clock::Cron { cron: "0 0 * * *".to_owned(), zone: "UTC".to_owned() })
    }
}

impl When {
    /// Every night at a time such as `"00:30"` in a zone such as `"Europe/Madrid"`. A night without a
    /// running worker is made up for as soon as a worker runs.
    pub fn nightly(at: &str, zone: &str) -> Result<Self, ScheduleError> {
        let bad = |why: &str| ScheduleError::Cron { cron: at.to_owned(), why: why.to_owned() };
        let (hour, minute) = at.split_once(':').ok_or_else(|| bad("a time looks like 00:30"))?;
        let number = |text: &str, most: u8| match text.parse::<u8>() {
            Ok(number) if number <= most && text.len() == 2 => Ok(number),
            _ => Err(bad("a time looks like 00:30, from 00:00 to 23:59")),
        };
        Self::cron(&format!("{} {} * * *", number(minute, 59)?, number(hour, 23)?), zone)
    }

    /// At the times of a cron pattern, in a time zone.
    pub fn cron(cron: &str, zone: &str) -> Result<Self, ScheduleError> {
        CronSchedule::parse(cron, zone)?.next_after(Timestamp::now())?;
        Ok(Self(Clock::Cron { cron: cron.to_owned(), zone: zone.to_owned() }))
    }

    /// All the time, with a pause whenever nothing is due.
    pub fn continuous(pause: Duration) -> Self {
        Self(Clock::Every(pause))
    }

    pub(super) fn cron_and_zone(&self) -> (Option<&str>, Option<&str>) {
        match &self.0 {
            Clock::Cron { cron, zone } => (Some(cron), Some(zone)),
            Clock::Every(_) => (None, None),
        }
    }

    /// Returns the pause in seconds.
    pub(super) fn every(&self) -> Option<f64> {
        match &self.0 {
            Clock::Cron { .. } => None,
            Clock::Every(pause) => Some(pause.as_secs_f64()),
        }
    }

    /// Returns the next slot after `now`; `None` for a continuous sweep, whose next run the database
    /// computes.
    pub(super) fn next_after(&self, now: Timestamp) -> Option<Timestamp> {
        match &self.0 {
            Clock::Cron { cron, zone } => {
                CronSchedule::parse(cron, zone).and_then(|clock| clock.next_after(now)).ok()
            }
            Clock::Every(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().expect("a timestamp")
    }

    #[test]
    fn night_begins_in_the_zone_of_its_schedule() {
        let madrid = When::nightly("00:00", "Europe/Madrid").expect("a night");
        let summer = madrid.next_after(at("2026-07-01T12:00:00Z")).expect("a slot");
        let winter = madrid.next_after(at("2026-12-01T12:00:00Z")).expect("a slot");
        assert_eq!(summer, at("2026-07-01T22:00:00Z"));
        assert_eq!(winter, at("2026-12-01T23:00:00Z"));
    }

    #[test]
    fn invalid_time_of_a_night_is_refused_with_an_example() {
        for bad in ["", "24:00", "0:00", "00:60", "midnight", "-1:00", "00:00:00"] {
            let text = When::nightly(bad, "UTC").expect_err(bad).to_string();
            assert!(text.contains("00:30"), "{text}");
        }
        assert!(When::nightly("00:00", "Mars/Olympus").is_err());
        assert!(When::cron("61 * * * *", "UTC").is_err());
    }
}
