//! History: finished jobs are filed by day, found again, and dropped by day.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::sql::{Sql, all, blocked, claim, joined, one, pid, run};

/// Returns the partitions, except the one that takes the rest.
async fn partitions(sql: &Sql) -> Vec<String> {
    all(
        &sql.client,
        "select inhrelid::regclass::text from pg_inherits \
          where inhparent = 'leasehold_internal.history'::regclass and inhrelid::regclass::text ~ '\\d$' order by 1",
        &[],
    )
    .await
}

#[tokio::test]
async fn partitions_of_the_next_days_are_created_once() {
    let sql = Sql::new().await;
    assert_eq!(partitions(&sql).await, [""; 0]);
    // In one statement: between two of them a new day may begin.
    let row = sql
        .client
        .query_one(
            "select leasehold_internal.extend_history(5), leasehold_internal.extend_history(5), \
                    to_char((statement_timestamp() at time zone 'UTC')::date + 1, 'YYYYMMDD')",
            &[],
        )
        .await
        .unwrap();
    assert_eq!((row.get::<_, i32>(0), row.get::<_, i32>(1)), (5, 0));
    let day: String = row.get(2);
    let tomorrow = format!("leasehold_internal.history_{day}");
    assert_eq!(partitions(&sql).await[0], tomorrow);
    sql.run(&format!(
        "insert into leasehold_internal.history values (('{day}'::date + time '12:00') at time zone 'UTC', \
         'completed', 'default', 1, 'w', \
         '{{7}}', '{{note}}', '{{\"\"}}', '{{1}}', array[now()], array['{{}}'::jsonb])"
    ))
    .await;
    let filed: i64 = sql.one(&format!("select count(*) from {tomorrow}"), &[]).await;
    assert_eq!(filed, 1);
}

#[tokio::test]
async fn finish_needs_no_partition() {
    let sql = Sql::new().await;
    let ids = sql.enqueue(3).await;
    let held = claim(&sql.client, "w", 3).await;
    let done: Vec<i64> = all(
        &sql.client,
        "select leasehold.complete_many($1::bigint[], $2)",
        &[&ids, &held.generation],
    )
    .await;
    assert_eq!(done.len(), 3);
    assert_eq!(sql.count("history_rest").await, 1, "one row per batch");
    let rows = sql
        .client
        .query(
            "select id, name, kwargs ->> 'n', attempts, claimed_by from leasehold_internal.finished_job order by id",
            &[],
        )
        .await
        .unwrap();
    for (place, row) in rows.iter().enumerate() {
        assert_eq!(row.get::<_, i64>(0), ids[place]);
        assert_eq!(row.get::<_, String>(1), "note");
        assert_eq!(row.get::<_, String>(2), place.to_string());
        assert_eq!((row.get::<_, i32>(3), row.get::<_, String>(4)), (1, "w".to_owned()));
    }
}

#[tokio::test]
async fn queue_without_history_stores_no_finished_job() {
    let sql = Sql::new().await;
    sql.run("select leasehold_internal.queue_settings('default'); update leasehold_internal.queue set keep_history = false")
        .await;
    let (id, generation) = sql.running().await;
    assert!(
        sql.one::<bool>("select leasehold.complete($1::bigint, $2)", &[&id, &generation]).await
    );
    assert_eq!(sql.state(id).await, "gone");
}

#[tokio::test]
async fn g9_old_days_are_dropped_and_younger_ones_stay() {
    let sql = Sql::new().await;
    for days in [3, 9] {
        sql.run(&format!(
            "do $$ begin execute format('create table leasehold_internal.%I partition of leasehold_internal.history \
             for values from (%L) to (%L)', 'history_' || to_char((now() at time zone 'UTC')::date - {days}, 'YYYYMMDD'), \
             ((now() at time zone 'UTC')::date - {days})::timestamp at time zone 'UTC', \
             ((now() at time zone 'UTC')::date - {days} + 1)::timestamp at time zone 'UTC'); end $$"
        ))
        .await;
    }
    // Rows that were filed without a partition are deleted too, by their own age.
    for age in ["20 days", "1 day"] {
        sql.run(&format!(
            "insert into leasehold_internal.history values (now() - interval '{age}', 'completed', 'default', 1, 'w', \
             '{{7}}', '{{note}}', '{{\"\"}}', '{{1}}', array[now()], array['{{}}'::jsonb])"
        ))
        .await;
    }
    let before = partitions(&sql).await.len();
    assert_eq!(sql.one::<i32>("select leasehold_internal.drop_history('7 days')", &[]).await, 1);
    assert_eq!(partitions(&sql).await.len(), before - 1);
    assert_eq!(sql.count("history").await, 1);
    assert_eq!(sql.one::<i32>("select leasehold_internal.drop_history('7 days')", &[]).await, 0);
}

#[tokio::test]
async fn day_with_rows_in_the_rest_does_not_stop_other_partitions() {
    let sql = Sql::new().await;
    // The clock was two days ahead for a while: rows of that day lie in the rest.
    sql.run(
        "do $$ declare p text; begin for p in select inhrelid::regclass::text from pg_inherits \
             where inhparent = 'leasehold_internal.history'::regclass and inhrelid::regclass::text ~ '\\d$' \
             loop execute 'drop table ' || p; end loop; end $$",
    )
    .await;
    sql.run(
        "insert into leasehold_internal.history values (now() + interval '2 days', 'completed', 'default', 1, 'w', \
         '{7}', '{note}', '{\"\"}', '{1}', array[now()], array['{}'::jsonb])",
    )
    .await;
    let made: i32 = sql.one("select leasehold_internal.extend_history(5)", &[]).await;
    assert_eq!(made, 4, "all but that day, whose rows stay in the rest");
    assert_eq!(sql.count("history").await, 1);
}

#[tokio::test]
async fn c14_creating_partitions_does_not_stop_finishes() {
    let sql = Sql::new().await;
    sql.run(
        "do $$ declare p text; begin for p in select inhrelid::regclass::text from pg_inherits \
             where inhparent = 'leasehold_internal.history'::regclass and inhrelid::regclass::text ~ '\\d$' \
             loop execute 'drop table ' || p; end loop; end $$",
    )
    .await;
    let (slow, slow_generation) = sql.running().await;
    let (quick, quick_generation) = sql.running().await;
    // A handler with a long transaction has filed its job and keeps its lock on history.
    let handler = sql.actor().await;
    run(&handler, &format!("begin; select leasehold.complete({slow}::bigint, {slow_generation})"))
        .await;
    let housekeeper = sql.actor().await;
    let housekeeper_pid = pid(&housekeeper).await;
    let enough = Arc::new(AtomicBool::new(false));
    let is_enough = Arc::clone(&enough);
    // Repeated, because one try waits for a second at most and the test may be slower to see it blocked.
    let making = tokio::spawn(async move {
        while !is_enough.load(Ordering::SeqCst) {
            drop(housekeeper.query("select leasehold_internal.extend_history(2)", &[]).await);
            drop(housekeeper.query("select leasehold_internal.drop_history('7 days')", &[]).await);
        }
        housekeeper
    });
    blocked(&sql.client, housekeeper_pid).await;
    // Other finishes wait at most for the housekeeper's lock timeout, not for the handler.
    run(&sql.client, "set lock_timeout = '60s'").await;
    let done: bool =
        one(&sql.client, "select leasehold.complete($1::bigint, $2)", &[&quick, &quick_generation])
            .await;
    assert!(done);
    enough.store(true, Ordering::SeqCst);
    let housekeeper = joined(making).await;
    run(&handler, "commit").await;
    assert_eq!(
        one::<i32>(&housekeeper, "select leasehold_internal.extend_history(2)", &[]).await,
        2,
        "next time"
    );
    assert_eq!(sql.count("finished_job").await, 2);
}
