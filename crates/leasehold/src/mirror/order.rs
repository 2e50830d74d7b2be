//! Orders: what people ask of a mirror, done by a worker that has its store.

use std::sync::Arc;
use std::time::Duration;

use super::desk::Desk;
use super::prepare::MirrorError;
use crate::queue::finish::Verdict;
use crate::worker::{Attempt, Registered, Runner, VerdictFuture};

/// A rebuild of a large table takes its time; a lease brings it back when its worker dies.
const RUN_LIMIT: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// How long an order waits after it failed.
const AGAIN_AFTER: Duration = Duration::from_secs(10);
/// An order that has waited for long waits for a tenth of that, up to this.
const LONGEST_WAIT: Duration = Duration::from_secs(300);

/// The handler of the jobs that `leasehold.order_mirror` makes.
pub(crate) fn runner(desk: Arc<Desk>) -> Registered {
    let run = Box::new(move |attempt: Arc<Attempt>| -> VerdictFuture {
        let desk = Arc::clone(&desk);
        Box::pin(async move {
            let asked = serde_json::from_slice::<serde_json::Value>(attempt.job.kwargs.as_slice())
                .unwrap_or_default();
            let word = |name: &str| asked.get(name).and_then(serde_json::Value::as_str);
            let done = match word("do") {
                Some("check") => desk.check_all().await.map(drop),
                Some("rebuild") => {
                    // A worker may have died after the swap and before it said so.
                    match desk.was_rebuilt_since(attempt.job.enqueued_at.to_timestamp()).await {
                        Ok(true) => Ok(()),
                        Ok(false) => desk.rebuild().await.map(drop),
                        Err(error) => Err(error),
                    }
                }
                Some("rollback") => desk.roll_back_to(word("to")).await,
                Some("drop") => desk.drop_second().await.map(drop),
                _ => {
                    let why = "an order is check, rebuild, rollback or drop".to_owned();
                    return Verdict::Bury { cause: "undecodable", why };
                }
            };
            match done {
                Ok(()) => Verdict::Complete,
                // Asking again would not help; the text says what to do.
                Err(error @ (MirrorError::State(_) | MirrorError::Declaration(_))) => {
                    Verdict::Bury { cause: "refused", why: error.to_string() }
                }
                // The database has refused something: after some attempts, that is for people to see.
                Err(MirrorError::Call(error)) if error.was_refused() => {
                    Verdict::Retry { after: Some(AGAIN_AFTER), why: error.to_string() }
                }
                // The store or the database was away. However long that lasts, the order stays.
                Err(error @ (MirrorError::Target(_) | MirrorError::Call(_))) => {
                    let wait = (attempt.job.waited() / 10).clamp(AGAIN_AFTER, LONGEST_WAIT);
                    Verdict::PutOff { wait, why: error.to_string(), counted: false }
                }
                Err(error) => Verdict::Retry { after: Some(AGAIN_AFTER), why: error.to_string() },
            }
        })
    });
    Registered { runner: Runner::One(run), run_limit: Some(RUN_LIMIT) }
}
