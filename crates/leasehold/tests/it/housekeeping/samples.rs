//! Each part of a sample is measured by itself.

use leasehold::measure;

use crate::sql::{Sql, one, run};
use crate::watch::{a_minute_passes, age, up, value};

/// Makes a function fail.
async fn broken(sql: &Sql, function: &str) {
    let text = format!(
        "do $do$ begin execute regexp_replace(pg_get_functiondef('leasehold_internal.{function}'::regproc), \
             'AS \\$function\\$.*', 'AS $function$ begin raise exception ''too slow''; end $function$'); end $do$"
    );
    run(&sql.client, &text).await;
}

#[tokio::test]
async fn c9_vacuum_alarm_is_evaluated_when_queues_and_ages_cannot_be_measured() {
    let sql = Sql::new().await;
    sql.run("select leasehold_internal.watch_queue('default', 'ann', max_length => 1, min_completed => 0)")
        .await;
    sql.enqueue(3).await;
    a_minute_passes(&sql).await;
    assert_eq!(up(&sql.client).await, ["queue_length_high default"]);
    broken(&sql, "measure_queues").await;
    broken(&sql, "oldest_ready_age").await;
    // An old transaction, as a sample shows it after twenty minutes.
    run(
        &sql.client,
        "do $do$ begin execute regexp_replace(pg_get_functiondef('leasehold_internal.vacuum_holders'::regproc), \
             'AS \\$function\\$.*', \
             'AS $function$ begin return query select ''session'', ''a report'', ''end it'', 1200::float8, 5::bigint; end $function$'); end $do$",
    )
    .await;
    age(&sql.client, "1 minute").await;
    let sampled =
        measure::sample(&sql.client).await.expect("a sample").expect("a minute has passed");
    let failed: Vec<&str> = sampled.failed.iter().map(|(part, _)| *part).collect();
    assert_eq!(failed, ["queues", "ages"]);
    assert!(sampled.failed.iter().all(|(_, error)| error == "too slow"), "{sampled:?}");
    assert_eq!(
        up(&sql.client).await,
        ["queue_length_high default", "vacuum_held_back "],
        "the one is raised; of the other nothing is known, and it stays"
    );
    assert_eq!(
        one::<i64>(
            &sql.client,
            "select count(*) from leasehold_internal.measure where metric = 'bytes' and at = $1",
            &[&sampled.minute]
        )
        .await,
        7
    );
    // The series shows a gap in this minute, not a zero.
    let gap = "select count(*) from leasehold_internal.series('queue', '{length}') where at = $1 and value is null";
    assert_eq!(one::<i64>(&sql.client, gap, &[&sampled.minute]).await, 1);
}

#[tokio::test]
async fn c9_age_that_was_not_measured_is_not_shown_as_zero() {
    let sql = Sql::new().await;
    sql.enqueue(1).await;
    broken(&sql, "oldest_ready_age").await;
    let sampled = a_minute_passes(&sql).await;
    assert_eq!(sampled.failed.len(), 1);
    assert_eq!(value(&sql.client, "queue", "default", "ready").await, 1.0);
    assert!(value(&sql.client, "queue", "default", "oldest_ready_age").await.is_nan());
}

#[tokio::test]
async fn flows_that_could_not_be_read_in_their_minute_are_read_in_a_later_one() {
    let sql = Sql::new().await;
    a_minute_passes(&sql).await;
    let body: String = one(
        &sql.client,
        "select pg_get_functiondef('leasehold_internal.measure_flows'::regproc)",
        &[],
    )
    .await;
    broken(&sql, "measure_flows").await;
    let (id, generation) = sql.running().await;
    run(&sql.client, &format!("select leasehold.complete({id}::bigint, {generation})")).await;
    for _ in 0..5 {
        a_minute_passes(&sql).await;
    }
    run(&sql.client, &body).await;
    a_minute_passes(&sql).await;
    assert_eq!(crate::watch::happened(&sql.client, "queue", "default", "completed").await, 1.0);
}
