//! Schedules as they stand in the database.

use jiff::Timestamp;
use leasehold::schedule::Clockwork;
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
}

/// A pattern in words.
pub fn words(clockwork: &Clockwork) -> String {
    clockwork.describe().trim_end_matches('.').to_owned()
}

/// Every schedule, by name.
pub async fn entries(db: &Db) -> Result<Vec<Entry>, Failure> {
    let rows = db.query("select * from leasehold.schedule order by name", &[]).await?;
    let read = |row: &tokio_postgres::Row| {
        let (cron, zone): (String, String) = (row.get("cron"), row.get("zone"));
        let words = Clockwork::parse(&cron, &zone)
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
            next_slot: row.get("next_slot"),
            last_slot: row.get("last_slot"),
            last_job_id: row.get::<_, Option<i64>>("last_job_id").map(|id| id.to_string()),
            missed_slots: row.get("missed_slots"),
            paused_at: row.get("paused_at"),
            paused_by: row.get("paused_by"),
        }
    };
    Ok(rows.iter().map(read).collect())
}

/// The one of that name, or which one was probably meant.
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
