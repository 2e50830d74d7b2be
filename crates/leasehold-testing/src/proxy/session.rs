//! State that the two directions of one connection share.

use std::collections::VecDeque;

use parking_lot::{Mutex, MutexGuard};

use super::lane::Direction;
use super::rules::RuleId;

/// Each Query or Sync of the client gets one ReadyForQuery, in order, and so does the startup.
/// Counting both shows which reply belongs to which statement, even in a pipeline.
#[derive(Default)]
pub(super) struct Session {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    /// Queries and Syncs that the client sent. The startup is the first.
    asked: u64,
    /// For each without a reply yet: is it a Sync?
    open: VecDeque<bool>,
    /// ReadyForQuery messages that the server sent.
    answered: u64,
    /// The reply to drop: which one, and for which rule.
    doomed: Option<(u64, RuleId)>,
    /// The rules that block a direction.
    to_server: Option<RuleId>,
    to_client: Option<RuleId>,
}

/// What happens to a ReadyForQuery and to everything before it.
pub(super) enum Ready {
    Forward,
    /// The doomed statement is over.
    Cut(RuleId),
}

impl Session {
    /// Notes a Query, a Sync or the startup, which the server ends with ReadyForQuery.
    pub(super) fn asked(&self, by_sync: bool) {
        let mut inner = self.lock();
        inner.asked += 1;
        inner.open.push_back(by_sync);
    }

    /// Drops the reply to the next Query or Sync.
    pub(super) fn doom_next(&self, rule: RuleId) {
        let mut inner = self.lock();
        let next = inner.asked + 1;
        inner.doomed.get_or_insert((next, rule));
    }

    /// Drops the rest of the current reply.
    pub(super) fn doom_current(&self, rule: RuleId) {
        let mut inner = self.lock();
        let current = inner.answered + 1;
        inner.doomed.get_or_insert((current, rule));
    }

    /// Returns whether the server's current message belongs to a reply that is dropped.
    pub(super) fn is_doomed_now(&self) -> bool {
        let inner = self.lock();
        inner.doomed.is_some_and(|(which, _)| inner.answered + 1 >= which)
    }

    pub(super) fn ready(&self) -> Ready {
        let mut inner = self.lock();
        inner.answered += 1;
        inner.open.pop_front();
        match inner.doomed {
            Some((which, rule)) if inner.answered >= which => Ready::Cut(rule),
            _ => Ready::Forward,
        }
    }

    /// Returns whether the session has started.
    pub(super) fn is_ready(&self) -> bool {
        self.lock().answered > 0
    }

    /// The server waits for COPY data. It reads and ignores the Sync that drivers send right after
    /// Execute; the Sync after the data is the one that counts.
    pub(super) fn copy_in(&self) {
        let mut inner = self.lock();
        if inner.open.front() == Some(&true) {
            inner.open.pop_front();
            inner.asked -= 1;
        }
    }

    /// Blocks this direction from now on.
    pub(super) fn swallow(&self, direction: Direction, rule: RuleId) {
        match direction {
            Direction::ToServer => self.lock().to_server = Some(rule),
            Direction::ToClient => self.lock().to_client = Some(rule),
        }
    }

    /// Returns the rule that blocks this direction.
    pub(super) fn swallowed(&self, direction: Direction) -> Option<RuleId> {
        match direction {
            Direction::ToServer => self.lock().to_server,
            Direction::ToClient => self.lock().to_client,
        }
    }

    /// Unblocks what a removed rule blocked.
    pub(super) fn let_pass(&self, rule: RuleId) {
        let mut inner = self.lock();
        inner.to_server.take_if(|known| *known == rule);
        inner.to_client.take_if(|known| *known == rule);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }
}
