//! Assertions on enqueued jobs: by type and by arguments, with a message that lists what waits
//! instead.

#![allow(clippy::panic, reason = "what a test asks for and does not get ends it")]

use std::fmt;
use std::future::Future;
use std::panic::Location;

use jiff::Timestamp;
use leasehold::{Job, JobId};

use crate::TestEngine;

/// Most jobs that a message lists.
const NAMED: i64 = 20;

/// A waiting job.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EnqueuedJob<J> {
    pub id: JobId,
    pub job: J,
    pub queue: String,
    pub priority: i32,
    /// The job does not start before this moment.
    pub scheduled_at: Timestamp,
    pub tag: String,
    /// The idempotency key, if it has one.
    pub key: Option<String>,
    /// How often it has been started.
    pub attempts: i32,
    pub last_error: Option<String>,
}

impl TestEngine {
    /// Returns the waiting jobs of one type, due or not, in the order in which they were enqueued.
    pub async fn all_enqueued<J: Job>(&self) -> Vec<EnqueuedJob<J>> {
        let client = self.database().connect_directly().await;
        let sql = "select id, kwargs::text, queue, priority, scheduled_at, tag, idempotency_key, \
                          attempts, last_error \
                     from leasehold.job where name = $1 and not held order by id";
        let rows = match client.query(sql, &[&J::NAME]).await {
            Ok(rows) => rows,
            Err(error) => panic!("no list of jobs: {}", leasehold::error::describe(&error)),
        };
        rows.iter()
            .map(|row| {
                let (id, kwargs): (i64, &str) = (row.get(0), row.get(1));
                let job = match serde_json::from_str(kwargs) {
                    Ok(job) => job,
                    Err(error) => {
                        panic!(
                            "the arguments of job {id} do not fit {}: {error}: {kwargs}",
                            J::NAME
                        )
                    }
                };
                EnqueuedJob {
                    id: JobId(id),
                    job,
                    queue: row.get(2),
                    priority: row.get(3),
                    scheduled_at: row.get(4),
                    tag: row.get(5),
                    key: row.get(6),
                    attempts: row.get(7),
                    last_error: row.get(8),
                }
            })
            .collect()
    }

    /// Returns the first waiting job of this type that `wanted` accepts. Panics if there is none.
    #[track_caller]
    pub fn assert_enqueued<J: Job>(
        &self,
        wanted: impl Fn(&J) -> bool,
    ) -> impl Future<Output = EnqueuedJob<J>> {
        let place = Location::caller();
        async move {
            match self.all_enqueued::<J>().await.into_iter().find(|found| wanted(&found.job)) {
                Some(found) => found,
                None => self.fail(place, &format!("no waiting {} fits", J::NAME)).await,
            }
        }
    }

    /// Panics if a job of this type is waiting.
    #[track_caller]
    pub fn refute_enqueued<J: Job>(&self) -> impl Future<Output = ()> {
        let place = Location::caller();
        async move {
            if !self.all_enqueued::<J>().await.is_empty() {
                self.fail::<()>(place, &format!("{} is waiting", J::NAME)).await;
            }
        }
    }

    async fn fail<T>(&self, place: &Location<'_>, what: &str) -> T {
        panic!("{what} (asked at {place}); waiting: {}", self.describe_waiting().await)
    }

    pub(crate) async fn describe_waiting(&self) -> String {
        let client = self.database().connect_directly().await;
        let sql = "select id, name, queue, kwargs::text from leasehold.job \
                    where not held order by id limit $1";
        let Ok(rows) = client.query(sql, &[&NAMED]).await else {
            return "unknown, the database does not respond".to_owned();
        };
        let jobs: Vec<String> = rows
            .iter()
            .map(|row| {
                let line = Line {
                    id: row.get(0),
                    name: row.get(1),
                    queue: row.get(2),
                    kwargs: row.get(3),
                };
                line.to_string()
            })
            .collect();
        if jobs.is_empty() { "nothing".to_owned() } else { jobs.concat() }
    }
}

struct Line<'a> {
    id: i64,
    name: &'a str,
    queue: &'a str,
    kwargs: &'a str,
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\n  {} {} in {}: {}", self.id, self.name, self.queue, self.kwargs)
    }
}
