use leasehold::admin::{By, Change, FilterError, JobFilter, Page, Redriven};
use leasehold::{AdminError, JobId, Leasehold};

/// Cancels the jobs of a customer that have not finished. Returns those that still run: their handlers were asked
/// to stop.
pub async fn cancel_customer(
    leasehold: &Leasehold,
    customer: &str,
    by: &By,
) -> Result<Vec<JobId>, AdminError> {
    let unfinished = JobFilter::any().waiting().states([leasehold::JobState::Running]);
    let filter = unfinished.tag(format!("customer:{customer}"));
    let (mut page, mut running) = (Page::first(500), Vec::new());
    loop {
        let found = leasehold.jobs().list(&filter, &page).await?;
        let ids: Vec<JobId> = found.jobs.iter().map(|job| job.id).collect();
        for (id, change) in leasehold.jobs().cancel_many(&ids, by).await? {
            if change == Change::Requested {
                running.push(id);
            }
        }
        match found.next {
            Some(next) => page = Page::first(500).after(next),
            None => return Ok(running),
        }
    }
}

/// Parses what an operator typed, such as `queue:mail error:"connection reset"`.
pub fn parse(text: &str) -> Result<JobFilter, FilterError> {
    text.parse()
}

/// Gives the dead jobs that match new attempts.
pub async fn redrive(
    leasehold: &Leasehold,
    filter: &JobFilter,
    by: &By,
) -> Result<Redriven, AdminError> {
    leasehold.dead().redrive(filter, by).await
}
