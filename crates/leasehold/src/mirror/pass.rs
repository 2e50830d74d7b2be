//! A pass: jobs of changed rows, looked at together.
//!
//! # What is true
//! - A job is complete when its row is seen in the store, and in no other case.
//! - However many jobs name a row, a pass works it once.
//! - A row that the store refuses for good is buried with the reason; its neighbours go on.
//! - What could not be done now is put off, behind every job that was never put off.
//! - Jobs that nobody waits for have passes of their own: see `bulk`.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_postgres::types::Type;

use super::bulk::{self, is_bulk};
use super::compare::Outcome;
use super::desk::Desk;
use super::pace::Leave;
use super::prepare::MirrorError;
use super::statements::KeyKind;
use super::sync::{Fate, Item};
use crate::error::WorkerError;
use crate::queue::finish::Verdict;
use crate::worker::{Attempt, Registered, Runner, StopReason, Tally};

/// How long a job waits when the database did not answer.
const DATABASE_WAIT: Duration = Duration::from_secs(1);

impl super::Mirror {
    /// Works every job that is due now, and says how they ended. For tests and scripts; a worker does
    /// it all the time.
    pub async fn pass_once(&self, engine: &crate::Leasehold) -> Result<Tally, MirrorError> {
        let mirror = self.clone().without_check();
        let worker = engine.worker().without_housekeeping().mirror(mirror);
        worker.run_until_idle().await.map_err(|error| match error {
            WorkerError::Config(text) => MirrorError::Declaration(text),
            error => error.into(),
        })
    }
}

/// The handler of the mirror's jobs.
pub(crate) fn runner(desk: Arc<Desk>) -> Registered {
    let most = desk.mirror.batch;
    let run = Box::new(move |attempts: Vec<Arc<Attempt>>| -> crate::worker::VerdictsFuture {
        let desk = Arc::clone(&desk);
        Box::pin(async move {
            // All of them or none: see `apart`.
            match attempts.iter().all(|attempt| is_bulk(attempt.job.priority)) {
                true => bulk::run(&desk, attempts).await,
                false => {
                    desk.mirror.shared.seen_live();
                    Pass::new(&desk, attempts).run().await
                }
            }
        })
    });
    Registered { runner: Runner::Many { most, apart: is_bulk, run }, run_limit: None }
}

pub(super) struct Pass<'a> {
    desk: &'a Desk,
    attempts: Vec<Arc<Attempt>>,
    verdicts: Vec<Option<Verdict>>,
    /// The jobs of each key.
    jobs: HashMap<String, Vec<usize>>,
    counts: BTreeMap<(String, Outcome), i64>,
    kept: Vec<String>,
}

impl<'a> Pass<'a> {
    pub(super) fn new(desk: &'a Desk, attempts: Vec<Arc<Attempt>>) -> Self {
        let verdicts = vec![None; attempts.len()];
        Self {
            desk,
            attempts,
            verdicts,
            jobs: HashMap::new(),
            counts: BTreeMap::new(),
            kept: Vec::new(),
        }
    }

    pub(super) async fn run(mut self) -> Vec<Verdict> {
        match self.desk.prepared().await {
            Ok(prepared) => {
                let items = self.read(prepared.kind);
                self.work(&items).await;
            }
            Err(error) => self.put_off_rest(DATABASE_WAIT, &error.to_string()),
        }
        self.note().await;
        self.put_off_rest(DATABASE_WAIT, "the pass ended early");
        self.verdicts.into_iter().map(|verdict| verdict.unwrap_or(Verdict::Release)).collect()
    }

    /// The keys that the jobs name, each once. Jobs that name none are buried.
    fn read(&mut self, kind: KeyKind) -> Vec<Item> {
        let field = &self.desk.mirror.field;
        let mut items: Vec<Item> = Vec::new();
        let mut places: HashMap<String, usize> = HashMap::new();
        for (at, attempt) in self.attempts.iter().enumerate() {
            let Some((key, force)) = key_of(attempt.job.kwargs.as_slice(), field, kind) else {
                let why = format!("the arguments have no {field} that is a key of this mirror");
                self.verdicts[at] = Some(Verdict::Bury { cause: "undecodable", why });
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
            let most = match self.desk.leave() {
                Leave::Ask(most) => most,
                Leave::Wait(wait) => return self.put_off_rest(wait, "the store is left alone"),
            };
            let (chunk, others) = rest.split_at(most.min(rest.len()));
            rest = others;
            match self.sync(chunk).await {
                Ok(fates) => {
                    self.desk.succeeded().await;
                    for (item, fate) in chunk.iter().zip(fates) {
                        self.judge(&item.key, fate);
                    }
                }
                Err(MirrorError::Target(error)) => {
                    let wait = self.desk.failed(&error, asked);
                    for item in chunk {
                        self.put_off(&item.key, wait, &error.to_string(), false);
                    }
                }
                Err(error) => {
                    self.desk.pace().unasked();
                    return self.put_off_rest(DATABASE_WAIT, &error.to_string());
                }
            }
        }
        if self.is_stopped() {
            // Handed back, and the attempts with them.
            for verdict in self.verdicts.iter_mut().filter(|verdict| verdict.is_none()) {
                *verdict = Some(Verdict::Release);
            }
        }
    }

    async fn sync(&self, chunk: &[Item]) -> Result<Vec<Fate>, MirrorError> {
        let sets = self.desk.sets().await?;
        self.desk.sync(&sets, chunk).await
    }

    /// The worker stops, or the jobs are no longer ours. One job that was cancelled stops nobody.
    fn is_stopped(&self) -> bool {
        self.attempts.iter().any(|attempt| {
            matches!(
                attempt.stop_reason(),
                Some(StopReason::LeaseLost | StopReason::Shutdown | StopReason::RunLimit)
            )
        })
    }

    fn judge(&mut self, key: &str, fate: Fate) {
        match fate {
            Fate::Kept(outcome) => {
                let jobs = self.jobs.get(key).cloned().unwrap_or_default();
                if let Some(first) = jobs.first() {
                    let tag = self.attempts[*first].job.tag.clone();
                    *self.counts.entry((tag, outcome)).or_default() += 1;
                }
                for at in jobs {
                    self.verdicts[at] = Some(Verdict::Complete);
                }
                self.kept.push(key.to_owned());
            }
            Fate::Unseen => {
                // Not a failure: it was written.
                let wait = self.patience(key);
                self.put_off(key, wait, "written, and not seen in the store yet", false);
            }
            // The set that is searched has it: the job only waits for the other one.
            Fate::Behind(why) => self.put_off(key, self.patience(key), &why, false),
            Fate::Busy(why) => {
                let attempts = self
                    .jobs
                    .get(key)
                    .and_then(|jobs| jobs.first())
                    .map(|at| self.attempts[*at].job.attempts);
                let doubled = 1_u64 << attempts.unwrap_or(1).clamp(1, 13);
                let wait = Duration::from_secs(doubled.min(3600));
                self.put_off(key, wait, &why, true);
            }
            Fate::Refused(why) => {
                for at in self.jobs.get(key).cloned().unwrap_or_default() {
                    self.verdicts[at] = Some(Verdict::Bury { cause: "refused", why: why.clone() });
                }
            }
        }
    }

    /// The older the job, the longer it waits.
    fn patience(&self, key: &str) -> Duration {
        let first = self.jobs.get(key).and_then(|jobs| jobs.first());
        let waited = first.map(|at| self.attempts[*at].job.waited()).unwrap_or_default();
        (waited / 10).clamp(Duration::from_secs(2), Duration::from_secs(300))
    }

    fn put_off(&mut self, key: &str, wait: Duration, why: &str, counted: bool) {
        for at in self.jobs.get(key).cloned().unwrap_or_default() {
            self.verdicts[at] = Some(put_off(wait, why, counted));
        }
    }

    fn put_off_rest(&mut self, wait: Duration, why: &str) {
        for verdict in self.verdicts.iter_mut().filter(|verdict| verdict.is_none()) {
            *verdict = Some(put_off(wait, why, false));
        }
    }

    /// Counts what was done, and strikes off differences that are no more.
    async fn note(&self) {
        let mirror = &self.desk.mirror;
        if !self.kept.is_empty() {
            let sql = "select leasehold.mirror_seen($1, $2)";
            let params = [(&mirror.name as _, Type::TEXT), (&self.kept as _, Type::TEXT_ARRAY)];
            if let Err(error) = self.desk.link.query(sql, &params).await {
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
            if let Err(error) = self.desk.link.query(sql, &params).await {
                tracing::debug!(%error, "what a pass did was not counted");
            }
        }
    }
}

fn put_off(wait: Duration, why: &str, counted: bool) -> Verdict {
    // What was put off together must not come back together.
    let wait = wait.mul_f64(rand::random_range(0.8..=1.2));
    Verdict::PutOff { wait, why: why.to_owned(), counted }
}

/// The key that a job names, and whether it is to be written in any case.
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
