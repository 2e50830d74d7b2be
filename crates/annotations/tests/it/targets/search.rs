//! What searches find, and in which order.

use annotations::index::Query;
use leasehold::mirror::Write;
use serde_json::{Value, json};

use super::fixture::{Fixture, asking, each, gone, note, put, write};

/// Windmills, in five annotations.
async fn windmills(fixture: &Fixture) {
    let with = |key: &str, updated: i64, change: Value| {
        let mut document = note("", updated);
        document.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        put(key, 1, document)
    };
    let writes: Vec<Write> = vec![
        with(
            "a",
            10,
            json!({ "user": "sancho", "text": "Those are not giants but windmills.",
            "tags": ["Windmills", "doubt"] }),
        ),
        with(
            "b",
            20,
            json!({ "user": "quixote", "quote": "thirty or forty windmills",
            "text": "monstrous giants, all of them", "group": "knights" }),
        ),
        with(
            "c",
            30,
            json!({ "user": "sancho", "kind": "reply", "parent": "b", "root": "b",
            "text": "What giants?", "group": "knights" }),
        ),
        with(
            "d",
            40,
            json!({ "user": "quixote", "kind": "reply", "parent": "c", "root": "b",
            "text": "Fly not, cowards", "group": "squires" }),
        ),
        with(
            "e",
            40,
            json!({ "url": "https://example.com/other", "user": "dulcinea",
            "kind": "page_note", "text": "Molinos de viento: ¡Qué gigantes! 風車の巨人 Ветряные мельницы",
            "tags": ["WINDMILLS", "la Mañcha"] }),
        ),
    ];
    let answers = fixture.set.write(&writes).await.unwrap();
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
}

#[tokio::test]
async fn search_sorts_by_last_change_and_then_by_id() {
    each(async |fixture| {
        windmills(&fixture).await;
        assert_eq!(fixture.ids(&asking()).await, ["e", "d", "c", "b", "a"]);
    })
    .await;
}

#[tokio::test]
async fn filters_narrow_the_result_alone_and_together() {
    each(async |fixture| {
        windmills(&fixture).await;
        let some = |text: &str| Some(text.to_owned());
        let groups = |groups: &[&str]| Some(groups.iter().map(|g| (*g).to_owned()).collect());
        let cases: Vec<(Query, &[&str])> = vec![
            (Query { user: some("sancho"), ..asking() }, &["c", "a"]),
            (Query { user: some("Sancho"), ..asking() }, &[]),
            (Query { url: some("https://example.com/other"), ..asking() }, &["e"]),
            (Query { url: some("https://example.com/"), ..asking() }, &[]),
            (Query { groups: groups(&["knights", "squires"]), ..asking() }, &["d", "c", "b"]),
            (Query { groups: groups(&["unknown"]), ..asking() }, &[]),
            (Query { groups: groups(&[]), ..asking() }, &[]),
            (Query { tag: some("windmills"), ..asking() }, &["e", "a"]),
            (Query { tag: some(" LA MAÑCHA"), ..asking() }, &["e"]),
            (Query { tag: some("windmill"), ..asking() }, &[]),
            (Query { kind: some("page_note"), ..asking() }, &["e"]),
            (Query { reference: some("b"), ..asking() }, &["d", "c"]),
            (Query { reference: some("c"), ..asking() }, &["d"]),
            (Query { reference: some("a"), ..asking() }, &[]),
            (
                Query {
                    reference: some("b"),
                    user: some("sancho"),
                    words: some("giants"),
                    ..asking()
                },
                &["c"],
            ),
        ];
        for (query, ids) in cases {
            assert_eq!(fixture.ids(&query).await, ids, "{query:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn words_match_in_quote_text_and_tags_in_any_case_and_script() {
    each(async |fixture| {
        windmills(&fixture).await;
        let cases: [(&str, &[&str]); 20] = [
            ("giants", &["c", "b", "a"]),
            ("GIANTS", &["c", "b", "a"]),
            ("giants windmills", &["b", "a"]),
            ("windmills giants", &["b", "a"]),
            ("doubt", &["a"]),
            ("giant", &[]),
            ("\"not giants\"", &["a"]),
            ("\"giants not\"", &[]),
            ("\"giants but windmills\" doubt", &["a"]),
            ("\"windmills", &["e", "b", "a"]),
            ("mancha", &["e"]),
            ("Mañcha", &["e"]),
            ("que gigantes", &["e"]),
            ("巨人", &["e"]),
            ("ВЕТРЯНЫЕ", &["e"]),
            ("giants !!!", &["c", "b", "a"]),
            ("!!!", &[]),
            ("\"?!\"", &[]),
            ("🦀", &[]),
            ("", &["e", "d", "c", "b", "a"]),
        ];
        for (words, ids) in cases {
            let query = Query { words: Some(words.to_owned()), ..asking() };
            assert_eq!(fixture.ids(&query).await, ids, "{words:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn query_operators_are_plain_words() {
    each(async |fixture| {
        windmills(&fixture).await;
        // Operators of query languages, broken ones too: none may fail or match everything.
        for words in [
            "user:sancho",
            "*",
            "a*",
            "(",
            "text:[a TO z]",
            "NOT x",
            "a AND",
            "~5",
            "\\",
            "+",
            "-giants x^",
        ] {
            let query = Query { words: Some(words.to_owned()), ..asking() };
            assert!(fixture.ids(&query).await.len() < 5, "{words}");
        }
    })
    .await;
}

#[tokio::test]
async fn pages_continue_without_repeats() {
    each(async |fixture| {
        // Many with the same time of change, as after an import.
        let writes: Vec<Write> =
            (0..45).map(|n| put(&format!("k{n:02}"), 1, note("x", n / 20))).collect();
        for writes in writes.chunks(20) {
            fixture.set.write(writes).await.unwrap();
        }
        fixture.set.digest(&Default::default()).await.unwrap();
        let mut query = Query { limit: 7, ..Query::default() };
        let mut seen = Vec::new();
        loop {
            let hits = fixture.search.search(&query).await.unwrap();
            assert!(hits.hits.len() <= 7);
            seen.extend(hits.hits);
            match hits.next {
                Some(next) => query.after = Some(next),
                None => break,
            }
        }
        let mut sorted = seen.clone();
        sorted.sort_by(|a, b| (b.updated, &b.id).cmp(&(a.updated, &a.id)));
        sorted.dedup();
        assert_eq!(sorted.len(), 45);
        assert_eq!(seen, sorted);
    })
    .await;
}

#[tokio::test]
async fn result_size_is_clamped_to_1_and_200() {
    each(async |fixture| {
        let writes: Vec<Write> =
            (0..230).map(|n| put(&format!("k{n:03}"), 1, note("x", n))).collect();
        fixture.set.write(&writes).await.unwrap();
        let with = |limit| Query { limit, ..Query::default() };
        assert_eq!(fixture.ids(&with(0)).await.len(), 1);
        assert_eq!(fixture.ids(&with(usize::MAX)).await.len(), 200);
    })
    .await;
}

#[tokio::test]
async fn f2_search_follows_deletions_and_changes() {
    each(async |fixture| {
        windmills(&fixture).await;
        write(&fixture.set, gone("a", 2)).await.unwrap();
        write(&fixture.set, put("b", 2, note("a barber's basin", 50))).await.unwrap();
        let words = |words: &str| Query { words: Some(words.to_owned()), ..asking() };
        assert_eq!(fixture.ids(&words("giants")).await, ["c"]);
        assert_eq!(fixture.ids(&words("barber's basin")).await, ["b"]);
        assert_eq!(fixture.ids(&asking()).await, ["b", "e", "d", "c"]);
    })
    .await;
}
