//! Ordered keys: one job at a time, and none overtakes the first.

use super::{complete, enqueue, ids, look_now, take, walk};
use crate::sql::{Sql, all, one, run};

/// A database in which the keys `line:…` are ordered.
async fn line(choices: &str) -> Sql {
    let sql = Sql::new().await;
    sql.run(&format!(
        "select leasehold.set_limit('default', 'line', 'ann', ordered => true {choices})"
    ))
    .await;
    sql
}

/// Sends the signal that `look_now` has used up.
async fn signal(sql: &Sql, key: &str) {
    let text = format!("select leasehold_internal.signal_key('default', '{key}', now())");
    sql.run(&text).await;
}

async fn why(sql: &Sql, id: i64) -> String {
    sql.one("select leasehold.why_waiting($1)", &[&id]).await
}

#[tokio::test]
async fn l12_first_job_of_an_ordered_key_blocks_it_until_it_ends() {
    let sql = line("").await;
    for (n, (verb, ends)) in [
        ("leasehold.fail($1, $2, 'an error', '1 hour')", false),
        ("leasehold.snooze($1, $2, '1 hour')", false),
        ("leasehold.defer($1, $2, '1 hour')", false),
        ("leasehold.release(array[$1::bigint], $2)", false),
        ("leasehold.complete($1, $2)", true),
        ("leasehold.bury($1, $2, 'an error')", true),
        ("leasehold.finish_cancelled($1, $2)", true),
    ]
    .into_iter()
    .enumerate()
    {
        let jobs = enqueue(&sql.client, &format!("line:{n}"), 3).await;
        let (id, generation) = take(&sql.client, 10).await[0];
        assert_eq!(id, jobs[0]);
        assert_eq!(ids(&sql.client, 10).await, [0_i64; 0], "{verb}: one at a time");
        let call = format!("select count(*) from (select {verb}) done");
        assert_eq!(one::<i64>(&sql.client, &call, &[&id, &generation]).await, 1);
        let next = usize::from(ends);
        if !ends && !verb.contains("release") {
            look_now(&sql).await;
            assert_eq!(ids(&sql.client, 10).await, [0_i64; 0], "{verb}: none overtakes");
            assert!(why(&sql, jobs[1]).await.starts_with(&format!("it waits for job {id}")));
            // The first job is due later than the others, and still the first.
            sql.run("update leasehold.job set scheduled_at = now() where permit and not held")
                .await;
            signal(&sql, &format!("line:{n}")).await;
        }
        let job = take(&sql.client, 10).await[0];
        assert_eq!(job.0, jobs[next], "{verb}");
        assert!(complete(&sql.client, job).await);
        for _ in 0..2 {
            for job in take(&sql.client, 10).await {
                complete(&sql.client, job).await;
            }
        }
    }
    assert_eq!(sql.count("job").await, 0);
}

#[tokio::test]
async fn l12_lost_worker_keeps_the_order() {
    let sql = line("").await;
    let jobs = enqueue(&sql.client, "line:1", 2).await;
    let (_, generation) = take(&sql.client, 10).await[0];
    sql.overdue(generation).await;
    sql.run("select * from leasehold_internal.reclaim_leases()").await;
    sql.run("update leasehold.job set scheduled_at = now() + interval '1 hour' where permit").await;
    look_now(&sql).await;
    assert_eq!(ids(&sql.client, 10).await, [0_i64; 0]);
    sql.run("update leasehold.job set scheduled_at = now() where permit").await;
    signal(&sql, "line:1").await;
    assert_eq!(ids(&sql.client, 10).await, jobs[..1]);
}

#[tokio::test]
async fn l12_waiting_first_job_is_overtaken_only_when_it_is_gone() {
    let sql = line("").await;
    let jobs = enqueue(&sql.client, "line:1", 3).await;
    let cancelling = sql.actor().await;
    run(&cancelling, "begin").await;
    cancelling.execute("select leasehold.cancel($1, 'ann')", &[&jobs[0]]).await.unwrap();
    assert_eq!(ids(&sql.client, 10).await, [0_i64; 0], "the first one is locked, not gone");
    run(&cancelling, "rollback").await;
    look_now(&sql).await;
    let only_others = "select count(*) from leasehold_internal.claim_limited('w', 'default', 10, null, null, array['other'])";
    enqueue(&sql.client, "line:2", 1).await;
    let behind = "select job_id from leasehold.enqueue('other', '{}', limit_key => 'line:2')";
    sql.one::<i64>(behind, &[]).await;
    assert_eq!(sql.one::<i64>(only_others, &[]).await, 0, "the first one has another name");
    sql.run("select leasehold.delete_jobs(array(select id from leasehold.job where limit_key = 'line:2'), 'ann')").await;
    sql.client.execute("select leasehold.cancel($1, 'ann')", &[&jobs[0]]).await.unwrap();
    look_now(&sql).await;
    let second = take(&sql.client, 10).await[0];
    assert_eq!(second.0, jobs[1]);
    assert!(complete(&sql.client, second).await);
    sql.run("update leasehold.job set scheduled_at = now() - interval '2 s', expires_at = now() - interval '1 s'").await;
    let fourth = enqueue(&sql.client, "line:1", 1).await;
    assert_eq!(ids(&sql.client, 10).await, fourth, "the third one has expired");
}

#[tokio::test]
async fn l12_others_pass_a_job_that_waits_for_its_next_attempt_where_the_limit_allows_it() {
    let sql = line(", on_failure => 'pass'").await;
    let jobs = enqueue(&sql.client, "line:1", 3).await;
    let (id, generation) = take(&sql.client, 10).await[0];
    sql.client
        .execute("select leasehold.fail($1, $2, 'x', '1 hour')", &[&id, &generation])
        .await
        .unwrap();
    assert_eq!(ids(&sql.client, 10).await, jobs[1..2]);
    look_now(&sql).await;
    assert_eq!(ids(&sql.client, 10).await, [0_i64; 0], "one at a time");
}

#[tokio::test]
async fn l12_dead_job_stops_its_key_until_it_is_redriven_or_deleted() {
    let sql = line(", on_death => 'stop'").await;
    let jobs = enqueue(&sql.client, "line:1", 3).await;
    let bury = async |job: (i64, i64)| {
        let sql_text = "select leasehold.bury($1, $2, 'no')";
        sql.client.execute(sql_text, &[&job.0, &job.1]).await.unwrap();
    };
    bury(take(&sql.client, 10).await[0]).await;
    assert_eq!(ids(&sql.client, 10).await, [0_i64; 0]);
    assert_eq!(walk(&sql).await, 0, "the walk lists no stopped key");
    assert_eq!(
        why(&sql, jobs[1]).await,
        format!(
            "limit line:1 is stopped by dead job {} until that is redriven or deleted, 0 before it",
            jobs[0]
        )
    );
    let state = "select state from leasehold_internal.limit_keys('default')";
    assert_eq!(sql.one::<String>(state, &[]).await, "stopped");
    sql.client.execute("select leasehold.redrive($1, 'ann')", &[&&jobs[..1]]).await.unwrap();
    let again = take(&sql.client, 10).await[0];
    assert_eq!(again.0, jobs[0], "it comes back as the first");
    bury(again).await;
    sql.client.execute("select leasehold.delete_jobs($1, 'ann')", &[&&jobs[..1]]).await.unwrap();
    let second = take(&sql.client, 10).await[0];
    assert_eq!(second.0, jobs[1]);
    bury(second).await;
    // Without a signal: prune sends none.
    sql.run("delete from leasehold_internal.dead_job").await;
    assert_eq!(walk(&sql).await, 1);
    assert_eq!(ids(&sql.client, 10).await, jobs[2..]);
}

#[tokio::test]
async fn l12_key_that_is_not_ordered_any_more_blocks_no_job() {
    let sql = line("").await;
    let jobs = enqueue(&sql.client, "line:1", 2).await;
    let (id, generation) = take(&sql.client, 10).await[0];
    sql.client
        .execute("select leasehold.fail($1, $2, 'x', '1 hour')", &[&id, &generation])
        .await
        .unwrap();
    sql.run("select leasehold.remove_limit('default', 'line', 'ann')").await;
    assert_eq!(ids(&sql.client, 10).await, jobs[1..]);
    // A permit that was given under the former rule at the same time.
    sql.client
        .execute("update leasehold.job set permit = true where id = $1", &[&jobs[0]])
        .await
        .unwrap();
    sql.due().await;
    walk(&sql).await;
    assert_eq!(ids(&sql.client, 10).await, jobs[..1]);
}

#[tokio::test]
async fn l13_jobs_of_many_sessions_run_in_the_order_of_their_commits() {
    let sql = line("").await;
    let (one, two) = (sql.actor().await, sql.actor().await);
    // Each session takes ids of its own range: ids alone do not give the order.
    enqueue(&two, "other", 1).await;
    let mut jobs = Vec::new();
    for n in 0..12 {
        let session = if n % 3 == 1 { &two } else { &one };
        jobs.extend(enqueue(session, "line:1", 1).await);
    }
    let mut ran = Vec::new();
    while ran.len() < jobs.len() {
        for job in take(&sql.client, 10).await {
            let key = "select limit_key from leasehold.job where id = $1";
            if one_text(&sql, key, job.0).await == "line:1" {
                ran.push(job.0);
            }
            assert!(complete(&sql.client, job).await);
        }
    }
    assert_eq!(ran, jobs);
    let sorted: Vec<i64> =
        all(&sql.client, "select unnest($1::bigint[]) order by 1", &[&jobs]).await;
    assert_ne!(sorted, jobs, "the ids are in another order");
}

async fn one_text(sql: &Sql, query: &str, id: i64) -> String {
    sql.one(query, &[&id]).await
}
