//! Minutes without a sample, or with a paused queue, do not count against a queue.

use super::{a_minute_passes, age, up};
use crate::sql::{Sql, run};

const LOW: &str = "completion_rate_low default";

async fn watched(least: u32) -> Sql {
    let sql = Sql::new().await;
    let text = format!(
        "select leasehold_internal.watch_queue('default', 'ann', min_completed => {least}, over => '10 minutes')"
    );
    run(&sql.client, &text).await;
    working(&sql, 12).await;
    assert_eq!(up(&sql.client).await, Vec::<String>::new());
    sql
}

/// Lets `minutes` minutes pass, with a completion in each.
async fn working(sql: &Sql, minutes: usize) {
    for _ in 0..minutes {
        let (id, generation) = sql.running().await;
        run(&sql.client, &format!("select leasehold.complete({id}::bigint, {generation})")).await;
        a_minute_passes(sql).await;
    }
}

async fn silent(sql: &Sql, minutes: usize) {
    for _ in 0..minutes {
        a_minute_passes(sql).await;
    }
}

#[tokio::test]
async fn first_sample_after_a_stop_of_every_process_raises_no_alarm() {
    let sql = watched(1).await;
    age(&sql.client, "30 minutes").await;
    // Half of its ten minutes: the clock's minute may turn meanwhile and add one.
    silent(&sql, 5).await;
    assert_eq!(up(&sql.client).await, Vec::<String>::new(), "it has had five minutes");
    silent(&sql, 5).await;
    assert_eq!(up(&sql.client).await, [LOW]);
    // Another stop does not clear the alarm.
    age(&sql.client, "30 minutes").await;
    silent(&sql, 1).await;
    assert_eq!(up(&sql.client).await, [LOW]);
    working(&sql, 1).await;
    assert_eq!(up(&sql.client).await, Vec::<String>::new());
}

#[tokio::test]
async fn minute_without_a_sample_delays_no_alarm() {
    let sql = watched(1).await;
    silent(&sql, 4).await;
    age(&sql.client, "1 minute").await;
    silent(&sql, 5).await;
    assert_eq!(up(&sql.client).await, [LOW]);
}

#[tokio::test]
async fn window_of_a_queue_restarts_after_a_pause() {
    let sql = watched(5).await;
    run(&sql.client, "select leasehold.pause('default', 'ann', 'a move')").await;
    silent(&sql, 12).await;
    run(&sql.client, "select leasehold.resume('default', 'ann')").await;
    for minute in 1..=12 {
        working(&sql, 1).await;
        assert_eq!(up(&sql.client).await, Vec::<String>::new(), "minute {minute}");
    }
    // If nothing completes then, the alarm is raised as usual.
    silent(&sql, 7).await;
    assert_eq!(up(&sql.client).await, [LOW]);
}
