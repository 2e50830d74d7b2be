//! Idempotency keys: one job per key, for as long as the job lives and the window lasts.

use tokio::task::JoinHandle;
use tokio_postgres::{Client, Error};

use crate::sql::{Sql, blocked, claim, code, joined, one, pid, refused, run};

/// Enqueues with the key `k` and a window in seconds. Returns the job and whether it is new.
async fn keyed(client: &Client, window: f64) -> Result<(i64, bool), Error> {
    let sql = "select job_id, inserted from leasehold.enqueue('note', '{\"n\": 1}', key => 'k', \
               key_ttl => make_interval(secs => $1))";
    client.query_one(sql, &[&window]).await.map(|row| (row.get(0), row.get(1)))
}

/// Starts the same enqueue on a connection of its own, and waits until it blocks.
async fn keyed_meanwhile(sql: &Sql, window: f64) -> JoinHandle<Result<(i64, bool), Error>> {
    let client = sql.actor().await;
    let pid = pid(&client).await;
    let task = tokio::spawn(async move { keyed(&client, window).await });
    blocked(&sql.client, pid).await;
    task
}

const DAY: f64 = 86_400.0;

async fn window_over(sql: &Sql) {
    sql.run(
        "update leasehold_internal.idempotency_key \
            set holds_until = now() - interval '1 second', recheck_at = null",
    )
    .await;
}

#[tokio::test]
async fn key_names_one_job_until_both_its_window_and_its_job_end() {
    let sql = Sql::new().await;
    let (id, new) = keyed(&sql.client, DAY).await.unwrap();
    assert!(new);
    assert_eq!(keyed(&sql.client, DAY).await.unwrap(), (id, false), "while it waits");
    window_over(&sql).await;
    assert_eq!(
        keyed(&sql.client, DAY).await.unwrap(),
        (id, false),
        "the window is over, the job is not"
    );
    let held = claim(&sql.client, "w", 1).await;
    assert_eq!(keyed(&sql.client, DAY).await.unwrap(), (id, false), "while it runs");
    sql.run("update leasehold_internal.idempotency_key set holds_until = now() + interval '1 day'")
        .await;
    sql.run(&format!("select leasehold.complete({id}::bigint, {})", held.generation)).await;
    assert_eq!(
        keyed(&sql.client, DAY).await.unwrap(),
        (id, false),
        "the job is over, the window is not"
    );
    assert_eq!(sql.count("job").await, 0);
    window_over(&sql).await;
    let (next, new) = keyed(&sql.client, DAY).await.unwrap();
    assert!(new && next != id, "both are over: a new job");
    assert_eq!(sql.count("job").await, 1);
    let other: i64 = sql
        .one("select job_id from leasehold.enqueue('note', queue => 'other', key => 'k')", &[])
        .await;
    assert!(other != next, "a key belongs to a queue");
}

#[tokio::test]
async fn enqueue_waits_for_the_transaction_that_holds_its_key() {
    let sql = Sql::new().await;
    let first = sql.actor().await;
    run(&first, "begin").await;
    let (id, _) = keyed(&first, DAY).await.unwrap();
    let second = keyed_meanwhile(&sql, DAY).await;
    run(&first, "commit").await;
    assert_eq!(joined(second).await.unwrap(), (id, false));
    assert_eq!(sql.count("job").await, 1);
}

#[tokio::test]
async fn key_of_a_rolled_back_enqueue_is_free() {
    let sql = Sql::new().await;
    let first = sql.actor().await;
    run(&first, "begin").await;
    let (gone, _) = keyed(&first, DAY).await.unwrap();
    let second = keyed_meanwhile(&sql, DAY).await;
    run(&first, "rollback").await;
    let (id, new) = joined(second).await.unwrap();
    assert!(new && id != gone);
    assert_eq!(sql.count("job").await, 1);
}

#[tokio::test]
async fn key_without_a_window_still_names_one_living_job() {
    let sql = Sql::new().await;
    let first = sql.actor().await;
    run(&first, "begin").await;
    let (id, _) = keyed(&first, 0.0).await.unwrap();
    // The second enqueue began before it could see the first job.
    let second = keyed_meanwhile(&sql, 0.0).await;
    run(&first, "commit").await;
    assert_eq!(joined(second).await.unwrap(), (id, false));
    assert_eq!(sql.count("job").await, 1);
}

#[tokio::test]
async fn h13_key_with_other_kwargs_is_refused() {
    let sql = Sql::new().await;
    let (id, _) = keyed(&sql.client, DAY).await.unwrap();
    for other in ["'note', '{\"n\": 2}'", "'letter', '{\"n\": 1}'"] {
        let call = format!("select * from leasehold.enqueue({other}, key => 'k')");
        let (code, text) = refused(&sql.client, &call, &[]).await;
        assert_eq!(code, "LH003");
        assert!(text.contains(&id.to_string()) && text.contains("Use a new key"), "{text}");
    }
    // The same arguments in another spelling are the same.
    let same: i64 = sql
        .one("select job_id from leasehold.enqueue('note', '{ \"n\" : 1 }', key => 'k')", &[])
        .await;
    assert_eq!((same, sql.count("job").await), (id, 1));
}

#[tokio::test]
async fn bulk_enqueue_keeps_order_and_keys() {
    let sql = Sql::new().await;
    let known: i64 = sql.one("select job_id from leasehold.enqueue('a', key => 'k3')", &[]).await;
    let rows = sql
        .client
        .query(
            "select job_id, inserted from leasehold.enqueue_many(\
             array['b', 'a', 'c', 'd', 'b'], array['{}', '{}', '{}', '{}', '{}']::jsonb[], \
             keys => array['k9', 'k3', null, 'k1', 'k9'])",
            &[],
        )
        .await
        .unwrap();
    let answers: Vec<(i64, bool)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    let new: Vec<bool> = answers.iter().map(|answer| answer.1).collect();
    assert_eq!(new, [true, false, true, true, false]);
    assert_eq!(answers[1].0, known);
    assert_eq!(answers[4].0, answers[0].0, "twice in one batch is one job");
    for (place, name) in [(0, "b"), (1, "a"), (2, "c"), (3, "d")] {
        let stored: String =
            sql.one("select name from leasehold.job where id = $1", &[&answers[place].0]).await;
        assert_eq!(stored, name);
    }
    // Twice in one transaction, and again in the same session.
    for _ in 0..2 {
        sql.run(
            "begin; select leasehold.enqueue_many(array['x'], array['{}']::jsonb[], keys => array['x']);
                 select leasehold.enqueue_many(array['y'], array['{}']::jsonb[], keys => array['y']); commit",
        )
        .await;
    }
    assert_eq!(sql.count("job").await, 6);
}

#[tokio::test]
async fn c6_bulk_enqueues_in_opposite_orders_do_not_deadlock() {
    let sql = Sql::new().await;
    let first = sql.actor().await;
    run(&first, "begin; select leasehold.enqueue('note', key => 'm')").await;
    let mut waiting = Vec::new();
    for keys in ["array['z', 'm', 'a']", "array['a', 'm', 'z']"] {
        let client = sql.actor().await;
        let pid = pid(&client).await;
        waiting.push(tokio::spawn(async move {
            let call = format!(
                "select count(*) from leasehold.enqueue_many(array['note', 'note', 'note'], \
                 array['{{}}', '{{}}', '{{}}']::jsonb[], keys => {keys})"
            );
            client.query_one(&call, &[]).await.map(|row| row.get::<_, i64>(0))
        }));
        blocked(&sql.client, pid).await;
    }
    run(&first, "rollback").await;
    for task in waiting {
        assert_eq!(joined(task).await.map_err(|error| code(&error)), Ok(3));
    }
    assert_eq!(sql.count("job").await, 3);
}

#[tokio::test]
async fn g9_prune_deletes_keys_whose_window_and_job_ended() {
    let sql = Sql::new().await;
    let (id, _) = keyed(&sql.client, DAY).await.unwrap();
    let prune = "select keys from leasehold_internal.prune()";
    assert_eq!(sql.one::<i32>(prune, &[]).await, 0);
    window_over(&sql).await;
    assert_eq!(sql.one::<i32>(prune, &[]).await, 0, "its job waits");
    let held = claim(&sql.client, "w", 1).await;
    sql.run(&format!("select leasehold.complete({id}::bigint, {})", held.generation)).await;
    // Pruning would look at it again only a minute later.
    window_over(&sql).await;
    assert_eq!(sql.one::<i32>(prune, &[]).await, 1);
    assert_eq!(sql.count("idempotency_key").await, 0);
}

#[tokio::test]
async fn redrive_skips_a_dead_job_whose_key_belongs_to_a_newer_job() {
    let sql = Sql::new().await;
    let (old, _) = keyed(&sql.client, DAY).await.unwrap();
    let held = claim(&sql.client, "w", 1).await;
    sql.run(&format!("select leasehold.bury({old}, {}, 'useless')", held.generation)).await;
    window_over(&sql).await;
    let (new, _) = keyed(&sql.client, DAY).await.unwrap();
    let redrive = format!("select count(*) from leasehold.redrive(array[{old}::bigint], 'ann')");
    assert_eq!(sql.one::<i64>(&redrive, &[]).await, 0, "the newer job waits");
    let held = claim(&sql.client, "w", 1).await;
    sql.run(&format!("select leasehold.complete({new}::bigint, {})", held.generation)).await;
    assert_eq!(
        sql.one::<i64>(&redrive, &[]).await,
        0,
        "the newer job did the work, and its window holds"
    );
    assert_eq!(sql.state(old).await, "dead");
    window_over(&sql).await;
    assert_eq!(sql.one::<i64>(&redrive, &[]).await, 1);
    assert_eq!(keyed(&sql.client, DAY).await.unwrap(), (old, false), "it has its key again");
}

#[tokio::test]
async fn redriven_job_takes_its_key_again() {
    let sql = Sql::new().await;
    let (id, _) = keyed(&sql.client, DAY).await.unwrap();
    let held = claim(&sql.client, "w", 1).await;
    sql.run(&format!("select leasehold.bury({id}, {}, 'useless')", held.generation)).await;
    window_over(&sql).await;
    assert_eq!(sql.one::<i32>("select keys from leasehold_internal.prune()", &[]).await, 1);
    sql.run(&format!("select leasehold.redrive(array[{id}::bigint], 'ann')")).await;
    assert_eq!(keyed(&sql.client, DAY).await.unwrap(), (id, false));
    assert_eq!(sql.count("job").await, 1);
}

#[tokio::test]
async fn redrive_and_an_enqueue_with_its_key_make_one_job() {
    for redrive_first in [true, false] {
        let sql = Sql::new().await;
        let (id, _) = keyed(&sql.client, DAY).await.unwrap();
        let held = claim(&sql.client, "w", 1).await;
        sql.run(&format!("select leasehold.bury({id}, {}, 'useless')", held.generation)).await;
        window_over(&sql).await;
        let first = sql.actor().await;
        run(&first, "begin").await;
        let redrive = format!("select count(*) from leasehold.redrive(array[{id}::bigint], 'ann')");
        if redrive_first {
            assert_eq!(one::<i64>(&first, &redrive, &[]).await, 1);
            let second = keyed_meanwhile(&sql, DAY).await;
            run(&first, "commit").await;
            assert_eq!(joined(second).await.unwrap(), (id, false));
        } else {
            assert!(keyed(&first, DAY).await.unwrap().1);
            let second = sql.actor().await;
            let pid = pid(&second).await;
            let second = tokio::spawn(async move { one::<i64>(&second, &redrive, &[]).await });
            blocked(&sql.client, pid).await;
            run(&first, "commit").await;
            assert_eq!(joined(second).await, 0, "the key belongs to a newer job");
        }
        assert_eq!(sql.count("job").await, 1, "redrive first: {redrive_first}");
    }
}
