//! Expiry follows the due time.

use crate::sql::{Sql, all, claim, one, refused, run};

const WINDOW: &str = "select bool_and(expires_at = scheduled_at + interval '30 days') \
                        from leasehold.job";

#[tokio::test]
async fn a34_job_due_in_sixty_days_expires_thirty_days_after_that() {
    let sql = Sql::new().await;
    sql.run("set timezone = 'UTC'").await;
    sql.run("insert into leasehold.job (name, scheduled_at) values ('note', now() + interval '60 days')").await;
    sql.run("insert into leasehold.job (name, scheduled_at, expires_at) values ('note', now() + interval '60 days', null)").await;
    sql.run("insert into leasehold.job (name, expires_at) values ('note', null)").await;
    sql.run("select leasehold.enqueue('note', scheduled_at => statement_timestamp() + interval '60 days')").await;
    sql.run(
        "select leasehold.enqueue_many(array['note'], array['{}']::jsonb[], \
             scheduled_at => statement_timestamp() + interval '60 days')",
    )
    .await;
    let copied =
        "copy leasehold.job (name, scheduled_at) from program 'echo note,2999-01-01' (format csv)";
    sql.run(copied).await;
    assert_eq!(sql.count("job").await, 6);
    assert!(sql.one::<bool>(WINDOW, &[]).await);
    sql.run(
        "update leasehold.job set scheduled_at = scheduled_at - interval '40 days', \
             expires_at = expires_at - interval '40 days'",
    )
    .await;
    assert_eq!(
        sql.one::<i32>("select expired from leasehold_internal.expire_jobs()", &[]).await,
        1,
        "the one that was due at once"
    );
}

#[tokio::test]
async fn a34_job_due_within_thirty_days_expires_thirty_days_after_its_due_time() {
    let sql = Sql::new().await;
    sql.run("set timezone = 'UTC'").await;
    sql.run("insert into leasehold.job (name, scheduled_at) values ('note', now() + interval '29 days')").await;
    let dated = sql.one::<String>("select (now() + interval '20 days')::date::text", &[]).await;
    sql.run(&format!(
        "copy leasehold.job (name, scheduled_at) from program 'echo note,{dated}' (format csv)"
    ))
    .await;
    sql.run("select leasehold.enqueue('note', scheduled_at => now() + interval '29 days')").await;
    assert_eq!(sql.count("job").await, 3);
    assert!(sql.one::<bool>(WINDOW, &[]).await);
    let named = "insert into leasehold.job (name, scheduled_at, expires_at) \
                 values ('named', now() + interval '20 days', now() + interval '21 days')";
    sql.run(named).await;
    let kept = "select expires_at = scheduled_at + interval '1 day' from leasehold.job where name = 'named'";
    assert!(sql.one::<bool>(kept, &[]).await, "a named expiry stays");
}

#[tokio::test]
async fn a34_producer_may_insert_a_job_that_is_due_late() {
    let sql = Sql::new().await;
    let producer = sql.actor().await;
    run(&producer, "set role leasehold_producer").await;
    run(
        &producer,
        "insert into leasehold.job (name, scheduled_at) values ('note', now() + interval '1 year')",
    )
    .await;
    assert!(sql.one::<bool>("select expires_at > scheduled_at from leasehold.job", &[]).await);
}

#[tokio::test]
async fn a34_expiry_before_the_due_time_is_refused() {
    let sql = Sql::new().await;
    for statement in [
        "insert into leasehold.job (name, scheduled_at, expires_at) \
         values ('note', now() + interval '2 days', now() + interval '1 day')",
        "insert into leasehold.job (name, expires_at) values ('note', now())",
        "select leasehold.enqueue('note', scheduled_at => now() + interval '2 days', \
                                  expires_at => now() + interval '1 day')",
        "select leasehold.enqueue('note', expires_at => now(), key => 'k')",
        "select leasehold.enqueue_many(array['note'], array['{}']::jsonb[], expires_at => now())",
    ] {
        let (code, text) = refused(&sql.client, statement, &[]).await;
        assert_eq!(code, "LH002", "{statement}: {text}");
        assert!(text.contains("Leave expires_at out"), "{text}");
    }
    assert_eq!((sql.count("job").await, sql.count("idempotency_key").await), (0, 0));
}

/// Claims the only job and ends the attempt with `statement`, its id and generation filled in.
async fn end(sql: &Sql, statement: &str) {
    let taken = claim(&sql.client, "w", 1).await;
    let statement = statement
        .replace("ID", &taken.ids[0].to_string())
        .replace("GENERATION", &taken.generation.to_string());
    sql.run(&statement).await;
}

#[tokio::test]
async fn a34_snoozed_job_keeps_its_time_until_expiry() {
    let sql = Sql::new().await;
    sql.run("set timezone = 'UTC'").await;
    sql.enqueue(1).await;
    end(&sql, "select leasehold.snooze(ID, GENERATION, '60 days')").await;
    assert!(sql.one::<bool>(WINDOW, &[]).await);
    // A polling job: it was enqueued long ago, and now it is snoozed again.
    sql.run(
        "update leasehold.job set scheduled_at = now() - interval '1 second', \
             expires_at = now() + interval '1 hour'",
    )
    .await;
    end(&sql, "select leasehold.snooze(ID, GENERATION, '2 hours')").await;
    let left: bool = sql
        .one("select expires_at - scheduled_at between interval '1 hour' and interval '1 hour 1 minute' from leasehold.job", &[])
        .await;
    assert!(left, "an hour to start in, as before");
}

#[tokio::test]
async fn a34_retry_moves_the_expiry_only_for_a_wait_that_is_longer() {
    let sql = Sql::new().await;
    sql.run("set timezone = 'UTC'").await;
    sql.run("select leasehold.enqueue('note', expires_at => now() + interval '1 hour')").await;
    let before: std::time::SystemTime = sql.one("select expires_at from leasehold.job", &[]).await;
    end(&sql, "select leasehold.fail(ID, GENERATION, 'stuck', '50 minutes')").await;
    let after: std::time::SystemTime = sql.one("select expires_at from leasehold.job", &[]).await;
    assert_eq!(before, after, "a stuck job ends when its producer said");
    sql.run("update leasehold.job set scheduled_at = now() - interval '1 second'").await;
    end(&sql, "select leasehold.fail(ID, GENERATION, 'next quarter', '90 days')").await;
    let runs = "select expires_at > scheduled_at and scheduled_at > now() + interval '89 days' from leasehold.job";
    assert!(sql.one::<bool>(runs, &[]).await);
}

#[tokio::test]
async fn a34_release_gives_back_the_time_that_a_job_was_held() {
    let sql = Sql::new().await;
    sql.run("select leasehold.enqueue('note', expires_at => now() + interval '1 hour')").await;
    let taken = claim(&sql.client, "w", 1).await;
    sql.run(
        "update leasehold_internal.lease set claimed_at = claimed_at - interval '2 hours'; \
             update leasehold.job set scheduled_at = scheduled_at - interval '2 hours', \
                                      expires_at = expires_at - interval '2 hours'",
    )
    .await;
    let released: Vec<i64> =
        all(&sql.client, "select leasehold.release($1, $2)", &[&taken.ids, &taken.generation])
            .await;
    assert_eq!(released, taken.ids);
    assert_eq!(claim(&sql.client, "w", 1).await.ids, taken.ids, "it runs again");
}

#[tokio::test]
async fn a34_promoted_job_does_not_expire_sooner() {
    let sql = Sql::new().await;
    sql.run("insert into leasehold.job (name, scheduled_at) values ('note', now() + interval '60 days')").await;
    let before: std::time::SystemTime = sql.one("select expires_at from leasehold.job", &[]).await;
    sql.run("select leasehold.promote(array(select id from leasehold.job), 'ann')").await;
    let after: std::time::SystemTime = sql.one("select expires_at from leasehold.job", &[]).await;
    assert_eq!(before, after);
}

#[tokio::test]
async fn a34_job_with_an_infinite_expiry_can_be_snoozed_failed_and_released() {
    let sql = Sql::new().await;
    sql.run(
        "insert into leasehold.job (name, scheduled_at, expires_at) \
             values ('note', '2026-01-01', 'infinity')",
    )
    .await;
    for statement in [
        "select leasehold.snooze(ID, GENERATION, '500000 years')",
        "select leasehold.fail(ID, GENERATION, 'no', '500000 years')",
        "select leasehold.release(array[ID::bigint], GENERATION)",
        "select leasehold.defer(ID, GENERATION, '500000 years')",
        "select leasehold_internal.defer_many(array[ID::bigint], GENERATION, array[1e300], array['no'], array[true])",
    ] {
        end(&sql, statement).await;
        let waits = "select not held and isfinite(scheduled_at) from leasehold.job";
        assert!(one::<bool>(&sql.client, waits, &[]).await, "{statement}");
        sql.due().await;
    }
}

#[tokio::test]
async fn h26_job_with_the_widest_times_can_be_snoozed_and_failed() {
    let sql = Sql::new().await;
    sql.run(
        "insert into leasehold.job (name, scheduled_at, expires_at, enqueued_at) \
         values ('note', '4713-01-01 BC', '294276-12-31', '4713-01-01 BC')",
    )
    .await;
    for finish in ["snooze($1, $2, '0 s')", "fail($1, $2, 'x', '0 s')"] {
        let claimed = claim(&sql.client, "w", 1).await;
        let (id, generation) = (claimed.ids[0], claimed.generation);
        sql.client
            .query(&format!("select leasehold.{finish}"), &[&id, &generation])
            .await
            .unwrap_or_else(|error| panic!("{finish}: {error:?}"));
    }
}
