//! Waits until another task, process or server has done something.
//!
//! ```no_run
//! # async fn test(database: leasehold_testing::TestDatabase) {
//! use leasehold_testing::{count, until};
//! let client = database.connect().await;
//! let waiting = "select count(*) from leasehold.job";
//! until("every job has completed", async || count(&client, waiting).await == 0).await;
//! # }
//! ```

#![allow(clippy::panic, reason = "a condition that never holds fails the test")]

use std::panic::Location;
use std::time::Duration;

/// How long [`until`] waits. Far longer than a step of a test takes on a busy machine: the limit only ends
/// tests that would hang.
pub const LIMIT: Duration = Duration::from_secs(120);

/// The pause between two checks.
const PAUSE: Duration = Duration::from_millis(20);

/// Checks a condition again and again until it holds. `what` describes it.
///
/// Panics after [`LIMIT`], with `what` and the line of the caller.
#[track_caller]
pub fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) -> impl Future<Output = ()> {
    let (what, place) = (what.to_owned(), Location::caller());
    async move {
        let checking = async {
            while !condition().await {
                tokio::time::sleep(PAUSE).await;
            }
        };
        if tokio::time::timeout(LIMIT, checking).await.is_err() {
            panic!("{what}: not within {} s (asked at {place})", LIMIT.as_secs());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn until_returns_once_the_condition_holds() {
        let mut checks = 0;
        until("three checks", async || {
            checks += 1;
            checks == 3
        })
        .await;
        assert_eq!(checks, 3);
    }

    #[tokio::test(start_paused = true)]
    #[should_panic(expected = "a wonder: not within 120 s (asked at ")]
    async fn until_panics_when_the_condition_never_holds() {
        until("a wonder", async || false).await;
    }
}
