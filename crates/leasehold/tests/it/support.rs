//! What the tests share.

use std::time::Duration;

use leasehold::events::Event;
use leasehold::{Finished, Job, JobId, Leasehold};
use leasehold_testing::TestDatabase;
use serde::{Deserialize, Serialize};
use tokio::sync::broadcast;

/// A job that carries a number.
#[derive(Clone, Debug, Job, Serialize, Deserialize)]
#[job(name = "note")]
pub struct Note {
    pub n: i64,
}

pub async fn engine(database: &TestDatabase) -> Leasehold {
    Leasehold::connect(&database.url()).await.expect("an engine on the test database")
}

/// Waits for an event, with the time limit in one place.
pub async fn wait_for<T>(
    events: &mut broadcast::Receiver<Event>,
    mut wanted: impl FnMut(&Event) -> Option<T>,
) -> T {
    let waiting = async {
        loop {
            match events.recv().await {
                Ok(event) => {
                    if let Some(found) = wanted(&event) {
                        return found;
                    }
                }
                Err(broadcast::error::RecvError::Lagged(_)) => {}
                Err(broadcast::error::RecvError::Closed) => panic!("the worker is gone"),
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), waiting).await.expect("the event within a minute")
}

/// Waits until `count` jobs have finished, and returns their outcomes.
pub async fn finished(
    events: &mut broadcast::Receiver<Event>,
    count: usize,
) -> Vec<(JobId, Finished)> {
    let mut seen = Vec::new();
    wait_for(events, |event| {
        if let Event::Finished { job, finished: outcome, .. } = event {
            seen.push((*job, *outcome));
        }
        (seen.len() >= count).then_some(())
    })
    .await;
    seen
}

/// Polls until `holds` returns true, with the time limit in one place.
pub async fn until(mut holds: impl AsyncFnMut() -> bool) {
    let asking = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), asking).await.expect("it holds within a minute");
}
