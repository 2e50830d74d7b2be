//! Bulk operations: renames, deleted accounts, moves and re-indexing run in steps, at a lower priority
//! than live saves.

use std::time::Duration;

use annotations::index::Query;
use annotations::{AnnotationId, Refused, Settings, What};

use crate::fixture::{Fixture, PAGE, each, each_with, on_page, settings};

/// Adds many notes of one author, by one statement.
async fn many(fixture: &Fixture, author: i64, number: i32) {
    let sql = "insert into annotations.annotation (id, document_id, user_id, group_id, kind, text) \
               select substr(replace(gen_random_uuid()::text, '-', ''), 1, 22), \
                      annotations.document_of($1, ''), $2, '__world__', 'page_note', 'note ' || n \
               from generate_series(1, $3) n";
    fixture.client.execute(sql, &[&PAGE, &author, &number]).await.unwrap();
}

/// Jobs of the index, by tag and priority.
async fn jobs(fixture: &Fixture) -> Vec<(String, i32, i64)> {
    let sql = "select tag, priority, count(*) from leasehold.job where name = 'index' \
               group by tag, priority order by tag, priority";
    let rows = fixture.client.query(sql, &[]).await.unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect()
}

#[tokio::test]
async fn f10_rename_reaches_the_index_in_steps_while_users_save() {
    // Even on a slow machine no job is due before the test has read it.
    let verify_after = Duration::from_secs(24 * 60 * 60);
    each_with(Settings { verify_after, ..settings() }, async |fixture| {
        let (alba, bela) = (fixture.user("alba").await, fixture.user("bela").await);
        many(&fixture, alba.id, 2500).await;
        fixture.work_all().await;
        fixture.assert_equal().await;
        fixture.notes.rename_user(alba.id, "albathegreat").await.unwrap();
        // One row and one job; the rows of the notes have not changed yet.
        assert_eq!(jobs(&fixture).await, []);
        let alba = fixture.notes.user("albathegreat").await.unwrap();
        let saving = async {
            for number in 0..50 {
                fixture.note(if number % 2 == 0 { &alba } else { &bela }, "live").await;
            }
        };
        // Pauses the jobs of the index, so that they can be counted.
        let pause = "update leasehold_internal.queue set paused_at = now(), paused_by = 'test' \
                     where name = 'annotations'";
        fixture.client.execute(pause, &[]).await.unwrap();
        tokio::join!(fixture.work(), saving);
        let waiting = jobs(&fixture).await;
        fixture
            .client
            .execute("update leasehold_internal.queue set paused_at = null, paused_by = null", &[])
            .await
            .unwrap();
        let renamed: i64 =
            waiting.iter().filter(|job| job.0 == "rename_user").map(|job| job.2).sum();
        assert!((2500..=2525).contains(&renamed), "{waiting:?}");
        assert!(waiting.iter().all(|job| job.0 != "rename_user" || job.1 == 100), "{waiting:?}");
        assert!(
            waiting.contains(&("storage.create_annotation".to_owned(), 1, 50)) || renamed > 2500,
            "{waiting:?}"
        );
        fixture.work_all().await;
        fixture.assert_equal().await;
        let of = |user: &str| Query { user: Some(user.to_owned()), ..Query::default() };
        let found = fixture.index().ids(of("albathegreat")).await;
        assert_eq!(found.len(), 200, "a full page under the new name");
        assert_eq!(fixture.index().ids(of("alba")).await.len(), 0, "none under the old one");
    })
    .await;
}

#[tokio::test]
async fn deleting_an_account_empties_table_and_index() {
    each(async |fixture| {
        let (alba, bela) = (fixture.user("alba").await, fixture.user("bela").await);
        many(&fixture, alba.id, 1200).await;
        fixture.note(&bela, "stays").await;
        fixture.work_all().await;
        fixture.notes.delete_user(alba.id).await.unwrap();
        fixture.work().await;
        assert_eq!(fixture.count("select count(*) from annotations.annotation").await, 1);
        fixture.work_all().await;
        fixture.assert_equal().await;
        assert_eq!(fixture.texts(None, &on_page()).await, ["stays"]);
    })
    .await;
}

#[tokio::test]
async fn reindex_enqueues_jobs_for_its_notes_and_changes_no_row() {
    let fixture = Fixture::new().await;
    let (alba, bela) = (fixture.user("alba").await, fixture.user("bela").await);
    many(&fixture, alba.id, 30).await;
    let one = fixture.note(&bela, "x").await;
    fixture.work_all().await;
    let before = fixture.count("select sum(version)::bigint from annotations.annotation").await;
    let now = jiff::Timestamp::now();
    let hour = jiff::SignedDuration::from_hours(1);
    let cases = [
        (What::User("alba".to_owned()), 30, 100),
        (What::User("bela".to_owned()), 1, 100),
        (What::Group(annotations::WORLD.to_owned()), 31, 100),
        (What::Document(PAGE.to_owned()), 31, 100),
        (What::Time { since: Some(now - hour), until: None }, 31, 1000),
        (What::Time { since: None, until: Some(now - hour) }, 0, 1000),
        (What::Ids(vec![one.id.clone(), AnnotationId::random()]), 1, 1000),
        (What::All, 31, 1000),
    ];
    for (what, number, priority) in cases {
        assert_eq!(fixture.notes.count_reindex(&what).await.unwrap(), number, "{what:?}");
        assert_eq!(jobs(&fixture).await, [], "counting asks for nothing");
        let id = fixture.notes.reindex(&what, None, false).await.unwrap();
        // Only a step of the operation, so that its jobs can be counted.
        fixture.client.execute("select annotations.bulk_step($1)", &[&id]).await.unwrap();
        let wanted = match number {
            0 => vec![],
            number => vec![(what.tag().to_owned(), priority, number)],
        };
        assert_eq!(jobs(&fixture).await, wanted, "{what:?}");
        let progress = fixture.notes.progress(id).await.unwrap();
        assert_eq!((progress.rows, progress.waiting), (number, number));
        fixture.work_all().await;
        let progress = fixture.notes.progress(id).await.unwrap();
        assert!(progress.finished && progress.waiting == 0, "{progress:?}");
    }
    assert_eq!(
        fixture.count("select sum(version)::bigint from annotations.annotation").await,
        before
    );
    let unknown = fixture.notes.reindex(&What::User("unknown".to_owned()), None, false).await;
    assert!(matches!(unknown, Err(Refused::NoSuchPerson)), "{unknown:?}");
    let nowhere = What::Document("https://example.com/nowhere".to_owned());
    let nowhere = fixture.notes.reindex(&nowhere, None, false).await;
    assert!(matches!(nowhere, Err(Refused::NoSuchPage)), "{nowhere:?}");
    assert!(matches!(fixture.notes.progress(12_345).await, Err(Refused::NoSuchReindex)));
    // Not before live saves, and not beyond the range.
    for bad in [1, 1_000_000] {
        let refused = fixture.notes.reindex(&What::All, Some(bad), false).await;
        let words = refused.expect_err("refused").to_string();
        assert!(words.contains("from 2 to 999999"), "{words}");
    }
    fixture.notes.reindex(&What::All, Some(999_999), false).await.unwrap();
}

#[tokio::test]
async fn cancelled_reindex_leaves_no_jobs() {
    let fixture = Fixture::new().await;
    let alba = fixture.user("alba").await;
    many(&fixture, alba.id, 20).await;
    fixture.work_all().await;
    let id = fixture.notes.reindex(&What::All, None, true).await.unwrap();
    fixture.client.execute("select annotations.bulk_step($1, 5)", &[&id]).await.unwrap();
    assert_eq!(fixture.notes.cancel_bulk(id).await.unwrap(), 5);
    fixture.work().await;
    let progress = fixture.notes.progress(id).await.unwrap();
    assert!(progress.cancelled && progress.waiting == 0 && progress.rows == 5, "{progress:?}");
    assert!(matches!(fixture.notes.cancel_bulk(id + 1).await, Err(Refused::NoSuchReindex)));
}

#[tokio::test]
async fn cancel_refuses_other_operations_and_keeps_finished_ones() {
    let fixture = Fixture::new().await;
    let alba = fixture.user("alba").await;
    many(&fixture, alba.id, 200).await;
    fixture.work_all().await;
    let renaming = fixture.notes.rename_user(alba.id, "albathegreat").await.unwrap().unwrap();
    assert!(matches!(fixture.notes.cancel_bulk(renaming).await, Err(Refused::Malformed(_))));
    fixture.client.execute("select annotations.bulk_step($1)", &[&renaming]).await.unwrap();
    let progress = fixture.notes.progress(renaming).await.unwrap();
    assert_eq!((progress.total, progress.rows, progress.waiting), (Some(200), 200, 200));
    assert!(!progress.is_over() && progress.done() == 0, "the index does not have it yet");
    fixture.work_all().await;
    assert!(fixture.notes.progress(renaming).await.unwrap().is_over());

    let done = fixture.notes.reindex(&What::All, None, false).await.unwrap();
    fixture.work_all().await;
    assert_eq!(fixture.notes.cancel_bulk(done).await.unwrap(), 0);
    let progress = fixture.notes.progress(done).await.unwrap();
    assert!(!progress.cancelled && progress.is_over() && progress.done() == 200, "{progress:?}");
}

/// Long re-indexes use both slots when a user is renamed.
#[tokio::test]
async fn rename_does_not_wait_for_a_long_reindex() {
    let fixture = Fixture::alone().await;
    let (alba, bela) = (fixture.user("alba").await, fixture.user("bela").await);
    fixture.client.batch_execute("set session_replication_role = replica").await.unwrap();
    many(&fixture, alba.id, 12_000).await;
    fixture.client.batch_execute("set session_replication_role = origin").await.unwrap();
    many(&fixture, bela.id, 1).await;
    for _ in 0..2 {
        fixture.notes.reindex(&What::User("alba".to_owned()), None, false).await.unwrap();
    }
    fixture.notes.rename_user(bela.id, "belabelow").await.unwrap();
    fixture.work().await;
    // Ordered by the generation of the claim that completed them, which only grows.
    let sql = "select string_agg(u.tag, ' ' order by h.lease_generation, u.tag desc) \
               from leasehold_internal.history h cross join lateral unnest(h.names, h.tags) as u (name, tag) \
               where u.name = 'annotations.bulk'";
    let order: String = fixture.client.query_one(sql, &[]).await.unwrap().get(0);
    assert_eq!(order, "rename_user reindex_user reindex_user");
}

/// A note that was being saved when the cursor passed its position.
#[tokio::test]
async fn deleting_an_account_starts_over_for_notes_behind_its_cursor() {
    let fixture = Fixture::new().await;
    let alba = fixture.user("alba").await;
    many(&fixture, alba.id, 10).await;
    let leaving = fixture.notes.delete_user(alba.id).await.unwrap();
    let step = "select annotations.bulk_step($1, 10)";
    fixture.client.execute(step, &[&leaving]).await.unwrap();
    many(&fixture, alba.id, 1).await;
    let late = "update annotations.annotation set updated_at = '2000-01-01' where user_id = $1";
    fixture.client.execute(late, &[&alba.id]).await.unwrap();
    fixture.work().await;
    assert_eq!(fixture.count("select count(*) from annotations.annotation").await, 0);
}

#[tokio::test]
async fn bulk_operation_resumes_where_a_dead_worker_stopped() {
    let fixture = Fixture::new().await;
    let alba = fixture.user("alba").await;
    many(&fixture, alba.id, 25).await;
    fixture.work_all().await;
    let before = fixture.count("select max(version) from annotations.annotation").await;
    fixture.notes.rename_user(alba.id, "albathegreat").await.unwrap();
    let sql = "select annotations.bulk_step(max(id), 10) from annotations.bulk";
    fixture.client.execute(sql, &[]).await.unwrap();
    let raised = format!("select count(*) from annotations.annotation where version > {before}");
    assert_eq!(fixture.count(&raised).await, 10);
    fixture.work().await;
    assert_eq!(fixture.count(&raised).await, 25);
}
