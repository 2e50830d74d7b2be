//! The limit: the same pick-up in bare SQL on a bare table.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tokio::sync::mpsc;

use super::super::raw::RawWorker;
use super::super::server::BenchServer;

/// INSERT with NOTIFY in one transaction, LISTEN on a second connection, claim of one row.
pub struct RawPickup {
    producer: leasehold::database::Session,
    started: mpsc::Receiver<Instant>,
    _listener: tokio::task::JoinHandle<()>,
}

impl RawPickup {
    pub async fn start(server: &BenchServer) -> Result<Self> {
        let producer = server.session().await?;
        let consumer = server.session().await?;
        let (woken_tx, mut woken) = mpsc::channel::<()>(64);
        let config: tokio_postgres::Config = server.url.parse()?;
        let (listening, mut connection) = config.connect(tokio_postgres::NoTls).await?;
        let forward = tokio::spawn(async move {
            while let Some(Ok(message)) =
                std::future::poll_fn(|context| connection.poll_message(context)).await
            {
                if matches!(message, tokio_postgres::AsyncMessage::Notification(_)) {
                    let _ = woken_tx.send(()).await;
                }
            }
        });
        listening.batch_execute("listen raw_wake").await?;
        let (started_tx, started) = mpsc::channel(64);
        let listener = tokio::spawn(async move {
            let (_listening, _forward) = (listening, forward);
            let Ok(mut worker) = RawWorker::new(&consumer).await else { return };
            while woken.recv().await.is_some() {
                if let Ok(Some(ids)) = worker.claim_one().await {
                    let _ = started_tx.send(Instant::now()).await;
                    drop(worker.complete(&ids).await);
                }
            }
        });
        Ok(Self { producer, started, _listener: listener })
    }

    /// Returns when the call began, when it returned, and when the row was claimed.
    pub async fn pick_up(&mut self, n: u64) -> Result<(Instant, Instant, Instant)> {
        let insert = self
            .producer
            .prepare(
                "with stored as (insert into raw.job (name, kwargs) values ('noop', $1) returning id) \
                 select pg_notify('raw_wake', '') from stored",
            )
            .await?;
        let called = Instant::now();
        self.producer.query(&insert, &[&serde_json::json!({ "n": n })]).await?;
        let committed = Instant::now();
        let at = tokio::time::timeout(Duration::from_secs(10), self.started.recv())
            .await?
            .context("the bare worker is gone")?;
        Ok((called, committed, at))
    }
}
