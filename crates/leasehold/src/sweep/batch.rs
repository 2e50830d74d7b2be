//! A batch: the rows of one claim, as a handler sees them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio_postgres::Row;

use super::finish::SweepSession;
use super::prepare::SweepError;
use crate::Generation;

/// Rows of one claim.
///
/// Rows that the handler does not fail, bury or finish are finished when it returns `Ok`.
#[derive(Clone)]
pub struct ClaimedRows(Arc<Inner>);

struct Inner {
    rows: Vec<Row>,
    keys: Vec<String>,
    token: Generation,
    session: Arc<SweepSession>,
    ledger: Mutex<Ledger>,
}

/// The results of single rows.
#[derive(Default)]
pub(super) struct Ledger {
    /// Finished already, or no longer claimed by this batch.
    over: HashSet<String>,
    failed: HashMap<String, Failure>,
    pub(super) finished: u64,
    pub(super) lost: u64,
}

/// Why a row failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) why: String,
    /// A retry is useless.
    pub(super) is_final: bool,
}

/// How many of the given rows are finished, and which were lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SweptRows {
    /// Rows that are finished.
    pub done: u64,
    /// Another worker owns these rows now, and its result counts.
    pub lost: Vec<String>,
}

impl ClaimedRows {
    pub(super) fn new(
        rows: Vec<Row>,
        keys: Vec<String>,
        token: i64,
        session: Arc<SweepSession>,
    ) -> Self {
        let ledger = Mutex::default();
        Self(Arc::new(Inner { rows, keys, token: Generation(token), session, ledger }))
    }

    /// Returns the declared columns of each row, in the order of [`ClaimedRows::keys`].
    pub fn rows(&self) -> &[Row] {
        &self.0.rows
    }

    /// Returns the key of each row, as text.
    pub fn keys(&self) -> &[String] {
        &self.0.keys
    }

    /// Returns the number of this claim. It grows with every claim, so an outside system that remembers
    /// the largest it has seen can refuse a worker that comes too late.
    pub fn token(&self) -> Generation {
        self.0.token
    }

    /// Fails a row: it is retried later, until it has failed `max_attempts` times.
    pub fn fail(&self, key: &str, why: impl std::fmt::Display) {
        self.note(key, why.to_string(), false);
    }

    /// Buries a row that cannot be handled, now or later: it is dead at once.
    pub fn bury(&self, key: &str, why: impl std::fmt::Display) {
        self.note(key, why.to_string(), true);
    }

    fn note(&self, key: &str, why: String, is_final: bool) {
        self.ledger().failed.insert(key.to_owned(), Failure { why, is_final });
    }

    /// Restarts the watchdog's time for every row that is not finished or failed yet. Call it from time
    /// to time when a batch is slow. Returns the rows that were lost already; do not work on them any
    /// more.
    pub async fn renew(&self) -> Result<SweptRows, SweepError> {
        let open = self.open();
        let renewed = self.0.session.renew(&open, self.0.token).await?;
        self.put_down(&renewed.lost, false);
        Ok(renewed)
    }

    /// Finishes some rows early, together with the `finishing` statement.
    pub async fn finish<K: AsRef<str>>(&self, keys: &[K]) -> Result<SweptRows, SweepError> {
        let open: HashSet<String> = self.open().into_iter().collect();
        let asked: Vec<String> = keys
            .iter()
            .map(|key| key.as_ref().to_owned())
            .filter(|key| open.contains(key))
            .collect();
        let swept = self.0.session.finish(&asked, self.0.token).await?;
        let lost: HashSet<&String> = swept.lost.iter().collect();
        let done: Vec<String> = asked.iter().filter(|key| !lost.contains(key)).cloned().collect();
        self.put_down(&done, true);
        self.put_down(&swept.lost, false);
        Ok(swept)
    }

    fn put_down(&self, keys: &[String], finished: bool) {
        let mut ledger = self.ledger();
        let count = keys.len() as u64;
        *if finished { &mut ledger.finished } else { &mut ledger.lost } += count;
        ledger.over.extend(keys.iter().cloned());
    }

    /// Returns the keys that are neither finished, lost nor failed.
    pub(super) fn open(&self) -> Vec<String> {
        let ledger = self.ledger();
        if ledger.over.is_empty() && ledger.failed.is_empty() {
            return self.0.keys.clone();
        }
        let is_open =
            |key: &&String| !ledger.over.contains(*key) && !ledger.failed.contains_key(*key);
        self.0.keys.iter().filter(is_open).cloned().collect()
    }

    /// Returns the rows that the handler failed, unless they are finished or lost.
    pub(super) fn failures(&self) -> Vec<(String, Failure)> {
        let ledger = self.ledger();
        if ledger.failed.is_empty() {
            return Vec::new();
        }
        let known: HashSet<&String> = self.0.keys.iter().collect();
        let stands =
            |(key, _): &(&String, &Failure)| known.contains(key) && !ledger.over.contains(*key);
        ledger.failed.iter().filter(stands).map(|(key, why)| (key.clone(), why.clone())).collect()
    }

    pub(super) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.0.ledger.lock()
    }
}

impl std::fmt::Debug for ClaimedRows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClaimedRows")
            .field("rows", &self.0.keys.len())
            .field("token", &self.0.token)
            .finish()
    }
}
