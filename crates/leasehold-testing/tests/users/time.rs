//! Time that the test moves, and workers that it crashes.

use std::time::Duration;

use leasehold::schedule::Schedule;
use leasehold::{Ctx, Enqueue, Enqueued, Finished, FinishedCounts};
use leasehold_testing::TestEngine;

use crate::{HOUR, Mailer, Refund, SendEmail, count, mail, send_email};

const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 3600);

#[tokio::test]
async fn advance_makes_the_next_attempt_due() {
    let t = TestEngine::new().await;
    mail("ada").enqueue(t.engine()).await.expect("enqueued");
    let worker = || t.worker_with(Mailer { broken: true }).handle(send_email);
    assert_eq!(t.drain(worker()).await, FinishedCounts::from([(Finished::Retried, 1)]));
    assert_eq!(t.drain(worker()).await, FinishedCounts::default(), "the backoff is not over");
    let waiting = t.assert_enqueued::<SendEmail>(|_| true).await;
    assert_eq!((waiting.attempts, waiting.last_error.as_deref()), (1, Some("the line is busy")));
    t.advance(4 * HOUR).await;
    assert_eq!(t.drain(worker()).await, FinishedCounts::from([(Finished::Buried, 1)]));
}

#[tokio::test]
async fn advance_passes_delays_keys_and_expiry() {
    let t = TestEngine::new().await;
    let keyed = || mail("ada").draft().expect("a draft").key("k").key_ttl(DAY).run_after(HOUR);
    let first = keyed().enqueue(t.engine()).await.expect("enqueued");
    let worker = || t.worker_with(Mailer { broken: false }).handle(send_email);
    assert_eq!(t.drain(worker()).await.completed, 0);
    t.advance(HOUR).await;
    assert_eq!(t.drain(worker()).await.completed, 1);
    assert_eq!(keyed().enqueue(t.engine()).await.expect("known"), Enqueued::Duplicate(first.id()));
    t.advance(DAY).await;
    assert!(keyed().enqueue(t.engine()).await.expect("the key is free").is_new());
    t.advance(40 * DAY).await;
    assert_eq!(t.drain(worker()).await, FinishedCounts::default());
    let expired = "select count(*) from leasehold.jobs where cause = 'expired'";
    assert_eq!(count(&t, expired).await, 1);
}

#[tokio::test]
async fn drain_buries_every_expired_job() {
    let t = TestEngine::new().await;
    // More than housekeeping handles in one turn.
    let jobs = (0..12_000).map(|order| Refund { order });
    t.engine().enqueue_many(jobs).await.expect("enqueued");
    t.advance(40 * DAY).await;
    assert_eq!(t.drain(t.worker().handle(async |_: Refund| {})).await, FinishedCounts::default());
    assert_eq!(count(&t, "select count(*) from leasehold_internal.dead_job").await, 12_000);
}

#[tokio::test]
async fn advance_fires_the_next_slot_of_a_schedule() {
    let t = TestEngine::new().await;
    // Half an hour away, so that no slot becomes due by itself meanwhile.
    let minute = (jiff::Timestamp::now().as_second() / 60 + 30) % 60;
    let cron = format!("{minute} * * * *");
    let hourly = Schedule::new("hourly", &cron, "UTC", &Refund { order: 1 }).expect("a schedule");
    let worker = || t.worker().handle(async |_: Refund| {}).schedule(hourly.clone());
    t.drain(worker()).await;
    t.advance(HOUR).await;
    assert_eq!(t.drain(worker()).await.completed, 1);
}

#[tokio::test]
async fn jobs_of_a_crashed_worker_run_on_the_next() {
    let t = TestEngine::new().await;
    mail("ada").enqueue(t.engine()).await.expect("enqueued");
    let order = Refund { order: 1 }.enqueue(t.engine()).await.expect("enqueued").id();
    let mut held = t.crash_worker().await;
    held.sort();
    assert_eq!(held.len(), 2);
    assert!(held.contains(&order));
    t.refute_enqueued::<Refund>().await; // no worker can claim it yet
    async fn refund(_: Refund, ctx: Ctx) {
        assert_eq!((ctx.attempt(), ctx.lost_count()), (2, 1));
    }
    let worker = t.worker_with(Mailer { broken: false }).handle(send_email).handle(refund);
    assert_eq!(t.drain(worker).await, FinishedCounts::from([(Finished::Completed, 2)]));
}

#[tokio::test]
async fn job_that_crashes_its_workers_is_buried() {
    let t = TestEngine::new().await;
    Refund { order: 1 }.enqueue(t.engine()).await.expect("enqueued");
    let dead = "select count(*) from leasehold_internal.dead_job where cause = 'lost'";
    let mut died = 0;
    while count(&t, dead).await == 0 {
        died += t.crash_worker().await.len();
        t.advance(MINUTE).await; // a job that was lost before waits a little
    }
    assert_eq!(died, 3);
    assert_eq!(t.drain(t.worker().handle(async |_: Refund| {})).await, FinishedCounts::default());
}

#[tokio::test]
async fn advance_moves_every_stored_time() {
    let t = TestEngine::new().await;
    let client = t.database().connect_directly().await;
    let sql = "select c.table_schema || '.' || c.table_name || '.' || c.column_name from information_schema.columns c \
                 join information_schema.tables t using (table_schema, table_name) \
                where c.table_schema in ('leasehold', 'leasehold_internal') and t.table_type = 'BASE TABLE' \
                  and c.data_type = 'timestamp with time zone' \
                  and c.table_name not like 'history%' order by 1";
    let rows = client.query(sql, &[]).await.expect("columns");
    let stored: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    let unmoved: Vec<_> = stored
        .iter()
        .filter(|column| !leasehold_testing::engine::moves(column))
        .map(String::as_str)
        .collect();
    // Nothing depends on when an operator created or did something. Measured minutes are not moved:
    // they are whole minutes, and moved ones would not be.
    assert_eq!(
        unmoved,
        [
            "leasehold.audit.at",
            "leasehold.schema_version.applied_at",
            "leasehold_internal.measure.at",
            "leasehold_internal.measure_hour.at",
            "leasehold_internal.mirror.created_at",
            "leasehold_internal.queue.created_at",
            "leasehold_internal.schedule.created_at",
            "leasehold_internal.server_start.started",
            "leasehold_internal.sweep.created_at"
        ]
    );
}
