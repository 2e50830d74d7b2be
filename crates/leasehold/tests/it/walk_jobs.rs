//! The walk over all jobs: housekeepers share it, and it frees jobs that a manual change left held.

use crate::sql::Sql;

const WALK: &str =
    "select strays from leasehold_internal.walk_jobs(every => '-1 hour', up_to => 10)";

#[tokio::test]
async fn i4_job_marked_as_held_by_hand_is_returned() {
    let sql = Sql::new().await;
    let (running, generation) = sql.running().await;
    let stray = sql.enqueue(1).await[0];
    sql.run(&format!(
        "update leasehold.job set held = true, lease_generation = 7 where id = {stray}"
    ))
    .await;
    assert_eq!(sql.one::<i32>(WALK, &[]).await, 1);
    assert_eq!(sql.state(stray).await, "ready");
    assert_eq!(sql.state(running).await, "running", "a job with a lease is left alone");
    let finish = "select leasehold.complete($1::bigint, $2)";
    assert!(sql.one::<bool>(finish, &[&running, &generation]).await);
}

#[tokio::test]
async fn i4_job_whose_lease_was_deleted_is_returned_with_its_loss_counted() {
    let sql = Sql::new().await;
    let (id, generation) = sql.running().await;
    sql.run("delete from leasehold_internal.lease").await;
    assert_eq!(sql.one::<i32>(WALK, &[]).await, 1);
    let lost = "select lost_count::int from leasehold.job where id = $1";
    assert_eq!(sql.one::<i32>(lost, &[&id]).await, 1);
    let finish = "select leasehold.complete($1::bigint, $2)";
    assert!(!sql.one::<bool>(finish, &[&id, &generation]).await, "the old holder is fenced off");
}

#[tokio::test]
async fn d1_walk_continues_where_another_housekeeper_stopped() {
    let sql = Sql::new().await;
    sql.enqueue(25).await;
    sql.run("update leasehold.job set expires_at = now() - interval '1 minute'").await;
    let other = sql.actor().await;
    let piece = "select expired from leasehold_internal.walk_jobs(every => '-1 hour', up_to => 10)";
    let mut found = Vec::new();
    for client in [&sql.client, &other, &sql.client] {
        found.push(client.query_one(piece, &[]).await.expect("a piece").get::<_, i32>(0));
    }
    assert_eq!(found, [10, 10, 5]);
    // Within the pause no housekeeper walks a second time.
    let again = "select expired from leasehold_internal.walk_jobs(every => '1 hour')";
    sql.enqueue(1).await;
    sql.run("update leasehold.job set expires_at = now() - interval '1 minute'").await;
    assert_eq!(sql.one::<i32>(again, &[]).await, 0);
}

#[tokio::test]
async fn a25_job_that_cannot_be_buried_does_not_stop_the_walk() {
    let sql = Sql::new().await;
    let ids = sql.enqueue(25).await;
    sql.run(&format!(
        "update leasehold.job set expires_at = now() - interval '1 minute'; \
         create function public.refuse() returns trigger language plpgsql as \
         $$ begin raise exception 'not this one'; end $$; \
         create trigger refuse before insert on leasehold_internal.dead_job for each row \
         when (new.id = {}) execute function public.refuse()",
        ids[3]
    ))
    .await;
    let piece = "select expired from leasehold_internal.walk_jobs(every => '-1 hour', up_to => 10)";
    let mut found = Vec::new();
    for _ in 0..3 {
        found.push(sql.one::<i32>(piece, &[]).await);
    }
    assert_eq!(found, [9, 10, 5]);
}

#[tokio::test]
async fn a25_stray_that_cannot_be_reclaimed_does_not_stop_the_walk() {
    let sql = Sql::new().await;
    let ids = sql.enqueue(5).await;
    sql.run(&format!(
        "update leasehold.job set held = true, lease_generation = 7; \
         create function public.refuse() returns trigger language plpgsql as \
         $$ begin raise exception 'not this one'; end $$; \
         create trigger refuse before update on leasehold.job for each row \
         when (new.id = {} and not new.held) execute function public.refuse()",
        ids[2]
    ))
    .await;
    assert_eq!(sql.one::<i32>(WALK, &[]).await, 4);
}
