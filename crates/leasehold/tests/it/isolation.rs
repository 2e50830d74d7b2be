//! A finish inside the caller's transaction, at every isolation level and after errors.

use crate::sql::{Sql, blocked, claim, code, joined, one, pid, run};

#[tokio::test]
async fn c7_stale_finish_is_refused_at_every_isolation_level() {
    for level in ["read committed", "repeatable read", "serializable"] {
        let sql = Sql::new().await;
        sql.run("create table public.effect (job bigint)").await;
        let (id, old) = sql.running().await;
        let handler = sql.actor().await;
        run(
            &handler,
            &format!("begin isolation level {level}; insert into public.effect values ({id})"),
        )
        .await;
        // The handler's snapshot is older than everything that follows.
        sql.expire(old).await;
        let new = claim(&sql.client, "second", 1).await;
        let late = handler.query("select leasehold.complete($1::bigint, $2)", &[&id, &old]).await;
        match late {
            Ok(rows) => {
                assert!(!rows[0].get::<_, bool>(0), "{level}: a stale finish passed");
                run(&handler, "rollback").await;
            }
            Err(error) => {
                assert_eq!(code(&error), "40001", "{level}");
                run(&handler, "rollback").await;
            }
        }
        assert_eq!(sql.state(id).await, "running", "{level}");
        run(
            &handler,
            &format!("begin isolation level {level}; insert into public.effect values ({id})"),
        )
        .await;
        let done: bool =
            one(&handler, "select leasehold.complete($1::bigint, $2)", &[&id, &new.generation])
                .await;
        assert!(done, "{level}: the holder's own finish");
        run(&handler, "commit").await;
        assert_eq!(sql.state(id).await, "completed", "{level}");
        assert_eq!(sql.one::<i64>("select count(*) from public.effect", &[]).await, 1, "{level}");
    }
}

#[tokio::test]
async fn c7_two_concurrent_finishes_end_a_job_once_at_every_isolation_level() {
    for level in ["read committed", "repeatable read", "serializable"] {
        let sql = Sql::new().await;
        let (id, generation) = sql.running().await;
        let (first, second) = (sql.actor().await, sql.actor().await);
        for client in [&first, &second] {
            run(
                client,
                &format!("begin isolation level {level}; select count(*) from leasehold.job"),
            )
            .await;
        }
        let complete = "select leasehold.complete($1::bigint, $2)";
        assert!(one::<bool>(&first, complete, &[&id, &generation]).await);
        let second_pid = pid(&second).await;
        let waiting = tokio::spawn(async move {
            let answer = second.query(complete, &[&id, &generation]).await;
            (answer.map(|rows| rows[0].get::<_, bool>(0)), second)
        });
        blocked(&sql.client, second_pid).await;
        run(&first, "commit").await;
        match joined(waiting).await {
            (Ok(done), _) => assert!(!done, "{level}: finished twice"),
            (Err(error), _) => assert_eq!(code(&error), "40001", "{level}"),
        }
        assert_eq!(sql.count("finished_job").await, 1, "{level}");
    }
}

#[tokio::test]
async fn c8_finish_in_an_aborted_transaction_does_not_succeed() {
    let sql = Sql::new().await;
    let (id, generation) = sql.running().await;
    let handler = sql.actor().await;
    run(&handler, "begin").await;
    // The handler swallows the error of its own statement.
    assert!(
        handler
            .batch_execute("insert into leasehold_internal.queue (name) values ('default')")
            .await
            .is_err()
    );
    let finish =
        handler.query("select leasehold.complete($1::bigint, $2)", &[&id, &generation]).await;
    assert_eq!(code(&finish.expect_err("the transaction is aborted")), "25P02");
    // COMMIT does not fail, it rolls back: a careless worker takes that for success.
    run(&handler, "commit").await;
    assert_eq!(sql.state(id).await, "running");
    // After work under a savepoint, the finish can still commit.
    run(&handler, "begin; savepoint work").await;
    assert!(
        handler
            .batch_execute("insert into leasehold_internal.queue (name) values ('default')")
            .await
            .is_err()
    );
    run(&handler, "rollback to work").await;
    assert!(
        one::<bool>(&handler, "select leasehold.complete($1::bigint, $2)", &[&id, &generation])
            .await
    );
    run(&handler, "commit").await;
    assert_eq!(sql.state(id).await, "completed");
}
