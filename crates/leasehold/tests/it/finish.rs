//! Finish: only the holder of the current lease, and only once.

use crate::sql::{Sql, all, claim, refused};

/// Every way to end or prolong an attempt, with the result for a holder that lost it.
/// `$1` is the job, `$2` the generation.
const VERBS: [(&str, &str, &str); 13] = [
    ("complete", "select leasehold.complete($1::bigint, $2)::text", "false"),
    (
        "complete a batch",
        "select count(*)::text from leasehold.complete_many(array[$1::bigint], $2)",
        "0",
    ),
    (
        "complete unsettled",
        "select count(*)::text from leasehold_internal.complete_rows(array[$1::bigint], $2)",
        "0",
    ),
    ("retry", "select leasehold.fail($1::bigint, $2, 'late')", "lost"),
    ("snooze", "select leasehold.snooze($1::bigint, $2, '1 hour')::text", "false"),
    ("defer", "select leasehold.defer($1::bigint, $2, '1 hour', 'late')::text", "false"),
    (
        "defer a failure",
        "select count(*)::text from leasehold_internal.defer_many(array[$1::bigint], $2, array[1], array['late'], array[true])",
        "0",
    ),
    ("release", "select count(*)::text from leasehold.release(array[$1::bigint], $2)", "0"),
    ("cancel", "select leasehold.finish_cancelled($1::bigint, $2)::text", "false"),
    ("bury", "select leasehold.bury($1::bigint, $2, 'late')::text", "false"),
    (
        "bury as undecodable",
        "select leasehold.bury($1::bigint, $2, 'late', 'undecodable')::text",
        "false",
    ),
    (
        "renew",
        "select r.state || left($1::bigint::text, 0) from leasehold.renew(array[$2::bigint]) r",
        "lost",
    ),
    (
        "explain",
        "select e.state from leasehold_internal.explain_finish(array[$1::bigint], $2) e",
        "lost",
    ),
];

/// Returns what a stale verb must not change: the row, the lease of the new holder, all finished and
/// dead jobs.
async fn picture(sql: &Sql) -> String {
    sql.one(
        "select jsonb_build_object( \
            'job', (select jsonb_agg(to_jsonb(j) order by id) from leasehold.job j), \
            'live', (select jsonb_agg(to_jsonb(l) order by lease_generation) from leasehold_internal.lease l \
                      where ended_at is null), \
            'dead', (select jsonb_agg(to_jsonb(d) order by id) from leasehold_internal.dead_job d), \
            'done', (select jsonb_agg(to_jsonb(f) order by id) from leasehold_internal.finished_job f))::text",
        &[],
    )
    .await
}

#[tokio::test]
async fn a2_every_finish_of_a_former_holder_is_refused() {
    let sql = Sql::new().await;
    let (id, old) = sql.running().await;
    sql.expire(old).await;
    // Between the expiry and the next claim the job has no holder, and the old one is refused even then.
    for holders in ["no worker", "a successor"] {
        if holders == "a successor" {
            let new = claim(&sql.client, "second", 1).await;
            assert_eq!(new.ids, [id]);
            assert!(new.generation > old, "generations grow");
        }
        let before = picture(&sql).await;
        for (verb, call, lost) in VERBS {
            let answer: String = sql.one(call, &[&id, &old]).await;
            assert_eq!(answer, lost, "{verb} while {holders} holds the job");
            assert_eq!(
                picture(&sql).await,
                before,
                "{verb} changed something while {holders} holds the job"
            );
        }
        let (code, hint) =
            refused(&sql.client, "select leasehold.check_lease($1, $2)", &[&id, &old]).await;
        assert_eq!(code, "LH004");
        assert!(hint.contains("Roll back"), "{hint}");
    }
}

#[tokio::test]
async fn a2_former_holder_is_refused_after_the_job_is_over() {
    let sql = Sql::new().await;
    for over in [
        "select leasehold.complete($1::bigint, $2)::text",
        "select leasehold.bury($1::bigint, $2, 'useless')::text",
        "select leasehold.finish_cancelled($1::bigint, $2)::text",
    ] {
        let (id, old) = sql.running().await;
        sql.expire(old).await;
        let new = claim(&sql.client, "second", 1).await;
        assert_eq!(sql.one::<String>(over, &[&id, &new.generation]).await, "true");
        let before = picture(&sql).await;
        for (verb, call, lost) in VERBS {
            assert_eq!(sql.one::<String>(call, &[&id, &old]).await, lost, "{verb}");
        }
        // The second holder too: its attempt is over.
        for (verb, call, lost) in &VERBS[..11] {
            assert_eq!(
                sql.one::<String>(call, &[&id, &new.generation]).await,
                *lost,
                "{verb} again"
            );
        }
        assert_eq!(picture(&sql).await, before);
        // Only the last holder learns that it finished the job.
        let explain = VERBS[12].1;
        assert_eq!(sql.one::<String>(explain, &[&id, &new.generation]).await, "finished");
    }
}

#[tokio::test]
async fn a3_late_holder_is_accepted_before_its_lease_is_reclaimed() {
    let sql = Sql::new().await;
    let (id, generation) = sql.running().await;
    sql.overdue(generation).await;
    let renewed: String =
        sql.one("select state from leasehold.renew(array[$1::bigint])", &[&generation]).await;
    assert_eq!(renewed, "renewed");
    let left: bool = sql
        .one(
            "select lease_expires_at > now() + interval '23 hours' from leasehold_internal.lease \
              where lease_generation = $1",
            &[&generation],
        )
        .await;
    assert!(left, "a whole lease again");
    sql.overdue(generation).await;
    assert!(
        sql.one::<bool>("select leasehold.complete($1::bigint, $2)", &[&id, &generation]).await
    );
    assert_eq!(sql.state(id).await, "completed");
    assert_eq!(
        sql.one::<i32>("select returned + buried from leasehold_internal.reclaim_leases()", &[])
            .await,
        0
    );
    assert_eq!(sql.state(id).await, "completed");
}

#[tokio::test]
async fn a5_a6_late_renewal_renews_neither_its_ended_lease_nor_the_next_one() {
    let sql = Sql::new().await;
    let (id, old) = sql.running().await;
    sql.expire(old).await;
    let renew = "select state from leasehold.renew(array[$1::bigint])";
    assert_eq!(sql.one::<String>(renew, &[&old]).await, "lost", "A5: no lease comes back to life");
    assert_eq!(sql.state(id).await, "ready");

    let new = claim(&sql.client, "second", 1).await;
    sql.overdue(new.generation).await;
    assert_eq!(sql.one::<String>(renew, &[&old]).await, "lost");
    let overdue: bool = sql
        .one(
            "select lease_expires_at < now() from leasehold_internal.lease where lease_generation = $1",
            &[&new.generation],
        )
        .await;
    assert!(overdue, "A6: the successor's lease was not prolonged");
}

#[tokio::test]
async fn a12_fence_refuses_an_earlier_generation_with_the_same_attempt_number() {
    let sql = Sql::new().await;
    let (id, first) = sql.running().await;
    // Three ways to get an attempt back: the number of attempts is 1 in every round.
    for give_back in [
        "select leasehold.snooze($1::bigint, $2, '0')::text",
        "select leasehold.release(array[$1::bigint], $2)::text",
        "select leasehold.bury($1::bigint, $2, 'useless')::text",
    ] {
        let current: i64 = sql
            .one("select lease_generation from leasehold.job where id = $1 and held", &[&id])
            .await;
        sql.client.query(give_back, &[&id, &current]).await.unwrap();
        sql.run(
            "select leasehold.redrive(array(select id from leasehold_internal.dead_job), 'ann')",
        )
        .await;
        sql.due().await;
        let next = claim(&sql.client, "next", 1).await;
        assert_eq!(next.ids, [id]);
        let attempts: i32 =
            sql.one("select attempts from leasehold.job where id = $1", &[&id]).await;
        assert_eq!(attempts, 1, "the same number as in the first attempt");
        let before = picture(&sql).await;
        for stale in [first, current] {
            for (verb, call, lost) in &VERBS[..11] {
                let answer: String = sql.one(call, &[&id, &stale]).await;
                assert_eq!(answer, *lost, "{verb} with a generation of an earlier life");
            }
        }
        assert_eq!(picture(&sql).await, before);
    }
}

#[tokio::test]
async fn lease_ends_with_its_last_job() {
    let sql = Sql::new().await;
    sql.enqueue(2).await;
    let claimed = claim(&sql.client, "worker", 2).await;
    let live = "select count(*) from leasehold_internal.lease where ended_at is null";
    for (id, left) in claimed.ids.iter().zip([1, 0]) {
        let released = "select leasehold.release(array[$1::bigint], $2)";
        assert_eq!(sql.one::<i64>(released, &[id, &claimed.generation]).await, *id);
        assert_eq!(sql.one::<i64>(live, &[]).await, left, "{id}");
    }
}

#[tokio::test]
async fn finish_functions_return_what_they_changed() {
    let sql = Sql::new().await;
    let ids = sql.enqueue(6).await;
    let claimed = claim(&sql.client, "worker", 6).await;
    let generation = claimed.generation;
    let some = all::<i64>(
        &sql.client,
        "select leasehold.complete_many($1::bigint[], $2)",
        &[&vec![ids[1], ids[0], 0], &generation],
    )
    .await;
    assert_eq!(some.len(), 2, "the unknown id is not in the result");
    assert_eq!(
        sql.one::<String>("select leasehold.fail($1, $2, 'no')", &[&ids[2], &generation]).await,
        "retry"
    );
    assert!(
        sql.one::<bool>("select leasehold.snooze($1, $2, '1 hour')", &[&ids[3], &generation]).await
    );
    assert!(sql.one::<bool>("select leasehold.bury($1, $2, 'no')", &[&ids[4], &generation]).await);
    assert_eq!(
        sql.one::<i64>("select leasehold.release(array[$1::bigint], $2)", &[&ids[5], &generation])
            .await,
        ids[5]
    );
    let attempts: Vec<i32> = all(
        &sql.client,
        "select attempts from leasehold.job where id = any($1) order by id",
        &[&ids],
    )
    .await;
    assert_eq!(attempts, [1, 0, 0], "charged for the failure, given back by snooze and release");
}

#[tokio::test]
async fn job_out_of_attempts_is_buried_with_its_error() {
    let sql = Sql::new().await;
    let id: i64 =
        sql.one("select job_id from leasehold.enqueue('note', max_attempts => 2)", &[]).await;
    for outcome in ["retry", "buried"] {
        sql.due().await;
        let claimed = claim(&sql.client, "worker", 1).await;
        let answer: String = sql
            .one("select leasehold.fail($1, $2, 'smtp said 451')", &[&id, &claimed.generation])
            .await;
        assert_eq!(answer, outcome);
    }
    let dead: bool = sql
        .one(
            "select cause = 'exhausted' and last_error = 'smtp said 451' and attempts = 2 \
               from leasehold_internal.dead_job where id = $1",
            &[&id],
        )
        .await;
    assert!(dead);
}

#[tokio::test]
async fn g8_jobs_that_fail_together_retry_at_different_times() {
    let sql = Sql::new().await;
    sql.run("insert into leasehold.job (name) select 'note' from generate_series(1, 100)").await;
    let held = claim(&sql.client, "w", 100).await;
    let fail = "select count(leasehold.fail(id, $2, 'down')) from unnest($1::bigint[]) as id";
    assert_eq!(sql.one::<i64>(fail, &[&held.ids, &held.generation]).await, 100);
    // The jitter is a fifth of the backoff to either side.
    let spread = "select count(distinct scheduled_at) > 50 \
                     and max(scheduled_at) - min(scheduled_at) > q.backoff_base * 0.2 \
                    from leasehold.job join leasehold_internal.queue q on q.name = queue group by q.backoff_base";
    assert!(sql.one::<bool>(spread, &[]).await);
}
