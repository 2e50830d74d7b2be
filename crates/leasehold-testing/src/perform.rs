//! Runs one handler alone, without a worker, and returns its outcome.
//!
//! # Invariants
//! - The arguments go through JSON as they would through the database.
//! - The attempt is real: there is a job under a lease, so `JobTx`, `complete_in`, `check_lease_in`
//!   and once-marks behave as in a worker. Afterwards the job is deleted; what the handler committed
//!   stays.
//! - A panic in the handler fails the test.

#![allow(clippy::panic, reason = "what a test asks for and does not get ends it")]

use std::future::{Future, IntoFuture};
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use leasehold::worker::Handler;
use leasehold::{Ctx, Job, JobError, JobResult, Outcome};
use tokio_postgres::Client;
use tokio_postgres::types::Json;
use uuid::Uuid;

use crate::TestEngine;

/// Inserts a job that is running under its own lease.
const START: &str = "
    with made as (
        insert into leasehold.job
            (name, kwargs, queue, tag, max_attempts, held, lease_generation, attempts)
        values ($1, $2, $3, 'perform', $4, true, leasehold_internal.next_generation(), $5)
        returning id, lease_generation, queue)
    insert into leasehold_internal.lease
        (lease_generation, lease_expires_at, lease, keep_history, queue, claimed_by, claim_id, job_ids)
    select lease_generation, statement_timestamp() + interval '1 hour', interval '1 hour', true, queue,
           'perform', $6, array[id]
      from made";

/// Returns true if the job was still held: the handler did not finish it.
const END: &str = "
    with mine as (delete from leasehold.job where id = $1 and lease_generation = $2 returning 1),
         over as (delete from leasehold_internal.lease where lease_generation = $2)
    select exists (select from mine)";

/// A handler about to run. Await it.
#[must_use = "nothing is performed until this is awaited"]
pub struct Perform<'t, H, J, Args, S> {
    engine: &'t TestEngine,
    handler: H,
    job: J,
    state: S,
    attempt: i32,
    // The handler's parameters; inferred when this is awaited.
    args: PhantomData<fn() -> Args>,
}

impl TestEngine {
    /// Runs one handler on one job: `t.perform(send_email, job).await.assert_done()`.
    pub fn perform<H, J: Job, Args>(&self, handler: H, job: J) -> Perform<'_, H, J, Args, ()> {
        Perform { engine: self, handler, job, state: (), attempt: 1, args: PhantomData }
    }
}

impl<'t, H, J, Args, S> Perform<'t, H, J, Args, S> {
    /// Sets the state that the handler's `State<T>` is taken from.
    pub fn with_state<T>(self, state: T) -> Perform<'t, H, J, Args, T> {
        let Self { engine, handler, job, attempt, .. } = self;
        Perform { engine, handler, job, state, attempt, args: PhantomData }
    }

    /// Sets the attempt number that the handler sees. Default: 1.
    pub fn on_attempt(mut self, attempt: i32) -> Self {
        self.attempt = attempt;
        self
    }
}

impl<'t, H, J, Args, S> IntoFuture for Perform<'t, H, J, Args, S>
where
    H: Handler<S, Args, Job = J>,
    J: Job,
    Args: 'static,
    S: Send + Sync + 'static,
{
    type Output = Performed;
    type IntoFuture = Pin<Box<dyn Future<Output = Performed> + Send + 't>>;

    fn into_future(self) -> Self::IntoFuture {
        let Self { engine, handler, job, state, attempt, .. } = self;
        Box::pin(async move {
            let text = match serde_json::to_value(&job) {
                Ok(text) => text,
                Err(error) => panic!("{} does not become JSON: {error}", J::NAME),
            };
            drop(job);
            let client = engine.database().connect_directly().await;
            let ctx = match start::<J>(engine, &client, &text, attempt).await {
                Ok(ctx) => ctx,
                Err(why) => panic!("{} cannot be performed: {why}", J::NAME),
            };
            let job: J = match serde_json::from_slice(ctx.kwargs()) {
                Ok(job) => job,
                Err(error) => panic!("{} does not come back from JSON: {error}: {text}", J::NAME),
            };
            let result = handler.call(ctx.clone(), job, Arc::new(state)).await;
            let outcome = match end(&client, &ctx).await {
                Ok(still_held) => settle(result, &ctx, still_held),
                Err(error) => panic!("{} was not cleared away: {error}", J::NAME),
            };
            Performed { outcome }
        })
    }
}

async fn start<J: Job>(
    engine: &TestEngine,
    client: &Client,
    kwargs: &serde_json::Value,
    attempt: i32,
) -> Result<Ctx, String> {
    let describe = |error: tokio_postgres::Error| leasehold::error::describe(&error);
    let claim_id = Uuid::now_v7();
    client
        .query("select leasehold_internal.queue_settings($1)", &[&J::QUEUE])
        .await
        .map_err(describe)?;
    let max_attempts = J::policy().max_attempts;
    client
        .execute(START, &[&J::NAME, &Json(kwargs), &J::QUEUE, &max_attempts, &attempt, &claim_id])
        .await
        .map_err(describe)?;
    let found =
        leasehold::testing::attempts_of_claim(engine.engine(), J::QUEUE, "perform", claim_id).await;
    let mut found = found.map_err(|error| error.to_string())?;
    found.pop().ok_or_else(|| "its attempt was not found".to_owned())
}

async fn end(client: &Client, ctx: &Ctx) -> Result<bool, String> {
    let fence: [&(dyn tokio_postgres::types::ToSql + Sync); 2] = [&ctx.id().0, &ctx.generation().0];
    let row = client.query_one(END, &fence).await;
    row.map(|row| row.get(0)).map_err(|error| leasehold::error::describe(&error))
}

/// As a worker does: checks a job that its handler completed in its own transaction.
fn settle(result: JobResult, ctx: &Ctx, still_held: bool) -> JobResult {
    match result {
        Ok(Outcome::Complete) if ctx.was_completed_in_transaction() && still_held => {
            Err(JobError::retry("complete_in was called, but its transaction did not commit"))
        }
        result => result,
    }
}

/// The outcome of a handler.
#[derive(Debug)]
#[must_use = "say what you expect: assert_done, assert_retry, assert_snoozed, assert_cancelled, assert_dead"]
#[non_exhaustive]
pub struct Performed {
    pub outcome: JobResult,
}

impl Performed {
    /// Expects that the job is complete.
    #[track_caller]
    pub fn assert_done(self) {
        match self.outcome {
            Ok(Outcome::Complete) => {}
            other => panic!("the job is not done: {other:?}"),
        }
    }

    /// Expects a failed attempt that will be retried; returns the reason.
    #[track_caller]
    pub fn assert_retry(self) -> String {
        match self.outcome {
            Ok(Outcome::Retry { why, .. }) => why,
            Err(error) if !error.is_permanent() => error.to_string(),
            other => panic!("the job is not tried again: {other:?}"),
        }
    }

    /// Expects a snoozed job; returns for how long.
    #[track_caller]
    pub fn assert_snoozed(self) -> Duration {
        match self.outcome {
            Ok(Outcome::Snooze(wait)) => wait,
            other => panic!("the job is not snoozed: {other:?}"),
        }
    }

    /// Expects that the handler cancelled the job; returns the reason.
    #[track_caller]
    pub fn assert_cancelled(self) -> String {
        match self.outcome {
            Ok(Outcome::Cancel(why)) => why,
            other => panic!("the job is not cancelled: {other:?}"),
        }
    }

    /// Expects a permanent failure; returns the reason.
    #[track_caller]
    pub fn assert_dead(self) -> String {
        match self.outcome {
            Err(error) if error.is_permanent() => error.to_string(),
            other => panic!("the job is not dead: {other:?}"),
        }
    }
}
