//! The nightly sweep: killed, frozen and racing sweepers, and pastes that are created meanwhile.

use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use leasehold::Leasehold;
use leasehold::sweep::{Gate, Sweep};
use pastes::{Pastes, ShortCode, Store};
use tokio::sync::Notify;

use crate::fixture::{Fixture, new, settings, until};

/// Creates expired, uploaded pastes, `shared` of them with the same bytes.
async fn expired(fixture: &Fixture, count: i32, shared: i32) {
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
    fixture.client.batch_execute(&sql).await.unwrap();
    assert_eq!(fixture.count("select count(*) from pastes.pastes").await, i64::from(count));
}

async fn in_state(fixture: &Fixture, state: &str) -> i64 {
    fixture
        .count(&format!("select count(*) from pastes.pastes where deletion_status = '{state}'"))
        .await
}

fn sweep(pastes: &Pastes) -> Sweep {
    pastes.expiry_sweep().unwrap()
}

/// Makes every claim old enough for the watchdog.
async fn two_hours_later(fixture: &Fixture) {
    let sql = "update pastes.pastes set deletion_initiated_at = now() - interval '3 hours' \
               where deletion_status = 'DELETION_IN_PROGRESS'";
    fixture.client.batch_execute(sql).await.unwrap();
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
async fn e8_watchdog_resets_rows_of_a_killed_sweeper() {
    let fixture = Fixture::new().await;
    expired(&fixture, 1000, 300).await;
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "sweep::process_sweeper_main", "--nocapture"])
        .env("PASTES_TEST_SWEEPER_URL", fixture.database.direct_url())
        .env("PASTES_TEST_SWEEPER_STORE", &fixture.folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    until(async || in_state(&fixture, "DELETED").await == 400).await;
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(in_state(&fixture, "DELETION_IN_PROGRESS").await, 600);
    fixture.assert_ref_counts().await;

    let sweep = sweep(&fixture.pastes);
    sweep.run_watchdog_once(&fixture.engine).await.unwrap();
    fixture.sweep().await;
    assert_eq!(in_state(&fixture, "DELETION_IN_PROGRESS").await, 600, "two hours have not passed");
    two_hours_later(&fixture).await;
    sweep.run_watchdog_once(&fixture.engine).await.unwrap();
    assert_eq!(in_state(&fixture, "NOT_EXPIRED").await, 600, "the watchdog reset them");
    fixture.sweep().await;
    assert_eq!(in_state(&fixture, "DELETED").await, 1000);
    fixture.assert_ref_counts().await;
    assert_eq!(
        fixture.count("select count(*) from pastes.contents where state <> 'GONE'").await,
        0
    );
}

#[tokio::test]
async fn e9_sweepers_delete_each_row_once() {
    let fixture = Fixture::new().await;
    expired(&fixture, 1000, 500).await;
    let one = sweep(&fixture.pastes).gate(Gate::none()).claim_size(100);
    let (two, three) = (one.clone(), one.clone());
    let (a, b, c) = tokio::join!(
        one.run_once(&fixture.engine),
        two.run_once(&fixture.engine),
        three.run_once(&fixture.engine)
    );
    let finished = a.unwrap().finished + b.unwrap().finished + c.unwrap().finished;
    assert_eq!(finished, 1000, "each row once");
    fixture.assert_ref_counts().await;
}

#[tokio::test]
async fn e7_frozen_sweeper_drops_no_reference() {
    let fixture = Fixture::new().await;
    expired(&fixture, 100, 50).await;
    let (frozen, thaw) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (seen, go) = (Arc::clone(&frozen), Arc::clone(&thaw));
    let slow = sweep(&fixture.pastes).handle(move |_| {
        let (seen, go) = (Arc::clone(&seen), Arc::clone(&go));
        async move {
            seen.notify_one();
            go.notified().await;
            Ok(())
        }
    });
    let engine = fixture.engine.clone();
    let sleeper = tokio::spawn(async move { slow.run_once(&engine).await });
    frozen.notified().await;
    two_hours_later(&fixture).await;
    sweep(&fixture.pastes).run_watchdog_once(&fixture.engine).await.unwrap();
    fixture.sweep().await;
    assert_eq!(in_state(&fixture, "DELETED").await, 100);
    fixture.assert_ref_counts().await;
    thaw.notify_one();
    let report = sleeper.await.unwrap().unwrap();
    assert_eq!(report.finished, 0, "its claims are lost");
    fixture.assert_ref_counts().await;
}

#[tokio::test]
async fn e9_sweepers_and_creators_of_shared_contents_do_not_deadlock() {
    let fixture = Arc::new(Fixture::new().await);
    for round in 0..10 {
        for copy in 0..60 {
            fixture.paste(&format!("hot {}", (round + copy) % 10)).await;
        }
    }
    let sql = "update pastes.pastes set expires_at = now() - interval '1 minute'";
    fixture.client.batch_execute(sql).await.unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let (fixture, sweep) =
            (Arc::clone(&fixture), sweep(&fixture.pastes).gate(Gate::none()).claim_size(20));
        tasks.spawn(async move { sweep.run_once(&fixture.engine).await.unwrap().finished });
    }
    for creator in 0..4 {
        let fixture = Arc::clone(&fixture);
        tasks.spawn(async move {
            for n in 0..30 {
                fixture.paste(&format!("hot {}", (creator + n) % 10)).await;
            }
            0
        });
    }
    assert_eq!(tasks.join_all().await.iter().sum::<u64>(), 600);
    fixture.assert_ref_counts().await;
    assert_eq!(in_state(&fixture, "NOT_EXPIRED").await, 120);
    fixture.work().await;
    assert_eq!(fixture.objects(), 10, "one object per content in use");
}

#[tokio::test]
async fn e24_concurrent_creates_of_the_same_bytes_share_one_object() {
    let fixture = Arc::new(Fixture::new().await);
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let fixture = Arc::clone(&fixture);
        tasks.spawn(async move { fixture.paste("all at once").await });
    }
    let codes: Vec<ShortCode> = tasks.join_all().await;
    assert_eq!(fixture.count("select count(*) from pastes.contents").await, 1);
    assert_eq!(fixture.count("select ref_count::bigint from pastes.contents").await, 100);
    fixture.work().await;
    assert_eq!(fixture.objects(), 1);
    for code in codes {
        assert_eq!(fixture.bytes(&code).await, b"all at once");
    }
}

#[tokio::test]
async fn e10_reference_count_is_exact_under_many_creators() {
    let fixture = Arc::new(Fixture::new().await);
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..16 {
        let fixture = Arc::clone(&fixture);
        tasks.spawn(async move {
            for _ in 0..25 {
                fixture.paste("hot").await;
            }
        });
    }
    tasks.join_all().await;
    assert_eq!(fixture.count("select ref_count::bigint from pastes.contents").await, 400);
    fixture.assert_ref_counts().await;
}

#[tokio::test]
async fn e13_paste_that_expires_during_its_upload_is_never_readable() {
    let fixture = Fixture::new().await;
    let code = fixture.paste("too late").await;
    fixture.expire(&code).await;
    sweep(&fixture.pastes).run_once(&fixture.engine).await.unwrap();
    assert_eq!(in_state(&fixture, "DELETED").await, 1);
    let finish =
        "select pastes.finish_uploads(array[c.content_id], array['x']) from pastes.contents c";
    assert!(
        fixture.client.query(finish, &[]).await.unwrap().is_empty(),
        "no content keeps the object"
    );
    assert_eq!(fixture.status(&code).await, "IN_PROGRESS");
    fixture.work().await;
    assert_eq!(fixture.objects(), 0);
    fixture.assert_ref_counts().await;
}

#[tokio::test]
async fn failed_paste_is_swept_after_it_expires() {
    let fixture = Fixture::new().await;
    fixture.pastes.create(new("broken")).await.unwrap();
    let fail = "update pastes.pastes set status = 'FAILED', \
                expires_at = statement_timestamp() - interval '1 second'";
    fixture.client.batch_execute(fail).await.unwrap();
    fixture.sweep().await;
    assert_eq!(in_state(&fixture, "DELETED").await, 1);
    fixture.assert_ref_counts().await;
}

#[tokio::test]
async fn e6_same_bytes_get_another_key() {
    let fixture = Fixture::with(pastes::Settings { recheck: Duration::ZERO, ..settings() }).await;
    let first = fixture.paste("same bytes, same etag").await;
    fixture.work().await;
    fixture.expire(&first).await;
    sweep(&fixture.pastes).run_once(&fixture.engine).await.unwrap();
    // The same bytes before the old object is deleted: they get another key, so the late delete cannot
    // hit it.
    let second = fixture.paste("same bytes, same etag").await;
    fixture.work().await;
    fixture.work().await;
    assert_eq!(fixture.bytes(&second).await, b"same bytes, same etag");
}

#[test]
fn e20_content_is_identified_by_its_whole_sha_256() {
    let hash = pastes::store::hash_of(b"abc");
    assert_eq!(hash, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}
