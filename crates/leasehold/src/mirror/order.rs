//! Orders: what operators ask of a mirror, done by a worker that has its store.

use std::sync::Arc;
use std::time::Duration;

use super::prepare::MirrorError;
use super::runtime::MirrorRuntime;
use crate::job::Cause;
use crate::queue::finish::Transition;
use crate::worker::{Attempt, Registered, Runner, TransitionFuture};

/// A rebuild of a large table takes long; if its worker dies, the lease returns the order.
const RUN_LIMIT: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// The shortest wait after an order failed.
const AGAIN_AFTER: Duration = Duration::from_secs(10);
/// An order that has waited long waits for a tenth of that time, up to this.
const LONGEST_WAIT: Duration = Duration::from_secs(300);

/// Returns the handler of the jobs that `leasehold.order_mirror` enqueues.
pub(crate) fn runner(runtime: Arc<MirrorRuntime>) -> Registered {
    let run = Box::new(move |attempt: Arc<Attempt>| -> TransitionFuture {
        let runtime = Arc::clone(&runtime);
        Box::pin(async move {
            let asked = serde_json::from_slice::<serde_json::Value>(attempt.job.kwargs.as_slice())
                .unwrap_or_default();
            let word = |name: &str| asked.get(name).and_then(serde_json::Value::as_str);
            let done = match word("do") {
                Some("check") => runtime.check_all().await.map(drop),
                Some("rebuild") => {
                    // A worker may have died after the swap and before it completed the job.
                    match runtime.was_rebuilt_since(attempt.job.enqueued_at.to_timestamp()).await {
                        Ok(true) => Ok(()),
                        Ok(false) => runtime.rebuild().await.map(drop),
                        Err(error) => Err(error),
                    }
                }
                Some("rollback") => runtime.roll_back_to(word("to")).await,
                Some("drop") => runtime.drop_second().await.map(drop),
                _ => {
                    let why = "an order is check, rebuild, rollback or drop".to_owned();
                    return Transition::Bury { cause: Cause::Undecodable, why };
                }
            };
            match done {
                Ok(()) => Transition::Complete,
                // A retry would not help; the text says what to do.
                Err(error @ (MirrorError::State(_) | MirrorError::Declaration(_))) => {
                    Transition::Bury { cause: Cause::Rejected, why: error.to_string() }
                }
                // The database refused a statement: after its last attempt the order is dead, so that
                // an operator sees it.
                Err(MirrorError::Call(error)) if error.was_refused() => {
                    Transition::Retry { after: Some(AGAIN_AFTER), why: error.to_string() }
                }
                // The store or the database was down. The order stays until it expires, 30 days after
                // it was given.
                Err(error @ (MirrorError::Target(_) | MirrorError::Call(_))) => {
                    let wait = (attempt.job.waited() / 10).clamp(AGAIN_AFTER, LONGEST_WAIT);
                    Transition::Defer { wait, why: error.to_string(), counted: false }
                }
                Err(error) => {
                    Transition::Retry { after: Some(AGAIN_AFTER), why: error.to_string() }
                }
            }
        })
    });
    Registered { runner: Runner::One(run), run_limit: Some(RUN_LIMIT) }
}
