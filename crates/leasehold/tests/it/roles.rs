//! Roles: each may do its part and nothing else.

use tokio_postgres::Client;

use crate::sql::{Sql, all, one, refused, run};

async fn with_role(sql: &Sql, role: &str) -> Client {
    let client = sql.actor().await;
    run(&client, &format!("set role leasehold_{role}")).await;
    client
}

async fn forbidden(client: &Client, statements: &[&str]) {
    for statement in statements {
        let (code, text) = refused(client, statement, &[]).await;
        assert_eq!(code, "42501", "{statement}: {text}");
    }
}

const OPERATOR: [&str; 13] = [
    "select leasehold.cancel(1, 'me')",
    "select leasehold.redrive(array[1::bigint], 'me')",
    "select leasehold.promote(array[1::bigint], 'me')",
    "select leasehold.pause('default', 'me')",
    "select leasehold.resume('default', 'me')",
    "select leasehold.delete_jobs(array[1::bigint], 'me')",
    "select leasehold.update_job(1, 'me', priority => 1)",
    "select leasehold.set_queue('default', 'me', max_lost => 1)",
    "select leasehold.add_schedule('s', '* * * * *', 'UTC', 'default', 'x', '{}', 0, 'once', now(), 'me')",
    "select leasehold.remove_schedule('s', 'me')",
    "select leasehold.pause_schedule('s', 'me')",
    "select leasehold.resume_schedule('s', 'me')",
    "select leasehold.run_schedule('s', 'me')",
];

const INSIDE: [&str; 4] = [
    "select leasehold_internal.bury_rows(array[1::bigint], 1, 'lost', '', '')",
    "select leasehold_internal.cancel_rows(array[1::bigint], false, null, '')",
    "select leasehold_internal.end_lease(1, '{}')",
    "select leasehold_internal.next_generation()",
];

#[tokio::test]
async fn producer_enqueues_and_reads_nothing() {
    let sql = Sql::new().await;
    let producer = with_role(&sql, "producer").await;
    run(
        &producer,
        "select leasehold.enqueue('note', key => 'k'); select leasehold_internal.wake()",
    )
    .await;
    run(
        &producer,
        "select leasehold.enqueue_many(array['note'], array['{}']::jsonb[], keys => array['m'])",
    )
    .await;
    run(&producer, "select leasehold.enqueue_many(array['note'], array['{}']::jsonb[])").await;
    run(
        &producer,
        "insert into leasehold.job (name, scheduled_at, priority, tag, kwargs) \
         values ('index', now() + interval '60 seconds', 1, 'storage', '{\"id\": 1}')",
    )
    .await;
    assert_eq!(sql.count("job").await, 4);
    forbidden(&producer, &OPERATOR).await;
    forbidden(&producer, &INSIDE).await;
    forbidden(
        &producer,
        &[
            "select id from leasehold.job",
            "select 1 from leasehold.job",
            "insert into leasehold.job (name) values ('x') returning kwargs",
            "insert into leasehold.job (name, held) values ('x', true)",
            "insert into leasehold.job (name, attempts, lease_generation) values ('x', 0, 9)",
            "update leasehold.job set priority = 0",
            "delete from leasehold.job",
            "select * from leasehold.jobs",
            "select * from leasehold_internal.idempotency_key",
            "select leasehold.claim('me')",
            "select leasehold.complete(1, 1)",
            "select leasehold_internal.prune()",
            "truncate leasehold.job",
            "create table leasehold.mine (i int)",
            "select setval('leasehold_internal.generation', 1)",
        ],
    )
    .await;
}

#[tokio::test]
async fn producer_cannot_make_the_owner_run_its_code() {
    let sql = Sql::new().await;
    let producer = with_role(&sql, "producer").await;
    // A caller may have created, in its own session, every object that the functions look up by name.
    for (table, columns) in [
        ("leasehold_enqueue_many", "place int, job_id bigint, inserted boolean"),
        ("job", "id bigint, name text"),
        ("idempotency_key", "queue text, key text"),
    ] {
        run(
            &producer,
            &format!(
                "create temporary table {table} ({columns});
                 create function pg_temp.take_over_{table}() returns trigger language plpgsql as $$
                 begin execute 'update leasehold.job set tag = current_user'; return new; end $$;
                 create trigger take_over before insert on {table}
                    for each row execute function pg_temp.take_over_{table}()"
            ),
        )
        .await;
    }
    run(&producer, "select leasehold.enqueue('note', key => 'k')").await;
    drop(
        producer
            .query(
                "select leasehold.enqueue_many(array['note'], array['{}']::jsonb[], keys => array['m'])",
                &[],
            )
            .await,
    );
    let tags: Vec<String> = all(&sql.client, "select tag from leasehold.job", &[]).await;
    assert!(tags.iter().all(String::is_empty), "a trigger of the caller ran as {tags:?}");
}

#[tokio::test]
async fn worker_changes_rows_only_under_the_fence() {
    let sql = Sql::new().await;
    let worker = with_role(&sql, "worker").await;
    run(&worker, "select leasehold.enqueue('note')").await;
    let (id, generation) = {
        let row = worker
            .query_one("select id, lease_generation from leasehold.claim('w')", &[])
            .await
            .unwrap();
        (row.get::<_, i64>(0), row.get::<_, i64>(1))
    };
    run(&worker, &format!("select leasehold.renew(array[{generation}::bigint])")).await;
    run(&worker, &format!("select leasehold.check_lease({id}, {generation})")).await;
    forbidden(
        &worker,
        &[
            "update leasehold.job set held = false",
            "update leasehold.job set attempts = 0",
            "delete from leasehold.job",
            "select kwargs from leasehold.job",
            "update leasehold_internal.lease set lease_expires_at = now()",
            "insert into leasehold.job (name) values ('x')",
            "insert into leasehold_internal.history (outcome) values ('completed')",
            "delete from leasehold_internal.once_marker",
            "select leasehold_internal.prune()",
            "select leasehold_internal.drop_history('0')",
        ],
    )
    .await;
    forbidden(&worker, &OPERATOR).await;
    forbidden(&worker, &INSIDE).await;
    assert!(
        one::<bool>(&worker, "select leasehold.complete($1::bigint, $2)", &[&id, &generation])
            .await
    );
    run(
        &worker,
        "select * from leasehold.once_start('s', 'a', 1, 1); select leasehold_internal.reclaim_leases()",
    )
    .await;
}

#[tokio::test]
async fn viewer_reads_neither_kwargs_nor_error_texts() {
    let sql = Sql::new().await;
    let viewer = with_role(&sql, "viewer").await;
    let (id, generation) = sql.running().await;
    sql.run(&format!("select leasehold.bury({id}, {generation}, 'the password is 1234')")).await;
    sql.enqueue(1).await;
    let seen: i64 =
        one(&viewer, "select count(id) from leasehold.jobs where state <> 'gone'", &[]).await;
    assert_eq!(seen, 2);
    run(&viewer, "select * from leasehold.queues; select * from leasehold.workers").await;
    forbidden(
        &viewer,
        &[
            "select kwargs from leasehold.jobs",
            "select last_error from leasehold.jobs",
            "select errors from leasehold.jobs",
            "select note from leasehold.jobs",
            "select * from leasehold.jobs",
            "select kwargs from leasehold.job",
            "select last_error from leasehold.job",
            "select * from leasehold_internal.dead_job",
            "select * from leasehold_internal.history",
            "select * from leasehold_internal.finished_job",
            "select * from leasehold_internal.once_marker",
            "select leasehold.enqueue('x')",
            "select leasehold.claim('x')",
            "update leasehold_internal.queue set paused_at = now(), paused_by = 'x'",
        ],
    )
    .await;
    forbidden(&viewer, &OPERATOR).await;
}

#[tokio::test]
async fn housekeeper_runs_duties_and_finishes_no_job() {
    let sql = Sql::new().await;
    let housekeeper = with_role(&sql, "housekeeper").await;
    for duty in [
        "select leasehold_internal.reclaim()",
        "select leasehold_internal.clamp_leases()",
        "select leasehold_internal.expire_jobs()",
        "select leasehold_internal.prune()",
        "select leasehold_internal.extend_history()",
        "select leasehold_internal.drop_history('1 day')",
        "insert into leasehold_internal.schedule (name, cron, job_name, next_slot) values ('s', '* * * * *', 'x', now())",
        "select leasehold_internal.fire_schedule('s', next_slot, next_slot + interval '1 minute') from leasehold_internal.schedule",
    ] {
        run(&housekeeper, duty).await;
    }
    assert_eq!(sql.count("job").await, 1, "the schedule fired");
    forbidden(
        &housekeeper,
        &[
            "select leasehold.claim('x')",
            "select leasehold.complete(1, 1)",
            "select id from leasehold.job",
        ],
    )
    .await;
    forbidden(&housekeeper, &OPERATOR).await;
    forbidden(&housekeeper, &INSIDE).await;
}
