//! A worker under test: start it, watch it, stop it; and the rows it works on.

use std::time::Duration;

use leasehold::events::Event;
use leasehold::worker::WorkerBuilder;
use leasehold::{Finished, Generation, JobId, WorkerError};
use tokio::sync::{broadcast, oneshot};
use tokio::task::JoinHandle;
use tokio_postgres::Client;

use crate::support::wait_for;

/// The longest that a test waits for anything.
const LIMIT: Duration = Duration::from_secs(60);

/// A worker that runs beside the test.
pub struct Running {
    pub events: broadcast::Receiver<Event>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<(), WorkerError>>,
}

/// Starts a worker that polls often, so that tests wait little.
pub fn run<S: Send + Sync + 'static>(worker: WorkerBuilder<S>) -> Running {
    run_as_is(worker.poll_every(Duration::from_millis(50)))
}

/// Starts a worker with its settings unchanged.
pub fn run_as_is<S: Send + Sync + 'static>(worker: WorkerBuilder<S>) -> Running {
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

    /// Asks the worker to stop, and returns its events and its task.
    pub fn ask_to_stop(self) -> (broadcast::Receiver<Event>, JoinHandle<Result<(), WorkerError>>) {
        drop(self.stop);
        (self.events, self.task)
    }

    /// Waits for `count` ends of attempts.
    pub async fn finished(&mut self, count: usize) -> Vec<(JobId, Finished)> {
        crate::support::finished(&mut self.events, count).await
    }

    /// Returns how the next attempt ended.
    pub async fn next_end(&mut self) -> Finished {
        self.finished(1).await[0].1
    }

    /// Returns how the attempt of this generation ended.
    pub async fn end_of(&mut self, wanted: Generation) -> Finished {
        wait_for(&mut self.events, |event| match event {
            Event::Finished { generation, finished: outcome, .. } if *generation == wanted => {
                Some(*outcome)
            }
            _ => None,
        })
        .await
    }

    pub async fn started(&mut self, wanted: JobId) -> Generation {
        wait_for(&mut self.events, |event| match event {
            Event::Started { job, generation, .. } if *job == wanted => Some(*generation),
            _ => None,
        })
        .await
    }

    pub async fn lost_a_lease(&mut self) -> Generation {
        wait_for(&mut self.events, |event| match event {
            Event::LeaseLost { generation, .. } => Some(*generation),
            _ => None,
        })
        .await
    }

    /// Waits for `times` renewals: each comes a third of a lease after the last.
    pub async fn renewed(&mut self, times: usize) {
        let mut seen = 0;
        wait_for(&mut self.events, |event| {
            seen += usize::from(matches!(event, Event::Renewed { .. }));
            (seen >= times).then_some(())
        })
        .await;
    }

    /// Returns the events so far, without waiting.
    pub fn seen(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.events.try_recv().ok()).collect()
    }
}

/// Returns the result of a worker that is about to stop.
pub async fn ended(task: JoinHandle<Result<(), WorkerError>>) -> Result<(), WorkerError> {
    tokio::time::timeout(LIMIT, task).await.expect("an end within a minute").expect("no panic")
}

/// Polls until `holds` returns true, for conditions that only rows show.
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

/// Waits for a future, up to the limit of every test.
pub async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, what).await.expect("within a minute")
}

pub async fn count(client: &Client, sql: &str) -> i64 {
    number(client, &format!("select ({sql})::bigint")).await
}

/// Returns the first value of the first row. Uses the simple protocol: a pooler does not keep
/// prepared statements.
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

/// Returns the number of completed jobs in history.
pub async fn completed(client: &Client) -> i64 {
    let sql = "select coalesce(sum(cardinality(job_ids)), 0) from leasehold_internal.history where outcome = 'completed'";
    count(client, sql).await
}

pub async fn sql(client: &Client, text: &str) {
    client.batch_execute(text).await.expect(text);
}

/// Changes settings of the queue `default`, such as `lease = '1 second'`.
pub async fn queue_settings(client: &Client, settings: &str) {
    sql(
        client,
        "insert into leasehold_internal.queue (name) values ('default') on conflict do nothing",
    )
    .await;
    sql(client, &format!("update leasehold_internal.queue set {settings} where name = 'default'"))
        .await;
}

/// Makes every lease look as if its worker had been silent for an hour.
pub async fn back_date_leases(client: &Client) {
    let text = "update leasehold_internal.lease set lease_expires_at = now() - interval '1 hour' where ended_at is null";
    sql(client, text).await;
}
