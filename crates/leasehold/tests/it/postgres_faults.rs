//! PostgreSQL kills, restarts, locks and copies; the contract holds.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use leasehold_testing::{PrivatePostgres, TestDatabase};
use tokio::sync::Barrier;
use tokio::task::block_in_place;
use tokio_postgres::{Client, NoTls};

use crate::fixture::{soon, until};
use crate::sql::{Sql, blocked, claim, code, joined, one, pid, run, text, try_claim};

pub async fn connect(postgres: &PrivatePostgres, database: &str) -> Client {
    let (client, connection) = postgres.config(database).connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

#[tokio::test(flavor = "multi_thread")]
async fn a9_crash_during_a_claim_claims_nothing() {
    let mut postgres = block_in_place(|| PrivatePostgres::throwaway().start().unwrap());
    let database = TestDatabase::on(&postgres).await.unwrap();
    let client = database.connect_directly().await;
    run(
        &client,
        "select leasehold.enqueue_many(array_fill('note'::text, array[100]), array_fill('{}'::jsonb, array[100]));
         create function public.stall() returns trigger language plpgsql as $$
         begin
            if new.held and new.id = (select min(id) + 40 from leasehold.job) then
                perform pg_advisory_xact_lock(41);
            end if;
            return new;
         end $$;
         create trigger stall before update on leasehold.job for each row execute function public.stall();
         select pg_advisory_lock(41)",
    )
    .await;
    let worker = database.connect_directly().await;
    let worker_pid = pid(&worker).await;
    let claiming = tokio::spawn(async move { try_claim(&worker, "worker", 100).await.is_err() });
    blocked(&client, worker_pid).await;
    block_in_place(|| postgres.crash().unwrap());
    assert!(joined(claiming).await, "the claimer sees the connection go");
    block_in_place(|| postgres.start_again().unwrap());
    let client = connect(&postgres, database.name()).await;
    let untouched = "select count(*) from leasehold.job where not held and attempts = 0";
    assert_eq!(one::<i64>(&client, untouched, &[]).await, 100);
    assert_eq!(one::<i64>(&client, "select count(*) from leasehold_internal.lease", &[]).await, 0);
    run(&client, "drop trigger stall on leasehold.job").await;
    assert_eq!(claim(&client, "next", 100).await.ids.len(), 100);
}

/// Claims after the copy from which the new primary starts. Returns the generations that the old and
/// the new primary gave out, and whether the new one accepted the old worker's finish.
async fn lossy_failover(predictable: bool) -> (i64, i64, bool) {
    let home = std::env::temp_dir().join(format!("lh-failover-{:016x}", rand::random::<u64>()));
    let (old_dir, new_dir) = (home.join("old"), home.join("new"));
    let mut old = block_in_place(|| PrivatePostgres::kept_in(&old_dir).start().unwrap());
    let database = TestDatabase::on(&old).await.unwrap();
    let client = connect(&old, database.name()).await;
    run(&client, "select leasehold.enqueue('note')").await;
    if predictable {
        run(
            &client,
            "create or replace function leasehold_internal.next_generation() returns bigint language sql volatile \
             security definer as $$ select nextval('leasehold_internal.generation') << 20 $$",
        )
        .await;
    }
    drop(client);
    block_in_place(|| {
        old.stop().unwrap();
        let copied = Command::new("cp").arg("-a").arg(&old_dir).arg(&new_dir).status().unwrap();
        assert!(copied.success());
        old.start_again().unwrap();
    });
    let client = connect(&old, database.name()).await;
    let lost = claim(&client, "old worker", 1).await;
    drop(client);
    block_in_place(|| old.crash().unwrap());

    let new = block_in_place(|| PrivatePostgres::kept_in(&new_dir).start().unwrap());
    let client = connect(&new, database.name()).await;
    let held = claim(&client, "new worker", 1).await;
    assert_eq!(held.ids, lost.ids, "the claim was lost with the old primary");
    let finish = "select leasehold.complete($1::bigint, $2)";
    let passed: bool = one(&client, finish, &[&lost.ids[0], &lost.generation]).await;
    if !passed {
        assert!(one::<bool>(&client, finish, &[&held.ids[0], &held.generation]).await);
    }
    drop((client, database));
    block_in_place(|| {
        drop((old, new));
        drop(std::fs::remove_dir_all(&home));
    });
    (lost.generation, held.generation, passed)
}

#[tokio::test(flavor = "multi_thread")]
async fn a14_generation_from_before_a_lossy_failover_finishes_nothing() {
    let (lost, held, passed) = lossy_failover(false).await;
    assert_ne!(lost, held);
    assert!(!passed, "the old worker finished the new worker's attempt");
}

#[tokio::test(flavor = "multi_thread")]
async fn b14_generation_after_a_lossy_failover_is_greater_than_every_lost_one() {
    let (lost, held, _) = lossy_failover(false).await;
    assert!(held > lost, "{lost}, then {held}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sabotage_without_random_bits_a_lossy_failover_repeats_a_generation() {
    let (lost, held, passed) = lossy_failover(true).await;
    assert_eq!((lost, passed), (held, true), "A14 shows nothing if this does not go wrong");
}

#[tokio::test(flavor = "multi_thread")]
async fn c20_restored_backup_repeats_only_jobs_finished_since() {
    let home = std::env::temp_dir().join(format!("lh-restore-{:016x}", rand::random::<u64>()));
    let (live_dir, backup_dir) = (home.join("live"), home.join("backup"));
    let mut live = block_in_place(|| PrivatePostgres::kept_in(&live_dir).start().unwrap());
    let database = TestDatabase::on(&live).await.unwrap();
    let client = connect(&live, database.name()).await;
    let enqueue = async |client: &Client, key: &str| {
        let sql = "select job_id from leasehold.enqueue('note', key => $1, key_ttl => '1 day')";
        one::<i64>(client, sql, &[&key]).await
    };
    let finish = "select leasehold.complete($1::bigint, $2)";
    let finished = enqueue(&client, "finished before").await;
    let first = claim(&client, "worker", 1).await;
    assert!(one::<bool>(&client, finish, &[&finished, &first.generation]).await);
    let running = enqueue(&client, "running").await;
    let held = claim(&client, "worker", 1).await;
    let waiting = enqueue(&client, "waiting").await;
    drop(client);
    block_in_place(|| {
        live.stop().unwrap();
        let copied = Command::new("cp").arg("-a").arg(&live_dir).arg(&backup_dir).status().unwrap();
        assert!(copied.success());
        live.start_again().unwrap();
    });
    // Everything is finished after the backup, and one job is new.
    let client = connect(&live, database.name()).await;
    assert!(one::<bool>(&client, finish, &[&running, &held.generation]).await);
    let later = claim(&client, "worker", 1).await;
    assert!(one::<bool>(&client, finish, &[&waiting, &later.generation]).await);
    enqueue(&client, "after").await;
    drop(client);
    block_in_place(|| live.crash().unwrap());

    let restored = block_in_place(|| PrivatePostgres::kept_in(&backup_dir).start().unwrap());
    let client = connect(&restored, database.name()).await;
    // The finish of a worker from before the loss changes nothing.
    assert!(!one::<bool>(&client, finish, &[&waiting, &later.generation]).await);
    run(
        &client,
        "update leasehold_internal.lease set lease_expires_at = now() - interval '1 hour';
         select * from leasehold_internal.reclaim_leases();
         update leasehold.job set scheduled_at = now() - interval '1 second' where not held",
    )
    .await;
    let mut again = Vec::new();
    loop {
        let claimed = claim(&client, "worker", 10).await;
        if claimed.ids.is_empty() {
            break;
        }
        for id in &claimed.ids {
            assert!(one::<bool>(&client, finish, &[id, &claimed.generation]).await);
        }
        again.extend(claimed.ids);
    }
    again.sort_unstable();
    assert_eq!(
        again,
        [running, waiting],
        "under the ids that they had, which effects can remember"
    );
    // The key of a finished job is still known. A job that was enqueued since is gone, and its key
    // enqueues it again.
    assert_eq!(enqueue(&client, "finished before").await, finished);
    enqueue(&client, "after").await;
    assert_eq!(one::<i64>(&client, "select count(*) from leasehold.job", &[]).await, 1);
    drop((client, database));
    block_in_place(|| {
        drop((live, restored));
        drop(std::fs::remove_dir_all(&home));
    });
}

#[tokio::test]
async fn b2_caller_without_a_reply_to_its_commit_learns_the_outcome() {
    let sql = Sql::new().await;
    let enqueue = "select job_id from leasehold.enqueue('note', key => 'order 1')";
    let status = "select pg_xact_status($1::text::xid8)";
    for (ends_well, expected) in [(false, "aborted"), (true, "committed")] {
        let caller = sql.actor().await;
        let caller_pid = pid(&caller).await;
        run(&caller, "begin").await;
        let id: i64 = one(&caller, enqueue, &[]).await;
        let tx: String = one(&caller, "select pg_current_xact_id()::text", &[]).await;
        assert_eq!(sql.one::<String>(status, &[&tx]).await, "in progress");
        if ends_well {
            run(&caller, "commit").await; // and the reply never arrived
        } else {
            assert!(
                sql.one::<bool>("select pg_terminate_backend($1, 60000)", &[&caller_pid]).await
            );
        }
        assert_eq!(sql.one::<String>(status, &[&tx]).await, expected);
        assert_eq!(sql.count("job").await, i64::from(ends_well), "{expected}");
        if ends_well {
            assert_eq!(
                sql.one::<i64>(enqueue, &[]).await,
                id,
                "the whole again, with the same key"
            );
            assert_eq!(sql.count("job").await, 1);
        }
    }
}

/// How many workers a lock has blocked, in a claim and in a finish.
#[derive(Default)]
struct Met {
    claiming: AtomicUsize,
    finishing: AtomicUsize,
}

/// Claims and finishes until all jobs are done, however often a lock is in the way. It waits at the
/// gate twice while it holds its first jobs.
async fn work_through_locks(
    client: Client,
    jobs: usize,
    done: &AtomicUsize,
    met: &Met,
    gate: &Barrier,
) {
    let (mut held_up, mut first) = ((false, false), true);
    while done.load(Ordering::SeqCst) < jobs {
        let held = match try_claim(&client, "w", 5).await {
            Ok(held) => held,
            Err(error) => {
                assert_eq!(code(&error), "55P03", "{}", text(&error));
                if !std::mem::replace(&mut held_up.0, true) {
                    met.claiming.fetch_add(1, Ordering::SeqCst);
                }
                continue;
            }
        };
        if std::mem::take(&mut first) {
            gate.wait().await;
            gate.wait().await;
        }
        let finish = "select leasehold.complete_many($1::bigint[], $2)";
        let finished = loop {
            match client.query(finish, &[&held.ids, &held.generation]).await {
                Ok(rows) => break rows.len(),
                Err(error) => {
                    assert_eq!(code(&error), "55P03", "{}", text(&error));
                    if !std::mem::replace(&mut held_up.1, true) {
                        met.finishing.fetch_add(1, Ordering::SeqCst);
                    }
                }
            }
        };
        done.fetch_add(finished, Ordering::SeqCst);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn c16_exclusive_locks_on_the_job_table_lose_no_job() {
    const WORKERS: usize = 4;
    let sql = Sql::new().await;
    let jobs = 1200;
    sql.client
        .execute(
            "insert into leasehold.job (name) select 'note' from generate_series(1, $1)",
            &[&jobs],
        )
        .await
        .unwrap();
    let lock = "begin; lock table leasehold.job in access exclusive mode";
    let administrator = sql.actor().await;
    run(&administrator, lock).await;
    let shared = Arc::new((AtomicUsize::new(0), Met::default(), Barrier::new(WORKERS + 1)));
    let (_, met, gate) = &*shared;
    let mut workers = Vec::new();
    for _ in 0..WORKERS {
        let client = sql.actor().await;
        run(&client, "set lock_timeout = '50ms'").await;
        let shared = Arc::clone(&shared);
        workers.push(tokio::spawn(async move {
            let (done, met, gate) = &*shared;
            work_through_locks(client, jobs as usize, done, met, gate).await;
        }));
    }
    let all = |met: &AtomicUsize| met.load(Ordering::SeqCst) == WORKERS;
    until("every claim ran into the lock", async || all(&met.claiming)).await;
    run(&administrator, "commit").await;
    soon(gate.wait()).await;
    run(&administrator, lock).await;
    soon(gate.wait()).await;
    until("every finish ran into the lock", async || all(&met.finishing)).await;
    run(&administrator, "commit").await;
    for maintenance in [
        "vacuum full leasehold.job",
        "reindex table leasehold.job",
        "vacuum full leasehold_internal.lease",
        "cluster leasehold.job using job_pkey",
    ] {
        sql.run(maintenance).await;
    }
    for worker in workers {
        joined(worker).await;
    }
    assert_eq!(sql.count("finished_job").await, i64::from(jobs));
    assert_eq!(
        sql.one::<i64>("select count(distinct id) from leasehold_internal.finished_job", &[]).await,
        i64::from(jobs)
    );
    assert_eq!(sql.count("job").await, 0);
}
