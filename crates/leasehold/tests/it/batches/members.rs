//! Who may add jobs to a batch, and until when; redrive.

use super::*;
use crate::sql::{blocked, joined, pid, refused, run};

#[tokio::test]
async fn k6_job_that_is_redriven_before_the_close_is_a_member_again() {
    let sql = Sql::new().await;
    let (batch, ids, generation) = running(&sql, 2).await;
    sql.run(&format!("select leasehold.bury({}, {generation}, 'no')", ids[0])).await;
    assert_eq!(seen(&sql, batch).await.1, [2, 0, 0, 1, 0]);
    sql.run(&format!("select leasehold.redrive(array[{}]::bigint[], 'me')", ids[0])).await;
    assert_eq!(seen(&sql, batch).await.1, [2, 0, 0, 0, 0], "its death is taken back");
    assert!(complete(&sql.client, ids[1], generation).await);
    assert!(follow_ups(&sql).await.is_empty());
    let held = claim(&sql.client, "w", 1).await;
    assert!(complete(&sql.client, ids[0], held.generation).await);
    assert_eq!((look(&sql).await, follow_ups(&sql).await), (0, vec!["succeeded".to_owned()]));
}

#[tokio::test]
async fn k6_job_that_is_redriven_after_the_close_belongs_to_no_batch() {
    let sql = Sql::new().await;
    let (batch, ids, generation) = running(&sql, 1).await;
    sql.run(&format!("select leasehold.bury({}, {generation}, 'no')", ids[0])).await;
    assert_eq!(follow_ups(&sql).await, ["died"]);
    sql.run(&format!("select leasehold.redrive(array[{}]::bigint[], 'me')", ids[0])).await;
    let free: bool =
        sql.one("select batch_id is null from leasehold.job where id = $1", &[&ids[0]]).await;
    assert!(free);
    sql.due().await;
    let held = claim(&sql.client, "w", 10).await;
    assert!(complete(&sql.client, ids[0], held.generation).await);
    assert_eq!((look(&sql).await, follow_ups(&sql).await.len()), (0, 1));
    assert_eq!(seen(&sql, batch).await, ("closed".to_owned(), vec![1, 0, 0, 1, 0]));
}

#[tokio::test]
async fn k6_redrive_does_not_wait_for_the_transaction_that_closes() {
    let sql = Sql::new().await;
    let (batch, ids, generation) = running(&sql, 2).await;
    sql.run(&format!("select leasehold.bury({}, {generation}, 'no')", ids[0])).await;
    let worker = sql.actor().await;
    run(&worker, "begin").await;
    assert!(complete(&worker, ids[1], generation).await);
    sql.run(&format!("select leasehold.redrive(array[{}]::bigint[], 'me')", ids[0])).await;
    run(&worker, "commit").await;
    assert_eq!(
        (follow_ups(&sql).await, seen(&sql, batch).await.1),
        (vec!["died".to_owned()], vec![2, 1, 0, 1, 0])
    );
}

#[tokio::test]
async fn k6_redrive_waits_for_a_look_and_the_job_is_a_member_again() {
    let sql = Sql::new().await;
    let (batch, ids, generation) = running(&sql, 2).await;
    sql.run(&format!("select leasehold.bury({}, {generation}, 'no')", ids[0])).await;
    // The wait itself is not what this test is about.
    sql.run(
        "alter function leasehold_internal.lock_open_batches(bigint[]) set lock_timeout = '60s'",
    )
    .await;
    let (housekeeper, operator) = (sql.actor().await, sql.actor().await);
    run(&housekeeper, "begin").await;
    run(&housekeeper, &format!("select leasehold_internal.close_batch({batch})")).await;
    let (waiting, id) = (pid(&operator).await, ids[0]);
    let redrive = tokio::spawn(async move {
        run(&operator, &format!("select leasehold.redrive(array[{id}]::bigint[], 'me')")).await;
    });
    blocked(&sql.client, waiting).await;
    run(&housekeeper, "commit").await;
    joined(redrive).await;
    assert_eq!(seen(&sql, batch).await.1, [2, 0, 0, 0, 0]);
}

#[tokio::test]
async fn k7_running_member_adds_to_its_sealed_batch_and_it_stays_open_for_them() {
    let sql = Sql::new().await;
    let (batch, ids, generation) = running(&sql, 1).await;
    let handler = sql.actor().await;
    run(&handler, "begin").await;
    let extended: i64 =
        one(&handler, "select leasehold.extend_batch($1, $2)", &[&ids[0], &generation]).await;
    assert_eq!(extended, batch);
    let child: i64 =
        one(&handler, "select job_id from leasehold.enqueue('note', batch => $1)", &[&batch]).await;
    // Its worker completes it meanwhile: the end waits for what the handler added.
    let worker = sql.actor().await;
    let (waiting, id) = (pid(&worker).await, ids[0]);
    let task = tokio::spawn(async move { complete(&worker, id, generation).await });
    blocked(&sql.client, waiting).await;
    run(&handler, "commit").await;
    assert!(joined(task).await);
    assert!(follow_ups(&sql).await.is_empty(), "the child has not ended");
    assert_eq!(look(&sql).await, 0);
    let held = claim(&sql.client, "w", 1).await;
    assert_eq!(held.ids, [child]);
    assert!(complete(&sql.client, child, held.generation).await);
    assert_eq!(follow_ups(&sql).await, ["succeeded"]);
}

#[tokio::test]
async fn k7_add_and_completion_in_one_transaction_keep_the_batch_open() {
    let sql = Sql::new().await;
    let (batch, ids, generation) = running(&sql, 1).await;
    sql.run("begin").await;
    sql.run(&format!("select leasehold.extend_batch({}, {generation})", ids[0])).await;
    add(&sql, batch, 1).await;
    assert!(complete(&sql.client, ids[0], generation).await);
    sql.run("commit").await;
    assert_eq!((look(&sql).await, seen(&sql, batch).await.1), (0, vec![2, 1, 0, 0, 0]));
}

#[tokio::test]
async fn k12_add_to_a_sealed_batch_needs_the_lease_of_a_member() {
    let sql = Sql::new().await;
    let (batch, ids, generation) = running(&sql, 1).await;
    let add_one = format!("select * from leasehold.enqueue('note', batch => {batch})");
    let (code, text) = refused(&sql.client, &add_one, &[]).await;
    assert_eq!(code, "LH006", "{text}");
    assert!(text.contains("is sealed") && text.contains("extend_batch"), "{text}");
    // A member of another batch.
    let other = open(&sql).await;
    add(&sql, other, 1).await;
    let others = claim(&sql.client, "w", 10).await;
    sql.run("begin").await;
    sql.run(&format!("select leasehold.extend_batch({}, {})", others.ids[0], others.generation))
        .await;
    assert_eq!(refused(&sql.client, &add_one, &[]).await.0, "LH006");
    sql.run("rollback").await;
    // A lost lease.
    sql.expire(generation).await;
    let extend = "select leasehold.extend_batch($1, $2)";
    assert_eq!(refused(&sql.client, extend, &[&ids[0], &generation]).await.0, "LH004");
    // A setting alone opens nothing.
    sql.run("begin").await;
    sql.run(&format!("select set_config('leasehold.extends', '{}:{generation}', true)", ids[0]))
        .await;
    assert_eq!(refused(&sql.client, &add_one, &[]).await.0, "LH006");
    sql.run("rollback").await;
    let none =
        refused(&sql.client, "select * from leasehold.enqueue('note', batch => 999)", &[]).await;
    assert!(none.0 == "LH006" && none.1.contains("no batch 999"), "{none:?}");
}

#[tokio::test]
async fn k13_seal_waits_for_an_add_and_counts_it() {
    let sql = Sql::new().await;
    let batch = open(&sql).await;
    let (producer, other) = (sql.actor().await, sql.actor().await);
    run(&producer, "begin").await;
    run(&producer, &format!("select leasehold.enqueue('note', batch => {batch})")).await;
    // Another add does not wait.
    add(&sql, batch, 1).await;
    let waiting = pid(&other).await;
    let seal = tokio::spawn(async move {
        one::<bool>(&other, "select leasehold.seal_batch($1)", &[&batch]).await
    });
    blocked(&sql.client, waiting).await;
    let held = claim(&sql.client, "w", 10).await;
    assert!(complete(&sql.client, held.ids[0], held.generation).await);
    run(&producer, "commit").await;
    assert!(joined(seal).await);
    assert!(follow_ups(&sql).await.is_empty(), "the added job has not ended");
    let held = claim(&sql.client, "w", 10).await;
    assert!(complete(&sql.client, held.ids[0], held.generation).await);
    assert_eq!((look(&sql).await, follow_ups(&sql).await.len()), (0, 1));
}

#[tokio::test]
async fn k15_roles_do_their_part_of_a_batch_and_nothing_else() {
    let sql = Sql::new().await;
    let role = async |name: &str| {
        let client = sql.actor().await;
        run(&client, &format!("set role leasehold_{name}")).await;
        client
    };
    let (producer, viewer) = (role("producer").await, role("viewer").await);
    let (worker, operator) = (role("worker").await, role("operator").await);
    let batch: i64 =
        one(&producer, "select leasehold.open_batch(on_end => '{\"name\": \"e\"}')", &[]).await;
    run(&producer, &format!("select leasehold.enqueue('note', batch => {batch}); select leasehold.seal_batch({batch})")).await;
    assert_eq!(one::<i64>(&viewer, "select total from leasehold.batches", &[]).await, 1);
    assert_eq!(one::<i64>(&viewer, "select batch_id from leasehold.jobs", &[]).await, batch);
    for (client, statement) in [
        (&producer, "select * from leasehold.batches"),
        (&producer, "select leasehold.cancel_batch(1, 'me')"),
        (&worker, "select leasehold.cancel_batch(1, 'me')"),
        (&worker, "select * from leasehold_internal.batch"),
        (&viewer, "select * from leasehold.batch_results(1)"),
        (&viewer, "select leasehold.seal_batch(1)"),
        (&viewer, "select * from leasehold_internal.job_result"),
        (&operator, "select leasehold_internal.close_batch(1)"),
    ] {
        assert_eq!(refused(client, statement, &[]).await.0, "42501", "{statement}");
    }
    run(&operator, &format!("select leasehold.cancel_batch({batch}, 'ann', 'wrong')")).await;
    assert_eq!(
        (seen(&sql, batch).await.0, follow_ups(&sql).await),
        ("cancelled".to_owned(), vec!["e".to_owned()])
    );
    let log: String =
        sql.one("select actor || ' ' || subject || ' ' || detail from leasehold.audit", &[]).await;
    assert_eq!(log, format!("ann batch {batch} wrong"));
}

#[tokio::test]
async fn k18_member_whose_job_was_deleted_by_hand_does_not_keep_its_batch_open() {
    let sql = Sql::new().await;
    let (batch, ids, _) = running(&sql, 1).await;
    sql.run(&format!("delete from leasehold.job where id = {}", ids[0])).await;
    look(&sql).await;
    assert_eq!(seen(&sql, batch).await, ("closed".to_owned(), vec![1, 0, 0, 0, 1]));
    assert_eq!(follow_ups(&sql).await, ["ended"]);
}

#[tokio::test]
async fn k20_follow_up_that_could_not_be_enqueued_is_refused_when_the_batch_is_opened() {
    let sql = Sql::new().await;
    for (draft, why) in [
        ("7", "must be an object"),
        ("{\"kwargs\": {}}", "1 to 200"),
        ("{\"name\": \"a\", \"kwarg\": {}}", "no such field"),
        ("{\"name\": \"mirror.notes.order\"}", "reserved"),
        ("{\"name\": \"leasehold.alarm\"}", "reserved"),
        ("{\"name\": \"a\", \"kwargs\": [1]}", "JSON object"),
        ("{\"name\": \"a\", \"priority\": 1.5}", "cannot be read"),
        ("{\"name\": \"a\", \"queue\": \"No\"}", "queue name"),
        ("{\"name\": \"a\", \"run_after\": -1}", "ten years"),
        ("{\"name\": \"a\", \"scheduled_at\": \"soon\"}", "cannot be read"),
        ("{\"name\": \"a\", \"on_end\": {\"name\": \"b\", \"tag\": 1}}", "on_end.on_end.tag"),
    ] {
        let open = format!("select leasehold.open_batch(on_end => '{draft}')");
        let (code, text) = refused(&sql.client, &open, &[]).await;
        assert!(code.starts_with("LH00") && text.contains(why), "{draft}: {code} {text}");
    }
    let large = "select leasehold.open_batch(on_end => jsonb_build_object('name', 'a', 'kwargs', \
                 jsonb_build_object('t', repeat('x', 70000))))";
    assert!(refused(&sql.client, large, &[]).await.1.contains("64 KiB"));
    let both = "select leasehold.enqueue('a', batch => 1, on_end => '{\"name\": \"b\"}')";
    assert!(refused(&sql.client, both, &[]).await.1.contains("follow-ups of its own"));
}

#[tokio::test]
async fn k13_add_and_seal_do_not_wait_for_the_end_of_a_member_of_an_open_batch() {
    let sql = Sql::new().await;
    let batch = open(&sql).await;
    add(&sql, batch, 1).await;
    let held = claim(&sql.client, "w", 1).await;
    let worker = sql.actor().await;
    run(&worker, "begin").await;
    assert!(complete(&worker, held.ids[0], held.generation).await);
    // The worker's transaction stays open for longer than this timeout.
    sql.run("set lock_timeout = '30s'").await;
    add(&sql, batch, 1).await;
    assert!(sql.one::<bool>("select leasehold.seal_batch($1)", &[&batch]).await);
    run(&worker, "commit").await;
    assert_eq!(seen(&sql, batch).await, ("sealed".to_owned(), vec![2, 1, 0, 0, 0]));
}

#[tokio::test]
async fn k13_add_does_not_wait_for_a_look() {
    let sql = Sql::new().await;
    let batch = open(&sql).await;
    let housekeeper = sql.actor().await;
    run(&housekeeper, "begin").await;
    run(&housekeeper, &format!("select leasehold_internal.close_batch({batch})")).await;
    sql.run("set lock_timeout = '30s'").await;
    add(&sql, batch, 1).await;
    // Nor does the look wait for an add.
    let producer = sql.actor().await;
    run(&producer, "begin").await;
    run(&producer, &format!("select leasehold.enqueue('note', batch => {batch})")).await;
    run(&housekeeper, "commit; set lock_timeout = '30s'").await;
    run(&housekeeper, &format!("select leasehold_internal.close_batch({batch})")).await;
    run(&producer, "commit").await;
    assert_eq!(seen(&sql, batch).await.1[0], 2);
}
