//! What the service's worker runs: one list of jobs, schedules and the sweep.
//!
//! `functions/jobs.sql` has the names and queues of the jobs that SQL functions enqueue; a test compares
//! the two.

use leasehold::Ctx;
use leasehold::schedule::Schedule;
use leasehold::worker::WorkerBuilder;

use crate::error::StartError;
use crate::expire::{self, DeleteObjects, EndBanned, EndPastes};
use crate::orphans::CheckOrphans;
use crate::purge::{self, Purge};
use crate::service::Pastes;
use crate::settings::When;
use crate::upload::{self, CheckUploads};

/// The queue of uploads: readers wait for them.
pub const UPLOAD_QUEUE: &str = "pastes";
/// The queue of jobs that delete pastes and objects.
pub(crate) const OBJECT_QUEUE: &str = "pastes.objects";
/// The queue of scheduled jobs.
pub(crate) const HOUSEKEEPING_QUEUE: &str = "pastes.housekeeping";

/// Registers everything that pastes need with a worker: uploads, the expiry sweep, the deletion of
/// objects, and the schedules.
pub fn worker<S: Send + Sync + 'static>(
    pastes: &Pastes,
    builder: WorkerBuilder<S>,
) -> Result<WorkerBuilder<S>, StartError> {
    let zone = match &pastes.settings().expiry.when {
        When::Nightly { zone, .. } => zone.as_str(),
        When::Continuous { .. } => "UTC",
    };
    let bad = |error| StartError::Settings(format!("{error}"));
    let every_five_minutes =
        Schedule::new("pastes.check_uploads", "*/5 * * * *", zone, &CheckUploads {});
    let every_hour = Schedule::new("pastes.purge", "17 * * * *", zone, &Purge {});
    let every_night = Schedule::new("pastes.check_orphans", "23 4 * * *", zone, &CheckOrphans {});
    let pastes = || pastes.clone();
    let (uploading, failing, checking) = (pastes(), pastes(), pastes());
    let (deleting, ending, banning) = (pastes(), pastes(), pastes());
    let (purging, comparing) = (pastes(), pastes());
    Ok(builder
        .queue(UPLOAD_QUEUE, 256)
        .queue(OBJECT_QUEUE, 4)
        .queue(HOUSEKEEPING_QUEUE, 2)
        .handle_many(upload::BATCH, move |items| upload::run(uploading.clone(), items))
        .on_buried(move |job| upload::buried(failing.clone(), job))
        .handle(move |_: CheckUploads| upload::check(checking.clone()))
        .handle(move |job: DeleteObjects, ctx: Ctx| {
            expire::delete_objects(deleting.clone(), job, ctx)
        })
        .handle(move |job: EndPastes| expire::end_pastes(ending.clone(), job))
        .handle(move |job: EndBanned| expire::end_banned(banning.clone(), job))
        .handle(move |_: Purge| purge::run(purging.clone()))
        .handle(move |_: CheckOrphans| {
            let pastes = comparing.clone();
            async move { pastes.check_orphans().await.map(drop) }
        })
        .schedule(every_five_minutes.map_err(bad)?)
        .schedule(every_hour.map_err(bad)?)
        .schedule(every_night.map_err(bad)?)
        .sweep(pastes().expiry_sweep()?))
}

#[cfg(test)]
mod tests {
    use leasehold::Job;

    use super::*;
    use crate::database::SCHEMA;
    use crate::upload::Upload;

    fn row<J: Job>(job: &str) -> String {
        let attempts = J::policy().max_attempts.expect("a number of attempts");
        format!("('{job}', '{}', '{}', {attempts})", J::NAME, J::QUEUE)
    }

    #[test]
    fn sql_and_rust_name_the_same_jobs_and_queues() {
        let (_, jobs) = SCHEMA.functions.iter().find(|(name, _)| *name == "jobs").expect("a file");
        let expected = [
            row::<Upload>("upload"),
            row::<DeleteObjects>("delete_objects"),
            row::<EndPastes>("end"),
            row::<EndBanned>("end_banned"),
        ];
        let rows = jobs.lines().filter_map(|line| Some(line.get(line.find("('")?..)?.trim()));
        let rows: Vec<&str> = rows.map(|row| row.trim_end_matches(',')).collect();
        assert_eq!(rows, expected);
    }

    #[test]
    fn jobs_are_named_in_one_sql_file() {
        let names = ["'pastes'", "'pastes.objects'", "'pastes.upload'", "'pastes.delete_objects'"];
        for (name, sql) in SCHEMA.functions.iter().filter(|(name, _)| *name != "jobs") {
            for job in names {
                assert!(!sql.contains(job), "{job} in functions/{name}.sql");
            }
        }
    }
}
