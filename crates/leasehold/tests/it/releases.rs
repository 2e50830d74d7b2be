//! Two releases side by side: programs of the former one after the migration, and this one before it.

use leasehold::migrate::{self, Functions, OLDEST_READER, RELEASE};
use leasehold::{ConnectError, Leasehold, SchemaError};
use tokio_postgres::Client;
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::fixture::{completed, run as run_worker, until};
use crate::migrate::{connect, drop_empty, empty};
use crate::sql::{Sql, all, one, refused, run};
use crate::support::Note;

const FORMER: &str = include_str!("former_release/schema.sql");

/// A database with the former release's schema, and one connection to it.
struct Upgrade {
    sql: Sql,
    name: String,
    client: Client,
}

impl Upgrade {
    async fn start() -> Self {
        let sql = Sql::new().await;
        let name = empty(&sql).await;
        let client = connect(&sql.database, &name).await;
        run(&client, FORMER).await;
        Self { sql, name, client }
    }

    async fn connect(&self) -> Client {
        connect(&self.sql.database, &self.name).await
    }

    fn url(&self) -> String {
        self.sql.database.direct_url().replace(self.sql.database.name(), &self.name)
    }

    async fn migrate(&self) {
        let mut client = self.connect().await;
        migrate::up(&mut client).await.expect("this release's schema over the former one's");
    }

    async fn end(self) {
        drop(self.client);
        drop_empty(&self.sql, &self.name).await;
    }
}

/// A worker of the former release: the statements that it sends, with the types that it names.
struct FormerWorker<'a> {
    client: &'a Client,
    name: &'a str,
}

struct Claimed {
    ids: Vec<i64>,
    generation: i64,
}

impl FormerWorker<'_> {
    async fn enqueue(&self, n: i64, key: Option<&str>) -> i64 {
        let (kwargs, queue) = (serde_json::json!({ "n": n }), "default");
        let no_time: Option<std::time::SystemTime> = None;
        let (none, text): (Option<f64>, Option<&str>) = (None, None);
        let params: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 12] = [
            (&"note", Type::TEXT),
            (&kwargs, Type::JSONB),
            (&queue, Type::TEXT),
            (&0_i32, Type::INT4),
            (&0_f64, Type::FLOAT8),
            (&no_time, Type::TIMESTAMPTZ),
            (&none, Type::FLOAT8),
            (&"", Type::TEXT),
            (&None::<i32>, Type::INT4),
            (&key, Type::TEXT),
            (&86_400_f64, Type::FLOAT8),
            (&text, Type::TEXT),
        ];
        let sql = include_str!("former_release/queries/enqueue.sql");
        self.client.query_typed(sql, &params).await.expect("enqueued")[0].get(0)
    }

    /// Claims from the start of the order.
    async fn claim(&self, up_to: i32, claim_id: Uuid) -> Option<Claimed> {
        let names = ["note".to_owned()];
        let (priorities, times, ids): (Vec<i32>, Vec<std::time::SystemTime>, Vec<i64>) =
            Default::default();
        let sql = include_str!("former_release/queries/claim_next.sql");
        let rows = self
            .client
            .query_typed(
                sql,
                &[
                    (&self.name, Type::TEXT),
                    (&"default", Type::TEXT),
                    (&up_to, Type::INT4),
                    (&claim_id, Type::UUID),
                    (&&names[..], Type::TEXT_ARRAY),
                    (&false, Type::BOOL),
                    (&true, Type::BOOL),
                    (&vec![false; priorities.len()], Type::BOOL_ARRAY),
                    (&priorities, Type::INT4_ARRAY),
                    (&times, Type::TIMESTAMPTZ_ARRAY),
                    (&ids, Type::INT8_ARRAY),
                    (&true, Type::BOOL),
                ],
            )
            .await
            .expect("a claim");
        Self::read(&rows)
    }

    /// Claims one job on its last chance.
    async fn claim_lost(&self) -> Option<Claimed> {
        let sql = include_str!("former_release/queries/claim_lost.sql");
        let (names, claim_id) = (["note".to_owned()], Uuid::new_v4());
        let rows = self
            .client
            .query_typed(
                sql,
                &[
                    (&self.name, Type::TEXT),
                    (&"default", Type::TEXT),
                    (&claim_id, Type::UUID),
                    (&&names[..], Type::TEXT_ARRAY),
                ],
            )
            .await
            .expect("a claim");
        Self::read(&rows)
    }

    async fn recover(&self, claim_id: Uuid) -> Option<Claimed> {
        let sql = include_str!("former_release/queries/recover_claim.sql");
        let params = [(&self.name as _, Type::TEXT), (&claim_id as _, Type::UUID)];
        Self::read(&self.client.query_typed(sql, &params).await.expect("an answer"))
    }

    fn read(rows: &[tokio_postgres::Row]) -> Option<Claimed> {
        // An empty claim returns one row without a job.
        let ids: Vec<i64> = rows.iter().filter_map(|row| row.get(2)).collect();
        (!ids.is_empty()).then(|| Claimed { ids, generation: rows[0].get(10) })
    }

    async fn complete(&self, ids: &[i64], generation: i64) -> usize {
        let sql = "select * from leasehold.complete_many($1, $2)";
        let params = [(&ids as _, Type::INT8_ARRAY), (&generation as _, Type::INT8)];
        self.client.query_typed(sql, &params).await.expect("completed").len()
    }

    /// Ends one attempt in each other way, completes one in a transaction, and completes the rest.
    async fn end_in_every_way(&self, claimed: &Claimed) {
        let (ids, generation) = (&claimed.ids, claimed.generation);
        let state = "select state from leasehold.renew(array[$1::bigint])";
        assert_eq!(one::<String>(self.client, state, &[&generation]).await, "renewed");
        let none: Vec<i64> =
            all(self.client, "select leasehold_internal.cancel_requests($1)", &[ids]).await;
        assert_eq!(none, [0_i64; 0]);
        let fail = "select leasehold.fail($1, $2, $3, make_interval(secs => $4))";
        let word: String =
            one(self.client, fail, &[&ids[0], &generation, &"why", &Some(0_f64)]).await;
        assert_eq!(word, "retry");
        let snooze = "select leasehold.snooze($1, $2, make_interval(secs => $3))";
        assert!(one::<bool>(self.client, snooze, &[&ids[1], &generation, &0_f64]).await);
        let bury = "select leasehold.bury($1, $2, $3, $4)";
        assert!(one::<bool>(self.client, bury, &[&ids[2], &generation, &"why", &"rejected"]).await);
        let release = "select * from leasehold.release($1, $2)";
        let released: Vec<i64> = all(self.client, release, &[&&ids[3..4], &generation]).await;
        assert_eq!(released, ids[3..4]);
        let cancel = "select leasehold.finish_cancelled($1, $2, $3)";
        assert!(one::<bool>(self.client, cancel, &[&ids[4], &generation, &"why"]).await);
        let defer = "select job_id from leasehold_internal.defer_many($1, $2, $3, $4, $5)";
        let deferred: Vec<i64> = all(
            self.client,
            defer,
            &[&&ids[5..6], &generation, &&[0_f64][..], &&["later"][..], &&[false][..]],
        )
        .await;
        assert_eq!(deferred, ids[5..6]);
        run(self.client, "begin").await;
        let complete = "select * from leasehold_internal.complete_rows($1, $2)";
        let done: Vec<i64> = all(self.client, complete, &[&&ids[6..7], &generation]).await;
        assert_eq!(done, ids[6..7]);
        run(self.client, "commit").await;
        run(self.client, &format!("select leasehold_internal.settle({generation})")).await;
        let explain = "select state from leasehold_internal.explain_finish($1, $2)";
        assert_eq!(
            one::<String>(self.client, explain, &[&&ids[6..7], &generation]).await,
            "finished"
        );
        assert_eq!(self.complete(&ids[7..], generation).await, ids.len() - 7);
    }

    /// Runs the duties of its housekeeper, and the other statements that it sends.
    async fn run_housekeeping(&self) {
        for statement in [
            "select leasehold_internal.clamp_leases()",
            "select elected, queue, returned, buried from leasehold_internal.reclaim(100, true)",
            "select expired, strays from leasehold_internal.walk_jobs()",
            "select leases, keys, markers, workers, dead from leasehold_internal.prune(dead_for => make_interval(secs => 86400))",
            "select leasehold_internal.extend_history()",
            "select leasehold_internal.drop_history(make_interval(secs => 604800))",
            "select leasehold_internal.sample_due()",
            "select leasehold_internal.sample()",
            "select leasehold_internal.register_worker('w', 'w', 'host', 1, '0.1.0', array['default'], array['note'], 4, 0, false)",
            "select leasehold_internal.unregister_worker('w')",
            "select leasehold_internal.lost_priority('default', array['note'])",
            "select claim_size from leasehold_internal.queue_settings('default')",
            "select leasehold_internal.wake('default')",
            "select leasehold_internal.next_claim()",
            "select leasehold.complete_waiting(array[0::bigint])",
        ] {
            run(self.client, statement).await;
        }
        let due = include_str!("former_release/queries/due_schedules.sql");
        let params =
            [(&None::<std::time::SystemTime> as _, Type::TIMESTAMPTZ), (&"" as _, Type::TEXT)];
        self.client.query_typed(due, &params).await.expect("schedules");
    }
}

#[tokio::test]
async fn i1_i9_calls_of_a_former_worker_work_after_the_migration() {
    let upgrade = Upgrade::start().await;
    let former = FormerWorker { client: &upgrade.client, name: "former" };
    for n in 0..30 {
        former.enqueue(n, Some(&format!("key {n}"))).await;
    }
    let before_id = Uuid::new_v4();
    let before = former.claim(10, before_id).await.expect("ten jobs");
    upgrade.migrate().await;

    // It ends after the migration what it claimed before.
    let again = former.recover(before_id).await.expect("its claim is still there");
    assert_eq!((again.ids.len(), again.generation), (10, before.generation));
    former.end_in_every_way(&before).await;
    former.run_housekeeping().await;

    // It continues to claim, under generations of the new kind.
    let first = former.enqueue(0, Some("key 0")).await;
    assert_eq!(first, before.ids[0], "its key is known");
    let after = former.claim(10, Uuid::new_v4()).await.expect("more jobs");
    assert!(after.generation > before.generation);
    former.end_in_every_way(&after).await;

    // This release's functions return a job that it lost, and it claims that job, too.
    let lost = former.claim(1, Uuid::new_v4()).await.expect("one job");
    run(
        &upgrade.client,
        "update leasehold_internal.lease set lease_expires_at = now() - interval '1 hour' where ended_at is null; \
         select leasehold_internal.reclaim_leases(); update leasehold.job set scheduled_at = now() where not held",
    )
    .await;
    assert_eq!(former.complete(&lost.ids, lost.generation).await, 0, "the fence holds");
    run(&upgrade.client, "update leasehold.job set lost_count = 2 where lost_count = 1").await;
    let alone = former.claim_lost().await.expect("the lost job");
    assert_eq!(alone.ids, lost.ids);
    assert_eq!(former.complete(&alone.ids, alone.generation).await, 1);
    upgrade.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn i1_i9_workers_of_both_releases_share_one_queue() {
    let upgrade = Upgrade::start().await;
    let former = FormerWorker { client: &upgrade.client, name: "former" };
    for n in 0..200 {
        former.enqueue(n, None).await;
    }
    let held = former.claim(20, Uuid::new_v4()).await.expect("twenty jobs");
    upgrade.migrate().await;
    let engine = Leasehold::connect(&upgrade.url()).await.expect("an engine");
    let worker = run_worker(engine.worker().queue("default", 4).handle(async |_: Note| {}));
    let watching = upgrade.connect().await;
    let mut by_former = former.complete(&held.ids, held.generation).await;
    while let Some(claimed) = former.claim(10, Uuid::new_v4()).await {
        by_former += former.complete(&claimed.ids, claimed.generation).await;
    }
    until("all done", async || crate::fixture::jobs(&watching).await == 0).await;
    worker.stop().await;
    drop(engine);
    assert!(by_former >= 20);
    assert_eq!(completed(&watching).await, 200, "each job once");
    let ids = "select count(distinct id) from leasehold_internal.history, unnest(job_ids) as id";
    assert_eq!(one::<i64>(&watching, ids, &[]).await, 200);
    drop(watching);
    upgrade.end().await;
}

async fn connect_error(url: &str) -> ConnectError {
    match Leasehold::connect(url).await {
        Ok(_) => panic!("this release must not start here"),
        Err(error) => error,
    }
}

#[tokio::test]
async fn i1_job_that_a_new_bound_would_refuse_is_claimed_after_the_migration() {
    let upgrade = Upgrade::start().await;
    run(
        &upgrade.client,
        "insert into leasehold.job (name, trace_context) values ('note', repeat('x', 5000)), ('note', 'short')",
    )
    .await;
    upgrade.migrate().await;
    let claimed = "select count(*) from leasehold.claim('w')";
    assert_eq!(one::<i64>(&upgrade.client, claimed, &[]).await, 2);
    let kept = "select count(trace_context) from leasehold.job";
    assert_eq!(one::<i64>(&upgrade.client, kept, &[]).await, 1, "the long one was dropped");
    upgrade.end().await;
}

#[tokio::test]
async fn i9_release_refuses_a_schema_or_functions_older_than_its_own() {
    let upgrade = Upgrade::start().await;
    let error = connect_error(&upgrade.url()).await;
    assert!(matches!(error, ConnectError::Schema(SchemaError::Old { .. })), "{error:?}");
    assert!(error.to_string().contains("leasehold migrate up"), "{error}");
    upgrade.migrate().await;
    let engine = Leasehold::connect(&upgrade.url()).await.expect("current");
    drop(engine);
    // Its migrations, but the functions that an older release recorded.
    let older =
        "update leasehold.schema_version set checksum = '\\x00', release = null where version = 0";
    run(&upgrade.client, older).await;
    let error = connect_error(&upgrade.url()).await;
    assert!(matches!(error, ConnectError::Schema(SchemaError::OldFunctions)), "{error:?}");
    assert!(error.to_string().contains("leasehold migrate up"), "{error}");
    let engine = Leasehold::connect_and_migrate(&upgrade.url()).await.expect("replaced");
    drop(engine);
    upgrade.end().await;
}

/// Makes the schema look as a later release leaves it, with a later function.
async fn later_release(client: &Client, oldest_reader: i32) {
    run(
        client,
        &format!(
            "create or replace function leasehold.contract() returns int language sql immutable as 'select 2'; \
             update leasehold.schema_version set checksum = '\\x01', release = {}, oldest_reader = {oldest_reader} \
              where version = 0; \
             insert into leasehold.schema_version (version, name, checksum, release, oldest_reader) \
             values (99, 'later', '\\x02', {}, {oldest_reader})",
            RELEASE + 1,
            RELEASE + 1
        ),
    )
    .await;
}

#[tokio::test]
async fn i3_i9_program_starts_again_on_a_later_schema_that_admits_it_and_replaces_nothing() {
    let sql = Sql::new().await;
    later_release(&sql.client, RELEASE).await;
    let engine = Leasehold::connect(&sql.database.direct_url()).await.expect("admitted");
    drop(engine);
    let engine = Leasehold::connect_and_migrate(&sql.database.direct_url()).await;
    drop(engine.expect("nothing to migrate"));
    assert_eq!(
        sql.one::<i32>("select leasehold.contract()", &[]).await,
        2,
        "the later one's stays"
    );
    let status = migrate::status(&sql.client).await.unwrap();
    assert_eq!(status.functions, Functions::Newer);
    assert!(status.problem().is_none() && !status.is_current());
    // The printed SQL, run by hand, does not replace them either.
    let printed = migrate::sql();
    let (_, functions) = printed.split_once("do $guard$").expect("a guard before the functions");
    let by_hand = sql.client.batch_execute(&format!("begin; do $guard$ {functions}")).await;
    assert_eq!(crate::sql::code(&by_hand.expect_err("refused")), "LH010");
}

#[tokio::test]
async fn i9_program_refuses_a_later_schema_that_does_not_admit_it() {
    let sql = Sql::new().await;
    later_release(&sql.client, RELEASE + 1).await;
    let error = connect_error(&sql.database.direct_url()).await;
    assert!(matches!(error, ConnectError::Schema(SchemaError::New { found: 99, .. })), "{error:?}");
    assert!(error.to_string().contains("upgrade this program"), "{error}");
    let mut client = sql.actor().await;
    assert!(migrate::up(&mut client).await.is_err());
    assert_eq!(sql.one::<i32>("select leasehold.contract()", &[]).await, 2);
}

#[tokio::test]
async fn i9_second_migrator_keeps_newer_functions() {
    let sql = Sql::new().await;
    // An older migrator has looked and found something to do; a newer one finishes before it gets
    // the lock.
    run(&sql.client, "update leasehold.schema_version set checksum = '\\x00' where version = 0")
        .await;
    let newer = sql.actor().await;
    run(&newer, "begin; select pg_advisory_xact_lock(7305, 1)").await;
    let mut older = sql.actor().await;
    let pid: i32 = one(&older, "select pg_backend_pid()", &[]).await;
    let migrating = tokio::spawn(async move { migrate::up(&mut older).await });
    crate::sql::blocked(&sql.client, pid).await;
    later_release(&newer, 0).await;
    run(&newer, "commit").await;
    let applied = crate::sql::joined(migrating).await.expect("nothing was left to do");
    assert_eq!(applied, [0_i32; 0]);
    assert_eq!(sql.one::<i32>("select leasehold.contract()", &[]).await, 2);
}

/// Functions with their arguments and results, types and views with their columns: what callers see.
const OFFERED: &str = "
    select format('function %s(%s) returns %s', p.proname, pg_get_function_arguments(p.oid),
                  pg_get_function_result(p.oid))
      from pg_proc p where p.pronamespace in ('leasehold'::regnamespace, 'leasehold_internal'::regnamespace) and p.prokind = 'f'
    union all
    select format('%s %s.%s %s', case c.relkind when 'v' then 'view' when 'c' then 'type' else 'table' end,
                  c.relname, a.attname, format_type(a.atttypid, a.atttypmod))
      from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
     where c.relnamespace in ('leasehold'::regnamespace, 'leasehold_internal'::regnamespace) and c.relkind in ('r', 'p', 'v', 'c')
       and not c.relispartition
    union all
    select format('role %s: %s', a.grantee::regrole, p.proname)
      from pg_proc p cross join lateral aclexplode(p.proacl) a
     where p.pronamespace in ('leasehold'::regnamespace, 'leasehold_internal'::regnamespace) and a.grantee <> 0 and a.grantee <> p.proowner
    order by 1";

/// What the former release offered and this one does not, each with the reason why no former program
/// misses it. Do not list a name that former programs call: raise `OLDEST_READER` instead.
const RETIRED: &[(&str, &str)] = &[];

#[tokio::test]
async fn i9_release_still_offers_every_object_of_the_former_one() {
    let upgrade = Upgrade::start().await;
    let former: Vec<String> = all(&upgrade.client, OFFERED, &[]).await;
    let now: Vec<String> = all(&upgrade.sql.client, OFFERED, &[]).await;
    assert!(former.len() > 300, "{}", former.len());
    let retired = |one: &String| RETIRED.iter().any(|(name, _)| one.contains(name));
    let missing: Vec<&String> =
        former.iter().filter(|one| !now.contains(one) && !retired(one)).collect();
    assert!(
        missing.is_empty(),
        "programs of the former release call these: keep them beside what is new, or raise \
         OLDEST_READER (now {OLDEST_READER}): {missing:#?}"
    );
    upgrade.migrate().await;
    let upgraded: Vec<String> = all(&upgrade.client, OFFERED, &[]).await;
    let lacking: Vec<&String> = now.iter().filter(|one| !upgraded.contains(one)).collect();
    assert!(lacking.is_empty(), "an upgraded database lacks: {lacking:#?}");
    let (code, _) = refused(&upgrade.client, "select leasehold.no_such_function()", &[]).await;
    assert_eq!(code, "42883");
    upgrade.end().await;
}
