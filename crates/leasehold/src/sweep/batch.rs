//! A batch: rows that one claim holds, as a handler sees them.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_postgres::Row;

use super::finish::Desk;
use super::prepare::SweepError;
use crate::job::Generation;

/// Rows of one claim.
///
/// What the handler says nothing about is finished when it returns `Ok`.
#[derive(Clone)]
pub struct Batch(Arc<Inner>);

struct Inner {
    rows: Vec<Row>,
    keys: Vec<String>,
    token: Generation,
    desk: Arc<Desk>,
    ledger: Mutex<Ledger>,
}

/// What became of single rows.
#[derive(Default)]
pub(super) struct Ledger {
    /// Finished already, or no longer ours.
    over: HashSet<String>,
    failed: HashMap<String, Failure>,
    pub(super) finished: u64,
    pub(super) lost: u64,
}

/// Why a row failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) why: String,
    /// Another attempt is useless.
    pub(super) is_final: bool,
}

/// How many of the rows that were asked for are finished, and which were lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SweptRows {
    pub done: u64,
    /// Someone else owns these rows now; what they do will count.
    pub lost: Vec<String>,
}

impl Batch {
    pub(super) fn new(rows: Vec<Row>, keys: Vec<String>, token: i64, desk: Arc<Desk>) -> Self {
        let ledger = Mutex::default();
        Self(Arc::new(Inner { rows, keys, token: Generation(token), desk, ledger }))
    }

    /// The declared columns of each row, in the order of [`Batch::keys`].
    pub fn rows(&self) -> &[Row] {
        &self.0.rows
    }

    /// The key of each row, as text.
    pub fn keys(&self) -> &[String] {
        &self.0.keys
    }

    /// The number of this claim. It grows with every claim, so an outside system that keeps the
    /// largest it has seen can refuse a worker that came too late.
    pub fn token(&self) -> Generation {
        self.0.token
    }

    /// This row could not be handled: it is tried again later, a bounded number of times.
    pub fn fail(&self, key: &str, why: impl std::fmt::Display) {
        self.note(key, why.to_string(), false);
    }

    /// This row cannot be handled, now or later: it is set aside at once.
    pub fn bury(&self, key: &str, why: impl std::fmt::Display) {
        self.note(key, why.to_string(), true);
    }

    fn note(&self, key: &str, why: String, is_final: bool) {
        self.ledger().failed.insert(key.to_owned(), Failure { why, is_final });
    }

    /// Says that this worker is alive: the watchdog's time begins anew for every row that is not over
    /// yet. Call it from time to time when a batch is slow. Rows that were lost already are named;
    /// leave them alone.
    pub async fn renew(&self) -> Result<SweptRows, SweepError> {
        let open = self.open();
        let renewed = self.0.desk.renew(&open, self.0.token).await?;
        self.put_down(&renewed.lost, false);
        Ok(renewed)
    }

    /// Finishes some rows early, with everything that `finishing` says about them.
    pub async fn finish<K: AsRef<str>>(&self, keys: &[K]) -> Result<SweptRows, SweepError> {
        let open: HashSet<String> = self.open().into_iter().collect();
        let asked: Vec<String> = keys
            .iter()
            .map(|key| key.as_ref().to_owned())
            .filter(|key| open.contains(key))
            .collect();
        let swept = self.0.desk.finish(&asked, self.0.token).await?;
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

    /// Keys that nothing was said about.
    pub(super) fn open(&self) -> Vec<String> {
        let ledger = self.ledger();
        if ledger.over.is_empty() && ledger.failed.is_empty() {
            return self.0.keys.clone();
        }
        let is_open =
            |key: &&String| !ledger.over.contains(*key) && !ledger.failed.contains_key(*key);
        self.0.keys.iter().filter(is_open).cloned().collect()
    }

    /// Rows that the handler gave up, and that are not over for another reason.
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
        self.0.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batch")
            .field("rows", &self.0.keys.len())
            .field("token", &self.0.token)
            .finish()
    }
}
