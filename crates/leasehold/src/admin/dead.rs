//! Dead jobs.

use jiff::Timestamp;
use serde::Serialize;

use super::By;
use super::filter::JobFilter;
use super::jobs::{Change, JobPage, Jobs};
use super::read::{self, Page, Stored};
use super::session::handle;
use crate::error::AdminError;
use crate::job::{Cause, JobId, JobState};

handle! {
    /// Dead jobs: [`Leasehold::dead`](crate::Leasehold::dead).
    Dead
}

/// Dead jobs of one name whose last errors have the same fingerprint.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct DeadGroup {
    /// The name of the jobs.
    pub name: String,
    /// The first line of the last error, with `#` for numbers and ids.
    pub fingerprint: String,
    /// How many jobs are in the group.
    pub jobs: u64,
    /// When the first of them died.
    pub first_at: Timestamp,
    /// When the last of them died.
    pub last_at: Timestamp,
    /// The queues they were in.
    pub queues: Vec<String>,
    /// Why they died.
    pub causes: Vec<Cause>,
    /// The last error of one of them.
    pub example: Option<String>,
}

/// How many jobs a redrive by filter moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Redriven {
    /// How many jobs were redriven.
    pub redriven: u64,
    /// Stayed dead: the idempotency key belongs to a newer job.
    pub kept: u64,
}

/// Jobs per statement of a redrive by filter. A statement holds its locks until it ends.
const STEP: u32 = 500;

impl Dead<'_> {
    fn jobs(&self) -> Jobs<'_> {
        Jobs { session: self.session }
    }

    /// Returns dead jobs that match, the last that died first.
    pub async fn list(&self, filter: &JobFilter, page: &Page) -> Result<JobPage, AdminError> {
        // A filter for other states matches no dead job.
        let filter = filter.clone().only(&[JobState::Dead]);
        let (filter, page) = match filter {
            Some(filter) => (filter, *page),
            None => (nothing(), Page::first(1)),
        };
        self.jobs().list(&filter, &page).await
    }

    /// Returns the number of dead jobs that match, up to `most`.
    pub async fn count(&self, filter: &JobFilter, most: u32) -> Result<u64, AdminError> {
        match filter.clone().only(&[JobState::Dead]) {
            Some(filter) => self.jobs().count(&filter, most).await,
            None => Ok(0),
        }
    }

    /// Returns up to `most` groups of matching dead jobs by name and error, the largest first. It reads
    /// error texts, so it needs the role `leasehold_operator`.
    pub async fn groups(
        &self,
        filter: &JobFilter,
        most: u32,
    ) -> Result<Vec<DeadGroup>, AdminError> {
        let Some(filter) = filter.clone().only(&[JobState::Dead]) else { return Ok(Vec::new()) };
        let rows = read::groups(&self.session, &filter, most.clamp(1, Page::MAX)).await?;
        Ok(rows
            .iter()
            .map(|row| DeadGroup {
                name: row.get("name"),
                fingerprint: row.get("fingerprint"),
                jobs: row.get::<_, i64>("jobs").unsigned_abs(),
                first_at: row.get("first_at"),
                last_at: row.get("last_at"),
                queues: row.get("queues"),
                causes: row
                    .get::<_, Vec<String>>("causes")
                    .iter()
                    .filter_map(|cause| cause.parse().ok())
                    .collect(),
                example: row.get("example"),
            })
            .collect())
    }

    /// Redrives every dead job that matches, 500 per statement, the last that died first. Jobs that die
    /// meanwhile are left out. Outside a transaction, what was redriven before an error stays so.
    pub async fn redrive(&self, filter: &JobFilter, by: &By) -> Result<Redriven, AdminError> {
        let mut sum = Redriven::default();
        let Some(filter) = filter.clone().only(&[JobState::Dead]) else { return Ok(sum) };
        let mut page = Page::first(STEP);
        loop {
            let found = read::page(&self.session, &filter, &[Stored::Dead], &page).await?;
            let ids: Vec<JobId> = found.rows.iter().map(|row| JobId(row.get("id"))).collect();
            for (_, change) in self.jobs().redrive_many(&ids, by).await? {
                match change {
                    Change::Changed => sum.redriven += 1,
                    Change::KeyTaken => sum.kept += 1,
                    _ => {}
                }
            }
            match found.next {
                Some(cursor) => page = Page::first(STEP).after(cursor),
                None => return Ok(sum),
            }
        }
    }
}

/// A filter that no job matches.
fn nothing() -> JobFilter {
    JobFilter::any().states([JobState::Ready]).causes([Cause::Lost])
}
