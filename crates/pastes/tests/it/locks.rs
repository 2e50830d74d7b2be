//! Two transactions on the same rows: which one waits, and what is left afterwards.

use pastes::{Act, NewPaste, Target};
use tokio_postgres::Client;

use crate::rig::{Rig, new, until};

/// Waits until a session of this database waits for a lock on a row.
async fn until_blocked(rig: &Rig) {
    let sql = "select count(*) from pg_stat_activity where datname = current_database() \
               and wait_event_type = 'Lock'";
    until(async || rig.count(sql).await > 0).await;
}

/// Takes a paste of this name down with a ban, in a task of its own.
fn ban(rig: &Rig, name: &str) -> tokio::task::JoinHandle<pastes::TakenDown> {
    let (pastes, code) = (rig.pastes.clone(), name.parse().unwrap());
    tokio::spawn(async move {
        let act = Act { who: "ann".to_owned(), why: Some("law".to_owned()) };
        let target = Target::Code { code, content_hash: None };
        pastes.takedown(&target, true, &act).await.unwrap()
    })
}

async fn named(rig: &Rig, name: &str, text: &str) {
    let new = NewPaste { alias: Some(name.to_owned()), ..new(text) };
    rig.pastes.create(new).await.unwrap();
}

async fn run(client: &Client, sql: &str) {
    client.batch_execute(sql).await.expect(sql);
}

#[tokio::test]
async fn e36_ban_and_an_upload_of_the_same_content_do_not_deadlock() {
    let rig = Rig::new().await;
    named(&rig, "bad", "bad").await;
    let other = rig.database.connect_directly().await;
    // Lock in the order of finish_uploads and the sweep: the paste first, then its content.
    run(&other, "begin; select from pastes.pastes where short_code = 'bad' for update").await;
    let banning = ban(&rig, "bad");
    until_blocked(&rig).await;
    run(&other, "select from pastes.contents for update; commit").await;
    assert_eq!(banning.await.unwrap().pastes, 1);
    rig.work().await;
    rig.assert_ref_counts().await;
}

#[tokio::test]
async fn e36_paste_made_while_the_ban_was_on_its_way_is_ended() {
    let rig = Rig::new().await;
    named(&rig, "bad", "bad").await;
    rig.work().await;
    let creator = rig.database.connect_directly().await;
    // The creator has checked for bans and found none; its paste is not committed yet.
    run(
        &creator,
        "begin; select pastes.create_paste('late', gen_random_uuid(), true, null, \
             encode(sha256('bad'), 'hex'), 'bad', interval '1 day', null, false, null, null, \
             interval '0', 6)",
    )
    .await;
    let banning = ban(&rig, "bad");
    until_blocked(&rig).await;
    run(&creator, "commit").await;
    banning.await.unwrap();
    let refused = rig.pastes.create(new("bad")).await;
    assert!(matches!(refused, Err(pastes::CreateError::Banned)), "{refused:?}");
    rig.work().await;
    let alive = "select count(*) from pastes.pastes where expires_at > now()";
    assert_eq!(rig.count(alive).await, 0, "the late one is ended, too");
    rig.assert_ref_counts().await;
}

#[tokio::test]
async fn e38_upload_whose_paste_is_held_elsewhere_comes_again() {
    let rig = Rig::new().await;
    let code = rig.paste("held").await;
    let other = rig.database.connect_directly().await;
    run(&other, "begin; select from pastes.pastes for update").await;
    rig.work().await;
    assert_eq!(rig.status(&code).await, "IN_PROGRESS", "the other one may have finished it");
    // It did not: it rolls back.
    run(&other, "rollback").await;
    let jobs = "select count(*) from leasehold.job where name = 'pastes.upload' and attempts = 0";
    assert_eq!(rig.count(jobs).await, 1, "its job waits, and no attempt was counted");
    run(&rig.client, "update leasehold.job set scheduled_at = now()").await;
    rig.work().await;
    assert_eq!(rig.status(&code).await, "PROCESSED");
    assert_eq!(rig.bytes(&code).await, b"held");
}

#[tokio::test]
async fn e38_upload_that_can_never_succeed_is_buried() {
    for damage in
        ["delete from pastes.staged", "update pastes.contents set ref_count = 0, state = 'DOOMED'"]
    {
        let rig = Rig::new().await;
        let code = rig.paste("lost").await;
        run(&rig.client, damage).await;
        for _ in 0..6 {
            assert_eq!(rig.status(&code).await, "IN_PROGRESS");
            run(&rig.client, "update leasehold.job set scheduled_at = now()").await;
            rig.work().await;
        }
        assert_eq!(rig.status(&code).await, "FAILED", "{damage}");
        assert_eq!(rig.objects(), 0, "nothing was put");
    }
}

#[tokio::test]
async fn e36_ban_reads_no_other_pastes() {
    let rig = Rig::new().await;
    named(&rig, "bad", "bad").await;
    for number in 0..20 {
        rig.paste(&format!("good {number}")).await;
    }
    // With a few pastes every index is as good as another.
    run(
        &rig.client,
        "insert into pastes.pastes select (jsonb_populate_record(p, jsonb_build_object( \
             'short_code', p.short_code || i, 'paste_id', gen_random_uuid()))).* \
           from pastes.pastes p, generate_series(1, 200) i where p.short_code <> 'bad'; \
         analyze pastes.pastes; analyze pastes.contents",
    )
    .await;
    let read = "select (seq_tup_read + coalesce(idx_tup_fetch, 0))::bigint \
                from pg_stat_xact_user_tables where relid = 'pastes.pastes'::regclass";
    run(&rig.client, "begin").await;
    let before = rig.count(read).await;
    let ended = rig.count("select pastes.end_copies(encode(sha256('bad'), 'hex'))").await;
    let after = rig.count(read).await;
    run(&rig.client, "commit").await;
    assert_eq!(ended, 1);
    assert!(after - before < 10, "{} pastes were read", after - before);
}
