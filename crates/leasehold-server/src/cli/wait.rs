//! Waits until one job is over.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use leasehold::admin::{JobInfo, WorkerState};
use leasehold::{Backoff, JobId, JobState};

use super::db::Db;
use crate::exit::{Code, Failure};
use crate::output::Out;

/// The polling intervals: short at first, then doubling.
const POLL: Backoff = Backoff::doubling(Duration::from_millis(50), Duration::from_secs(1));
/// Timeout of the read behind a warning.
const REGISTRY_LIMIT: Duration = Duration::from_secs(2);

pub async fn until_over(
    db: &Db,
    out: Out,
    id: JobId,
    limit: Option<Duration>,
) -> Result<ExitCode, Failure> {
    let begin = Instant::now();
    let (mut pauses, mut warned) = (POLL.waits(), false);
    let mut failures = 0;
    loop {
        let job = db.within(db.jobs().get(id)).await?;
        // A queue without history keeps no trace of completed jobs; cancelled jobs are always recorded.
        let state = job.as_ref().map_or(JobState::Completed, |job| job.state);
        if state.is_over() {
            return judge(out, id, job, begin.elapsed());
        }
        let failed_now = job.filter(|job| job.attempts != failures && state.is_waiting());
        if let Some(job) = failed_now
            && let Some(why) = &job.last_error
        {
            failures = job.attempts;
            let next_in = job.scheduled_at.duration_since(db.now().await?);
            out.note(failed(
                id,
                job.attempts,
                why,
                Duration::try_from(next_in).unwrap_or_default(),
            ));
        }
        if !warned && begin.elapsed() > Duration::from_secs(2) {
            warned = true;
            warn_of_idle_queue(db, out, id).await?;
        }
        let left = limit.map_or(Duration::MAX, |limit| limit.saturating_sub(begin.elapsed()));
        if left.is_zero() {
            let waited = crate::text::print_duration(begin.elapsed());
            return Err(Failure::timeout(format!(
                "job {id} is not over after {waited}; it is {state}"
            ))
            .hint(format!("it continues; show it: leasehold jobs show {id}")));
        }
        tokio::time::sleep(pauses.next_wait().min(left)).await;
    }
}

/// Describes a job that failed and is retried.
fn failed(id: JobId, times: i32, why: &str, next_in: Duration) -> String {
    let times = if times == 1 { "once".to_owned() } else { format!("{times} times") };
    let why = crate::text::one_line(why, 200);
    format!(
        "job {id} failed {times} ({why}); next attempt in {}",
        crate::text::print_duration(next_in)
    )
}

fn judge(out: Out, id: JobId, job: Option<JobInfo>, after: Duration) -> Result<ExitCode, Failure> {
    let Some(job) = job.filter(|job| job.state != JobState::Completed) else {
        let after = crate::text::print_duration(after);
        out.note(format!("job {id} is completed, {after} after the enqueue"));
        return Ok(ExitCode::SUCCESS);
    };
    let why = job.note.filter(|_| job.state == JobState::Cancelled).or(job.last_error);
    let why = crate::text::printable(&why.unwrap_or_default());
    Err(match job.state {
        JobState::Cancelled => Failure::new(Code::Failed, format!("job {id} was cancelled: {why}")),
        _ => Failure::new(Code::Failed, format!("job {id} died: {why}")).hint(format!(
            "show it: leasehold jobs show {id}; run it again: leasehold dead redrive {id}"
        )),
    })
}

/// Warns if the queue is paused, or if no live worker can run the job.
async fn warn_of_idle_queue(db: &Db, out: Out, id: JobId) -> Result<(), Failure> {
    let Some(job) = db.within(db.jobs().get(id)).await? else { return Ok(()) };
    let queue = &job.queue;
    if db.within(db.queues().get(queue)).await?.is_some_and(|queue| queue.paused_at.is_some()) {
        out.warn(format!("queue {queue} is paused; resume it: leasehold queues resume {queue}"));
    } else if let Some(warning) = no_worker(db, queue, &job.name).await {
        out.warn(format!("{warning}; still waiting"));
    }
    Ok(())
}

/// Returns a warning if no live worker works the queue, or none there handles the name. Reads only the
/// registry of workers: a warning must not cost a count of the queue. Returns `None`, too, if the role
/// may not read the registry, as a producer may not, or the database does not respond in time: the job
/// is stored in every case.
pub async fn no_worker(db: &Db, queue: &str, name: &str) -> Option<String> {
    let registry = db.workers();
    let listing = tokio::time::timeout(REGISTRY_LIMIT, registry.list(false));
    let workers = listing.await.ok()?.ok()?;
    let mut serving = workers
        .iter()
        .filter(|worker| worker.state == WorkerState::Alive)
        .filter(|worker| worker.queues.iter().any(|known| known == queue))
        .peekable();
    if serving.peek().is_none() {
        return Some(format!("no live worker works queue {queue}"));
    }
    match serving.any(|worker| worker.names.iter().any(|known| known == name)) {
        true => None,
        false => Some(format!("no live worker of queue {queue} handles {name}")),
    }
}
