//! Once: markers that tell a second run what the first one did.

use crate::sql::{Sql, blocked, claim, joined, one, pid, run};

const START: &str = "select state from leasehold.once_start('receipt', $1, 1, 1)";

#[tokio::test]
async fn b6_marker_returns_the_first_result_to_the_second_run() {
    let sql = Sql::new().await;
    sql.run("create table public.effect (job bigint)").await;
    let (id, first) = sql.running().await;
    let handler = sql.actor().await;
    // The mark and the effect commit together; the worker dies before the finish.
    run(
        &handler,
        &format!(
            "begin; select * from leasehold.once_start('job {id}', 'charge', {id}, {first}); \
             insert into public.effect values ({id}); \
             select leasehold.once_finish('job {id}', 'charge', '{{\"receipt\": 7}}'); commit"
        ),
    )
    .await;
    sql.expire(first).await;
    let second = claim(&sql.client, "second", 1).await;
    assert_eq!(second.ids, [id]);
    let row = sql
        .client
        .query_one(
            "select state, result ->> 'receipt' from leasehold.once_start($1, 'charge', $2, $3)",
            &[&format!("job {id}"), &id, &second.generation],
        )
        .await
        .unwrap();
    assert_eq!(
        (row.get::<_, &str>(0), row.get::<_, &str>(1)),
        ("finished", "7"),
        "skip the effect"
    );
    assert!(
        sql.one::<bool>("select leasehold.complete($1::bigint, $2)", &[&id, &second.generation])
            .await
    );
    assert_eq!(sql.one::<i64>("select count(*) from public.effect", &[]).await, 1);
}

#[tokio::test]
async fn b6_effect_that_rolled_back_leaves_no_marker() {
    let sql = Sql::new().await;
    let handler = sql.actor().await;
    run(&handler, "begin").await;
    assert_eq!(one::<String>(&handler, START, &[&"charge"]).await, "started");
    run(&handler, "rollback").await;
    assert_eq!(sql.one::<String>(START, &[&"charge"]).await, "started");
}

#[tokio::test]
async fn b6_external_effect_is_unfinished_until_its_marker_is_finished_or_forgotten() {
    let sql = Sql::new().await;
    assert_eq!(sql.one::<String>(START, &[&"mail"]).await, "started");
    // The worker dies here: whether the mail was sent is unknown.
    assert_eq!(sql.one::<String>(START, &[&"mail"]).await, "unfinished");
    let forget = "select leasehold.once_forget('receipt', 'mail')";
    assert!(sql.one::<bool>(forget, &[]).await);
    assert_eq!(sql.one::<String>(START, &[&"mail"]).await, "started");
    let finish = "select leasehold.once_finish('receipt', 'mail', $1)";
    assert!(sql.one::<bool>(finish, &[&serde_json::json!({"id": 1})]).await);
    assert!(
        !sql.one::<bool>(finish, &[&serde_json::json!({"id": 2})]).await,
        "the first result stays"
    );
    assert!(!sql.one::<bool>(forget, &[]).await, "what took place is not forgotten");
    let kept: String =
        sql.one("select result ->> 'id' from leasehold_internal.once_marker", &[]).await;
    assert_eq!(kept, "1");
}

#[tokio::test]
async fn only_one_of_two_concurrent_runs_starts_a_step() {
    for (end, answer) in [("commit", "unfinished"), ("rollback", "started")] {
        let sql = Sql::new().await;
        let (first, second) = (sql.actor().await, sql.actor().await);
        run(&first, "begin").await;
        assert_eq!(one::<String>(&first, START, &[&"charge"]).await, "started");
        let second_pid = pid(&second).await;
        let second = tokio::spawn(async move { one::<String>(&second, START, &[&"charge"]).await });
        blocked(&sql.client, second_pid).await;
        run(&first, end).await;
        assert_eq!(joined(second).await, answer, "after {end}");
    }
}

#[tokio::test]
async fn g9_markers_stay_while_their_job_can_run() {
    let sql = Sql::new().await;
    let (id, generation) = sql.running().await;
    sql.run(&format!("select * from leasehold.once_start('s', 'a', {id}, {generation}, '0')"))
        .await;
    sql.run("select * from leasehold.once_start('s', 'b', 0, 0, '1 day')").await;
    let over = "update leasehold_internal.once_marker set keep_until = now() - interval '1 second' where step = 'a'";
    sql.run(over).await;
    let prune = "select markers from leasehold_internal.prune()";
    assert_eq!(sql.one::<i32>(prune, &[]).await, 0, "it runs");
    sql.run(&format!("select leasehold.bury({id}, {generation}, 'useless')")).await;
    sql.run(over).await;
    assert_eq!(sql.one::<i32>(prune, &[]).await, 0, "it may be redriven");
    sql.run("delete from leasehold_internal.dead_job").await;
    sql.run(over).await;
    assert_eq!(sql.one::<i32>(prune, &[]).await, 1);
    assert_eq!(sql.count("once_marker").await, 1, "the other one is young");
}
