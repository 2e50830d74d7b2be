//! A worker under test: start it, watch it, stop it; and the rows it works on.

use std::time::Duration;

use leasehold::events::Event;
use leasehold::worker::WorkerBuilder;
use leasehold::{Finished, Generation, JobId, WorkerError};
use tokio::sync::{broadcast, oneshot};
use tokio::task::JoinHandle;
use tokio_postgres::Client;

use crate::support::wait_for;

/// Nothing that a test waits for takes this long.
const LIMIT: Duration = Duration::from_secs(60);

/// A worker that runs beside the test.
pub struct Running {
    pub events: broadcast::Receiver<Event>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<(), WorkerError>>,
}

/// Starts a worker that polls often, so that tests wait little.
pub fn run<S: Send + Sync + 'static>(worker: WorkerBuilder<S>) -> Running {
    let worker = worker.poll_every(Duration::from_millis(50));
    let events = worker.events().subscribe();
    let (stop, stopped) = oneshot::channel();
    let task = tokio::spawn(worker.run_until(async { drop(stopped.await) }));
    Running { events, stop, task }
}

impl Running {
    pub async fn stop(self) {
        drop(self.stop);
        ended(self.task).await.expect("a clean stop");
    }

    /// Tells it to stop and hands over what is left to watch.
    pub fn ask_to_stop(self) -> (broadcast::Receiver<Event>, JoinHandle<Result<(), WorkerError>>) {
        drop(self.stop);
        (self.events, self.task)
    }

    /// Waits for so many ends of attempts.
    pub async fn finished(&mut self, count: usize) -> Vec<(JobId, Finished)> {
        crate::support::finished(&mut self.events, count).await
    }

    /// How the next attempt ended.
    pub async fn next_end(&mut self) -> Finished {
        self.finished(1).await[0].1
    }

    /// How the attempt of this generation ended.
    pub async fn end_of(&mut self, wanted: Generation) -> Finished {
        wait_for(&mut self.events, |event| match event {
            Event::Finished { generation, outcome, .. } if *generation == wanted => Some(*outcome),
            _ => None,
        })
        .await
    }

    pub async fn started(&mut self, wanted: JobId) -> Generation {
        wait_for(&mut self.events, |event| match event {
            Event::Started { job, generation } if *job == wanted => Some(*generation),
            _ => None,
        })
        .await
    }

    pub async fn lost_a_lease(&mut self) -> Generation {
        wait_for(&mut self.events, |event| match event {
            Event::LeaseLost { generation } => Some(*generation),
            _ => None,
        })
        .await
    }

    /// Waits until leases were prolonged so often: each renewal comes a third of a lease later.
    pub async fn renewed(&mut self, times: usize) {
        let mut seen = 0;
        wait_for(&mut self.events, |event| {
            seen += usize::from(matches!(event, Event::Renewed { .. }));
            (seen >= times).then_some(())
        })
        .await;
    }

    /// What happened so far, without waiting.
    pub fn seen(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.events.try_recv().ok()).collect()
    }
}

/// The result of a worker that is about to stop.
pub async fn ended(task: JoinHandle<Result<(), WorkerError>>) -> Result<(), WorkerError> {
    tokio::time::timeout(LIMIT, task).await.expect("an end within a minute").expect("no panic")
}

/// Waits for something that only rows can tell.
pub async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let looking = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    if tokio::time::timeout(LIMIT, looking).await.is_err() {
        panic!("waited a minute for: {what}");
    }
}

/// Waits with the limit of every test.
pub async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, what).await.expect("within a minute")
}

pub async fn count(client: &Client, sql: &str) -> i64 {
    number(client, &format!("select ({sql})::bigint")).await
}

/// The first value of the first row. By the simple protocol: a pooler forgets prepared statements.
pub async fn number(client: &Client, sql: &str) -> i64 {
    let rows = client.simple_query(sql).await.expect(sql);
    let found = rows.iter().find_map(|message| match message {
        tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    found.and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("no number: {sql}"))
}

pub async fn jobs(client: &Client) -> i64 {
    count(client, "select count(*) from leasehold.job").await
}

/// Completed attempts in history.
pub async fn completed(client: &Client) -> i64 {
    let sql = "select coalesce(sum(cardinality(job_ids)), 0) from leasehold.history where outcome = 'completed'";
    count(client, sql).await
}

pub async fn sql(client: &Client, text: &str) {
    client.batch_execute(text).await.expect(text);
}

/// Settings of the queue `default`: `lease = '1 second'`.
pub async fn queue_settings(client: &Client, settings: &str) {
    sql(client, "insert into leasehold.queue (name) values ('default') on conflict do nothing")
        .await;
    sql(client, &format!("update leasehold.queue set {settings} where name = 'default'")).await;
}

/// Makes every lease look as if its worker had been silent for an hour.
pub async fn back_date_leases(client: &Client) {
    let text = "update leasehold.lease set lease_expires_at = now() - interval '1 hour' where ended_at is null";
    sql(client, text).await;
}
