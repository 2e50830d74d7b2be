//! A pass: handles the jobs of changed rows together.
//!
//! # Invariants
//! - A job completes when its row is seen in the store, and in no other case.
//! - However many jobs name a row, a pass handles it once.
//! - The job of a row that the store refuses for good is buried with the reason; the others continue.
//! - What could not be done now is deferred, behind every job that was never deferred.
//! - Bulk jobs have passes of their own: see `bulk`.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio_postgres::types::Type;

use super::bulk::{self, is_bulk};
use super::compare::Outcome as Found;
use super::syncer::{Item, Synced};
use crate::backoff::{Backoff, jitter};
use crate::mirror::MirrorError;
use crate::mirror::declare::KeyKind;
use crate::mirror::runtime::MirrorRuntime;
use crate::worker::StopReason;
use crate::{Cause, Ctx, JobError, JobResult, Outcome};

/// How long a job waits when the database did not respond.
const DATABASE_WAIT: Duration = Duration::from_secs(1);
/// The wait of a row that the store does not take, by the attempts of its job.
const BUSY_WAIT: Backoff = Backoff::doubling(Duration::from_secs(2), Duration::from_secs(3600));

/// Handles jobs of the mirror. Either all of them are bulk work or none is: the registration groups them, so
/// that changes by users do not wait for bulk work.
pub(crate) async fn run(runtime: Arc<MirrorRuntime>, jobs: Vec<Ctx>) -> Vec<JobResult> {
    if jobs.iter().all(|job| is_bulk(job.priority())) {
        return bulk::run(&runtime, jobs).await;
    }
    runtime.mirror.shared.seen_live();
    Pass::new(&runtime, jobs).run().await
}

pub(super) struct Pass<'a> {
    runtime: &'a MirrorRuntime,
    jobs: Vec<Ctx>,
    results: Vec<Option<JobResult>>,
    /// The jobs of each key, by their index.
    jobs_of: HashMap<String, Vec<usize>>,
    counts: BTreeMap<(String, Found), i64>,
    kept: Vec<String>,
    /// The database's time before the first read from the store.
    looked: Option<Timestamp>,
}

impl<'a> Pass<'a> {
    pub(super) fn new(runtime: &'a MirrorRuntime, jobs: Vec<Ctx>) -> Self {
        let results = vec![None; jobs.len()];
        Self {
            runtime,
            jobs,
            results,
            jobs_of: HashMap::new(),
            counts: BTreeMap::new(),
            kept: Vec::new(),
            looked: None,
        }
    }

    pub(super) async fn run(mut self) -> Vec<JobResult> {
        match self.begin().await {
            Ok(kind) => {
                let items = self.read(kind);
                self.work(&items).await;
            }
            Err(error) => self.defer_rest(DATABASE_WAIT, &error.to_string()),
        }
        self.note().await;
        self.defer_rest(DATABASE_WAIT, "the pass ended early");
        self.results.into_iter().map(|result| result.unwrap_or(Ok(Outcome::Release))).collect()
    }

    async fn begin(&mut self) -> Result<KeyKind, MirrorError> {
        let kind = self.runtime.source.prepared().await?.kind;
        self.looked = Some(self.runtime.source.now().await?);
        Ok(kind)
    }

    /// Returns the keys that the jobs name, each once. Buries jobs that name none.
    fn read(&mut self, kind: KeyKind) -> Vec<Item> {
        let field = &self.runtime.mirror.field;
        let mut items: Vec<Item> = Vec::new();
        let mut known: HashMap<String, usize> = HashMap::new();
        for (at, job) in self.jobs.iter().enumerate() {
            let Some((key, force)) = key_of(job.kwargs(), field, kind) else {
                let why = format!("the kwargs have no {field} that is a key of this mirror");
                // In the first attempt: these jobs have no last one, and the check creates a new job.
                self.results[at] = Some(Err(JobError::permanent(why).cause(Cause::Undecodable)));
                continue;
            };
            let position = *known.entry(key.clone()).or_insert(items.len());
            match items.get_mut(position) {
                Some(item) => item.force |= force,
                None => items.push(Item { key: key.clone(), force }),
            }
            self.jobs_of.entry(key).or_default().push(at);
        }
        items
    }

    async fn work(&mut self, items: &[Item]) {
        let calls = &self.runtime.calls;
        let mut rest = items;
        while !rest.is_empty() && !self.is_stopped() {
            let permit = match calls.ask() {
                Ok(permit) => permit,
                Err(wait) => return self.defer_rest(wait, "the store gets no calls now"),
            };
            let (chunk, others) = rest.split_at(permit.rows().min(rest.len()));
            rest = others;
            match self.sync(chunk).await {
                Ok(results) => {
                    calls.succeeded(permit).await;
                    for (item, result) in chunk.iter().zip(results) {
                        self.judge(&item.key, result);
                    }
                }
                Err(MirrorError::Target(error)) => {
                    let wait = calls.failed(permit, &error);
                    for item in chunk {
                        self.defer(&item.key, wait, &error.to_string());
                    }
                }
                Err(error) => return self.defer_rest(DATABASE_WAIT, &error.to_string()),
            }
        }
        if self.is_stopped() {
            // Released, not deferred: another worker can claim them at once, and no attempt counts.
            for result in self.results.iter_mut().filter(|result| result.is_none()) {
                *result = Some(Ok(Outcome::Release));
            }
        }
    }

    async fn sync(&self, chunk: &[Item]) -> Result<Vec<Synced>, MirrorError> {
        let sets = self.runtime.sets.written().await?;
        self.runtime.syncer.sync(&sets, chunk).await
    }

    /// Returns true if the worker stops or has lost the leases. One cancelled job does not stop the
    /// pass.
    fn is_stopped(&self) -> bool {
        self.jobs.iter().any(|job| {
            matches!(
                job.stop_reason(),
                Some(StopReason::LeaseLost | StopReason::Shutdown | StopReason::RunLimit)
            )
        })
    }

    fn judge(&mut self, key: &str, result: Synced) {
        match result {
            Synced::Kept(found) => {
                if let Some(first) = self.first_job(key) {
                    let tag = first.tag().to_owned();
                    *self.counts.entry((tag, found)).or_default() += 1;
                }
                self.end(key, &Ok(Outcome::Complete));
                self.kept.push(key.to_owned());
            }
            Synced::Unseen => {
                // The write succeeded and is only not visible yet, so it does not count as a failure.
                self.defer(key, self.retry_wait(key), "written, and not seen in the store yet");
            }
            // The set that is searched has it: the job waits only for the second set.
            Synced::Behind(why) => self.defer(key, self.retry_wait(key), &why),
            Synced::Busy(why) => {
                let attempts = self.first_job(key).map_or(1, Ctx::attempt);
                let wait = BUSY_WAIT.random_wait(attempts);
                self.end(key, &Err(JobError::retry(why).deferred(wait)));
            }
            Synced::Refused(why) => self.end(key, &Err(JobError::permanent(why))),
        }
    }

    fn first_job(&self, key: &str) -> Option<&Ctx> {
        self.jobs_of.get(key).and_then(|jobs| jobs.first()).map(|at| &self.jobs[*at])
    }

    /// The older the job, the longer it waits.
    fn retry_wait(&self, key: &str) -> Duration {
        let waited = self.first_job(key).map(Ctx::waited).unwrap_or_default();
        (waited / 10).clamp(Duration::from_secs(2), Duration::from_secs(300))
    }

    /// Ends every job of a key in the same way.
    fn end(&mut self, key: &str, result: &JobResult) {
        for at in self.jobs_of.get(key).into_iter().flatten() {
            self.results[*at] = Some(result.clone());
        }
    }

    fn defer(&mut self, key: &str, wait: Duration, why: &str) {
        for at in self.jobs_of.get(key).into_iter().flatten() {
            self.results[*at] = Some(Ok(deferred(wait, why)));
        }
    }

    fn defer_rest(&mut self, wait: Duration, why: &str) {
        for result in self.results.iter_mut().filter(|result| result.is_none()) {
            *result = Some(Ok(deferred(wait, why)));
        }
    }

    /// Counts what was done, and removes differences that are repaired.
    async fn note(&self) {
        let (mirror, source) = (&self.runtime.mirror, &self.runtime.source);
        if !self.kept.is_empty() {
            let sql = "select leasehold_internal.mirror_seen($1, $2, $3)";
            let params = [
                (&mirror.name as _, Type::TEXT),
                (&self.kept as _, Type::TEXT_ARRAY),
                (&self.looked as _, Type::TIMESTAMPTZ),
            ];
            if let Err(error) = source.query(sql, &params).await {
                tracing::debug!(%error, "the next check removes the repaired differences");
            }
        }
        if !self.counts.is_empty() {
            let tags: Vec<&str> = self.counts.keys().map(|(tag, _)| tag.as_str()).collect();
            let found: Vec<&str> = self.counts.keys().map(|(_, found)| found.as_str()).collect();
            let counts: Vec<i64> = self.counts.values().copied().collect();
            let sql = "select leasehold_internal.mirror_tally($1, $2, $3, $4, $5)";
            let params = [
                (&mirror.name as _, Type::TEXT),
                (&mirror.queue as _, Type::TEXT),
                (&tags as _, Type::TEXT_ARRAY),
                (&found as _, Type::TEXT_ARRAY),
                (&counts as _, Type::INT8_ARRAY),
            ];
            if let Err(error) = source.query(sql, &params).await {
                tracing::debug!(%error, "the rows of a pass were not counted");
            }
        }
    }
}

/// Puts the job back. The jitter keeps jobs that are deferred together from becoming due together.
fn deferred(wait: Duration, why: &str) -> Outcome {
    Outcome::Defer { after: jitter(wait), why: why.to_owned() }
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
    fn job_names_its_key_as_text_or_as_a_number() {
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
