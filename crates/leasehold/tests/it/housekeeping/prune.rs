//! Pruning keeps up, kind by kind, and does not read the same rows again and again.

use std::time::Duration;

use leasehold_testing::TestDatabase;

use super::eager;
use crate::fixture::{count, run, until};
use crate::sql::{Sql, all, run as execute};
use crate::support::{Note, engine};

const KEYS: &str =
    "select elected, removed, more, reached is not null from leasehold_internal.prune_kind('keys')";

/// Returns: elected, removed, more, and whether the call read anything.
async fn prune_keys(sql: &Sql) -> (bool, i32, bool, bool) {
    let row = sql.client.query_one(KEYS, &[]).await.expect("a call");
    (row.get(0), row.get(1), row.get(2), row.get(3))
}

#[tokio::test]
async fn c25_expired_keys_of_waiting_jobs_are_not_read_again() {
    let sql = Sql::new().await;
    sql.run(
        "select leasehold.enqueue('note', key => 'due', key_ttl => '0'); \
         select leasehold.enqueue('note', key => 'later', key_ttl => '0', scheduled_at => now() + interval '1 week')",
    )
    .await;
    assert_eq!(prune_keys(&sql).await, (true, 0, false, true), "both jobs wait");
    assert_eq!(prune_keys(&sql).await, (true, 0, false, false), "nothing is read a second time");
    let looks: Vec<bool> = all(
        &sql.client,
        "select recheck_at between now() + interval '23 hours' and now() + interval '25 hours' \
           from leasehold_internal.idempotency_key order by key",
        &[],
    )
    .await;
    assert_eq!(looks, [false, true], "the one a minute later, the other a day later");
    // How long a key is taken has not changed: it is free as soon as its job is over.
    sql.run("delete from leasehold.job").await;
    let (id, new): (i64, bool) = {
        let row = sql
            .client
            .query_one("select job_id, inserted from leasehold.enqueue('note', key => 'due', key_ttl => '0')", &[])
            .await
            .expect("an enqueue");
        (row.get(0), row.get(1))
    };
    assert!(new && id > 0);
    sql.run("delete from leasehold.job").await;
    sql.run(
        "update leasehold_internal.idempotency_key set recheck_at = now() - interval '1 second'",
    )
    .await;
    assert_eq!(prune_keys(&sql).await, (true, 2, false, true));
}

#[tokio::test]
async fn c25_marks_of_dead_jobs_are_not_read_again() {
    let sql = Sql::new().await;
    let (id, generation) = sql.running().await;
    sql.run(&format!(
        "select * from leasehold.once_start('s', 'a', {id}, {generation}, '-1 second')"
    ))
    .await;
    sql.run(&format!("select leasehold.bury({id}, {generation}, 'useless')")).await;
    let read = "select reached is not null from leasehold_internal.prune_kind('marks')";
    assert!(sql.one::<bool>(read, &[]).await);
    assert!(!sql.one::<bool>(read, &[]).await);
    assert_eq!(sql.count("once_marker").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn c25_round_prunes_until_nothing_is_left() {
    let database = TestDatabase::new().await;
    let (engine, client) = (engine(&database).await, database.connect_directly().await);
    execute(
        &client,
        "insert into leasehold_internal.idempotency_key (queue, key, job_id, request_hash, holds_until) \
             select 'default', 'k' || i, -i, '', now() - interval '1 hour' from generate_series(1, 12000) i; \
         insert into leasehold_internal.lease (lease_generation, lease_expires_at, lease, ended_at, keep_history, queue, claimed_by, job_ids) \
             select i, now(), '30 s', now() - interval '1 hour', true, 'default', 'w', '{}' from generate_series(1, 12000) i; \
         insert into leasehold_internal.once_marker (scope, step, keep_until) \
             select 's', i::text, now() - interval '1 hour' from generate_series(1, 12000) i",
    )
    .await;
    // Only one round: the next would come in an hour.
    let once = eager().prune_every(Duration::from_secs(3600));
    let worker = run(engine.worker().housekeeping(once).handle(async |_: Note| {}));
    until("all of them are gone", async || {
        let left = "select (select count(*) from leasehold_internal.idempotency_key) \
            + (select count(*) from leasehold_internal.lease) + (select count(*) from leasehold_internal.once_marker)";
        count(&client, left).await == 0
    })
    .await;
    worker.stop().await;
}

#[tokio::test]
async fn c25_one_housekeeper_prunes_a_kind_and_a_dead_session_stops_none() {
    let sql = Sql::new().await;
    let insert = "insert into leasehold_internal.idempotency_key (queue, key, job_id, request_hash, holds_until) \
                  select 'default', 'k' || i, -i, '', now() - interval '1 hour' from generate_series(1, 3) i";
    sql.run(insert).await;
    let dead_session = sql.actor().await;
    execute(&dead_session, "begin; select leasehold_internal.prune_kind('keys', 0)").await;
    assert_eq!(prune_keys(&sql).await, (false, 0, false, false));
    assert!(
        sql.one::<bool>("select elected from leasehold_internal.prune_kind('leases')", &[]).await,
        "another kind"
    );
    let anyway = "select removed from leasehold_internal.prune_kind('keys', anyway => true)";
    assert_eq!(sql.one::<i32>(anyway, &[]).await, 3);
}

#[tokio::test]
async fn c25_pruning_keys_reads_no_jobs_but_theirs() {
    let sql = Sql::new().await;
    sql.run(
        "insert into leasehold.job (name, scheduled_at) select 'note', now() + interval '1 day' from generate_series(1, 20000); \
         insert into leasehold_internal.idempotency_key (queue, key, job_id, request_hash, holds_until) \
             select 'default', 'k' || j.id, j.id, '', now() - interval '1 hour' from leasehold.job j; \
         analyze leasehold.job, leasehold_internal.idempotency_key",
    )
    .await;
    let explained = crate::planner::Explained::connect(&sql).await;
    let plans = explained.plans("select leasehold_internal.prune_kind('keys', 10)").await;
    assert!(plans.iter().any(|plan| !plan.on_job.is_empty()), "{plans:?}");
    assert!(plans.iter().all(|plan| !plan.whole), "{plans:?}");
    for plan in plans.iter().filter(|plan| !plan.on_job.is_empty()) {
        assert!(plan.on_job.iter().all(|node| node.contains("job_pkey")), "{plan:?}");
        assert!(plan.pages < 300, "ten keys and their jobs, and not twenty thousand: {plan:?}");
    }
}
