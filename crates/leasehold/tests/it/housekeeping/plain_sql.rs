//! Housekeeping without a worker of the library.

use super::{DONE, litter};
use crate::fixture::count;
use crate::sql::{Sql, refused, run};

#[tokio::test]
async fn d18_housekeep_runs_every_duty_without_a_worker() {
    let sql = Sql::new().await;
    litter(&sql.client).await;
    sql.run(
        "insert into leasehold_internal.tally (at, what, n) values (now() - interval '3 hours', 'lost', 1)",
    )
    .await;
    let cron = sql.actor().await;
    run(&cron, "set role leasehold_housekeeper").await;
    let rows = cron
        .query("select duty, done, error from leasehold.housekeep()", &[])
        .await
        .expect("a round");
    assert!(rows.iter().all(|row| row.get::<_, Option<&str>>(2).is_none()), "{rows:?}");
    let done = |duty: &str| {
        rows.iter().find(|row| row.get::<_, &str>(0) == duty).map(|row| row.get::<_, i64>(1))
    };
    for (duty, expected) in [
        ("reclaim", 1),
        ("walk_jobs", 1),
        ("prune_leases", 1),
        ("prune_keys", 1),
        ("prune_marks", 1),
        ("prune_measures", 1),
        ("extend_history", 7),
    ] {
        assert_eq!(done(duty), Some(expected), "{duty}");
    }
    // SQL cannot compute the next slot of a cron text, so the round fires no schedules.
    for (duty, sign) in DONE.iter().filter(|(duty, _)| *duty != "fire_schedule") {
        assert_eq!(count(&sql.client, sign).await, 1, "{duty}");
    }
}

#[tokio::test]
async fn d18_round_of_plain_sql_continues_after_a_duty_that_fails() {
    let sql = Sql::new().await;
    litter(&sql.client).await;
    sql.run(
        "create function public.refuse() returns trigger language plpgsql as \
             $$ begin raise exception 'not this one'; end $$; \
         create trigger refuse before delete on leasehold_internal.idempotency_key for each row execute function public.refuse()",
    )
    .await;
    let rows = sql
        .client
        .query("select duty, error from leasehold.housekeep()", &[])
        .await
        .expect("a round");
    let failed: Vec<(&str, &str)> =
        rows.iter().filter_map(|row| Some((row.get(0), row.get::<_, Option<&str>>(1)?))).collect();
    assert_eq!(failed, [("prune_keys", "not this one")]);
    for (duty, sign) in
        DONE.iter().filter(|(duty, _)| !["fire_schedule", "prune_keys"].contains(duty))
    {
        assert_eq!(count(&sql.client, sign).await, 1, "{duty}");
    }
}

#[tokio::test]
async fn d18_round_of_plain_sql_ends_with_its_budget() {
    let sql = Sql::new().await;
    sql.run(
        "insert into leasehold_internal.idempotency_key (queue, key, job_id, request_hash, holds_until) \
         select 'default', 'k' || i, -i, '', now() - interval '1 hour' from generate_series(1, 12000) i",
    )
    .await;
    let round = "select done from leasehold.housekeep(budget => $1::text::interval) where duty = 'prune_keys'";
    assert_eq!(sql.one::<i64>(round, &[&"0"]).await, 5000, "one piece, and no second one");
    assert_eq!(sql.one::<i64>(round, &[&"1 hour"]).await, 7000);
}

#[tokio::test]
async fn d18_negative_times_are_refused_and_nothing_is_dropped() {
    let sql = Sql::new().await;
    sql.run("select leasehold_internal.extend_history()").await;
    let partitions =
        "select count(*) from pg_inherits where inhparent = 'leasehold_internal.history'::regclass";
    let before = count(&sql.client, partitions).await;
    assert!(before > 1, "there is something to drop");
    for call in [
        "select leasehold_internal.drop_history('-100 years')",
        "select leasehold_internal.drop_history(interval '-120 months 3600 days')",
        "select * from leasehold.housekeep(keep_history => '-100 years')",
        "select * from leasehold.housekeep(keep_history => '-120 months 3600 days')",
        "select * from leasehold.housekeep(keep_dead => '-1 day')",
        "select * from leasehold.housekeep(budget => '-1 s')",
    ] {
        let (code, text) = refused(&sql.client, call, &[]).await;
        assert!(code == "LH002" && text.contains("negative"), "{call}: {code} {text}");
    }
    assert_eq!(count(&sql.client, partitions).await, before);
}
