use leasehold::schedule::ScheduleError;
use leasehold::worker::WorkerBuilder;
use leasehold::{Job, Leasehold, Schedule};
use serde::{Deserialize, Serialize};

#[derive(Job, Serialize, Deserialize)]
#[job(name = "report.build")]
pub struct BuildReport;

pub async fn build_report(_: BuildReport) {
    println!("the report of today");
}

/// Every worker may declare the schedule; each slot fires once.
pub fn worker(leasehold: &Leasehold) -> Result<WorkerBuilder<()>, ScheduleError> {
    let nightly = Schedule::new("report.nightly", "30 2 * * *", "Europe/Berlin", &BuildReport)?;
    Ok(leasehold.worker().handle(build_report).schedule(nightly))
}
