//! Acts on many jobs: counts them first, asks for confirmation if there are many, then takes small
//! steps.
//!
//! # What is true
//! - A command without ids and without a filter does nothing unless `--all` is given.
//! - More than a hundred jobs need a confirmation: on a terminal the command asks, elsewhere it needs
//!   `--yes`.
//! - Each step is a separate statement. If the command is stopped half-way, finished steps stay, and the
//!   same command does the rest.

use super::db::Db;
use super::filter::{Filter, Question};
use super::prompt::confirm;
use super::record::{self, Record};
use crate::exit::Failure;
use crate::output::{Format, Out};
use crate::text::count;

/// More jobs than this need a confirmation.
const ASK_ABOVE: usize = 100;
/// Counting stops here: a larger count would take too long.
const COUNT_TO: i64 = 1_000_000;
/// Jobs changed per statement.
const STEP: i64 = 500;

/// Which jobs to act on, and whether to confirm.
#[derive(clap::Args, Debug, Clone)]
pub struct Selection {
    /// The ids of jobs
    #[arg(value_name = "ID")]
    pub ids: Vec<i64>,
    #[command(flatten)]
    pub filter: Filter,
    /// Every job, without a filter
    #[arg(long, conflicts_with_all = ["ids", "queue", "name", "tag"])]
    pub all: bool,
    /// Show what would change, and change nothing
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

    /// Rejects an empty selection: "every job" needs `--all`.
    pub fn check(&self, verb: &str, more_filter: bool) -> Result<(), Failure> {
        let filtered = more_filter || !self.filter.is_empty();
        if self.by_id() && filtered {
            return Err(Failure::usage("give ids or a filter, not both"));
        }
        if !self.by_id() && !filtered && !self.all {
            return Err(Failure::refused(format!("say which jobs to {verb}")).hint(format!(
                "give ids, a filter such as --queue mail, or --all to {verb} every one"
            )));
        }
        Ok(())
    }

    /// Counts the matching jobs, and asks for confirmation if there are many. Returns false if there is
    /// nothing to do.
    pub async fn confirm(
        &self,
        db: &Db,
        out: Out,
        verb: &str,
        question: &Question,
    ) -> Result<bool, Failure> {
        if self.by_id() && self.ids.len() <= ASK_ABOVE && !self.dry_run {
            return Ok(true);
        }
        let matching = Question { limit: COUNT_TO, ..question.clone() }.count(db).await?;
        let said = match matching as i64 {
            COUNT_TO => "more than a million jobs".to_owned(),
            _ => count(matching, "job"),
        };
        if self.dry_run {
            let sample = Question { limit: 5, ..question.clone() }.ask(db).await?;
            let now = db.now().await?;
            match out.format {
                Format::Json => out.document(
                    serde_json::json!({ "dry_run": true, "count": matching, "jobs": sample }),
                )?,
                _ => out.list("jobs", &sample, |records| record::table(records, now))?,
            }
            out.note(format!(
                "would {verb} {said}{}; nothing was changed",
                if matching > 5 { ", of which these are 5" } else { "" }
            ));
            return Ok(false);
        }
        if matching == 0 {
            out.note("no job matches; nothing was changed");
            return Ok(false);
        }
        if matching > ASK_ABOVE && !self.yes {
            confirm(&format!("{verb} {said}?"))?;
        }
        Ok(true)
    }

    /// Calls `act` with the matching jobs, one step at a time, newest first.
    pub async fn each_step<F>(
        &self,
        db: &Db,
        question: &Question,
        mut act: F,
    ) -> Result<(), Failure>
    where
        F: AsyncFnMut(Vec<Record>) -> Result<(), Failure>,
    {
        let mut before = None;
        loop {
            let step = Question { limit: STEP, before, ..question.clone() }.ask(db).await?;
            let Some(last) = step.last() else { return Ok(()) };
            before = Some(last.id);
            act(step).await?;
        }
    }
}
