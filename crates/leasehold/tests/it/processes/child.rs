//! A worker process: a test of this program that returns at once, unless it was started as a worker.

use std::io::Read;
use std::sync::LazyLock;
use std::time::Duration;

use leasehold::events::Event;
use leasehold::worker::WorkerBuilder;
use leasehold::{Ctx, JobError, JobResult, Leasehold, Outcome};
use tokio_postgres::types::Type;
use tokio_util::task::TaskTracker;

use crate::support::Note;

/// Tasks that record why a handler got the stop signal. They are separate tasks, because a worker
/// that ends does not wait long for its handlers.
static SAYING: LazyLock<TaskTracker> = LazyLock::new(TaskTracker::new);

#[expect(clippy::exit, reason = "a worker process ends here, with the code that the test asks for")]
#[test]
fn process_worker_main() {
    let Ok(kind) = std::env::var("LEASEHOLD_TEST_PROCESS") else { return };
    let url = std::env::var("LEASEHOLD_TEST_PROCESS_URL").expect("a database");
    // The parent process holds stdin open: when it ends, this process ends, too.
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(9);
    });
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let code = runtime.block_on(work(&kind, &url));
    std::process::exit(code);
}

async fn work(kind: &str, url: &str) -> i32 {
    let engine = Leasehold::connect(url).await.expect("an engine");
    let slots = if kind == "hold" { 100 } else { 10 };
    // Longer than the test waits for a process: only a second signal ends this one before its handler does.
    let grace = Duration::from_secs(if kind == "patient" { 3600 } else { 20 });
    let worker = engine.worker().name("child").queue("default", slots).grace(grace);
    let worker = worker.poll_every(Duration::from_millis(50));
    let worker: WorkerBuilder<()> = match kind {
        "hold" => worker.handle(hold),
        "quick" => worker.handle(async |_: Note| {}),
        "poison" => worker.handle(poison),
        "crash-after-effect" => worker.handle(crash_after_effect),
        "wait-for-gate" | "patient" => worker.handle(wait_for_gate),
        other => panic!("no such kind of process: {other}"),
    };
    let mut events = worker.events().subscribe();
    let noting = engine.clone();
    tokio::spawn(async move {
        while let Ok(event) = events.recv().await {
            match event {
                Event::Finished { job, generation, finished, .. } => {
                    say(&noting, &format!("{finished:?}"), job.0, generation.0).await;
                }
                Event::Draining => say(&noting, "Draining", 0, 0).await,
                _ => {}
            }
        }
    });
    let ended = worker.run_until_signal().await;
    let code = match ended {
        Ok(()) => 0,
        Err(error) => {
            say(&engine, &error.to_string(), 0, 0).await;
            3
        }
    };
    SAYING.close();
    SAYING.wait().await;
    code
}

async fn say(engine: &Leasehold, what: &str, job: i64, generation: i64) {
    let client = engine.pool().get().await.expect("a connection");
    client
        .query_typed(
            "insert into noted (what, job, generation) values ($1, $2, $3)",
            &[(&what, Type::TEXT), (&job, Type::INT8), (&generation, Type::INT8)],
        )
        .await
        .expect("a note");
}

/// Holds its job until the stop signal, and records the reason.
async fn hold(_: Note, ctx: Ctx) -> JobResult {
    let reason = ctx.stopped().await;
    let (engine, job, generation) = (ctx.engine().clone(), ctx.id().0, ctx.generation().0);
    SAYING.spawn(async move { say(&engine, &format!("{reason:?}"), job, generation).await });
    Err(JobError::retry("asked to stop"))
}

/// Jobs below zero kill their process.
async fn poison(job: Note, ctx: Ctx) {
    if job.n < 0 {
        say(ctx.engine(), "dying", ctx.id().0, ctx.generation().0).await;
        std::process::abort();
    }
    tokio::time::sleep(Duration::from_millis(20)).await;
}

async fn crash_after_effect(job: Note, ctx: Ctx) -> JobResult {
    let mut client = ctx.engine().pool().get().await?;
    let transaction = client.transaction().await?;
    if ctx.mark_in(&transaction, "effect").await? {
        let sql = "insert into ledger values ($1)";
        transaction.query_typed(sql, &[(&job.n, Type::INT8)]).await?;
    }
    transaction.commit().await?;
    if ctx.attempt() == 1 {
        std::process::abort();
    }
    Ok(Outcome::Complete)
}

/// Waits until the test opens the gate, then ends its job in the way that the job's number selects.
async fn wait_for_gate(job: Note, ctx: Ctx) -> JobResult {
    if ctx.attempt() > 1 {
        return Ok(Outcome::Complete);
    }
    let mut client = ctx.engine().pool().get().await?;
    say(ctx.engine(), "waiting", ctx.id().0, ctx.generation().0).await;
    while client.query_typed("select from gate", &[]).await?.is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    match job.n {
        0 => Ok(Outcome::Complete),
        1 => Err(JobError::retry("late")),
        2 => Err(JobError::permanent("late")),
        3 => Ok(Outcome::Snooze(Duration::from_secs(600))),
        4 => Ok(Outcome::Cancel("late".into())),
        _ => {
            let transaction = client.transaction().await?;
            transaction
                .query_typed("insert into ledger values ($1)", &[(&job.n, Type::INT8)])
                .await?;
            ctx.complete_in(&transaction).await?;
            transaction.commit().await?;
            Ok(Outcome::Complete)
        }
    }
}
