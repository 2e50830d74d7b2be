//! Durable jobs in the Postgres you already have. A job is a row that commits with your data, a worker holds
//! it by a fenced lease, and the jobs of a dead worker come back by themselves.
//!
//! Requires PostgreSQL 15 or newer and Rust 1.94.
//!
//! # Quick start
//!
//! ```no_run
//! use leasehold::{Enqueue, Job, Leasehold};
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Job, Serialize, Deserialize)]
//! #[job(name = "email.send", max_attempts = 8)]
//! struct SendEmail {
//!     to: String,
//! }
//!
//! async fn send_email(job: SendEmail) -> Result<(), std::io::Error> {
//!     println!("sent to {}", job.to);
//!     Ok(())
//! }
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let leasehold = Leasehold::connect_and_migrate("postgres://me@localhost/shop").await?;
//!     SendEmail { to: "ada@example.com".into() }.enqueue(&leasehold).await?;
//!     leasehold.worker().handle(send_email).run_until_signal().await?;
//!     Ok(())
//! }
//! ```
//!
//! # How it works
//!
//! - **Enqueue** stores a row in `leasehold.job`, in your transaction or in its own. Roll back, and there was no
//!   job.
//! - A **worker** claims ready jobs under a *lease*: 30 s by default, renewed every 10 s while the handler runs. A
//!   claim has a *generation*, which only grows; every renewal and every finish must match it. That is the
//!   **fence**: a worker that slept past its lease changes nothing.
//! - A **handler** is an async function. It runs *at least once*: if the worker dies, the lease runs out and
//!   another worker runs the job again. What the handler writes in the transaction that completes the job is
//!   written once ([`JobTx`]); [`once`] and [`Ctx::outside_key`] guard effects elsewhere.
//! - An error is retried with backoff. After the last attempt the job is *dead*, kept with its error until an
//!   operator redrives it.
//! - **Housekeeping** runs in every worker: it reclaims leases, fires schedules, expires and prunes.
//!
//! # Defaults
//!
//! | what | default | set by |
//! |---|---|---|
//! | lease of a claim | 30 s | queue |
//! | attempts of a job | 25 | queue, [`Policy::max_attempts`], [`Draft::max_attempts`] |
//! | wait after a failed attempt | 1 s, doubling up to 1 h, ±20 % | queue, [`Policy::backoff`], [`Outcome::Retry`] |
//! | workers that may die under a job | 3 in a row | queue |
//! | longest run of a handler | 1 h | queue, [`Policy::run_limit`] |
//! | a job that does not start expires after | 30 days from its due time | [`Draft::expire_after`] |
//! | an idempotency key stays taken for | 24 h, at least until the job has ended | [`Draft::key_ttl`] |
//! | size of a job's kwargs | 64 KiB at most | fixed |
//! | finished jobs stay in history for | 7 days | [`housekeeping::HousekeepingConfig::keep_history`] |
//! | dead jobs are kept | until an operator redrives or removes them | [`housekeeping::HousekeepingConfig::keep_dead`] |
//! | slots of a queue | 10 | [`worker::WorkerBuilder::queue`] |
//! | grace of a stop | 25 s | [`worker::WorkerBuilder::grace`] |
//! | poll without a notification | 500 ms | [`worker::WorkerBuilder::poll_every`] |
//! | connections of the handle | 16 | [`LeaseholdBuilder::max_connections`] |
//!
//! The settings of a queue are columns of the view `leasehold.queues`; `leasehold queues set` changes them.
//!
//! # Enqueue in your transaction
//!
//! [`Enqueue::enqueue`] takes a client or a transaction of tokio-postgres, deadpool-postgres, sqlx or diesel-async,
//! or the handle itself. [`Enqueue::draft`] returns a [`Draft`] with the settings of one call.
//!
//! ```no_run
//! # use leasehold::{Enqueue, Job, Leasehold};
//! # #[derive(Job, serde::Serialize, serde::Deserialize)]
//! # #[job(name = "invoice.send")]
//! # struct SendInvoice { order: i64 }
//! use std::time::Duration;
//!
//! # async fn enqueue(leasehold: &Leasehold, order: i64) -> Result<(), Box<dyn std::error::Error>> {
//! let mut client = leasehold.pool().get().await?;
//! let tx = client.transaction().await?;
//! tx.execute("insert into orders (id) values ($1)", &[&order]).await?;
//! let sent = SendInvoice { order }
//!     .draft()?
//!     .key(format!("invoice:{order}")) // one job, however often this runs
//!     .run_after(Duration::from_secs(60)) // or .run_at(timestamp)
//!     .enqueue(&tx)
//!     .await?;
//! tx.commit().await?;
//! if !sent.is_new() {
//!     println!("job {} was there before", sent.id());
//! }
//! # Ok(())
//! # }
//! ```
//!
//! With sqlx 0.9 (feature `sqlx-0_9`; `sqlx-0_8` is alike, with `complete_in_sqlx_0_8`):
//!
#![cfg_attr(feature = "sqlx-0_9", doc = "```no_run")]
#![cfg_attr(not(feature = "sqlx-0_9"), doc = "```ignore")]
//! # use leasehold::{Ctx, Enqueue, Job, JobResult, Outcome, State, sqlx};
//! # #[derive(Job, serde::Serialize, serde::Deserialize)]
//! # #[job(name = "invoice.send")]
//! # struct SendInvoice { order: i64 }
//! async fn order(pool: &sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
//!     let mut tx = pool.begin().await?;
//!     SendInvoice { order: 7 }.enqueue(&mut *tx).await?;
//!     tx.commit().await?;
//!     Ok(())
//! }
//!
//! async fn send(job: SendInvoice, ctx: Ctx, State(pool): State<sqlx::PgPool>) -> JobResult {
//!     let mut tx = pool.begin().await?;
//!     sqlx::query("update orders set sent = true where id = $1").bind(job.order).execute(&mut *tx).await?;
//!     ctx.complete_in_sqlx(&mut tx).await?;
//!     tx.commit().await?;
//!     Ok(Outcome::Complete)
//! }
//! ```
//!
//! With diesel-async 0.9 (feature `diesel-async`):
//!
#![cfg_attr(feature = "diesel-async", doc = "```no_run")]
#![cfg_attr(not(feature = "diesel-async"), doc = "```ignore")]
//! # use leasehold::{Enqueue, EnqueueError, Job, diesel, diesel_async};
//! # #[derive(Job, serde::Serialize, serde::Deserialize)]
//! # #[job(name = "invoice.send")]
//! # struct SendInvoice { order: i64 }
//! # #[derive(Debug)]
//! # enum Failed { Diesel(diesel::result::Error), Enqueue(EnqueueError) }
//! # impl From<diesel::result::Error> for Failed { fn from(error: diesel::result::Error) -> Self { Self::Diesel(error) } }
//! # impl From<EnqueueError> for Failed { fn from(error: EnqueueError) -> Self { Self::Enqueue(error) } }
//! use diesel_async::{AsyncConnection, AsyncPgConnection};
//!
//! async fn order(conn: &mut AsyncPgConnection) -> Result<(), Failed> {
//!     conn.transaction(async |conn| {
//!         SendInvoice { order: 7 }.enqueue(&mut *conn).await?;
//!         Ok::<_, Failed>(())
//!     })
//!     .await
//! }
//! ```
//!
//! # Handlers
//!
//! The first argument is the job; up to three more are [`State`], [`Ctx`] and [`JobTx`]. A handler returns `()`,
//! [`Outcome`], or a `Result` of one of them with any usual error: [`JobError`], `anyhow::Error`, `eyre::Report`,
//! a boxed error, your own.
//!
//! ```no_run
//! # use leasehold::{Ctx, Job, JobError, JobResult, Leasehold, Outcome, State};
//! # use std::time::Duration;
//! # #[derive(Clone)]
//! # struct Mailer;
//! # impl Mailer {
//! #     async fn send(&self, _: &str) -> Result<u16, std::io::Error> { Ok(250) }
//! # }
//! #[derive(Job, serde::Serialize, serde::Deserialize)]
//! #[job(name = "email.send", queue = "mail", max_attempts = 8, run_limit = "30s", backoff = "2s..1h")]
//! struct SendEmail {
//!     to: String,
//! }
//!
//! async fn send_email(job: SendEmail, State(mailer): State<Mailer>, ctx: Ctx) -> JobResult {
//!     match mailer.send(&job.to).await? { // an error: the next attempt follows after the backoff
//!         250 => Ok(Outcome::Complete),
//!         421 => Ok(Outcome::Snooze(Duration::from_secs(300))), // not counted as an attempt
//!         454 => Ok(Outcome::Defer { // not counted either, and behind all other jobs of the queue
//!             after: Duration::from_secs(60),
//!             why: "the mail server is down".to_owned(),
//!         }),
//!         450 => Ok(Outcome::Retry {
//!             after: Duration::from_secs(60),
//!             why: format!("busy at attempt {} of {}", ctx.attempt(), ctx.max_attempts()),
//!         }),
//!         code => Err(JobError::permanent(format!("refused with {code}"))), // dead at once
//!     }
//! }
//!
//! # async fn run(leasehold: Leasehold, mailer: Mailer) -> Result<(), leasehold::WorkerError> {
//! leasehold
//!     .worker_with(mailer) // the state: any Clone type
//!     .queue("mail", 20) // 20 jobs at a time
//!     .handle(send_email)
//!     .run_until(tokio::signal::ctrl_c())
//!     .await
//! # }
//! ```
//!
//! A handler that writes to the same database completes its job in the same transaction, by [`JobTx`] or by
//! [`Ctx::complete_in`] in a transaction of its own.
//!
//! A [layer](worker::WorkerBuilder::layer) runs around every attempt of a worker: spans, metrics, tenants, an error
//! handler.
//!
//! ```no_run
//! # use leasehold::{Ctx, JobResult, Leasehold, Next};
//! async fn report_errors(ctx: Ctx, next: Next) -> JobResult {
//!     let result = next.run(ctx.clone()).await;
//!     if let Err(error) = &result {
//!         eprintln!("{} {}: attempt {} failed: {error}", ctx.name(), ctx.id(), ctx.attempt());
//!     }
//!     result
//! }
//!
//! # async fn run(leasehold: Leasehold) -> Result<(), leasehold::WorkerError> {
//! leasehold
//!     .worker()
//!     .layer(report_errors)
//! #   .handle_untyped("report.build", |_| async {})
//!     .run_until_signal()
//!     .await
//! # }
//! ```
//!
//! # Schedules
//!
//! ```no_run
//! # use leasehold::{Job, Leasehold, Schedule};
//! # #[derive(Job, serde::Serialize, serde::Deserialize)]
//! # #[job(name = "report.build")]
//! # struct BuildReport;
//! # async fn build_report(_: BuildReport) {}
//! # async fn run(leasehold: Leasehold) -> Result<(), Box<dyn std::error::Error>> {
//! let nightly = Schedule::new("report.nightly", "30 2 * * *", "Europe/Berlin", &BuildReport)?;
//! leasehold.worker().handle(build_report).schedule(nightly).run_until_signal().await?;
//! # Ok(())
//! # }
//! ```
//!
//! However many workers declare it, each slot fires once.
//!
//! # Tests
//!
//! `leasehold-testing` has a database per test (`TestDatabase`), an engine whose clock the test moves
//! (`TestEngine`), `perform` for one handler, `drain` for a queue, and `assert_enqueued`. Without it,
//! [`worker::WorkerBuilder::run_until_idle`] runs a worker until no job is due.
//!
//! # Features
//!
//! | feature | what |
//! |---|---|
//! | `sqlx-0_9`, `sqlx-0_8` | enqueue and complete in a transaction of that release of sqlx; both may be on |
//! | `diesel-async` | the same for diesel-async 0.9 |
//! | `redis` | the gate of a sweep in Redis; a hash in Redis as the store of a mirror |
//! | `testing` | what `leasehold-testing` needs; it turns the feature on itself |
//! | `chaos` | fault points for the tests of Leasehold; never in a release |
//!
//! No feature is on by default.
//!
//! The crates whose types and traits occur in signatures here are re-exported: `leasehold::tokio_postgres` and its kind.
//!
//! ```
//! use leasehold::{jiff::Timestamp, serde_json::json, tokio_postgres::Config, uuid::Uuid, Draft};
//!
//! let mut config = Config::new(); // for `Leasehold::builder().connect_with(config)`
//! config.host("localhost").dbname("shop");
//! let due = Timestamp::constant(1_900_000_000, 0);
//! let draft = Draft::untyped("report.build", &json!({ "id": Uuid::nil() }))?.run_at(due);
//! # let _: (Option<leasehold::deadpool_postgres::Pool>, Draft) = (None, draft);
//! # let _: Option<leasehold::futures_util::future::BoxFuture<'_, leasehold::bytes::Bytes>> = None;
//! # fn _of_a_job<T: leasehold::serde::Serialize>() {}
//! # Ok::<(), leasehold::EnqueueError>(())
//! ```
//!
//! # Where to read on
//!
//! 1. [`job`]: what a job is. [`queue`]: how it is stored. [`worker`]: the claim → run → finish loop.
//! 2. [`once`]: effects that must not repeat. [`schedule`]: jobs that the clock enqueues.
//! 3. [`sweep`]: rows of your own table, claimed through a status column. [`mirror`]: a second store that is kept
//!    equal to your own table. Both are services ([`worker::WorkerService`]), and stand on the public API
//!    alone: [`link`] is a session that reconnects, [`backoff`] and [`breaker`] space calls out, [`mod@service`]
//!    runs turns in the background, [`table`] checks a declaration against a table.
//! 4. [`housekeeping`], [`measure`], [`alarm`]: what runs beside the jobs, and what an operator sees of it.
//! 5. [`admin`]: list, cancel, redrive, promote, delete and update jobs; queues, schedules, workers.
//! 6. [`migrate`], [`database`], [`error`], [`events`]: the schema, the sessions, what went wrong and what happened.
//! 7. In the repository: `docs/guarantees.md` for the promises, `ARCHITECTURE.md` for the reasons.

#![forbid(unsafe_code)]
#![deny(missing_docs, unreachable_pub)]

pub mod admin;
pub mod alarm;
pub mod backoff;
pub mod breaker;
mod builder;
#[cfg(feature = "chaos")]
#[doc(hidden)]
pub mod chaos;
pub mod database;
#[cfg(any(feature = "diesel-async", feature = "sqlx-0_8", feature = "sqlx-0_9"))]
mod drivers;
#[doc(hidden)]
pub mod duration;
mod engine;
pub mod error;
mod error_text;
pub mod events;
mod fleet;
pub mod housekeeping;
pub mod job;
pub mod link;
pub mod measure;
pub mod migrate;
pub mod mirror;
pub mod once;
pub mod queue;
#[cfg(feature = "redis")]
pub mod redis;
pub mod schedule;
pub mod service;
pub mod sweep;
pub mod table;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod testing;
pub mod worker;

pub use backoff::{Backoff, Jitter, Waits};
pub use builder::{LeaseholdBuilder, SchemaCheck, Tls};
pub use database::Pooler;
pub use engine::Leasehold;
pub use error::{AdminError, ConnectError, EnqueueError, FinishError, SchemaError, WorkerError};
pub use fleet::Fleet;
pub use job::{Cause, Generation, Job, JobId, JobState, ParseJobIdError, Policy};
pub use leasehold_macros::Job;
pub use queue::enqueue::{Draft, Enqueue, EnqueueOn, Enqueued};
pub use queue::finish::Finished;
pub use schedule::Schedule;
pub use worker::{
    Ctx, FinishedCounts, FinishedJob, JobError, JobResult, JobTx, Next, Outcome, State,
};

// Crates whose types occur in the signatures here: a caller can name them without choosing a version.
pub use bytes;
pub use deadpool_postgres;
#[cfg(feature = "diesel-async")]
pub use diesel;
#[cfg(feature = "diesel-async")]
pub use diesel_async;
pub use futures_util;
pub use jiff;
pub use serde;
pub use serde_json;
#[cfg(feature = "sqlx-0_9")]
pub use sqlx;
#[cfg(feature = "sqlx-0_8")]
pub use sqlx08;
pub use tokio;
pub use tokio_postgres;
pub use uuid;
