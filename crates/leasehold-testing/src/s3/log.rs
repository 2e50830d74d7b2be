//! What was asked of the server, and what became of it, in the order in which it happened.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use super::call::Op;

/// The log forgets its oldest lines beyond this; [`count`](super::S3Server::count) does not.
const KEPT: usize = 200_000;

/// One line of the log. A `DeleteObjects` has a line for each of its keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub op: Op,
    pub key: String,
    pub outcome: Outcome,
}

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// Done, and the client was told.
    Done,
    /// There is no such object. Removing what is not there is no error for the client.
    Missing,
    /// Nothing was done; the client got this status.
    Refused(u16),
    /// Nothing was done; the client was told that all went well.
    Pretended,
    /// Nothing was done; the connection ended.
    Dropped,
    /// Done; the connection ended before the answer.
    Lost,
    /// Done, when the client had long gone.
    Late,
    /// Done, but the bytes are not the right ones: those stored, or those answered.
    Damaged,
}

impl Outcome {
    /// Whether the store was read or changed.
    pub fn is_applied(self) -> bool {
        matches!(self, Self::Done | Self::Lost | Self::Late | Self::Damaged)
    }
}

/// Something that did not happen in time.
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
    /// Goes up with every line, for those who wait for one.
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

    /// The first `wanted` lines about this operation on keys that contain `key`.
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
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
