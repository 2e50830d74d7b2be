//! Search with an index: fresh, behind, down, wrong.

use std::sync::Arc;
use std::time::{Duration, Instant};

use annotations::{Change, Filter, IndexState, Settings};

use crate::kind::Kind;
use crate::rig::{PAGE, Rig, each, each_with, on_page, settings, until};

async fn state(rig: &Rig, viewer: Option<i64>) -> IndexState {
    rig.notes.search(viewer, &on_page(), None, 50).await.unwrap().index
}

#[tokio::test]
async fn an_author_finds_what_the_index_does_not_know_and_others_do_when_it_does() {
    each(async |rig| {
        let (alba, bela) = (rig.user("alba").await, rig.user("bela").await);
        rig.note(&alba, "first words").await;
        assert_eq!(rig.texts(Some(&alba), &on_page()).await, ["first words"], "one's own, at once");
        let words = Filter { q: Some("words first".to_owned()), ..Filter::default() };
        assert_eq!(rig.texts(Some(&alba), &words).await, ["first words"], "by its words, too");
        let (others, _) = rig.by_index(Some(&bela), &on_page()).await;
        assert!(others.is_empty(), "the index is what others see");
        rig.work_all().await;
        assert_eq!(rig.texts(Some(&bela), &on_page()).await, ["first words"]);
        assert_eq!(rig.texts(None, &words).await, ["first words"]);
        rig.assert_equal().await;
        assert_eq!(rig.count("select count(*) from leasehold.job where name = 'index'").await, 0);
    })
    .await;
}

#[tokio::test]
async fn what_is_saved_changed_and_deleted_is_found_as_it_is() {
    each(async |rig| {
        let (alba, bela) = (rig.user("alba").await, rig.user("bela").await);
        let words = |q: &str| Filter { q: Some(q.to_owned()), ..Filter::default() };
        let note = rig.note(&alba, "Windmills or giants?").await;
        let other = rig.note(&alba, "Two flocks of sheep").await;
        rig.work_all().await;
        assert_eq!(rig.texts(Some(&bela), &words("GIANTS windmills")).await.len(), 1);
        let change = Change {
            text: Some("A barber's basin".to_owned()),
            tags: Some(vec!["Helmet".to_owned()]),
            ..Change::default()
        };
        rig.notes.update(&alba, &note.id, change).await.unwrap();
        rig.work_all().await;
        let tagged = Filter { tag: Some("helmet".to_owned()), ..Filter::default() };
        for filter in [words("basin"), words("helmet"), tagged] {
            let found = rig.texts(Some(&bela), &filter).await;
            assert_eq!(found, ["A barber's basin"], "{filter:?}");
        }
        assert!(rig.texts(Some(&bela), &words("giants")).await.is_empty(), "its former words");
        rig.notes.delete(&alba, &note.id).await.unwrap();
        rig.work_all().await;
        assert!(rig.texts(Some(&bela), &words("basin")).await.is_empty());
        assert_eq!(rig.texts(Some(&bela), &on_page()).await, ["Two flocks of sheep"]);
        // Asks the index itself, without Postgres.
        let all = rig.index().ids(annotations::index::Query::default()).await;
        assert_eq!(all, [other.id.to_string()]);
        rig.assert_equal().await;
    })
    .await;
}

#[tokio::test]
async fn the_direct_path_shows_a_save_to_others_before_its_job_is_due() {
    each_with(Settings { direct: true, ..settings() }, async |rig| {
        let alba = rig.user("alba").await;
        let note = rig.note(&alba, "seen at once").await;
        until(async || !rig.texts(None, &on_page()).await.is_empty()).await;
        let change = Change { text: Some("changed at once".to_owned()), ..Change::default() };
        rig.notes.update(&alba, &note.id, change).await.unwrap();
        let words = Filter { q: Some("changed".to_owned()), ..Filter::default() };
        until(async || !rig.texts(None, &words).await.is_empty()).await;
        rig.notes.delete(&alba, &note.id).await.unwrap();
        assert!(rig.texts(None, &on_page()).await.is_empty(), "what is gone is gone");
        // The jobs exist all the same, and find nothing to do.
        assert!(rig.count("select count(*) from leasehold.job where name = 'index'").await > 0);
        rig.work_all().await;
        rig.assert_equal().await;
    })
    .await;
}

#[tokio::test]
async fn f11_while_the_index_is_down_nothing_fails_and_postgres_answers() {
    each_with(Settings { direct: true, ..settings() }, async |rig| {
        let (alba, bela) = (rig.user("alba").await, rig.user("bela").await);
        rig.note(&alba, "before the outage").await;
        rig.work_all().await;
        rig.index().set_down(true);
        rig.note(&alba, "during the outage").await;
        for viewer in [None, Some(&alba), Some(&bela)] {
            let found = rig.notes.search(viewer.map(|u| u.id), &on_page(), None, 50).await.unwrap();
            assert_eq!(found.index, IndexState::Down);
            assert_eq!(found.rows.len(), 2);
        }
        let words = Filter { q: Some("OUTAGE during".to_owned()), ..Filter::default() };
        assert_eq!(rig.texts(None, &words).await, ["during the outage"]);
        rig.index().set_down(false);
        until(async || state(&rig, None).await != IndexState::Down).await;
        // The mirror's breaker was open for a while, too: its jobs come back by themselves.
        rig.work_all().await;
        rig.assert_equal().await;
        assert_eq!(rig.texts(None, &on_page()).await.len(), 2);
    })
    .await;
}

#[tokio::test]
async fn f11_nobody_waits_as_long_as_a_question_to_the_index_may_take() {
    // Much shorter than a query may take.
    let index_timeout = Duration::from_millis(1);
    let rig = Rig::with(Settings { index_timeout, ..settings() }).await;
    let alba = rig.user("alba").await;
    rig.note(&alba, "x").await;
    let index = rig.index();
    index.set_hanging(true);
    until(async || {
        let before = (index.asked() + 1, index.given_up());
        let found = rig.notes.search(None, &on_page(), None, 50).await.unwrap();
        assert_eq!((found.index, found.rows.len()), (IndexState::Down, 1));
        // The query is still open: the search did not wait for its end.
        let is_open = (index.asked(), index.given_up()) == before;
        // If the machine stalled, the query may have ended: try again, after the index has answered.
        if !is_open {
            index.set_hanging(false);
            until(async || state(&rig, None).await != IndexState::Down).await;
            index.set_hanging(true);
        }
        is_open
    })
    .await;
}

#[tokio::test]
async fn f11_once_one_has_waited_in_vain_one_asks_for_all() {
    let index_timeout = Duration::from_millis(1);
    let rig = Rig::with(Settings { index_timeout, ..settings() }).await;
    let alba = rig.user("alba").await;
    rig.note(&alba, "x").await;
    rig.index().set_hanging(true);
    for _ in 0..10 {
        let found = rig.notes.search(None, &on_page(), None, 50).await.unwrap();
        assert_eq!((found.index, found.rows.len()), (IndexState::Down, 1));
    }
    // The query that hangs, and one probe; when a probe gives up, the next one follows.
    let (asked, given_up) = (rig.index().asked(), rig.index().given_up());
    assert!(asked <= 2 + given_up, "{asked} were asked, {given_up} have ended");
}

#[tokio::test]
async fn f11_an_index_that_hangs_is_soon_left_alone() {
    let mut short = settings();
    short.index_limit = Duration::from_millis(250);
    let rig = Rig::with(short).await;
    let alba = rig.user("alba").await;
    rig.note(&alba, "x").await;
    let store = Arc::clone(rig.store.as_ref().unwrap());
    store.set_hanging(true);
    let begun = Instant::now();
    for _ in 0..10 {
        assert_eq!(state(&rig, None).await, IndexState::Down);
    }
    // Queries continue after their searches, one at a time; after three failures only every five
    // seconds.
    let most = 4 + usize::try_from(begun.elapsed().as_secs() / 5).unwrap();
    assert!((1..=most).contains(&store.asked()), "{} were asked", store.asked());
    store.set_hanging(false);
    until(async || state(&rig, None).await != IndexState::Down).await;
}

#[tokio::test]
async fn behind_says_so_and_equal_says_ok() {
    let rig = Rig::new().await;
    let alba = rig.user("alba").await;
    rig.note(&alba, "x").await;
    rig.work_all().await;
    until(async || state(&rig, None).await == IndexState::Ok).await;
    // A job that has been due for longer than the head start of the direct path.
    let note = rig.note(&alba, "y").await;
    let sql =
        "update leasehold.job set scheduled_at = statement_timestamp() - interval '10 minutes'";
    rig.client.execute(sql, &[]).await.unwrap();
    until(async || state(&rig, None).await == IndexState::Behind).await;
    assert_eq!(rig.notes.read(None, &note.id).await.unwrap().url, PAGE);
    rig.work_all().await;
    until(async || state(&rig, None).await == IndexState::Ok).await;
}

#[tokio::test]
async fn f11_after_an_outage_the_index_is_behind_until_it_has_what_was_put_off() {
    each(async |rig| {
        let alba = rig.user("alba").await;
        rig.note(&alba, "x").await;
        rig.work_all().await;
        until(async || state(&rig, None).await == IndexState::Ok).await;
        rig.index().set_down(true);
        rig.note(&alba, "y").await;
        rig.work_all().await;
        // In the lane of deferred jobs, however long ago it was deferred.
        let put_off = "select count(*) from leasehold.job where name = 'index' \
                       and priority >= 1000000 and not held";
        assert_eq!(rig.count(put_off).await, 1, "its job was put off");
        rig.index().set_down(false);
        until(async || state(&rig, None).await == IndexState::Behind).await;
        rig.work_all().await;
        until(async || state(&rig, None).await == IndexState::Ok).await;
    })
    .await;
}

#[tokio::test]
async fn a_difference_that_was_found_and_not_mended_makes_the_index_behind() {
    let rig = Rig::new().await;
    let alba = rig.user("alba").await;
    let note = rig.note(&alba, "x").await;
    rig.work_all().await;
    until(async || state(&rig, None).await == IndexState::Ok).await;
    let sql =
        "insert into leasehold.mirror_difference (mirror, key, kind) values ($1, $2, 'missing')";
    rig.client.execute(sql, &[&annotations::MIRROR, &note.id.as_str()]).await.unwrap();
    until(async || state(&rig, None).await == IndexState::Behind).await;
    // A difference is deleted once it was seen equal, not only at the end of the check's next round.
    rig.client.execute("delete from leasehold.mirror_difference", &[]).await.unwrap();
    until(async || state(&rig, None).await == IndexState::Ok).await;
}

#[tokio::test]
async fn f14_ghosts_in_the_index_show_nothing() {
    each(async |rig| {
        let alba = rig.user("alba").await;
        let note = rig.note(&alba, "ghost").await;
        rig.note(&alba, "alive").await;
        rig.work_all().await;
        // Deletes the row without its triggers, so that the index does not learn of it.
        let sql = "set session_replication_role = replica";
        rig.client.batch_execute(sql).await.unwrap();
        let gone = "delete from annotations.annotation where id = $1";
        assert_eq!(rig.client.execute(gone, &[&note.id.as_str()]).await.unwrap(), 1);
        rig.client.batch_execute("reset session_replication_role").await.unwrap();
        assert_eq!(rig.index().ids(annotations::index::Query::default()).await.len(), 2);
        assert_eq!(rig.texts(None, &on_page()).await, ["alive"]);
        assert_eq!(rig.notes.counts(None, PAGE).await.unwrap().annotations, 1);
    })
    .await;
}

#[tokio::test]
async fn an_author_reaches_fresh_notes_past_the_first_page() {
    let rig = Rig::new().await;
    let alba = rig.user("alba").await;
    for number in 0..12 {
        rig.note(&alba, &number.to_string()).await;
    }
    let (mut seen, mut cursor) = (Vec::new(), None);
    loop {
        let found = rig.notes.search(Some(alba.id), &on_page(), cursor.as_ref(), 5).await.unwrap();
        seen.extend(found.rows.into_iter().map(|row| row.text.parse::<i32>().unwrap()));
        cursor = found.next;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(seen, (0..12).rev().collect::<Vec<_>>());
}

#[tokio::test]
async fn an_author_finds_a_save_that_was_on_its_way_when_a_check_began() {
    let rig = Rig::new().await;
    let alba = rig.user("alba").await;
    rig.note(&alba, "committed late").await;
    // The round began after the save did, and before the save was visible.
    let sql = "update leasehold.mirror set equal_as_of = \
               (select max(updated_at) + interval '1 second' from annotations.annotation)";
    assert_eq!(rig.client.execute(sql, &[]).await.unwrap(), 1);
    assert_eq!(rig.texts(Some(&alba), &on_page()).await, ["committed late"]);
}

#[tokio::test]
async fn pages_of_an_answer_have_every_note_once_in_order() {
    for kind in [None, Some(Kind::Tantivy), Some(Kind::OpenSearch)] {
        let rig = Rig::over(settings(), kind).await;
        let (alba, bela) = (rig.user("alba").await, rig.user("bela").await);
        let mut notes = Vec::new();
        for number in 0..25 {
            let author = if number % 3 == 0 { &bela } else { &alba };
            notes.push(rig.note(author, &number.to_string()).await);
        }
        rig.work_all().await;
        // Adds recent notes of the viewer, and deletes some that the index still has.
        for number in 25..30 {
            rig.note(&bela, &number.to_string()).await;
        }
        for number in [22, 19, 16] {
            rig.notes.delete(&alba, &notes[number].id).await.unwrap();
        }
        let (mut seen, mut cursor) = (Vec::new(), None);
        loop {
            let found =
                rig.notes.search(Some(bela.id), &on_page(), cursor.as_ref(), 7).await.unwrap();
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
