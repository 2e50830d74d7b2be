//! A producer and a worker that keep running while something breaks.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::worker::JobTx;
use leasehold::{Ctx, Enqueue, JobResult, Leasehold, State};
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use crate::fixture::{Running, completed, count, jobs, queue_settings, run, sql, until};
use crate::support::Note;

/// A store outside of the database that refuses a token which is not greater than the last one that
/// it saw for the same note.
#[derive(Clone, Default)]
pub struct Outside {
    last: Arc<Mutex<HashMap<i64, i64>>>,
    /// The greatest of all, and notes whose later attempt brought a smaller token.
    greatest: Arc<AtomicI64>,
    refused: Arc<Mutex<Vec<(i64, i64, i64)>>>,
}

impl Outside {
    fn put(&self, note: i64, token: i64) {
        let mut last = self.last.lock().unwrap();
        let known = last.entry(note).or_insert(0);
        if token <= *known {
            self.refused.lock().unwrap().push((note, *known, token));
        }
        *known = token;
        self.greatest.fetch_max(token, Ordering::SeqCst);
    }

    /// Returns the greatest token that any attempt has put.
    pub fn greatest(&self) -> i64 {
        self.greatest.load(Ordering::SeqCst)
    }

    pub fn assert_tokens_grew(&self) {
        let refused = self.refused.lock().unwrap();
        assert!(refused.is_empty(), "note, token before, token after: {refused:?}");
    }
}

async fn into_ledger(job: Note, tx: JobTx, ctx: Ctx, State(outside): State<Outside>) -> JobResult {
    outside.put(job.n, ctx.generation().0);
    tx.query_typed(
        "insert into ledger values ($1, $2)",
        &[(&job.n, Type::INT8), (&ctx.generation().0, Type::INT8)],
    )
    .await?;
    Ok(tx.complete().await?)
}

pub struct Load {
    pub worker: Running,
    pub outside: Outside,
    running: Arc<AtomicBool>,
    stored: Arc<AtomicI64>,
    producer: tokio::task::JoinHandle<()>,
}

impl Load {
    /// `client` prepares the database; producer and worker connect to `url`.
    pub async fn start(client: &Client, url: &str) -> Self {
        sql(client, "create table ledger (n bigint, generation bigint)").await;
        queue_settings(client, super::SHORT_LEASES).await;
        let engine = Leasehold::connect(url).await.expect("an engine");
        let outside = Outside::default();
        let worker = engine.worker_with(outside.clone()).queue("default", 16);
        let worker = run(worker.handle(into_ledger));
        let (running, stored) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicI64::new(0)));
        let (producing, count) = (Arc::clone(&running), Arc::clone(&stored));
        let producer = tokio::spawn(async move {
            let mut n = 0;
            while producing.load(Ordering::SeqCst) {
                let draft = Note { n }.draft().expect("a draft").key(format!("note {n}"));
                // The job may be stored or not: the key makes it safe to repeat until it succeeds.
                while draft.clone().enqueue(&engine).await.is_err() {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                n += 1;
                count.store(n, Ordering::SeqCst);
            }
        });
        Self { worker, outside, running, stored, producer }
    }

    /// Returns how many notes are stored, as far as the producer knows. They are numbered from zero.
    pub fn stored(&self) -> i64 {
        self.stored.load(Ordering::SeqCst)
    }

    /// Waits for 30 more stored and finished jobs.
    pub async fn progress(&mut self) {
        let before = self.stored();
        self.worker.seen();
        until("more jobs are stored", async || self.stored() > before + 30).await;
        self.worker.finished(30).await;
    }

    /// Stops producing, waits until every job is done, and returns the number of stored notes.
    pub async fn stop(self, client: &Client) -> i64 {
        self.running.store(false, Ordering::SeqCst);
        self.producer.await.expect("no panic");
        let stored = self.stored.load(Ordering::SeqCst);
        until("all done", async || jobs(client).await == 0).await;
        self.worker.stop().await;
        self.outside.assert_tokens_grew();
        stored
    }

    /// Like `stop`, and asserts that each stored note is in the ledger once and each job completed once.
    pub async fn settle(self, client: &Client) {
        let stored = self.stop(client).await;
        println!("{stored} jobs");
        assert_eq!(completed(client).await, stored);
        assert_eq!(count(client, "select count(*) from ledger").await, stored);
        assert_eq!(count(client, "select count(distinct n) from ledger").await, stored);
        assert_eq!(count(client, "select count(*) from leasehold_internal.dead_job").await, 0);
    }
}
