//! Two transactions on the same rows: which one waits, and what is left afterwards.

use pastes::{Act, NewPaste, Target};
use tokio_postgres::Client;

use crate::fixture::{Fixture, new, until};

/// Waits until a session of this database waits for a lock on a row.
async fn until_blocked(fixture: &Fixture) {
    let sql = "select count(*) from pg_stat_activity where datname = current_database() \
               and wait_event_type = 'Lock'";
    until(async || fixture.count(sql).await > 0).await;
}

/// Takes a paste of this name down with a ban, in a task of its own.
fn ban(fixture: &Fixture, name: &str) -> tokio::task::JoinHandle<pastes::TakenDown> {
    let (pastes, code) = (fixture.pastes.clone(), name.parse().unwrap());
    tokio::spawn(async move {
        let act = Act { who: "ann".to_owned(), why: Some("law".to_owned()) };
        let target = Target::Code { code, content_hash: None };
        pastes.takedown(&target, true, &act).await.unwrap()
    })
}

async fn named(fixture: &Fixture, name: &str, text: &str) {
    let new = NewPaste { alias: Some(name.to_owned()), ..new(text) };
    fixture.pastes.create(new).await.unwrap();
}

async fn run(client: &Client, sql: &str) {
    client.batch_execute(sql).await.expect(sql);
}

#[tokio::test]
async fn e36_ban_and_an_upload_of_the_same_content_do_not_deadlock() {
    let fixture = Fixture::new().await;
    named(&fixture, "bad", "bad").await;
    let other = fixture.database.connect_directly().await;
    // Lock in the order of finish_uploads and the sweep: the paste first, then its content.
    run(&other, "begin; select from pastes.pastes where short_code = 'bad' for update").await;
    let banning = ban(&fixture, "bad");
    until_blocked(&fixture).await;
    run(&other, "select from pastes.contents for update; commit").await;
    assert_eq!(banning.await.unwrap().pastes, 1);
    fixture.work().await;
    fixture.assert_ref_counts().await;
}

#[tokio::test]
async fn e36_paste_created_during_the_ban_is_ended() {
    let fixture = Fixture::new().await;
    named(&fixture, "bad", "bad").await;
    fixture.work().await;
    let creator = fixture.database.connect_directly().await;
    // The creator has checked for bans and found none; its paste is not committed yet.
    run(
        &creator,
        "begin; select pastes.create_paste('late', gen_random_uuid(), true, null, \
             encode(sha256('bad'), 'hex'), 'bad', interval '1 day', null, false, null, null, \
             interval '0')",
    )
    .await;
    let banning = ban(&fixture, "bad");
    until_blocked(&fixture).await;
    run(&creator, "commit").await;
    banning.await.unwrap();
    let refused = fixture.pastes.create(new("bad")).await;
    assert!(matches!(refused, Err(pastes::CreateError::Banned)), "{refused:?}");
    fixture.work().await;
    let alive = "select count(*) from pastes.pastes where expires_at > now()";
    assert_eq!(fixture.count(alive).await, 0, "the late paste is ended, too");
    fixture.assert_ref_counts().await;
}

#[tokio::test]
async fn e38_upload_whose_paste_is_locked_runs_again() {
    let fixture = Fixture::new().await;
    let code = fixture.paste("held").await;
    let other = fixture.database.connect_directly().await;
    run(&other, "begin; select from pastes.pastes for update").await;
    fixture.work().await;
    assert_eq!(
        fixture.status(&code).await,
        "IN_PROGRESS",
        "the other transaction may have finished it"
    );
    // It did not: it rolls back.
    run(&other, "rollback").await;
    let jobs = "select count(*) from leasehold.job where name = 'pastes.upload' and attempts = 0";
    assert_eq!(fixture.count(jobs).await, 1, "its job waits, and no attempt was counted");
    run(&fixture.client, "update leasehold.job set scheduled_at = now()").await;
    fixture.work().await;
    assert_eq!(fixture.status(&code).await, "PROCESSED");
    assert_eq!(fixture.bytes(&code).await, b"held");
}

#[tokio::test]
async fn e38_upload_that_cannot_succeed_is_buried() {
    for damage in
        ["delete from pastes.staged", "update pastes.contents set ref_count = 0, state = 'DOOMED'"]
    {
        let fixture = Fixture::new().await;
        let code = fixture.paste("lost").await;
        run(&fixture.client, damage).await;
        for _ in 0..6 {
            assert_eq!(fixture.status(&code).await, "IN_PROGRESS");
            run(&fixture.client, "update leasehold.job set scheduled_at = now()").await;
            fixture.work().await;
        }
        assert_eq!(fixture.status(&code).await, "FAILED", "{damage}");
        assert_eq!(fixture.objects(), 0, "nothing was put");
    }
}

#[tokio::test]
async fn e36_ban_reads_no_other_pastes() {
    let fixture = Fixture::new().await;
    named(&fixture, "bad", "bad").await;
    for number in 0..20 {
        fixture.paste(&format!("good {number}")).await;
    }
    // With a few pastes every index is as good as another.
    run(
        &fixture.client,
        "insert into pastes.pastes select (jsonb_populate_record(p, jsonb_build_object( \
             'short_code', p.short_code || i, 'paste_id', gen_random_uuid()))).* \
           from pastes.pastes p, generate_series(1, 200) i where p.short_code <> 'bad'; \
         analyze pastes.pastes; analyze pastes.contents",
    )
    .await;
    let read = "select (seq_tup_read + coalesce(idx_tup_fetch, 0))::bigint \
                from pg_stat_xact_user_tables where relid = 'pastes.pastes'::regclass";
    run(&fixture.client, "begin").await;
    let before = fixture.count(read).await;
    let ended = fixture.count("select pastes.end_copies(encode(sha256('bad'), 'hex'))").await;
    let after = fixture.count(read).await;
    run(&fixture.client, "commit").await;
    assert_eq!(ended, 1);
    assert!(after - before < 10, "{} pastes were read", after - before);
}
