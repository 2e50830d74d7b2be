//! Uploads: from the bytes in Postgres to an object that was verified to have the same bytes.
//!
//! There are two paths. Right after the commit, the process that created the paste uploads the bytes
//! that it still has in memory. If that fails, or there is no memory, the paste's job uploads them, with
//! the retries of the queue. Both end in `pastes.finish_uploads`, and either may be first.
//!
//! # What can go wrong
//! - The process dies after the put: the job finds the object, checks it and continues.
//! - The store fails for good: the job is dead after its last attempt, and the worker that buried it marks
//!   the paste FAILED. If the worker dies in between, or housekeeping buried the job, a scheduled job finds
//!   the paste within five minutes.
//! - The paste ends meanwhile: it does not become readable, and the object is deleted again.
//! - The staged bytes are missing, or the content is doomed, under a paste that waits: each attempt
//!   counts, so that the job dies and the paste becomes FAILED.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use leasehold::error::CallError;
use leasehold::link::Links;
use leasehold::worker::{FinishedJob, ManyItem};
use leasehold::{Backoff, Job, JobError, JobResult, Outcome, Policy};
use serde::{Deserialize, Serialize};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::service::Pastes;
use crate::store::{ObjectKey, Store};
use crate::worker::{HOUSEKEEPING_QUEUE, UPLOAD_QUEUE};

/// The first at once, then after 1, 2, 4, 8 and 16 seconds: about half a minute in total. As in
/// `functions/jobs.sql`.
const ATTEMPTS: i32 = 6;
/// The most uploads that one statement finishes.
pub const BATCH: usize = 64;
/// The most batches in flight.
const BATCHES: usize = 4;
/// How long a direct upload waits for others to share its batch.
const BATCH_WAIT: Duration = Duration::from_millis(5);
/// Memory for bytes that wait for their direct upload.
const MEMORY: usize = 32 * 1024 * 1024;

/// The upload of one paste.
#[derive(Serialize, Deserialize)]
pub struct Upload {
    pub code: String,
    /// The paste's identity: another paste may have the name by now. Absent in jobs from before pastes
    /// had an identity.
    #[serde(default)]
    pub paste: Option<Uuid>,
}

impl Job for Upload {
    const NAME: &'static str = "pastes.upload";
    const QUEUE: &'static str = UPLOAD_QUEUE;

    fn policy() -> Policy {
        let backoff = Backoff::doubling(Duration::from_secs(1), Duration::from_secs(16));
        Policy::default()
            .max_attempts(ATTEMPTS)
            .backoff(backoff)
            .run_limit(Duration::from_secs(120))
    }
}

/// Finds pastes whose upload job ended without the worker's hook: see [`Pastes::check_uploads`].
#[derive(Serialize, Deserialize)]
pub struct CheckUploads {}

impl Job for CheckUploads {
    const NAME: &'static str = "pastes.check_uploads";
    const QUEUE: &'static str = HOUSEKEEPING_QUEUE;

    fn policy() -> Policy {
        Policy::default().max_attempts(3)
    }
}

/// Bytes to upload.
pub struct Task {
    pub key: ObjectKey,
    pub bytes: Bytes,
}

/// Uploads right after the commit.
pub struct Uploader {
    tasks: mpsc::Sender<(Task, OwnedSemaphorePermit)>,
    memory: Arc<Semaphore>,
}

impl Uploader {
    /// Starts the task that uploads. It stops when the handle is dropped.
    pub fn start(store: Store, sessions: Arc<Links>) -> Self {
        let (tasks, waiting) = mpsc::channel(4096);
        tokio::spawn(upload_all(store, sessions, waiting));
        Self { tasks, memory: Arc::new(Semaphore::new(MEMORY)) }
    }

    /// Queues a task if there is memory, and drops it otherwise. Never waits.
    pub fn offer(&self, task: Task) {
        let bytes = u32::try_from(task.bytes.len()).unwrap_or(u32::MAX);
        if let Ok(memory) = Arc::clone(&self.memory).try_acquire_many_owned(bytes) {
            let _ = self.tasks.try_send((task, memory));
        }
    }
}

async fn upload_all(
    store: Store,
    sessions: Arc<Links>,
    mut waiting: mpsc::Receiver<(Task, OwnedSemaphorePermit)>,
) {
    let batches = Arc::new(Semaphore::new(BATCHES));
    loop {
        let Ok(permit) = Arc::clone(&batches).acquire_owned().await else { return };
        let Some(first) = waiting.recv().await else { return };
        // Wait for others: together they cost one statement and one disk flush.
        tokio::time::sleep(BATCH_WAIT).await;
        let mut batch = vec![first];
        while batch.len() < BATCH {
            let Ok(next) = waiting.try_recv() else { break };
            batch.push(next);
        }
        let (store, sessions) = (store.clone(), Arc::clone(&sessions));
        tokio::spawn(async move {
            let (tasks, memory): (Vec<Task>, Vec<_>) = batch.into_iter().unzip();
            let keys: Vec<ObjectKey> = put_all(&store, &tasks)
                .await
                .into_iter()
                .zip(tasks)
                .filter_map(|(put, task)| put.is_ok().then_some(task.key))
                .collect();
            drop(memory);
            if let Err(error) = finish(&store, &sessions, &keys).await {
                tracing::debug!(%error, "uploads could not be recorded; their jobs will record them");
            }
            drop(permit);
        });
    }
}

/// Puts each task's bytes into the store and checks them there.
async fn put_all(store: &Store, tasks: &[Task]) -> Vec<Result<(), String>> {
    let objects = tasks.iter().map(|task| (task.key.clone(), task.bytes.clone())).collect();
    let results = store.put_all(objects).await;
    #[cfg(feature = "chaos")]
    leasehold::chaos::point("upload.after_put");
    results.into_iter().map(|result| result.map_err(|error| error.to_string())).collect()
}

/// Makes every paste readable that waits for these objects. Enqueues the deletion of objects that no
/// paste refers to any more.
async fn finish(store: &Store, sessions: &Links, keys: &[ObjectKey]) -> Result<(), CallError> {
    if keys.is_empty() {
        return Ok(());
    }
    let ids: Vec<i64> = keys.iter().map(|key| key.content_id).collect();
    let urls: Vec<String> = keys.iter().map(|key| store.url(key)).collect();
    let kept = sessions
        .query(
            "select pastes.finish_uploads($1, $2)",
            &[(&ids, Type::INT8_ARRAY), (&urls, Type::TEXT_ARRAY)],
        )
        .await?;
    let kept: Vec<i64> = kept.iter().map(|row| row.get(0)).collect();
    let late: Vec<i64> = ids.into_iter().filter(|id| !kept.contains(id)).collect();
    if !late.is_empty() {
        let sql = "select pastes.enqueue_deletions($1)";
        sessions.query(sql, &[(&late, Type::INT8_ARRAY)]).await?;
    }
    Ok(())
}

/// How long a job snoozes if another transaction holds its paste.
const HELD_ELSEWHERE: Duration = Duration::from_secs(1);

/// Runs the job: uploads what has not been uploaded yet.
pub(crate) async fn run(pastes: Pastes, items: Vec<ManyItem<Upload>>) -> Vec<JobResult> {
    let codes: Vec<&str> = items.iter().map(|item| item.job.code.as_str()).collect();
    let ids: Vec<Option<Uuid>> = items.iter().map(|item| item.job.paste).collect();
    match upload_codes(&pastes, &codes, &ids).await {
        Ok(Uploaded { failures, held }) => codes
            .iter()
            .map(|code| match failures.iter().find(|(failed, _)| failed == code) {
                Some((_, why)) => Err(JobError::retry(why)),
                // The object is stored, but another transaction held the paste, so it was not marked.
                // That transaction may still roll back. A snooze costs no attempt, and stops at the
                // latest when the paste ends.
                None if held.iter().any(|held| held == code) => Ok(Outcome::Snooze(HELD_ELSEWHERE)),
                None => Ok(Outcome::Complete),
            })
            .collect(),
        Err(error) => {
            let why = error.to_string();
            codes.iter().map(|_| Err(JobError::retry(&why))).collect()
        }
    }
}

/// The result of a batch.
struct Uploaded {
    /// Codes whose bytes were not stored, and why.
    failures: Vec<(String, String)>,
    /// Codes whose bytes are stored and whose paste still waits: another transaction holds it.
    held: Vec<String>,
}

async fn upload_codes(
    pastes: &Pastes,
    codes: &[&str],
    ids: &[Option<Uuid>],
) -> Result<Uploaded, CallError> {
    let sessions = &pastes.0.sessions;
    let sql = "select code, content_id, content_hash, object_id, bytes, state from pastes.to_upload($1, $2)";
    let params = [(&codes as _, Type::TEXT_ARRAY), (&ids as _, Type::UUID_ARRAY)];
    let rows = sessions.query(sql, &params).await?;
    let (mut named, mut tasks, mut failures) = (Vec::new(), Vec::new(), Vec::new());
    for row in &rows {
        let (code, object_id): (String, Uuid) = (row.get(0), row.get(3));
        let (bytes, state): (Vec<u8>, &str) = (row.get(4), row.get(5));
        if !matches!(state, "STAGED" | "LIVE") {
            failures.push((code, format!("the content of the paste is {state}")));
            continue;
        }
        let key = ObjectKey { content_hash: row.get(2), content_id: row.get(1), object_id };
        named.push(code);
        tasks.push(Task { key, bytes: Bytes::from(bytes) });
    }
    let (mut done, mut stored) = (Vec::new(), Vec::new());
    for ((put, task), code) in
        put_all(&pastes.0.store, &tasks).await.into_iter().zip(tasks).zip(named)
    {
        match put {
            Ok(()) => {
                done.push(task.key);
                stored.push(code);
            }
            Err(why) => failures.push((code, why)),
        }
    }
    finish(&pastes.0.store, sessions, &done).await?;
    let waiting = sessions.query("select pastes.still_uploading($1, $2)", &params).await?;
    let mut held = Vec::new();
    for code in waiting.iter().map(|row| row.get::<_, String>(0)) {
        if stored.contains(&code) {
            held.push(code);
        } else if failures.iter().all(|(failed, _)| *failed != code) {
            failures.push((code, "the staged bytes of the paste are missing".to_owned()));
        }
    }
    Ok(Uploaded { failures, held })
}

/// The most pastes that one statement of the check reads.
const PAGE: i32 = 1000;

/// The hook of the worker: marks the paste FAILED as soon as its job is dead. It can be lost with its
/// process, so [`Pastes::check_uploads`] finds what it missed.
pub(crate) async fn buried(pastes: Pastes, job: FinishedJob) -> Result<(), JobError> {
    if job.name() != Upload::NAME {
        return Ok(());
    }
    let upload: Upload = serde_json::from_slice(job.kwargs())?;
    let (codes, ids) = (vec![upload.code], vec![upload.paste]);
    let params = [(&codes as _, Type::TEXT_ARRAY), (&ids as _, Type::UUID_ARRAY)];
    pastes.0.sessions.query("select pastes.fail_uploads($1, $2)", &params).await?;
    Ok(())
}

pub(crate) async fn check(pastes: Pastes) -> Result<(), JobError> {
    pastes.check_uploads().await.map(drop)
}

impl Pastes {
    /// Marks pastes FAILED whose upload job has ended without an upload: it is dead, or an operator
    /// cancelled or deleted it. Returns how many.
    pub async fn check_uploads(&self) -> Result<u64, JobError> {
        let sql = "select failed, last_content, last_code from pastes.check_uploads($1, $2, $3)";
        let mut failed = 0;
        let mut cursor = Some((0_i64, String::new()));
        while let Some((content, code)) = cursor.take() {
            let params =
                [(&content as _, Type::INT8), (&code as _, Type::TEXT), (&PAGE as _, Type::INT4)];
            for row in self.0.sessions.query(sql, &params).await? {
                failed += u64::try_from(row.get::<_, i32>(0)).unwrap_or(0);
                cursor = row.get::<_, Option<i64>>(1).zip(row.get(2));
            }
        }
        if failed > 0 {
            tracing::warn!(pastes = failed, "pastes are FAILED: their upload jobs have ended");
        }
        Ok(failed)
    }
}
