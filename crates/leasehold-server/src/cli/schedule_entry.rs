//! Schedules, as stored in the database.

use jiff::Timestamp;
use leasehold::queue::moment::Moment;
use leasehold::schedule::CronSchedule;
use serde::Serialize;

use super::db::Db;
use crate::exit::Failure;
use crate::text::nearest;

#[derive(Serialize)]
pub struct Entry {
    pub name: String,
    pub cron: String,
    pub words: String,
    pub zone: String,
    pub queue: String,
    pub job_name: String,
    pub kwargs: serde_json::Value,
    pub missed: String,
    pub next_slot: Timestamp,
    pub last_slot: Option<Timestamp>,
    pub last_job_id: Option<String>,
    pub missed_slots: i64,
    pub paused_at: Option<Timestamp>,
    pub paused_by: Option<String>,
    /// The worker whose code declares it; `None`: an operator added it.
    pub declared_by: Option<String>,
    pub last_declared_at: Option<Timestamp>,
    /// Code declared it, and no running worker has declared it for a day.
    pub undeclared: bool,
}

/// Describes a pattern.
pub fn words(cron_schedule: &CronSchedule) -> String {
    cron_schedule.describe().trim_end_matches('.').to_owned()
}

/// Returns every schedule, by name.
pub async fn entries(db: &Db) -> Result<Vec<Entry>, Failure> {
    let sql = "select s.*, exists (select from leasehold.undeclared_schedules() u where u.name = s.name) \
                      as undeclared \
                 from leasehold.schedule s order by s.name";
    let rows = db.query(sql, &[]).await?;
    let read = |row: &tokio_postgres::Row| {
        let (cron, zone): (String, String) = (row.get("cron"), row.get("zone"));
        let words = CronSchedule::parse(&cron, &zone)
            .map_or_else(|error| error.to_string(), |clock| words(&clock));
        Entry {
            name: row.get("name"),
            cron,
            words,
            zone,
            queue: row.get("queue"),
            job_name: row.get("job_name"),
            kwargs: row.get("kwargs"),
            missed: row.get("missed"),
            next_slot: row.get::<_, Moment>("next_slot").to_timestamp(),
            last_slot: row.get("last_slot"),
            last_job_id: row.get::<_, Option<i64>>("last_job_id").map(|id| id.to_string()),
            missed_slots: row.get("missed_slots"),
            paused_at: row.get("paused_at"),
            paused_by: row.get("paused_by"),
            declared_by: row.get("declared_by"),
            last_declared_at: row.get("last_declared_at"),
            undeclared: row.get("undeclared"),
        }
    };
    Ok(rows.iter().map(read).collect())
}

/// Finds a schedule by name; the error names the nearest known one.
pub fn find<'a>(entries: &'a [Entry], name: &str) -> Result<&'a Entry, Failure> {
    entries.iter().find(|entry| entry.name == name).ok_or_else(|| {
        let known: Vec<String> = entries.iter().map(|entry| entry.name.clone()).collect();
        let failure = Failure::not_found(format!("there is no schedule {name:?}"));
        match nearest(name, &known) {
            Some(near) => failure.hint(format!("did you mean {near:?}?")),
            None => failure.hint("see which there are: leasehold schedules list"),
        }
    })
}
