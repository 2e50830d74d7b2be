//! The database cannot be reached, with or without an error.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold::events::Event;
use leasehold::worker::StopReason;
use leasehold::{Ctx, Enqueue, Finished, Generation, JobResult, Outcome, State};
use leasehold_testing::proxy::Rule;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio_postgres::types::Type;

use super::Setup;
use crate::fixture::{back_date_leases, completed, queue_settings, run, soon};
use crate::support::{Note, wait_for};

async fn gated(_: Note, State(gate): State<Arc<Semaphore>>) {
    let _ = gate.acquire().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a15_result_is_kept_while_the_database_is_away_longer_than_the_lease() {
    let setup = Setup::new().await;
    queue_settings(&setup.client, "lease = '1 second'").await;
    let gate = Arc::new(Semaphore::new(0));
    let worker =
        setup.engine.worker_with(Arc::clone(&gate)).queue("default", 1).without_housekeeping();
    let mut worker = run(worker.handle(gated));
    let id = Note { n: 1 }.enqueue(&setup.engine).await.expect("enqueued").id();
    let generation = worker.started(id).await;
    let away = setup.proxy.add(Rule::refuse_connections());
    setup.proxy.reset_all();
    gate.add_permits(1);
    // By the worker's own clock the lease is over.
    worker.lost_a_lease().await;
    back_date_leases(&setup.client).await;
    let tries = setup.proxy.fired(away) + 20;
    setup.proxy.wait_fired_times(away, tries).await.expect("many tries");
    setup.proxy.heal();
    // No other worker claimed the job meanwhile, so the result still counts.
    assert_eq!(worker.end_of(generation).await, Finished::Completed);
    worker.stop().await;
    let first_attempts =
        "select count(*) from leasehold_internal.history, unnest(attempts) a where a = 1";
    assert_eq!(setup.count(first_attempts).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a15_result_that_comes_too_late_is_dropped() {
    let setup = Setup::new().await;
    let gate = Arc::new(Semaphore::new(0));
    let worker =
        setup.engine.worker_with(Arc::clone(&gate)).queue("default", 1).without_housekeeping();
    let mut cut_off = run(worker.handle(gated));
    let id = Note { n: 1 }.enqueue(&setup.engine).await.expect("enqueued").id();
    let generation = cut_off.started(id).await;
    let away = setup.proxy.add(Rule::refuse_connections());
    setup.proxy.reset_all();
    gate.add_permits(1);
    setup.proxy.wait_fired_times(away, 5).await.expect("many tries");
    back_date_leases(&setup.client).await;
    let other = setup.undisturbed().await;
    let mut other = run(other.worker().queue("default", 1).handle(async |_: Note| {}));
    assert_eq!(other.finished(1).await, [(id, Finished::Completed)]);
    setup.proxy.heal();
    assert_eq!(cut_off.end_of(generation).await, Finished::Lost);
    cut_off.stop().await;
    other.stop().await;
    assert_eq!(completed(&setup.client).await, 1);
}

/// The generation whose handler got the stop signal, why and when.
type Stop = (Generation, StopReason, SystemTime);

#[tokio::test(flavor = "multi_thread")]
async fn b8_worker_whose_renewal_hangs_stops_its_handlers_before_the_lease_ends() {
    let setup = Setup::new().await;
    queue_settings(&setup.client, "lease = '6 seconds'").await;
    let (stopped, mut stops) = unbounded_channel::<Stop>();
    let handler = async |_: Note, ctx: Ctx, State(stopped): State<UnboundedSender<Stop>>| {
        let reason = ctx.stopped().await;
        let _ = stopped.send((ctx.generation(), reason, SystemTime::now()));
    };
    let worker = setup.engine.worker_with(stopped).queue("default", 1).without_housekeeping();
    let worker = run(worker.handle(handler));
    let hanging = setup
        .proxy
        .add(Rule::delay_statement("leasehold.renew(", Duration::from_secs(60)).times(u64::MAX));
    // A keeper that waits for its renewal is late every time. A machine that stalls for a second
    // makes one of them late, so a single stop in time is enough.
    for n in 0.. {
        assert!(n < 6, "each stop came after the end of its lease");
        let hung = setup.proxy.fired(hanging);
        Note { n }.enqueue(&setup.engine).await.expect("enqueued");
        let (generation, reason, at) = soon(stops.recv()).await.expect("a stop");
        assert_eq!(reason, StopReason::LeaseLost);
        let at = at.duration_since(UNIX_EPOCH).expect("a clock").as_secs_f64();
        let in_time = format!(
            "select count(*) from leasehold_internal.lease where lease_generation = {generation} \
             and lease_expires_at > to_timestamp({at})"
        );
        if setup.proxy.fired(hanging) > hung && setup.count(&in_time).await == 1 {
            break;
        }
    }
    setup.proxy.heal();
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b8_renewal_that_hangs_is_repeated_after_its_timeout_and_the_lease_is_kept() {
    let setup = Setup::new().await;
    // Renewed after 3 s; abandoned after 7.5 s, before the default timeout of a renewal that begins then.
    queue_settings(&setup.client, "lease = '9 seconds'").await;
    let handler = async |_: Note, ctx: Ctx| {
        ctx.stopped().await;
    };
    let worker = setup.engine.worker().queue("default", 1).without_housekeeping();
    let worker = worker.renew_timeout(Duration::from_millis(500)).grace(Duration::ZERO);
    let mut worker = run(worker.handle(handler));
    let hanging =
        setup.proxy.add(Rule::delay_statement("leasehold.renew(", Duration::from_secs(60)));
    Note { n: 1 }.enqueue(&setup.engine).await.expect("enqueued");
    wait_for(&mut worker.events, |event| {
        assert!(!matches!(event, Event::LeaseLost { .. }), "the lease was abandoned");
        matches!(event, Event::Renewed { .. }).then_some(())
    })
    .await;
    assert_eq!(setup.proxy.fired(hanging), 1, "the first renewal hung");
    worker.stop().await;
}

/// Locks its job. The first attempt then hangs inside its transaction.
async fn lock_and_wait(job: Note, ctx: Ctx, State(locks): State<UnboundedSender<()>>) -> JobResult {
    let mut client = ctx.engine().pool().get().await?;
    let transaction = client.transaction().await?;
    ctx.check_lease_in(&transaction).await?;
    transaction.query_typed("insert into ledger values ($1)", &[(&job.n, Type::INT8)]).await?;
    if ctx.attempt() == 1 {
        // The engine's own limit is 30 s, too long for a test. This is the last statement, because a
        // pause before another one could end the session.
        let brief = "set local idle_in_transaction_session_timeout = '500ms'";
        transaction.batch_execute(brief).await?;
        let _ = locks.send(());
        std::future::pending::<()>().await;
    }
    ctx.complete_in(&transaction).await?;
    transaction.commit().await?;
    Ok(Outcome::Complete)
}

#[tokio::test(flavor = "multi_thread")]
async fn b8_job_locked_behind_a_dead_connection_starts_again_elsewhere() {
    let setup = Setup::new().await;
    queue_settings(&setup.client, "lease = '1 second'").await;
    let (locks, mut locked) = unbounded_channel();
    let worker = setup.engine.worker_with(locks.clone()).queue("default", 1).without_housekeeping();
    let cut_off = run(worker.grace(Duration::ZERO).handle(lock_and_wait));
    let id = Note { n: 1 }.enqueue(&setup.engine).await.expect("enqueued").id();
    soon(locked.recv()).await.expect("locked");
    // The other worker must not lose its lease when it is slow.
    queue_settings(&setup.client, "lease = '1 hour'").await;
    setup.proxy.add(Rule::blackhole());
    back_date_leases(&setup.client).await;
    let skipped = "select returned from leasehold_internal.reclaim_leases()";
    let free = "select count(*) from leasehold.job where not held";
    if setup.count(skipped).await == 0 {
        assert_eq!(
            setup.count(free).await,
            0,
            "no worker can claim the job while the dead connection locks it"
        );
    }
    let other = setup.undisturbed().await;
    let mut other = run(other.worker_with(locks).queue("default", 1).handle(lock_and_wait));
    assert_eq!(other.finished(1).await, [(id, Finished::Completed)]);
    setup.proxy.heal();
    cut_off.stop().await;
    other.stop().await;
    setup.assert_each_once(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b8_server_ends_connections_of_a_process_that_vanished() {
    let setup = Setup::new().await;
    let client = setup.engine.pool().get().await.expect("a connection");
    let limits = "select count(*) from pg_settings where source = 'session' and setting <> '0' and name in \
                  ('idle_in_transaction_session_timeout', 'client_connection_check_interval', 'statement_timeout', 'lock_timeout')";
    assert_eq!(crate::fixture::count(&client, limits).await, 4);
    let config = setup.engine.database().config();
    assert!(config.get_keepalives() && config.get_tcp_user_timeout().is_some());
}
