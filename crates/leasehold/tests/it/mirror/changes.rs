//! What a change leaves behind: one job per row, in the transaction of the change.

use super::fixture::{Margin, bare};
use crate::fixture::until;

const OF_A: &str = "select count(*) from leasehold.job where kwargs->>'key' = 'a'";

#[tokio::test]
async fn changes_of_a_row_with_a_waiting_job_join_that_job() {
    let margin = Margin::new().await;
    margin.write(&["a"]).await;
    for n in 0..10 {
        margin.sql(&format!("update margin.note set body = '{n}' where id = 'a'")).await;
    }
    margin.sql("delete from margin.note where id = 'a'").await;
    margin.write(&["a"]).await;
    assert_eq!(margin.count(OF_A).await, 1);
    assert_eq!(margin.pass().await.completed, 1);
    margin.assert_equal().await;
}

#[tokio::test]
async fn change_of_a_row_with_a_running_job_adds_a_job() {
    let margin = Margin::new().await;
    margin.write(&["a"]).await;
    margin.sql("select leasehold.claim('w', 'notes')").await;
    margin.sql("update margin.note set body = 'x' where id = 'a'").await;
    assert_eq!(margin.count(OF_A).await, 2);
    margin.sql("update margin.note set body = 'y' where id = 'a'").await;
    assert_eq!(margin.count(OF_A).await, 2, "which the next change joins");
}

#[tokio::test]
async fn change_of_a_row_with_a_locked_job_does_not_wait() {
    let margin = Margin::new().await;
    margin.write(&["a"]).await;
    let other = margin.database.connect_directly().await;
    other.batch_execute("begin; select from leasehold.job for update").await.expect("locked");
    margin.sql("update margin.note set body = 'x' where id = 'a'").await;
    assert_eq!(margin.count(OF_A).await, 2);
    other
        .batch_execute("commit; begin; select from leasehold_internal.idempotency_key for update")
        .await
        .expect("locked");
    margin.sql("update margin.note set body = 'y' where id = 'a'").await;
    assert_eq!(margin.count(OF_A).await, 3);
    other.batch_execute("commit").await.expect("let go");
    assert_eq!(margin.pass().await.completed, 3);
    margin.assert_equal().await;
}

#[tokio::test]
async fn change_does_not_join_a_job_that_is_about_to_expire() {
    let margin = Margin::new().await;
    margin.write(&["a"]).await;
    margin.sql("update leasehold.job set expires_at = now() + interval '1 day'").await;
    margin.sql("update margin.note set body = 'x' where id = 'a'").await;
    assert_eq!(margin.count(OF_A).await, 2);
}

#[tokio::test]
async fn change_makes_a_deferred_job_due_at_its_priority() {
    let margin = Margin::new().await;
    margin.target.faults(|faults| faults.down = true);
    margin.write(&["a"]).await;
    margin.pass().await;
    assert_eq!(margin.count("select count(*) from leasehold.job where deferred").await, 1);
    margin.sql("update leasehold.job set scheduled_at = now() + interval '1 hour'").await;
    margin.target.faults(|faults| faults.down = false);
    margin.sql("update margin.note set body = 'x' where id = 'a'").await;
    let fresh = "select count(*) from leasehold.job where priority = 1 and not deferred and scheduled_at <= now()";
    assert_eq!(margin.count(fresh).await, 1);
    assert_eq!(margin.pass().await.completed, 1);
    margin.assert_equal().await;
}

#[tokio::test]
async fn statement_that_changes_many_rows_adds_jobs_without_keys() {
    let margin = Margin::new().await;
    margin.write_many(1, 101).await;
    assert_eq!(margin.jobs().await, 101);
    assert_eq!(margin.count("select count(*) from leasehold_internal.idempotency_key").await, 0);
    margin.write_many(200, 100).await;
    assert_eq!(margin.count("select count(*) from leasehold_internal.idempotency_key").await, 100);
}

#[tokio::test]
async fn rolled_back_change_leaves_no_row() {
    let margin = Margin::new().await;
    margin
        .sql("begin; insert into margin.note (id) values ('a'); update margin.note set body = 'x'; delete from margin.note; rollback")
        .await;
    for table in ["job", "idempotency_key", "mirror_gone"] {
        assert_eq!(
            margin.count(&format!("select count(*) from {}", crate::sql::qualified(table))).await,
            0,
            "{table}"
        );
    }
}

#[tokio::test]
async fn job_is_due_after_the_verify_delay_of_the_direct_path() {
    let mirror = bare().verify_after(std::time::Duration::from_secs(60));
    let margin = Margin::with(&mirror).await;
    margin.write(&["a"]).await;
    let due = "select count(*) from leasehold.job
                where scheduled_at - enqueued_at between interval '59 seconds' and interval '61 seconds'
                  and priority = 1 and name = 'mirror.notes' and queue = 'notes'
                  and expires_at > now() + interval '29 days'";
    assert_eq!(margin.count(due).await, 1);
    // More than 100 rows are not written directly, so their jobs are due at once.
    margin.write_many(1, 101).await;
    let now = "select count(*) from leasehold.job where scheduled_at <= enqueued_at";
    assert_eq!(margin.count(now).await, 101);
}

#[tokio::test]
async fn transactions_that_change_the_same_rows_do_not_deadlock_on_jobs() {
    let margin = Margin::new().await;
    margin.write(&["a", "b"]).await;
    margin.pass().await;
    let one = margin.database.connect_directly().await;
    let two = margin.database.connect_directly().await;
    one.batch_execute("begin; update margin.note set body = '1' where id = 'b'").await.expect("b");
    let waits = tokio::spawn(async move {
        two.batch_execute(
            "begin; update margin.note set body = '2' where id = 'a';
             update margin.note set body = '2' where id = 'b'; commit",
        )
        .await
        .expect("both, after the other");
    });
    let looker = margin.database.connect_directly().await;
    until("it waits for the row", async || {
        let sql = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()";
        crate::fixture::count(&looker, sql).await == 1
    })
    .await;
    one.batch_execute("commit").await.expect("over");
    waits.await.expect("no deadlock");
    margin.pass().await;
    margin.assert_equal().await;
}

#[tokio::test]
async fn role_that_may_change_a_row_needs_no_right_on_the_engine() {
    let margin = Margin::new().await;
    let user = format!("scribe_{:08x}", rand::random::<u32>());
    // A version above the clock: a row that comes back is above its deletion only if the trigger
    // reads the deletion's version.
    margin
        .sql(&format!(
            "create role {user} nologin; grant usage on schema margin to {user};
             grant select, insert, update, delete on margin.note to {user}; set role {user};
             insert into margin.note (id, version) values ('a', 9000000000000000), ('b', 1);
             update margin.note set body = 'x';
             delete from margin.note where id = 'a'; insert into margin.note (id) values ('a');
             reset role"
        ))
        .await;
    let above =
        "select count(*) from margin.note n join leasehold_internal.mirror_gone g on g.key = n.id
                  where n.version > g.version";
    assert_eq!(margin.count(above).await, 1, "above its deletion");
    margin.pass().await;
    margin.assert_equal().await;
    let call =
        format!("set role {user}; select leasehold_internal.mirror_changed('notes', array['x'])");
    let refused = margin.client.batch_execute(&call).await.expect_err("without a right to call it");
    assert_eq!(refused.code().map(|code| code.code()), Some("42501"));
    margin.sql(&format!("reset role; drop owned by {user}; drop role {user}")).await;
}
