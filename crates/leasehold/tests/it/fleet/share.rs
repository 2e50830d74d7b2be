//! How databases share the slots of a worker.

use leasehold::worker::JobTx;
use leasehold::{Ctx, Enqueue, Job, JobResult, State};
use serde::{Deserialize, Serialize};

use super::{Gates, Two, gated, run};
use crate::fixture::{count, sql, until};
use crate::support::Note;

#[tokio::test(flavor = "multi_thread")]
async fn b22_database_with_few_jobs_gets_its_share_beside_thousands_of_another() {
    let (two, gates) = (Two::new().await, Gates::closed());
    two.a.enqueue(3000).await;
    let worker = run(two.fleet.worker_with(gates.clone()).queue("default", 10).handle(gated));
    until("every slot runs a job of a", async || gates.a().running() == 10).await;
    two.b.enqueue(50).await;
    // One handler of a ends at a time. Until b wants a slot, the next job of a starts.
    let next = async |started: usize| {
        gates.a().pass(1);
        let all = async || gates.a().started() + gates.b().started() > started;
        until("the next job starts", all).await;
        started + 1
    };
    let mut started = 10;
    while gates.b().started() == 0 {
        started = next(started).await;
    }
    let of_a = gates.a().started();
    while gates.b().started() < 5 {
        started = next(started).await;
    }
    // None, unless a claim of b takes half a second.
    let meanwhile = gates.a().started() - of_a;
    assert!(meanwhile <= 3, "{meanwhile} jobs of a started before b had its share");
    for _ in 0..30 {
        started = next(started).await;
    }
    assert_eq!((gates.a().running(), gates.b().running()), (5, 5));
    assert_eq!(gates.b().started(), 5, "b has its share, and no more while a has work");
    // What b does not need any more is a's again.
    gates.b().pass(50);
    two.b.all_completed(50).await;
    until("every slot runs a job of a", async || gates.a().running() == 10).await;
    assert_eq!(gates.most(), 10);
    gates.a().pass(3000);
    two.a.all_completed(3000).await;
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_slot_serves_both_databases_in_turns() {
    let (two, gates) = (Two::new().await, Gates::closed());
    two.a.enqueue(40).await;
    two.b.enqueue(40).await;
    gates.a().pass(40);
    gates.b().pass(40);
    let worker = run(two.fleet.worker_with(gates.clone()).queue("default", 1).handle(gated));
    two.a.all_completed(40).await;
    two.b.all_completed(40).await;
    assert_eq!(gates.most(), 1);
    worker.stop().await;
}

#[derive(Job, Serialize, Deserialize)]
#[job(name = "follow")]
struct Follow {
    n: i64,
}

async fn into_ledger(job: Note, ctx: Ctx, tx: JobTx) -> JobResult {
    tx.execute("insert into ledger values ($1, $2)", &[&job.n, &ctx.database()]).await?;
    Follow { n: job.n }.enqueue(ctx.engine()).await?;
    Ok(tx.complete().await?)
}

async fn follow(job: Follow, ctx: Ctx, State(names): State<&'static str>) -> JobResult {
    let mut client = ctx.engine().pool().get().await?;
    let tx = client.transaction().await?;
    tx.execute("insert into ledger values ($1, $2)", &[&-job.n, &names]).await?;
    ctx.complete_in(&tx).await?;
    tx.commit().await?;
    Ok(leasehold::Outcome::Complete)
}

#[tokio::test(flavor = "multi_thread")]
async fn transactions_and_enqueues_of_handlers_go_to_the_database_of_their_job() {
    let two = Two::new().await;
    for (side, jobs) in [(&two.a, 3), (&two.b, 5)] {
        sql(&side.client, "create table ledger (n bigint, name text)").await;
        for n in 1..=jobs {
            Note { n }.enqueue(&side.engine).await.expect("enqueued");
        }
    }
    let state = |engine: &leasehold::Leasehold| if engine.name() == Some("a") { "a" } else { "b" };
    let worker = two.fleet.worker_with_each(state).queue("default", 4);
    let worker = run(worker.handle(into_ledger).handle(follow));
    for (side, jobs, name) in [(&two.a, 3, "a"), (&two.b, 5, "b")] {
        side.all_completed(2 * jobs).await;
        let rows = format!("select count(*) from ledger where name = '{name}'");
        assert_eq!(count(&side.client, &rows).await, 2 * jobs);
        assert_eq!(count(&side.client, "select count(*) from ledger").await, 2 * jobs);
    }
    worker.stop().await;
}
