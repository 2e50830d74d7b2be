//! A worker that sleeps past its lease, wherever it sleeps and whenever it wakes.

use std::sync::Arc;
use std::time::Duration;

use leasehold::events::Event;
use leasehold::{
    Ctx, Enqueue, Finished, Generation, JobError, JobResult, Leasehold, Outcome, State,
};
use leasehold_testing::TestDatabase;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Notify, Semaphore};
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use super::expire_leases;
use crate::fixture::{Running, completed, count, jobs, run, soon, sql};
use crate::support::{Note, engine, wait_for};

/// Where the first attempt falls asleep.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Place {
    BeforeTheTransaction,
    AfterTheEffect,
    AfterTheCompletion,
    BeforeReturning,
    BeforeReporting(&'static str),
}

/// When it wakes up, as seen from the second run.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Wakes {
    Before,
    During,
    After,
}

#[derive(Clone)]
struct Sleeper {
    place: Place,
    asleep: UnboundedSender<()>,
    wake: Arc<Notify>,
    /// The test holds it to make the second run wait.
    second: Arc<Semaphore>,
}

impl Sleeper {
    async fn sleep_at(&self, place: Place, ctx: &Ctx) {
        if place == self.place && ctx.attempt() == 1 {
            let _ = self.asleep.send(());
            self.wake.notified().await;
        }
    }
}

async fn sleepy(job: Note, ctx: Ctx, State(sleeper): State<Sleeper>) -> JobResult {
    if ctx.attempt() > 1 {
        let _ = sleeper.second.acquire().await?;
    }
    sleeper.sleep_at(Place::BeforeTheTransaction, &ctx).await;
    if let Place::BeforeReporting(verb) = sleeper.place
        && ctx.attempt() == 1
    {
        sleeper.sleep_at(sleeper.place, &ctx).await;
        return match verb {
            "retry" => Err(JobError::retry("late")),
            "bury" => Err(JobError::permanent("late")),
            "snooze" => Ok(Outcome::Snooze(Duration::from_secs(600))),
            _ => Ok(Outcome::Cancel("late".into())),
        };
    }
    if sleeper.place == Place::BeforeReturning && ctx.attempt() == 1 {
        sleeper.sleep_at(Place::BeforeReturning, &ctx).await;
        return Ok(Outcome::Complete);
    }
    let mut connection = ctx.engine().pool().get().await?;
    let transaction = connection.transaction().await?;
    transaction.query_typed("insert into ledger values ($1)", &[(&job.n, Type::INT8)]).await?;
    sleeper.sleep_at(Place::AfterTheEffect, &ctx).await;
    ctx.complete_in(&transaction).await?;
    sleeper.sleep_at(Place::AfterTheCompletion, &ctx).await;
    transaction.commit().await?;
    Ok(Outcome::Complete)
}

/// Returns how one attempt ended. The events of a lost attempt and of the next one come in any order.
async fn end_of(worker: &mut Running, wanted: Generation) -> Finished {
    wait_for(&mut worker.events, |event| match event {
        Event::Finished { generation, finished: outcome, .. } if *generation == wanted => {
            Some(*outcome)
        }
        _ => None,
    })
    .await
}

/// Runs one job through a sleep and a second run. Returns how the sleeper's attempt ended.
async fn sleep_and_wake(
    engine: &Leasehold,
    client: &Client,
    n: i64,
    place: Place,
    wakes: Wakes,
) -> Finished {
    let (asleep, mut fell_asleep): (_, UnboundedReceiver<()>) = unbounded_channel();
    let second = Arc::new(Semaphore::new(1));
    let sleeper = Sleeper { place, asleep, wake: Arc::default(), second: Arc::clone(&second) };
    let wake = Arc::clone(&sleeper.wake);
    let worker = |name: &str| {
        engine
            .worker_with(sleeper.clone())
            .name(name)
            .queue("default", 1)
            .without_housekeeping()
            .handle(sleepy)
    };
    let mut first = run(worker("first"));
    let id = Note { n }.enqueue(engine).await.expect("enqueued").id();
    let attempt = first.started(id).await;
    soon(fell_asleep.recv()).await.expect("asleep");
    expire_leases(client).await;
    let mut helper: Option<Running> = None;
    let end = if place == Place::AfterTheCompletion {
        // Its transaction holds the row: no other worker can claim the job, and its commit counts.
        assert_eq!(count(client, "select lost_count from leasehold.job").await, 0);
        wake.notify_one();
        end_of(&mut first, attempt).await
    } else if wakes == Wakes::Before {
        wake.notify_one();
        let end = end_of(&mut first, attempt).await;
        // The sleeper's own slot is free again: it may well be the second to run the job.
        crate::fixture::until("the second run", async || jobs(client).await == 0).await;
        end
    } else {
        let permit = second.acquire().await.expect("open");
        let mut other = run(worker("second"));
        other.started(id).await;
        if wakes == Wakes::During {
            wake.notify_one();
            let end = end_of(&mut first, attempt).await;
            assert_eq!(end, Finished::Lost, "{place:?} {wakes:?}");
        }
        drop(permit);
        assert_eq!(other.finished(1).await, [(id, Finished::Completed)]);
        helper = Some(other);
        if wakes == Wakes::During {
            Finished::Lost
        } else {
            wake.notify_one();
            end_of(&mut first, attempt).await
        }
    };
    first.stop().await;
    if let Some(helper) = helper {
        helper.stop().await;
    }
    end
}

async fn every_wake(places: &[Place]) {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    sql(&client, "create table ledger (n bigint)").await;
    let mut n = 0;
    for place in places {
        for wakes in [Wakes::Before, Wakes::During, Wakes::After] {
            n += 1;
            let end = sleep_and_wake(&engine, &client, n, *place, wakes).await;
            let expected = if *place == Place::AfterTheCompletion {
                Finished::Completed
            } else {
                Finished::Lost
            };
            assert_eq!(end, expected, "{place:?} {wakes:?}");
            assert_eq!(completed(&client).await, n, "{place:?} {wakes:?}");
            assert_eq!(
                count(&client, "select count(*) from ledger").await,
                n,
                "{place:?} {wakes:?}"
            );
            assert_eq!(count(&client, "select count(distinct n) from ledger").await, n);
            let left = "select (select count(*) from leasehold.job) + (select count(*) from leasehold_internal.dead_job)";
            assert_eq!(count(&client, left).await, 0, "{place:?} {wakes:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a1_worker_that_was_paused_past_its_lease_completes_nothing_and_leaves_no_effect() {
    use Place::*;
    every_wake(&[BeforeTheTransaction, AfterTheEffect, AfterTheCompletion, BeforeReturning]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a1_a2_late_finish_of_any_kind_leaves_the_new_attempt_unchanged() {
    let verbs = ["retry", "bury", "snooze", "cancel"];
    every_wake(&verbs.map(Place::BeforeReporting)).await;
}
