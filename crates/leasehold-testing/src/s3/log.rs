//! The log: what clients requested and what happened, in order.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;

use super::call::Op;

/// The log drops its oldest lines beyond this; [`count`](super::S3Server::count) still counts them.
const KEPT: usize = 200_000;

/// One line of the log. A `DeleteObjects` has one line per key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub op: Op,
    pub key: String,
    pub outcome: Outcome,
}

/// What happened to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// Applied, and the client got the response.
    Done,
    /// There is no such object. Deleting a missing object is no error for the client.
    Missing,
    /// Not applied; the client got this status.
    Refused(u16),
    /// Not applied; the client got a success.
    Pretended,
    /// Not applied; the connection ended.
    Dropped,
    /// Applied; the connection ended before the response.
    Lost,
    /// Applied long after the client had timed out.
    Late,
    /// Applied, but the stored bytes, or those of the response, are wrong.
    Damaged,
}

impl Outcome {
    /// Returns whether the store was read or changed.
    pub fn is_applied(self) -> bool {
        matches!(self, Self::Done | Self::Lost | Self::Late | Self::Damaged)
    }
}

/// An expected request did not come in time.
#[derive(Debug, thiserror::Error)]
#[error("{seen} of {wanted} {op} requests for a key with {key:?} came within {} s", .limit.as_secs())]
pub struct NotSeen {
    pub op: Op,
    pub key: String,
    pub seen: usize,
    pub wanted: usize,
    limit: Duration,
}

#[derive(Default)]
pub(super) struct Log {
    inner: Mutex<Inner>,
    /// Goes up with every line, for tasks that wait for one.
    changes: watch::Sender<u64>,
}

#[derive(Default)]
struct Inner {
    entries: VecDeque<Entry>,
    counts: HashMap<Op, u64>,
}

impl Log {
    pub(super) fn note<'a>(&self, op: Op, outcomes: impl IntoIterator<Item = (&'a str, Outcome)>) {
        let mut inner = self.lock();
        for (key, outcome) in outcomes {
            if inner.entries.len() == KEPT {
                inner.entries.pop_front();
            }
            inner.entries.push_back(Entry { op, key: key.to_owned(), outcome });
            *inner.counts.entry(op).or_default() += 1;
        }
        drop(inner);
        self.changes.send_modify(|count| *count += 1);
    }

    pub(super) fn entries(&self) -> Vec<Entry> {
        self.lock().entries.iter().cloned().collect()
    }

    pub(super) fn clear(&self) {
        self.lock().entries.clear();
    }

    pub(super) fn count(&self, op: Op) -> u64 {
        self.lock().counts.get(&op).copied().unwrap_or(0)
    }

    /// Waits for and returns the first `wanted` lines about this operation on keys that contain
    /// `key`.
    pub(super) async fn wait_for(
        &self,
        op: Op,
        key: &str,
        wanted: usize,
        limit: Duration,
    ) -> Result<Vec<Entry>, NotSeen> {
        // Subscribe before looking, or a line in between would be missed.
        let mut changes = self.changes.subscribe();
        let enough = async {
            loop {
                let found = self.matching(op, key, wanted);
                if found.len() >= wanted {
                    return found;
                }
                let _ = changes.changed().await;
            }
        };
        let late = tokio::time::timeout(limit, enough).await;
        late.map_err(|_| {
            let seen = self.matching(op, key, wanted).len();
            NotSeen { op, key: key.to_owned(), seen, wanted, limit }
        })
    }

    fn matching(&self, op: Op, key: &str, limit: usize) -> Vec<Entry> {
        let inner = self.lock();
        let matching = inner.entries.iter().filter(|e| e.op == op && e.key.contains(key));
        matching.take(limit).cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }
}
