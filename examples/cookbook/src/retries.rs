use std::time::Duration;

use leasehold::{Ctx, Job, JobError, JobResult, Outcome};
use serde::{Deserialize, Serialize};

// At most 8 attempts of 30 s each. The wait after a failure doubles from 2 s to 1 h.
#[derive(Job, Serialize, Deserialize)]
#[job(name = "hook.call", max_attempts = 8, run_limit = "30s", backoff = "2s..1h")]
pub struct CallHook {
    pub status: u16,
}

pub async fn call_hook(job: CallHook, ctx: Ctx) -> JobResult {
    match job.status {
        200 => Ok(Outcome::Complete),
        // Not now: the attempt does not count.
        429 => Ok(Outcome::Snooze(Duration::from_secs(300))),
        // Failed, with a wait of your own instead of the backoff.
        503 => Ok(Outcome::Retry {
            after: Duration::from_secs(60) * ctx.attempt().unsigned_abs(),
            why: format!("attempt {} of {}", ctx.attempt(), ctx.max_attempts()),
        }),
        // No attempt will help: the job is dead at once, with this reason.
        410 => Err(JobError::permanent("the receiver is gone")),
        // Any other error: retried after the backoff.
        status => Err(JobError::retry(format!("status {status}"))),
    }
}
