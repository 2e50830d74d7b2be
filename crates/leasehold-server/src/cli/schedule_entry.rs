//! Schedules in words.

use leasehold::admin::ScheduleInfo;
use leasehold::schedule::CronSchedule;
use serde::Serialize;

use super::db::Db;
use crate::exit::Failure;
use crate::text::nearest;

/// A schedule with its pattern in words.
#[derive(Serialize)]
pub struct Entry {
    #[serde(flatten)]
    pub schedule: ScheduleInfo,
    pub words: String,
}

/// Describes a pattern.
pub fn words(cron_schedule: &CronSchedule) -> String {
    cron_schedule.describe().trim_end_matches('.').to_owned()
}

/// Returns every schedule, by name.
pub async fn entries(db: &Db) -> Result<Vec<Entry>, Failure> {
    let schedules = db.within(db.schedules().list()).await?;
    let entry = |schedule: ScheduleInfo| {
        let words = CronSchedule::parse(&schedule.cron, &schedule.zone)
            .map_or_else(|error| error.to_string(), |clock| words(&clock));
        Entry { schedule, words }
    };
    Ok(schedules.into_iter().map(entry).collect())
}

/// Finds a schedule by name; the error names the nearest known one.
pub fn find<'a>(entries: &'a [Entry], name: &str) -> Result<&'a ScheduleInfo, Failure> {
    let schedules = || entries.iter().map(|entry| &entry.schedule);
    schedules().find(|schedule| schedule.name == name).ok_or_else(|| {
        let known: Vec<String> = schedules().map(|schedule| schedule.name.clone()).collect();
        let failure = Failure::not_found(format!("there is no schedule {name:?}"));
        match nearest(name, &known) {
            Some(near) => failure.hint(format!("did you mean {near:?}?")),
            None => failure.hint("see which there are: leasehold schedules list"),
        }
    })
}
