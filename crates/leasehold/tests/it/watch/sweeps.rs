//! Sweeps in the sample: what their watchdogs counted, and what it shows when the watchdogs are gone.

use super::{a_minute_passes, up, value};
use crate::sql::{Sql, one, run};

async fn declared(sql: &Sql, name: &str) {
    let text = format!(
        "select leasehold_internal.declare_sweep('{name}', 'public.{name}', 'id', 'bigint', 'due', 'status', 'NEW', \
             'BUSY', 'DONE', 'taken_at', 'claim', 10, 5, '2 hours', '1 minute', 1000, null, null, '1 minute', null)"
    );
    run(&sql.client, &text).await;
}

/// Records what a watchdog counted: claimed rows, those without a failure, those that are stuck.
async fn counted(sql: &Sql, sweep: &str, claimed: i64, unfailed: i64, stuck: i64) {
    let text = format!(
        "select leasehold_internal.note_claimed('{sweep}', {claimed}, {unfailed}, {stuck}, now() - interval '3 hours')"
    );
    run(&sql.client, &text).await;
}

/// Makes the watchdogs look silent for `time`.
async fn silent(sql: &Sql, time: &str) {
    let text = format!(
        "update leasehold_internal.sweep set claims_counted_at = now() - interval '{time}'"
    );
    run(&sql.client, &text).await;
}

#[tokio::test]
async fn stuck_rows_of_a_sweep_raise_an_alarm() {
    let sql = Sql::new().await;
    declared(&sql, "shelf").await;
    a_minute_passes(&sql).await;
    assert!(value(&sql.client, "sweep", "shelf", "stuck").await.is_nan(), "not counted yet");
    assert_eq!(value(&sql.client, "sweep", "shelf", "finished_total").await, 0.0);
    counted(&sql, "shelf", 2, 2, 0).await;
    a_minute_passes(&sql).await;
    assert_eq!(value(&sql.client, "sweep", "shelf", "claimed").await, 2.0);
    assert_eq!(up(&sql.client).await, Vec::<String>::new());
    counted(&sql, "shelf", 2, 2, 1).await;
    a_minute_passes(&sql).await;
    assert_eq!(value(&sql.client, "sweep", "shelf", "stuck").await, 1.0);
    assert_eq!(up(&sql.client).await, ["sweep_stuck_rows shelf"]);
    // A turn that counted nothing leaves it as it was.
    silent(&sql, "30 minutes").await;
    a_minute_passes(&sql).await;
    assert!(value(&sql.client, "sweep", "shelf", "stuck").await.is_nan());
    assert_eq!(up(&sql.client).await, ["sweep_stuck_rows shelf"]);
    // The watchdog resets the row.
    counted(&sql, "shelf", 1, 1, 0).await;
    a_minute_passes(&sql).await;
    assert_eq!(up(&sql.client).await, Vec::<String>::new());
    // A row that is dead raises the alarm, too.
    run(&sql.client, "insert into leasehold_internal.sweep_failure (sweep, key, claim, attempts, last_error, dead_at) values ('shelf', '2', 7, 5, 'no', now())").await;
    counted(&sql, "shelf", 1, 0, 0).await;
    a_minute_passes(&sql).await;
    assert_eq!(value(&sql.client, "sweep", "shelf", "stuck").await, 0.0, "it has its reason");
    assert_eq!(up(&sql.client).await, ["sweep_stuck_rows shelf"]);
}

#[tokio::test]
async fn rows_claimed_when_the_last_watchdog_counted_are_stuck_after_the_time_of_a_claim() {
    let sql = Sql::new().await;
    declared(&sql, "shelf").await;
    counted(&sql, "shelf", 5, 3, 0).await;
    silent(&sql, "2 hours").await;
    a_minute_passes(&sql).await;
    assert!(value(&sql.client, "sweep", "shelf", "stuck").await.is_nan(), "it may still come");
    silent(&sql, "2 hours 5 minutes").await;
    a_minute_passes(&sql).await;
    assert_eq!(
        value(&sql.client, "sweep", "shelf", "stuck").await,
        3.0,
        "failed rows wait on purpose"
    );
    assert_eq!(up(&sql.client).await, ["sweep_stuck_rows shelf"]);
    let claimed: i64 = one(
        &sql.client,
        "select count(*) from leasehold_internal.measure where metric = 'claimed'",
        &[],
    )
    .await;
    assert_eq!(claimed, 0, "how many are claimed now is not known");
}

#[tokio::test]
async fn rows_of_a_sweep_are_counted_per_minute() {
    let sql = Sql::new().await;
    declared(&sql, "gone").await;
    a_minute_passes(&sql).await;
    run(&sql.client, "select leasehold_internal.count_sweep('gone', 400, 390, 10, 0)").await;
    a_minute_passes(&sql).await;
    assert_eq!(value(&sql.client, "sweep", "gone", "finished").await, 390.0);
    a_minute_passes(&sql).await;
    assert_eq!(value(&sql.client, "sweep", "gone", "finished").await, 0.0);
}

#[tokio::test]
async fn rows_that_the_watchdog_reset_are_counted_per_minute() {
    let sql = Sql::new().await;
    declared(&sql, "one").await;
    a_minute_passes(&sql).await;
    run(&sql.client, "select leasehold_internal.note_watchdog('one', 40)").await;
    a_minute_passes(&sql).await;
    assert_eq!(value(&sql.client, "sweep", "one", "reset").await, 40.0);
    a_minute_passes(&sql).await;
    assert_eq!(value(&sql.client, "sweep", "one", "reset").await, 0.0);
    assert_eq!(value(&sql.client, "sweep", "one", "reset_total").await, 40.0);
}
