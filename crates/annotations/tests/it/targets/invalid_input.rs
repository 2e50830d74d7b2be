//! Documents and queries that no correct client makes.

use annotations::index::document::{KEY_BYTES, KEYWORD_BYTES, TEXT_BYTES};
use annotations::index::{Cursor, Query};
use leasehold::mirror::{ItemError, Range, Written};
use serde_json::json;

use super::fixture::{asking, each, gone, held, living, note, put, write};

#[tokio::test]
async fn f11_refused_document_does_not_stop_the_others() {
    each(async |fixture| {
        let long = "x".repeat(KEY_BYTES + 1);
        let batch = [
            put("first", 1, note("", 1)),
            put("number", 1, json!(5)),
            put("time", 1, json!({ "updated": "soon" })),
            put("user", 1, json!({ "user": ["sancho"] })),
            put("url", 1, json!({ "url": "x".repeat(KEYWORD_BYTES + 1) })),
            put("", 1, note("", 1)),
            put(&long, 1, note("", 1)),
            gone("negative", -1),
            put("last", 1, note("", 1)),
        ];
        let answers = fixture.set.write(&batch).await.unwrap();
        assert_eq!((&answers[0], &answers[8]), (&Ok(Written::Stored), &Ok(Written::Stored)));
        for (at, answer) in answers.iter().enumerate().take(8).skip(1) {
            assert!(matches!(answer, Err(ItemError::Refused(_))), "{at}: {answer:?}");
        }
        assert_eq!(held(&fixture.set, "last").await, living(1));
        assert_eq!(fixture.set.digest(&Range::default()).await.unwrap().count, 2);
        assert_eq!(held(&fixture.set, &long).await, None);
    })
    .await;
}

#[tokio::test]
async fn unusual_texts_are_stored() {
    each(async |fixture| {
        let texts = [
            String::new(),
            "\u{0}\u{1}\u{7f}\u{feff}\u{202e}".to_owned(),
            "e\u{301}\u{300}\u{316}".to_owned(),
            "👩‍👩‍👧‍👦 🏳️‍🌈".to_owned(),
            "{\"index\":{\"_id\":\"x\"}}\n{\"delete\":{\"_id\":\"first\"}}\n".to_owned(),
            "x".repeat(TEXT_BYTES),
            "word ".repeat(TEXT_BYTES / 5),
        ];
        for (at, text) in texts.iter().enumerate() {
            let key = format!("k{at}\n\"\\ ü");
            let stored = write(&fixture.set, put(&key, 1, note(text, 1))).await;
            assert_eq!(stored, Ok(Written::Stored), "{at}");
            assert_eq!(held(&fixture.set, &key).await, living(1));
        }
        let digest = fixture.set.digest(&Range::default()).await.unwrap();
        assert_eq!(digest.count, texts.len() as u64);
    })
    .await;
}

#[tokio::test]
async fn fields_at_their_limits_are_stored() {
    each(async |fixture| {
        let long = "k".repeat(KEYWORD_BYTES);
        let document = json!({
            "url": long, "user": long, "group": long, "kind": long, "parent": long, "root": long,
            "tags": (0..1000).map(|n| format!("tag {n}")).collect::<Vec<_>>(),
            "created": i64::MIN, "updated": i64::MAX,
        });
        let key = "ü".repeat(KEY_BYTES / 2);
        assert_eq!(
            write(&fixture.set, put(&key, i64::MAX - 1, document)).await,
            Ok(Written::Stored)
        );
        assert_eq!(held(&fixture.set, &key).await, living(i64::MAX - 1));
        let query = Query { url: Some(long), tag: Some("TAG 999".to_owned()), ..asking() };
        assert_eq!(fixture.ids(&query).await, [key]);
    })
    .await;
}

#[tokio::test]
async fn queries_at_their_limits_succeed() {
    each(async |fixture| {
        write(&fixture.set, put("a", 1, note("word", 1))).await.unwrap();
        let huge = "word ".repeat(100_000);
        let queries = [
            Query { words: Some(huge.clone()), ..asking() },
            Query { words: Some(format!("\"{huge}")), ..asking() },
            Query { words: Some("x".repeat(1_000_000)), ..asking() },
            Query { url: Some(huge), ..asking() },
            Query { tag: Some("\u{0}".to_owned()), ..asking() },
            Query { groups: Some((0..500).map(|n| format!("g{n}")).collect()), ..asking() },
            Query { after: Some(Cursor { updated: i64::MIN, id: "\u{0}".to_owned() }), ..asking() },
            Query { after: Some(Cursor { updated: i64::MAX, id: "x".repeat(512) }), ..asking() },
        ];
        for (at, query) in queries.iter().enumerate() {
            let answered = fixture.search.search(query).await;
            assert!(answered.is_ok(), "{at}: {answered:?}");
        }
    })
    .await;
}
