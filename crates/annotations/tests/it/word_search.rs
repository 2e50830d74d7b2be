//! Searches by words without an index: what they find, and how they affect other requests.

use std::time::Duration;

use annotations::{Annotations, Cursor, Filter, IndexState, Refused};

use crate::fixture::{Fixture, PAGE, each, on_page, settings, until};

fn words(q: &str) -> Filter {
    Filter { q: Some(q.to_owned()), ..Filter::default() }
}

/// Counts the server's statements that search.
pub const SEARCHING: &str = "select count(*) from pg_stat_activity \
                         where datname = current_database() and state = 'active' \
                         and query like '%search_notes%' and pid <> pg_backend_pid()";

/// Makes every search by words run until it is cancelled.
async fn never_end(fixture: &Fixture) {
    let sql = "create or replace function annotations.matches_words(words text[], phrases text[], content text) \
               returns boolean language plpgsql as $$ begin perform pg_sleep(3600); return true; end $$";
    fixture.client.batch_execute(sql).await.unwrap();
}

#[tokio::test]
async fn f22_word_search_ends_in_the_database_at_its_limit() {
    let fixture = Fixture::alone().await;
    let alba = fixture.user("alba").await;
    fixture.note(&alba, "giants").await;
    never_end(&fixture).await;
    let limit = Duration::from_secs(3);
    let hasty = Annotations::start_within(fixture.engine.clone(), None, settings(), limit);
    let late = hasty.await.unwrap().search(None, &words("giants"), None, 10).await;
    assert!(matches!(late, Err(Refused::Unavailable(_))), "{late:?}");
    // Earlier than the session's own limit of a minute.
    let gone = until(async || fixture.count(SEARCHING).await == 0);
    tokio::time::timeout(Duration::from_secs(30), gone).await.expect("no search runs");
}

#[tokio::test]
async fn f22_other_searches_do_not_wait_behind_word_searches() {
    let fixture = Fixture::alone().await;
    let alba = fixture.user("alba").await;
    fixture.note(&alba, "giants").await;
    never_end(&fixture).await;
    let mut searching = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let notes = fixture.notes.clone();
        searching.spawn(async move { notes.search(None, &words("giants"), None, 10).await });
    }
    until(async || fixture.count(SEARCHING).await >= 2).await;
    for _ in 0..10 {
        let found = fixture.notes.search(None, &on_page(), None, 10).await.unwrap();
        assert_eq!(found.rows.len(), 1);
    }
    assert!(fixture.count(SEARCHING).await <= 2, "at most two at a time");
    searching.abort_all();
}

#[tokio::test]
async fn f22_search_without_a_caller_keeps_its_permit_until_it_ends() {
    let fixture = Fixture::alone().await;
    let alba = fixture.user("alba").await;
    fixture.note(&alba, "giants").await;
    never_end(&fixture).await;
    let most = async || {
        let running = fixture.count(SEARCHING).await;
        assert!(running <= 2, "{running} searches at a time");
        running
    };
    for _ in 0..4 {
        let mut searching = tokio::task::JoinSet::new();
        for _ in 0..20 {
            let notes = fixture.notes.clone();
            searching.spawn(async move { notes.search(None, &words("giants"), None, 10).await });
        }
        until(async || most().await == 2).await;
        searching.shutdown().await;
        for _ in 0..10 {
            most().await;
        }
    }
    // Long before their time limit of two minutes.
    let gone = until(async || most().await == 0);
    tokio::time::timeout(Duration::from_secs(30), gone).await.expect("they are cancelled");
    let mended = "create or replace function annotations.matches_words(words text[], phrases text[], content text) \
                  returns boolean language sql as $$ select true $$";
    fixture.client.batch_execute(mended).await.unwrap();
    let found = fixture.notes.search(None, &words("giants"), None, 10).await.unwrap();
    assert_eq!(found.rows.len(), 1, "the permits are free again");
}

/// Adds notes with this tag on the page of a note, each with a text of this length.
async fn fill(fixture: &Fixture, id: &str, notes: i32, length: i32) {
    let sql = "insert into annotations.annotation \
                   (id, document_id, user_id, group_id, kind, text, tags, updated_at) \
               select substr(replace(gen_random_uuid()::text, '-', ''), 1, 22), a.document_id, \
                      a.user_id, a.group_id, 'page_note', repeat('x', $3), '{long}', \
                      a.updated_at + n * interval '1 s' \
               from annotations.annotation a, generate_series(1, $2) n where a.id = $1";
    fixture.client.execute(sql, &[&id, &notes, &length]).await.unwrap();
    fixture.client.batch_execute("analyze annotations.annotation").await.unwrap();
}

#[tokio::test]
async fn f22_sorted_candidates_are_read_within_the_byte_limit() {
    let fixture = Fixture::alone().await;
    let alba = fixture.user("alba").await;
    let first = fixture.note(&alba, "first").await;
    fixture
        .client
        .batch_execute("alter table annotations.annotation alter column text set storage external")
        .await
        .unwrap();
    fill(&fixture, first.id.as_str(), 600, 60_000).await;
    // Blocks of the table that holds long texts, as this transaction has read them.
    let read = async |sql: &str| -> i64 {
        let begin = "begin; set local enable_indexscan = off; set local enable_indexonlyscan = off";
        fixture.client.batch_execute(begin).await.unwrap();
        let blocks = "select pg_stat_get_xact_blocks_fetched(reltoastrelid) from pg_class \
                      where oid = 'annotations.annotation'::regclass";
        let before = fixture.count(blocks).await;
        fixture.client.query(sql, &[]).await.unwrap();
        let after = fixture.count(blocks).await;
        fixture.client.batch_execute("rollback").await.unwrap();
        after - before
    };
    let all = read("select sum(length(lower(text))) from annotations.annotation").await;
    let search = "select * from annotations.search_notes(null, null, null, null, 'long', null, null, \
                      '{rarest}', '{}', null, null, null, null, 10, 2000000, null)";
    let searched = read(search).await;
    assert!(searched > 0 && searched < all * 6 / 10, "{searched} of {all} blocks");
}

#[tokio::test]
async fn f22_conversation_is_found_without_reading_other_notes() {
    let fixture = Fixture::alone().await;
    let alba = fixture.user("alba").await;
    let first = fixture.note(&alba, "first").await;
    fixture.reply(&alba, &first, "an answer").await;
    fill(&fixture, first.id.as_str(), 5000, 10).await;
    let search = "select * from annotations.search_notes(null, null, null, null, null, null, $1, \
                      null, null, null, null, null, null, 10, 2000000, null)";
    let read = "select (seq_tup_read + idx_tup_fetch)::bigint from pg_stat_xact_user_tables \
                where relid = 'annotations.annotation'::regclass";
    fixture.client.batch_execute("begin").await.unwrap();
    let before = fixture.count(read).await;
    let found = fixture.client.query(search, &[&first.id.as_str()]).await.unwrap();
    let read = fixture.count(read).await - before;
    fixture.client.batch_execute("commit").await.unwrap();
    assert_eq!(found.len(), 1);
    assert!(read < 50, "{read} notes were read");
}

#[tokio::test]
async fn f22_filter_searches_end_at_their_limit_and_delay_no_others() {
    let fixture = Fixture::alone().await;
    let alba = fixture.user("alba").await;
    fixture.note(&alba, "giants").await;
    let slow = "create or replace function annotations.folded(tags text[]) \
                returns text[] language plpgsql immutable as $$ \
                begin perform pg_sleep(3600); return tags; end $$";
    fixture.client.batch_execute(slow).await.unwrap();
    let limit = Duration::from_secs(3);
    let hasty = Annotations::start_within(fixture.engine.clone(), None, settings(), limit);
    let hasty = hasty.await.unwrap();
    let mut searching = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let notes = hasty.clone();
        let tagged = Filter { tag: Some("x".to_owned()), ..Filter::default() };
        searching.spawn(async move { notes.search(None, &tagged, None, 10).await });
    }
    until(async || fixture.count(SEARCHING).await == 3).await;
    let found = hasty.search(None, &on_page(), None, 10).await.unwrap();
    assert_eq!(found.rows.len(), 1);
    for late in searching.join_all().await {
        assert!(matches!(late, Err(Refused::Unavailable(_))), "{late:?}");
    }
    let gone = until(async || fixture.count(SEARCHING).await == 0);
    tokio::time::timeout(Duration::from_secs(30), gone).await.expect("no search runs");
}

#[tokio::test]
async fn f22_word_search_reads_16_mib_and_continues_on_the_next_page() {
    let fixture = Fixture::alone().await;
    let alba = fixture.user("alba").await;
    let old = fixture.note(&alba, "the rarest of words").await;
    // 300 notes of 60 KB are more than the 16 MiB that one response reads.
    let sql = "insert into annotations.annotation \
                   (id, document_id, user_id, group_id, kind, text, updated_at) \
               select substr(replace(gen_random_uuid()::text, '-', ''), 1, 22), a.document_id, \
                      a.user_id, a.group_id, 'page_note', repeat('giants ', 8600), \
                      a.updated_at + n * interval '1 s' \
               from annotations.annotation a, generate_series(1, 300) n where a.id = $1";
    fixture.client.execute(sql, &[&old.id.as_str()]).await.unwrap();
    let first = fixture.notes.search(None, &words("rarest"), None, 10).await.unwrap();
    assert!(first.rows.is_empty());
    let next = first.next.expect("there is more to look through");
    let second = fixture.notes.search(None, &words("rarest"), Some(&next), 10).await.unwrap();
    assert_eq!(second.rows.len(), 1);
    assert_eq!(second.next, None);
}

#[tokio::test]
async fn f23_index_and_postgres_parse_phrases_alike() {
    each(async |fixture| {
        let (alba, bela) = (fixture.user("alba").await, fixture.user("bela").await);
        fixture.note(&alba, "the flailing, arms of Giants").await;
        fixture.note(&alba, "arms flailing; see example.com").await;
        let questions = [
            (r#""flailing arms""#, 1),
            (r#""arms flailing""#, 1),
            ("flailing arms", 2),
            ("(flailing) arms,", 2),
            (r#""Flailing Arms" giants"#, 1),
            (r#""see example.com""#, 1),
            (r#""see exampleXcom""#, 0),
            ("--", 0),
            (r#"giants "--""#, 0),
            (r#"" ""#, 2),
        ];
        let check = async |viewer: i64, state: IndexState, who: &str| {
            for (q, many) in questions {
                let mut found = None;
                until(async || {
                    found = fixture.notes.search(Some(viewer), &words(q), None, 10).await.ok();
                    found.as_ref().is_some_and(|found| found.index == state)
                })
                .await;
                assert_eq!(found.unwrap().rows.len(), many, "{q} for {who}, {state:?}");
            }
        };
        // The index has nothing yet, and the author finds everything.
        check(alba.id, IndexState::Ok, "the author").await;
        fixture.work_all().await;
        check(bela.id, IndexState::Ok, "others").await;
        fixture.index().set_down(true);
        check(bela.id, IndexState::Down, "others").await;
        fixture.index().set_down(false);
    })
    .await;
}

/// Returns the notes of every page of a search, by its cursors.
async fn all(fixture: &Fixture, filter: &Filter, limit: usize) -> Vec<String> {
    let (mut seen, mut cursor): (Vec<String>, Option<Cursor>) = (Vec::new(), None);
    loop {
        let found = fixture.notes.search(None, filter, cursor.as_ref(), limit).await.unwrap();
        seen.extend(found.rows.into_iter().map(|row| row.id.to_string()));
        match found.next {
            Some(next) => cursor = Some(next),
            None => return seen,
        }
    }
}

#[tokio::test]
async fn f19_pages_that_end_by_bytes_have_every_note_once() {
    each(async |fixture| {
        let alba = fixture.user("alba").await;
        let mut saved = Vec::new();
        for number in 0..80 {
            let text = format!("{number} {}", "<".repeat(60_000));
            saved.push(fixture.note(&alba, &text).await.id.to_string());
        }
        saved.reverse();
        let filter = Filter { url: Some(PAGE.to_owned()), ..Filter::default() };
        fixture.work_all().await;
        let first = fixture.notes.search(None, &filter, None, 200).await.unwrap();
        assert!(first.rows.len() < 40, "{} of 60 KB are over 2 MiB", first.rows.len());
        for down in [false, true] {
            fixture.index().set_down(down);
            assert_eq!(all(&fixture, &filter, 200).await, saved, "down: {down}");
            assert_eq!(all(&fixture, &filter, 7).await, saved, "down: {down}");
        }
        fixture.index().set_down(false);
    })
    .await;
}
