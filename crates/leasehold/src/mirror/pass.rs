//! A pass: handles the jobs of changed rows together.
//!
//! # What is true
//! - A job completes when its row is seen in the store, and in no other case.
//! - However many jobs name a row, a pass handles it once.
//! - The job of a row that the store refuses for good is buried with the reason; the others continue.
//! - What could not be done now is deferred, behind every job that was never deferred.
//! - Bulk jobs have passes of their own: see `bulk`.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio_postgres::types::Type;

use super::bulk::{self, is_bulk};
use super::compare::Outcome;
use super::prepare::MirrorError;
use super::runtime::MirrorRuntime;
use super::statements::KeyKind;
use super::sync::{Item, Synced};
use super::throttle::Permit;
use crate::error::WorkerError;
use crate::job::Cause;
use crate::queue::finish::Transition;
use crate::worker::{Attempt, Registered, Runner, StopReason, Tally};

/// How long a job waits when the database did not answer.
const DATABASE_WAIT: Duration = Duration::from_secs(1);

impl super::Mirror {
    /// Handles every job that is due now, and returns how they ended. For tests and scripts; a worker
    /// does it all the time.
    pub async fn pass_once(&self, engine: &crate::Leasehold) -> Result<Tally, MirrorError> {
        let mirror = self.clone().without_check();
        let worker = engine.worker().without_housekeeping().mirror(mirror);
        worker.run_until_idle().await.map_err(|error| match error {
            WorkerError::Config(text) => MirrorError::Declaration(text),
            error => error.into(),
        })
    }
}

/// Returns the handler of the mirror's jobs.
pub(crate) fn runner(runtime: Arc<MirrorRuntime>) -> Registered {
    let most = runtime.mirror.batch;
    let run = Box::new(move |attempts: Vec<Arc<Attempt>>| -> crate::worker::TransitionsFuture {
        let runtime = Arc::clone(&runtime);
        Box::pin(async move {
            // Either all of them are bulk work or none is: see `apart`.
            match attempts.iter().all(|attempt| is_bulk(attempt.job.priority)) {
                true => bulk::run(&runtime, attempts).await,
                false => {
                    runtime.mirror.shared.seen_live();
                    Pass::new(&runtime, attempts).run().await
                }
            }
        })
    });
    Registered { runner: Runner::Many { most, apart: is_bulk, run }, run_limit: None }
}

pub(super) struct Pass<'a> {
    runtime: &'a MirrorRuntime,
    attempts: Vec<Arc<Attempt>>,
    transitions: Vec<Option<Transition>>,
    /// The jobs of each key.
    jobs: HashMap<String, Vec<usize>>,
    counts: BTreeMap<(String, Outcome), i64>,
    kept: Vec<String>,
    /// The database's time before the first look at the store.
    looked: Option<Timestamp>,
}

impl<'a> Pass<'a> {
    pub(super) fn new(runtime: &'a MirrorRuntime, attempts: Vec<Arc<Attempt>>) -> Self {
        let transitions = vec![None; attempts.len()];
        Self {
            runtime,
            attempts,
            transitions,
            jobs: HashMap::new(),
            counts: BTreeMap::new(),
            kept: Vec::new(),
            looked: None,
        }
    }

    pub(super) async fn run(mut self) -> Vec<Transition> {
        match self.begin().await {
            Ok(kind) => {
                let items = self.read(kind);
                self.work(&items).await;
            }
            Err(error) => self.put_off_rest(DATABASE_WAIT, &error.to_string()),
        }
        self.note().await;
        self.put_off_rest(DATABASE_WAIT, "the pass ended early");
        self.transitions
            .into_iter()
            .map(|transition| transition.unwrap_or(Transition::Release))
            .collect()
    }

    async fn begin(&mut self) -> Result<KeyKind, MirrorError> {
        let kind = self.runtime.prepared().await?.kind;
        self.looked = Some(self.runtime.now().await?);
        Ok(kind)
    }

    /// Returns the keys that the jobs name, each once. Buries jobs that name none.
    fn read(&mut self, kind: KeyKind) -> Vec<Item> {
        let field = &self.runtime.mirror.field;
        let mut items: Vec<Item> = Vec::new();
        let mut places: HashMap<String, usize> = HashMap::new();
        for (at, attempt) in self.attempts.iter().enumerate() {
            let Some((key, force)) = key_of(attempt.job.kwargs.as_slice(), field, kind) else {
                let why = format!("the arguments have no {field} that is a key of this mirror");
                // In the first attempt: these jobs have no last one, and the check creates a new job.
                self.transitions[at] = Some(Transition::Bury { cause: Cause::Undecodable, why });
                continue;
            };
            let place = *places.entry(key.clone()).or_insert(items.len());
            match items.get_mut(place) {
                Some(item) => item.force |= force,
                None => items.push(Item { key: key.clone(), force }),
            }
            self.jobs.entry(key).or_default().push(at);
        }
        items
    }

    async fn work(&mut self, items: &[Item]) {
        let mut rest = items;
        while !rest.is_empty() && !self.is_stopped() {
            let asked = Instant::now();
            let most = match self.runtime.permit() {
                Permit::Granted(most) => most,
                Permit::RetryAfter(wait) => {
                    return self.put_off_rest(wait, "the store is left alone");
                }
            };
            let (chunk, others) = rest.split_at(most.min(rest.len()));
            rest = others;
            match self.sync(chunk).await {
                Ok(results) => {
                    self.runtime.succeeded().await;
                    for (item, result) in chunk.iter().zip(results) {
                        self.judge(&item.key, result);
                    }
                }
                Err(MirrorError::Target(error)) => {
                    let wait = self.runtime.failed(&error, asked);
                    for item in chunk {
                        self.put_off(&item.key, wait, &error.to_string(), false);
                    }
                }
                Err(error) => {
                    self.runtime.throttle().unasked();
                    return self.put_off_rest(DATABASE_WAIT, &error.to_string());
                }
            }
        }
        if self.is_stopped() {
            // Release them; their attempts do not count.
            for transition in self.transitions.iter_mut().filter(|transition| transition.is_none())
            {
                *transition = Some(Transition::Release);
            }
        }
    }

    async fn sync(&self, chunk: &[Item]) -> Result<Vec<Synced>, MirrorError> {
        let sets = self.runtime.sets().await?;
        self.runtime.sync(&sets, chunk).await
    }

    /// Returns true if the worker stops or has lost the leases. One cancelled job does not stop the
    /// pass.
    fn is_stopped(&self) -> bool {
        self.attempts.iter().any(|attempt| {
            matches!(
                attempt.stop_reason(),
                Some(StopReason::LeaseLost | StopReason::Shutdown | StopReason::RunLimit)
            )
        })
    }

    fn judge(&mut self, key: &str, result: Synced) {
        match result {
            Synced::Kept(outcome) => {
                let jobs = self.jobs.get(key).cloned().unwrap_or_default();
                if let Some(first) = jobs.first() {
                    let tag = self.attempts[*first].job.tag.clone();
                    *self.counts.entry((tag, outcome)).or_default() += 1;
                }
                for at in jobs {
                    self.transitions[at] = Some(Transition::Complete);
                }
                self.kept.push(key.to_owned());
            }
            Synced::Unseen => {
                // Not a failure: it was written.
                let wait = self.retry_wait(key);
                self.put_off(key, wait, "written, and not seen in the store yet", false);
            }
            // The set that is searched has it: the job waits only for the second set.
            Synced::Behind(why) => self.put_off(key, self.retry_wait(key), &why, false),
            Synced::Busy(why) => {
                let attempts = self
                    .jobs
                    .get(key)
                    .and_then(|jobs| jobs.first())
                    .map(|at| self.attempts[*at].job.attempts);
                let doubled = 1_u64 << attempts.unwrap_or(1).clamp(1, 13);
                let wait = Duration::from_secs(doubled.min(3600));
                self.put_off(key, wait, &why, true);
            }
            Synced::Refused(why) => {
                for at in self.jobs.get(key).cloned().unwrap_or_default() {
                    self.transitions[at] =
                        Some(Transition::Bury { cause: Cause::Rejected, why: why.clone() });
                }
            }
        }
    }

    /// The older the job, the longer it waits.
    fn retry_wait(&self, key: &str) -> Duration {
        let first = self.jobs.get(key).and_then(|jobs| jobs.first());
        let waited = first.map(|at| self.attempts[*at].job.waited()).unwrap_or_default();
        (waited / 10).clamp(Duration::from_secs(2), Duration::from_secs(300))
    }

    fn put_off(&mut self, key: &str, wait: Duration, why: &str, counted: bool) {
        for at in self.jobs.get(key).cloned().unwrap_or_default() {
            self.transitions[at] = Some(put_off(wait, why, counted));
        }
    }

    fn put_off_rest(&mut self, wait: Duration, why: &str) {
        for transition in self.transitions.iter_mut().filter(|transition| transition.is_none()) {
            *transition = Some(put_off(wait, why, false));
        }
    }

    /// Counts what was done, and removes differences that are repaired.
    async fn note(&self) {
        let mirror = &self.runtime.mirror;
        if !self.kept.is_empty() {
            let sql = "select leasehold.mirror_seen($1, $2, $3)";
            let params = [
                (&mirror.name as _, Type::TEXT),
                (&self.kept as _, Type::TEXT_ARRAY),
                (&self.looked as _, Type::TIMESTAMPTZ),
            ];
            if let Err(error) = self.runtime.link.query(sql, &params).await {
                tracing::debug!(%error, "differences are struck off by the next check");
            }
        }
        if !self.counts.is_empty() {
            let tags: Vec<&str> = self.counts.keys().map(|(tag, _)| tag.as_str()).collect();
            let whats: Vec<&str> =
                self.counts.keys().map(|(_, outcome)| outcome.as_str()).collect();
            let ns: Vec<i64> = self.counts.values().copied().collect();
            let sql = "select leasehold.mirror_tally($1, $2, $3, $4, $5)";
            let params = [
                (&mirror.name as _, Type::TEXT),
                (&mirror.queue as _, Type::TEXT),
                (&tags as _, Type::TEXT_ARRAY),
                (&whats as _, Type::TEXT_ARRAY),
                (&ns as _, Type::INT8_ARRAY),
            ];
            if let Err(error) = self.runtime.link.query(sql, &params).await {
                tracing::debug!(%error, "what a pass did was not counted");
            }
        }
    }
}

fn put_off(wait: Duration, why: &str, counted: bool) -> Transition {
    // Jobs that are deferred together must not become due together.
    let wait = wait.mul_f64(rand::random_range(0.8..=1.2));
    Transition::Defer { wait, why: why.to_owned(), counted }
}

/// Returns the key that a job names, and whether its row must be written in any case.
fn key_of(kwargs: &[u8], field: &str, kind: KeyKind) -> Option<(String, bool)> {
    let kwargs: serde_json::Value = serde_json::from_slice(kwargs).ok()?;
    let force = kwargs.get("force").and_then(serde_json::Value::as_bool).unwrap_or(false);
    let key = match kwargs.get(field)? {
        serde_json::Value::String(text) => kind.normal(text),
        serde_json::Value::Number(number) => kind.normal(&number.to_string()),
        _ => None,
    };
    Some((key?, force))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_names_its_key_as_text_or_as_a_number() {
        let key = |text: &str, kind| key_of(text.as_bytes(), "id", kind);
        let padded = "0000000000000000042".to_owned();
        assert_eq!(key(r#"{"id": 42}"#, KeyKind::Integer), Some((padded.clone(), false)));
        assert_eq!(key(r#"{"id": "42", "force": true}"#, KeyKind::Integer), Some((padded, true)));
        assert_eq!(key(r#"{"id": "x"}"#, KeyKind::Text), Some(("x".to_owned(), false)));
        for bad in [r#"{"id": null}"#, r#"{}"#, r#"{"id": "x"}"#, r#"{"id": -1}"#] {
            assert_eq!(key(bad, KeyKind::Integer), None, "{bad}");
        }
    }
}
