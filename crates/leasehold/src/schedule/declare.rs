//! Declarations: the schedules that a worker's code declares.
//!
//! # Invariants
//! - A worker stores the schedules that it declares when it starts. While it runs it confirms them
//!   every hour without changing anything: what an operator changed or removed meanwhile stays so.
//! - Removing `.schedule(…)` from the code removes nothing: another worker may still declare it. A day
//!   after the last declaration workers warn of it, and so do `leasehold doctor` and `leasehold
//!   schedules list`. It fires until `.retire_schedule(name)` or `leasehold schedules remove` removes
//!   it.
//! - One declaration that cannot be stored stops no other.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio_postgres::types::{Json, Type};

use super::{CronSchedule, Schedule};
use crate::backoff::jitter;
use crate::error::CallError;
use crate::link::Link;

/// How often a running worker confirms what it declares.
const REPEAT_EVERY: Duration = Duration::from_secs(3600);
/// How many bytes of a worker's name are kept with a schedule.
const LONGEST_NAME: usize = 200;

/// What one worker declares.
pub(crate) struct Declared {
    by: String,
    to_store: Vec<Schedule>,
    /// All of them, stored or not.
    names: Vec<String>,
    retired: Vec<String>,
    repeat_at: Option<Instant>,
    /// Schedules without a worker that were already warned of.
    warned: HashSet<String>,
}

impl Declared {
    /// `by`: the name of the worker.
    pub(crate) fn new(by: &str, schedules: Vec<Schedule>, retired: Vec<String>) -> Self {
        let mut by = by.to_owned();
        while by.len() > LONGEST_NAME {
            by.pop();
        }
        if by.is_empty() {
            by.push_str("worker");
        }
        let names = schedules.iter().map(|schedule| schedule.name.clone()).collect();
        let warned = HashSet::new();
        Self { by, to_store: schedules, names, retired, repeat_at: None, warned }
    }

    /// Stores what is not stored yet, and confirms the rest once per `REPEAT_EVERY`.
    pub(crate) async fn declare(&mut self, link: &Link) -> Result<(), CallError> {
        let mut refused = None;
        for schedule in std::mem::take(&mut self.to_store) {
            if let Err(error) = store(link, &schedule, &self.by).await {
                // Retried with the next tick; the others come first.
                self.to_store.push(schedule);
                refused = Some(error);
            }
        }
        if self.repeat_at.is_none_or(|at| Instant::now() >= at) {
            self.repeat(link).await?;
            self.repeat_at = Some(Instant::now() + jitter(REPEAT_EVERY));
        }
        refused.map_or(Ok(()), Err)
    }

    async fn repeat(&mut self, link: &Link) -> Result<(), CallError> {
        if !self.names.is_empty() {
            let still = "update leasehold_internal.schedule set last_declared_at = statement_timestamp() \
                          where name = any ($1) and declared_by is not null";
            link.query(still, &[(&self.names, Type::TEXT_ARRAY)]).await?;
        }
        for name in &self.retired {
            let sql = "select leasehold_internal.retire_schedule($1, $2)";
            let rows = link.query(sql, &[(name, Type::TEXT), (&self.by, Type::TEXT)]).await?;
            if rows.first().is_some_and(|row| row.get(0)) {
                tracing::info!(schedule = name, "a schedule was retired");
            }
        }
        for row in link
            .query("select name, declared_by from leasehold_internal.undeclared_schedules()", &[])
            .await?
        {
            let (name, by): (String, &str) = (row.get(0), row.get(1));
            if !self.warned.contains(&name) {
                tracing::warn!(
                    schedule = name,
                    declared_by = by,
                    "a schedule still fires that no worker has declared for a day; to remove it: \
                     leasehold schedules remove {name}, or .retire_schedule({name:?}) in the code"
                );
                self.warned.insert(name);
            }
        }
        Ok(())
    }
}

/// Stores one schedule. A changed cron or zone starts from its next slot; everything that operators set
/// (pause, history) stays.
async fn store(link: &Link, schedule: &Schedule, by: &str) -> Result<(), CallError> {
    if let Err(error) = schedule.check() {
        // Its fields are public and may have changed since its creation. Retrying would not help.
        tracing::warn!(schedule = schedule.name, %error, "a schedule was not stored");
        return Ok(());
    }
    // Use the database's clock, which also decides when the slot is due.
    let rows = link.query("select statement_timestamp()", &[]).await?;
    let Some(now) = rows.first().map(|row| row.get::<_, Timestamp>(0)) else { return Ok(()) };
    let next = CronSchedule::parse(&schedule.cron, &schedule.zone)
        .and_then(|cron_schedule| cron_schedule.next_after(now));
    let next = match next {
        Ok(next) => next,
        Err(error) => {
            tracing::warn!(schedule = schedule.name, %error, "a schedule was not stored");
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
            (&by, Type::TEXT),
        ],
    )
    .await?;
    Ok(())
}
