//! What handlers may return: every usual result type, with `?` on every usual error.

use std::error::Error;

use leasehold::worker::ManyItem;
use leasehold::{Draft, Enqueue, JobResult, Outcome};
use leasehold_testing::TestDatabase;
use serde::{Deserialize, Serialize};

use crate::fixture::{count, run};
use crate::support::engine;

macro_rules! job_types {
    ($($job:ident $name:literal),*) => {
        $(#[derive(Clone, Debug, leasehold::Job, Serialize, Deserialize)]
        #[job(name = $name)]
        struct $job;)*
    };
}
job_types!(Anyhow "anyhow", Eyre "eyre", Boxed "boxed", Own "own", Unit "unit", Decides "decides", Ours "ours", Text "text");

#[derive(Debug, thiserror::Error)]
#[error("the letter was not sent")]
struct NotSent(#[source] std::io::Error);

fn busy() -> std::io::Error {
    std::io::Error::other("line busy")
}

async fn by_anyhow(_: Anyhow) -> anyhow::Result<()> {
    Err(anyhow::Error::new(busy()).context("by anyhow"))
}

async fn by_eyre(_: Eyre) -> eyre::Result<()> {
    Err(eyre::Report::new(busy()).wrap_err("by eyre"))
}

async fn by_box(_: Boxed) -> Result<(), Box<dyn Error + Send + Sync>> {
    Err(busy())?
}

async fn by_own_error(_: Own) -> Result<(), NotSent> {
    Err(NotSent(busy()))
}

async fn by_unit(_: Unit) {}

async fn by_outcome(_: Decides) -> Outcome {
    Outcome::Cancel("not wanted".into())
}

/// `?` on each of them in one handler.
async fn by_ours(_: Ours) -> JobResult {
    by_own_error(Own).await.or(Ok::<(), NotSent>(()))?;
    by_text(Text).await.or(Ok::<Outcome, String>(Outcome::Complete))?;
    by_eyre(Eyre).await.or(Ok::<(), eyre::Report>(()))?;
    by_box(Boxed).await.or(Ok::<(), Box<dyn Error + Send + Sync>>(()))?;
    by_anyhow(Anyhow).await?;
    Ok(Outcome::Complete)
}

async fn by_text(_: Text) -> Result<Outcome, String> {
    Err("no letter".to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn handlers_return_every_usual_result_and_keep_the_causes_of_errors() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    let worker = engine
        .worker()
        .queue("default", 8)
        .handle(by_anyhow)
        .handle(by_eyre)
        .handle(by_box)
        .handle(by_own_error)
        .handle(by_unit)
        .handle(by_outcome)
        .handle(by_ours)
        .handle(by_text)
        .handle_untyped("untyped", |_| by_anyhow(Anyhow));
    let mut worker = run(worker);
    Anyhow.enqueue(&engine).await.expect("enqueued");
    Eyre.enqueue(&engine).await.expect("enqueued");
    Boxed.enqueue(&engine).await.expect("enqueued");
    Own.enqueue(&engine).await.expect("enqueued");
    Unit.enqueue(&engine).await.expect("enqueued");
    Decides.enqueue(&engine).await.expect("enqueued");
    Ours.enqueue(&engine).await.expect("enqueued");
    Text.enqueue(&engine).await.expect("enqueued");
    let untyped = Draft::untyped("untyped", &serde_json::json!({})).expect("a draft");
    untyped.enqueue(&engine).await.expect("enqueued");
    worker.finished(9).await;
    worker.stop().await;
    for (name, text) in [
        ("anyhow", "by anyhow: line busy"),
        ("eyre", "by eyre: line busy"),
        ("boxed", "line busy"),
        ("own", "the letter was not sent: line busy"),
        ("ours", "by anyhow: line busy"),
        ("text", "no letter"),
        ("untyped", "by anyhow: line busy"),
    ] {
        let failed = format!(
            "select count(*) from leasehold.job where name = '{name}' and last_error = '{text}'"
        );
        assert_eq!(count(&client, &failed).await, 1, "{name}");
    }
    let ended = "select count(*) from leasehold_internal.finished_job \
                 where (name, outcome) in (('unit', 'completed'), ('decides', 'cancelled'))";
    assert_eq!(count(&client, ended).await, 2);
}

#[derive(Clone, Debug, leasehold::Job, Serialize, Deserialize)]
#[job(name = "printed")]
struct Printed {
    n: i64,
}

#[derive(Clone, Debug, leasehold::Job, Serialize, Deserialize)]
#[job(name = "posted")]
struct Posted {
    n: i64,
}

/// An error of the whole batch through `?`, or one outcome per job.
async fn many_by_anyhow(letters: Vec<ManyItem<Printed>>) -> anyhow::Result<Vec<Outcome>> {
    by_own_error(Own).await.map_err(anyhow::Error::from)?;
    Ok(letters.iter().map(|_| Outcome::Complete).collect())
}

/// One usual result per job.
async fn many_one_by_one(letters: Vec<ManyItem<Posted>>) -> Vec<anyhow::Result<()>> {
    let post = |letter: ManyItem<Posted>| {
        anyhow::ensure!(letter.job.n != 2, "letter {} has no stamp", letter.job.n);
        Ok(())
    };
    letters.into_iter().map(post).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn handlers_of_several_jobs_return_every_usual_result() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    engine.enqueue_many((1..=2).map(|n| Printed { n })).await.expect("enqueued");
    engine.enqueue_many((1..=2).map(|n| Posted { n })).await.expect("enqueued");
    let worker = engine.worker().queue("default", 4);
    let mut worker = run(worker.handle_many(2, many_by_anyhow).handle_many(2, many_one_by_one));
    worker.finished(4).await;
    worker.stop().await;
    let failed = "select count(*) from leasehold.job where (name, last_error) in \
                  (('printed', 'the letter was not sent: line busy'), ('posted', 'letter 2 has no stamp'))";
    assert_eq!(count(&client, failed).await, 3);
    let ended = "select count(*) from leasehold_internal.finished_job where (name, outcome) = ('posted', 'completed')";
    assert_eq!(count(&client, ended).await, 1);
}

#[tokio::test]
async fn future_of_a_worker_takes_little_of_its_callers_stack() {
    let database = TestDatabase::new().await;
    let engine = engine(&database).await;
    let worker = || engine.worker().queue("default", 1).handle(by_unit);
    let sizes = [
        size_of_val(&worker().run_until(std::future::pending::<()>())),
        size_of_val(&worker().run_until_signal()),
        size_of_val(&worker().run_until_idle()),
    ];
    assert!(sizes.iter().all(|bytes| *bytes < 8192), "{sizes:?} bytes");
}

#[tokio::test(flavor = "multi_thread")]
async fn run_until_takes_a_stop_that_returns_a_result() {
    let database = TestDatabase::new().await;
    let engine = engine(&database).await;
    let worker = engine.worker().queue("default", 1).handle(by_unit);
    // As `tokio::signal::ctrl_c()` does.
    let stop = async { Ok::<(), std::io::Error>(()) };
    worker.run_until(stop).await.expect("a worker");
}

#[derive(Clone, Debug, leasehold::Job, Serialize, Deserialize)]
#[job(name = "marked")]
struct Marked {
    permanent: bool,
}

#[derive(Debug, thiserror::Error)]
enum OwnError {
    #[error(transparent)]
    Once(#[from] leasehold::once::OnceError),
    #[error(transparent)]
    Finish(#[from] leasehold::FinishError),
}

/// `?` on the calls of the engine in a handler with an error of its own.
async fn by_marks(
    _: Marked,
    ctx: leasehold::Ctx,
    tx: leasehold::JobTx,
) -> Result<Outcome, OwnError> {
    ctx.once_do("own", async || Ok(())).await?;
    Ok(tx.complete().await?)
}

/// The same with anyhow, and an effect that decides that no attempt helps.
async fn by_permanent_effect(job: Marked, ctx: leasehold::Ctx) -> anyhow::Result<()> {
    ctx.once_do("anyhow", async || {
        if job.permanent { Err(leasehold::JobError::permanent("no such card")) } else { Ok(()) }
    })
    .await?;
    Ok(())
}

/// A [`JobResult`] keeps what the effect decided.
async fn by_job_result(job: Marked, ctx: leasehold::Ctx) -> JobResult {
    ctx.once_do("ours", async || {
        if job.permanent { Err(leasehold::JobError::permanent("no such card")) } else { Ok(()) }
    })
    .await?;
    Ok(Outcome::Complete)
}

#[tokio::test(flavor = "multi_thread")]
async fn question_mark_works_on_once_and_on_complete_in_every_handler() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    let mut worker = run(engine.worker().queue("default", 2).handle(by_marks));
    Marked { permanent: false }.enqueue(&engine).await.expect("enqueued");
    worker.finished(1).await;
    worker.stop().await;
    let mut worker = run(engine.worker().queue("default", 2).handle(by_permanent_effect));
    Marked { permanent: true }.enqueue(&engine).await.expect("enqueued");
    worker.finished(1).await;
    worker.stop().await;
    let failed =
        "select count(*) from leasehold.job where name = 'marked' and last_error = 'no such card'";
    assert_eq!(count(&client, failed).await, 1);
    client
        .batch_execute("select leasehold.cancel(id, 'test') from leasehold.job")
        .await
        .expect("cancelled");
    let mut worker = run(engine.worker().queue("default", 2).handle(by_job_result));
    Marked { permanent: true }.enqueue(&engine).await.expect("enqueued");
    worker.finished(1).await;
    worker.stop().await;
    let dead = "select count(*) from leasehold_internal.dead_job where name = 'marked' and cause = 'rejected'";
    assert_eq!(count(&client, dead).await, 1);
}
