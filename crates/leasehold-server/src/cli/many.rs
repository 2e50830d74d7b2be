//! Acts on many jobs: counts them first, asks for confirmation if there are many, then takes small
//! steps.
//!
//! # Invariants
//! - A command without ids and without a filter does nothing unless `--all` is given.
//! - More than a hundred jobs, and `--all`, need a confirmation: on a terminal the command asks, elsewhere it needs
//!   `--yes`.
//! - Each step is a separate statement. If the command is stopped half-way, finished steps stay, and the
//!   same command does the rest.

use leasehold::admin::{JobFilter, Page};
use leasehold::{JobId, JobState};

use super::db::Db;
use super::filter::Filter;
use super::prompt::confirm;
use super::record;
use crate::exit::Failure;
use crate::output::{Format, Out};
use crate::text::count;

/// More jobs than this need a confirmation.
const ASK_ABOVE: usize = 100;
/// Counting stops here: a larger count would take too long.
const COUNT_TO: u32 = 1_000_000;
/// Jobs changed per statement.
const STEP: u32 = 500;

/// Which jobs to act on, and whether to confirm.
#[derive(clap::Args, Debug, Clone)]
pub struct Selection {
    /// Ids of jobs
    #[arg(value_name = "ID")]
    pub ids: Vec<JobId>,
    #[command(flatten)]
    pub filter: Filter,
    /// Select every job
    #[arg(long, conflicts_with_all = ["ids", "queue", "name", "tag", "filter"])]
    pub all: bool,
    /// Show which jobs would change, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Skip the confirmation
    #[arg(short, long)]
    pub yes: bool,
}

impl Selection {
    /// True if the jobs are given by id.
    pub fn by_id(&self) -> bool {
        !self.ids.is_empty()
    }

    /// Returns the filter of the flags and the ids, for these states only. `None`: the flags name only
    /// other states. Jobs given by id are not filtered by state: each gets a result of its own.
    pub fn matching(&self, states: &[JobState]) -> Result<Option<JobFilter>, Failure> {
        let filter = self.filter.join()?;
        Ok(match self.by_id() {
            true => Some(filter.ids(self.ids.iter().copied())),
            false => filter.only(states),
        })
    }

    /// Rejects an empty selection: "every job" needs `--all`.
    pub fn check(&self, verb: &str, more_filter: bool) -> Result<(), Failure> {
        let filtered = more_filter || !self.filter.is_empty();
        if self.by_id() && filtered {
            return Err(Failure::usage("give ids or a filter, not both"));
        }
        if !self.by_id() && !filtered && !self.all {
            return Err(Failure::refused(format!("no jobs are selected to {verb}")).hint(format!(
                "give ids, a filter such as --queue mail, or --all to {verb} every job"
            )));
        }
        Ok(())
    }

    /// Counts the matching jobs, and asks for confirmation if there are many, if `--all` selects them, or if they
    /// would be deleted by a filter. Returns false if there is nothing to do.
    pub async fn confirm(
        &self,
        db: &Db,
        out: Out,
        verb: &str,
        filter: &JobFilter,
    ) -> Result<bool, Failure> {
        if self.by_id() && self.ids.len() <= ASK_ABOVE && !self.dry_run {
            return Ok(true);
        }
        let matching = db.within(db.jobs().count(filter, COUNT_TO)).await?;
        let matching = usize::try_from(matching).unwrap_or(usize::MAX);
        let amount = if matching >= COUNT_TO as usize {
            "a million jobs or more".to_owned()
        } else {
            count(matching, "job")
        };
        if self.dry_run {
            let sample = db.within(db.jobs().list(filter, &Page::first(5))).await?;
            match out.format {
                Format::Json => out.document(
                    serde_json::json!({ "dry_run": true, "count": matching, "jobs": sample.jobs }),
                )?,
                _ => out.list("jobs", &sample.jobs, |jobs| record::table(jobs, sample.now))?,
            }
            out.note(format!(
                "would {verb} {amount}{}; nothing was changed",
                if matching > 5 { ", 5 of which are shown" } else { "" }
            ));
            return Ok(false);
        }
        if matching == 0 {
            out.note("no job matches; nothing was changed");
            return Ok(false);
        }
        // Deleted jobs leave no history: a filter that matches more than was meant cannot be undone.
        if (matching > ASK_ABOVE || verb == "delete" || self.all) && !self.yes {
            confirm(&format!("{verb} {amount}?"))?;
        }
        Ok(true)
    }

    /// Calls `act` with the matching jobs, one step at a time, newest first.
    pub async fn each_step<F>(&self, db: &Db, filter: &JobFilter, mut act: F) -> Result<(), Failure>
    where
        F: AsyncFnMut(&[JobId]) -> Result<(), Failure>,
    {
        let mut page = Page::first(STEP);
        loop {
            let step = db.within(db.jobs().list(filter, &page)).await?;
            let ids: Vec<JobId> = step.jobs.iter().map(|job| job.id).collect();
            act(&ids).await?;
            match step.next {
                Some(next) => page = Page::first(STEP).after(next),
                None => return Ok(()),
            }
        }
    }
}
