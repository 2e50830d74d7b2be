//! A job keeps its failures.

use serde_json::Value;

use crate::sql::{Sql, claim};

/// Claims the only job that is due and fails the attempt.
async fn fail(sql: &Sql, error: &str) -> String {
    sql.due().await;
    let taken = claim(&sql.client, "mailer/1", 1).await;
    let call = "select leasehold.fail($1, $2, $3)";
    sql.one(call, &[&taken.ids[0], &taken.generation, &error]).await
}

async fn errors(sql: &Sql, table: &str) -> Vec<Value> {
    let list: Value =
        sql.one(&format!("select errors from {}", crate::sql::qualified(table)), &[]).await;
    list.as_array().expect("a list").clone()
}

#[tokio::test]
async fn a36_last_ten_failures_stay_with_the_job() {
    let sql = Sql::new().await;
    sql.enqueue(1).await;
    assert!(sql.one::<bool>("select errors is null from leasehold.job", &[]).await);
    for n in 1..=12 {
        assert_eq!(fail(&sql, &format!("smtp said {n}")).await, "retry");
    }
    let kept = errors(&sql, "job").await;
    let numbers: Vec<i64> = kept.iter().map(|one| one["attempt"].as_i64().unwrap()).collect();
    assert_eq!(numbers, (3..=12).collect::<Vec<i64>>());
    let last = &kept[9];
    assert_eq!((&last["error"], &last["worker"]), (&"smtp said 12".into(), &"mailer/1".into()));
    assert!(last["ms"].as_f64().unwrap() >= 0.0 && last["at"].is_string(), "{last}");
}

#[tokio::test]
async fn a36_failures_outlive_burial_and_redrive() {
    let sql = Sql::new().await;
    sql.run("select leasehold.enqueue('note', max_attempts => 2)").await;
    assert_eq!(fail(&sql, "first").await, "retry");
    assert_eq!(fail(&sql, "second").await, "buried");
    assert_eq!(errors(&sql, "dead_job").await.len(), 2);
    sql.run("select leasehold.redrive(array(select id from leasehold_internal.dead_job), 'ann')")
        .await;
    assert_eq!(errors(&sql, "job").await.len(), 2);
    assert_eq!(fail(&sql, "third").await, "retry");
    let texts: Vec<Value> =
        errors(&sql, "job").await.iter().map(|one| one["error"].clone()).collect();
    assert_eq!(texts, ["first", "second", "third"]);
}

#[tokio::test]
async fn a36_completed_job_keeps_its_failures_and_settings() {
    let sql = Sql::new().await;
    sql.run("select leasehold.enqueue('note', key => 'k', priority => 7, max_attempts => 9)").await;
    fail(&sql, "smtp down").await;
    sql.due().await;
    let taken = claim(&sql.client, "w", 1).await;
    assert!(
        sql.one::<bool>("select leasehold.complete($1, $2)", &[&taken.ids[0], &taken.generation])
            .await
    );
    let kept: bool = sql
        .one(
            "select key = 'k' and priority = 7 and max_attempts = 9 and claimed_at <= finished_at \
                and errors -> 0 ->> 'error' = 'smtp down' and scheduled_at is not null \
               from leasehold_internal.finished_job",
            &[],
        )
        .await;
    assert!(kept);
}

#[tokio::test]
async fn a36_jobs_without_failures_add_no_arrays_to_history() {
    let sql = Sql::new().await;
    sql.run("insert into leasehold.job (name) select 'note' from generate_series(1, 10)").await;
    let taken = claim(&sql.client, "w", 10).await;
    sql.client
        .query("select leasehold.complete_many($1::bigint[], $2)", &[&taken.ids, &taken.generation])
        .await
        .unwrap();
    let nothing: bool = sql
        .one(
            "select bool_and(num_nulls(priorities, keys, max_attempts, scheduled_at, errors) = 5 \
                and claimed_at is not null) from leasehold_internal.history",
            &[],
        )
        .await;
    assert!(nothing);
    let shown: bool = sql
        .one(
            "select bool_and(priority = 0 and key is null and errors is null \
                and scheduled_at = enqueued_at) and count(*) = 10 from leasehold_internal.finished_job",
            &[],
        )
        .await;
    assert!(shown);
}

#[tokio::test]
async fn a36_cancelled_job_keeps_its_failures() {
    let sql = Sql::new().await;
    let id = sql.enqueue(1).await[0];
    fail(&sql, "first").await;
    sql.run(&format!("select leasehold.cancel({id}, 'ann')")).await;
    assert_eq!(errors(&sql, "finished_job").await.len(), 1);
}

#[tokio::test]
async fn a36_invalid_list_of_failures_does_not_stop_a_job_from_failing() {
    let sql = Sql::new().await;
    sql.enqueue(1).await;
    sql.run("update leasehold.job set errors = '\"not a list\"'").await;
    assert_eq!(fail(&sql, "first").await, "retry");
    assert_eq!(errors(&sql, "job").await.len(), 1);
}

#[tokio::test]
async fn ended_as_returns_how_a_generation_ended_a_job() {
    let sql = Sql::new().await;
    let ended = "select leasehold_internal.ended_as($1, $2)";
    for (end, word) in [
        ("select leasehold.complete($1::bigint, $2)::text", "completed"),
        ("select leasehold.fail($1::bigint, $2, 'no')", "waiting"),
        ("select leasehold.bury($1::bigint, $2, 'no')::text", "buried"),
        ("select leasehold.finish_cancelled($1::bigint, $2)::text", "cancelled"),
    ] {
        sql.run("delete from leasehold.job").await;
        let (id, generation) = sql.running().await;
        sql.one::<String>(end, &[&id, &generation]).await;
        assert_eq!(sql.one::<String>(ended, &[&id, &generation]).await, word, "{end}");
    }
}
