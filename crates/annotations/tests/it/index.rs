//! Search with an index: fresh, behind, down, wrong.

use std::sync::Arc;
use std::time::{Duration, Instant};

use annotations::{Change, Filter, IndexState, Settings};

use crate::fixture::{Fixture, PAGE, each, each_with, on_page, settings, until};
use crate::index_kind::IndexKind;

async fn state(fixture: &Fixture, viewer: Option<i64>) -> IndexState {
    fixture.notes.search(viewer, &on_page(), None, 50).await.unwrap().index
}

#[tokio::test]
async fn author_finds_a_note_before_the_index_has_it() {
    each(async |fixture| {
        let (alba, bela) = (fixture.user("alba").await, fixture.user("bela").await);
        fixture.note(&alba, "first words").await;
        assert_eq!(
            fixture.texts(Some(&alba), &on_page()).await,
            ["first words"],
            "one's own, at once"
        );
        let words = Filter { q: Some("words first".to_owned()), ..Filter::default() };
        assert_eq!(fixture.texts(Some(&alba), &words).await, ["first words"], "by its words, too");
        let (others, _) = fixture.by_index(Some(&bela), &on_page()).await;
        assert!(others.is_empty(), "the index is what others see");
        fixture.work_all().await;
        assert_eq!(fixture.texts(Some(&bela), &on_page()).await, ["first words"]);
        assert_eq!(fixture.texts(None, &words).await, ["first words"]);
        fixture.assert_equal().await;
        assert_eq!(
            fixture.count("select count(*) from leasehold.job where name = 'index'").await,
            0
        );
    })
    .await;
}

#[tokio::test]
async fn search_follows_saves_changes_and_deletions() {
    each(async |fixture| {
        let (alba, bela) = (fixture.user("alba").await, fixture.user("bela").await);
        let words = |q: &str| Filter { q: Some(q.to_owned()), ..Filter::default() };
        let note = fixture.note(&alba, "Windmills or giants?").await;
        let other = fixture.note(&alba, "Two flocks of sheep").await;
        fixture.work_all().await;
        assert_eq!(fixture.texts(Some(&bela), &words("GIANTS windmills")).await.len(), 1);
        let change = Change {
            text: Some("A barber's basin".to_owned()),
            tags: Some(vec!["Helmet".to_owned()]),
            ..Change::default()
        };
        fixture.notes.update(&alba, &note.id, change).await.unwrap();
        fixture.work_all().await;
        let tagged = Filter { tag: Some("helmet".to_owned()), ..Filter::default() };
        for filter in [words("basin"), words("helmet"), tagged] {
            let found = fixture.texts(Some(&bela), &filter).await;
            assert_eq!(found, ["A barber's basin"], "{filter:?}");
        }
        assert!(fixture.texts(Some(&bela), &words("giants")).await.is_empty(), "its former words");
        fixture.notes.delete(&alba, &note.id).await.unwrap();
        fixture.work_all().await;
        assert!(fixture.texts(Some(&bela), &words("basin")).await.is_empty());
        assert_eq!(fixture.texts(Some(&bela), &on_page()).await, ["Two flocks of sheep"]);
        // Asks the index itself, without Postgres.
        let all = fixture.index().ids(annotations::index::Query::default()).await;
        assert_eq!(all, [other.id.to_string()]);
        fixture.assert_equal().await;
    })
    .await;
}

#[tokio::test]
async fn direct_path_shows_a_save_before_its_job_is_due() {
    each_with(Settings { direct: true, ..settings() }, async |fixture| {
        let alba = fixture.user("alba").await;
        let note = fixture.note(&alba, "seen at once").await;
        until(async || !fixture.texts(None, &on_page()).await.is_empty()).await;
        let change = Change { text: Some("changed at once".to_owned()), ..Change::default() };
        fixture.notes.update(&alba, &note.id, change).await.unwrap();
        let words = Filter { q: Some("changed".to_owned()), ..Filter::default() };
        until(async || !fixture.texts(None, &words).await.is_empty()).await;
        fixture.notes.delete(&alba, &note.id).await.unwrap();
        assert!(fixture.texts(None, &on_page()).await.is_empty(), "what is gone is gone");
        // The jobs exist as well, and find nothing to do.
        assert!(fixture.count("select count(*) from leasehold.job where name = 'index'").await > 0);
        fixture.work_all().await;
        fixture.assert_equal().await;
    })
    .await;
}

#[tokio::test]
async fn f11_postgres_serves_searches_while_the_index_is_down() {
    each_with(Settings { direct: true, ..settings() }, async |fixture| {
        let (alba, bela) = (fixture.user("alba").await, fixture.user("bela").await);
        fixture.note(&alba, "before the outage").await;
        fixture.work_all().await;
        fixture.index().set_down(true);
        fixture.note(&alba, "during the outage").await;
        for viewer in [None, Some(&alba), Some(&bela)] {
            let found =
                fixture.notes.search(viewer.map(|u| u.id), &on_page(), None, 50).await.unwrap();
            assert_eq!(found.index, IndexState::Down);
            assert_eq!(found.rows.len(), 2);
        }
        let words = Filter { q: Some("OUTAGE during".to_owned()), ..Filter::default() };
        assert_eq!(fixture.texts(None, &words).await, ["during the outage"]);
        fixture.index().set_down(false);
        until(async || state(&fixture, None).await != IndexState::Down).await;
        // The mirror's breaker was open for a while, too: its jobs come back by themselves.
        fixture.work_all().await;
        fixture.assert_equal().await;
        assert_eq!(fixture.texts(None, &on_page()).await.len(), 2);
    })
    .await;
}

#[tokio::test]
async fn f11_search_stops_waiting_before_the_query_to_the_index_ends() {
    // Much shorter than a query may take.
    let index_timeout = Duration::from_millis(1);
    let fixture = Fixture::with(Settings { index_timeout, ..settings() }).await;
    let alba = fixture.user("alba").await;
    fixture.note(&alba, "x").await;
    let index = fixture.index();
    index.set_hanging(true);
    until(async || {
        let before = (index.asked() + 1, index.abandoned());
        let found = fixture.notes.search(None, &on_page(), None, 50).await.unwrap();
        assert_eq!((found.index, found.rows.len()), (IndexState::Down, 1));
        // The query is still open: the search did not wait for its end.
        let is_open = (index.asked(), index.abandoned()) == before;
        // If the machine stalled, the query may have ended: try again, after the index has answered.
        if !is_open {
            index.set_hanging(false);
            until(async || state(&fixture, None).await != IndexState::Down).await;
            index.set_hanging(true);
        }
        is_open
    })
    .await;
}

#[tokio::test]
async fn f11_one_query_at_a_time_probes_an_index_that_timed_out() {
    let index_timeout = Duration::from_millis(1);
    let fixture = Fixture::with(Settings { index_timeout, ..settings() }).await;
    let alba = fixture.user("alba").await;
    fixture.note(&alba, "x").await;
    fixture.index().set_hanging(true);
    for _ in 0..10 {
        let found = fixture.notes.search(None, &on_page(), None, 50).await.unwrap();
        assert_eq!((found.index, found.rows.len()), (IndexState::Down, 1));
    }
    // The query that hangs, and one probe; when a probe times out, the next one follows.
    let (asked, abandoned) = (fixture.index().asked(), fixture.index().abandoned());
    assert!(asked <= 2 + abandoned, "{asked} were asked, {abandoned} have ended");
}

#[tokio::test]
async fn f11_breaker_opens_for_an_index_that_hangs() {
    let mut short = settings();
    short.index_limit = Duration::from_millis(250);
    let fixture = Fixture::with(short).await;
    let alba = fixture.user("alba").await;
    fixture.note(&alba, "x").await;
    let store = Arc::clone(fixture.store.as_ref().unwrap());
    store.set_hanging(true);
    let begun = Instant::now();
    for _ in 0..10 {
        assert_eq!(state(&fixture, None).await, IndexState::Down);
    }
    // Queries continue after their searches, one at a time; after three failures only every five
    // seconds.
    let most = 4 + usize::try_from(begun.elapsed().as_secs() / 5).unwrap();
    assert!((1..=most).contains(&store.asked()), "{} were asked", store.asked());
    store.set_hanging(false);
    until(async || state(&fixture, None).await != IndexState::Down).await;
}

#[tokio::test]
async fn index_state_is_behind_while_a_job_is_overdue() {
    let fixture = Fixture::new().await;
    let alba = fixture.user("alba").await;
    fixture.note(&alba, "x").await;
    fixture.work_all().await;
    until(async || state(&fixture, None).await == IndexState::Ok).await;
    // A job that has been due for longer than the head start of the direct path.
    let note = fixture.note(&alba, "y").await;
    let sql =
        "update leasehold.job set scheduled_at = statement_timestamp() - interval '10 minutes'";
    fixture.client.execute(sql, &[]).await.unwrap();
    until(async || state(&fixture, None).await == IndexState::Behind).await;
    assert_eq!(fixture.notes.read(None, &note.id).await.unwrap().url, PAGE);
    fixture.work_all().await;
    until(async || state(&fixture, None).await == IndexState::Ok).await;
}

#[tokio::test]
async fn f11_index_is_behind_while_a_job_is_deferred() {
    each(async |fixture| {
        let alba = fixture.user("alba").await;
        fixture.note(&alba, "x").await;
        fixture.work_all().await;
        until(async || state(&fixture, None).await == IndexState::Ok).await;
        fixture.index().set_down(true);
        fixture.note(&alba, "y").await;
        fixture.work_all().await;
        // A worker has deferred the job; it is not overdue.
        let deferred =
            "select count(*) from leasehold.job where name = 'index' and not held and deferred";
        assert_eq!(fixture.count(deferred).await, 1);
        // The next attempt runs: the index still lacks the note.
        let claim = "update leasehold.job set scheduled_at = statement_timestamp() where deferred; \
                     select leasehold.claim('test', 'annotations')";
        fixture.client.batch_execute(claim).await.unwrap();
        assert_eq!(fixture.count(deferred).await, 0);
        fixture.index().set_down(false);
        until(async || state(&fixture, None).await == IndexState::Behind).await;
        let release =
            "select leasehold.release(array[id], lease_generation) from leasehold.job where held";
        fixture.client.batch_execute(release).await.unwrap();
        fixture.work_all().await;
        until(async || state(&fixture, None).await == IndexState::Ok).await;
    })
    .await;
}

#[tokio::test]
async fn index_is_behind_while_a_difference_is_recorded() {
    let fixture = Fixture::new().await;
    let alba = fixture.user("alba").await;
    let note = fixture.note(&alba, "x").await;
    fixture.work_all().await;
    until(async || state(&fixture, None).await == IndexState::Ok).await;
    let sql = "insert into leasehold_internal.mirror_difference (mirror, key, kind) values ($1, $2, 'missing')";
    fixture.client.execute(sql, &[&annotations::MIRROR, &note.id.as_str()]).await.unwrap();
    until(async || state(&fixture, None).await == IndexState::Behind).await;
    // A difference is deleted once it was seen equal, not only at the end of the check's next round.
    fixture.client.execute("delete from leasehold_internal.mirror_difference", &[]).await.unwrap();
    until(async || state(&fixture, None).await == IndexState::Ok).await;
}

#[tokio::test]
async fn f14_documents_without_a_row_are_not_shown() {
    each(async |fixture| {
        let alba = fixture.user("alba").await;
        let note = fixture.note(&alba, "ghost").await;
        fixture.note(&alba, "alive").await;
        fixture.work_all().await;
        // Deletes the row without its triggers, so that the index does not learn of it.
        let sql = "set session_replication_role = replica";
        fixture.client.batch_execute(sql).await.unwrap();
        let gone = "delete from annotations.annotation where id = $1";
        assert_eq!(fixture.client.execute(gone, &[&note.id.as_str()]).await.unwrap(), 1);
        fixture.client.batch_execute("reset session_replication_role").await.unwrap();
        assert_eq!(fixture.index().ids(annotations::index::Query::default()).await.len(), 2);
        assert_eq!(fixture.texts(None, &on_page()).await, ["alive"]);
        assert_eq!(fixture.notes.counts(None, PAGE).await.unwrap().annotations, 1);
    })
    .await;
}

#[tokio::test]
async fn author_reaches_recent_notes_on_later_pages() {
    let fixture = Fixture::new().await;
    let alba = fixture.user("alba").await;
    for number in 0..12 {
        fixture.note(&alba, &number.to_string()).await;
    }
    let (mut seen, mut cursor) = (Vec::new(), None);
    loop {
        let found =
            fixture.notes.search(Some(alba.id), &on_page(), cursor.as_ref(), 5).await.unwrap();
        seen.extend(found.rows.into_iter().map(|row| row.text.parse::<i32>().unwrap()));
        cursor = found.next;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(seen, (0..12).rev().collect::<Vec<_>>());
}

#[tokio::test]
async fn author_finds_a_save_that_was_in_flight_when_a_check_began() {
    let fixture = Fixture::new().await;
    let alba = fixture.user("alba").await;
    fixture.note(&alba, "committed late").await;
    // The round began after the save did, and before the save was visible.
    let sql = "update leasehold_internal.mirror set equal_as_of = \
               (select max(updated_at) + interval '1 second' from annotations.annotation)";
    assert_eq!(fixture.client.execute(sql, &[]).await.unwrap(), 1);
    assert_eq!(fixture.texts(Some(&alba), &on_page()).await, ["committed late"]);
}

#[tokio::test]
async fn pages_of_a_search_have_every_note_once_in_order() {
    for kind in [None, Some(IndexKind::Tantivy), Some(IndexKind::OpenSearch)] {
        let fixture = Fixture::over(settings(), kind).await;
        let (alba, bela) = (fixture.user("alba").await, fixture.user("bela").await);
        let mut notes = Vec::new();
        for number in 0..25 {
            let author = if number % 3 == 0 { &bela } else { &alba };
            notes.push(fixture.note(author, &number.to_string()).await);
        }
        fixture.work_all().await;
        // Adds recent notes of the viewer, and deletes some that the index still has.
        for number in 25..30 {
            fixture.note(&bela, &number.to_string()).await;
        }
        for number in [22, 19, 16] {
            fixture.notes.delete(&alba, &notes[number].id).await.unwrap();
        }
        let (mut seen, mut cursor) = (Vec::new(), None);
        loop {
            let found =
                fixture.notes.search(Some(bela.id), &on_page(), cursor.as_ref(), 7).await.unwrap();
            assert!(found.rows.len() <= 7);
            seen.extend(found.rows.into_iter().map(|row| row.text.parse::<i32>().unwrap()));
            match found.next {
                Some(next) => cursor = Some(next),
                None => break,
            }
        }
        let wanted: Vec<i32> = (0..30).rev().filter(|n| ![22, 19, 16].contains(n)).collect();
        assert_eq!(seen, wanted, "with {kind:?}");
    }
}
