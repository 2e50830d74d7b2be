//! Reads `leasehold.jobs`: conditions from a filter, and pages in order of time.
//!
//! # Invariants
//! - The order is that of [`SORT`], newest first, then of the id. Ids alone are not in order of time: each
//!   session draws a block of them.
//! - Every part of a condition that excludes a table is in the text of the statement, so that the planner
//!   leaves the table out.
//! - The history is read from its end: first one hour, then a day, then all of it, until a page is full.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use jiff::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use super::filter::JobFilter;
use super::jobs::{HIDDEN, NOTHING, OPEN};
use super::session::Session;
use crate::error::AdminError;
use crate::job::{JobId, JobState};
use crate::queue::moment::Moment;

/// What jobs are sorted by.
const SORT: &str = "coalesce(j.finished_at, j.claimed_at, j.enqueued_at)";

/// A page ends before the job with which its kwargs and errors exceed this many bytes. It has one job at
/// least.
pub const PAGE_BYTES: u64 = 8 << 20;

/// How far back a page of finished jobs reads before it reads everything.
const WINDOWS: [Duration; 2] = [Duration::from_secs(3600), Duration::from_secs(86_400)];

/// Where a page continues, as text: `leasehold jobs list --after CURSOR`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    at: Moment,
    id: JobId,
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.at.0, self.id)
    }
}

/// A text that is not a cursor.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a cursor; use the one that the page before returned")]
pub struct ParseCursorError(String);

impl FromStr for Cursor {
    type Err = ParseCursorError;

    fn from_str(text: &str) -> Result<Self, ParseCursorError> {
        let read = || {
            let (at, id) = text.split_once('.')?;
            Some(Self { at: Moment(at.parse().ok()?), id: id.parse().ok()? })
        };
        read().ok_or_else(|| ParseCursorError(text.to_owned()))
    }
}

/// Which part of a list to return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    limit: u32,
    after: Option<Cursor>,
}

impl Page {
    /// The most jobs of a page.
    pub const MAX: u32 = 1000;

    /// The first page, with up to `limit` jobs, from 1 to [`Page::MAX`].
    pub fn first(limit: u32) -> Self {
        Self { limit: limit.clamp(1, Self::MAX), after: None }
    }

    /// The page after the one that returned this cursor.
    pub fn after(mut self, cursor: Cursor) -> Self {
        self.after = Some(cursor);
        self
    }
}

/// The tables behind the view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stored {
    Job,
    Dead,
    History,
}

impl Stored {
    pub(super) const ALL: [Self; 3] = [Self::Job, Self::Dead, Self::History];

    fn word(self) -> &'static str {
        match self {
            Self::Job => "'job'",
            Self::Dead => "'dead_job'",
            Self::History => "'history'",
        }
    }

    fn of(state: JobState) -> Self {
        match state {
            JobState::Completed | JobState::Cancelled => Self::History,
            JobState::Dead => Self::Dead,
            _ => Self::Job,
        }
    }
}

/// A condition over `leasehold.jobs j`, with its values.
struct Conditions {
    parts: Vec<String>,
    params: Vec<(Box<dyn ToSql + Sync + Send>, Type)>,
    reads_history: bool,
}

impl Conditions {
    fn of(filter: &JobFilter, stored: &[Stored]) -> Self {
        let mut made = Self { parts: Vec::new(), params: Vec::new(), reads_history: false };
        let wanted: Vec<Stored> = stored
            .iter()
            .copied()
            .filter(|table| filter.causes.is_none() || *table == Stored::Dead)
            .filter(|table| {
                let of_table = |state: &JobState| Stored::of(*state) == *table;
                filter.states.as_ref().is_none_or(|states| states.iter().any(of_table))
            })
            .collect();
        made.reads_history = wanted.contains(&Stored::History);
        match wanted.as_slice() {
            [] => made.parts.push("false".to_owned()),
            tables => {
                let words: Vec<&str> = tables.iter().map(|table| table.word()).collect();
                made.parts.push(format!("j.stored_in in ({})", words.join(", ")));
            }
        }
        made.add(filter);
        made
    }

    fn bind(&mut self, value: impl ToSql + Sync + Send + 'static, of: Type) -> String {
        self.params.push((Box::new(value), of));
        format!("${}", self.params.len())
    }

    fn add(&mut self, filter: &JobFilter) {
        if let Some(ids) = &filter.ids {
            let ids: Vec<i64> = ids.iter().map(|id| id.0).collect();
            let ids = self.bind(ids, Type::INT8_ARRAY);
            self.parts.push(format!("j.id = any ({ids})"));
            // Only the batches that have these jobs are unpacked.
            self.in_history(&format!(
                "j.finished_at = any (array(select leasehold_internal.finished_at(u.id) from unnest({ids}) as u (id)))"
            ));
        }
        if let Some(states) = &filter.states {
            let states: Vec<&str> = states.iter().map(|state| state.as_str()).collect();
            let states = self.bind(states, Type::TEXT_ARRAY);
            self.parts.push(format!("j.state = any ({states})"));
        }
        if let Some(causes) = &filter.causes {
            let causes: Vec<&str> = causes.iter().map(|cause| cause.as_str()).collect();
            let causes = self.bind(causes, Type::TEXT_ARRAY);
            self.parts.push(format!("j.cause = any ({causes})"));
        }
        for (column, text) in
            [("queue", filter.queue.as_deref()), ("idempotency_key", filter.key.as_deref())]
        {
            if let Some(text) = text {
                let text = self.bind(text.to_owned(), Type::TEXT);
                self.parts.push(format!("j.{column} = {text}"));
            }
        }
        if let Some(batch) = filter.batch {
            let batch = self.bind(batch, Type::INT8);
            self.parts.push(format!("j.batch_id = {batch}"));
        }
        for (column, pattern) in [
            ("name", filter.name.as_deref()),
            ("tag", filter.tag.as_deref()),
            ("worker", filter.worker.as_deref()),
        ] {
            match pattern {
                Some(pattern) if pattern.contains('*') => {
                    let pattern = self.bind(like(pattern), Type::TEXT);
                    self.parts.push(format!("j.{column} like {pattern}"));
                }
                Some(text) => {
                    let text = self.bind(text.to_owned(), Type::TEXT);
                    self.parts.push(format!("j.{column} = {text}"));
                }
                None => {}
            }
        }
        if let Some(text) = &filter.error {
            let pattern = self.bind(format!("%{}%", escaped(text)), Type::TEXT);
            self.parts.push(format!("j.last_error ilike {pattern}"));
        }
        for (time, than) in [(filter.older, "<"), (filter.newer, ">")] {
            if let Some(time) = time {
                let seconds = self.bind(time.as_secs_f64(), Type::FLOAT8);
                let then = format!("statement_timestamp() - make_interval(secs => {seconds})");
                self.parts.push(format!("{SORT} {than} {then}"));
                self.in_history(&format!("j.finished_at {than} {then}"));
            }
        }
    }

    /// Adds a condition for finished jobs alone. The planner removes it from the other tables, and finds
    /// the partitions by it.
    fn in_history(&mut self, condition: &str) {
        if self.reads_history {
            self.parts.push(format!("(j.stored_in <> 'history' or {condition})"));
        }
    }

    fn after(&mut self, cursor: Cursor) {
        let at = self.bind(cursor.at, Type::TIMESTAMPTZ);
        let id = self.bind(cursor.id.0, Type::INT8);
        self.parts.push(format!("({SORT}, j.id) < ({at}, {id})"));
        self.in_history(&format!("j.finished_at <= {at}"));
    }

    async fn query(&self, session: &Session<'_>, sql: &str) -> Result<Vec<Row>, AdminError> {
        let params: Vec<(&(dyn ToSql + Sync), Type)> = self
            .params
            .iter()
            .map(|(value, of)| (&**value as &(dyn ToSql + Sync), of.clone()))
            .collect();
        session.query(sql, &params).await
    }

    fn text(&self) -> String {
        self.parts.join(" and ")
    }
}

/// Rows of one page.
pub(super) struct Rows {
    pub(super) rows: Vec<Row>,
    pub(super) next: Option<Cursor>,
    /// The database's clock.
    pub(super) now: Timestamp,
}

/// What the server returns before the first statement: its clock, and whether this role may read kwargs.
async fn facts(session: &Session<'_>) -> Result<(Timestamp, bool), AdminError> {
    let sql = "select statement_timestamp(), \
               has_column_privilege('leasehold.jobs', 'kwargs', 'select')";
    let rows = session.query(sql, &[]).await?;
    Ok(rows.first().map_or((Timestamp::UNIX_EPOCH, false), |row| (row.get(0), row.get(1))))
}

/// Reads one page.
pub(super) async fn page(
    session: &Session<'_>,
    filter: &JobFilter,
    stored: &[Stored],
    page: &Page,
) -> Result<Rows, AdminError> {
    let (now, sees_all) = facts(session).await?;
    let bounded = filter.ids.is_some() || filter.newer.is_some();
    let from = page.after.map_or(Moment::from(now), |cursor| cursor.at.min(now.into()));
    for window in WINDOWS.into_iter().map(Some).chain([None]) {
        let mut conditions = Conditions::of(filter, stored);
        let window = window.filter(|_| conditions.reads_history && !bounded);
        if let Some(cursor) = page.after {
            conditions.after(cursor);
        }
        let start = window.map(|window| from.earlier(window));
        if let Some(start) = start {
            let start = conditions.bind(start, Type::TIMESTAMPTZ);
            conditions.in_history(&format!("j.finished_at > {start}"));
        }
        let columns = if sees_all { HIDDEN } else { NOTHING };
        let sql = format!(
            "with page as materialized ( \
                select {OPEN}, {columns}, {SORT} as sort_at \
                  from leasehold.jobs j where {} order by {SORT} desc, j.id desc limit {}) \
             , sized as ( \
                select p.*, row_number() over w as position, (select count(*) from page) as found, \
                       sum(coalesce(octet_length(p.kwargs::text), 0) + coalesce(octet_length(p.errors::text), 0) \
                           + coalesce(octet_length(p.last_error), 0) + coalesce(octet_length(p.note), 0)) over w \
                           as bytes \
                  from page p window w as (order by p.sort_at desc, p.id desc rows unbounded preceding)) \
             select * from sized s where s.position = 1 or (s.position <= {} and s.bytes <= {PAGE_BYTES}) \
              order by s.position",
            conditions.text(),
            page.limit + 1,
            page.limit,
        );
        let rows = conditions.query(session, &sql).await?;
        let found = rows.first().map_or(0, |row| row.get::<_, i64>("found"));
        let last =
            rows.last().map(|row| Cursor { at: row.get("sort_at"), id: JobId(row.get("id")) });
        let next = last.filter(|_| usize::try_from(found).is_ok_and(|found| found > rows.len()));
        // Older finished jobs would come between these only if the page reaches beyond the window.
        let complete = match (start, next) {
            (None, _) => true,
            (Some(start), Some(last)) => last.at > start,
            (Some(_), None) => false,
        };
        if complete {
            return Ok(Rows { rows, next, now });
        }
    }
    Ok(Rows { rows: Vec::new(), next: None, now })
}

/// Counts matching jobs, up to `most`.
pub(super) async fn count(
    session: &Session<'_>,
    filter: &JobFilter,
    most: u32,
) -> Result<u64, AdminError> {
    let conditions = Conditions::of(filter, &Stored::ALL);
    let sql = format!(
        "select count(*) from (select from leasehold.jobs j where {} limit {most}) matching",
        conditions.text()
    );
    let rows = conditions.query(session, &sql).await?;
    Ok(rows.first().map_or(0, |row| row.get::<_, i64>(0)).unsigned_abs())
}

/// Groups matching dead jobs by name and fingerprint, the largest group first.
pub(super) async fn groups(
    session: &Session<'_>,
    filter: &JobFilter,
    most: u32,
) -> Result<Vec<Row>, AdminError> {
    let conditions = Conditions::of(filter, &[Stored::Dead]);
    let sql = format!(
        "select g.*, left(g.last_error, 4096) as example from ( \
            select j.name, leasehold_internal.error_fingerprint(j.last_error) as fingerprint, count(*) as jobs, \
                   min(j.finished_at) as first_at, max(j.finished_at) as last_at, \
                   array_agg(distinct j.queue order by j.queue) as queues, \
                   array_agg(distinct j.cause order by j.cause) as causes, max(j.last_error) as last_error \
              from leasehold.jobs j where {} group by 1, 2) g \
         order by g.jobs desc, g.last_at desc, g.name, g.fingerprint limit {most}",
        conditions.text()
    );
    conditions.query(session, &sql).await
}

/// Converts `email.*` to a LIKE pattern.
fn like(pattern: &str) -> String {
    escaped(pattern).replace('*', "%")
}

/// Escapes what LIKE reads as a pattern.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('%', "\\%").replace('_', "\\_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_star_matches_any_text() {
        assert_eq!(like("email.*"), "email.%");
        assert_eq!(like("a_b%\\"), "a\\_b\\%\\\\");
    }

    #[test]
    fn cursor_is_read_as_it_is_printed() {
        for at in [i64::MIN, -1, 0, i64::MAX] {
            let cursor = Cursor { at: Moment(at), id: JobId(-3) };
            assert_eq!(cursor.to_string().parse(), Ok(cursor));
        }
        assert!("81230".parse::<Cursor>().is_err());
    }

    #[test]
    fn tables_without_a_wanted_state_are_not_read() {
        let text = |filter: JobFilter| Conditions::of(&filter, &Stored::ALL).text();
        assert!(text(JobFilter::any().waiting()).starts_with("j.stored_in in ('job')"));
        let dead = JobFilter::any().causes([crate::Cause::Lost]);
        assert!(text(dead).starts_with("j.stored_in in ('dead_job')"));
        let none = JobFilter::any().states([JobState::Ready]).causes([crate::Cause::Lost]);
        assert!(text(none).starts_with("false"));
    }
}
