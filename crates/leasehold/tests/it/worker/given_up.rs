//! Handlers that the keeper gives up, when it cannot record that at once.

use leasehold::events::Event;
use leasehold::{Ctx, Enqueue, Finished, Job, State};
use leasehold_testing::TestDatabase;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::rig::{count, queue_settings, run, soon, sql, until};
use crate::support::{engine, wait_for};

#[derive(Job, Serialize, Deserialize)]
#[job(name = "brief", run_limit = "100ms", backoff = "1h..1h")]
struct Brief {}

/// Reports that it got the stop signal, and does not stop.
async fn stays(_: Brief, ctx: Ctx, State(told): State<UnboundedSender<()>>) {
    ctx.stopped().await;
    let _ = told.send(());
    std::future::pending::<()>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a26_locked_row_delays_no_renewal_and_the_job_is_retried_afterwards() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    queue_settings(&client, "lease = '1 second'").await;
    let holder = database.connect_directly().await;
    let (told, mut heard) = unbounded_channel();
    let worker = engine.worker_with(told).queue("default", 1).without_housekeeping();
    let mut worker = run(worker.handle(stays));
    let id = Brief {}.enqueue(&engine).await.expect("enqueued").id();
    worker.started(id).await;
    sql(&holder, "begin; select from leasehold.job for update").await;
    soon(heard.recv()).await.expect("told to stop");
    // Many ticks of the keeper: it gives up the handler, finds the row locked and keeps renewing.
    let mut renewals = 0;
    wait_for(&mut worker.events, |event| {
        assert!(!matches!(event, Event::LeaseLost { .. } | Event::Finished { .. }), "{event:?}");
        renewals += usize::from(matches!(event, Event::Renewed { .. }));
        (renewals >= 12).then_some(())
    })
    .await;
    sql(&holder, "commit").await;
    let outcome = wait_for(&mut worker.events, |event| match event {
        Event::Finished { job, outcome, .. } if *job == id => Some(*outcome),
        _ => None,
    });
    assert_eq!(outcome.await, Finished::Retried);
    worker.stop().await;
    let told = "select count(*) from leasehold.job where not held and lost_count = 0 \
                and last_error = 'the handler ran longer than 0.1 s'";
    assert_eq!(count(&client, told).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a26_giving_up_is_tried_again_after_an_error() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    // Fails three times as a server does that is out of memory.
    sql(
        &client,
        "create sequence public.tried; \
         create function trouble() returns trigger language plpgsql as \
         $$ begin if nextval('public.tried') <= 3 then \
            raise exception 'out of memory' using errcode = '53200'; end if; return new; end $$; \
         create trigger trouble before update on leasehold.job for each row \
         when (old.held and not new.held) execute function trouble()",
    )
    .await;
    let (told, _heard) = unbounded_channel();
    let mut worker = run(engine.worker_with(told).queue("default", 1).handle(stays));
    let id = Brief {}.enqueue(&engine).await.expect("enqueued").id();
    let ends = worker.finished(1).await;
    assert_eq!(ends, [(id, Finished::Retried)]);
    until("four tries", async || count(&client, "select last_value from public.tried").await == 4)
        .await;
    worker.stop().await;
}
