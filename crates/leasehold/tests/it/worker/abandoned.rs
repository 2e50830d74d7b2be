//! Handlers that the keeper abandons, when it cannot record that at once.

use leasehold::events::Event;
use leasehold::{Ctx, Enqueue, Finished, Job, State};
use leasehold_testing::TestDatabase;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::fixture::{count, queue_settings, run, soon, sql, until};
use crate::support::{engine, wait_for};

#[derive(Job, Serialize, Deserialize)]
#[job(name = "brief", run_limit = "100ms", backoff = "1h..1h")]
struct Brief {}

/// Reports that it got the stop signal, and does not stop.
async fn stays(_: Brief, ctx: Ctx, State(asked): State<UnboundedSender<()>>) {
    ctx.stopped().await;
    let _ = asked.send(());
    std::future::pending::<()>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a26_locked_row_delays_no_renewal_and_the_job_is_retried_afterwards() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect().await);
    queue_settings(&client, "lease = '1 second'").await;
    let holder = database.connect_directly().await;
    let (asked, mut stops) = unbounded_channel();
    let worker = engine.worker_with(asked).queue("default", 1).without_housekeeping();
    let mut worker = run(worker.handle(stays));
    let id = Brief {}.enqueue(&engine).await.expect("enqueued").id();
    worker.started(id).await;
    sql(&holder, "begin; select from leasehold.job for update").await;
    soon(stops.recv()).await.expect("a stop signal");
    // Many ticks of the keeper: it abandons the handler, finds the row locked and keeps renewing.
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
    let retried = "select count(*) from leasehold.job where not held and lost_count = 0 \
                and last_error = 'the handler ran longer than 0.1 s'";
    assert_eq!(count(&client, retried).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a26_failure_at_the_run_limit_is_recorded_again_after_an_error() {
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
    let (asked, _stops) = unbounded_channel();
    let mut worker = run(engine.worker_with(asked).queue("default", 1).handle(stays));
    let id = Brief {}.enqueue(&engine).await.expect("enqueued").id();
    let ends = worker.finished(1).await;
    assert_eq!(ends, [(id, Finished::Retried)]);
    until("four tries", async || count(&client, "select last_value from public.tried").await == 4)
        .await;
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a26_failure_at_the_run_limit_is_counted_and_passed_to_hooks() {
    let database = TestDatabase::new().await;
    let engine = engine(&database).await;
    let (asked, _stops) = unbounded_channel();
    let (finished, mut ends) = unbounded_channel();
    let worker =
        engine.worker_with(asked).queue("default", 1).handle(stays).on_finished(move |job| {
            let finished = finished.clone();
            async move { finished.send(job).map_err(|error| error.to_string()) }
        });
    let worker = run(worker);
    Brief {}.enqueue(&engine).await.expect("enqueued");
    let end = soon(ends.recv()).await.expect("a call of the hook");
    assert_eq!(end.outcome(), Finished::Retried);
    assert_eq!(end.error(), Some("the handler ran longer than 0.1 s"));
    let free = "leasehold_worker_slots_busy{queue=\"default\"} 0\n";
    until("its slot is free", async || engine.metrics().await.contains(free)).await;
    worker.stop().await;
    let metrics = engine.metrics().await;
    let counted =
        "leasehold_jobs_finished_total{queue=\"default\",name=\"brief\",outcome=\"retried\"} 1\n";
    assert!(metrics.contains(counted), "{metrics}");
}
