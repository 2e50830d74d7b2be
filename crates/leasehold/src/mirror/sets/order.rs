//! Orders: what operators ask of a mirror, done by a worker that has its store.

use std::sync::Arc;
use std::time::Duration;

use super::rebuild::Rebuilder;
use crate::mirror::MirrorError;
use crate::mirror::check::Checker;
use crate::mirror::runtime::MirrorRuntime;
use crate::{Cause, Ctx, JobError, JobResult, Outcome};

/// A rebuild of a large table takes long; if its worker dies, the lease returns the order.
pub(crate) const RUN_LIMIT: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// The shortest wait after an order failed.
const AGAIN_AFTER: Duration = Duration::from_secs(10);
/// An order that has waited long waits for a tenth of that time, up to this.
const LONGEST_WAIT: Duration = Duration::from_secs(300);

/// Handles a job that `leasehold_internal.order_mirror` enqueued.
pub(crate) async fn run(runtime: Arc<MirrorRuntime>, job: Ctx) -> JobResult {
    let order = serde_json::from_slice::<serde_json::Value>(job.kwargs()).unwrap_or_default();
    let word = |name: &str| order.get(name).and_then(serde_json::Value::as_str);
    let rebuilder = Rebuilder::new(&runtime);
    let done = match word("do") {
        Some("check") => Checker::new(Arc::clone(&runtime)).check_all().await.map(drop),
        // A worker may have died after the swap and before it completed the job.
        Some("rebuild") => match rebuilder.was_rebuilt_since(job.enqueued_at()).await {
            Ok(true) => Ok(()),
            Ok(false) => rebuilder.rebuild().await.map(drop),
            Err(error) => Err(error),
        },
        Some("rollback") => rebuilder.roll_back_to(word("to")).await,
        Some("drop") => rebuilder.drop_second().await.map(drop),
        _ => {
            let why = "an order is check, rebuild, rollback or drop";
            return Err(JobError::permanent(why).cause(Cause::Undecodable));
        }
    };
    match done {
        Ok(()) => Ok(Outcome::Complete),
        // A retry would not help; the text says what to do.
        Err(error @ (MirrorError::State(_) | MirrorError::Declaration(_))) => {
            Err(JobError::permanent(error))
        }
        // The store or the database was down. The order stays until it expires, 30 days after it was
        // given.
        Err(error) if is_outage(&error) => {
            let after = (job.waited() / 10).clamp(AGAIN_AFTER, LONGEST_WAIT);
            Ok(Outcome::Defer { after, why: error.to_string() })
        }
        // After its last attempt the order is dead, so that an operator sees it.
        Err(error) => Ok(Outcome::Retry { after: AGAIN_AFTER, why: error.to_string() }),
    }
}

/// Returns true if the store or the database did not respond; false if the database refused a statement.
fn is_outage(error: &MirrorError) -> bool {
    match error {
        MirrorError::Target(_) => true,
        MirrorError::Call(error) => !error.was_refused(),
        _ => false,
    }
}
