//! The nightly sweep: killed, frozen and racing sweepers, and pastes that are created meanwhile.

use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use leasehold::Leasehold;
use leasehold::sweep::{Gate, Sweep};
use pastes::{Pastes, ShortCode, Store};
use tokio::sync::Notify;

use crate::rig::{Rig, new, settings, until};

/// Creates expired, uploaded pastes, `shared` of them with the same bytes.
async fn expired(rig: &Rig, count: i32, shared: i32) {
    let sql = format!(
        "with made as (insert into pastes.contents (content_hash, size, ref_count, state) \
            select encode(sha256(n::text::bytea), 'hex'), 1, \
                   case when n = 0 then {shared} else 1 end, 'LIVE' \
              from generate_series(case when {shared} > 0 then 0 else 1 end, {count} - {shared}) n \
            returning content_id, content_hash, ref_count) \
         insert into pastes.pastes (short_code, content_hash, content_id, status, s3_url, expires_at) \
         select 'x' || content_id || '-' || copy, content_hash, content_id, 'PROCESSED', 'x', \
                now() - interval '1 hour' \
           from made, generate_series(1, ref_count) copy"
    );
    rig.client.batch_execute(&sql).await.unwrap();
    assert_eq!(rig.count("select count(*) from pastes.pastes").await, i64::from(count));
}

async fn in_state(rig: &Rig, state: &str) -> i64 {
    rig.count(&format!("select count(*) from pastes.pastes where deletion_status = '{state}'"))
        .await
}

fn sweep(pastes: &Pastes) -> Sweep {
    pastes.expiry_sweep().unwrap()
}

/// Makes every claim old enough for the watchdog.
async fn two_hours_later(rig: &Rig) {
    let sql = "update pastes.pastes set deletion_initiated_at = now() - interval '3 hours' \
               where deletion_status = 'DELETION_IN_PROGRESS'";
    rig.client.batch_execute(sql).await.unwrap();
}

/// The child process of the next test: sweeps until it is killed. Returns at once if it is not the
/// child.
#[expect(clippy::exit, reason = "the process ends here")]
#[test]
fn process_sweeper_main() {
    let Ok(url) = std::env::var("PASTES_TEST_SWEEPER_URL") else { return };
    let folder = std::env::var("PASTES_TEST_SWEEPER_STORE").unwrap();
    // The test holds our stdin: when the test ends, this process exits.
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(9);
    });
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let engine = Leasehold::connect(&url).await.unwrap();
        let store = Store::local(folder.as_ref()).unwrap();
        let pastes = Pastes::start(engine.clone(), store, settings()).await.unwrap();
        let stuck = sweep(&pastes).handle(|batch| async move {
            batch.finish(&batch.keys()[..400]).await?;
            std::future::pending().await
        });
        stuck.run_once(&engine).await.unwrap();
    });
}

#[tokio::test]
async fn e8_killed_after_400_of_1000() {
    let rig = Rig::new().await;
    expired(&rig, 1000, 300).await;
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "night::process_sweeper_main", "--nocapture"])
        .env("PASTES_TEST_SWEEPER_URL", rig.database.direct_url())
        .env("PASTES_TEST_SWEEPER_STORE", &rig.folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    until(async || in_state(&rig, "DELETED").await == 400).await;
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(in_state(&rig, "DELETION_IN_PROGRESS").await, 600);
    rig.assert_ref_counts().await;

    let sweep = sweep(&rig.pastes);
    sweep.watch_once(&rig.engine).await.unwrap();
    rig.sweep().await;
    assert_eq!(in_state(&rig, "DELETION_IN_PROGRESS").await, 600, "two hours are not over");
    two_hours_later(&rig).await;
    sweep.watch_once(&rig.engine).await.unwrap();
    assert_eq!(in_state(&rig, "NOT_EXPIRED").await, 600, "the watchdog brought them back");
    rig.sweep().await;
    assert_eq!(in_state(&rig, "DELETED").await, 1000);
    rig.assert_ref_counts().await;
    assert_eq!(rig.count("select count(*) from pastes.contents where state <> 'GONE'").await, 0);
}

#[tokio::test]
async fn e9_two_workers_and_the_same_1000_rows() {
    let rig = Rig::new().await;
    expired(&rig, 1000, 500).await;
    let one = sweep(&rig.pastes).gate(Gate::none()).batch(100);
    let (two, three) = (one.clone(), one.clone());
    let (a, b, c) = tokio::join!(
        one.run_once(&rig.engine),
        two.run_once(&rig.engine),
        three.run_once(&rig.engine)
    );
    let finished = a.unwrap().finished + b.unwrap().finished + c.unwrap().finished;
    assert_eq!(finished, 1000, "each row once");
    rig.assert_ref_counts().await;
}

#[tokio::test]
async fn e7_a_frozen_sweeper_that_wakes_up_decrements_nothing() {
    let rig = Rig::new().await;
    expired(&rig, 100, 50).await;
    let (frozen, thaw) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (seen, go) = (Arc::clone(&frozen), Arc::clone(&thaw));
    let slow = sweep(&rig.pastes).handle(move |_| {
        let (seen, go) = (Arc::clone(&seen), Arc::clone(&go));
        async move {
            seen.notify_one();
            go.notified().await;
            Ok(())
        }
    });
    let engine = rig.engine.clone();
    let sleeper = tokio::spawn(async move { slow.run_once(&engine).await });
    frozen.notified().await;
    two_hours_later(&rig).await;
    sweep(&rig.pastes).watch_once(&rig.engine).await.unwrap();
    rig.sweep().await;
    assert_eq!(in_state(&rig, "DELETED").await, 100);
    rig.assert_ref_counts().await;
    thaw.notify_one();
    let report = sleeper.await.unwrap().unwrap();
    assert_eq!(report.finished, 0, "its claims are not its own any more");
    rig.assert_ref_counts().await;
}

#[tokio::test]
async fn e9_eight_sweepers_ten_hot_contents_and_creators() {
    let rig = Arc::new(Rig::new().await);
    for round in 0..10 {
        for copy in 0..60 {
            rig.paste(&format!("hot {}", (round + copy) % 10)).await;
        }
    }
    let sql = "update pastes.pastes set expires_at = now() - interval '1 minute'";
    rig.client.batch_execute(sql).await.unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let (rig, sweep) = (Arc::clone(&rig), sweep(&rig.pastes).gate(Gate::none()).batch(20));
        tasks.spawn(async move { sweep.run_once(&rig.engine).await.unwrap().finished });
    }
    for creator in 0..4 {
        let rig = Arc::clone(&rig);
        tasks.spawn(async move {
            for n in 0..30 {
                rig.paste(&format!("hot {}", (creator + n) % 10)).await;
            }
            0
        });
    }
    assert_eq!(tasks.join_all().await.iter().sum::<u64>(), 600);
    rig.assert_ref_counts().await;
    assert_eq!(in_state(&rig, "NOT_EXPIRED").await, 120);
    rig.work().await;
    assert_eq!(rig.objects(), 10, "one object for each content in use");
}

#[tokio::test]
async fn e24_a_hundred_creates_of_the_same_new_bytes() {
    let rig = Arc::new(Rig::new().await);
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let rig = Arc::clone(&rig);
        tasks.spawn(async move { rig.paste("all at once").await });
    }
    let codes: Vec<ShortCode> = tasks.join_all().await;
    assert_eq!(rig.count("select count(*) from pastes.contents").await, 1);
    assert_eq!(rig.count("select ref_count::bigint from pastes.contents").await, 100);
    rig.work().await;
    assert_eq!(rig.objects(), 1);
    for code in codes {
        assert_eq!(rig.bytes(&code).await, b"all at once");
    }
}

#[tokio::test]
async fn e10_one_hot_content_keeps_exact_count_under_many_creators() {
    let rig = Arc::new(Rig::new().await);
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..16 {
        let rig = Arc::clone(&rig);
        tasks.spawn(async move {
            for _ in 0..25 {
                rig.paste("hot").await;
            }
        });
    }
    tasks.join_all().await;
    assert_eq!(rig.count("select ref_count::bigint from pastes.contents").await, 400);
    rig.assert_ref_counts().await;
}

#[tokio::test]
async fn e11_an_upload_that_succeeds_after_its_burial_changes_nothing() {
    let rig = Rig::new().await;
    let code = rig.paste("late").await;
    // A worker has put the object and sleeps; meanwhile the job is buried.
    let bury = "with gone as (delete from leasehold.job where name = 'pastes.upload' returning *) \
                insert into leasehold.dead_job (id, enqueued_at, scheduled_at, expires_at, \
                    lease_generation, priority, attempts, max_attempts, lost_count, cause, queue, \
                    name, tag, kwargs) \
                select id, enqueued_at, scheduled_at, expires_at, 1, 0, 6, 6, 0, 'exhausted', queue, \
                    name, tag, kwargs from gone";
    rig.client.batch_execute(bury).await.unwrap();
    assert_eq!(rig.status(&code).await, "FAILED");
    let finish = "select pastes.finish_uploads(array_agg(content_id), array_agg('x'::text)) \
                  from pastes.contents";
    rig.client.query(finish, &[]).await.unwrap();
    assert_eq!(rig.status(&code).await, "FAILED", "FAILED is final");
    assert_eq!(rig.count("select count(*) from pastes.staged").await, 1, "the bytes are kept");
    // The bytes can be pasted again; the late object serves them.
    let again = rig.paste("late").await;
    rig.work().await;
    assert_eq!(rig.bytes(&again).await, b"late");
}

#[tokio::test]
async fn e13_a_paste_that_expires_during_its_upload_is_never_readable() {
    let rig = Rig::new().await;
    let code = rig.paste("too late").await;
    rig.expire(&code).await;
    sweep(&rig.pastes).run_once(&rig.engine).await.unwrap();
    assert_eq!(in_state(&rig, "DELETED").await, 1);
    let finish =
        "select pastes.finish_uploads(array[c.content_id], array['x']) from pastes.contents c";
    assert!(rig.client.query(finish, &[]).await.unwrap().is_empty(), "nobody may keep the object");
    assert_eq!(rig.status(&code).await, "IN_PROGRESS");
    rig.work().await;
    assert_eq!(rig.objects(), 0);
    rig.assert_ref_counts().await;
}

#[tokio::test]
async fn a_failed_paste_is_swept_after_a_day() {
    let rig = Rig::new().await;
    rig.pastes.create(new("broken")).await.unwrap();
    let fail = "update pastes.pastes set status = 'FAILED', \
                expires_at = statement_timestamp() - interval '1 second'";
    rig.client.batch_execute(fail).await.unwrap();
    rig.sweep().await;
    assert_eq!(in_state(&rig, "DELETED").await, 1);
    rig.assert_ref_counts().await;
}

#[tokio::test]
async fn e6_an_object_is_not_protected_by_its_etag_but_by_its_key() {
    let rig = Rig::with(pastes::Settings { recheck: Duration::ZERO, ..settings() }).await;
    let first = rig.paste("same bytes, same etag").await;
    rig.work().await;
    rig.expire(&first).await;
    sweep(&rig.pastes).run_once(&rig.engine).await.unwrap();
    // The same bytes before the old object is deleted: they get another key, so the late delete cannot
    // hit it.
    let second = rig.paste("same bytes, same etag").await;
    rig.work().await;
    rig.work().await;
    assert_eq!(rig.bytes(&second).await, b"same bytes, same etag");
}

#[test]
fn e20_content_is_known_by_all_of_its_sha_256() {
    let hash = pastes::store::hash_of(b"abc");
    assert_eq!(hash, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}
